/*
 * grid.h: finding the shards of a placement that have a part of the tensor.
 *
 * Whatever the policy, the different blocks of a tensor form a grid: they come from cutting its
 * rows and its columns. So those that overlap a box are found by two searches, and only they are
 * visited.
 */
#ifndef KB_MEM_GRID_H
#define KB_MEM_GRID_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "box.h"
#include "placement.h"

typedef struct mem_grid {
    uint64_t *rows, *columns; /* where each row and column of cells starts */
    size_t row_count, column_count;
    size_t copies;    /* of each cell */
    uint32_t *shards; /* of cell (r, c): from (r * column_count + c) * copies on, by (cube, pe) */
} mem_grid;

/* The placement is looked at now and not kept. */
KB_MUST_USE kb_error *mem_grid_init(mem_grid *grid, const mem_placement *placement);
void mem_grid_fini(mem_grid *grid);

/* The cells that meet a box: rows first_row .. end_row - 1 and so on. None if nothing does. */
typedef struct mem_cells {
    size_t first_row, end_row;
    size_t first_column, end_column;
} mem_cells;

mem_cells mem_grid_find(const mem_grid *grid, const mem_box *box);

/* The shards of a cell: `copies` of them, as indices into the placement's. */
static inline const uint32_t *mem_grid_cell(const mem_grid *grid, size_t row, size_t column)
{
    return grid->shards + (row * grid->column_count + column) * grid->copies;
}

#endif
