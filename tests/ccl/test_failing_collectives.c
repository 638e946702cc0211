/*
 * test_failing_collectives.c: collectives whose kernels fail or never end, workers that are stopped
 * during a call, and overlapping calls: no rank hangs, and the context can be used afterwards.
 */
#include "support/seed.h"
#include "trial.h"

#include <kernbench/ccl.h>

enum { WORLD = 3 };

/* ---- Kernels that go wrong ---- */

enum { PASSES_ON, NO_DIRECTION, WAITS_FOR_EVER };

KB_KERNEL(goes_wrong, tl_ptr mine, int64_t count, int way, int place)
{
    tl_dims shape = tl_shape(count);
    tl_tensor value = tl_load(mine, shape, TL_F16);
    if (way == NO_DIRECTION && place == 1)
        tl_send("nowhere", value);
    if (way != WAITS_FOR_EVER)
        tl_send("E", value);
    tl_store(mine, tl_recv("W", shape, TL_F16));
}

static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, kb_ccl_setting(call->scope, "kernel_way", PASSES_ON));
    kb_ccl_add_integer(args, target->index);
    for (int64_t i = kb_ccl_setting(call->scope, "kernel_more", 0); i > 0; i--)
        kb_ccl_add_integer(args, i);
    return NULL;
}

static const kb_ccl_algorithm algorithm = {
    .name = "goes_wrong",
    .summary = "passes on to the next, or does not",
    .kernel = &goes_wrong,
    .arguments = arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&algorithm)};

static kb_context *open_plugin(void)
{
    static const kb_ccl_plugin *const plugins[] = {&plugin};
    temporary file = file_of(
        "algorithms:\n"
        "  passes: {module: goes_wrong, topology: ring_1d, mapper: lanes}\n"
        "  nowhere: {module: goes_wrong, topology: ring_1d, mapper: lanes, kernel_way: 1}\n"
        "  forever: {module: goes_wrong, topology: ring_1d, mapper: lanes, kernel_way: 2}\n"
        "  wordy: {module: goes_wrong, topology: ring_1d, mapper: lanes, kernel_more: 100}\n");
    kb_context *ctx = open_sips(
        WORLD, 1, 1, NULL,
        (kb_context_options){
            .ccl = file.path, .ccl_plugins = plugins, .ccl_plugin_count = 1, .threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm")); /* reads the file */
    remove_file(&file);
    return ctx;
}

typedef struct attempt {
    const char *entry;
    bool goes_on; /* after the error, with a good one */
} attempt;

static kb_error *calls(kb_context *ctx, uint32_t rank, void *arg)
{
    const attempt *a = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    kb_tensor x = filled_f16(ctx, 64, rank + 1);
    kb_error *err =
        kb_distributed_all_reduce(ctx, x, KB_SUM, &(kb_collective_options){.algorithm = a->entry});
    if (!a->goes_on)
        return err;
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    if (!strstr(kb_error_message(err), "nowhere"))
        fail_msg("rank %u was told '%s'", rank, kb_error_message(err));
    kb_error_free(err);
    x = filled_f16(ctx, 64, rank + 1);
    for (int i = 0; i < 2; i++)
        KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM,
                                         &(kb_collective_options){.algorithm = "passes"}));
    assert_true(first_of(ctx, x) == (rank + WORLD - 2) % WORLD + 1);
    return NULL;
}

static void expect_usable(kb_context *ctx)
{
    expect_ok(kb_spawn(ctx, calls, &(attempt){.entry = "passes"}, WORLD));
    expect_ok(kb_spawn(ctx, calls, &(attempt){.entry = "one_shot"}, WORLD));
}

static void a_kernel_that_fails_fails_the_call_for_all(void **state)
{
    (void)state;
    kb_context *ctx = open_plugin();
    kb_error *err = kb_spawn(ctx, calls, &(attempt){.entry = "nowhere"}, WORLD);
    expect_error_about(err, KB_ERR_FAULT, "nowhere");
    expect_usable(ctx);
    expect_ok(kb_spawn(ctx, calls, &(attempt){.entry = "nowhere", .goes_on = true}, WORLD));
    expect_usable(ctx);
    kb_context_destroy(ctx);
}

/* Every rank finds out for itself. */
static void too_many_arguments_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_plugin();
    expect_error_about(kb_spawn(ctx, calls, &(attempt){.entry = "wordy"}, WORLD), KB_ERR_INPUT,
                       "algorithm 'goes_wrong' makes 104 arguments, but its kernel expects 4 (");
    expect_usable(ctx);
    kb_context_destroy(ctx);
}

static void a_kernel_that_waits_for_ever_is_a_deadlock(void **state)
{
    (void)state;
    kb_context *ctx = open_plugin();
    kb_error *err = kb_spawn(ctx, calls, &(attempt){.entry = "forever"}, WORLD);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
    expect_usable(ctx);
    kb_context_destroy(ctx);
}

/* The same from outside workers. */
static void outside_workers_too(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        kb_code code;
    } ways[] = {{"nowhere", KB_ERR_FAULT}, {"forever", KB_ERR_DEADLOCK}, {"passes", KB_OK}};
    kb_context *ctx = open_plugin();
    kb_tensor x[WORLD];
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        expect_ok(kb_ahbm_set_device(ctx, rank));
        x[rank] = filled_f16(ctx, 64, rank + 1);
    }
    for (int i = 0; i < 6; i++) {
        kb_collective call = {.kind = KB_ALL_REDUCE,
                              .inputs = x,
                              .count = WORLD,
                              .options = {.algorithm = ways[i % 3].entry}};
        kb_error *err = kb_distributed_call(ctx, &call);
        assert_int_equal(kb_error_code(err), ways[i % 3].code);
        kb_error_free(err);
    }
    kb_context_destroy(ctx);
}

/* ---- Workers that are stopped ---- */

typedef struct stopping {
    kb_co *victim;
    kb_time when;
} stopping;

static kb_error *is_stopped(kb_context *ctx, uint32_t rank, void *arg)
{
    stopping *s = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == 2) {
        kb_co_sleep(kb_context_worker(ctx), s->when);
        kb_co_kill(s->victim);
        return kb_distributed_barrier(ctx, NULL);
    }
    if (rank == 1)
        s->victim = kb_context_worker(ctx);
    return kb_distributed_all_reduce(ctx, filled_f16(ctx, 500, 1), KB_SUM, NULL);
}

/* While queues are installed, while kernels are on their way, while they run. */
static void a_worker_may_be_stopped_anywhere_in_a_call(void **state)
{
    (void)state;
    for (kb_time when = 1; when < 4 * KB_US; when += 300 * KB_NS) {
        kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
        stopping s = {.when = when};
        kb_error *err = kb_spawn(ctx, is_stopped, &s, WORLD);
        assert_non_null(err);
        kb_error_free(err);
        trial t = {.kind = KB_ALL_REDUCE, .dtype = KB_F32, .world = WORLD, .block = 100};
        kb_rng rng;
        kb_rng_init(&rng, test_seed((uint64_t)when));
        kb_machine machine = kb_context_machine(ctx);
        trial_draw(&t, &rng, &machine, false);
        trial_spawn(&t, ctx);
        trial_fini(&t);
        kb_context_destroy(ctx);
    }
}

static kb_error *fails_meanwhile(kb_context *ctx, uint32_t rank, void *arg)
{
    const kb_time *when = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank < 2)
        return kb_distributed_all_reduce(ctx, filled_f16(ctx, 500, 1), KB_SUM, NULL);
    kb_co_sleep(kb_context_worker(ctx), *when);
    return kb_error_new(KB_ERR_CHECK, "boom");
}

static void a_rank_that_fails_is_the_only_one_to_blame(void **state)
{
    (void)state;
    kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
    for (kb_time when = 1; when < 4 * KB_US; when += 700 * KB_NS)
        expect_error(kb_spawn(ctx, fails_meanwhile, &when, WORLD), KB_ERR_CHECK,
                     "1 of 3 workers failed: rank 2: boom");
    kb_context_destroy(ctx);
}

/* ---- Workers that fail while a call of the program around them is under way ---- */

static kb_error *one_fails_in_all_of_it(kb_context *ctx, uint32_t rank, void *arg)
{
    const kb_time *when = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (rank < 2)
        return kb_distributed_all_reduce(ctx, filled_f16(ctx, 500, 1), KB_SUM, NULL);
    kb_co_sleep(kb_context_worker(ctx), *when);
    return kb_error_new(KB_ERR_CHECK, "boom");
}

static void set_off(kb_sim *sim, void *self, uint64_t arg)
{
    (void)self;
    (void)arg;
    kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "an alarm"));
}

/* Alarms every so often: some come while what the workers left ends. */
static void set_alarms(kb_context *ctx, kb_time first, kb_time apart, int count)
{
    kb_sim *sim = kb_context_sim(ctx);
    kb_source source = kb_source_make(KB_SOURCE_ID_MAX - 1);
    kb_handler alarm;
    expect_ok(kb_sim_add_handler(sim, set_off, NULL, &alarm));
    for (int i = 0; i < count; i++)
        (void)kb_sim_at(sim, &source, first + i * apart, alarm, 0);
}

/* Those that are left are no business of what comes next. */
static void let_alarms_ring(kb_context *ctx, kb_time until)
{
    while (kb_context_now(ctx) < until)
        kb_error_free(kb_sim_run(kb_context_sim(ctx), until));
}

static void expect_all(kb_context *ctx, const kb_tensor x[WORLD], double value)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        double got;
        expect_ok(kb_tensor_get(ctx, x[rank], KB_UNTIMED, &KB_INDEX(0), &got));
        assert_true(got == value);
    }
}

static kb_error *all_join(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    return kb_distributed_all_reduce(ctx, filled_f16(ctx, 500, 1), KB_SUM, NULL);
}

/* The program's own call gets to its end, and whatever comes later finds its queues in order. */
static void calls_around_workers_that_fail_go_on(void **state)
{
    (void)state;
    for (int alarms = 0; alarms < 12; alarms += 11) {
        for (kb_time when = 1; when < 8 * KB_US; when += 1300 * KB_NS) {
            kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
            kb_tensor x[WORLD];
            kb_request work;
            expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                expect_ok(kb_ahbm_set_device(ctx, rank));
                x[rank] = filled_f16(ctx, 50000, rank + 1);
            }
            kb_collective call = {.kind = KB_ALL_REDUCE, .inputs = x, .outputs = x, .count = WORLD};
            call.options.work = &work;
            expect_ok(kb_distributed_call(ctx, &call));
            kb_time first = kb_context_now(ctx) + when + 1;
            set_alarms(ctx, first, 200 * KB_NS, alarms);
            expect_error(kb_spawn(ctx, one_fails_in_all_of_it, &when, WORLD), KB_ERR_CHECK,
                         "1 of 3 workers failed: rank 2: boom");
            let_alarms_ring(ctx, first + alarms * 200 * KB_NS);
            expect_ok(kb_request_wait(ctx, work, NULL));
            expect_ok(kb_request_free(ctx, work));
            expect_all(ctx, x, 1 + 2 + 3);
            call.options.work = NULL;
            expect_ok(kb_distributed_call(ctx, &call));
            expect_all(ctx, x, 3 * (1 + 2 + 3));
            expect_ok(kb_spawn(ctx, all_join, NULL, WORLD));
            kb_context_destroy(ctx);
        }
    }
}

/* ---- Calls that overlap ---- */

enum { CALLS = 4 };

typedef struct overlap {
    trial trials[CALLS];
    bool leaves; /* the process group, at once */
} overlap;

static kb_error *has_many_under_way(kb_context *ctx, uint32_t rank, void *arg)
{
    overlap *o = arg;
    kb_request works[CALLS];
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (int i = 0; i < CALLS; i++) {
        trial_make(&o->trials[i], ctx, rank);
        kb_co_sleep(kb_context_worker(ctx), (rank * 7 + (uint32_t)i * 5) % 11 * KB_US);
        KB_TRY(trial_call(&o->trials[i], ctx, rank, &(kb_collective_options){.work = &works[i]}));
    }
    if (o->leaves)
        KB_TRY(kb_distributed_destroy_process_group(ctx));
    for (int i = CALLS - 1; i >= 0; i--) {
        KB_TRY(kb_request_wait(ctx, works[i], NULL));
        KB_TRY(kb_request_free(ctx, works[i]));
    }
    for (int i = 0; i < CALLS; i++)
        trial_check(&o->trials[i], ctx, rank);
    return NULL;
}

static void calls_of_late_ranks_may_overlap(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    for (uint64_t round = 0; round < cases(12); round++) {
        kb_context *ctx = open_sips(WORLD, 2, 1, NULL, (kb_context_options){.threads = 1});
        kb_machine machine = kb_context_machine(ctx);
        overlap *o = calloc(1, sizeof *o);
        assert_non_null(o);
        o->leaves = round % 2;
        for (int i = 0; i < CALLS; i++) {
            trial *t = &o->trials[i];
            *t = (trial){.kind = (kb_collective_kind)below(&rng, KB_ALL_TO_ALL + 1),
                         .dtype = KB_F32,
                         .root = (uint32_t)below(&rng, WORLD),
                         .world = WORLD,
                         .block = 1 + below(&rng, 200)};
            trial_draw(t, &rng, &machine, one_in(&rng, 2));
        }
        expect_ok(kb_spawn(ctx, has_many_under_way, o, WORLD));
        for (int i = 0; i < CALLS; i++)
            trial_fini(&o->trials[i]);
        free(o);
        kb_context_destroy(ctx);
    }
}

/* ---- Calls on the same tensor ---- */

static kb_tensor laid_out(kb_context *ctx, kb_shape shape, kb_policy policy, double value)
{
    kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = shape, .policy = &policy, .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

typedef struct chain {
    kb_policy policy;
    bool gathers_first; /* which needs another layout than sums */
    const char *algorithm;
} chain;

static kb_error *chains_calls(kb_context *ctx, uint32_t rank, void *arg)
{
    const chain *c = arg;
    enum { SUMS = 3 };
    kb_request works[SUMS + 1];
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = laid_out(ctx, KB_SHAPE(6, 64), c->policy, -1);
    kb_tensor mine = laid_out(ctx, KB_SHAPE(2, 64), c->policy, rank + 1);
    kb_tensor part = c->gathers_first ? mine : laid_out(ctx, KB_SHAPE(6, 64), c->policy, rank + 1);
    kb_tensor sum = c->gathers_first ? x : part;
    if (c->gathers_first)
        KB_TRY(kb_distributed_all_gather(ctx, x, mine,
                                         &(kb_collective_options){.work = &works[SUMS]}));
    for (int i = 0; i < SUMS; i++)
        KB_TRY(kb_distributed_all_reduce(
            ctx, sum, KB_SUM,
            &(kb_collective_options){.work = &works[i], .algorithm = c->algorithm}));
    for (int i = 0; i < SUMS + c->gathers_first; i++) {
        KB_TRY(kb_request_wait(ctx, works[i], NULL));
        KB_TRY(kb_request_free(ctx, works[i]));
    }
    for (uint64_t row = 0; row < 6; row++) {
        double value, expected = c->gathers_first ? 27 * (double)(row / 2 + 1) : 54;
        KB_TRY(kb_tensor_get(ctx, sum, KB_UNTIMED, &KB_INDEX(row, 63), &value));
        assert_true(value == expected);
    }
    return NULL;
}

/*
 * Ranks have 1, 2, 3. The first sum is 6 everywhere, the second 3 * 6 and the third 3 * 18 = 54.
 * Of what was gathered, which is the same on all ranks, three sums make 27 times as much.
 */
static void calls_on_one_tensor_come_one_after_the_other(void **state)
{
    (void)state;
    static const kb_policy policies[] = {
        {0}, /* replicated: always staged */
        {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
        {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE}, /* staged where there are blocks */
    };
    for (size_t i = 0; i < 12; i++) { /* PEs keep to their parts, or work on those of others */
        kb_context *ctx = open_sips(WORLD, 2, 1, NULL, (kb_context_options){.threads = 1});
        chain c = {policies[i / 4], i % 2, i % 4 < 2 ? "ring_rsag" : "streams"};
        expect_ok(kb_spawn(ctx, chains_calls, &c, WORLD));
        kb_context_destroy(ctx);
    }
}

/* ---- Deadlocks ---- */

static kb_error *waits_in_a_circle(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == 1)
        return kb_distributed_recv(ctx, filled_f16(ctx, 64, 1), 2, NULL);
    return kb_distributed_all_reduce(ctx, filled_f16(ctx, 64, 1), KB_SUM, NULL);
}

static void a_deadlock_says_which_calls_wait(void **state)
{
    (void)state;
    kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
    kb_error *err = kb_spawn(ctx, waits_in_a_circle, NULL, WORLD);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    static const char *const lines[] = {
        "rank 0 waits for collective 1, all_reduce, among its ranks\n",
        "rank 1 waits for a receive from rank 2\n",
        "rank 2 waits for collective 1, all_reduce, among its ranks\n",
    };
    for (size_t i = 0; i < 3; i++)
        if (!strstr(kb_error_detail(err), lines[i]))
            fail_msg("'%s' is not in '%s'", lines[i], kb_error_detail(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

/* Rank 0 has its send first, rank 1 its receive last. */
static kb_error *has_another_order(kb_context *ctx, uint32_t rank, void *arg)
{
    const bool *receives = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = filled_f16(ctx, 64, 1), y = filled_f16(ctx, 64, 1);
    kb_request work;
    kb_collective_options async = {.work = &work};
    if (rank == 0 && *receives)
        KB_TRY(kb_distributed_recv(ctx, x, 1, &async));
    if (rank == 0 && !*receives)
        KB_TRY(kb_distributed_send(ctx, x, 1, &async));
    KB_TRY(kb_distributed_all_reduce(ctx, y, KB_SUM, NULL));
    if (rank == 1 && *receives)
        KB_TRY(kb_distributed_send(ctx, x, 0, NULL));
    if (rank == 1 && !*receives)
        KB_TRY(kb_distributed_recv(ctx, x, 0, NULL));
    return NULL;
}

static void a_deadlock_says_behind_what_a_call_waits(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "rank 0 waits for collective 1, all_reduce, among its ranks, called while a send to rank 1 "
        "waited\nrank 1 waits for collective 1, all_reduce, among its ranks\n",
        "rank 0 waits for collective 1, all_reduce, among its ranks, called while a receive from "
        "rank 1 waited\nrank 1 waits for collective 1, all_reduce, among its ranks\n",
    };
    for (int receives = 0; receives < 2; receives++) {
        kb_context *ctx = open_sips(2, 1, 1, NULL, (kb_context_options){.threads = 1});
        kb_error *err = kb_spawn(ctx, has_another_order, &(bool){receives}, 2);
        assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
        if (!strstr(kb_error_detail(err), lines[receives]))
            fail_msg("'%s' is not in '%s'", lines[receives], kb_error_detail(err));
        kb_error_free(err);
        kb_context_destroy(ctx);
    }
}

static void a_context_may_go_with_calls_under_way(void **state)
{
    (void)state;
    for (kb_time when = 0; when < 4 * KB_US; when += 500 * KB_NS) {
        kb_context *ctx = open_sips(WORLD, 2, 1, NULL, (kb_context_options){.threads = 1});
        kb_machine machine = kb_context_machine(ctx);
        kb_rng rng;
        kb_rng_init(&rng, test_seed((uint64_t)when));
        trial t = {.kind = KB_ALL_GATHER, .dtype = KB_F16, .world = WORLD, .block = 1000};
        trial_draw(&t, &rng, &machine, true);
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        kb_tensor inputs[WORLD], outputs[WORLD];
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            expect_ok(kb_ahbm_set_device(ctx, rank));
            trial_make(&t, ctx, rank);
            inputs[rank] = t.inputs[rank].tensor;
            outputs[rank] = t.outputs[rank].tensor;
        }
        kb_request work;
        kb_collective call = {.kind = t.kind,
                              .inputs = inputs,
                              .outputs = outputs,
                              .count = WORLD,
                              .options = {.work = &work}};
        expect_ok(kb_distributed_call(ctx, &call));
        expect_ok(kb_sim_run(kb_context_sim(ctx), kb_context_now(ctx) + when));
        trial_fini(&t);
        kb_context_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_fails_fails_the_call_for_all),
        cmocka_unit_test(too_many_arguments_are_refused),
        cmocka_unit_test(a_kernel_that_waits_for_ever_is_a_deadlock),
        cmocka_unit_test(outside_workers_too),
        cmocka_unit_test(a_worker_may_be_stopped_anywhere_in_a_call),
        cmocka_unit_test(a_rank_that_fails_is_the_only_one_to_blame),
        cmocka_unit_test(calls_around_workers_that_fail_go_on),
        cmocka_unit_test(calls_of_late_ranks_may_overlap),
        cmocka_unit_test(calls_on_one_tensor_come_one_after_the_other),
        cmocka_unit_test(a_deadlock_says_which_calls_wait),
        cmocka_unit_test(a_deadlock_says_behind_what_a_call_waits),
        cmocka_unit_test(a_context_may_go_with_calls_under_way),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
