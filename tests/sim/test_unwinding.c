/*
 * test_unwinding.c: how coroutines end: cleanups, killing, failing runs, and the report of a
 * deadlock. Everything runs twice: with elision and without.
 *
 * Checks C2.
 */
#include "sim/story.h"

static int start(void **state)
{
    (void)state;
    return begin_story();
}

static int finish(void **state)
{
    (void)state;
    kb_sim_destroy(sim);
    sim = NULL;
    return problems;
}

static kb_waitlist bell;

/* ---- Ending and cleanups ---- */

static void tells(void *what)
{
    tell("-", what);
}

static void push_tell(kb_co *co, kb_cleanup *cleanup, const char *what)
{
    kb_co_push_cleanup(co, cleanup, tells, (void *)(uintptr_t)what);
}

static __attribute__((noinline)) void exits_deep_inside(kb_co *co)
{
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "bottom");
    kb_co_sleep(co, 1);
    kb_co_exit(co);
}

static __attribute__((noinline)) void calls_what_exits(kb_co *co)
{
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "middle");
    kb_co_sleep(co, 1);
    exits_deep_inside(co);
    tell(kb_co_name(co), "came back");
}

static void goes_deep_and_exits(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "top");
    kb_co_sleep(co, 1);
    calls_what_exits(co);
    tell(kb_co_name(co), "came back");
}

static void exit_from_deep_inside_runs_cleanups_newest_first(void **state)
{
    (void)state;
    spawn("a", 1, goes_deep_and_exits, NULL);
    run();
    expect_story("3 - bottom; 3 - middle; 3 - top; ");
    expect_nothing_left();
}

static void pushes_and_pops(kb_co *co, void *arg)
{
    kb_cleanup *outlives = arg; /* returning without a pop: must not be in this frame */
    kb_cleanup one, two, three;
    push_tell(co, outlives, "zero");
    push_tell(co, &one, "one");
    push_tell(co, &two, "two");
    push_tell(co, &three, "three");
    kb_co_pop_cleanup(co, true);
    kb_co_sleep(co, 1);
    kb_co_pop_cleanup(co, false);
    push_tell(co, &three, "again");
    kb_co_pop_cleanup(co, true);
    kb_co_sleep(co, 1);
    kb_co_pop_cleanup(co, true);
    tell(kb_co_name(co), "returns");
}

static void cleanups_are_pushed_and_popped(void **state)
{
    (void)state;
    kb_cleanup outlives;
    spawn("a", 1, pushes_and_pops, &outlives);
    run();
    expect_story("0 - three; 1 - again; 2 - one; 2 a returns; 2 - zero; ");
}

static void exits_again(void *co)
{
    tell(kb_co_name(co), "exits again");
    kb_co_exit(co);
}

static void has_a_cleanup_that_exits(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup one, two, three;
    push_tell(co, &one, "one");
    kb_co_push_cleanup(co, &two, exits_again, co);
    push_tell(co, &three, "three");
    kb_co_exit(co);
}

static void a_cleanup_may_exit(void **state)
{
    (void)state;
    spawn("a", 1, has_a_cleanup_that_exits, NULL);
    run();
    expect_story("0 - three; 0 a exits again; 0 - one; ");
    expect_nothing_left();
}

static kb_sem desk;
static kb_channel belt;

static void tries_to_block(void *arg)
{
    kb_co *co = arg;
    kb_co_sleep(co, 100);
    kb_co_sleep(co, KB_FOREVER);
    kb_wait(co, &bell);
    CHECK(!kb_wait_until(co, &bell, kb_sim_now(sim) + 100));
    CHECK(!kb_wait_until(co, &bell, kb_sim_now(sim)));
    kb_sem_acquire(co, &desk, 5);
    kb_channel_put(co, &belt, 7);
    tell(kb_co_name(co), "did not block");
}

static void has_a_cleanup_that_blocks(kb_co *co, void *arg)
{
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, tries_to_block, co);
    if (arg)
        kb_wait(co, arg);
    else
        kb_co_exit(co);
}

/* One exits, one is killed. Nothing that would have to wait is done, and no time passes. */
static void blocking_calls_return_at_once_in_a_cleanup(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    kb_sem_init(&desk, "desk", 4);
    expect_ok(kb_channel_init(&belt, "belt", 1));
    CHECK(kb_channel_try_put(sim, &belt, 6)); /* full */
    spawn("exits", 1, has_a_cleanup_that_blocks, NULL);
    run();
    expect_story("0 exits did not block; ");
    kb_co *victim = spawn("victim", 1, has_a_cleanup_that_blocks, &bell);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_DEADLOCK,
                 "deadlock at 0.000000 ns: no pending events, 1 coroutine blocked");
    kb_co_kill(victim);
    expect_story("0 victim did not block; ");
    expect_nothing_left();
    assert_int_equal(desk.available, 4);
    assert_null(desk.waiters.head);
    assert_null(bell.head);
    assert_null(belt.putters.head);
    assert_int_equal(belt.count, 1);
    kb_channel_fini(&belt);
}

static void gets_in_a_cleanup(void *co)
{
    tell(kb_co_name(co), kb_channel_get(co, &belt) == 0 ? "got 0" : "got something");
}

static void pops_a_blocking_cleanup(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, gets_in_a_cleanup, co);
    kb_co_pop_cleanup(co, true); /* not ending: this one blocks */
    kb_co_push_cleanup(co, &cleanup, gets_in_a_cleanup, co);
    kb_co_exit(co);
}

static void puts_word(kb_sim *s, void *channel, uint64_t arg)
{
    (void)arg;
    CHECK(kb_channel_try_put(s, channel, 9));
}

static void a_cleanup_that_is_popped_may_block(void **state)
{
    (void)state;
    expect_ok(kb_channel_init(&belt, "belt", 1));
    spawn("a", 1, pops_a_blocking_cleanup, NULL);
    call_at(5, puts_word, &belt);
    run();
    expect_story("5 a got something; 5 a got 0; ");
    kb_channel_fini(&belt);
}

static void gives_back(void *units)
{
    kb_sem_release(sim, &desk, (uintptr_t)units);
}

static void holds_the_desk(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup cleanup;
    kb_sem_acquire(co, &desk, 1);
    tell(kb_co_name(co), "has it");
    kb_co_push_cleanup(co, &cleanup, gives_back, (void *)1);
    kb_co_sleep(co, 10);
    kb_co_pop_cleanup(co, true);
}

static void kills(kb_sim *s, void *co, uint64_t arg)
{
    (void)s;
    (void)arg;
    kb_co_kill(co);
    tell("-", "killed");
}

/* a has the desk from 0 and is killed at 4: b has it from 4 to 14, c from 14 to 24. */
static void a_cleanup_that_releases_wakes_the_next(void **state)
{
    (void)state;
    kb_sem_init(&desk, "desk", 1);
    kb_co *a = spawn("a", 1, holds_the_desk, NULL);
    spawn("b", 2, holds_the_desk, NULL);
    spawn("c", 3, holds_the_desk, NULL);
    call_at(4, kills, a);
    run();
    expect_story("0 a has it; 4 - killed; 4 b has it; 14 c has it; ");
    assert_int_equal(kb_sim_now(sim), 24);
    assert_int_equal(desk.available, 1);
}

/* ---- Killing ---- */

static void waits_with_cleanup(kb_co *co, void *list)
{
    kb_cleanup cleanup;
    push_tell(co, &cleanup, "cleans up");
    if (list)
        kb_wait(co, list);
    else
        kb_co_sleep(co, 50);
    tell(kb_co_name(co), "goes on");
    kb_co_pop_cleanup(co, false);
}

/* In every case: one that never started has nothing to clean up. */
static void kill_three(kb_co *never, kb_co *sleeping, kb_co *waiting)
{
    kb_co_kill(never);
    tell("-", "killed never");
    kb_co_kill(sleeping);
    tell("-", "killed sleeping");
    kb_co_kill(waiting);
    tell("-", "killed waiting");
}

static kb_co *victims[3];

static void spawn_victims(void)
{
    kb_waitlist_init(&bell, "bell");
    victims[1] = spawn("sleeping", 20, waits_with_cleanup, NULL);
    victims[2] = spawn("waiting", 21, waits_with_cleanup, &bell);
}

static void they_are_killed_from_outside(void **state)
{
    (void)state;
    spawn_victims();
    expect_ok(kb_sim_run(sim, 3));
    victims[0] = spawn("never", 22, waits_with_cleanup, NULL);
    kill_three(victims[0], victims[1], victims[2]);
    expect_story("3 - killed never; 3 - cleans up; 3 - killed sleeping; 3 - cleans up; "
                 "3 - killed waiting; ");
    expect_nothing_left();
    assert_null(bell.head);
    run();
    assert_int_equal(kb_sim_now(sim), 3);
}

static void kills_three(kb_sim *s, void *self, uint64_t arg)
{
    (void)s;
    (void)self;
    (void)arg;
    victims[0] = spawn("never", 22, waits_with_cleanup, NULL);
    kill_three(victims[0], victims[1], victims[2]);
}

static void they_are_killed_from_a_handler(void **state)
{
    (void)state;
    spawn_victims();
    call_at(3, kills_three, NULL);
    run();
    expect_story("3 - killed never; 3 - cleans up; 3 - killed sleeping; 3 - cleans up; "
                 "3 - killed waiting; ");
    expect_nothing_left();
    assert_int_equal(kb_sim_now(sim), 3); /* the sleep until 50 is gone */
}

static void is_the_killer(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, 3);
    kills_three(sim, NULL, 0);
    CHECK(sim->current == co);
    kb_co_sleep(co, 1);
    tell(kb_co_name(co), "goes on");
}

static void they_are_killed_from_a_coroutine(void **state)
{
    (void)state;
    spawn_victims();
    spawn("killer", 1, is_the_killer, NULL);
    run();
    expect_story("3 - killed never; 3 - cleans up; 3 - killed sleeping; 3 - cleans up; "
                 "3 - killed waiting; 4 killer goes on; ");
    expect_nothing_left();
}

static void kills_in_cleanup(void *next)
{
    tell("-", "cleanup kills");
    kb_co_kill(*(kb_co **)next);
    tell("-", "cleanup has killed");
}

static void dies_killing(kb_co *co, void *next)
{
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, kills_in_cleanup, next);
    kb_co_sleep(co, 50);
}

/* The first kills the second while it is unwound, that one the third: three stacks deep. */
static void they_are_killed_from_the_cleanup_of_another(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    victims[0] = spawn("first", 1, dies_killing, &victims[1]);
    victims[1] = spawn("second", 2, dies_killing, &victims[2]);
    victims[2] = spawn("third", 3, waits_with_cleanup, &bell);
    call_at(3, kills, victims[0]);
    run();
    expect_story("3 - cleanup kills; 3 - cleanup kills; 3 - cleans up; 3 - cleanup has killed; "
                 "3 - cleanup has killed; 3 - killed; ");
    expect_nothing_left();
}

static void ends_killing(kb_co *co, void *next)
{
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, kills_in_cleanup, next);
    kb_co_exit(co);
}

/* Here the newest, which the destroyer would unwind first, is gone before its turn. */
static void a_cleanup_may_kill_while_all_are_unwound(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    victims[1] = spawn("second", 2, waits_with_cleanup, &bell);
    spawn("ends", 3, ends_killing, &victims[1]);
    run();
    expect_story("0 - cleanup kills; 0 - cleans up; 0 - cleanup has killed; ");
    victims[1] = spawn("second", 2, waits_with_cleanup, &bell);
    spawn("first", 1, dies_killing, &victims[1]);
    expect_ok(kb_sim_run(sim, 1));
    kb_sim_abandon(sim);
    expect_story("1 - cleanup kills; 1 - cleans up; 1 - cleanup has killed; ");
    expect_nothing_left();
}

static void waits_until(kb_co *co, void *list)
{
    (void)kb_wait_until(co, list, 99);
}

static void acquires_five(kb_co *co, void *sem)
{
    kb_sem_acquire(co, sem, 5);
    tell(kb_co_name(co), "has five");
    kb_sem_release(sim, sem, 5);
}

static void gets(kb_co *co, void *channel)
{
    kb_channel_get(co, channel);
}

static void puts_two(kb_co *co, void *channel)
{
    kb_channel_put(co, channel, 1);
    kb_channel_put(co, channel, 2);
}

static void a_killed_one_leaves_no_event_and_no_list_entry(void **state)
{
    (void)state;
    kb_channel empty, full;
    kb_waitlist_init(&bell, "bell");
    kb_sem_init(&desk, "desk", 4);
    expect_ok(kb_channel_init(&empty, "empty", 1));
    expect_ok(kb_channel_init(&full, "full", 1));
    kb_co *all[] = {
        spawn("sleeps", 1, sleeps, (kb_time[]){9, -1}),
        spawn("waits", 2, waits, &bell),
        spawn("waits until", 3, waits_until, &bell),
        spawn("acquires", 4, acquires_five, &desk),
        spawn("gets", 5, gets, &empty),
        spawn("puts", 6, puts_two, &full),
    };
    expect_ok(kb_sim_run(sim, 1));
    assert_int_equal(kb_sim_get_stats(sim).pending, 2); /* the sleep and the deadline */
    for (uint32_t left = 6; left > 0; left--) {
        assert_int_equal(kb_sim_get_stats(sim).coroutines, left);
        kb_co_kill(all[left - 1]);
    }
    expect_nothing_left();
    assert_null(bell.head);
    assert_null(bell.tail);
    assert_null(desk.waiters.head);
    assert_null(empty.getters.head);
    assert_null(full.putters.head);
    assert_int_equal(full.count, 1); /* its first word was put */
    assert_int_equal(desk.available, 4);
    kb_channel_fini(&empty);
    kb_channel_fini(&full);
}

/* Gives five units, so that the first waiter is to go on; kills it before it does. */
static void gives_and_kills(kb_sim *s, void *co, uint64_t arg)
{
    (void)arg;
    kb_sem_release(s, &desk, 5);
    CHECK(desk.available == 0);
    kb_co_kill(co);
}

static void units_granted_but_not_taken_go_back(void **state)
{
    (void)state;
    kb_sem_init(&desk, "desk", 0);
    kb_co *first = spawn("first", 1, acquires_five, &desk);
    spawn("second", 2, acquires_five, &desk);
    call_at(3, gives_and_kills, first);
    run();
    expect_story("3 second has five; "); /* the same units */
    assert_int_equal(desk.available, 5);
    first = spawn("first", 1, acquires_five, &desk);
    assert_true(kb_sem_try_acquire(&desk, 5));
    call_at(3, gives_and_kills, first); /* and with none behind it */
    expect_ok(kb_sim_run(sim, 3));
    expect_story("");
    assert_int_equal(desk.available, 5);
    expect_nothing_left();
}

static void acquires_one(kb_co *co, void *sem)
{
    kb_sem_acquire(co, sem, 1);
    tell(kb_co_name(co), "has one");
}

/* 4 units; first wants 5, second and third 1 each behind it: they have them when it is gone. */
static void killing_the_first_waiter_serves_those_behind(void **state)
{
    (void)state;
    kb_sem_init(&desk, "desk", 4);
    kb_co *first = spawn("first", 1, acquires_five, &desk);
    spawn("second", 2, acquires_one, &desk);
    spawn("third", 3, acquires_one, &desk);
    call_at(3, kills, first);
    run();
    expect_story("3 - killed; 3 second has one; 3 third has one; ");
    assert_int_equal(desk.available, 2);
}

static void kills_itself(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_kill(co);
}

static void kill_myself(void)
{
    spawn("a", 1, kills_itself, NULL);
    (void)!kb_sim_run(sim, KB_FOREVER);
}

static void kills_its_killer(kb_co *co, void *arg)
{
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, kills_in_cleanup, arg);
    kb_co_sleep(co, 9);
}

static void kill_each_other(void)
{
    victims[0] = spawn("a", 1, kills_its_killer, &victims[1]);
    victims[1] = spawn("b", 2, kills_its_killer, &victims[0]);
    expect_ok(kb_sim_run(sim, 3));
    kb_co_kill(victims[0]);
}

static void pops_too_much(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_pop_cleanup(co, true);
}

static void pop_too_much(void)
{
    spawn("a", 1, pops_too_much, NULL);
    (void)!kb_sim_run(sim, KB_FOREVER);
}

static void wrong_use_is_an_assertion(void **state)
{
    (void)state;
    expect_abort(kill_myself, "coroutine.c");
    expect_abort(kill_each_other, "coroutine.c");
    expect_abort(pop_too_much, "assertion failed: cleanup");
}

/* ---- All of them ---- */

static void takes_part(kb_co *co, void *arg)
{
    kb_cleanup cleanup;
    push_tell(co, &cleanup, kb_co_name(co));
    switch ((uintptr_t)arg) {
    case 0:
        kb_co_sleep(co, 100);
        break;
    case 1:
        kb_wait(co, &bell);
        break;
    case 2:
        (void)kb_wait_until(co, &bell, 200);
        break;
    case 3:
    case 4:
        kb_sem_acquire(co, &desk, 1); /* one is given it from outside */
        break;
    default:
        kb_channel_get(co, &belt);
    }
    tell(kb_co_name(co), "goes on");
    kb_co_pop_cleanup(co, false);
}

static void spawn_in_all_states(void)
{
    static const char *const names[] = {"sleep", "wait", "until", "granted", "acquire", "get"};
    kb_waitlist_init(&bell, "bell");
    kb_sem_init(&desk, "desk", 0);
    expect_ok(kb_channel_init(&belt, "belt", 1));
    for (uint32_t i = 0; i < 6; i++)
        spawn(names[i], i, takes_part, (void *)(uintptr_t)i);
    expect_ok(kb_sim_run(sim, 5));
    kb_sem_release(sim, &desk, 1);
    spawn("never", 7, takes_part, NULL);
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 7);
    assert_int_equal(kb_sim_get_stats(sim).pending, 4); /* sleep, until, granted, never */
}

static void abandon_unwinds_them_in_any_state(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        spawn_in_all_states();
        kb_sim_abandon(sim);
        expect_story("5 - get; 5 - acquire; 5 - granted; 5 - until; 5 - wait; 5 - sleep; ");
        expect_nothing_left();
        assert_int_equal(desk.available, 1);
        assert_null(bell.head);
        kb_channel_fini(&belt);
        /* The clock stays, and the simulator goes on. */
        assert_int_equal(kb_sim_now(sim), 5);
        kb_sim_destroy(sim);
        start(NULL);
    }
}

static void after_abandon_it_goes_on(void **state)
{
    (void)state;
    spawn_in_all_states();
    kb_sim_abandon(sim);
    expect_story("5 - get; 5 - acquire; 5 - granted; 5 - until; 5 - wait; 5 - sleep; ");
    spawn("a", 1, sleeps, (kb_time[]){3, -1});
    run();
    expect_story("5 a starts; 8 a slept; ");
    kb_channel_fini(&belt);
}

static void destroy_unwinds_them_in_any_state(void **state)
{
    (void)state;
    spawn_in_all_states();
    kb_time now = kb_sim_now(sim);
    assert_int_equal(now, 5);
    kb_sim_destroy(sim);
    sim = NULL;
    assert_null(bell.head);
    assert_null(desk.waiters.head);
    kb_channel_fini(&belt);
    start(NULL);
}

static void spawns_in_cleanup(void *arg)
{
    (void)arg;
    const kb_co_options options = {.name = "orphan", .source_id = 9};
    kb_error *err = kb_co_spawn(sim, &options, tells_start, NULL, NULL);
    tell("-", err ? kb_error_message(err) : "has spawned");
    kb_error_free(err);
}

static void dies_spawning(kb_co *co, void *arg)
{
    (void)arg;
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, spawns_in_cleanup, NULL);
    kb_co_sleep(co, 10);
}

/* A coroutine that spawns a successor when it ends must not keep the simulator alive. */
static void nobody_is_born_while_all_are_unwound(void **state)
{
    (void)state;
    spawn("parent", 1, dies_spawning, NULL);
    expect_ok(kb_sim_run(sim, 1));
    kb_sim_abandon(sim);
    expect_story("1 - coroutine 'orphan': the simulation is being torn down; ");
    expect_nothing_left();
    kb_co *parent = spawn("parent", 1, dies_spawning, NULL);
    expect_ok(kb_sim_run(sim, 2));
    kb_co_kill(parent);
    run();
    expect_story("2 - has spawned; 2 orphan starts; ");
}

/* ---- Failing and stopping ---- */

static void fails(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, 5);
    kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "%s went wrong", kb_co_name(co)));
    kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "and once more"));
    kb_co_sleep(co, 0);
    tell(kb_co_name(co), "goes on");
}

/* b sleeps until 5 as well; its turn comes after a, so in the next run. */
static void a_failing_run_leaves_them_as_they_are(void **state)
{
    (void)state;
    spawn("a", 1, fails, NULL);
    spawn("b", 2, sleeps, (kb_time[]){5, 5, -1});
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_FAULT, "a went wrong");
    expect_story("0 b starts; ");
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 2);
    assert_int_equal(kb_sim_get_stats(sim).pending, 2);
    run();
    expect_story("5 a goes on; 5 b slept; 10 b slept; ");
    expect_nothing_left();
}

static void stops(kb_co *co, void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        kb_co_sleep(co, 5);
        kb_sim_stop(sim);
        tell(kb_co_name(co), "stops");
        kb_co_sleep(co, 0); /* does not go on in this run */
        tell(kb_co_name(co), "goes on");
    }
}

static void a_coroutine_can_stop_the_run(void **state)
{
    (void)state;
    spawn("a", 1, stops, NULL);
    run();
    expect_story("5 a stops; ");
    run();
    expect_story("5 a goes on; 10 a stops; ");
    expect_ok(kb_sim_run(sim, 12));
    expect_story("10 a goes on; ");
    assert_int_equal(kb_sim_now(sim), 12);
    expect_ok(kb_sim_run(sim, 20));
    assert_int_equal(kb_sim_now(sim), 15); /* stopped: the clock does not go to 20 */
    expect_story("15 a stops; ");
    run();
    expect_story("15 a goes on; ");
}

/* ---- Deadlock ---- */

static void one_that_waits_is_a_deadlock(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "the bell");
    spawn("a", 1, waits, &bell);
    call_at(12 * KB_NS + 345, puts_word, &belt); /* only for the time: 12.000345 ns */
    expect_ok(kb_channel_init(&belt, "belt", 1));
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_string_equal(kb_error_detail(err), "a waits for the bell");
    expect_error(err, KB_ERR_DEADLOCK,
                 "deadlock at 12.000345 ns: no pending events, 1 coroutine blocked");
    assert_int_equal(kb_sim_now(sim), 12 * KB_NS + 345);
    /* It can be helped from outside. */
    assert_true(kb_wake_one(sim, &bell));
    run();
    expect_story("0 a waits; 12000345 a goes on; ");
    expect_nothing_left();
    kb_channel_fini(&belt);
}

static void acquires_nameless(kb_co *co, void *arg)
{
    (void)arg;
    static kb_waitlist nameless;
    kb_waitlist_init(&nameless, NULL);
    kb_wait(co, &nameless);
}

/* In order of birth, whatever the order of ids; what they wait for in the user's names. */
static void a_deadlock_tells_who_waits_for_what(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    kb_sem_init(&desk, "desk", 0);
    expect_ok(kb_channel_init(&belt, "belt", 1));
    spawn("z", 9, waits, &bell);
    spawn("a", 8, acquires_five, &desk);
    spawn("gone", 7, tells_start, NULL);
    spawn("m", 6, gets, &belt);
    spawn("n", 5, acquires_nameless, NULL);
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_string_equal(kb_error_detail(err), "z waits for bell\n"
                                              "a waits for desk\n"
                                              "m waits for belt\n"
                                              "n waits for something");
    expect_error(err, KB_ERR_DEADLOCK,
                 "deadlock at 0.000000 ns: no pending events, 4 coroutines blocked");
    kb_sim_abandon(sim);
    kb_channel_fini(&belt);
}

static void daemons_do_not_count(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    kb_co_options options = {.name = "daemon", .daemon = true};
    for (uint32_t i = 0; i < 3; i++) {
        options.source_id = i;
        expect_ok(kb_co_spawn(sim, &options, waits, &bell, NULL));
    }
    run(); /* only daemons are left */
    expect_ok(kb_sim_run(sim, 7));
    assert_int_equal(kb_sim_now(sim), 7);
    spawn("a", 5, waits, &bell);
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_string_equal(kb_error_detail(err), "a waits for bell");
    expect_error(err, KB_ERR_DEADLOCK,
                 "deadlock at 0.000007 ns: no pending events, 1 coroutine blocked");
}

static void a_deadlock_lists_sixteen(void **state)
{
    (void)state;
    for (uint32_t count = 15; count <= 21; count += count < 18 ? 1 : 3) {
        kb_waitlist_init(&bell, "bell");
        char expected[1024] = "", message[128], name[16];
        for (uint32_t i = 0; i < count; i++) {
            snprintf(name, sizeof name, "co %u", i);
            spawn(name, i, waits, &bell);
            if (i < 16)
                snprintf(expected + strlen(expected), 64, "%s%s waits for bell", i ? "\n" : "",
                         name);
        }
        if (count > 16)
            snprintf(expected + strlen(expected), 64, "\nand %u more", count - 16);
        snprintf(message, sizeof message,
                 "deadlock at 0.000000 ns: no pending events, %u coroutines blocked", count);
        kb_error *err = kb_sim_run(sim, KB_FOREVER);
        assert_string_equal(kb_error_detail(err), expected);
        expect_error(err, KB_ERR_DEADLOCK, message);
        kb_sim_abandon(sim);
        story[0] = '\0';
        told = 0;
    }
}

/* A deadline at the end of time is none. */
static void waits_until_for_ever(kb_co *co, void *list)
{
    (void)kb_wait_until(co, list, KB_FOREVER);
    tell(kb_co_name(co), "goes on");
}

static void a_wait_until_for_ever_can_deadlock(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    spawn("a", 1, waits_until_for_ever, &bell);
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    assert_string_equal(kb_error_detail(err), "a waits for bell");
    kb_error_free(err);
    assert_true(kb_wake_one(sim, &bell));
    run();
    expect_story("0 a goes on; ");
    expect_nothing_left();
}

#define T(test) cmocka_unit_test_setup_teardown(test, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(exit_from_deep_inside_runs_cleanups_newest_first),
        T(cleanups_are_pushed_and_popped),
        T(a_cleanup_may_exit),
        T(blocking_calls_return_at_once_in_a_cleanup),
        T(a_cleanup_that_is_popped_may_block),
        T(a_cleanup_that_releases_wakes_the_next),
        T(they_are_killed_from_outside),
        T(they_are_killed_from_a_handler),
        T(they_are_killed_from_a_coroutine),
        T(they_are_killed_from_the_cleanup_of_another),
        T(a_cleanup_may_kill_while_all_are_unwound),
        T(a_killed_one_leaves_no_event_and_no_list_entry),
        T(units_granted_but_not_taken_go_back),
        T(killing_the_first_waiter_serves_those_behind),
        T(wrong_use_is_an_assertion),
        T(abandon_unwinds_them_in_any_state),
        T(after_abandon_it_goes_on),
        T(destroy_unwinds_them_in_any_state),
        T(nobody_is_born_while_all_are_unwound),
        T(a_failing_run_leaves_them_as_they_are),
        T(a_coroutine_can_stop_the_run),
        T(one_that_waits_is_a_deadlock),
        T(a_deadlock_tells_who_waits_for_what),
        T(daemons_do_not_count),
        T(a_deadlock_lists_sixteen),
        T(a_wait_until_for_ever_can_deadlock),
    };
    elision = true;
    int failed = cmocka_run_group_tests_name("unwinding", tests, NULL, NULL);
    elision = false;
    return failed + cmocka_run_group_tests_name("unwinding without elision", tests, NULL, NULL);
}
