/*
 * test_sim.c: the clock, the loop, and what the public calls on a simulator promise.
 *
 * Times are worked out by hand and compared exactly. test_programs.c has random programs.
 *
 * Checks S1 and S3.
 */
#include "support/expect.h"

#include "base/base.h"
#include "sim/sim.h"

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

static void expect_stats(kb_sim_stats stats, kb_sim_stats expected)
{
    assert_int_equal(stats.events, expected.events);
    assert_int_equal(stats.elided, expected.elided);
    assert_int_equal(stats.cancelled, expected.cancelled);
    assert_int_equal(stats.resumes, expected.resumes);
    assert_int_equal(stats.pending, expected.pending);
    assert_int_equal(stats.max_pending, expected.max_pending);
    assert_int_equal(stats.coroutines, expected.coroutines);
}

/* What happened when, as text: "10:1 20:2 " is argument 1 at 10 fs and 2 at 20 fs. */
typedef struct diary {
    char text[512];
    size_t length;
} diary;

static void note(kb_sim *sim, void *self, uint64_t arg)
{
    diary *d = self;
    int printed = snprintf(d->text + d->length, sizeof d->text - d->length, "%lld:%llu ",
                           (long long)kb_sim_now(sim), (unsigned long long)arg);
    d->length += (size_t)printed;
    assert_true(d->length < sizeof d->text);
}

/* ---- Creating and running ---- */

static void destroying_nothing_does_nothing(void **state)
{
    (void)state;
    kb_sim_destroy(NULL);
    kb_sim_destroy(new_sim());
    kb_sim *sim = new_sim(); /* with events that never ran */
    diary d = {0};
    kb_source source = kb_source_make(1);
    kb_handler noting = add(sim, note, &d);
    for (kb_time t = 0; t < 1000; t++)
        (void)kb_sim_at(sim, &source, t * KB_NS, noting, 0);
    kb_sim_destroy(sim);
    assert_string_equal(d.text, "");
}

static void a_new_simulator_is_empty(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    assert_true(kb_sim_now(sim) == 0);
    expect_ok(kb_sim_run(sim, KB_FOREVER)); /* nothing to do */
    assert_true(kb_sim_now(sim) == 0);
    kb_sim_stats stats = kb_sim_get_stats(sim);
    expect_stats(stats, (kb_sim_stats){0});
    kb_sim_destroy(sim);
}

/* Law: with a limit the clock is left at the limit, without one at the last event. */
static void run_leaves_the_clock_where_it_says(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_source source = kb_source_make(1);
    for (uint64_t t = 10; t <= 50; t += 10)
        (void)kb_sim_at(sim, &source, (kb_time)t, noting, t);
    expect_ok(kb_sim_run(sim, 9));
    assert_string_equal(d.text, "");
    assert_true(kb_sim_now(sim) == 9);
    expect_ok(kb_sim_run(sim, 20)); /* `until` is included */
    assert_string_equal(d.text, "10:10 20:20 ");
    assert_true(kb_sim_now(sim) == 20);
    expect_ok(kb_sim_run(sim, 20)); /* nothing new */
    expect_ok(kb_sim_run(sim, 5));  /* the clock never goes back */
    assert_true(kb_sim_now(sim) == 20);
    expect_ok(kb_sim_run(sim, 35));
    assert_true(kb_sim_now(sim) == 35);
    assert_int_equal(kb_sim_get_stats(sim).pending, 2);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:10 20:20 30:30 40:40 50:50 ");
    assert_true(kb_sim_now(sim) == 50);
    expect_ok(kb_sim_run(sim, KB_FOREVER)); /* again: nothing left */
    assert_true(kb_sim_now(sim) == 50);
    expect_ok(kb_sim_run(sim, 1000)); /* an idle clock moves too */
    assert_true(kb_sim_now(sim) == 1000);
    kb_sim_destroy(sim);
}

static void the_last_instant_can_be_reached(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_source source = kb_source_make(1);
    (void)kb_sim_at(sim, &source, KB_FOREVER - 1, noting, 2);
    (void)kb_sim_at(sim, &source, (kb_time)1 << 62, noting, 1);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "4611686018427387904:1 9223372036854775806:2 ");
    assert_true(kb_sim_now(sim) == KB_FOREVER - 1);
    kb_sim_destroy(sim);
}

/* ---- Stopping and failing ---- */

static void note_and_stop(kb_sim *sim, void *self, uint64_t arg)
{
    kb_sim_stop(sim);
    note(sim, self, arg); /* the event in hand is done to its end */
}

static void a_stopped_run_can_be_gone_on_with(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_handler stopping = add(sim, note_and_stop, &d);
    kb_source source = kb_source_make(1);
    (void)kb_sim_at(sim, &source, 10, noting, 1);
    (void)kb_sim_at(sim, &source, 20, stopping, 2);
    (void)kb_sim_at(sim, &source, 20, noting, 3);
    (void)kb_sim_at(sim, &source, 30, noting, 4);
    expect_ok(kb_sim_run(sim, 100));
    assert_string_equal(d.text, "10:1 20:2 ");
    assert_true(kb_sim_now(sim) == 20); /* not 100 */
    expect_ok(kb_sim_run(sim, 20));
    assert_string_equal(d.text, "10:1 20:2 20:3 ");
    kb_sim_stop(sim); /* outside of run there is nothing to stop */
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:1 20:2 20:3 30:4 ");
    assert_true(kb_sim_now(sim) == 30);
    kb_sim_destroy(sim);
}

static void note_and_fail(kb_sim *sim, void *self, uint64_t arg)
{
    note(sim, self, arg);
    kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "first of %d", (int)arg));
    kb_sim_fail(sim, kb_error_new(KB_ERR_CHECK, "second of %d", (int)arg));
}

static void the_first_error_is_returned_once(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_handler failing = add(sim, note_and_fail, &d);
    kb_source source = kb_source_make(1);
    (void)kb_sim_at(sim, &source, 10, failing, 1);
    (void)kb_sim_at(sim, &source, 10, noting, 2);
    (void)kb_sim_at(sim, &source, 30, failing, 3);
    expect_error(kb_sim_run(sim, 100), KB_ERR_FAULT, "first of 1");
    assert_string_equal(d.text, "10:1 ");
    assert_true(kb_sim_now(sim) == 10);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_FAULT, "first of 3");
    assert_string_equal(d.text, "10:1 10:2 30:3 ");
    expect_ok(kb_sim_run(sim, 40));
    assert_true(kb_sim_now(sim) == 40);
    kb_sim_destroy(sim);
}

/* An error given outside of run is returned by the next one, before anything happens. */
static void an_error_from_outside_waits_for_run(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_source source = kb_source_make(1);
    (void)kb_sim_at(sim, &source, 10, add(sim, note, &d), 1);
    kb_sim_fail(sim, kb_error_new(KB_ERR_INPUT, "no"));
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_INPUT, "no");
    assert_string_equal(d.text, "");
    assert_true(kb_sim_now(sim) == 0);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:1 ");

    kb_sim_fail(sim, kb_error_new(KB_ERR_INPUT, "not returned, but not lost either"));
    kb_sim_destroy(sim); /* frees it: the leak checkers would tell */
}

typedef struct scheduler {
    diary *d;
    kb_source source;
    kb_handler handler;
    kb_time delay;
    kb_event last;
} scheduler;

static void schedule_relative(kb_sim *sim, void *self, uint64_t arg)
{
    scheduler *s = self;
    note(sim, s->d, arg);
    s->last = kb_sim_at(sim, &s->source, kb_sim_now(sim) + s->delay, s->handler, arg + 1);
}

static void scheduling_in_the_past_fails_the_run(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    scheduler s = {.d = &d, .source = kb_source_make(1), .delay = -1};
    s.handler = add(sim, note, &d);
    kb_source source = kb_source_make(0);
    (void)kb_sim_at(sim, &source, 1000, add(sim, schedule_relative, &s), 1);
    (void)kb_sim_at(sim, &source, 2000, s.handler, 2);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_BUG,
                 "event scheduled in the past: at 999 fs, now 1000 fs");
    assert_false(kb_sim_cancel(sim, s.last)); /* there is no such event */
    assert_int_equal(kb_sim_get_stats(sim).pending, 1);
    expect_ok(kb_sim_run(sim, 3000));
    assert_string_equal(d.text, "1000:1 2000:2 ");

    (void)kb_sim_at(sim, &source, 2999, s.handler, 3); /* also outside of run */
    (void)kb_sim_at(sim, &source, 3000, s.handler, 4);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_BUG,
                 "event scheduled in the past: at 2999 fs, now 3000 fs");
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "1000:1 2000:2 3000:4 ");

    kb_sim *fresh = new_sim();
    (void)kb_sim_at(fresh, &source, -5, add(fresh, note, &d), 0);
    expect_error(kb_sim_run(fresh, KB_FOREVER), KB_ERR_BUG,
                 "event scheduled in the past: at -5 fs, now 0 fs");
    kb_sim_destroy(fresh);
    kb_sim_destroy(sim);
}

/* ---- Order ---- */

/* Law: at one instant by source id, then by sequence at the source, not by when it was called. */
static void events_of_one_instant_go_by_source(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_source low = kb_source_make(0), middle = kb_source_make(5);
    kb_source high = kb_source_make(KB_SOURCE_ID_MAX);
    (void)kb_sim_at(sim, &high, 10, noting, 91);
    (void)kb_sim_at(sim, &middle, 20, noting, 53);
    (void)kb_sim_at(sim, &middle, 10, noting, 51); /* the second of its source, but earlier */
    (void)kb_sim_at(sim, &low, 10, noting, 1);
    (void)kb_sim_at(sim, &high, 10, noting, 92);
    (void)kb_sim_at(sim, &low, 10, noting, 2);
    (void)kb_sim_at(sim, &middle, 10, noting, 52);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:1 10:2 10:51 10:52 10:91 10:92 20:53 ");
    kb_sim_destroy(sim);
}

/*
 * Law: an event scheduled for now by a source takes its place among those of the present instant
 * that are still to come. At 10 fs sources 1, 4 and 6 have an event each. The first of these, by
 * source 1, schedules three more for now: by source 5, between 4 and 6; by source 0, which comes
 * before all that are left although source 0 is over already; and by source 7, last.
 */
typedef struct crowd {
    diary *d;
    kb_source sources[8];
    kb_handler noting;
} crowd;

static void join_now(kb_sim *sim, void *self, uint64_t arg)
{
    crowd *c = self;
    note(sim, c->d, arg);
    (void)kb_sim_at(sim, &c->sources[5], kb_sim_now(sim), c->noting, 5);
    (void)kb_sim_at(sim, &c->sources[7], kb_sim_now(sim), c->noting, 7);
    (void)kb_sim_at(sim, &c->sources[0], kb_sim_now(sim), c->noting, 0);
}

static void latecomers_take_their_place(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    crowd c = {.d = &d, .noting = add(sim, note, &d)};
    for (uint32_t i = 0; i < 8; i++)
        c.sources[i] = kb_source_make(i);
    (void)kb_sim_at(sim, &c.sources[6], 10, c.noting, 6);
    (void)kb_sim_at(sim, &c.sources[4], 10, c.noting, 4);
    (void)kb_sim_at(sim, &c.sources[1], 10, add(sim, join_now, &c), 1);
    (void)kb_sim_at(sim, &c.sources[0], 11, c.noting, 99);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:1 10:0 10:4 10:5 10:6 10:7 11:99 ");
    kb_sim_destroy(sim);
}

/* ---- Handlers ---- */

typedef struct family {
    diary *d;
    kb_source source;
} family;

/* Adds a handler for `arg` more generations and schedules it. */
static void beget(kb_sim *sim, void *self, uint64_t arg)
{
    family *f = self;
    note(sim, f->d, arg);
    if (arg == 0)
        return;
    kb_handler child = add(sim, beget, f);
    (void)kb_sim_at(sim, &f->source, kb_sim_now(sim) + 3, child, arg - 1);
}

static void handlers_can_be_added_during_a_run(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    family f = {.d = &d, .source = kb_source_make(1)};
    (void)kb_sim_at(sim, &f.source, 0, add(sim, beget, &f), 20);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_true(kb_sim_now(sim) == 60); /* 20 generations of 3 fs */
    assert_int_equal(kb_sim_get_stats(sim).events, 21);
    kb_sim_destroy(sim);
}

static void count_in(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    uint64_t *counts = self;
    counts[0] += 1;
    counts[1] += arg;
}

/* Law: each event goes to the handler it was scheduled for, with its own self. */
static void many_handlers_get_their_own_events(void **state)
{
    (void)state;
    enum { handlers = 5000 };
    static uint64_t counts[handlers][2];
    static kb_handler numbers[handlers];
    kb_sim *sim = new_sim();
    kb_source source = kb_source_make(0);
    for (uint32_t i = 0; i < handlers; i++) {
        numbers[i] = add(sim, count_in, counts[i]);
        if (i)
            assert_true(numbers[i] != numbers[i - 1]);
    }
    for (uint32_t i = 0; i < handlers; i++) {
        uint32_t which = (i * 7919) % handlers;
        (void)kb_sim_at(sim, &source, (kb_time)(i % 100) * KB_NS, numbers[which], which);
        (void)kb_sim_at(sim, &source, (kb_time)(i % 10) * KB_US, numbers[which], 1);
    }
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    for (uint32_t i = 0; i < handlers; i++) {
        assert_int_equal(counts[i][0], 2);
        assert_int_equal(counts[i][1], i + 1);
    }
    kb_sim_destroy(sim);
}

/* ---- Cancelling ---- */

typedef struct canceller {
    diary *d;
    kb_event victim;
    bool expected;
    kb_source source;
    kb_handler instead; /* scheduled for now, if not 0 */
} canceller;

static void cancel_victim(kb_sim *sim, void *self, uint64_t arg)
{
    canceller *c = self;
    note(sim, c->d, arg);
    assert_int_equal(kb_sim_cancel(sim, c->victim), c->expected);
    assert_false(kb_sim_cancel(sim, c->victim));
    if (c->instead)
        (void)kb_sim_at(sim, &c->source, kb_sim_now(sim), c->instead, 77);
}

/*
 * Law: a handler may cancel the event that would be next, which goes to another handler than the
 * one after it; the loop has looked that up already.
 */
static void the_next_event_can_be_cancelled(void **state)
{
    (void)state;
    for (int instead = 0; instead < 2; instead++) {
        kb_sim *sim = new_sim();
        diary d = {0}, never = {0};
        canceller c = {.d = &d, .expected = true, .source = kb_source_make(2)};
        kb_source source = kb_source_make(1);
        kb_handler cancelling = add(sim, cancel_victim, &c);
        kb_handler wrong = add(sim, note, &never);
        kb_handler noting = add(sim, note, &d);
        (void)kb_sim_at(sim, &source, 10, cancelling, 1);
        c.victim = kb_sim_at(sim, &source, 20, wrong, 2);
        c.instead = instead ? noting : 0;
        (void)kb_sim_at(sim, &source, 30, noting, 3);
        expect_ok(kb_sim_run(sim, KB_FOREVER));
        assert_string_equal(d.text, instead ? "10:1 10:77 30:3 " : "10:1 30:3 ");
        assert_string_equal(never.text, "");
        kb_sim_stats stats = kb_sim_get_stats(sim);
        assert_int_equal(stats.cancelled, 1);
        assert_int_equal(stats.events, 2 + instead);
        kb_sim_destroy(sim);
    }
}

/* The last event there is: nothing is left to be looked up. */
static void the_only_other_event_can_be_cancelled(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    canceller c = {.d = &d, .expected = true};
    kb_source source = kb_source_make(1);
    (void)kb_sim_at(sim, &source, 10, add(sim, cancel_victim, &c), 1);
    c.victim = kb_sim_at(sim, &source, 20, add(sim, note, &d), 2);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:1 ");
    assert_true(kb_sim_now(sim) == 10);
    kb_sim_destroy(sim);
}

/* An event is over when its handler runs, and so it cannot cancel itself. */
static void the_event_in_hand_cannot_be_cancelled(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    canceller c = {.d = &d, .expected = false};
    kb_source source = kb_source_make(1);
    c.victim = kb_sim_at(sim, &source, 10, add(sim, cancel_victim, &c), 1);
    (void)kb_sim_at(sim, &source, 20, add(sim, note, &d), 2);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "10:1 20:2 ");
    assert_int_equal(kb_sim_get_stats(sim).cancelled, 0);
    kb_sim_destroy(sim);
}

/* ---- Skipping events ---- */

typedef struct stepper {
    diary *d;
    kb_source source, other;
    kb_handler noting;
    kb_time others_at; /* the other source schedules an event then, if not negative */
    kb_time step_to;
    bool stop;
    bool expected;
} stepper;

static void step(kb_sim *sim, void *self, uint64_t arg)
{
    stepper *s = self;
    note(sim, s->d, arg);
    if (s->others_at >= 0)
        (void)kb_sim_at(sim, &s->other, s->others_at, s->noting, 8);
    if (s->stop)
        kb_sim_stop(sim);
    uint64_t key = s->source.next_key;
    kb_time now = kb_sim_now(sim);
    uint64_t elided = kb_sim_get_stats(sim).elided;
    assert_int_equal(kb_sim_advance(sim, &s->source, s->step_to), s->expected);
    if (s->expected) {
        assert_true(s->source.next_key == key + 1);
        assert_true(kb_sim_now(sim) == s->step_to);
        note(sim, s->d, arg + 1);
    } else {
        assert_true(s->source.next_key == key);
        assert_true(kb_sim_now(sim) == now);
    }
    assert_int_equal(kb_sim_get_stats(sim).elided, elided + s->expected);
}

/*
 * One try to step from 100 fs to `to` while another source, whose id is `other_id` (the stepper's
 * is 5), has an event at `others_at`.
 */
static void expect_step(bool expected, kb_time to, uint32_t other_id, kb_time others_at,
                        kb_time until, bool stop, bool no_elision)
{
    kb_sim *sim;
    expect_ok(kb_sim_create(&(kb_sim_options){.no_elision = no_elision}, &sim));
    diary d = {0};
    stepper s = {.d = &d,
                 .source = kb_source_make(5),
                 .other = kb_source_make(other_id),
                 .noting = add(sim, note, &d),
                 .others_at = others_at,
                 .step_to = to,
                 .stop = stop,
                 .expected = expected};
    (void)kb_sim_at(sim, &s.source, 100, add(sim, step, &s), 1);
    expect_ok(kb_sim_run(sim, until));
    kb_sim_destroy(sim);
}

static void advance_skips_only_what_would_be_next(void **state)
{
    (void)state;
    const kb_time none = -1, ever = KB_FOREVER;
    expect_step(true, 200, 6, none, ever, false, false); /* nothing else is pending */
    expect_step(true, 100, 6, none, ever, false, false); /* a step of no time */
    expect_step(true, 200, 6, 201, ever, false, false);  /* the other is later */
    expect_step(false, 200, 6, 199, ever, false, false); /* the other is earlier */
    expect_step(true, 200, 6, 200, ever, false, false);  /* a tie: its id is higher */
    expect_step(false, 200, 4, 200, ever, false, false); /* a tie: its id is lower */
    expect_step(false, 100, 4, 100, ever, false, false); /* the same, now */
    expect_step(true, 100, 6, 100, ever, false, false);  /* the same, now */
    expect_step(true, 200, 6, none, 200, false, false);  /* just within the run */
    expect_step(false, 201, 6, none, 200, false, false); /* beyond the run */
    expect_step(false, 99, 6, none, ever, false, false); /* in the past */
    expect_step(false, 200, 6, none, ever, true, false); /* after a stop */
    expect_step(false, 100, 6, none, ever, true, false); /* not even now */
    expect_step(false, 200, 6, none, ever, false, true); /* without elision */
    expect_step(true, KB_FOREVER - 1, 6, none, ever, false, false);
    expect_step(false, KB_FOREVER, 6, none, ever, false, false); /* never comes */
}

/* Outside of run the clock stands still. */
static void advance_does_nothing_outside_of_run(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    kb_source source = kb_source_make(1);
    assert_false(kb_sim_advance(sim, &source, 0));
    assert_false(kb_sim_advance(sim, &source, 10));
    expect_ok(kb_sim_run(sim, 100));
    assert_false(kb_sim_advance(sim, &source, 100));
    assert_false(kb_sim_advance(sim, &source, 110));
    assert_true(kb_sim_now(sim) == 100);
    assert_true(source.next_key == kb_source_make(1).next_key);
    kb_sim_destroy(sim);
}

/*
 * Law: the key of a skipped event is used up, so the order of what comes later does not change. At
 * 10 fs source 5 steps to 20 fs, then schedules for 30 fs: with its third key in both modes.
 */
static void step_then_schedule(kb_sim *sim, void *self, uint64_t arg)
{
    scheduler *s = self;
    kb_time next = kb_sim_now(sim) + 10;
    note(sim, s->d, arg);
    if (arg == 1 && kb_sim_advance(sim, &s->source, next))
        step_then_schedule(sim, self, arg + 1);
    else if (arg < 3)
        s->last = kb_sim_at(sim, &s->source, next, s->handler, arg + 1);
}

static void a_skipped_event_uses_its_key(void **state)
{
    (void)state;
    for (int no_elision = 0; no_elision < 2; no_elision++) {
        kb_sim *sim;
        expect_ok(kb_sim_create(&(kb_sim_options){.no_elision = no_elision}, &sim));
        diary d = {0};
        scheduler s = {.d = &d, .source = kb_source_make(5)};
        s.handler = add(sim, step_then_schedule, &s);
        (void)kb_sim_at(sim, &s.source, 10, s.handler, 1);
        expect_ok(kb_sim_run(sim, KB_FOREVER));
        assert_string_equal(d.text, "10:1 20:2 30:3 ");
        assert_true(s.last.key == (UINT64_C(5) << 40) + 2);
        kb_sim_stats stats = kb_sim_get_stats(sim);
        assert_int_equal(stats.events, no_elision ? 3 : 2);
        assert_int_equal(stats.elided, no_elision ? 0 : 1);
        kb_sim_destroy(sim);
    }
}

/* ---- Counts, abandoning ---- */

static void no_work(kb_co *co, void *arg)
{
    kb_co_sleep(co, *(kb_time *)arg);
}

/*
 * By hand. Six events, at 1 to 5 and at 40 fs; that at 4 fs is cancelled, the others happen: 5. A
 * coroutine that starts at 10 fs and sleeps to 50 fs, past the event at 40 fs: 2 events and 2
 * resumes. Another that starts at 50 fs and sleeps when nothing comes before it: an event, a resume
 * and an elided step.
 */
static void stats_count_what_happened(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_source source = kb_source_make(9);
    kb_event events[6];
    for (int i = 0; i < 6; i++)
        events[i] = kb_sim_at(sim, &source, i < 5 ? i + 1 : 40, noting, 0);
    kb_sim_stats stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.pending, 6);
    assert_int_equal(stats.max_pending, 6);
    expect_ok(kb_sim_run(sim, 2));
    assert_true(kb_sim_cancel(sim, events[3]));
    assert_false(kb_sim_cancel(sim, events[0]));
    stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.events, 2);
    assert_int_equal(stats.cancelled, 1);
    assert_int_equal(stats.pending, 3);
    expect_ok(kb_sim_run(sim, 10));
    stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.events, 4);
    assert_int_equal(stats.pending, 1);

    kb_time sleep = 40;
    expect_ok(kb_co_spawn(sim, &(kb_co_options){.name = "one"}, no_work, &sleep, NULL));
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 1);
    assert_int_equal(kb_sim_get_stats(sim).pending, 2);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.events, 4 + 1 + 2);
    assert_int_equal(stats.resumes, 2);
    assert_int_equal(stats.elided, 0);
    assert_int_equal(stats.coroutines, 0);
    assert_true(kb_sim_now(sim) == 50);

    expect_ok(kb_co_spawn(sim, &(kb_co_options){.name = "two"}, no_work, &sleep, NULL));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    stats = kb_sim_get_stats(sim);
    expect_stats(stats, (kb_sim_stats){.events = 8,
                                       .elided = 1,
                                       .cancelled = 1,
                                       .resumes = 3,
                                       .pending = 0,
                                       .max_pending = 6,
                                       .coroutines = 0});
    assert_true(kb_sim_now(sim) == 90);
    kb_sim_destroy(sim);
}

static void an_abandoned_simulator_can_be_used_on(void **state)
{
    (void)state;
    kb_sim *sim = new_sim();
    diary d = {0};
    kb_handler noting = add(sim, note, &d);
    kb_source source = kb_source_make(1);
    kb_event events[3000];
    for (int i = 0; i < 3000; i++)
        events[i] = kb_sim_at(sim, &source, i * (i % 3 ? KB_NS : KB_MS), noting, 0);
    kb_time sleep = KB_S;
    expect_ok(kb_co_spawn(sim, &(kb_co_options){.name = "sleeper"}, no_work, &sleep, NULL));
    d.length = 0;
    expect_ok(kb_sim_run(sim, 3 * KB_NS)); /* 0, 1 ns, 2 ns; the sleeper sleeps */
    assert_int_equal(kb_sim_get_stats(sim).pending, 2998);
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 1);
    kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "forgotten, too"));
    kb_sim_abandon(sim);
    assert_true(kb_sim_now(sim) == 3 * KB_NS); /* the clock stays */
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 0);
    for (int i = 0; i < 3000; i++)
        assert_false(kb_sim_cancel(sim, events[i]));
    expect_ok(kb_sim_run(sim, KB_FOREVER)); /* nothing is left, no error either */
    assert_true(kb_sim_now(sim) == 3 * KB_NS);

    d.length = 0;
    for (uint64_t i = 0; i < 3; i++)
        (void)kb_sim_at(sim, &source, 4 * KB_NS - (kb_time)i, noting, i);
    expect_ok(kb_co_spawn(sim, &(kb_co_options){.name = "another"}, no_work, &sleep, NULL));
    for (int i = 0; i < 3000; i++)
        assert_false(kb_sim_cancel(sim, events[i])); /* some slots have other events now */
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_string_equal(d.text, "3999998:2 3999999:1 4000000:0 ");
    assert_true(kb_sim_now(sim) == 3 * KB_NS + KB_S);
    kb_sim_abandon(sim); /* with nothing to forget */
    kb_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroying_nothing_does_nothing),
        cmocka_unit_test(a_new_simulator_is_empty),
        cmocka_unit_test(run_leaves_the_clock_where_it_says),
        cmocka_unit_test(the_last_instant_can_be_reached),
        cmocka_unit_test(a_stopped_run_can_be_gone_on_with),
        cmocka_unit_test(the_first_error_is_returned_once),
        cmocka_unit_test(an_error_from_outside_waits_for_run),
        cmocka_unit_test(scheduling_in_the_past_fails_the_run),
        cmocka_unit_test(events_of_one_instant_go_by_source),
        cmocka_unit_test(latecomers_take_their_place),
        cmocka_unit_test(handlers_can_be_added_during_a_run),
        cmocka_unit_test(many_handlers_get_their_own_events),
        cmocka_unit_test(the_next_event_can_be_cancelled),
        cmocka_unit_test(the_only_other_event_can_be_cancelled),
        cmocka_unit_test(the_event_in_hand_cannot_be_cancelled),
        cmocka_unit_test(advance_skips_only_what_would_be_next),
        cmocka_unit_test(advance_does_nothing_outside_of_run),
        cmocka_unit_test(a_skipped_event_uses_its_key),
        cmocka_unit_test(stats_count_what_happened),
        cmocka_unit_test(an_abandoned_simulator_can_be_used_on),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
