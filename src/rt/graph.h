/*
 * graph.h: what a graph consists of. Private to rt.
 *
 *     graph.c       recording, changing, freeing
 *     graph_run.c   launching
 */
#ifndef KB_RT_GRAPH_H
#define KB_RT_GRAPH_H

#include "launch.h"

typedef enum graph_kind {
    GRAPH_LAUNCH,
    GRAPH_COPY,
    GRAPH_OTHER, /* of another layer: a collective */
    GRAPH_EVENT, /* an event is recorded */
    GRAPH_WAIT   /* and waited for */
} graph_kind;

/* A recorded call. */
typedef struct graph_op {
    graph_kind kind;
    uint32_t stream; /* its index among those of the graph */
    uint32_t event;
    char *name;    /* NULL for events */
    bool *devices; /* by SIP: that take part */
    rt_launch_call call;
    kb_kernel *kernel; /* of the call: a copy */
    kb_arg *args;      /* of the call */
    bool *changed;     /* by argument: since the last launch */
    rt_flat_copy copy;
    rt_recorded other;
    bool prepared; /* of another layer: is to be replayed or dropped */
} graph_op;

typedef KB_VEC(uint64_t) graph_handles;

typedef struct rt_graph {
    kb_context *ctx;
    uint64_t id;
    char *name;
    bool closed; /* it is recorded */
    KB_VEC(graph_op) ops;
    graph_handles streams, events; /* that were named while it was recorded */
    bool launching;                /* a caller is about to launch it */
    rt_run *run;                   /* NULL: it does not run */
} rt_graph;

/* Says which node it is about. */
KB_MUST_USE kb_error *graph_blame(const rt_graph *graph, size_t index, kb_error *err);

/* The graph, which can be launched. */
KB_MUST_USE kb_error *graph_find_ready(kb_context *ctx, const char *function, kb_graph handle,
                                       rt_graph **graph);

/* ---- graph_run.c ---- */

/* When the simulator has been abandoned. */
void graph_run_fini(rt_graph *graph);

#endif
