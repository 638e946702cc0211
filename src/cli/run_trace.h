/* run_trace.h: the trace of a run, and what is counted for it. */
#ifndef KB_CLI_RUN_TRACE_H
#define KB_CLI_RUN_TRACE_H

#include "obs/obs.h"
#include "rt/rt.h"

typedef struct run_trace run_trace;

/* A trace of what happens in the context: run_trace_op() and run_trace_tcm() are to be called. */
KB_MUST_USE kb_error *run_trace_open(const char *path, kb_context *ctx, run_trace **trace);

/* Nothing if `trace` is NULL. */
void run_trace_op(run_trace *trace, const kb_op *op);
void run_trace_tcm(run_trace *trace, const kb_pe *pe, kb_time now, uint64_t bytes);

/* As obs_trace_close(), while there is the context. */
KB_MUST_USE kb_error *run_trace_close(run_trace *trace);

/* There is to be no trace: a file of that name stays as it was. */
void run_trace_discard(run_trace *trace);

#endif
