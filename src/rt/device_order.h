/*
 * device_order.h: the order of work on devices. Private to rt.
 *
 * A node is a piece of work on one device, a launch or a copy, that begins when other nodes have
 * ended there. A stream is a sequence of nodes: on each device they run in order. The control
 * processors keep the order, without the host: a node's command travels to the io_cpu at once and
 * is held there.
 *
 *     rt_node_spec spec = {.actions = &launch_actions, .self = launch, .request = request,
 *                          .sip = sip, .other_sip = TOPO_NONE};
 *     KB_TRY(rt_node_open(stream, &spec, &launch->node));
 *     ...                               // its command is at the io_cpu:
 *     rt_node_arrived(launch->node);    // calls begin() or cancel(), now or later
 *     ...                               // all its completions are joined at the io_cpu:
 *     rt_node_end(launch->node, err);
 *
 * docs/decisions/0021-streams-and-graphs.md has the reasons.
 */
#ifndef KB_RT_DEVICE_ORDER_H
#define KB_RT_DEVICE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "tl/tl.h"

typedef struct rt_node rt_node;
typedef struct rt_stream rt_stream;
typedef struct rt_run rt_run; /* of a graph */
struct rt_request;
struct rt_launch;

typedef struct rt_node_actions {
    void (*begin)(void *self);                       /* what it waits for has ended */
    void (*cancel)(void *self, const kb_error *why); /* instead: it is not to begin; ends it */
} rt_node_actions;

typedef struct rt_edge {
    rt_node *to;
    bool at_begin; /* the other one waits for the beginning, not for the end */
} rt_edge;

typedef KB_VEC(rt_node *) rt_nodes;

struct rt_node {
    kb_context *ctx;
    const rt_node_actions *actions;
    void *self;
    rt_run *run;                   /* NULL: it is not of a graph */
    rt_node *next;                 /* of the same request */
    rt_node *before_it, *after_it; /* among all */
    uint32_t sip;
    uint32_t users; /* lists and edges that have it, and its owner */
    uint32_t missing;
    uint64_t stamp; /* of the last search that met it */
    bool is_launch, is_collective;
    bool arrived, begun, ended;
    bool cancelled;    /* it is not to begin, whatever it waits for */
    bool over_early;   /* it was cancelled, and what it waits for has not ended */
    kb_error *failure; /* of something it waits for, or why it was cancelled */
    bool inherits;     /* it is of something that it waits for */
    KB_VEC(rt_edge) edges;
    tl_mark after, over; /* in the order that races are found by */
};

typedef struct rt_node_spec {
    const rt_node_actions *actions;
    void *self;
    struct rt_request *request;
    uint32_t sip;       /* whose control processor starts it */
    uint32_t other_sip; /* of a copy between devices; or TOPO_NONE */
    kb_scope scope;     /* of a launch */
    bool is_launch;
    bool is_collective;
} rt_node_spec;

/* A moment in the order of work: it has come when all of its nodes have ended. */
typedef struct rt_moment {
    rt_nodes nodes;
    tl_mark over; /* of nodes that have ended and are not in the list any more */
} rt_moment;

/* A stream on a device. */
typedef struct rt_lane {
    rt_moment last;                    /* what the next node waits for */
    rt_moment waits;                   /* for events: the next node waits for these too */
    KB_VEC(struct rt_launch *) flying; /* begun and not over, in the order in which they began */
    tl_mark *marks;                    /* by PE: where its last kernel was over; NULL: none yet */
} rt_lane;

struct rt_stream {
    kb_context *ctx;
    uint64_t id;        /* 0: the default stream */
    const char *name;   /* stays as long as the context */
    rt_lane *lanes;     /* by SIP */
    rt_moment waits;    /* for events that no node of it waits for yet, on any device */
    rt_run *run;        /* NULL: a stream of the program; else one within a graph under way */
    uint32_t under_way; /* requests */
    kb_waitlist idle;
};

/* ---- node.c ---- */

/* The owner's use of it ends with rt_node_release(). */
KB_MUST_USE kb_error *rt_node_open(rt_stream *stream, const rt_node_spec *spec, rt_node **node);
void rt_node_release(rt_node *node);

/* Its command is at the io_cpu. */
void rt_node_arrived(rt_node *node);

/* All of it is over, as the io_cpu sees it. */
void rt_node_end(rt_node *node, const kb_error *err);

/* If it has not begun it will not: it ends with the error as soon as its command is there. */
void rt_node_cancel(rt_node *node, const kb_error *why);

/* Lists that keep what is in them. */
KB_MUST_USE bool rt_nodes_add(rt_nodes *list, rt_node *node);
void rt_nodes_clear(rt_nodes *list);

/* Adds what the other moment waits for, once each. Those that have ended need not be kept. */
KB_MUST_USE kb_error *rt_moment_add(kb_context *ctx, rt_moment *moment, const rt_moment *more);
void rt_moment_prune(kb_context *ctx, rt_moment *moment);
void rt_moment_clear(rt_moment *moment);

KB_MUST_USE kb_error *rt_nodes_init(kb_context *ctx);

/* Also those that are in lists, when the simulator has been abandoned. */
void rt_nodes_fini_all(kb_context *ctx);

/* ---- stream.c ---- */

KB_MUST_USE kb_error *rt_streams_init(kb_context *ctx);
void rt_streams_fini(kb_context *ctx);

/* For reports: NULL for the default stream. */
const char *rt_stream_label(const rt_stream *stream);

KB_MUST_USE kb_error *rt_stream_init(rt_stream *stream, kb_context *ctx);
void rt_stream_fini(rt_stream *stream);

/* While the context is in use: what is in its lanes goes on without it. */
void rt_stream_drop(rt_stream *stream);

typedef struct rt_stream_event {
    bool recorded, in_graph;
    rt_moment moment;
} rt_stream_event;

/* What the stream's next nodes would wait for; and has its next ones wait for something. */
KB_MUST_USE kb_error *rt_event_record(kb_context *ctx, rt_moment *moment, const rt_stream *stream);
KB_MUST_USE kb_error *rt_event_wait(rt_stream *stream, const rt_moment *moment);

/* ---- race_check.c ---- */

/* Which launches and copies of streams are checked together for data races. */
typedef struct rt_check {
    tl_races *races;  /* NULL: none at the moment */
    uint32_t open;    /* nodes that the host has not seen end */
    uint32_t running; /* nodes that have begun and are not over */
    bool failed;      /* some of them have */
    kb_error *found;  /* what is still to be told */
} rt_check;

/* A node was made; it begins; it is over on its device; the host knows, with this error, which is
 * taken: what is wrong now. */
void rt_check_open(kb_context *ctx);
KB_MUST_USE kb_error *rt_check_begin(kb_context *ctx, tl_races **races);
void rt_check_over(kb_context *ctx, tl_races *races);
KB_MUST_USE kb_error *rt_check_close(kb_context *ctx, kb_error *err);
void rt_check_fini(kb_context *ctx);

/* The same for launches of one request that are in no stream. */
KB_MUST_USE kb_error *rt_check_request(struct rt_request *request, tl_races **races);
KB_MUST_USE kb_error *rt_check_end_request(struct rt_request *request, tl_races *races,
                                           const char *name, kb_error *err);

/* The program has waited for what was over there: what it starts from now on comes after. */
void rt_observe(kb_context *ctx, tl_mark over);

/* ---- graph.c ---- */

/* The error of a call that cannot be recorded, if the caller records a graph. */
KB_MUST_USE kb_error *rt_refuse_recording(kb_context *ctx, const char *function);
KB_MUST_USE kb_error *rt_record_event(kb_context *ctx, kb_stream stream, kb_stream_event event,
                                      bool wait);

/* A node of a graph: it is told when the launch of the graph is at its device. */
KB_MUST_USE kb_error *rt_run_add(rt_run *run, rt_node *node);

/* And when it has ended. */
void rt_run_node_ended(rt_run *run, uint32_t sip);

#endif
