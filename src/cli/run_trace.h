/* run_trace.h: the trace of a run, with its counters and its critical path. */
#ifndef KB_CLI_RUN_TRACE_H
#define KB_CLI_RUN_TRACE_H

#include "explain/explain.h"
#include "obs/obs.h"
#include "rt/rt.h"

typedef struct run_trace run_trace;

/* The trace of a context, whose callbacks must call the functions below. */
KB_MUST_USE kb_error *run_trace_open(const char *path, kb_context *ctx, run_trace **trace);

/* Nothing if `trace` is NULL. */
void run_trace_op(run_trace *trace, const kb_op *op);
void run_trace_state(run_trace *trace, uint64_t pe, kb_cause cause, kb_time start, kb_time end);
void run_trace_tcm(run_trace *trace, const kb_pe *pe, kb_time now, uint64_t bytes);

/* Shows the critical path, after the run. */
KB_MUST_USE kb_error *run_trace_path(run_trace *trace, const explain_path *path);

/* Completes the trace like obs_trace_close(); the context must still exist. */
KB_MUST_USE kb_error *run_trace_close(run_trace *trace);

/* Drops the trace: an existing file stays as it was. */
void run_trace_discard(run_trace *trace);

#endif
