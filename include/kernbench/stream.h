/*
 * stream.h: streams, events in them, and graphs: the order of asynchronous work.
 */
#ifndef KERNBENCH_STREAM_H
#define KERNBENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/launch.h>
#include <kernbench/request.h>
#include <kernbench/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Streams ----------------------------------------------------------------------------- */

/*
 * A stream is a sequence of launches, copies and collectives. On each device they run in order, and
 * the order is kept there: the io_cpu holds what the host has sent until the work before it has
 * ended, so a dependent launch does not wait for the host.
 *
 *     kb_stream copies;
 *     kb_stream_event loaded;
 *     KB_TRY(kb_stream_create(ctx, "copies", &copies));
 *     KB_TRY(kb_stream_event_create(ctx, &loaded));
 *     KB_TRY(kb_stream_copy(ctx, copies, x, from_host, NULL));
 *     KB_TRY(kb_stream_record(ctx, copies, loaded));
 *     KB_TRY(kb_stream_wait(ctx, KB_DEFAULT_STREAM, loaded));
 *     KB_TRY(kb_launch_async(ctx, &request, "scale", &scale, x, 256, 0.5));
 *
 * Work of one stream gives the results of the order of calls. Work of two streams has no order
 * unless an event makes one: if both touch the same bytes, that is a data race, which is reported.
 * A PE runs one kernel at a time; kernels of two streams take turns on it. Collectives start on
 * each device in the order of their calls, whatever streams they are in.
 *
 * If work of a stream fails, what is in the stream behind it does not start, and fails too.
 *
 * Calls outside streams that show contents wait for all work of the caller; those that change or
 * free a tensor wait if the caller's work in streams uses it.
 */
#define KB_DEFAULT_STREAM ((kb_stream){0})

/* The name is for reports; NULL: a number. */
KB_API KB_MUST_USE kb_error *kb_stream_create(kb_context *ctx, const char *name, kb_stream *stream);

/* An error while it has work under way. Those that are left go with the context. */
KB_API KB_MUST_USE kb_error *kb_stream_destroy(kb_context *ctx, kb_stream stream);

/* Waits for all work of the stream. Returns the fault of the caller's work that failed, if any. */
KB_API KB_MUST_USE kb_error *kb_stream_synchronize(kb_context *ctx, kb_stream stream);

/*
 * Copies a tensor as kb_tensor_copy() does, in the stream: contents change when its turn comes. As
 * a launch, it waits for what the caller sent before outside streams. *request, unless NULL, is to
 * be waited for and freed.
 */
KB_API KB_MUST_USE kb_error *kb_stream_copy(kb_context *ctx, kb_stream stream, kb_tensor to,
                                            kb_tensor from, kb_request *request);

/* A moment in a stream. */
typedef struct kb_stream_event {
    uint64_t id;
} kb_stream_event;

KB_API KB_MUST_USE kb_error *kb_stream_event_create(kb_context *ctx, kb_stream_event *event);
KB_API KB_MUST_USE kb_error *kb_stream_event_free(kb_context *ctx, kb_stream_event event);

/* The event happens when all that is in the stream so far has ended, on all devices. */
KB_API KB_MUST_USE kb_error *kb_stream_record(kb_context *ctx, kb_stream stream,
                                              kb_stream_event event);

/* What comes into the stream from now on starts after the event, as it was recorded last. */
KB_API KB_MUST_USE kb_error *kb_stream_wait(kb_context *ctx, kb_stream stream,
                                            kb_stream_event event);

/* ---- Graphs ------------------------------------------------------------------------------ */

/*
 * A graph is a recorded sequence of launches, copies and collectives, with the order that their
 * streams and events make. The control processors keep it: to launch it takes one message of the
 * host to each device, and a node needs no decoding, only a count of completions and a trigger.
 *
 *     kb_graph step;
 *     KB_TRY(kb_graph_begin(ctx, "step", &step));
 *     KB_TRY(kb_launch(ctx, "up", &up, x, w1, h));     // recorded, not run
 *     KB_TRY(kb_launch(ctx, "down", &down, h, w2, y));
 *     KB_TRY(kb_graph_end(ctx, step));
 *     for (int i = 0; i < 100; i++)
 *         KB_TRY(kb_graph_launch(ctx, step, NULL));
 *     KB_TRY(kb_graph_free(ctx, step));
 *
 * Until kb_graph_end(), what the caller launches and copies (kb_stream_copy(), and kb_tensor_copy()
 * through the fabric), and its collectives, are recorded. Their requests become 0, which may be
 * freed and nothing else. Host reads, waiting and changes of contents are errors meanwhile; other
 * calls take effect at once.
 */
typedef struct kb_graph {
    uint64_t id;
} kb_graph;

/* Waits for the caller's work first. The name is for reports; NULL: "graph". */
KB_API KB_MUST_USE kb_error *kb_graph_begin(kb_context *ctx, const char *name, kb_graph *graph);

/* Sends the graph to its devices and waits until they have it. */
KB_API KB_MUST_USE kb_error *kb_graph_end(kb_context *ctx, kb_graph graph);

/* An error while it runs. Those that are left go with the context. */
KB_API KB_MUST_USE kb_error *kb_graph_free(kb_context *ctx, kb_graph graph);

typedef struct kb_graph_options {
    kb_stream stream;    /* the graph as a whole is in this stream */
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed */
} kb_graph_options;

/*
 * Runs all of it. NULL options: in the default stream, and waits. A graph that runs cannot be
 * launched again. kb_launch_results() of the request has its launches in order, without those of
 * collectives; `issued` and `ended` are as the io_cpu sees them.
 */
KB_API KB_MUST_USE kb_error *kb_graph_launch(kb_context *ctx, kb_graph graph,
                                             const kb_graph_options *options);

/* Nodes are numbered from 0 in the order in which they were recorded. Finds the first launch, copy
 * (named as the tensor it copies to) or collective of that name. */
KB_API KB_MUST_USE kb_error *kb_graph_node_count(kb_context *ctx, kb_graph graph, size_t *count);
KB_API KB_MUST_USE kb_error *kb_graph_find(kb_context *ctx, kb_graph graph, const char *name,
                                           size_t *node);

/*
 * Changes an argument of a recorded launch, from 0, or of a copy (0: to, 1: from), for all launches
 * of the graph to come. A tensor has to be placed as the one before: the PEs that run the node, and
 * what they are sent, are recorded.
 */
KB_API KB_MUST_USE kb_error *kb_graph_set_arg(kb_context *ctx, kb_graph graph, size_t node,
                                              size_t index, kb_arg arg);

#ifdef __cplusplus
}
#endif

#endif
