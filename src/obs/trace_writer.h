/*
 * trace_writer.h: what a trace consists of, and the two formats that it is written in. trace.c
 * decides what is shown where; a writer encodes it. Private to obs.
 *
 *     process   the host, the fabric or a cube; has a name before anything else is shown in it
 *     group     a PE of a cube; formats without groups ignore it
 *     thread    a lane of a unit; its slices come in order and do not overlap
 *     flow      an arrow from the start of a slice to the start or the end of later ones
 *
 * A writer keeps no events: each is written at once. Errors of the file are left in its state, and
 * those of memory in `failed`.
 */
#ifndef KB_OBS_TRACE_WRITER_H
#define KB_OBS_TRACE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <kernbench/kernbench.h>

#include "trace.h"

enum { TRACE_HOST = 1 }; /* the process of the host */

#define TRACE_NO_GROUP UINT64_MAX

typedef struct trace_thread {
    uint64_t process, group, thread;
} trace_thread;

typedef struct trace_slice {
    trace_thread at;
    kb_time start, end;
    const char *category, *title;
    const kb_op *op;       /* for the arguments; NULL: there are none */
    const obs_note *notes; /* more arguments */
    size_t note_count;
    uint64_t flow_from_start, flow_to_start, flow_to_end; /* numbers of flows; 0: none */
} trace_slice;

/* A flow whose both ends are known: from one time to another one. */
typedef struct trace_arrow {
    const char *name;
    uint64_t number;
    trace_thread from, to;
    kb_time from_time, to_time;
} trace_arrow;

typedef struct trace_counter {
    uint64_t process, group;
    uint64_t number; /* different for each */
    const char *name, *unit;
} trace_counter;

typedef struct trace_writer trace_writer;

typedef struct trace_writer_ops {
    void (*name_process)(trace_writer *w, uint64_t process, const char *name);
    void (*name_group)(trace_writer *w, uint64_t process, uint64_t group); /* may be NULL */
    void (*name_thread)(trace_writer *w, const trace_thread *at, const char *name);
    void (*put_slice)(trace_writer *w, const trace_slice *slice);
    void (*put_arrow)(trace_writer *w, const trace_arrow *arrow); /* NULL: slices have the flows */
    void (*name_counter)(trace_writer *w, const trace_counter *counter); /* may be NULL */
    void (*put_counter)(trace_writer *w, const trace_counter *counter, kb_time time, double value);
    void (*close)(trace_writer *w); /* completes the file, and frees the writer */
} trace_writer_ops;

struct trace_writer {
    const trace_writer_ops *ops;
    FILE *file;
    bool failed; /* out of memory: an event is missing */
};

/* Both return NULL if out of memory. */
trace_writer *trace_json_create(FILE *file, const kb_machine *machine);
trace_writer *trace_perfetto_create(FILE *file, const kb_machine *machine);

#endif
