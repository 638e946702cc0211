/*
 * test_programs.c: random programs of handlers that schedule, cancel and skip events.
 *
 * Law: what such a program does, told by a hash of all its steps in order, is the same with and
 * without elision, in one run or in many short ones, and with other simulators at work in between.
 *
 * Checks S2.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "base/base.h"
#include "sim/sim.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

static kb_sim *new_sim(void)
{
    kb_sim *sim;
    expect_ok(kb_sim_create(NULL, &sim));
    return sim;
}

static kb_handler add(kb_sim *sim, kb_handler_fn *fn, void *self)
{
    kb_handler handler = 0;
    expect_ok(kb_sim_add_handler(sim, fn, self, &handler));
    assert_int_not_equal(handler, 0);
    return handler;
}

enum { ACTORS = 24 };

typedef struct program program;

/* Draws its own random numbers, so what it does depends on nothing but what happens to it. */
typedef struct actor {
    program *all;
    kb_source source;
    kb_handler handler;
    kb_rng rng;
    kb_event timer;
    uint32_t id;
} actor;

struct program {
    kb_sim *sim;
    actor actors[ACTORS];
    uint64_t hash; /* of (time, actor, argument) of all steps, in order */
    uint64_t steps, most_steps;
    bool finished;
};

static kb_time draw_delay(kb_rng *rng)
{
    switch (kb_rng_below(rng, 6)) {
    case 0:
        return 0;
    case 1:
        return KB_NS;
    case 2:
        return (kb_time)kb_rng_below(rng, 4) * KB_NS;
    case 3:
        return (kb_time)kb_rng_below(rng, 100);
    case 4:
        return kb_rng_exponential_time(rng, 5 * KB_NS);
    default:
        return kb_rng_below(rng, 50) ? kb_rng_exponential_time(rng, 100 * KB_NS)
                                     : kb_rng_exponential_time(rng, KB_MS);
    }
}

static void mix(program *all, uint64_t value)
{
    uint64_t state = all->hash ^ value;
    all->hash = kb_splitmix64(&state);
}

/* One step of an actor; true if it wants another of its own, after the delay. */
static bool act_once(actor *a, uint64_t arg, kb_time *delay)
{
    program *all = a->all;
    kb_time now = kb_sim_now(all->sim);
    mix(all, (uint64_t)now);
    mix(all, (uint64_t)a->id << 32 ^ arg);
    if (++all->steps >= all->most_steps) {
        all->finished = true;
        return false;
    }
    uint64_t dice = kb_rng_below(&a->rng, 16);
    if (dice < 4) { /* a timer, of which there is one */
        mix(all, kb_sim_cancel(all->sim, a->timer));
        a->timer = kb_sim_at(all->sim, &a->source, now + 20 * draw_delay(&a->rng), a->handler, 1);
    } else if (dice < 6) { /* something of another actor's is called off, and it is told */
        actor *other = &all->actors[kb_rng_below(&a->rng, ACTORS)];
        mix(all, kb_sim_cancel(all->sim, other->timer));
        (void)kb_sim_at(all->sim, &a->source, now + draw_delay(&a->rng), other->handler, 2);
    } else if (dice < 7) { /* it ends; but never are all quiet, for its timer begins anew */
        if (!kb_sim_cancel(all->sim, a->timer))
            return false;
        a->timer = kb_sim_at(all->sim, &a->source, now + KB_US, a->handler, 3);
        return false;
    }
    *delay = draw_delay(&a->rng);
    return true;
}

static void act(kb_sim *sim, void *self, uint64_t arg)
{
    actor *a = self;
    kb_time delay = 0;
    while (act_once(a, arg, &delay)) {
        arg = 4;
        kb_time when = kb_sim_now(sim) + delay;
        if (!kb_sim_advance(sim, &a->source, when)) {
            (void)kb_sim_at(sim, &a->source, when, a->handler, arg);
            return;
        }
    }
    if (a->all->finished)
        kb_sim_stop(sim);
}

static void program_begin(program *all, uint64_t seed, bool no_elision, uint64_t steps)
{
    *all = (program){.hash = seed, .most_steps = steps};
    expect_ok(kb_sim_create(&(kb_sim_options){.no_elision = no_elision}, &all->sim));
    for (uint32_t i = 0; i < ACTORS; i++) {
        actor *a = &all->actors[i];
        *a = (actor){.all = all, .source = kb_source_make(3 * i + 1), .id = i};
        a->handler = add(all->sim, act, a);
        kb_rng_init(&a->rng, test_seed(seed * 1000 + i));
        if (i % 8 == 0) /* few at first, so that there is something to elide */
            (void)kb_sim_at(all->sim, &a->source, draw_delay(&a->rng), a->handler, 0);
    }
    kb_source watch = kb_source_make(0); /* a program that dies out is woken time and again */
    for (int i = 1; i <= 200; i++)
        (void)kb_sim_at(all->sim, &watch, i * KB_US, all->actors[i % ACTORS].handler, 5);
}

static bool program_over(const program *all)
{
    return all->finished || kb_sim_get_stats(all->sim).pending == 0;
}

typedef struct outcome {
    uint64_t hash, steps, cancelled, events, elided;
    kb_time end;
} outcome;

static outcome program_end(program *all)
{
    kb_sim_stats stats = kb_sim_get_stats(all->sim);
    outcome result = {.hash = all->hash,
                      .steps = all->steps,
                      .cancelled = stats.cancelled,
                      .events = stats.events,
                      .elided = stats.elided,
                      .end = kb_sim_now(all->sim)};
    kb_sim_destroy(all->sim);
    return result;
}

/* In one go if `piece` is 0, or in runs of so much time. */
static outcome run_program(uint64_t seed, bool no_elision, kb_time piece, uint64_t steps)
{
    static program all;
    program_begin(&all, seed, no_elision, steps);
    if (piece == 0)
        expect_ok(kb_sim_run(all.sim, KB_FOREVER));
    while (!program_over(&all))
        expect_ok(kb_sim_run(all.sim, kb_sim_now(all.sim) + piece));
    return program_end(&all);
}

static void expect_same(outcome a, outcome b)
{
    assert_int_equal(a.steps, b.steps);
    assert_true(a.hash == b.hash);
    assert_int_equal(a.cancelled, b.cancelled);
    assert_int_equal(a.events + a.elided, b.events + b.elided);
    assert_int_equal(a.events + a.elided, a.steps); /* one step an event, run or elided */
}

static uint64_t steps_of_a_program(void)
{
    return RUNNING_ON_VALGRIND ? 2000 : 30000;
}

static void random_programs_do_the_same_in_every_way(void **state)
{
    (void)state;
    uint64_t steps = steps_of_a_program();
    uint64_t elided = 0, cancelled = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        outcome plain = run_program(seed, false, 0, steps);
        expect_same(plain, run_program(seed, false, 0, steps));          /* again */
        expect_same(plain, run_program(seed, true, 0, steps));           /* without elision */
        expect_same(plain, run_program(seed, false, 3 * KB_NS, steps));  /* in pieces */
        expect_same(plain, run_program(seed, true, 777 * KB_PS, steps)); /* both */
        outcome again = run_program(seed, true, 0, steps);
        assert_int_equal(again.elided, 0);
        assert_true(again.end == plain.end);
        elided += plain.elided;
        cancelled += plain.cancelled;
    }
    assert_true(elided > steps / 10); /* so the test was one */
    assert_true(cancelled > steps / 10);
}

static void two_simulators_do_not_meet(void **state)
{
    (void)state;
    static program one, two;
    uint64_t steps = steps_of_a_program();
    outcome first = run_program(101, false, 0, steps);
    outcome second = run_program(102, true, 0, steps);
    program_begin(&one, 101, false, steps);
    program_begin(&two, 102, true, steps);
    while (!program_over(&one) || !program_over(&two)) {
        if (!program_over(&one))
            expect_ok(kb_sim_run(one.sim, kb_sim_now(one.sim) + 5 * KB_NS));
        if (!program_over(&two))
            expect_ok(kb_sim_run(two.sim, kb_sim_now(two.sim) + 2 * KB_NS));
    }
    expect_same(first, program_end(&one));
    expect_same(second, program_end(&two));
}

/* One simulator runs inside a handler of another: nothing is shared, so nothing happens to either.
 */
static void run_another(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    program *inner = self;
    expect_ok(kb_sim_run(inner->sim, (kb_time)arg));
}

static void a_simulator_can_run_within_another(void **state)
{
    (void)state;
    static program inner;
    uint64_t steps = steps_of_a_program();
    outcome alone = run_program(103, false, 0, steps);
    program_begin(&inner, 103, false, steps);
    kb_sim *outer = new_sim();
    kb_source source = kb_source_make(1);
    kb_handler nested = add(outer, run_another, &inner);
    kb_time end = 40 * KB_NS; /* then the rest at once */
    for (kb_time t = 0; t <= end; t += KB_NS)
        (void)kb_sim_at(outer, &source, t, nested, (uint64_t)(t < end ? t : KB_FOREVER));
    expect_ok(kb_sim_run(outer, KB_FOREVER));
    assert_true(kb_sim_now(outer) == end);
    kb_sim_destroy(outer);
    expect_same(alone, program_end(&inner));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_do_the_same_in_every_way),
        cmocka_unit_test(two_simulators_do_not_meet),
        cmocka_unit_test(a_simulator_can_run_within_another),
    };
    return cmocka_run_group_tests_name("programs", tests, NULL, NULL);
}
