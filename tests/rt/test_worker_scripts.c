/*
 * test_worker_scripts.c: random programs of workers in which some operations fail, against a model
 * that says who is to blame.
 *
 * The model is the same program in a context of its own, in which a worker that fails notes when
 * and then stands still for ever: it disturbs no worker and stops none. So until the first instant
 * T at which a worker fails, all happens as in the real run, and those that fail at T are to blame.
 * Each worker's operations up to there must be the same at the same times; the real run has a
 * context in which hundreds of others ran and failed before.
 */
#include "as_new.h"
#include "support/seed.h"

enum {
    MAX_WORKERS = 6,
    MAX_OPS = 14,
    MAX_CLEANUPS = 3,
    MAX_TENSORS = 4,
    MAX_BARRIERS = 2,
    MAX_LOG = MAX_OPS + 2
};

typedef enum op_kind {
    SLEEP,       /* for a time that others sleep for, too */
    SLEEP_WRITE, /* for as long as a write takes */
    WRITE,       /* and wait */
    WRITE_LATER,
    COPY_LATER,
    SYNC,
    YIELD,
    NEW_TENSOR,
    FREE_TENSOR,
    READ_TENSOR,
    PUSH,
    POP,
    BARRIER,
    FAULT,       /* and wait */
    FAULT_LATER, /* nobody waits for it but what comes then */
    FAIL,
} op_kind;

typedef struct op {
    op_kind kind;
    uint32_t number;
} op;

typedef struct script {
    uint32_t workers;
    uint32_t op_counts[MAX_WORKERS];
    op ops[MAX_WORKERS][MAX_OPS + MAX_BARRIERS];
} script;

typedef struct run {
    const script *script;
    kb_context *ctx;
    bool model;
    kb_time start;
    kb_time write_time;
    kb_waitlist nowhere;
    struct worker {
        struct run *run;
        kb_cleanup cleanups[MAX_CLEANUPS];
        uint32_t pushed, cleanups_due, cleanups_run;
        kb_tensor tensors[MAX_TENSORS];
        uint32_t tensor_count;
        kb_time log[MAX_LOG]; /* when each operation was done, and the end */
        uint32_t logged;
        bool failed;
        bool is_to_blame; /* it did not fail because of others */
        kb_time failed_at;
    } workers[MAX_WORKERS];
} run;

/* ---- Making them up ---- */

static void insert_op(script *s, uint32_t worker, uint32_t where, op o)
{
    op *ops = s->ops[worker];
    uint32_t count = s->op_counts[worker]++;
    memmove(&ops[where + 1], &ops[where], (count - where) * sizeof *ops);
    ops[where] = o;
}

static script random_script(kb_rng *rng)
{
    script s = {.workers = 1 + (uint32_t)kb_rng_below(rng, MAX_WORKERS)};
    uint64_t harm = kb_rng_below(rng, 4); /* in some, few fail; in others, many */
    for (uint32_t w = 0; w < s.workers; w++) {
        uint64_t count = kb_rng_below(rng, MAX_OPS);
        for (uint64_t i = 0; i < count; i++) {
            bool bad = kb_rng_below(rng, 60) < harm * 5;
            uint64_t kind = bad ? FAULT + kb_rng_below(rng, 3) : kb_rng_below(rng, BARRIER);
            s.ops[w][s.op_counts[w]++] = (op){(op_kind)kind, (uint32_t)kb_rng_below(rng, 4)};
        }
    }
    uint64_t barriers = s.workers == SIPS ? kb_rng_below(rng, MAX_BARRIERS + 1) : 0;
    for (uint64_t b = 0; b < barriers; b++)
        for (uint32_t w = 0; w < s.workers; w++)
            insert_op(&s, w, (uint32_t)kb_rng_below(rng, s.op_counts[w] + 1), (op){BARRIER, 0});
    return s;
}

/* ---- Running them ---- */

static void count_cleanup(void *arg)
{
    struct worker *w = arg;
    w->cleanups_run++;
}

static void clean_up_with_calls(void *arg)
{
    struct worker *w = arg;
    kb_context *ctx = w->run->ctx;
    w->cleanups_run++;
    while (w->tensor_count > 0)
        expect_ok(kb_tensor_free(ctx, w->tensors[--w->tensor_count]));
    expect_ok(kb_request_free(ctx, submit(ctx, write_to(hbm(0, 0), 500))));
}

static kb_error *run_tensor_op(kb_context *ctx, struct worker *w, const op *o)
{
    kb_tensor_spec spec = bytes_spec("x", 1000 * o->number + 1);
    double value;
    switch (o->kind) {
    case NEW_TENSOR:
        if (w->tensor_count == MAX_TENSORS)
            return NULL;
        KB_TRY(kb_full(ctx, &spec, o->number, &w->tensors[w->tensor_count]));
        w->tensor_count++;
        return NULL;
    case FREE_TENSOR:
        if (w->tensor_count == 0)
            return NULL;
        return kb_tensor_free(ctx, w->tensors[--w->tensor_count]);
    default:
        if (w->tensor_count == 0)
            return NULL;
        return kb_tensor_get(ctx, w->tensors[w->tensor_count - 1],
                             o->number % 2 ? KB_TIMED : KB_UNTIMED, &KB_INDEX(0), &value);
    }
}

static kb_error *run_cleanup_op(kb_context *ctx, struct worker *w, const op *o)
{
    kb_co *co = kb_context_worker(ctx);
    if (o->kind == PUSH && w->pushed < MAX_CLEANUPS) {
        w->cleanups_due++;
        kb_co_push_cleanup(co, &w->cleanups[w->pushed++],
                           o->number % 2 ? count_cleanup : clean_up_with_calls, w);
    } else if (o->kind == POP && w->pushed > 0) {
        w->pushed--;
        w->cleanups_due -= o->number % 2;
        kb_co_pop_cleanup(co, o->number % 2 == 0);
    }
    return NULL;
}

static kb_error *run_op(kb_context *ctx, struct worker *w, uint32_t rank, const op *o)
{
    uint32_t sip = rank % SIPS;
    kb_co *co = kb_context_worker(ctx);
    switch (o->kind) {
    case SLEEP:
        kb_co_sleep(co, o->number * 100 * KB_NS);
        return NULL;
    case SLEEP_WRITE:
        kb_co_sleep(co, w->run->write_time);
        return NULL;
    case WRITE:
        return kb_request_wait(ctx, submit(ctx, write_to(hbm(sip, 0), 1000)), NULL);
    case WRITE_LATER:
        return kb_request_free(ctx, submit(ctx, write_to(hbm(o->number, 0), 20000)));
    case COPY_LATER:
        return kb_request_free(
            ctx, submit(ctx, dma((kb_pe){sip, 0, 1}, hbm(sip, 0), hbm(o->number, 64), 3000)));
    case SYNC:
        return kb_synchronize(ctx);
    case YIELD:
        for (uint32_t i = 0; i <= o->number; i++)
            KB_TRY(kb_cooperative_yield(ctx));
        return NULL;
    case NEW_TENSOR:
    case FREE_TENSOR:
    case READ_TENSOR:
        return run_tensor_op(ctx, w, o);
    case PUSH:
    case POP:
        return run_cleanup_op(ctx, w, o);
    case BARRIER:
        return kb_distributed_barrier(ctx, NULL);
    case FAULT:
        return kb_request_wait(ctx, submit(ctx, faulty(sip)), NULL);
    case FAULT_LATER:
        (void)submit(ctx, faulty(o->number));
        return NULL;
    case FAIL:
        return kb_error_new(KB_ERR_CHECK, "an operation failed");
    }
    return NULL;
}

static kb_error *note_failure(run *r, struct worker *w, kb_error *err)
{
    w->failed = true;
    w->failed_at = kb_context_now(r->ctx) - r->start;
    w->is_to_blame = !kb_error_is_secondary(err);
    if (!r->model)
        return err;
    kb_error_free(err);
    kb_wait(kb_context_worker(r->ctx), &r->nowhere);
    return NULL;
}

static kb_error *run_worker(kb_context *ctx, uint32_t rank, void *arg)
{
    run *r = arg;
    struct worker *w = &r->workers[rank];
    if (rank < SIPS) {
        KB_TRY(kb_ahbm_set_device(ctx, rank));
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    }
    for (uint32_t i = 0; i < r->script->op_counts[rank]; i++) {
        kb_error *err = run_op(ctx, w, rank, &r->script->ops[rank][i]);
        if (err)
            return note_failure(r, w, err);
        w->log[w->logged++] = kb_context_now(ctx) - r->start;
    }
    if (!r->model)
        return NULL; /* the wait at the end is part of being a worker */
    kb_error *err = kb_synchronize(ctx);
    if (err)
        return note_failure(r, w, err);
    return NULL;
}

static void do_nothing(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)self;
    (void)arg;
}

/* There is always something to come, so that those that yield let time pass. */
static kb_error *run_script(run *r)
{
    kb_sim *sim = kb_context_sim(r->ctx);
    kb_source source = kb_source_make(KB_SOURCE_ID_MAX - 1);
    kb_handler handler;
    r->start = kb_context_now(r->ctx);
    kb_waitlist_init(&r->nowhere, "nothing");
    for (uint32_t i = 0; i < MAX_WORKERS; i++)
        r->workers[i].run = r;
    expect_ok(kb_sim_add_handler(sim, do_nothing, NULL, &handler));
    kb_event far = kb_sim_after(sim, &source, KB_S, handler, 0);
    kb_error *err = kb_spawn(r->ctx, run_worker, r, r->script->workers);
    (void)kb_sim_cancel(sim, far);
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 0);
    for (uint32_t i = 0; i < r->script->workers; i++) {
        assert_int_equal(r->workers[i].cleanups_run, r->workers[i].cleanups_due);
        while (r->workers[i].tensor_count > 0)
            expect_ok(kb_tensor_free(r->ctx, r->workers[i].tensors[--r->workers[i].tensor_count]));
    }
    expect_ok(kb_synchronize(r->ctx));
    return err;
}

/* ---- Comparing them ---- */

/* Those who failed first and are to blame; if none is, the first of those who failed. */
static void mark_named(const run *model, kb_time first, bool named[MAX_WORKERS])
{
    bool any = false;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < model->script->workers; i++) {
            const struct worker *w = &model->workers[i];
            bool failed = w->failed && w->failed_at == first;
            named[i] = pass == 0 ? failed && w->is_to_blame : named[i] || (failed && !any);
            any = any || named[i];
        }
    }
}

/* Whether the text has the rank among those of whom it says something: "ranks 0-2, 5: ". */
static bool names_rank(const char *text, uint32_t rank)
{
    while ((text = strstr(text, "rank"))) {
        bool found = false;
        unsigned long last = 0;
        text += strlen("rank");
        text += *text == 's';
        while (*text == ' ' || *text == ',' || *text == '-') {
            char *end;
            bool is_range = *text == '-';
            unsigned long number = strtoul(text + strspn(text, " ,-"), &end, 10);
            found = found || number == rank || (is_range && last < rank && rank < number);
            last = number;
            text = end;
        }
        if (found && *text == ':')
            return true;
    }
    return false;
}

static void expect_named(const kb_error *err, const run *model, kb_time first)
{
    uint32_t failed = 0;
    bool is_named[MAX_WORKERS] = {0};
    mark_named(model, first, is_named);
    for (uint32_t i = 0; i < model->script->workers; i++)
        failed += is_named[i];
    char text[64];
    snprintf(text, sizeof text, "%u of %u worker%s failed: ", failed, model->script->workers,
             kb_plural(model->script->workers));
    const char *message = kb_error_message(err), *detail = kb_error_detail(err);
    assert_memory_equal(message, text, strlen(text));
    for (uint32_t i = 0; i < model->script->workers; i++) {
        bool in_message = names_rank(message, i), in_detail = names_rank(detail, i);
        assert_int_equal(in_message || in_detail, is_named[i]);
        if (is_named[i] && failed <= 4)
            assert_true(in_message);
    }
}

/* All that the model did before `first`; and what is there, the model did at the same time. */
static void expect_same_log(const run *model, const run *real, kb_time first)
{
    for (uint32_t i = 0; i < model->script->workers; i++) {
        const struct worker *m = &model->workers[i], *w = &real->workers[i];
        assert_true(w->logged <= m->logged);
        for (uint32_t j = 0; j < m->logged; j++) {
            if (j < w->logged)
                assert_int_equal(w->log[j], m->log[j]);
            else
                assert_true(m->log[j] >= first);
        }
    }
}

static void check_script(kb_context *used, const script *s, kb_time write_time, uint32_t *failures)
{
    kb_context *fresh = open_small(NULL);
    static run model, real;
    model = (run){.script = s, .ctx = fresh, .model = true, .write_time = write_time};
    real = (run){.script = s, .ctx = used, .write_time = write_time};
    kb_error *err = run_script(&model);
    kb_time first = KB_FOREVER;
    for (uint32_t i = 0; i < s->workers; i++)
        if (model.workers[i].failed && model.workers[i].failed_at < first)
            first = model.workers[i].failed_at;
    if (first == KB_FOREVER)
        expect_ok(err);
    else
        expect_error_about(err, KB_ERR_DEADLOCK, "deadlock");

    err = run_script(&real);
    if (first == KB_FOREVER) {
        expect_ok(err);
    } else {
        expect_named(err, &model, first);
        kb_error_free(err);
        ++*failures;
    }
    expect_same_log(&model, &real, first);
    kb_context_destroy(fresh);
}

static void those_to_blame_are_named_and_nothing_else_happens(void **state)
{
    (void)state;
    kb_context *used = open_small(NULL);
    kb_time write_time = carry_out(used, write_to(hbm(0, 0), 1000));
    uint32_t failures = 0;
    const uint64_t scripts = RUNNING_ON_VALGRIND ? 20 : 400;
    for (uint64_t seed = 0; seed < scripts; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        script s = random_script(&rng);
        check_script(used, &s, write_time, &failures);
        if (seed % 20 == 0)
            expect_as_new(used);
    }
    assert_true(failures > scripts / 4 && failures < scripts); /* some of each */
    kb_context_destroy(used);
}

/* A worker yields until a request ends, another one fails, and the request ends when all are gone.
 * Workers after these have turns of their own. */
static void turns_end_with_the_workers(void **state)
{
    (void)state;
    static const script failing = {
        .workers = 2,
        .op_counts = {2, 1},
        .ops = {{{WRITE_LATER, 0}, {FAIL, 0}}, {{YIELD, 1}}},
    };
    static const script next = {
        .workers = 3,
        .op_counts = {1, 2, 2},
        .ops = {{{SLEEP, 2}}, {{WRITE_LATER, 0}, {SYNC, 0}}, {{SLEEP, 2}, {YIELD, 1}}},
    };
    kb_context *used = open_small(NULL);
    kb_time write_time = carry_out(used, write_to(hbm(0, 0), 1000));
    uint32_t failures = 0;
    check_script(used, &failing, write_time, &failures);
    assert_int_equal(failures, 1);
    check_script(used, &next, write_time, &failures);
    assert_int_equal(failures, 1);
    kb_context_destroy(used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_end_with_the_workers),
        cmocka_unit_test(those_to_blame_are_named_and_nothing_else_happens),
    };
    return cmocka_run_group_tests_name("worker scripts", tests, NULL, NULL);
}
