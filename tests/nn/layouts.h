/* layouts.h: the machines and layouts of the tests of layers. */
#ifndef TESTS_NN_LAYOUTS_H
#define TESTS_NN_LAYOUTS_H

#include "numbers.h"

static const machine_size machines[] = {
    {.sips = 1, .w = 1, .h = 1, .pes = 1},
    {.sips = 1, .w = 1, .h = 1, .pes = 3},
    {.sips = 1, .w = 3, .h = 2, .pes = 2},
    {.sips = 1,
     .w = 2,
     .h = 2,
     .pes = 4,
     .cube_extra = ", pe_tcm: { capacity_mib: 2, reserved_mib: 1 }"},
    {.sips = 1, .w = 11, .h = 6, .pes = 1}, /* too many cubes for an exchange */
};

enum { MACHINES = sizeof machines / sizeof machines[0] };

static const kb_policy layouts[] = {
    {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
    {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE},
    {.num_cubes = 1, .num_pes = 1},
    {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 5},
    {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE},
    {.cube = KB_COLUMN_WISE, .pe = KB_ROW_WISE},
    {.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 3, .tile_columns = 4},
    {.cube = KB_REPLICATE, .pe = KB_REPLICATE},
};

/* The last one has a copy at each PE. */
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], SINGLE_LAYOUTS = LAYOUTS - 1 };

static const kb_dtype floats[] = {KB_F16, KB_BF16, KB_F32};

/* A machine whose kernels fail if they have a data race. */
static inline kb_context *open_checked(machine_size size)
{
    return open_machine(size, (kb_context_options){.races = KB_RACES_FAIL});
}

/* A number below `count`, of a sequence. */
static inline uint64_t pick(uint64_t *sequence, uint64_t count)
{
    *sequence = *sequence * 6364136223846793005u + 1442695040888963407u;
    return (*sequence >> 33) % count;
}

static inline const kb_policy *pick_layout(uint64_t *sequence)
{
    return &layouts[pick(sequence, SINGLE_LAYOUTS)];
}

static inline kb_dtype pick_float(uint64_t *sequence)
{
    return floats[pick(sequence, 3)];
}

#endif
