/*
 * trace.h: writes the operations of a run as a trace, which Perfetto (https://ui.perfetto.dev) and
 * chrome://tracing show: the JSON of Chrome's "Trace Event Format".
 *
 *     obs_trace *trace;
 *     KB_TRY(obs_trace_create(file, "run.json", &machine, &trace));
 *     KB_TRY(obs_trace_count(trace, &counters));
 *     ... kb_context_options.on_op calls obs_trace_op(trace, op) for every operation ...
 *     ... kb_context_options.on_tcm calls obs_trace_tcm(trace, pe, now, bytes) ...
 *     KB_TRY(obs_trace_close(trace));
 *
 * A process is the host, the fabric or a cube of a SIP, a thread is a unit of a PE. What a unit
 * does at the same time (a DMA has several channels) is on lanes of its own, so that on each thread
 * slices do not overlap. Slices are called by what was done to which tensors, and say what
 * determined their times if operations have reasons. The thread "state" has what the time of a PE
 * goes to. Arrows go from the start of a launch on the host to the start of its kernels on the PEs,
 * and from the start of a send to the arrival of the message, at which the receive ends. Times are
 * microseconds with all digits down to the femtosecond.
 *
 * Counter tracks show bandwidths: over the whole trace each adds up to the bytes that were counted.
 * Others show the TCM in use, a peak for each stretch of time.
 *
 * Slices and arrows are written when they are told, counters at the end, in a bounded number of
 * bins (bins.h); what is kept depends on the machine and on how much is under way at a time, not on
 * the length of the run.
 */
#ifndef KB_OBS_TRACE_H
#define KB_OBS_TRACE_H

#include <stdio.h>

#include <kernbench/kernbench.h>

typedef struct obs_trace obs_trace;

/* Writes to the file, which stays the caller's. Its name is for messages. */
KB_MUST_USE kb_error *obs_trace_create(FILE *file, const char *name, const kb_machine *machine,
                                       obs_trace **trace);

/* To be called in the order of ends. Failures are kept for closing. */
void obs_trace_op(obs_trace *trace, const kb_op *op);

/* A count of bytes that is shown as a bandwidth, in GB/s. */
typedef struct obs_counter {
    const char *name; /* copied; no other at its place has the same */
    bool of_cube;     /* shown with this cube; else with the fabric */
    kb_pe cube;       /* its sip and cube */
} obs_counter;

/* Reads all counts as of now, and returns what time it is. They only grow, from 0. */
typedef kb_time obs_sample_fn(void *self, uint64_t *counts);

typedef struct obs_counters {
    const obs_counter *items;
    size_t count;
    obs_sample_fn *sample; /* called now and then when something is told, and at the end */
    void *self;
} obs_counters;

/* What is to be counted. Before the first operation, and once. */
KB_MUST_USE kb_error *obs_trace_count(obs_trace *trace, const obs_counters *counters);

/* From now on this much of the PE's TCM is in use. Failures are kept for closing. */
void obs_trace_tcm(obs_trace *trace, kb_pe pe, kb_time now, uint64_t bytes);
/* What the PE's time mostly went to, for an interval: a track of its own. In the order of ends of
 * each PE. */
void obs_trace_state(obs_trace *trace, uint64_t pe, kb_cause cause, kb_time start, kb_time end);

/* Completes the file, which stays open, and frees the trace; NULL does nothing. An error if not
 * everything got out. */
KB_MUST_USE kb_error *obs_trace_close(obs_trace *trace);

#endif
