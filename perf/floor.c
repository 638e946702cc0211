/*
 * floor.c: what the hold model costs when nothing is ordered: the same draws and the same calls of
 * handlers through a table, with the events in a plain ring, first in, first out. No event set can
 * be faster than this; with four handlers most of it is that the processor cannot know which one is
 * called next.
 */
#include "hold_model.h"
#include "suite.h"

#include "base/base.h"

enum { ring_size = 1024, ring_pending = 1000 };

typedef struct ring ring;
typedef void ring_fn(ring *r, hold_state *state, uint64_t component);

typedef struct ring_event {
    kb_time time;
    uint64_t key;
    uint64_t component;
    uint32_t handler;
} ring_event;

struct ring {
    kb_time now;
    uint32_t first, end;
    ring_event events[ring_size];
    ring_fn *handlers[hold_kinds];
};

/* Not inlined: scheduling is a call in the engine too. */
static __attribute__((noinline)) void ring_add(ring *r, kb_source *source, kb_time delay,
                                               uint32_t handler, uint64_t component)
{
    r->events[r->end++ % ring_size] = (ring_event){
        .time = r->now + delay,
        .key = source->next_key++,
        .component = component,
        .handler = handler,
    };
}

static inline void step(ring *r, hold_state *state, uint64_t component, unsigned kind)
{
    uint32_t handler;
    kb_time delay = hold_draw(state, kind, &handler);

    ring_add(r, &state->sources[component], delay, handler, component);
}

#define HANDLER(kind)                                                                              \
    static void on_event_##kind(ring *r, hold_state *state, uint64_t component)                    \
    {                                                                                              \
        step(r, state, component, kind);                                                           \
    }

HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)

static void ring_run(ring *r, hold_state *state, uint64_t events)
{
    for (uint64_t i = 0; i < events; i++) {
        const ring_event *event = &r->events[r->first++ % ring_size];
        r->now = event->time;
        r->handlers[event->handler](r, state, event->component);
    }
}

static hold_state state;
static ring the_ring;

kb_error *floor_start(uint32_t kinds)
{
    static const uint32_t numbers[hold_kinds] = {0, 1, 2, 3};

    KB_TRY(hold_state_init(&state, &(hold_shape){.pending = ring_pending, .kinds = kinds}));
    hold_set_handlers(&state, numbers);
    the_ring = (ring){.handlers = {on_event_0, on_event_1, on_event_2, on_event_3}};
    for (uint32_t i = 0; i < ring_pending; i++)
        step(&the_ring, &state, i, i % hold_kinds);
    return NULL;
}

double floor_round(uint64_t events)
{
    double start = bench_clock_ns();

    ring_run(&the_ring, &state, events);
    return (bench_clock_ns() - start) / (double)events;
}

void floor_end(void)
{
    hold_state_fini(&state);
}

static kb_error *run_kinds(bench *b, uint32_t kinds)
{
    double best = 0;

    KB_TRY(floor_start(kinds));
    for (unsigned round = 0; round < 2 * b->rounds; round++)
        bench_keep_least(&best, floor_round(b->quick ? 200000 : 2000000));
    floor_end();
    bench_report(b, best, "ns/event", "floor.h%u.ns", kinds);
    return NULL;
}

static kb_error *run_floor(bench *b)
{
    if (!bench_wants(b, "floor"))
        return NULL;
    bench_progress(b, "floor");
    KB_TRY(run_kinds(b, 1));
    return run_kinds(b, hold_kinds);
}

const bench_suite bench_floor = {
    .title = "Floor: the handlers of the hold model on a ring, with no order to keep",
    .run = run_floor,
};
