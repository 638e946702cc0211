/*
 * suite_mm1.c: how many objects a second pass through an M/M/1 queue, in each way that the engine
 * offers, on the reference heap, and in SimPy (mm1.py: two processes and a store).
 *
 * The result of each is checked against the recursion of Lindley, which needs no simulator, to the
 * femtosecond, and that one against theory: the mean time in system is 1 / (mu - lambda).
 */
#include "mm1.h"
#include "suite.h"

#include <math.h>

void mm1_queue_init(mm1_queue *queue, uint64_t objects)
{
    *queue = (mm1_queue){
        .to_come = objects,
        .arrival_source = kb_source_make(0),
        .departure_source = kb_source_make(1),
    };
    kb_rng_init(&queue->arrivals, mm1_arrival_seed);
    kb_rng_init(&queue->services, mm1_service_seed);
}

/* An object is served from when it arrives or the one before it leaves, whichever is later. */
static kb_time lindley(uint64_t objects)
{
    static mm1_queue queue;
    kb_time arrival = 0, departure = 0, total = 0;

    mm1_queue_init(&queue, objects);
    for (uint64_t i = 0; i < objects; i++) {
        arrival += mm1_next_arrival(&queue);
        if (departure < arrival)
            departure = arrival;
        departure += mm1_next_service(&queue);
        total += departure - arrival;
    }
    return total;
}

static kb_error *with_elision(uint64_t objects, mm1_result *result)
{
    return mm1_handlers(objects, false, result);
}

static kb_error *without_elision(uint64_t objects, mm1_result *result)
{
    return mm1_handlers(objects, true, result);
}

typedef struct entrant {
    const char *name;
    kb_error *(*run)(uint64_t objects, mm1_result *result);
    mm1_result result;
    double best; /* objects per second */
} entrant;

enum { handlers, no_elision, coroutines, heap, entrant_count };

static entrant entrants[entrant_count] = {
    [handlers] = {.name = "mm1", .run = with_elision},
    [no_elision] = {.name = "mm1.no_elision", .run = without_elision},
    [coroutines] = {.name = "mm1.coroutine", .run = mm1_coroutines},
    [heap] = {.name = "mm1.heap", .run = mm1_heap},
};

static kb_error *run_entrant(entrant *e, uint64_t objects, kb_time expected)
{
    double start = bench_clock_ns();
    KB_TRY(e->run(objects, &e->result));
    bench_keep_most(&e->best, (double)objects * 1e9 / (bench_clock_ns() - start));
    if (e->result.total != expected)
        return kb_error_new(KB_ERR_CHECK, "%s: %lld fs in the system instead of %lld", e->name,
                            (long long)e->result.total, (long long)expected);
    return NULL;
}

static kb_error *check_theory(kb_time total, uint64_t objects)
{
    const double rate = 1 / (double)MM1_SERVICE_MEAN - 1 / (double)MM1_ARRIVAL_MEAN;
    double mean = (double)total / (double)objects;

    /* A million objects come within 2 % (standard error), as waiting times are correlated. */
    if (fabs(mean * rate - 1) > 0.05)
        return kb_error_new(KB_ERR_CHECK, "mm1: %.0f fs in the system; theory says %.0f", mean,
                            1 / rate);
    return NULL;
}

static void report(bench *b, double simpy)
{
    for (entrant *e = entrants; e < entrants + entrant_count; e++) {
        bench_report(b, e->best, "objects/s", "%s.objects_per_s", e->name);
        if (e != &entrants[heap])
            bench_report(b, e->best / entrants[heap].best, "", "%s.vs_heap", e->name);
        if (simpy > 0 && e != &entrants[heap])
            bench_report(b, e->best / simpy, "", "%s.vs_simpy", e->name);
    }
    if (simpy > 0)
        bench_report(b, simpy, "objects/s", "mm1.simpy.objects_per_s");
}

static void report_events(bench *b, uint64_t objects)
{
    const entrant *all = &entrants[no_elision];
    const entrant *some = &entrants[handlers];

    bench_report(b, all->best * (double)all->result.events / (double)objects, "events/s",
                 "mm1.events_per_s");
    bench_report(b, (double)some->result.events / (double)objects, "events/object",
                 "mm1.events_per_object");
}

static kb_error *run(bench *b)
{
    uint64_t objects = b->quick ? 1000000 : 2000000;
    double simpy = 0;

    if (!bench_wants(b, "mm1"))
        return NULL;
    kb_time expected = lindley(objects);
    KB_TRY(check_theory(expected, objects));
    for (unsigned round = 0; round < b->rounds; round++) {
        bench_progress(b, "mm1, round %u of %u", round + 1, b->rounds);
        for (entrant *e = entrants; e < entrants + entrant_count; e++)
            KB_TRY(run_entrant(e, objects, expected));
        if (b->simpy) {
            double rate;
            KB_TRY(bench_python("mm1.py", b->quick ? "50000" : "200000", "0", &rate));
            bench_keep_most(&simpy, rate);
        }
    }
    report(b, simpy);
    report_events(b, objects);
    return NULL;
}

static kb_error *count_objects(uint32_t pending, uint64_t events, uint64_t *done)
{
    mm1_result result;

    (void)pending; /* it is what it is */
    *done = events;
    return mm1_handlers(events, false, &result);
}

static const bench_work works[] = {
    {"mm1", count_objects, 0, 50000, 150000},
    {NULL, NULL, 0, 0, 0},
};

const bench_suite bench_mm1 = {
    .title = "M/M/1 queue: arrivals at 0.9 of the service rate",
    .run = run,
    .works = works,
};
