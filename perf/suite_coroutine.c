/*
 * suite_coroutine.c: what a coroutine costs.
 *
 * resume: a sleep that goes through the event set: reschedule, switch away, switch into the next.
 * All sleep 1 ns, and n of them are staggered so that in each one's sleep every other one wakes,
 * which leaves nothing to elide; a single one runs without elision. The headline,
 * coroutine.resume.ns, is that of 100 coroutines. "random" is 100 coroutines with the random delays
 * of the hold model instead, where finding the next event is most of the cost.
 *
 * elided_sleep: a sleep in which nothing else happens, so that no event is needed.
 * spawn: a coroutine that is started, runs and ends, on a stack that was used before.
 */
#include "hold_model.h"
#include "suite.h"

typedef struct crowd {
    const char *name;
    uint32_t size;
    bool elision;
    bool random;
    kb_sim *sim;
    double best_ns;
} crowd;

static hold_state delays; /* read by the random sleepers */

static void sleeper(kb_co *co, void *arg)
{
    (void)arg;
    for (;;)
        kb_co_sleep(co, KB_NS);
}

static void random_sleeper(kb_co *co, void *arg)
{
    hold_state *state = arg;
    uint32_t ignored;

    for (;;)
        kb_co_sleep(co, hold_draw(state, 0, &ignored));
}

static void passer_by(kb_co *co, void *arg)
{
    (void)co;
    (void)arg;
}

static kb_error *crowd_init(crowd *c)
{
    KB_TRY(kb_sim_create(&(kb_sim_options){.no_elision = !c->elision}, &c->sim));
    for (uint32_t i = 0; i < c->size; i++) {
        /* Each starts a little later than the one before, all within the first nanosecond. */
        KB_TRY(kb_sim_run(c->sim, KB_NS * i / c->size));
        KB_TRY(kb_co_spawn(c->sim,
                           &(kb_co_options){.name = "sleeper", .source_id = i, .daemon = true},
                           c->random ? random_sleeper : sleeper, &delays, NULL));
    }
    return NULL;
}

/* One slice of about this many sleeps, by the coroutines under test alone. */
static kb_error *crowd_run(crowd *c, uint64_t sleeps)
{
    kb_sim_stats before = kb_sim_get_stats(c->sim);
    kb_time mean = c->random ? delays.mean_delay : KB_NS;
    kb_time until = kb_sim_now(c->sim) + (kb_time)(sleeps / c->size) * mean;

    double start = bench_clock_ns();
    KB_TRY(kb_sim_run(c->sim, until));
    double took = bench_clock_ns() - start;

    kb_sim_stats after = kb_sim_get_stats(c->sim);
    uint64_t resumes = after.resumes - before.resumes;
    uint64_t elided = after.elided - before.elided;
    uint64_t counted = c->elision && c->size == 1 ? elided : resumes;
    if (counted < (resumes + elided) / 100 * 99)
        return kb_error_new(KB_ERR_CHECK, "%s: %llu resumes and %llu elided sleeps", c->name,
                            (unsigned long long)resumes, (unsigned long long)elided);
    bench_keep_least(&c->best_ns, took / (double)counted);
    return NULL;
}

/* Batches are small enough for their stacks to stay in the cache. */
static kb_error *spawn_and_run(kb_sim *sim, uint64_t coroutines, double *best_ns)
{
    enum { batch = 64 };
    uint64_t batches = coroutines / batch;

    double start = bench_clock_ns();
    for (uint64_t i = 0; i < batches; i++) {
        for (uint32_t id = 0; id < batch; id++)
            KB_TRY(kb_co_spawn(sim, &(kb_co_options){.name = "passer-by", .source_id = id},
                               passer_by, NULL, NULL));
        KB_TRY(kb_sim_run(sim, KB_FOREVER));
    }
    bench_keep_least(best_ns, (bench_clock_ns() - start) / (double)(batches * batch));
    return NULL;
}

static crowd crowds[] = {
    {.name = "coroutine.resume.n1", .size = 1},
    {.name = "coroutine.resume.n100", .size = 100, .elision = true},
    {.name = "coroutine.resume.n10000", .size = 10000, .elision = true},
    {.name = "coroutine.resume.random.n100", .size = 100, .elision = true, .random = true},
    {.name = "coroutine.elided_sleep", .size = 1, .elision = true},
};
enum { crowd_count = sizeof crowds / sizeof crowds[0] };

static kb_error *measure(bench *b, kb_sim *spawner)
{
    uint64_t sleeps = b->quick ? 200000 : 2000000;
    unsigned rounds = 3 * b->rounds; /* they are short: few could all fall into a noisy second */
    double spawn_ns = 0;

    for (unsigned round = 0; round <= rounds; round++) {
        bench_progress(b, "coroutine, round %u of %u", round, rounds);
        for (crowd *c = crowds; c < crowds + crowd_count; c++) {
            if (round == 1)
                c->best_ns = 0; /* what came before was the warm-up */
            KB_TRY(crowd_run(c, sleeps));
        }
        if (round == 1)
            spawn_ns = 0;
        KB_TRY(spawn_and_run(spawner, sleeps / 4, &spawn_ns));
    }

    bench_report(b, crowds[1].best_ns, "ns/resume", "coroutine.resume.ns");
    for (crowd *c = crowds; c < crowds + crowd_count; c++)
        bench_report(b, c->best_ns, "ns/sleep", "%s.ns", c->name);
    bench_report(b, spawn_ns, "ns/coroutine", "coroutine.spawn.ns");
    return NULL;
}

static kb_error *run(bench *b)
{
    kb_sim *spawner = NULL;

    if (!bench_wants(b, "coroutine"))
        return NULL;
    kb_error *err = hold_state_init(&delays, &(hold_shape){.pending = 1, .kinds = 1});
    for (crowd *c = crowds; c < crowds + crowd_count && err == NULL; c++)
        err = crowd_init(c);
    if (err == NULL)
        err = kb_sim_create(NULL, &spawner);
    if (err == NULL)
        err = measure(b, spawner);

    kb_sim_destroy(spawner);
    for (crowd *c = crowds; c < crowds + crowd_count; c++)
        kb_sim_destroy(c->sim);
    hold_state_fini(&delays);
    return err;
}

static kb_error *count_resumes(uint32_t pending, uint64_t events, uint64_t *done)
{
    crowd c = {.name = "coroutine.resume", .size = pending, .elision = true};

    kb_error *err = crowd_init(&c);
    if (err == NULL)
        err = crowd_run(&c, events);
    if (err == NULL)
        *done = kb_sim_get_stats(c.sim).resumes;
    kb_sim_destroy(c.sim);
    return err;
}

static const bench_work works[] = {
    {"coroutine.resume", count_resumes, 100, 100000, 200000},
    {NULL, NULL, 0, 0, 0},
};

const bench_suite bench_coroutine = {
    .title = "Coroutines: resume is a sleep through the event set; the first row is that of n100",
    .run = run,
    .works = works,
};
