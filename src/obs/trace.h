/*
 * trace.h: writes the operations of a run as a trace, which Perfetto (https://ui.perfetto.dev) and
 * chrome://tracing show: the JSON of Chrome's "Trace Event Format".
 *
 *     obs_trace *trace;
 *     KB_TRY(obs_trace_create("run.json", &machine, &trace));
 *     ... kb_context_options.on_op calls obs_trace_op(trace, op) for every operation ...
 *     KB_TRY(obs_trace_close(trace));
 *
 * A process is the host or a cube of a SIP, a thread is a unit of a PE. What a unit does at the
 * same time (a DMA has several channels) is on lanes of its own, so that on each thread slices do
 * not overlap. Arrows go from a launch on the host to its kernels on the PEs, and from the sending
 * of a message to who waits for it. Times are microseconds with all digits down to the femtosecond.
 *
 * Everything is written when it is told; what is kept depends on the machine and on how much is
 * under way at a time, not on the length of the run.
 */
#ifndef KB_OBS_TRACE_H
#define KB_OBS_TRACE_H

#include <kernbench/kernbench.h>

typedef struct obs_trace obs_trace;

/* Creates the file, or empties it. */
KB_MUST_USE kb_error *obs_trace_create(const char *path, const kb_machine *machine,
                                       obs_trace **trace);

/* To be called in the order of ends. Failures are kept for closing. */
void obs_trace_op(obs_trace *trace, const kb_op *op);

/*
 * Completes the file and frees the trace; NULL does nothing. An error if not everything got out:
 * then a regular file is removed.
 */
KB_MUST_USE kb_error *obs_trace_close(obs_trace *trace);

#endif
