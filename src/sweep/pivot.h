/*
 * pivot.h: a figure over two axes: a line for each value of one, a column for each of the other.
 *
 * A cell has the mean of the figure over its points that are ok. Numeric axes are sorted.
 */
#ifndef KB_SWEEP_PIVOT_H
#define KB_SWEEP_PIVOT_H

#include "results.h"

typedef struct sweep_pivot_cell {
    size_t points, failed, numbers; /* failed: not ok, or not run */
    double mean;                    /* NaN if no point has a value */
    double min, max;
    const char *status; /* of the first point that is not ok; NULL if there is none */
} sweep_pivot_cell;

typedef struct sweep_pivot {
    const sweep_column *rows, *columns, *value;
    uint32_t *row_order, *column_order; /* indices of the values of the axes, as shown */
    sweep_pivot_cell *cells;            /* by place, row after row */
    bool combines;                      /* a cell has several points with different values */
    double spread;                      /* the largest (max - min) / |mean| of a cell */
} sweep_pivot;

KB_MUST_USE kb_error *sweep_pivot_make(const sweep_results *results, const sweep_column *rows,
                                       const sweep_column *columns, const sweep_column *value,
                                       sweep_pivot *out);
void sweep_pivot_fini(sweep_pivot *pivot);

static inline const sweep_pivot_cell *sweep_pivot_at(const sweep_pivot *pivot, size_t row,
                                                     size_t column)
{
    return &pivot->cells[row * pivot->columns->values.count + column];
}

/* Appends the names of the axes in which points of one cell differ: "a, b". */
void sweep_pivot_append_combined(const sweep_pivot *pivot, const sweep_results *results,
                                 kb_text *text);

#endif
