/* sweep_show.h: what a sweep shows: the points of its plan, or their results (sweep_report.h). */
#ifndef KB_CLI_SWEEP_SHOW_H
#define KB_CLI_SWEEP_SHOW_H

#include "store/store.h"
#include "sweep/sweep.h"

#include "options.h"
#include "sweep_report.h"

typedef struct sweep_show_input {
    const sweep_plan *plan;
    const sweep_drive *drive;
    store *store; /* NULL: --dry-run, and there is none */
    const cli_common *common;
    const sweep_report_args *report;
    size_t workers;
} sweep_show_input;

/* Returns KB_ERR_CHECK if a point failed. */
KB_MUST_USE kb_code sweep_show_results(const sweep_show_input *input);

/* For --dry-run. */
KB_MUST_USE kb_code sweep_show_plan(const sweep_show_input *input);

#endif
