/*
 * test_contract.c: promises of kernbench.h that are easy to break without noticing: what happens
 * with ids used twice, handles kept too long, things cancelled late, and misuse.
 *
 * Checks S4.
 */
#include "support/expect.h"

#include "sim/engine.h"

static kb_sim *sim;

static int start(void **state)
{
    (void)state;
    expect_ok(kb_sim_create(NULL, &sim));
    return 0;
}

static int finish(void **state)
{
    (void)state;
    kb_sim_destroy(sim);
    sim = NULL;
    return 0;
}

static kb_handler handler(kb_handler_fn *fn, void *self)
{
    kb_handler id;
    expect_ok(kb_sim_add_handler(sim, fn, self, &id));
    return id;
}

static void add_arg(kb_sim *s, void *self, uint64_t arg)
{
    (void)s;
    *(uint64_t *)self += arg;
}

/* ---- Events ---- */

typedef struct twin {
    kb_source *source;
    kb_handler other;
} twin;

/* At 10, puts an event for another handler before the one that was to follow. */
static void intrude(kb_sim *s, void *self, uint64_t arg)
{
    const twin *t = self;
    (void)kb_sim_at(s, t->source, 15, t->other, arg);
}

/* Two sources of one id have equal keys; still each event reaches its own handler. */
static void events_with_equal_keys_reach_their_handlers(void **state)
{
    (void)state;
    uint64_t early = 0;
    uint64_t late = 0;
    kb_source first = kb_source_make(7);
    kb_source second = kb_source_make(7);
    kb_handler to_early = handler(add_arg, &early);
    kb_handler to_late = handler(add_arg, &late);
    twin t = {.source = &second, .other = to_early};
    kb_handler intruder = handler(intrude, &t);
    (void)kb_sim_at(sim, &first, 20, to_late, 100);
    kb_source third = kb_source_make(8);
    (void)kb_sim_at(sim, &third, 10, intruder, 1);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(early, 1);
    assert_int_equal(late, 100);
}

/* From the present time on: 100 + 30 = 130. Beyond the end of the clock and before now are errors.
 */
static void after_counts_from_now(void **state)
{
    (void)state;
    uint64_t sum = 0;
    kb_handler id = handler(add_arg, &sum);
    kb_source source = kb_source_make(1);
    expect_ok(kb_sim_run(sim, 100));
    (void)kb_sim_after(sim, &source, 30, id, 1);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(sum, 1);
    assert_int_equal(kb_sim_now(sim), 130);
    kb_sim_name_work(sim, id, "a delivery");
    kb_event never = kb_sim_after(sim, &source, KB_FOREVER, id, 10);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_INPUT,
                 "simulated time exceeds its limit of 9,223 s: a delivery that begins at 0.000130 "
                 "ns would end later; use faster figures (shorter cycles and latencies, more "
                 "bandwidth) or less work");
    assert_false(kb_sim_cancel(sim, never));
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
    kb_event last = kb_sim_after(sim, &source, KB_FOREVER - 131, id, 10); /* the last instant */
    assert_true(kb_sim_cancel(sim, last));
    (void)kb_sim_at(sim, &source, KB_FOREVER, id, 10);
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    kb_error_free(err);
    kb_sim_expect(sim, KB_FOREVER - 1, "a credit");
    expect_ok(kb_sim_run(sim, 130));
    kb_sim_expect(sim, KB_FOREVER, "a credit");
    err = kb_sim_run(sim, 130);
    assert_non_null(strstr(kb_error_message(err), "9,223 s: a credit that begins"));
    kb_error_free(err);
    assert_int_equal(sum, 1);
    (void)kb_sim_after(sim, &source, -1, id, 100);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_BUG,
                 "event scheduled in the past: at 129 fs, now 130 fs");
}

static void a_handler_that_is_none_fails_the_run(void **state)
{
    (void)state;
    kb_source source = kb_source_make(1);
    (void)kb_sim_at(sim, &source, 5, 0, 0);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_BUG, "event scheduled for invalid handler 0");
    (void)kb_sim_at(sim, &source, 5, 99, 0);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_BUG, "event scheduled for invalid handler 99");
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
}

static void run_again(kb_sim *s, void *self, uint64_t arg)
{
    (void)self, (void)arg;
    kb_error_free(kb_sim_run(s, KB_FOREVER));
}

static void destroy_it(kb_sim *s, void *self, uint64_t arg)
{
    (void)self, (void)arg;
    kb_sim_destroy(s);
}

static void run_with(kb_handler_fn *fn)
{
    kb_source source = kb_source_make(1);
    kb_handler id;
    kb_error_free(kb_sim_add_handler(sim, fn, NULL, &id));
    (void)kb_sim_at(sim, &source, 1, id, 0);
    kb_error_free(kb_sim_run(sim, KB_FOREVER));
}

static void run_in_a_run(void)
{
    run_with(run_again);
}

static void destroy_in_a_run(void)
{
    run_with(destroy_it);
}

static void a_simulator_that_runs_is_neither_run_nor_destroyed(void **state)
{
    (void)state;
    expect_abort(run_in_a_run, "assertion failed: !sim->running");
    expect_abort(destroy_in_a_run, "assertion failed: !sim->running");
}

/* Until a given time waiting is no deadlock: the clock goes there, and help may come from outside.
 */
static void waits(kb_co *co, void *list)
{
    kb_wait(co, list);
}

static void a_run_until_a_time_gets_there(void **state)
{
    (void)state;
    kb_waitlist list;
    kb_waitlist_init(&list, "help");
    expect_ok(kb_co_spawn(sim, NULL, waits, &list, NULL));
    expect_ok(kb_sim_run(sim, 10));
    assert_int_equal(kb_sim_now(sim), 10);
    assert_true(kb_wake_one(sim, &list));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(kb_sim_now(sim), 10);
}

static void stacks_have_a_sensible_size(void **state)
{
    (void)state;
    kb_sim *none;
    kb_error *err = kb_sim_create(&(kb_sim_options){.stack_bytes = SIZE_MAX}, &none);
    assert_int_equal(kb_error_code(err), KB_ERR_BUG);
    assert_null(none);
    kb_error_free(err);
    err = kb_sim_create(&(kb_sim_options){.stack_bytes = 100}, &none);
    assert_int_equal(kb_error_code(err), KB_ERR_BUG);
    kb_error_free(err);
}

/* ---- Cancelling ---- */

static kb_event scheduled;

static void schedules(kb_co *co, void *arg)
{
    scheduled = kb_sim_at(kb_co_sim(co), kb_co_source(co), 100, *(kb_handler *)arg, 1);
}

/* The handle of an event of a former coroutine means none of a later one with the same id. */
static void a_handle_outlives_its_coroutine(void **state)
{
    (void)state;
    uint64_t sum = 0;
    kb_handler id = handler(add_arg, &sum);
    const kb_co_options options = {.name = "worker", .source_id = 3};
    expect_ok(kb_co_spawn(sim, &options, schedules, &id, NULL));
    expect_ok(kb_sim_run(sim, 50));
    kb_event old = scheduled;
    assert_true(kb_sim_cancel(sim, old));
    for (int i = 0; i < 100; i++) {
        expect_ok(kb_co_spawn(sim, &options, schedules, &id, NULL));
        expect_ok(kb_sim_run(sim, 50));
        assert_false(kb_sim_cancel(sim, old));
    }
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(sum, 100);
}

/* Units that were granted, but not yet taken note of, go back; and those behind are served. */
static void a_granted_waiter_can_be_cancelled(void **state)
{
    (void)state;
    uint64_t sum = 0;
    kb_handler id = handler(add_arg, &sum);
    kb_source source = kb_source_make(1);
    kb_sem sem;
    kb_sem_init(&sem, "sem", 0);
    kb_waiter big;
    kb_waiter small;
    kb_waiter_init(&big, &source, id, 1);
    kb_waiter_init(&small, &source, id, 10);
    assert_false(kb_sem_acquire_then(&sem, 3, &big));
    assert_false(kb_sem_acquire_then(&sem, 1, &small));
    kb_sem_release(sim, &sem, 3); /* big has them, from the next event on */
    assert_true(kb_waiter_cancel(sim, &big));
    assert_false(kb_waiter_cancel(sim, &big));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(sum, 10);
    assert_int_equal(sem.available, 2);
    assert_false(kb_waiter_cancel(sim, &small)); /* it has been called */
}

static void burn(kb_sim *s, void *self, uint64_t count)
{
    kb_source *source = self;
    for (uint64_t i = 0; i < count; i++) {
        kb_event timeout = kb_sim_at(s, source, kb_sim_now(s) + KB_MS, 1, 0);
        assert_true(kb_sim_cancel(s, timeout));
    }
}

/* Cancelling costs no memory for long, also while a crowd of one instant is being run. */
static void cancelled_events_are_swept_out_during_a_run(void **state)
{
    (void)state;
    kb_source source = kb_source_make(1);
    kb_handler id = handler(burn, &source);
    for (int i = 0; i < 8; i++)
        (void)kb_sim_at(sim, &source, 10, id, i == 2 ? 100000 : 0);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_in_range(sim->set.capacity, 1, 256);
    assert_int_equal(kb_sim_get_stats(sim).cancelled, 100000);
}

/* A wheel that was made for many shrinks when they are cancelled or forgotten. */
static void the_wheel_shrinks(void **state)
{
    (void)state;
    enum { MANY = 40000 };
    uint64_t sum = 0;
    kb_handler id = handler(add_arg, &sum);
    kb_source source = kb_source_make(1);
    static kb_event events[MANY];
    for (int i = 0; i < MANY; i++)
        events[i] = kb_sim_at(sim, &source, KB_NS * (i + 1), id, 1);
    expect_ok(kb_sim_run(sim, 3000 * KB_NS)); /* long enough to see how many there are */
    assert_true(sim->set.mask > MANY);
    for (int i = 0; i < MANY; i++)
        (void)kb_sim_cancel(sim, events[i]);
    assert_in_range(sim->set.mask, 127, 2047);
    kb_sim_abandon(sim);
    assert_int_equal(sim->set.mask, 127);
}

/* ---- Coroutines ---- */

static int ended;

static void count_end(void *arg)
{
    ended += *(int *)arg;
}

static void does_nothing(kb_co *co, void *arg)
{
    (void)co, (void)arg;
}

static void sleeps_long(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, KB_S);
}

/* However a coroutine ends, the owner of what it was given is told. */
static void on_end_is_called_in_every_case(void **state)
{
    (void)state;
    ended = 0;
    int weights[] = {1, 10, 100};
    kb_co *co;
    kb_co_options options = {.name = "c", .source_id = 1, .on_end = count_end};
    expect_ok(kb_co_spawn(sim, &options, does_nothing, &weights[0], NULL));
    options.source_id = 2;
    expect_ok(kb_co_spawn(sim, &options, sleeps_long, &weights[1], &co));
    expect_ok(kb_sim_run(sim, 5));
    assert_int_equal(ended, 1);
    kb_co_kill(co);
    assert_int_equal(ended, 11);
    expect_ok(kb_co_spawn(sim, &options, does_nothing, &weights[2], &co));
    kb_co_kill(co); /* never started */
    assert_int_equal(ended, 111);
}

typedef struct lock_user {
    kb_sem *lock;
    bool got_it;
    kb_co *co;
} lock_user;

static void take_lock(void *arg)
{
    lock_user *user = arg;
    user->got_it = kb_sem_acquire(user->co, user->lock, 1);
}

static void wants_lock_at_the_end(kb_co *co, void *arg)
{
    lock_user *user = arg;
    kb_cleanup cleanup;
    user->co = co;
    kb_co_push_cleanup(co, &cleanup, take_lock, user);
    kb_co_exit(co);
}

/* A cleanup that would have had to wait learns that it did not get what it asked for. */
static void a_cleanup_learns_that_it_did_not_wait(void **state)
{
    (void)state;
    kb_sem lock;
    kb_sem_init(&lock, "lock", 0);
    lock_user user = {.lock = &lock, .got_it = true};
    expect_ok(kb_co_spawn(sim, NULL, wants_lock_at_the_end, &user, NULL));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_false(user.got_it);
    kb_sem_release(sim, &lock, 1);
    expect_ok(kb_co_spawn(sim, NULL, wants_lock_at_the_end, &user, NULL));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_true(user.got_it);
}

#define T(test) cmocka_unit_test_setup_teardown(test, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(events_with_equal_keys_reach_their_handlers),
        T(after_counts_from_now),
        T(a_handler_that_is_none_fails_the_run),
        T(a_simulator_that_runs_is_neither_run_nor_destroyed),
        T(a_run_until_a_time_gets_there),
        T(stacks_have_a_sensible_size),
        T(a_handle_outlives_its_coroutine),
        T(a_granted_waiter_can_be_cancelled),
        T(cancelled_events_are_swept_out_during_a_run),
        T(the_wheel_shrinks),
        T(on_end_is_called_in_every_case),
        T(a_cleanup_learns_that_it_did_not_wait),
    };
    return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
