/* pivot.c: see pivot.h. Sums are taken in the order of the plan, so they are the same always. */
#include "pivot.h"

#include "groups.h"

#include <math.h>
#include <stdlib.h>

static void add_point(sweep_pivot_cell *cell, const sweep_row *row, sweep_value value)
{
    cell->points++;
    if (!row->ok) {
        cell->failed++;
        if (!cell->status)
            cell->status = row->status ? row->status : "not run";
    } else if (!value.none) {
        bool first = cell->numbers++ == 0;
        cell->min = first ? value.number : fmin(cell->min, value.number);
        cell->max = first ? value.number : fmax(cell->max, value.number);
        cell->mean = first ? value.number : cell->mean + value.number; /* the sum so far */
    }
}

static void finish_cell(sweep_pivot *p, sweep_pivot_cell *cell)
{
    if (cell->numbers == 0) {
        cell->mean = cell->min = cell->max = (double)NAN;
        return;
    }
    if (!(cell->min < cell->max)) {
        cell->mean = cell->min; /* exactly */
        return;
    }
    cell->mean /= (double)cell->numbers;
    p->combines = true;
    p->spread = fmax(p->spread, (cell->max - cell->min) / fabs(cell->mean));
}

static void fill(sweep_pivot *p, const sweep_results *results, const uint32_t *row_ranks,
                 const uint32_t *column_ranks)
{
    size_t width = p->columns->values.count, height = p->rows->values.count;
    for (uint32_t i = 0; i < height; i++)
        p->row_order[row_ranks[i]] = i;
    for (uint32_t i = 0; i < width; i++)
        p->column_order[column_ranks[i]] = i;
    for (size_t row = 0; row < results->row_count; row++) {
        uint32_t y = p->rows->index[row], x = p->columns->index[row];
        if (x != SWEEP_NO_VALUE && y != SWEEP_NO_VALUE)
            add_point(&p->cells[row_ranks[y] * width + column_ranks[x]], &results->rows[row],
                      sweep_cell(p->value, row));
    }
    for (size_t i = 0; i < width * height; i++)
        finish_cell(p, &p->cells[i]);
}

kb_error *sweep_pivot_make(const sweep_results *results, const sweep_column *rows,
                           const sweep_column *columns, const sweep_column *value, sweep_pivot *out)
{
    size_t cells = 0;
    bool fits = kb_size_mul(rows->values.count, columns->values.count, &cells);
    *out = (sweep_pivot){
        .rows = rows,
        .columns = columns,
        .value = value,
        .row_order = kb_alloc_array(rows->values.count, sizeof(uint32_t)),
        .column_order = kb_alloc_array(columns->values.count, sizeof(uint32_t)),
        .cells = fits ? kb_alloc_zeroed(cells, sizeof(sweep_pivot_cell)) : NULL,
    };
    uint32_t *row_ranks = sweep_rank_values(rows), *column_ranks = sweep_rank_values(columns);
    bool good = out->row_order && out->column_order && out->cells && row_ranks && column_ranks;
    if (good)
        fill(out, results, row_ranks, column_ranks);
    else
        sweep_pivot_fini(out);
    free(row_ranks);
    free(column_ranks);
    return good ? NULL : kb_error_nomem();
}

void sweep_pivot_fini(sweep_pivot *pivot)
{
    free(pivot->row_order);
    free(pivot->column_order);
    free(pivot->cells);
    *pivot = (sweep_pivot){0};
}

void sweep_pivot_append_combined(const sweep_pivot *pivot, const sweep_results *results,
                                 kb_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < results->axis_count; i++) {
        const sweep_column *axis = &results->columns.items[i];
        if (axis != pivot->rows && axis != pivot->columns && sweep_varies(axis))
            kb_text_printf(text, "%s%s", count++ > 0 ? ", " : "", axis->name);
    }
}
