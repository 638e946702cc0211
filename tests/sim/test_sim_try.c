/*
 * test_sim_try.c: coroutines that end in a kb_co_try(): their frames outside of it return.
 */
#include "support/expect.h"

#include "sim/sim.h"

static kb_sim *sim;
static char story[256]; /* one character per step; checked outside of coroutines */
static int ends;

static void tell(const char *what)
{
    strncat(story, what, sizeof story - 1 - strlen(story));
}

static void on_end(void *arg)
{
    (void)arg;
    ends++;
}

static kb_co *spawn(kb_co_fn *fn, void *arg)
{
    kb_co *co;
    kb_co_options options = {.name = "co", .on_end = on_end};
    expect_ok(kb_co_spawn(sim, &options, fn, arg, &co));
    return co;
}

static int begin(void **state)
{
    (void)state;
    story[0] = '\0';
    ends = 0;
    expect_ok(kb_sim_create(NULL, &sim));
    return 0;
}

static int finish(void **state)
{
    (void)state;
    kb_sim_destroy(sim);
    return 0;
}

static void tells(void *what)
{
    tell(what);
}

static void push_tell(kb_co *co, kb_cleanup *cleanup, const char *what)
{
    kb_co_push_cleanup(co, cleanup, tells, (void *)(uintptr_t)what);
}

/* What is tried, and what comes of it. */
static bool try_it(kb_co *co, void (*fn)(void *))
{
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "outer ");
    bool is_complete = kb_co_try(co, fn, co);
    tell(is_complete ? "complete " : "ended ");
    kb_co_pop_cleanup(co, false);
    return is_complete;
}

static void tries(kb_co *co, void *fn)
{
    tell(try_it(co, (void (*)(void *))fn) ? "" : "passed on ");
    tell(kb_co_is_unwinding(co) ? "unwinding" : "alive");
}

static void expect_story(const char *expected)
{
    assert_string_equal(story, expected);
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 0);
    assert_int_equal(ends, 1);
}

static void sleeps(void *co)
{
    kb_co_sleep(co, 10);
    tell("slept ");
}

static void exits(void *co)
{
    kb_cleanup cleanups[2];
    push_tell(co, &cleanups[0], "first ");
    push_tell(co, &cleanups[1], "second ");
    kb_co_exit(co);
}

static void a_call_that_returns_is_just_made(void **state)
{
    (void)state;
    spawn(tries, (void *)sleeps);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    expect_story("slept complete alive");
    assert_int_equal(kb_sim_now(sim), 10);
}

static void an_exit_ends_the_call_alone(void **state)
{
    (void)state;
    spawn(tries, (void *)exits);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    expect_story("second first ended passed on unwinding");
}

static void so_does_being_killed(void **state)
{
    (void)state;
    kb_co *co = spawn(tries, (void *)sleeps);
    expect_ok(kb_sim_run(sim, 5));
    kb_co_kill(co);
    expect_story("ended passed on unwinding");
}

static void and_a_simulator_that_is_abandoned(void **state)
{
    (void)state;
    spawn(tries, (void *)sleeps);
    expect_ok(kb_sim_run(sim, 5));
    kb_sim_abandon(sim);
    expect_story("ended passed on unwinding");
}

static kb_sem sem;

static void acquires(void *co)
{
    tell(kb_sem_acquire(co, &sem, 2) ? "acquired " : "refused ");
}

/* Nothing waits after the call was ended: it would be killed twice. */
static void goes_on_to_wait(kb_co *co, void *arg)
{
    (void)arg;
    try_it(co, acquires);
    kb_time before = kb_sim_now(sim);
    kb_co_sleep(co, 100);
    acquires(co);
    tell(kb_sim_now(sim) == before ? "at once" : "later");
}

static void nothing_waits_afterwards(void **state)
{
    (void)state;
    kb_sem_init(&sem, "units", 1);
    kb_co *co = spawn(goes_on_to_wait, NULL);
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
    kb_co_kill(co);
    expect_story("ended refused at once");
    assert_int_equal(sem.available, 1);
    assert_null(sem.waiters.head);
}

static void nests(void *co)
{
    tell(try_it(co, exits) ? "" : "inner ");
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "between ");
    kb_co_exit(co);
}

static void calls_nest(void **state)
{
    (void)state;
    spawn(tries, (void *)nests);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    expect_story("second first ended inner between ended passed on unwinding");
}

static void exits_in_turn(void *co)
{
    tell("in turn ");
    kb_co_exit(co);
}

static void exits_with_a_cleanup_that_exits(void *co)
{
    kb_cleanup cleanups[2];
    push_tell(co, &cleanups[0], "below ");
    kb_co_push_cleanup(co, &cleanups[1], exits_in_turn, co);
    kb_co_exit(co);
}

static void a_cleanup_may_exit(void **state)
{
    (void)state;
    spawn(tries, (void *)exits_with_a_cleanup_that_exits);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    expect_story("in turn below ended passed on unwinding");
}

static void tries_in_turn(void *co)
{
    tell("cleanup ");
    try_it(co, exits);
}

static void ends_with_a_cleanup_that_tries(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup cleanups[2];
    push_tell(co, &cleanups[0], "last");
    kb_co_push_cleanup(co, &cleanups[1], tries_in_turn, co);
    kb_co_sleep(co, 10);
    tell("never ");
}

static void a_cleanup_may_try(void **state)
{
    (void)state;
    kb_co *co = spawn(ends_with_a_cleanup_that_tries, NULL);
    expect_ok(kb_sim_run(sim, 5));
    kb_co_kill(co);
    expect_story("cleanup second first ended last");
}

static void exits_afterwards(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "cleanup");
    (void)kb_co_try(co, exits, co);
    kb_co_exit(co);
}

static void the_next_exit_is_final(void **state)
{
    (void)state;
    spawn(exits_afterwards, NULL);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    expect_story("second first cleanup");
}

static jmp_buf elsewhere;

static void jumps(void *co)
{
    (void)co;
    longjmp(elsewhere, 1);
}

static void skips_the_frame(kb_co *co, void *arg)
{
    (void)arg;
    if (setjmp(elsewhere) == 0)
        (void)kb_co_try(co, jumps, co);
}

static void run_what_skips(void)
{
    spawn(skips_the_frame, NULL);
    kb_error_free(kb_sim_run(sim, KB_FOREVER));
}

static void skipping_the_frame_of_a_try_aborts(void **state)
{
    (void)state;
    expect_abort(run_what_skips, "!co->landing");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_that_returns_is_just_made),
        TEST(an_exit_ends_the_call_alone),
        TEST(so_does_being_killed),
        TEST(and_a_simulator_that_is_abandoned),
        TEST(nothing_waits_afterwards),
        TEST(calls_nest),
        TEST(a_cleanup_may_exit),
        TEST(a_cleanup_may_try),
        TEST(the_next_exit_is_final),
        TEST(skipping_the_frame_of_a_try_aborts),
    };
    return cmocka_run_group_tests_name("try", tests, NULL, NULL);
}
