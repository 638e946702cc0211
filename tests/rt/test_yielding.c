/*
 * test_yielding.c: workers and drivers that yield: who goes on then, and when time passes.
 */
#include "programs.h"

static notes seen;

static kb_error *polls(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_completion *completions = arg;
    kb_request request = submit(ctx, write_to(hbm(rank % SIPS, 0), 1 + rank * 100));
    uint64_t yields = 0;
    for (bool done = false; !done; yields++) {
        KB_TRY(kb_cooperative_yield(ctx));
        KB_TRY(kb_request_test(ctx, request, &done));
    }
    completions[rank] = wait_for(ctx, request);
    assert_true(yields > 1);
    assert_int_equal(kb_context_now(ctx), completions[rank].ended); /* seen when it happened */
    return NULL;
}

static kb_error *waits(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_completion *completions = arg;
    completions[rank] = wait_for(ctx, submit(ctx, write_to(hbm(rank % SIPS, 0), 1 + rank * 100)));
    return NULL;
}

static void loops_around_a_test_end_as_if_they_had_waited(void **state)
{
    (void)state;
    enum { workers = 50 };
    static kb_completion polled[workers], waited[workers];
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, polls, polled, workers));
    kb_context_destroy(ctx);
    ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, waits, waited, workers));
    kb_context_destroy(ctx);
    assert_memory_equal(polled, waited, sizeof polled);
}

static void a_loop_around_a_test_ends_outside_workers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request = submit(ctx, write_to(hbm(0, 0), 1000));
    kb_time last = 0;
    while (!is_done(ctx, request)) {
        expect_ok(kb_cooperative_yield(ctx));
        assert_true(kb_context_now(ctx) >= last);
        last = kb_context_now(ctx);
    }
    kb_completion completion = wait_for(ctx, request);
    assert_int_equal(completion.ended, last);
    kb_context_destroy(ctx);
}

static void yielding_when_there_is_nothing_to_do_is_harmless(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    for (int i = 0; i < 10; i++)
        expect_ok(kb_cooperative_yield(ctx));
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

static kb_error *yields_alone(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    (void)arg;
    for (int i = 0; i < 100; i++)
        KB_TRY(kb_cooperative_yield(ctx));
    assert_int_equal(kb_context_now(ctx), 0); /* nothing is left that could happen */
    return NULL;
}

static void many_yielding_workers_end(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.stack_bytes = 64 << 10});
    expect_ok(kb_spawn(ctx, yields_alone, NULL, 1));
    expect_ok(kb_spawn(ctx, yields_alone, NULL, (uint32_t)fewer_if_slow(300)));
    kb_context_destroy(ctx);
}

/* Rank 0 waits by yielding; ranks 1 and 2 hand a word to and fro, which takes no time. */
typedef struct table_tennis {
    kb_sem sides[2];
    int strokes;
    kb_time over;
} table_tennis;

static kb_error *plays(kb_context *ctx, uint32_t rank, void *arg)
{
    table_tennis *t = arg;
    kb_co *co = kb_context_worker(ctx);
    if (rank == 0) {
        kb_request request = submit(ctx, write_to(hbm(0, 0), 1));
        while (!is_done(ctx, request))
            KB_TRY(kb_cooperative_yield(ctx));
        assert_int_equal(t->strokes, 200);
        return NULL;
    }
    for (int i = 0; i < 100; i++) {
        (void)kb_sem_acquire(co, &t->sides[rank - 1], 1);
        t->strokes++;
        t->over = kb_context_now(ctx);
        kb_sem_release(kb_context_sim(ctx), &t->sides[2 - rank], 1);
    }
    return NULL;
}

static void no_time_passes_while_a_worker_can_go_on(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    table_tennis t = {.strokes = 0};
    kb_sem_init(&t.sides[0], "left", 1);
    kb_sem_init(&t.sides[1], "right", 0);
    expect_ok(kb_spawn(ctx, plays, &t, 3));
    assert_int_equal(t.strokes, 200);
    assert_int_equal(t.over, 0);
    kb_context_destroy(ctx);
}

/* Rank 2 lets rank 1 go on, and then rank 0 has its turn before anything else happens. */
typedef struct chain {
    kb_request request;
    bool passed;
} chain;

static kb_error *passes_it_on(kb_context *ctx, uint32_t rank, void *arg)
{
    chain *c = arg;
    if (rank == 0) {
        c->request = submit(ctx, read_from(hbm(0, 0), 1000));
        while (!c->passed)
            KB_TRY(kb_cooperative_yield(ctx));
        assert_int_equal(kb_context_now(ctx), 0);
    } else if (rank == 1) {
        kb_error_free(kb_request_wait(ctx, c->request, NULL));
        c->passed = true;
    } else {
        KB_TRY(kb_cooperative_yield(ctx));
        KB_TRY(kb_request_free(ctx, c->request));
    }
    return NULL;
}

static void no_time_passes_before_those_that_yield_have_seen_what_others_did(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    chain c = {.passed = false};
    expect_ok(kb_spawn(ctx, passes_it_on, &c, 3));
    assert_true(c.passed);
    kb_context_destroy(ctx);
}

typedef struct polling {
    int yields;
    kb_time turns; /* the times at which it had a turn, summed up */
} polling;

static kb_error *poll_one(kb_context *ctx, uint32_t rank, void *arg)
{
    polling *p = arg;
    kb_request request = submit(ctx, write_to(hbm(rank, 0), 50000 + rank));
    bool done = false;
    while (!done) {
        KB_TRY(kb_cooperative_yield(ctx));
        KB_TRY(kb_request_test(ctx, request, &done));
        p->yields++;
        p->turns += kb_context_now(ctx);
    }
    return kb_request_free(ctx, request);
}

/* Which events there are is the machine's own affair: programs do not see it. */
static void turns_are_the_same_without_elision(void **state)
{
    (void)state;
    polling polls[2][2] = {0};
    for (int plain = 0; plain < 2; plain++) {
        kb_context *ctx = open_small(&(kb_context_options){.no_elision = plain});
        expect_ok(poll_one(ctx, 0, &polls[plain][0]));
        expect_ok(kb_spawn(ctx, poll_one, &polls[plain][1], 3));
        kb_context_destroy(ctx);
    }
    assert_memory_equal(polls[0], polls[1], sizeof polls[0]);
    assert_int_equal(polls[0][0].yields, 1);
}

/* Others get on between the yields of one, to the end of a request each time it lets them. */
static kb_error *works_in_steps(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        if (rank == 0)
            KB_TRY(kb_cooperative_yield(ctx));
        else
            KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(1, 0), 1)), NULL));
        note(&seen, "%u:%d ", rank, i);
    }
    if (rank == 0)
        while (kb_sim_get_stats(kb_context_sim(ctx)).coroutines > 1)
            KB_TRY(kb_cooperative_yield(ctx));
    note(&seen, "%u:end ", rank);
    return NULL;
}

static void others_get_on_while_one_yields(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, works_in_steps, NULL, 2));
    expect_notes(&seen, "0:0 1:0 0:1 1:1 0:2 1:2 1:end 0:end ");
    kb_context_destroy(ctx);
}

/* Yielding and waiting do not change when what happens. */
static kb_error *yields_beside_others(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_time *ended = arg;
    if (rank == 3 && ended[4])
        while (kb_sim_get_stats(kb_context_sim(ctx)).coroutines > 1)
            KB_TRY(kb_cooperative_yield(ctx));
    if (rank == 3)
        return NULL;
    for (uint32_t i = 0; i < 5; i++)
        KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 100 + i)), NULL));
    ended[rank] = kb_context_now(ctx);
    return NULL;
}

static void one_that_yields_does_not_change_the_times_of_others(void **state)
{
    (void)state;
    kb_time ended[2][5] = {{0}};
    for (int yielding = 0; yielding < 2; yielding++) {
        kb_context *ctx = open_small(NULL);
        ended[yielding][4] = yielding;
        expect_ok(kb_spawn(ctx, yields_beside_others, ended[yielding], 4));
        kb_context_destroy(ctx);
    }
    assert_memory_equal(ended[0], ended[1], 3 * sizeof(kb_time));
}

/* With nothing under way, time passes to what the program has in mind itself. */
static kb_error *yields_while_others_sleep(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank > 0) {
        kb_co_sleep(kb_context_worker(ctx), rank * KB_US);
        note(&seen, "%u woke ", rank);
        return NULL;
    }
    kb_time last = kb_context_now(ctx);
    while (kb_sim_get_stats(kb_context_sim(ctx)).coroutines > 1) {
        KB_TRY(kb_cooperative_yield(ctx));
        if (kb_context_now(ctx) != last)
            note(&seen, "now %d us ", (int)(kb_context_now(ctx) / KB_US));
        last = kb_context_now(ctx);
    }
    return NULL;
}

static void with_nothing_under_way_time_passes_to_the_next_to_wake(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, yields_while_others_sleep, NULL, 4));
    expect_notes(&seen, "1 woke now 1 us 2 woke now 2 us 3 woke now 3 us ");
    kb_context_destroy(ctx);
}

static void sleeps_twice(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, KB_US);
    kb_co_sleep(co, KB_US);
}

static void outside_workers_time_passes_to_the_next_to_wake(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_co_spawn(kb_context_sim(ctx), NULL, sleeps_twice, NULL, NULL));
    for (kb_time us = 0; us <= 2; us++) { /* it starts, and wakes twice */
        expect_ok(kb_cooperative_yield(ctx));
        assert_int_equal(kb_context_now(ctx), us * KB_US);
    }
    assert_int_equal(kb_sim_get_stats(kb_context_sim(ctx)).coroutines, 0);
    expect_ok(kb_cooperative_yield(ctx));
    assert_int_equal(kb_context_now(ctx), 2 * KB_US);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_around_a_test_end_as_if_they_had_waited),
        cmocka_unit_test(a_loop_around_a_test_ends_outside_workers),
        cmocka_unit_test(yielding_when_there_is_nothing_to_do_is_harmless),
        cmocka_unit_test(many_yielding_workers_end),
        cmocka_unit_test(no_time_passes_while_a_worker_can_go_on),
        cmocka_unit_test(no_time_passes_before_those_that_yield_have_seen_what_others_did),
        cmocka_unit_test(turns_are_the_same_without_elision),
        cmocka_unit_test(others_get_on_while_one_yields),
        cmocka_unit_test(one_that_yields_does_not_change_the_times_of_others),
        cmocka_unit_test(with_nothing_under_way_time_passes_to_the_next_to_wake),
        cmocka_unit_test(outside_workers_time_passes_to_the_next_to_wake),
    };
    return cmocka_run_group_tests_name("yielding", tests, NULL, NULL);
}
