/*
 * trace.h: writes the operations of a run as a trace for Perfetto (https://ui.perfetto.dev): in its
 * own format if the name of the file ends with .pftrace, else in Chrome's "Trace Event Format",
 * which chrome://tracing reads too. Both show the same.
 *
 *     obs_trace *trace;
 *     KB_TRY(obs_trace_create(file, "run.json", &machine, &trace));
 *     KB_TRY(obs_trace_count(trace, &counters));
 *     ... kb_context_options.on_op calls obs_trace_op(trace, op) for every operation ...
 *     ... kb_context_options.on_tcm calls obs_trace_tcm(trace, pe, now, bytes) ...
 *     KB_TRY(obs_trace_close(trace));
 *
 * A process is the host, the fabric or a cube of a SIP; a thread is a unit of a PE. Simultaneous
 * operations of a unit (a DMA has several channels) are on separate lanes, so that slices of a
 * thread do not overlap. Titles of slices have the operation and its tensors; arguments have what
 * determined its times if operations have reasons. The thread "state" has the cause of a PE's time.
 * Arrows go from the start of a launch on the host to the start of its kernels on the PEs, and from
 * the start of a send to the arrival of the message, where the receive ends.
 *
 * Counter tracks show bandwidths, which add up to the counted bytes over the trace, their shares of
 * a peak, the TCM in use and the messages of a PE that were sent but not received, with their peaks
 * in each bin.
 *
 * Slices and arrows are written at once, counters at the end in a bounded number of bins (bins.h).
 * Memory depends on the machine and on the number of simultaneous operations, not on the length of
 * the run.
 */
#ifndef KB_OBS_TRACE_H
#define KB_OBS_TRACE_H

#include <stdio.h>

#include <kernbench/kernbench.h>

typedef struct obs_trace obs_trace;

/* Writes to the file, which stays the caller's. Its name is for messages. */
KB_MUST_USE kb_error *obs_trace_create(FILE *file, const char *name, const kb_machine *machine,
                                       obs_trace **trace);

/* Adds an operation, in order of ends. Errors are returned by obs_trace_close(). */
void obs_trace_op(obs_trace *trace, const kb_op *op);

/* A count of bytes, shown as a bandwidth in GB/s. */
typedef struct obs_counter {
    const char *name; /* copied; unique in its process */
    bool of_cube;     /* shown with this cube, else with the fabric */
    kb_pe cube;       /* its sip and cube */
} obs_counter;

/* Reads the current counts, which start at 0 and only grow; returns the current time. */
typedef kb_time obs_sample_fn(void *self, uint64_t *counts);

typedef struct obs_counters {
    const obs_counter *items;
    size_t count;
    obs_sample_fn *sample; /* called from time to time by obs_trace_op(), and at the end */
    void *self;
} obs_counters;

/* Sets the counters: once, before the first operation. */
KB_MUST_USE kb_error *obs_trace_count(obs_trace *trace, const obs_counters *counters);

/* Also shows the counter as a share of this peak, with this name. At most once each, before
 * obs_trace_close(). */
KB_MUST_USE kb_error *obs_trace_set_peak(obs_trace *trace, size_t counter, const char *name,
                                         uint64_t bytes_per_s);

/* Sets the bytes of the PE's TCM that are in use from now on. */
void obs_trace_tcm(obs_trace *trace, kb_pe pe, kb_time now, uint64_t bytes);

/* Adds the main cause of the PE's time in an interval, in order of ends of each PE. */
void obs_trace_state(obs_trace *trace, uint64_t pe, kb_cause cause, kb_time start, kb_time end);

/* A time that a step of the critical path has, by what it was spent at. */
typedef struct obs_note {
    const char *key;
    uint64_t number;
} obs_note;

typedef struct obs_step {
    kb_time start, end;
    const char *title;
    const obs_note *notes;
    size_t note_count;
} obs_step;

/* Adds a step of the critical path, which is a track beside the host's requests: in order of time,
 * and without overlaps. They may come after operations that end later. */
void obs_trace_step(obs_trace *trace, const obs_step *step);

/* Completes the file, which stays open, and frees the trace; NULL does nothing. Returns the first
 * error of any call. */
KB_MUST_USE kb_error *obs_trace_close(obs_trace *trace);

#endif
