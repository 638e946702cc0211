/*
 * results.h: the results of a sweep as a table: a row for each point, in the order of the plan.
 *
 *     sweep_results *results;
 *     KB_TRY(sweep_results_create(axes, axis_count, points, &results));
 *     for each point
 *         sweep_results_set_axis(results, row, axis, "1MiB");   // each axis that the point has
 *         sweep_results_set_status(results, row, "ok", true, NULL);
 *         sweep_results_set_figure(results, row, "sim_ns", 66132.9); // each number of its record
 *     KB_TRY(sweep_results_finish(results));
 *
 * Rows are filled in the order of the plan, so columns and values are in that order too: nothing
 * depends on the order in which points ran. Texts are copied.
 *
 * The columns are first the axes, then figures, in the order in which they came. A row that is not
 * ok has figures only if the run left some; they are in no analysis.
 */
#ifndef KB_SWEEP_RESULTS_H
#define KB_SWEEP_RESULTS_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "expression.h"
#include "value.h"

enum { SWEEP_NO_VALUE = UINT32_MAX };

/* What a figure is, by its name. */
typedef enum sweep_figure_kind {
    SWEEP_RESULT,   /* the same whenever and wherever the point runs */
    SWEEP_WALL,     /* of the host: "wall_s", "hops_per_s" */
    SWEEP_PARAMETER /* "parameters.rows": repeats what the point was given */
} sweep_figure_kind;

typedef struct sweep_column {
    const char *name; /* "sip.ucie.bw_gbs", "sim_ns", "metrics.busbw_gbs" */
    bool is_axis;
    /* Of an axis: its values in the order of the plan, and for each row an index in them, or
     * SWEEP_NO_VALUE. */
    KB_VEC(sweep_value) values;
    uint32_t *index;
    uint32_t *slots; /* a hash table of the values: index + 1, or 0 */
    size_t slot_count;
    /* Of a figure: a number for each row; NaN if the row has none. */
    sweep_figure_kind kind;
    double *numbers;
} sweep_column;

typedef struct sweep_row {
    const char *status; /* "ok", "timeout", ...; NULL: not run yet */
    bool ok;
    const char *message;    /* of a failure; NULL if there is none */
    const char *bottleneck; /* the largest cause of its time, such as "local_memory"; NULL if it is
                               not known */
} sweep_row;

typedef struct sweep_results {
    kb_arena arena;
    KB_VEC(sweep_column) columns;
    size_t axis_count;
    sweep_row *rows;
    size_t row_count;
    size_t next_column; /* where the next figure is expected */
    const char **names; /* of the columns, after sweep_results_finish() */
    bool failed;        /* out of memory */
} sweep_results;

KB_MUST_USE kb_error *sweep_results_create(const char *const *axes, size_t axis_count,
                                           size_t row_count, sweep_results **out);
void sweep_results_destroy(sweep_results *results); /* NULL does nothing */

/* Out of memory is sticky: sweep_results_finish() reports it. */
void sweep_results_set_axis(sweep_results *results, size_t row, size_t axis, const char *text);
void sweep_results_set_status(sweep_results *results, size_t row, const char *status, bool ok,
                              const char *message);
void sweep_results_set_figure(sweep_results *results, size_t row, const char *name, double number);

/* To be called when all rows are filled, before the results are looked at. */
KB_MUST_USE kb_error *sweep_results_finish(sweep_results *results);

/* Adds a figure that is computed from others, of the rows that are ok; after finishing. */
KB_MUST_USE kb_error *sweep_results_derive(sweep_results *results, const char *name,
                                           sweep_expression *expression);

/* The column of that name, or whose last parts it is, as sweep_find_name() has it; `what` is what
 * the error calls it. */
KB_MUST_USE kb_error *sweep_find_column(const sweep_results *results, const char *what,
                                        const char *name, const sweep_column **out);
/* The same, of axes alone. */
KB_MUST_USE kb_error *sweep_find_axis(const sweep_results *results, const char *what,
                                      const char *name, const sweep_column **out);

sweep_value sweep_cell(const sweep_column *column, size_t row);

/* Whether the axis has at least two values. */
static inline bool sweep_varies(const sweep_column *axis)
{
    return axis->values.count > 1;
}

/* Whether all values of the axis are numbers. */
bool sweep_is_numeric(const sweep_column *axis);

/* Appends the value as a table or a plot has it: an axis as it was written. */
void sweep_append_value(kb_text *text, sweep_value value);

/* A sweep_get_value for expressions that are bound to `names` of the results. */
typedef struct sweep_row_view {
    const sweep_results *results;
    size_t row;
} sweep_row_view;
sweep_value sweep_row_value(const void *row_view, size_t column);

#endif
