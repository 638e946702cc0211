/*
 * test_workers.c: spawning workers: their turns, time, waiting and ends. Yielding is in
 * test_yielding.c; what happens when one fails in test_worker_failures.c.
 *
 * Checks H4.
 */
#include "programs.h"

static notes seen;

/* ---- Turns ---- */

static kb_error *notes_its_turns(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    note(&seen, "%u:a ", rank);
    KB_TRY(kb_cooperative_yield(ctx));
    note(&seen, "%u:b ", rank);
    KB_TRY(kb_cooperative_yield(ctx));
    note(&seen, "%u:c ", rank);
    return NULL;
}

static void workers_take_turns_in_the_order_of_ranks(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    for (int i = 0; i < 3; i++) { /* the same every time */
        expect_ok(kb_spawn(ctx, notes_its_turns, NULL, 4));
        expect_notes(&seen, "0:a 1:a 2:a 3:a 0:b 1:b 2:b 3:b 0:c 1:c 2:c 3:c ");
        assert_int_equal(kb_context_now(ctx), 0);
    }
    kb_context_destroy(ctx);
}

/* All are woken at one instant, by the rank that is the last to get there. */
static kb_error *meets_twice(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_sem *gates = arg;
    kb_co *co = kb_context_worker(ctx);
    for (int access = 0; access < 2; access++) {
        kb_co_sleep(co, (kb_time)(rank * 7 % 4) * KB_US);
        note(&seen, "%u ", rank);
        if (rank == 1 && access == 0) {
            kb_co_sleep(co, 10 * KB_US);
            kb_sem_release(kb_context_sim(ctx), &gates[0], 3);
        } else if (access == 0) {
            (void)kb_sem_acquire(co, &gates[0], 1);
        }
    }
    return NULL;
}

/* Rank 0 sleeps 0 us, 1: 3, 2: 2, 3: 1. The second time they begin together. */
static void those_that_can_go_on_at_an_instant_do_in_the_order_of_ranks(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_sem gates[2];
    kb_sem_init(&gates[0], "gate", 0);
    expect_ok(kb_spawn(ctx, meets_twice, gates, 4));
    expect_notes(&seen, "0 3 2 1 0 3 2 1 ");
    assert_int_equal(kb_context_now(ctx), 16 * KB_US);
    kb_context_destroy(ctx);
}

typedef struct submissions {
    uint32_t count;
    kb_request requests[SIPS];
    kb_completion completions[SIPS];
    uint64_t events;
} submissions;

static kb_error *submits_first(kb_context *ctx, uint32_t rank, void *arg)
{
    submissions *s = arg;
    assert_int_equal(s->count++, rank);
    assert_int_equal(kb_context_now(ctx), 0);
    for (uint32_t other = 0; other < rank; other++)
        assert_false(is_done(ctx, s->requests[other]));
    /* Nothing has happened but that workers have started, one event each. */
    kb_sim_stats stats = kb_sim_get_stats(kb_context_sim(ctx));
    assert_int_equal(stats.events + stats.elided, rank + 1);
    s->requests[rank] = submit(ctx, write_to(hbm(rank, 0), 1));
    KB_TRY(kb_request_wait(ctx, s->requests[rank], &s->completions[rank]));
    assert_int_equal(s->count, SIPS);
    return NULL;
}

static void all_have_submitted_before_any_time_passes(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    submissions s = {0};
    expect_ok(kb_spawn(ctx, submits_first, &s, SIPS));
    for (uint32_t rank = 0; rank < SIPS; rank++) {
        assert_int_equal(s.completions[rank].issued, 0);
        assert_true(s.completions[rank].ended > 0);
    }
    kb_context_destroy(ctx);
}

/* Who does what does not matter: each fills its part, all read the sum of it. */
typedef struct exchange {
    const uint32_t *role;
    uint32_t sums[SIPS];
    kb_tensor parts[SIPS];
} exchange;

static kb_error *exchanges(kb_context *ctx, uint32_t rank, void *arg)
{
    exchange *e = arg;
    uint32_t role = e->role[rank];
    kb_tensor_spec spec = {.name = "part", .dtype = KB_I32, .shape = KB_SHAPE(100)};
    KB_TRY(kb_ahbm_set_device(ctx, role));
    KB_TRY(kb_full(ctx, &spec, 1 << role, &e->parts[role]));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    for (uint32_t other = 0; other < SIPS; other++) {
        int32_t numbers[100];
        uint32_t which = (role + other) % SIPS;
        KB_TRY(kb_tensor_to_host(ctx, e->parts[which], KB_TIMED, numbers, sizeof numbers));
        for (uint32_t i = 0; i < 100; i++)
            e->sums[role] = e->sums[role] * 3 + (uint32_t)numbers[i] * (which + 1);
    }
    return NULL;
}

static void results_do_not_depend_on_the_order(void **state)
{
    (void)state;
    static const uint32_t roles[][SIPS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    uint32_t expected[SIPS];
    for (int i = 0; i < 4; i++) {
        kb_context *ctx = open_small(NULL);
        exchange e = {.role = roles[i]};
        expect_ok(kb_spawn(ctx, exchanges, &e, SIPS));
        if (i == 0)
            memcpy(expected, e.sums, sizeof expected);
        assert_memory_equal(e.sums, expected, sizeof expected);
        kb_context_destroy(ctx);
    }
}

/* ---- How many ---- */

static kb_error *counts(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)ctx;
    (void)rank;
    ++*(uint32_t *)arg;
    return NULL;
}

static void there_are_as_many_workers_as_were_asked_for(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    static const uint32_t numbers[] = {1, 2, 3, SIPS, SIPS + 1, 100};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint32_t count = 0;
        expect_ok(kb_spawn(ctx, counts, &count, numbers[i]));
        assert_int_equal(count, numbers[i]);
        assert_false(kb_distributed_is_initialized(ctx)); /* and no group is needed */
        assert_int_equal(kb_sim_get_stats(kb_context_sim(ctx)).coroutines, 0);
    }
    kb_context_destroy(ctx);
}

static void wrong_numbers_of_workers_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint32_t count = 0;
    expect_error(kb_spawn(ctx, counts, &count, 0), KB_ERR_INPUT,
                 "kb_spawn: 0 workers; expected 1 to 65536");
    expect_error(kb_spawn(ctx, counts, &count, 65537), KB_ERR_INPUT,
                 "kb_spawn: 65537 workers; expected 1 to 65536");
    expect_error(kb_spawn(ctx, counts, &count, UINT32_MAX), KB_ERR_INPUT,
                 "kb_spawn: 4294967295 workers; expected 1 to 65536");
    expect_error(kb_spawn(ctx, NULL, &count, 1), KB_ERR_INPUT, "kb_spawn: no function was given");
    assert_int_equal(count, 0);
    kb_context_destroy(ctx);
}

typedef struct crowd {
    uint32_t started, ended;
} crowd;

static kb_error *is_one_of_many(kb_context *ctx, uint32_t rank, void *arg)
{
    crowd *c = arg;
    assert_int_equal(c->started++, rank);
    assert_int_equal(kb_context_now(ctx), 0);
    KB_TRY(kb_cooperative_yield(ctx));
    kb_request request = submit(ctx, write_to(hbm(rank % SIPS, rank), 1));
    KB_TRY(kb_request_wait(ctx, request, NULL));
    KB_TRY(kb_request_free(ctx, request));
    c->ended++;
    return NULL;
}

static void a_thousand_workers_run(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.stack_bytes = 64 << 10});
    crowd c = {0};
    expect_ok(kb_spawn(ctx, is_one_of_many, &c, 1000));
    assert_int_equal(c.ended, 1000);
    kb_context_destroy(ctx);
}

/* ---- Inside ---- */

static kb_error *looks_around(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_co **last = arg;
    kb_co *co = kb_context_worker(ctx);
    assert_non_null(co);
    assert_ptr_not_equal(co, *last);
    *last = co;
    char name[16];
    snprintf(name, sizeof name, "rank %u", rank);
    assert_string_equal(kb_co_name(co), name);
    assert_ptr_equal(kb_co_sim(co), kb_context_sim(ctx));
    return NULL;
}

static void a_worker_is_a_coroutine_with_a_name(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_co *last = NULL;
    assert_null(kb_context_worker(ctx));
    expect_ok(kb_spawn(ctx, looks_around, &last, 12));
    assert_null(kb_context_worker(ctx));
    kb_context_destroy(ctx);
}

static kb_error *spawns_itself(kb_context *ctx, uint32_t rank, void *arg)
{
    uint32_t *count = arg;
    char message[64];
    snprintf(message, sizeof message, "kb_spawn: rank %u is a worker itself; spawn from outside",
             rank);
    expect_error(kb_spawn(ctx, counts, count, 2), KB_ERR_INPUT, message);
    KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 1)), NULL));
    expect_error(kb_spawn(ctx, counts, count, 2), KB_ERR_INPUT, message);
    KB_TRY(kb_cooperative_yield(ctx));
    *count += 100; /* it goes on */
    return NULL;
}

static void workers_cannot_spawn(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint32_t count = 0;
    expect_ok(kb_spawn(ctx, spawns_itself, &count, 3));
    assert_int_equal(count, 300);
    kb_context_destroy(ctx);
}

static void tries_to_spawn(kb_co *co, void *arg)
{
    (void)co;
    kb_context *ctx = arg;
    uint32_t count = 0;
    expect_error(kb_spawn(ctx, counts, &count, 2), KB_ERR_INPUT,
                 "kb_spawn: not inside the coroutine 'other'");
    assert_int_equal(count, 0);
    assert_null(kb_context_worker(ctx));
    note(&seen, "tried");
}

static void coroutines_cannot_spawn(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_co_options options = {.name = "other"};
    expect_ok(kb_co_spawn(kb_context_sim(ctx), &options, tries_to_spawn, ctx, NULL));
    expect_ok(kb_sim_run(kb_context_sim(ctx), KB_FOREVER));
    expect_notes(&seen, "tried");
    kb_context_destroy(ctx);
}

/* Fills so much of the stack, and waits at the bottom. */
__attribute__((noinline)) static kb_error *descend(kb_context *ctx, uint32_t rank, size_t levels)
{
    volatile unsigned char frame[1024];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = (unsigned char)(levels + i + rank);
    kb_error *err = levels > 0 ? descend(ctx, rank, levels - 1) : kb_synchronize(ctx);
    for (size_t i = 0; i < sizeof frame; i++)
        if (frame[i] != (unsigned char)(levels + i + rank) && !err)
            err = kb_error_new(KB_ERR_CHECK, "the stack of rank %u was written over", rank);
    return err;
}

static kb_error *goes_deep(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_request request = submit(ctx, write_to(hbm(rank % SIPS, 0), 100));
    KB_TRY(kb_request_free(ctx, request));
    return descend(ctx, rank, *(const size_t *)arg);
}

static void workers_have_deep_stacks(void **state)
{
    (void)state;
    size_t levels = 120; /* half of 256 KiB; sanitizers make frames larger */
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, goes_deep, &levels, 8));
    kb_context_destroy(ctx);
    levels = 4000;
    ctx = open_small(&(kb_context_options){.stack_bytes = 16 << 20});
    expect_ok(kb_spawn(ctx, goes_deep, &levels, 3));
    kb_context_destroy(ctx);
}

/* ---- Ends ---- */

static kb_error *leaves_work(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_request *requests = arg;
    requests[rank] = submit(ctx, write_to(hbm(rank, 0), 1000 * (rank + 1)));
    expect_ok(kb_request_free(ctx, submit(ctx, write_to(hbm(rank, 0), 1))));
    return NULL;
}

static void spawn_returns_when_all_work_has_ended(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request requests[SIPS];
    expect_ok(kb_spawn(ctx, leaves_work, requests, SIPS));
    kb_sim_stats before = kb_sim_get_stats(kb_context_sim(ctx));
    kb_time last = 0;
    for (int i = 0; i < SIPS; i++) {
        assert_true(is_done(ctx, requests[i]));
        kb_completion completion = wait_for(ctx, requests[i]);
        last = completion.ended > last ? completion.ended : last;
    }
    assert_true(kb_context_now(ctx) >= last);
    assert_true(kb_context_now(ctx) < last + KB_US);
    expect_ok(kb_synchronize(ctx));
    assert_int_equal(kb_sim_get_stats(kb_context_sim(ctx)).events, before.events);
    kb_context_destroy(ctx);
}

static kb_error *leaves_early(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_request *requests = arg;
    requests[rank] = submit(ctx, write_to(hbm(rank, 0), 1000));
    if (rank == 1)
        kb_co_exit(kb_context_worker(ctx)); /* as if it had returned */
    return NULL;
}

static void a_worker_that_exits_has_its_work_waited_for(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request requests[2];
    expect_ok(kb_spawn(ctx, leaves_early, requests, 2));
    assert_true(is_done(ctx, requests[0]));
    assert_true(is_done(ctx, requests[1]));
    kb_context_destroy(ctx);
}

/* What the driver has under way is its own matter. */
static void workers_do_not_wait_for_the_drivers_work(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request huge = submit(ctx, dma((kb_pe){0, 0, 0}, hbm(0, 0), hbm(0, 1 << 28), 1 << 24));
    kb_request requests[SIPS];
    expect_ok(kb_spawn(ctx, leaves_work, requests, SIPS));
    assert_false(is_done(ctx, huge));
    kb_time spawned = kb_context_now(ctx);
    kb_completion completion = wait_for(ctx, huge);
    assert_true(completion.ended > 10 * spawned);
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

static kb_error *makes_a_tensor(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_tensor *tensors = arg;
    kb_tensor_spec spec = bytes_spec(NULL, 4);
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    return kb_full(ctx, &spec, rank + 1, &tensors[rank]);
}

static void what_workers_make_stays(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor tensors[SIPS];
    expect_ok(kb_spawn(ctx, makes_a_tensor, tensors, SIPS));
    for (uint32_t rank = 0; rank < SIPS; rank++) {
        unsigned char back[4];
        expect_ok(kb_tensor_to_host(ctx, tensors[rank], KB_UNTIMED, back, 4));
        assert_int_equal(back[3], rank + 1);
        expect_ok(kb_tensor_free(ctx, tensors[rank]));
    }
    kb_context_destroy(ctx);
}

/* ---- Reads of tensors ---- */

static kb_message huge_copy(uint32_t sip)
{
    return dma((kb_pe){sip, 0, 0}, hbm(sip, 0), hbm(sip, 1 << 28), 1 << 24);
}

typedef struct readers {
    bool barrier; /* the reader has joined a barrier that the other one joins late */
    kb_time read, ended;
} readers;

static kb_error *reads_beside_a_large_transfer(kb_context *ctx, uint32_t rank, void *arg)
{
    readers *r = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (r->barrier)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == 0) {
        kb_tensor x;
        kb_tensor_spec spec = bytes_spec("x", 64);
        kb_request work = {0};
        unsigned char back[64];
        if (r->barrier)
            KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}));
        KB_TRY(kb_full(ctx, &spec, 5, &x));
        KB_TRY(kb_tensor_to_host(ctx, x, KB_TIMED, back, sizeof back));
        assert_int_equal(back[63], 5);
        r->read = kb_context_now(ctx);
        if (r->barrier)
            assert_false(is_done(ctx, work));
        return r->barrier ? kb_request_wait(ctx, work, NULL) : NULL;
    }
    KB_TRY(kb_request_wait(ctx, submit(ctx, huge_copy(1)), NULL));
    r->ended = kb_context_now(ctx);
    return r->barrier ? kb_distributed_barrier(ctx, NULL) : NULL;
}

static void a_read_waits_for_the_callers_own_work_alone(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    readers r = {0};
    expect_ok(kb_spawn(ctx, reads_beside_a_large_transfer, &r, 2));
    assert_true(r.read > 0);
    assert_true(r.ended > 10 * r.read);
    kb_context_destroy(ctx);
}

static void a_read_does_not_wait_for_barriers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.topology = "default"}); /* has two SIPs */
    readers r = {.barrier = true};
    expect_ok(kb_spawn(ctx, reads_beside_a_large_transfer, &r, 2));
    assert_true(r.read > 0);
    assert_true(r.ended > 10 * r.read);
    kb_context_destroy(ctx);
}

static kb_error *reads_its_own(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_time *ended = arg;
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("x", 64);
    spec.access = KB_UNTIMED;
    double value;
    KB_TRY(kb_full(ctx, &spec, 5, &x));
    note(&seen, "%u:a ", rank);
    KB_TRY(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(0), &value)); /* nothing is pending */
    note(&seen, "%u:b ", rank);
    assert_int_equal(kb_context_now(ctx), 0);
    kb_request request = submit(ctx, write_to(hbm(rank, 1 << 20), 100));
    KB_TRY(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(0), &value)); /* now there is */
    note(&seen, "%u:c ", rank);
    assert_true(is_done(ctx, request));
    ended[rank] = kb_context_now(ctx);
    kb_completion completion = wait_for(ctx, request);
    assert_int_equal(completion.ended, ended[rank]);
    return NULL;
}

static void a_read_yields_only_if_something_is_pending(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_time ended[3];
    expect_ok(kb_spawn(ctx, reads_its_own, ended, 3));
    expect_notes(&seen, "0:a 0:b 1:a 1:b 2:a 2:b 0:c 1:c 2:c ");
    assert_true(ended[0] <= ended[1] && ended[1] <= ended[2]);
    kb_context_destroy(ctx);
}

/* ---- The driver ---- */

static void outside_workers_one_driver_may_call_everything(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor x, y;
    kb_tensor_spec spec = bytes_spec("x", 100);
    unsigned char back[100];
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_full(ctx, &spec, 7, &x));
    expect_ok(kb_ahbm_set_device(ctx, 1));
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
    expect_ok(kb_distributed_barrier(ctx, NULL));
    expect_ok(kb_tensor_to_host(ctx, y, KB_TIMED, back, sizeof back));
    assert_int_equal(back[99], 7);
    expect_ok(kb_synchronize(ctx));
    expect_ok(kb_distributed_destroy_process_group(ctx));
    kb_context_destroy(ctx);
}

static kb_error *waits_for_a_write(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    return kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 1)), NULL);
}

typedef struct intruder {
    kb_context *ctx;
    kb_request request;
    int calls;
} intruder;

/* It is neither a worker nor outside of all: what would wait is refused. */
static void intrude(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)arg;
    intruder *i = self;
    uint32_t count = 0;
    const char *refusal = "event handlers cannot wait";
    expect_error_about(kb_request_wait(i->ctx, i->request, NULL), KB_ERR_BUG, refusal);
    expect_error_about(kb_synchronize(i->ctx), KB_ERR_BUG, refusal);
    expect_error_about(kb_spawn(i->ctx, counts, &count, 2), KB_ERR_BUG, refusal);
    expect_error_about(kb_cooperative_yield(i->ctx), KB_ERR_BUG, refusal);
    assert_false(is_done(i->ctx, i->request));
    assert_int_equal(count, 0);
    i->calls++;
}

static void handlers_of_events_cannot_wait(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_sim *sim = kb_context_sim(ctx);
    intruder i = {.ctx = ctx, .request = submit(ctx, read_from(hbm(0, 0), 10000))};
    kb_handler handler;
    kb_source source = kb_source_make(KB_SOURCE_ID_MAX - 1);
    expect_ok(kb_sim_add_handler(sim, intrude, &i, &handler));
    (void)kb_sim_after(sim, &source, KB_NS, handler, 0); /* while the driver waits */
    (void)kb_sim_after(sim, &source, 2 * KB_NS, handler, 0);
    uint32_t count = 0;
    expect_ok(kb_spawn(ctx, counts, &count, 1));
    kb_request longer = submit(ctx, huge_copy(1));
    kb_completion completion = wait_for(ctx, i.request);
    assert_int_equal(completion.ended, kb_context_now(ctx));
    assert_false(is_done(ctx, longer)); /* the wait was not disturbed */
    assert_int_equal(i.calls, 2);
    i.request = submit(ctx, read_from(hbm(0, 0), 10000));
    (void)kb_sim_after(sim, &source, KB_NS, handler, 0); /* while workers do */
    expect_ok(kb_spawn(ctx, waits_for_a_write, NULL, 2));
    assert_int_equal(i.calls, 3);
    kb_context_destroy(ctx);
}

/* A worker of one context may be the driver of another. */
static kb_error *drives_another(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_context *other = arg;
    KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 1)), NULL));
    kb_time now = kb_context_now(ctx);
    assert_null(kb_context_worker(other));
    (void)carry_out(other, write_to(hbm(rank, 0), 5000));
    uint32_t count = 0;
    KB_TRY(kb_spawn(other, counts, &count, 3));
    assert_int_equal(count, 3);
    assert_int_equal(kb_context_now(ctx), now);
    return kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 1)), NULL);
}

static void a_worker_may_drive_another_context(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL), *other = open_small(NULL);
    expect_ok(kb_spawn(ctx, drives_another, other, 2));
    kb_time alone = kb_context_now(ctx);
    kb_context_destroy(other);
    kb_context_destroy(ctx);
    assert_true(alone > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_take_turns_in_the_order_of_ranks),
        cmocka_unit_test(those_that_can_go_on_at_an_instant_do_in_the_order_of_ranks),
        cmocka_unit_test(all_have_submitted_before_any_time_passes),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(there_are_as_many_workers_as_were_asked_for),
        cmocka_unit_test(wrong_numbers_of_workers_are_refused),
        cmocka_unit_test(a_thousand_workers_run),
        cmocka_unit_test(a_worker_is_a_coroutine_with_a_name),
        cmocka_unit_test(workers_cannot_spawn),
        cmocka_unit_test(coroutines_cannot_spawn),
        cmocka_unit_test(workers_have_deep_stacks),
        cmocka_unit_test(spawn_returns_when_all_work_has_ended),
        cmocka_unit_test(a_worker_that_exits_has_its_work_waited_for),
        cmocka_unit_test(workers_do_not_wait_for_the_drivers_work),
        cmocka_unit_test(what_workers_make_stays),
        cmocka_unit_test(a_read_waits_for_the_callers_own_work_alone),
        cmocka_unit_test(a_read_does_not_wait_for_barriers),
        cmocka_unit_test(a_read_yields_only_if_something_is_pending),
        cmocka_unit_test(outside_workers_one_driver_may_call_everything),
        cmocka_unit_test(handlers_of_events_cannot_wait),
        cmocka_unit_test(a_worker_may_drive_another_context),
    };
    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
