/*
 * attention_rig.h: machines and random numbers for the tests of attention.
 */
#ifndef TESTS_NN_ATTENTION_H
#define TESTS_NN_ATTENTION_H

#include <kernbench/attention.h>

#include "base/rng.h"
#include "numbers.h"

/* 1 PE; 3 PEs; 12 PEs in 3 x 2 cubes; 8 PEs in 2 cubes; 16 in 4. */
static const machine_size attention_machines[] = {
    {1, 1, 1, 1, NULL, NULL}, {1, 1, 1, 3, NULL, NULL}, {1, 3, 2, 2, NULL, NULL},
    {1, 2, 1, 4, NULL, NULL}, {1, 2, 2, 4, NULL, NULL},
};

enum { ATTENTION_MACHINES = sizeof attention_machines / sizeof attention_machines[0] };

/* Data races are errors. */
static inline kb_context *open_checked(machine_size size, bool timing_only)
{
    return open_machine(size,
                        (kb_context_options){.timing_only = timing_only, .races = KB_RACES_FAIL});
}

static inline uint32_t draw(kb_rng *rng, uint32_t from, uint32_t to)
{
    return from + (uint32_t)kb_rng_below(rng, to - from + 1);
}

#endif
