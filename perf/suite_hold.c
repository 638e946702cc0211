/*
 * suite_hold.c: what an event costs, in the hold model (hold_model.h) with 100 to a million
 * pending.
 *
 * The engine and the reference heap run the same history to the same times, slice by slice in turn,
 * and must have handled the same number of events after each. Once per case both also run with
 * handlers that hash every time and component. Runs are bounded by simulated time, which costs
 * nothing per event; the time of a slice is divided by the events that were in it. All cases of a
 * suite take turns, so that a noisy second of the machine spoils one round of many and not all of
 * one case.
 *
 * SimPy runs the same model with processes (hold.py), for two sizes. The floor (floor.c) takes
 * turns with the cases too.
 */
#include "hold_model.h"
#include "suite.h"

#include <stdio.h>

static const uint32_t sizes[] = {100, 1000, 10000, 100000, 1000000};
enum { size_count = sizeof sizes / sizeof sizes[0], quick_size_max = 100000 };

/* The names of the metrics: each of these and ".n10000.ns". */
typedef struct series {
    const char *engine;
    const char *heap; /* NULL: the engine runs alone */
    bool simpy, floor;
    uint32_t least, most; /* of the sizes */
    hold_shape shape;
} series;

typedef struct contest {
    const series *series;
    uint32_t pending;
    hold_state engine_state, heap_state;
    kb_sim *sim;
    ref_heap *heap;
    kb_time until;
    double engine_ns, heap_ns, simpy_ns; /* best so far, per event */
} contest;

static kb_error *contest_init(contest *c, const series *s, uint32_t pending, bool check)
{
    hold_shape shape = s->shape;

    shape.pending = pending;
    *c = (contest){.series = s, .pending = pending};
    KB_TRY(hold_state_init(&c->engine_state, &shape));
    KB_TRY(hold_engine_create(&c->engine_state, check, &c->sim));
    if (s->heap == NULL)
        return NULL;
    KB_TRY(hold_state_init(&c->heap_state, &shape));
    return hold_heap_create(&c->heap_state, check, &c->heap);
}

static void contest_fini(contest *c)
{
    ref_heap_destroy(c->heap);
    kb_sim_destroy(c->sim);
    hold_state_fini(&c->heap_state);
    hold_state_fini(&c->engine_state);
    *c = (contest){0};
}

/* Both continue for about this many events. */
static kb_error *contest_run(contest *c, uint64_t events, bool timed)
{
    uint64_t before = kb_sim_get_stats(c->sim).events;
    c->until += hold_time_of(&c->engine_state, events);

    double start = bench_clock_ns();
    KB_TRY(kb_sim_run(c->sim, c->until));
    double took = bench_clock_ns() - start;
    uint64_t after = kb_sim_get_stats(c->sim).events;
    if (timed)
        bench_keep_least(&c->engine_ns, took / (double)(after - before));
    if (c->heap == NULL)
        return NULL;

    before = ref_heap_events(c->heap);
    start = bench_clock_ns();
    ref_heap_run(c->heap, c->until);
    took = bench_clock_ns() - start;
    if (timed)
        bench_keep_least(&c->heap_ns, took / (double)(ref_heap_events(c->heap) - before));
    if (after != ref_heap_events(c->heap) || c->engine_state.hash != c->heap_state.hash)
        return kb_error_new(KB_ERR_CHECK, "%s.n%u: the engine and the reference heap disagree",
                            c->series->engine, c->pending);
    return NULL;
}

static kb_error *run_simpy(const bench *b, contest *c)
{
    char pending[16];
    double ns;

    if (!b->simpy || !c->series->simpy || (c->pending != 100 && c->pending != 10000))
        return NULL;
    snprintf(pending, sizeof pending, "%u", c->pending);
    KB_TRY(bench_python("hold.py", pending, b->quick ? "50000" : "200000", &ns));
    bench_keep_least(&c->simpy_ns, ns);
    return NULL;
}

static kb_error *check(const series *s, uint32_t pending)
{
    static contest c; /* with its tables too big for a stack to be sure of */

    kb_error *err = contest_init(&c, s, pending, true);
    if (err == NULL)
        err = contest_run(&c, 200000 + pending / 2, false);
    contest_fini(&c);
    return err;
}

/* Checks the case and runs it until it is in steady state. */
static kb_error *prepare(const bench *b, contest *c, const series *s, uint32_t pending)
{
    bench_progress(b, "%s.n%u", s->engine, pending);
    if (s->heap != NULL)
        KB_TRY(check(s, pending));
    KB_TRY(contest_init(c, s, pending, false));
    /* Twice all pending, and a million for structures that adapt to what they see. */
    return contest_run(c, 2 * (uint64_t)pending + 1000000, false);
}

static kb_error *run_round(const bench *b, contest *c)
{
    bench_progress(b, "%s.n%u", c->series->engine, c->pending);
    KB_TRY(contest_run(c, 20000 + c->pending / 2, false)); /* others have used the caches */
    KB_TRY(contest_run(c, b->quick ? 200000 : 2050000, true));
    return run_simpy(b, c);
}

static void report(bench *b, const contest *c, double floor_ns)
{
    const series *s = c->series;

    bench_report(b, c->engine_ns, "ns/event", "%s.n%u.ns", s->engine, c->pending);
    if (c->heap != NULL) {
        if (s->floor)
            bench_report(b, c->engine_ns / floor_ns, "", "%s.n%u.vs_floor", s->engine, c->pending);
        bench_report(b, c->heap_ns / c->engine_ns, "", "%s.n%u.vs_heap", s->engine, c->pending);
        bench_report(b, c->heap_ns, "ns/event", "%s.n%u.ns", s->heap, c->pending);
    }
    if (c->simpy_ns > 0) {
        bench_report(b, c->simpy_ns / c->engine_ns, "", "%s.n%u.vs_simpy", s->engine, c->pending);
        bench_report(b, c->simpy_ns, "ns/event", "hold.simpy.n%u.ns", c->pending);
    }
}

static bool wants(const bench *b, const series *s, uint32_t pending)
{
    if (pending < s->least || pending > s->most || (b->quick && pending > quick_size_max))
        return false;
    return bench_wants(b, "%s.n%u", s->engine, pending) ||
           (s->heap != NULL && bench_wants(b, "%s.n%u", s->heap, pending)) ||
           (s->simpy && bench_wants(b, "hold.simpy.n%u", pending));
}

static kb_error *run_contests(bench *b, contest *contests, size_t count)
{
    double floor_ns = 0;

    KB_TRY(floor_start(hold_kinds));
    for (unsigned round = 0; round < b->rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            KB_TRY(run_round(b, &contests[i]));
            if (contests[i].series->floor)
                bench_keep_least(&floor_ns, floor_round(b->quick ? 200000 : 1000000));
        }
    }
    floor_end();
    for (size_t i = 0; i < count; i++)
        report(b, &contests[i], floor_ns);
    return NULL;
}

static kb_error *run_both(bench *b, const series both[static 2])
{
    static contest contests[2 * size_count];
    size_t count = 0;
    kb_error *err = NULL;

    for (const series *s = both; s < both + 2; s++) {
        for (size_t i = 0; i < size_count && err == NULL; i++) {
            if (wants(b, s, sizes[i]))
                err = prepare(b, &contests[count++], s, sizes[i]);
        }
    }
    if (err == NULL)
        err = run_contests(b, contests, count);
    for (size_t i = 0; i < count; i++)
        contest_fini(&contests[i]);
    return err;
}

static kb_error *run_hold(bench *b)
{
    static const series both[] = {
        {.engine = "hold.h1", .least = 100, .most = 1000000, .shape = {.kinds = 1}},
        {
            .engine = "hold.h4",
            .heap = "heap.h4",
            .simpy = true,
            .floor = true,
            .least = 100,
            .most = 1000000,
            .shape = {.kinds = 4},
        },
    };
    return run_both(b, both);
}

static kb_error *run_lockstep(bench *b)
{
    static const series both[] = {
        {
            .engine = "lockstep.h4",
            .heap = "heap.lockstep.h4",
            .least = 1000,
            .most = 100000,
            .shape = {.kinds = 4, .lockstep = true},
        },
        {
            .engine = "lockstep.fixed",
            .heap = "heap.lockstep.fixed",
            .least = 1000,
            .most = 100000,
            .shape = {.kinds = 4, .lockstep = true, .own_kinds = true},
        },
    };
    return run_both(b, both);
}

static const bench_work hold_works[] = {
    {"hold.h4.n1000", hold_engine_count, 1000, 300000, 500000},
    {"hold.h4.n10000", hold_engine_count, 10000, 300000, 500000},
    {"heap.h4.n10000", hold_heap_count, 10000, 50000, 150000},
    {NULL, NULL, 0, 0, 0},
};

const bench_suite bench_hold = {
    .title = "Hold model: each event schedules one after a random hardware-like delay "
             "(h: handlers, n: pending)",
    .run = run_hold,
    .works = hold_works,
};

const bench_suite bench_lockstep = {
    .title = "Lockstep: the same with delays of whole clock cycles, so with many ties "
             "(fixed: each component has one handler)",
    .run = run_lockstep,
};
