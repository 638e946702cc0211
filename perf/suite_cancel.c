/*
 * suite_cancel.c: the hold model with timeouts. Every eighth event also schedules a timeout of its
 * component a microsecond ahead, and cancels the one that the component had. So there are twice as
 * many events pending as components, and nearly no timeout ever comes.
 */
#include "hold_model.h"
#include "suite.h"

#include <stdlib.h>

static const uint32_t sizes[] = {1000, 10000, 100000};
enum { size_count = sizeof sizes / sizeof sizes[0] };

typedef struct watched {
    hold_state hold;
    kb_sim *sim;
    uint64_t count;
    kb_handler on_timeout;
    kb_event *timeouts; /* of each component */
    double best_ns;
} watched;

static void watch(kb_sim *sim, watched *w, uint64_t component)
{
    w->timeouts[component] =
        kb_sim_after(sim, &w->hold.sources[component], KB_US, w->on_timeout, component);
}

static inline void step(kb_sim *sim, watched *w, uint64_t component, unsigned kind)
{
    uint32_t handler;
    kb_time delay = hold_draw(&w->hold, kind, &handler);

    kb_sim_after(sim, &w->hold.sources[component], delay, handler, component);
    if (++w->count % 8 == 0) {
        kb_sim_cancel(sim, w->timeouts[component]);
        watch(sim, w, component);
    }
}

#define HANDLER(kind)                                                                              \
    static void on_event_##kind(kb_sim *sim, void *self, uint64_t component)                       \
    {                                                                                              \
        step(sim, self, component, kind);                                                          \
    }

HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)

static kb_handler_fn *const handlers[hold_kinds] = {on_event_0, on_event_1, on_event_2, on_event_3};

static void on_timeout(kb_sim *sim, void *self, uint64_t component)
{
    watch(sim, self, component);
}

static kb_error *watched_init(watched *w, uint32_t pending)
{
    kb_handler added[hold_kinds];

    *w = (watched){0};
    KB_TRY(hold_state_init(&w->hold, &(hold_shape){.pending = pending, .kinds = hold_kinds}));
    w->timeouts = kb_alloc_array(pending, sizeof *w->timeouts);
    if (w->timeouts == NULL)
        return kb_error_nomem();
    KB_TRY(kb_sim_create(NULL, &w->sim));
    for (unsigned i = 0; i < hold_kinds; i++)
        KB_TRY(kb_sim_add_handler(w->sim, handlers[i], w, &added[i]));
    hold_set_handlers(&w->hold, added);
    KB_TRY(kb_sim_add_handler(w->sim, on_timeout, w, &w->on_timeout));
    for (uint32_t i = 0; i < pending; i++) {
        watch(w->sim, w, i);
        step(w->sim, w, i, i % hold_kinds);
    }
    return NULL;
}

static void watched_fini(watched *w)
{
    kb_sim_destroy(w->sim);
    free(w->timeouts);
    hold_state_fini(&w->hold);
}

static kb_error *run_slice(watched *w, uint64_t events, bool timed)
{
    uint64_t before = kb_sim_get_stats(w->sim).events;
    kb_time until = kb_sim_now(w->sim) + hold_time_of(&w->hold, events);

    double start = bench_clock_ns();
    KB_TRY(kb_sim_run(w->sim, until));
    double took = bench_clock_ns() - start;
    if (timed)
        bench_keep_least(&w->best_ns, took / (double)(kb_sim_get_stats(w->sim).events - before));
    return NULL;
}

static kb_error *run_round(const bench *b, watched *w)
{
    bench_progress(b, "cancel.h4.n%u", w->hold.shape.pending);
    KB_TRY(run_slice(w, 20000 + w->hold.shape.pending / 2, false)); /* others used the caches */
    return run_slice(w, b->quick ? 200000 : 2050000, true);
}

static kb_error *check(const watched *w)
{
    kb_sim_stats stats = kb_sim_get_stats(w->sim);
    uint32_t expected = 2 * w->hold.shape.pending;

    if (stats.pending != expected || stats.cancelled == 0)
        return kb_error_new(KB_ERR_CHECK, "cancel.h4.n%u: %u events pending instead of %u",
                            w->hold.shape.pending, stats.pending, expected);
    return NULL;
}

static kb_error *measure(bench *b, watched *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        KB_TRY(run_slice(&all[i], 2 * (uint64_t)all[i].hold.shape.pending + 1000000, false));
    for (unsigned round = 0; round < b->rounds; round++) {
        for (size_t i = 0; i < count; i++)
            KB_TRY(run_round(b, &all[i]));
    }
    for (size_t i = 0; i < count; i++) {
        KB_TRY(check(&all[i]));
        bench_report(b, all[i].best_ns, "ns/event", "cancel.h4.n%u.ns", all[i].hold.shape.pending);
    }
    return NULL;
}

static kb_error *run(bench *b)
{
    static watched all[size_count];
    size_t count = 0;
    kb_error *err = NULL;

    for (size_t i = 0; i < size_count && err == NULL; i++) {
        if (bench_wants(b, "cancel.h4.n%u", sizes[i]))
            err = watched_init(&all[count++], sizes[i]);
    }
    if (err == NULL)
        err = measure(b, all, count);
    for (size_t i = 0; i < count; i++)
        watched_fini(&all[i]);
    return err;
}

const bench_suite bench_cancel = {
    .title = "Cancelling: the hold model, and every eighth event renews a timeout far ahead",
    .run = run,
};
