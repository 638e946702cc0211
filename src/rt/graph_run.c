/*
 * graph_run.c: a graph under way. See graph.c.
 */
#include "graph.h"

#include <stdlib.h>

/* A device that takes part. */
typedef struct run_device {
    rt_nodes nodes;         /* until they are told that the launch is there */
    uint32_t left;          /* nodes that have not ended */
    bool is_sent, is_there; /* the message of the host */
} run_device;

struct rt_run {
    kb_context *ctx;
    rt_graph *graph;
    rt_stream *stream; /* that it is launched in */
    rt_work *work;
    rt_stream *streams; /* its own */
    size_t stream_count;
    rt_moment *events;
    size_t event_count;
    run_device *devices; /* by SIP */
    uint64_t changed;    /* arguments that the host has to send */
};

/* ---- Beginning and end ---- */

/* With what is in its lists if the context is in use. */
static void free_run(rt_run *run, bool in_use)
{
    for (size_t i = 0; i < run->stream_count && run->streams; i++) {
        if (in_use)
            rt_stream_drop(&run->streams[i]);
        else
            rt_stream_fini(&run->streams[i]);
    }
    for (size_t i = 0; i < run->event_count && run->events; i++) {
        if (in_use)
            rt_moment_clear(&run->events[i]);
        kb_vec_fini(&run->events[i].nodes);
    }
    for (uint32_t sip = 0; run->devices && sip < run->ctx->shape->sips; sip++) {
        if (in_use)
            rt_nodes_clear(&run->devices[sip].nodes);
        kb_vec_fini(&run->devices[sip].nodes);
    }
    free(run->streams);
    free(run->events);
    free(run->devices);
    free(run);
}

void graph_run_fini(rt_graph *graph)
{
    if (graph->run)
        free_run(graph->run, false);
    graph->run = NULL;
}

/* Its first nodes in each lane wait for what the launching stream has there. */
static kb_error *open_stream(rt_run *run, rt_stream *stream, uint64_t id)
{
    kb_context *ctx = run->ctx;
    rt_stream *of_program = run->stream;
    KB_TRY(rt_stream_init(stream, ctx));
    stream->run = run;
    stream->id = id;
    if (id != 0) {
        KB_TRY(rt_find_stream(ctx, "kb_graph_launch", (kb_stream){id}, &of_program));
        stream->name = of_program->name;
    }
    for (uint32_t sip = 0; sip < ctx->shape->sips; sip++) {
        rt_moment *waits = &stream->lanes[sip].waits;
        KB_TRY(rt_moment_add(ctx, waits, &run->stream->lanes[sip].last));
        KB_TRY(rt_moment_add(ctx, waits, &run->stream->lanes[sip].waits));
    }
    return rt_event_record(ctx, &stream->waits, run->stream);
}

static kb_error *make_run(rt_graph *graph, rt_stream *stream, rt_run **out)
{
    kb_context *ctx = graph->ctx;
    rt_run *run = kb_alloc_zeroed(1, sizeof *run);
    *out = run;
    if (!run)
        return kb_error_nomem();
    *run = (rt_run){.ctx = ctx,
                    .graph = graph,
                    .stream = stream,
                    .stream_count = graph->streams.count,
                    .event_count = graph->events.count};
    run->streams = kb_alloc_zeroed(run->stream_count + 1, sizeof *run->streams);
    run->events = kb_alloc_zeroed(run->event_count + 1, sizeof *run->events);
    run->devices = kb_alloc_zeroed(ctx->shape->sips, sizeof *run->devices);
    if (!run->streams || !run->events || !run->devices)
        return kb_error_nomem();
    for (size_t i = 0; i < run->stream_count; i++) {
        run->streams[i].ctx = ctx; /* also if it is never opened */
        KB_TRY(open_stream(run, &run->streams[i], graph->streams.items[i]));
    }
    return NULL;
}

kb_error *rt_run_add(rt_run *run, rt_node *node)
{
    run_device *device = &run->devices[node->sip];
    if (!rt_nodes_add(&device->nodes, node))
        return kb_error_nomem();
    device->left++;
    return NULL;
}

static void on_host_told(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    rt_run *run = self;
    rt_request_end_part(rt_work_request(run->work), completion, NULL); /* which may free the run */
}

void rt_run_node_ended(rt_run *run, uint32_t sip)
{
    run_device *device = &run->devices[sip];
    if (--device->left > 0 || !device->is_there)
        return;
    io_message message = {.kind = IO_DEVICE_TO_HOST, .sip = sip, .done = on_host_told, .self = run};
    kb_error *err = io_send(run->ctx->control, &message);
    if (err)
        kb_sim_fail(run->ctx->sim, err);
}

/* The launch is at a device: nodes that wait for nothing begin. */
static void on_device(void *self, uint64_t sip, const net_completion *completion)
{
    (void)completion;
    rt_run *run = self;
    run_device *device = &run->devices[sip];
    device->is_there = true;
    rt_nodes nodes = device->nodes;
    device->nodes = (rt_nodes){0};
    for (size_t i = 0; i < nodes.count; i++)
        rt_node_arrived(nodes.items[i]); /* ends none before it returns */
    rt_nodes_clear(&nodes);
    kb_vec_fini(&nodes);
}

/* ---- Replaying ---- */

static uint64_t count_changes(graph_op *op)
{
    uint64_t changed = 0;
    for (size_t i = 0; i < op->call.count; i++) {
        changed += op->changed[i];
        op->changed[i] = false;
    }
    return changed;
}

static kb_error *replay_op(rt_run *run, graph_op *op)
{
    rt_request *request = rt_work_request(run->work);
    rt_stream *stream = &run->streams[op->stream];
    switch (op->kind) {
    case GRAPH_LAUNCH:
        op->call.changed = count_changes(op);
        run->changed += op->call.changed;
        return rt_launch_start(request, &op->call, stream);
    case GRAPH_COPY:
        return rt_copy_start(request, &op->copy, stream);
    case GRAPH_OTHER:
        op->prepared = false;
        return op->other.replay(op->other.self, run->work, stream);
    case GRAPH_EVENT:
        return rt_event_record(run->ctx, &run->events[op->event], stream);
    case GRAPH_WAIT:
        return rt_event_wait(stream, &run->events[op->event]);
    }
    return NULL;
}

static void drop_prepared(rt_graph *graph, const kb_error *why)
{
    for (size_t i = 0; i < graph->ops.count; i++) {
        graph_op *op = &graph->ops.items[i];
        if (op->prepared)
            op->other.drop(op->other.self, why);
        op->prepared = false;
    }
}

/* Nodes that were made and are not to begin. Where no message will tell them, they end at once. */
static void cancel_all(rt_run *run, const kb_error *why)
{
    for (uint32_t sip = 0; sip < run->ctx->shape->sips; sip++) {
        run_device *device = &run->devices[sip];
        for (size_t i = 0; i < device->nodes.count; i++) {
            rt_node_cancel(device->nodes.items[i], why);
            if (!device->is_sent)
                rt_node_arrived(device->nodes.items[i]);
        }
    }
}

static kb_error *replay(rt_run *run)
{
    rt_graph *graph = run->graph;
    for (size_t i = 0; i < graph->ops.count; i++) {
        kb_error *err = replay_op(run, &graph->ops.items[i]);
        if (!err)
            continue;
        err = graph_blame(graph, i, err);
        drop_prepared(graph, err);
        return err;
    }
    return NULL;
}

static bool has_ends(const rt_run *run, uint32_t sip)
{
    bool found = false;
    for (size_t i = 0; i < run->stream_count; i++)
        found = found || run->streams[i].lanes[sip].last.nodes.count > 0;
    return found;
}

/* What comes behind the graph in its stream waits for its last nodes, also on devices that only
 * receive what a node of another one sends. */
static kb_error *leave_behind(const rt_run *run)
{
    kb_context *ctx = run->ctx;
    rt_stream *stream = run->stream;
    bool any = false;
    for (uint32_t sip = 0; sip < ctx->shape->sips; sip++) {
        rt_lane *lane = &stream->lanes[sip];
        if (!has_ends(run, sip))
            continue;
        if (!any)
            rt_moment_clear(&stream->waits); /* nodes of the graph wait for that */
        any = true;
        rt_moment_clear(&lane->last);
        rt_moment_clear(&lane->waits);
        for (size_t i = 0; i < run->stream_count; i++) {
            const rt_moment *last = &run->streams[i].lanes[sip].last;
            KB_TRY(rt_moment_add(ctx, &lane->waits, last));
            KB_TRY(rt_moment_add(ctx, &stream->waits, last));
        }
    }
    return NULL;
}

static kb_error *start_devices(rt_run *run)
{
    for (uint32_t sip = 0; sip < run->ctx->shape->sips; sip++) {
        if (run->devices[sip].left == 0)
            continue;
        io_message message = {
            .kind = IO_HOST_TO_DEVICE,
            .sip = sip,
            .bytes = run->changed * 2 * LAUNCH_ARGUMENT_BYTES, /* which one, and its value */
            .done = on_device,
            .self = run,
            .arg = sip,
        };
        KB_TRY(io_send(run->ctx->control, &message));
        run->devices[sip].is_sent = true;
        rt_request_add_part(rt_work_request(run->work));
    }
    return NULL;
}

static kb_error *run_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    (void)step;
    rt_run *run = self;
    *over = true;
    run->work = work;
    kb_error *err = replay(run);
    if (!err)
        err = leave_behind(run);
    if (!err)
        err = start_devices(run);
    if (err)
        cancel_all(run, err);
    return err;
}

static void run_done(void *self, const kb_error *err)
{
    (void)err;
    rt_run *run = self;
    run->graph->run = NULL;
    free_run(run, true);
}

/* ---- Before it starts ---- */

static kb_error *check_call(kb_context *ctx, const graph_op *op)
{
    for (size_t i = 0; i < op->call.count; i++) {
        const kb_arg *arg = &op->args[i];
        size_t count = arg->kind == KB_ARG_TENSOR    ? 1
                       : arg->kind == KB_ARG_TENSORS ? arg->tensor_count
                                                     : 0;
        const kb_tensor *handles = arg->kind == KB_ARG_TENSOR ? &arg->tensor : arg->tensors;
        for (size_t k = 0; k < count; k++)
            if (!rt_table_get(&ctx->tensors, handles[k].id))
                return kb_error_new(KB_ERR_FAULT, "argument %zu: the tensor was freed", i + 1);
    }
    if (op->call.queues.id != 0 && !rt_table_get(&ctx->queue_sets, op->call.queues.id))
        return kb_error_new(KB_ERR_FAULT, "its queue set was removed");
    return NULL;
}

static kb_error *check_op(kb_context *ctx, const graph_op *op)
{
    if (op->kind == GRAPH_LAUNCH)
        return check_call(ctx, op);
    if (op->kind == GRAPH_OTHER)
        return op->other.check(op->other.self);
    if (op->kind != GRAPH_COPY)
        return NULL;
    bool there = rt_table_get(&ctx->tensors, op->copy.to.id) &&
                 rt_table_get(&ctx->tensors, op->copy.from.id);
    return there ? NULL : kb_error_new(KB_ERR_FAULT, "a tensor that it copies was freed");
}

static kb_error *check_ops(const rt_graph *graph)
{
    for (size_t i = 0; i < graph->ops.count; i++) {
        kb_error *err = check_op(graph->ctx, &graph->ops.items[i]);
        if (err)
            return graph_blame(graph, i, err);
    }
    return NULL;
}

/* Time may pass here; what is prepared is replayed or dropped. */
static kb_error *prepare_ops(rt_graph *graph)
{
    for (size_t i = 0; i < graph->ops.count; i++) {
        graph_op *op = &graph->ops.items[i];
        kb_error *err = NULL;
        if (op->kind == GRAPH_LAUNCH)
            err = rt_launch_get_ready(graph->ctx, &op->call);
        else if (op->kind == GRAPH_OTHER)
            err = op->other.prepare(op->other.self);
        op->prepared = op->kind == GRAPH_OTHER && !err;
        if (!err)
            continue;
        err = graph_blame(graph, i, err);
        drop_prepared(graph, err);
        return err;
    }
    return NULL;
}

static kb_error *start(rt_graph *graph, rt_stream *stream, kb_request *request)
{
    rt_run *run;
    kb_error *err = make_run(graph, stream, &run);
    if (err) {
        drop_prepared(graph, err);
        if (run)
            free_run(run, true);
        return err;
    }
    rt_work_options options = {
        .what = "graph",
        .label = graph->name,
        .step = run_step,
        .done = run_done,
        .self = run,
        .stream = stream,
    };
    rt_work *work;
    err = rt_work_open(graph->ctx, &options, &work, request);
    if (err) {
        drop_prepared(graph, err);
        free_run(run, true);
        return err;
    }
    graph->run = run;
    rt_work_start(work); /* takes the only step */
    return NULL;
}

/* The caller may be stopped while it waits. */
static void give_up(void *arg)
{
    rt_graph *graph = arg;
    kb_error *why = kb_error_new(KB_ERR_FAULT, "its worker was stopped");
    drop_prepared(graph, why);
    kb_error_free(why);
    graph->launching = false;
}

static bool has_collectives(const rt_graph *graph)
{
    bool found = false;
    for (size_t i = 0; i < graph->ops.count; i++)
        found = found || graph->ops.items[i].kind == GRAPH_OTHER;
    return found;
}

/* Collectives follow those that the caller has called outside of streams, as in streams. */
static kb_error *wait_for_others(const rt_graph *graph)
{
    kb_context *ctx = graph->ctx;
    return has_collectives(graph) ? rt_settle_others(ctx)
                                  : rt_wait_for_transfers(rt_caller_of(ctx));
}

static kb_error *get_ready(rt_graph *graph)
{
    kb_context *ctx = graph->ctx;
    kb_co *worker = kb_context_worker(ctx);
    kb_cleanup cleanup;
    if (worker)
        kb_co_push_cleanup(worker, &cleanup, give_up, graph);
    kb_error *err = wait_for_others(graph);
    if (!err)
        err = prepare_ops(graph);
    if (worker)
        kb_co_pop_cleanup(worker, false);
    return err;
}

static kb_error *launch_graph(rt_graph *graph, kb_stream handle, kb_request *request)
{
    rt_stream *stream = NULL;
    KB_TRY(check_ops(graph));
    graph->launching = true; /* so it stays */
    kb_error *err = get_ready(graph);
    graph->launching = false;
    if (!err)
        err = check_ops(graph); /* time may have passed */
    if (!err)
        err = rt_find_stream(graph->ctx, "kb_graph_options.stream", handle, &stream);
    if (err) {
        drop_prepared(graph, err);
        return err;
    }
    return start(graph, stream, request);
}

kb_error *kb_graph_launch(kb_context *ctx, kb_graph handle, const kb_graph_options *options)
{
    static const char function[] = "kb_graph_launch";
    static const kb_graph_options defaults = {0};
    rt_graph *graph;
    kb_request own = {0};
    options = options ? options : &defaults;
    if (options->request)
        *options->request = own;
    KB_TRY(graph_find_ready(ctx, function, handle, &graph));
    kb_error *err = launch_graph(graph, options->stream, &own);
    if (err)
        return kb_error_wrap(err, "%s", function);
    if (options->request) {
        *options->request = own;
        return NULL;
    }
    return rt_wait_and_free(ctx, own);
}
