/* grid.c: the index of a placement. Every cell has the same number of shards, all with its box. */
#include "grid.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    uint64_t row, column;
    uint32_t shard;
} entry;

/* By cell; copies stay in the order of the placement, (cube, pe). */
static int by_cell(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (x->column != y->column)
        return x->column < y->column ? -1 : 1;
    return (x->shard > y->shard) - (x->shard < y->shard);
}

static size_t last_axis(const mem_placement *placement)
{
    return placement->shape.rank - 1;
}

static kb_error *allocate(mem_grid *grid, const mem_placement *placement, entry *entries,
                          size_t count)
{
    uint64_t first_row = entries[0].row;
    size_t first_row_entries = 0;
    while (first_row_entries < count && entries[first_row_entries].row == first_row)
        first_row_entries++;
    grid->copies = (size_t)placement->copies;
    KB_ASSERT(grid->copies > 0 && first_row_entries > 0);
    grid->column_count = first_row_entries / grid->copies;
    grid->row_count = count / first_row_entries;
    KB_ASSERT(grid->row_count * grid->column_count * grid->copies == count); /* M5 */
    grid->rows = kb_alloc_array(grid->row_count, sizeof *grid->rows);
    grid->columns = kb_alloc_array(grid->column_count, sizeof *grid->columns);
    grid->shards = kb_alloc_array(count, sizeof *grid->shards);
    return grid->rows && grid->columns && grid->shards ? NULL : kb_error_nomem();
}

kb_error *mem_grid_init(mem_grid *grid, const mem_placement *placement)
{
    *grid = (mem_grid){0};
    entry *entries = kb_alloc_array(placement->shards.count, sizeof *entries);
    if (!entries)
        return kb_error_nomem();
    size_t count = 0;
    for (size_t i = 0; i < placement->shards.count; i++) {
        const mem_shard *shard = &placement->shards.items[i];
        if (shard->nbytes > 0)
            entries[count++] = (entry){
                .row = shard->box.start[0],
                .column = shard->box.start[last_axis(placement)],
                .shard = (uint32_t)i,
            };
    }
    kb_error *err = NULL;
    if (count > 0) {
        qsort(entries, count, sizeof *entries, by_cell);
        err = allocate(grid, placement, entries, count);
    }
    for (size_t i = 0; i < count && !err; i++) {
        size_t cell = i / grid->copies;
        grid->rows[cell / grid->column_count] = entries[i].row;
        grid->columns[cell % grid->column_count] = entries[i].column;
        grid->shards[i] = entries[i].shard;
    }
    free(entries);
    if (err)
        mem_grid_fini(grid);
    return err;
}

void mem_grid_fini(mem_grid *grid)
{
    free(grid->rows);
    free(grid->columns);
    free(grid->shards);
    *grid = (mem_grid){0};
}

/* The last cut that is not behind the position: cuts ascend, the first is 0. */
static size_t cut_at(const uint64_t *cuts, size_t count, uint64_t position)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (cuts[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

mem_cells mem_grid_find(const mem_grid *grid, const mem_box *box)
{
    if (grid->row_count == 0 || mem_box_elements(box) == 0)
        return (mem_cells){0};
    uint32_t last = box->rank - 1;
    return (mem_cells){
        .first_row = cut_at(grid->rows, grid->row_count, box->start[0]),
        .end_row = cut_at(grid->rows, grid->row_count, box->start[0] + box->size[0] - 1) + 1,
        .first_column = cut_at(grid->columns, grid->column_count, box->start[last]),
        .end_column =
            cut_at(grid->columns, grid->column_count, box->start[last] + box->size[last] - 1) + 1,
    };
}
