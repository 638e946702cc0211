/* run_report.h: the report of a run: what it collects while the run goes, and its page. */
#ifndef KB_CLI_RUN_REPORT_H
#define KB_CLI_RUN_REPORT_H

#include <jansson.h>

#include "obs/obs.h"
#include "rt/rt.h"
#include "run_once.h"

typedef struct run_report run_report;

/* Collects from a context, whose callbacks must call the two functions below. */
KB_MUST_USE kb_error *run_report_open(kb_context *ctx, run_report **report);

/* Nothing if `report` is NULL. */
void run_report_op(run_report *report, const kb_op *op);
void run_report_state(run_report *report, uint64_t pe, kb_cause cause, kb_time start, kb_time end);

/* Writes the page and frees the report. `command`: makes the run again. */
KB_MUST_USE kb_error *run_report_close(run_report *report, const char *path,
                                       const run_outcome *outcome, const char *command);

void run_report_discard(run_report *report);

/* The data of a page about a run without what only an observer knows; NULL if out of memory. */
json_t *run_report_begin(const json_t *document, const char *command);

#endif
