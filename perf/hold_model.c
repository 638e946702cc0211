/*
 * hold_model.c: the delays of the hold model. They are figures of the default machine; the parts
 * say how often each occurs in a model of its network.
 */
#include "hold_model.h"

#include <stdlib.h>

#include "base/base.h"

enum { seed = 1, spread_fs = 1024 };

/* Link serialisation at 256 GB/s: bytes / 256 ns, rounded up. */
static kb_time on_link(uint64_t bytes)
{
    return (kb_time)((bytes * 1000000 + 255) / 256);
}

/* HBM transfer at 204.8 GB/s: bytes / 204.8 ns, rounded up. */
static kb_time from_hbm(uint64_t bytes)
{
    return (kb_time)((bytes * 10000000 + 2047) / 2048);
}

static kb_time hardware_delay(kb_rng *rng, unsigned percent)
{
    if (percent < 40)
        return 1025 * KB_PS; /* router 1 ns, 2.5 mm of wire at 10 ps/mm */
    if (percent < 65)
        return on_link(32 + 32 * kb_rng_below(rng, 128)); /* 32 to 4096 bytes */
    if (percent < 80)
        return 8100 * KB_PS; /* UCIe port 8 ns, 10 mm of wire */
    if (percent < 90)
        return 2020 * KB_PS;                                       /* crossbar 2 ns, 2 mm of wire */
    return 76 * KB_NS + from_hbm(64 + 64 * kb_rng_below(rng, 64)); /* 64 to 4096 bytes */
}

static kb_time cycle_delay(unsigned i)
{
    static const kb_time cycles[] = {1, 1, 1, 2, 4, 8, 16, 77};
    return cycles[i % 8] * KB_NS;
}

static void fill_delays(hold_state *state, bool lockstep)
{
    kb_rng rng;
    kb_time sum = 0;

    kb_rng_init(&rng, seed);
    for (unsigned i = 0; i < hold_delays; i++) {
        state->delays[i] = lockstep ? cycle_delay(i) : hardware_delay(&rng, i * 100 / hold_delays);
        sum += state->delays[i];
    }
    for (unsigned i = 0; i < hold_kinds; i++)
        state->delays[hold_delays + i] = state->delays[i];
    /* Sums of such figures differ in their last digits: each draw adds up to a picosecond. */
    state->spread_mask = lockstep ? 0 : spread_fs - 1;
    state->mean_delay = sum / hold_delays + (kb_time)state->spread_mask / 2;
}

kb_error *hold_state_init(hold_state *state, const hold_shape *shape)
{
    *state = (hold_state){.lcg = seed, .shape = *shape};
    fill_delays(state, shape->lockstep);
    state->sources = kb_alloc_array(shape->pending, sizeof *state->sources);
    if (state->sources == NULL)
        return kb_error_nomem();
    for (uint32_t i = 0; i < shape->pending; i++)
        state->sources[i] = kb_source_make(i);
    return NULL;
}

void hold_state_fini(hold_state *state)
{
    free(state->sources);
    state->sources = NULL;
}

void hold_set_handlers(hold_state *state, const uint32_t handlers[static hold_kinds])
{
    for (unsigned kind = 0; kind < hold_kinds; kind++) {
        for (unsigned i = 0; i < hold_kinds; i++) {
            unsigned next = state->shape.own_kinds ? kind : i;
            state->handlers[kind][i] = handlers[next % state->shape.kinds];
        }
    }
}

kb_time hold_time_of(const hold_state *state, uint64_t events)
{
    /* In steady state `pending` events happen in the mean delay. */
    return (kb_time)((double)events / state->shape.pending * (double)state->mean_delay);
}
