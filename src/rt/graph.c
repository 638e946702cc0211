/*
 * graph.c: recorded sequences of work.
 *
 * A graph is a list of the calls that made it. To launch it is to make the calls again, in streams
 * of the graph's own that exist as long as it runs: so nodes get the order that streams and events
 * gave them, and all that can be wrong is found anew. But no command travels: the devices have
 * them. One message of the host to each device starts it, and one comes back from each when the
 * last of its nodes has ended.
 *
 * The graph as a whole is in the stream that it is launched in: its first nodes wait for what is
 * there, and what comes later waits for its last ones.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- Its parts ---- */

static void free_args(graph_op *op)
{
    for (size_t i = 0; i < op->call.count && op->args; i++)
        if (op->args[i].kind == KB_ARG_TENSORS)
            free((void *)(uintptr_t)op->args[i].tensors);
    free(op->args);
    free(op->changed);
    free(op->kernel);
}

static void free_op(graph_op *op)
{
    free_args(op);
    free(op->name);
    free(op->devices);
    if (op->kind == GRAPH_OTHER && op->other.self)
        op->other.free(op->other.self);
}

static void free_graph(rt_graph *graph)
{
    for (size_t i = 0; i < graph->ops.count; i++)
        free_op(&graph->ops.items[i]);
    kb_vec_fini(&graph->ops);
    kb_vec_fini(&graph->streams);
    kb_vec_fini(&graph->events);
    free(graph->name);
}

static char *copy_text(const char *from)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, from);
    return kb_text_take(&text);
}

/* ---- Which one ---- */

static kb_error *find_graph(kb_context *ctx, const char *function, kb_graph handle,
                            rt_graph **graph)
{
    *graph = rt_table_get(&ctx->graphs, handle.id);
    if (*graph)
        return NULL;
    return rt_bad_handle(ctx, function, "graph", "freed", handle.id);
}

static kb_error *find_recorded(kb_context *ctx, const char *function, kb_graph handle,
                               rt_graph **graph)
{
    KB_TRY(find_graph(ctx, function, handle, graph));
    if ((*graph)->closed)
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "%s: graph '%s' is still being recorded: call kb_graph_end() first",
                        function, (*graph)->name);
}

static rt_graph *recorded_by(kb_context *ctx)
{
    return rt_table_get(&ctx->graphs, rt_caller_of(ctx)->recording);
}

bool rt_is_recording(kb_context *ctx)
{
    return recorded_by(ctx) != NULL;
}

kb_error *rt_refuse_recording(kb_context *ctx, const char *function)
{
    const rt_graph *graph = recorded_by(ctx);
    if (!graph)
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "%s: graph '%s' is being recorded, and this call cannot be part of it; "
                        "call kb_graph_end() first",
                        function, graph->name);
}

/* ---- Recording ---- */

kb_error *kb_graph_begin(kb_context *ctx, const char *name, kb_graph *handle)
{
    handle->id = 0;
    KB_TRY(rt_refuse_recording(ctx, "kb_graph_begin"));
    KB_TRY(rt_settle(rt_caller_of(ctx)));
    rt_graph *graph = rt_table_add(&ctx->graphs, &handle->id);
    if (!graph)
        return kb_error_nomem();
    graph->ctx = ctx;
    graph->id = handle->id;
    graph->name = copy_text(name ? name : "graph");
    if (!graph->name) {
        rt_table_remove(&ctx->graphs, handle->id);
        handle->id = 0;
        return kb_error_nomem();
    }
    rt_caller_of(ctx)->recording = handle->id;
    return NULL;
}

/* The index of a handle among those that the graph has seen; they are few. */
static kb_error *place_of(graph_handles *list, uint64_t id, size_t *index)
{
    for (*index = 0; *index < list->count; ++*index)
        if (list->items[*index] == id)
            return NULL;
    return kb_vec_push(list, id) ? NULL : kb_error_nomem();
}

static kb_error *add_op(rt_graph *graph, const char *function, kb_stream handle, graph_op *op)
{
    rt_stream *stream;
    size_t index;
    KB_TRY(rt_find_stream(graph->ctx, function, handle, &stream));
    KB_TRY(place_of(&graph->streams, handle.id, &index));
    op->stream = (uint32_t)index;
    return kb_vec_push(&graph->ops, *op) ? NULL : kb_error_nomem();
}

static kb_error *copy_arg(kb_arg *to, const kb_arg *from)
{
    *to = *from;
    if (from->kind != KB_ARG_TENSORS)
        return NULL;
    kb_tensor *tensors = kb_alloc_array(from->tensor_count, sizeof *tensors);
    if (!tensors) {
        to->kind = KB_ARG_INTEGER;
        return kb_error_nomem();
    }
    memcpy(tensors, from->tensors, from->tensor_count * sizeof *tensors);
    to->tensors = tensors;
    return NULL;
}

static kb_error *copy_args(graph_op *op, const rt_launch_call *call)
{
    op->call = *call;
    op->args = kb_alloc_zeroed(call->count, sizeof *op->args);
    op->changed = kb_alloc_zeroed(call->count, sizeof *op->changed);
    op->kernel = kb_alloc_zeroed(1, sizeof *op->kernel);
    if (!op->args || !op->changed || !op->kernel)
        return kb_error_nomem();
    *op->kernel = *call->kernel;
    op->call.kernel = op->kernel;
    for (size_t i = 0; i < call->count; i++)
        KB_TRY(copy_arg(&op->args[i], &call->args[i]));
    op->call.args = op->args;
    return NULL;
}

kb_error *rt_record_launch(kb_context *ctx, const rt_launch_call *call, kb_stream stream)
{
    rt_graph *graph = recorded_by(ctx);
    KB_TRY(rt_launch_check(call));
    bool *devices = kb_alloc_zeroed(ctx->shape->sips, sizeof *devices);
    if (!devices)
        return kb_error_nomem();
    graph_op op = {.kind = GRAPH_LAUNCH, .devices = devices, .name = copy_text(call->name)};
    kb_error *err = op.name ? rt_launch_devices(ctx, call, devices) : kb_error_nomem();
    if (!err)
        err = copy_args(&op, call);
    op.call.name = op.name;
    if (!err)
        err = add_op(graph, "kb_launch_options.stream", stream, &op);
    if (err)
        free_op(&op);
    return err;
}

kb_error *rt_record_copy(kb_context *ctx, kb_tensor to_handle, kb_tensor from_handle,
                         kb_stream stream)
{
    const rt_tensor *to = rt_table_get(&ctx->tensors, to_handle.id);
    const rt_tensor *from = rt_table_get(&ctx->tensors, from_handle.id);
    if (!to || !from)
        return rt_bad_handle(ctx, "copy to be recorded", "tensor", "freed",
                             to ? from_handle.id : to_handle.id);
    KB_TRY(rt_check_alike(to, from));
    if (to->on_host && from->on_host)
        return kb_error_new(KB_ERR_FAULT,
                            "copy to be recorded: '%s' and '%s' are both on the host: no device "
                            "takes part",
                            to->name, from->name);
    bool *devices = kb_alloc_zeroed(ctx->shape->sips, sizeof *devices);
    if (!devices)
        return kb_error_nomem();
    devices[from->on_host ? to->sip : from->sip] = true;
    graph_op op = {.kind = GRAPH_COPY,
                   .name = copy_text(to->name),
                   .devices = devices,
                   .copy = {.to = to_handle,
                            .from = from_handle,
                            .count = to->bytes / kb_dtype_bytes(to->dtype)}};
    kb_error *err =
        op.name ? add_op(recorded_by(ctx), "kb_stream_copy", stream, &op) : kb_error_nomem();
    if (err)
        free_op(&op);
    return err;
}

kb_error *rt_record_event(kb_context *ctx, kb_stream stream, kb_stream_event event, bool wait)
{
    rt_graph *graph = recorded_by(ctx);
    size_t known = graph->events.count, index;
    KB_TRY(place_of(&graph->events, event.id, &index));
    if (wait && index >= known)
        return kb_error_new(KB_ERR_FAULT,
                            "kb_stream_wait: graph '%s' is being recorded, and the event was not "
                            "recorded in it",
                            graph->name);
    graph_op op = {.kind = wait ? GRAPH_WAIT : GRAPH_EVENT, .event = (uint32_t)index};
    return add_op(graph, wait ? "kb_stream_wait" : "kb_stream_record", stream, &op);
}

kb_error *rt_record(kb_context *ctx, const rt_recorded *recorded, kb_stream stream)
{
    uint32_t sips = ctx->shape->sips;
    bool *devices = kb_alloc_zeroed(sips, sizeof *devices);
    graph_op op = {.kind = GRAPH_OTHER,
                   .name = copy_text(recorded->name),
                   .devices = devices,
                   .other = *recorded};
    if (devices)
        memcpy(devices, recorded->devices, sips * sizeof *devices);
    kb_error *err = op.name && devices
                        ? add_op(recorded_by(ctx), "kb_collective_options.stream", stream, &op)
                        : kb_error_nomem();
    if (err)
        free_op(&op);
    return err;
}

/* ---- Sending it to the devices ---- */

enum { MOVE_BYTES = 32 }; /* of a recorded copy, for each PE that sends */

/* What the control processors and PEs of a device are to keep. */
typedef struct upload {
    uint64_t cube_bytes;
    uint64_t *pe_bytes; /* by cube and PE */
    bool *marked;       /* PEs of the operation in hand */
} upload;

static void add_bytes(const kb_context *ctx, const upload *up, uint64_t bytes)
{
    for (size_t i = 0; i < (size_t)ctx->shape->cubes * ctx->shape->pes; i++) {
        up->pe_bytes[i] += up->marked[i] ? bytes : 0;
        up->marked[i] = false;
    }
}

static void mark_all(const kb_context *ctx, const upload *up)
{
    for (size_t i = 0; i < (size_t)ctx->shape->cubes * ctx->shape->pes; i++)
        up->marked[i] = true;
}

static kb_error *measure_op(kb_context *ctx, const graph_op *op, uint32_t sip, upload *up)
{
    uint64_t arguments = op->call.count * LAUNCH_ARGUMENT_BYTES;
    switch (op->kind) {
    case GRAPH_LAUNCH:
        KB_TRY(rt_launch_mark(ctx, &op->call, sip, up->marked));
        up->cube_bytes += LAUNCH_KERNEL_BYTES + arguments;
        add_bytes(ctx, up, LAUNCH_TARGET_BYTES);
        return NULL;
    case GRAPH_COPY:
        mark_all(ctx, up);
        up->cube_bytes += MOVE_BYTES;
        add_bytes(ctx, up, MOVE_BYTES);
        return NULL;
    case GRAPH_OTHER:
        mark_all(ctx, up);
        up->cube_bytes += LAUNCH_KERNEL_BYTES;
        add_bytes(ctx, up, op->other.pe_bytes);
        return NULL;
    case GRAPH_EVENT:
    case GRAPH_WAIT:
        break;
    }
    return NULL;
}

static kb_error *send_upload(rt_request *request, const rt_graph *graph, uint32_t sip, upload *up)
{
    kb_context *ctx = request->ctx;
    bool any = false;
    for (size_t i = 0; i < graph->ops.count; i++) {
        const graph_op *op = &graph->ops.items[i];
        if (!op->devices || !op->devices[sip])
            continue;
        KB_TRY(measure_op(ctx, op, sip, up));
        any = true;
    }
    if (!any)
        return NULL;
    rt_job *job;
    KB_TRY(rt_job_create(ctx, RT_JOB_RECORD, sip, "graph", &job));
    rt_job_set_cube_bytes(job, up->cube_bytes);
    kb_error *err = NULL;
    bool targets = false;
    for (uint32_t cube = 0; cube < ctx->shape->cubes && !err; cube++) {
        for (uint32_t pe = 0; pe < ctx->shape->pes && !err; pe++) {
            uint64_t bytes = up->pe_bytes[(size_t)cube * ctx->shape->pes + pe];
            if (bytes > 0)
                err = rt_job_add_target(job, cube, pe, bytes);
            targets = targets || bytes > 0;
        }
    }
    if (err || !targets) {
        rt_job_destroy(job);
        return err;
    }
    return rt_job_submit(job, request);
}

static kb_error *upload_all(rt_request *request, const rt_graph *graph)
{
    kb_context *ctx = request->ctx;
    size_t pes = (size_t)ctx->shape->cubes * ctx->shape->pes;
    kb_error *err = NULL;
    for (uint32_t sip = 0; sip < ctx->shape->sips && !err; sip++) {
        upload up = {.pe_bytes = kb_alloc_zeroed(pes, sizeof *up.pe_bytes),
                     .marked = kb_alloc_zeroed(pes, sizeof *up.marked)};
        err = up.pe_bytes && up.marked ? send_upload(request, graph, sip, &up) : kb_error_nomem();
        free(up.pe_bytes);
        free(up.marked);
    }
    return err;
}

kb_error *kb_graph_end(kb_context *ctx, kb_graph handle)
{
    static const char function[] = "kb_graph_end";
    rt_graph *graph;
    rt_request *request;
    KB_TRY(find_graph(ctx, function, handle, &graph));
    if (rt_caller_of(ctx)->recording != handle.id)
        return kb_error_new(KB_ERR_FAULT, "%s: graph '%s' is not being recorded by the caller",
                            function, graph->name);
    rt_caller_of(ctx)->recording = 0;
    graph->closed = true;
    KB_TRY(rt_request_open(ctx, "record", graph->name, &request));
    kb_error *err = upload_all(request, graph);
    kb_request sent = rt_request_handle(request);
    rt_request_close(request, NULL);
    kb_error *late = rt_wait_and_free(ctx, sent);
    if (!err)
        err = late;
    else
        kb_error_free(late);
    return err ? kb_error_wrap(err, "%s", function) : NULL;
}

kb_error *kb_graph_free(kb_context *ctx, kb_graph handle)
{
    rt_graph *graph;
    KB_TRY(find_graph(ctx, "kb_graph_free", handle, &graph));
    if (graph->run || graph->launching)
        return kb_error_new(KB_ERR_FAULT,
                            "kb_graph_free: graph '%s' is running: wait for its request first",
                            graph->name);
    if (rt_caller_of(ctx)->recording == handle.id)
        rt_caller_of(ctx)->recording = 0;
    free_graph(graph);
    rt_table_remove(&ctx->graphs, handle.id);
    return NULL;
}

void rt_graphs_init(kb_context *ctx)
{
    rt_table_init(&ctx->graphs, sizeof(rt_graph), ctx->number);
}

void rt_graphs_fini(kb_context *ctx)
{
    for (uint64_t id = 0; (id = rt_table_next(&ctx->graphs, id)) != 0;) {
        rt_graph *graph = rt_table_get(&ctx->graphs, id);
        graph_run_fini(graph);
        free_graph(graph);
    }
    rt_table_fini(&ctx->graphs);
}

/* ---- Looking at it, and changing it ---- */

static bool is_node(const graph_op *op)
{
    return op->kind != GRAPH_EVENT && op->kind != GRAPH_WAIT;
}

/* How many nodes are recorded before that index. */
static size_t node_number(const rt_graph *graph, size_t index)
{
    size_t number = 0;
    for (size_t i = 0; i < index; i++)
        number += is_node(&graph->ops.items[i]);
    return number;
}

kb_error *kb_graph_node_count(kb_context *ctx, kb_graph handle, size_t *count)
{
    rt_graph *graph;
    *count = 0;
    KB_TRY(find_graph(ctx, "kb_graph_node_count", handle, &graph));
    *count = node_number(graph, graph->ops.count);
    return NULL;
}

kb_error *kb_graph_find(kb_context *ctx, kb_graph handle, const char *name, size_t *node)
{
    static const char function[] = "kb_graph_find";
    rt_graph *graph;
    *node = 0;
    KB_TRY(find_graph(ctx, function, handle, &graph));
    for (size_t i = 0; name && i < graph->ops.count; i++) {
        if (!is_node(&graph->ops.items[i]) || strcmp(graph->ops.items[i].name, name) != 0)
            continue;
        *node = node_number(graph, i);
        return NULL;
    }
    return kb_error_new(KB_ERR_FAULT, "%s: graph '%s' has no node '%s'", function, graph->name,
                        name ? name : "");
}

/* "graph 'step', node 3 ('scale')" */
kb_error *graph_blame(const rt_graph *graph, size_t index, kb_error *err)
{
    return kb_error_wrap(err, "graph '%s', node %zu ('%s')", graph->name, node_number(graph, index),
                         graph->ops.items[index].name);
}

/* What differs: both have the same words if it is the index. */
static kb_error *not_placed_alike(const rt_tensor *new, const rt_tensor *old)
{
    kb_text text = KB_TEXT_INIT;
    rt_tensor_print(new, &text);
    kb_text_puts(&text, " is not placed as the recorded ");
    rt_tensor_print(old, &text);
    if (new->on_host != old->on_host)
        kb_text_printf(&text, ": one of them is on the host");
    else if (new->sip != old->sip)
        kb_text_printf(&text, ": it is on sip%u, that one on sip%u", new->sip, old->sip);
    else if (new->dtype == old->dtype && mem_shape_equal(&new->shape, &old->shape))
        kb_text_puts(&text, ": their policies or memories differ");
    kb_error *err = kb_error_new(KB_ERR_FAULT, "%s; record the graph anew", kb_text_peek(&text));
    kb_text_fini(&text);
    return err;
}

static kb_error *check_tensor(kb_context *ctx, kb_tensor fresh, kb_tensor recorded)
{
    const rt_tensor *new = rt_table_get(&ctx->tensors, fresh.id);
    const rt_tensor *old = rt_table_get(&ctx->tensors, recorded.id);
    if (!new)
        return rt_bad_handle(ctx, "", "tensor", "freed", fresh.id);
    if (!old)
        return kb_error_new(KB_ERR_FAULT, "the recorded tensor was freed: its placement is not "
                                          "known any more");
    bool same = new->on_host == old->on_host &&new->dtype ==
                    old->dtype &&mem_shape_equal(&new->shape, &old->shape) &&
                (new->on_host || (new->sip == old->sip &&new->memory ==
                                  old->memory &&rt_same_layout(ctx, fresh, recorded)));
    return same ? NULL : not_placed_alike(new, old);
}

/* Of the recorded tensors the one on the same device; the first one if there is none. */
static kb_tensor counterpart(kb_context *ctx, kb_tensor fresh, const kb_arg *recorded)
{
    const rt_tensor *new = rt_table_get(&ctx->tensors, fresh.id);
    for (size_t i = 0; i < recorded->tensor_count && new; i++) {
        const rt_tensor *old = rt_table_get(&ctx->tensors, recorded->tensors[i].id);
        if (old && old->sip == new->sip)
            return recorded->tensors[i];
    }
    return recorded->tensors[0];
}

static kb_error *check_placement(kb_context *ctx, const kb_arg *fresh, const kb_arg *recorded)
{
    if (recorded->kind != KB_ARG_TENSOR && recorded->kind != KB_ARG_TENSORS)
        return NULL;
    size_t expected = recorded->kind == KB_ARG_TENSOR ? 1 : recorded->tensor_count;
    size_t given = fresh->kind == KB_ARG_TENSOR    ? 1
                   : fresh->kind == KB_ARG_TENSORS ? fresh->tensor_count
                                                   : 0;
    if (fresh->kind != recorded->kind || given != expected)
        return kb_error_new(KB_ERR_FAULT, "expected %zu tensor%s as recorded%s, found %zu",
                            expected, kb_plural(expected),
                            recorded->kind == KB_ARG_TENSORS ? " (KB_EACH)" : "", given);
    if (fresh->kind == KB_ARG_TENSOR)
        return check_tensor(ctx, fresh->tensor, recorded->tensor);
    for (size_t i = 0; i < fresh->tensor_count; i++)
        KB_TRY(check_tensor(ctx, fresh->tensors[i], counterpart(ctx, fresh->tensors[i], recorded)));
    return NULL;
}

static kb_error *set_launch_arg(kb_context *ctx, graph_op *op, size_t index, const kb_arg *arg)
{
    kb_arg *is = &op->args[index], fresh, before = *is;
    kb_error *misplaced = check_placement(ctx, arg, is);
    if (misplaced)
        return kb_error_wrap(misplaced, "argument %zu", index + 1);
    KB_TRY(copy_arg(&fresh, arg));
    *is = fresh;
    kb_error *err = rt_launch_check(&op->call);
    kb_arg *unwanted = err ? &fresh : &before;
    if (unwanted->kind == KB_ARG_TENSORS)
        free((void *)(uintptr_t)unwanted->tensors);
    if (err)
        *is = before;
    else
        op->changed[index] = true;
    return err;
}

static kb_error *set_copy_arg(kb_context *ctx, graph_op *op, size_t index, const kb_arg *arg)
{
    kb_tensor *is = index == 0 ? &op->copy.to : &op->copy.from;
    if (arg->kind != KB_ARG_TENSOR)
        return kb_error_new(KB_ERR_FAULT, "expected a tensor");
    KB_TRY(check_tensor(ctx, arg->tensor, *is));
    *is = arg->tensor;
    return NULL;
}

static kb_error *set_arg(rt_graph *graph, graph_op *op, size_t index, const kb_arg *arg)
{
    size_t count = op->kind == GRAPH_LAUNCH ? op->call.count : op->kind == GRAPH_COPY ? 2 : 0;
    if (op->kind == GRAPH_OTHER)
        return kb_error_new(KB_ERR_FAULT, "arguments of a collective cannot be changed");
    if (index >= count)
        return kb_error_new(KB_ERR_FAULT, "no argument %zu: it has %zu, numbered from 0", index,
                            count);
    return op->kind == GRAPH_LAUNCH ? set_launch_arg(graph->ctx, op, index, arg)
                                    : set_copy_arg(graph->ctx, op, index, arg);
}

kb_error *kb_graph_set_arg(kb_context *ctx, kb_graph handle, size_t node, size_t index, kb_arg arg)
{
    static const char function[] = "kb_graph_set_arg";
    rt_graph *graph;
    KB_TRY(find_recorded(ctx, function, handle, &graph));
    size_t number = 0, count = node_number(graph, graph->ops.count);
    for (size_t i = 0; i < graph->ops.count; i++) {
        graph_op *op = &graph->ops.items[i];
        if (!is_node(op) || number++ != node)
            continue;
        kb_error *err = set_arg(graph, op, index, &arg);
        return err ? kb_error_wrap(graph_blame(graph, i, err), "%s", function) : NULL;
    }
    return kb_error_new(KB_ERR_FAULT, "%s: graph '%s' has no node %zu: it has %zu, numbered from 0",
                        function, graph->name, node, count);
}

kb_error *graph_find_ready(kb_context *ctx, const char *function, kb_graph handle, rt_graph **graph)
{
    KB_TRY(rt_refuse_recording(ctx, function));
    KB_TRY(find_recorded(ctx, function, handle, graph));
    if (!(*graph)->run && !(*graph)->launching)
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "%s: graph '%s' is still running: wait for its request first",
                        function, (*graph)->name);
}
