/*
 * hold_model.h: the hold model: a number of pending events, each of which schedules one more.
 *
 * Every pending event belongs to a component with a source of its own. The delays are those of
 * hardware (hold_model.c), and the kind of the next event, which selects its handler, is random,
 * so that no branch predictor can learn it. All random draws come from one generator, in the order
 * of events: two event sets that disagree on one pair of events soon disagree on everything.
 */
#ifndef KB_BENCH_HOLD_MODEL_H
#define KB_BENCH_HOLD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "ref_heap.h"

enum { hold_kinds = 4, hold_delays = 1024 };

typedef struct hold_shape {
    uint32_t pending;
    uint32_t kinds; /* 1 or hold_kinds */
    bool lockstep;  /* delays of whole cycles, so that many events come at the same time */
    bool own_kinds; /* a component always has events of one kind, instead of random ones */
} hold_shape;

/* The state of the model on one event set: everything its handlers touch. */
typedef struct hold_state {
    uint64_t lcg;
    kb_source *sources;
    uint64_t spread_mask;
    uint32_t handlers[hold_kinds][hold_kinds]; /* one of a row follows on an event of that kind */
    uint64_t hash; /* of all times and components in order, kept by the checking handlers alone */
    kb_time delays[hold_delays + hold_kinds]; /* the end repeats the beginning */

    hold_shape shape;
    kb_time mean_delay;
} hold_state;

KB_MUST_USE kb_error *hold_state_init(hold_state *state, const hold_shape *shape);
void hold_state_fini(hold_state *state);

/* Tells which handlers there are, one for each kind. */
void hold_set_handlers(hold_state *state, const uint32_t handlers[static hold_kinds]);

/* The time in which about this many events happen. */
kb_time hold_time_of(const hold_state *state, uint64_t events);

/*
 * The delay to the event that follows on one of this kind, and its handler. Each kind reads the
 * table of delays at an offset of its own: that costs nothing, and keeps compilers from making one
 * handler of all four.
 */
static inline kb_time hold_draw(hold_state *state, unsigned kind, uint32_t *handler)
{
    uint64_t word = state->lcg = state->lcg * 6364136223846793005u + 1442695040888963407u;

    *handler = state->handlers[kind][word >> 42 & (hold_kinds - 1)];
    return state->delays[(word >> 54) + kind] + (kb_time)(word >> 44 & state->spread_mask);
}

static inline void hold_hash(hold_state *state, kb_time now, uint64_t component)
{
    state->hash = (state->hash ^ (uint64_t)now) * 1099511628211u + component;
}

/* ---- The model on the engine and on the heap --------------------------------------------- */

/* Fills a new event set with events. `check` has the handlers keep the hash. */
KB_MUST_USE kb_error *hold_engine_create(hold_state *state, bool check, kb_sim **sim);
KB_MUST_USE kb_error *hold_heap_create(hold_state *state, bool check, ref_heap **heap);

/* Continue for about this many events; for counting instructions, so with no warm-up but the fill.
 */
KB_MUST_USE kb_error *hold_engine_count(uint32_t pending, uint64_t events, uint64_t *done);
KB_MUST_USE kb_error *hold_heap_count(uint32_t pending, uint64_t events, uint64_t *done);

#endif
