/*
 * results.h: the results of a sweep as a table: a row for each point, in the order of the plan.
 *
 * The columns are first the axes, then figures. Nothing here depends on the order in which points
 * ran. Texts belong to the arena of the results.
 */
#ifndef KB_SWEEP_RESULTS_H
#define KB_SWEEP_RESULTS_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "value.h"

typedef struct sweep_column {
    const char *name; /* "sip.ucie.bw_gbs", "sim_ns", "metrics.busbw_gbs" */
    bool is_axis;
    bool is_wall_time;  /* differs from run to run */
    sweep_value *cells; /* one a row */
} sweep_column;

typedef struct sweep_row {
    const char *status; /* "ok", "timeout", ...; NULL: not run yet */
    bool ok;
    const char *message;    /* of a failure; NULL if there is none */
    const char *bottleneck; /* a short name, "local_memory": the largest cause; NULL if not known */
} sweep_row;

typedef struct sweep_results {
    kb_arena *arena;
    sweep_column *columns;
    size_t column_count, axis_count;
    sweep_row *rows;
    size_t row_count;
} sweep_results;

/* The column of that name, or NULL. */
const sweep_column *sweep_find_column(const sweep_results *results, const char *name);

#endif
