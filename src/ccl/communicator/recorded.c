/*
 * recorded.c: collectives in graphs. A recorded call is kept by the graph. At each launch of the
 * graph it joins its next epoch, as a call of the program does, and becomes nodes of the graph.
 */
#include <stdlib.h>
#include <string.h>

#include "communicator.h"

enum { PE_BYTES = 64 }; /* that a PE stores for a call: its index and arguments */

typedef struct recorded_call {
    kb_context *ctx;
    const char *function;
    kb_collective call;
    kb_tensor *inputs, *outputs;
    char *algorithm;
    ccl_op *op; /* prepared and not yet started; NULL: none */
} recorded_call;

static void free_call(void *self)
{
    recorded_call *is = self;
    if (!is)
        return;
    free(is->inputs);
    free(is->outputs);
    free(is->algorithm);
    free(is);
}

static kb_error *check(void *self)
{
    const recorded_call *is = self;
    rt_tensor_view view;
    ccl_group *group;
    uint32_t device, count;
    KB_TRY(ccl_find_group(is->ctx, is->function, is->call.options.group, &group, &device, &count));
    for (size_t i = 0; i < is->call.count; i++) {
        if (is->inputs && is->inputs[i].id != 0)
            KB_TRY(rt_view_tensor(is->ctx, is->inputs[i], &view));
        if (is->outputs && is->outputs[i].id != 0)
            KB_TRY(rt_view_tensor(is->ctx, is->outputs[i], &view));
    }
    return NULL;
}

static kb_error *prepare(void *self)
{
    recorded_call *is = self;
    return ccl_prepare_call(is->ctx, is->function, &is->call, &is->op);
}

static kb_error *replay(void *self, rt_work *graph, struct rt_stream *stream)
{
    recorded_call *is = self;
    ccl_op *op = is->op;
    kb_request request;
    is->op = NULL;
    rt_work_add_part(graph);
    kb_error *err = ccl_start_call(op, stream, graph, &request);
    if (!err)
        return kb_request_free(is->ctx, request);
    rt_work_end_part(graph, NULL);
    return err;
}

static void drop(void *self, const kb_error *why)
{
    recorded_call *is = self;
    if (is->op)
        ccl_drop_call(is->op, why);
    is->op = NULL;
}

static kb_tensor *copy_tensors(const kb_tensor *from, size_t count)
{
    kb_tensor *to = kb_alloc_array(count, sizeof *to);
    if (to)
        memcpy(to, from, count * sizeof *to);
    return to;
}

static recorded_call *keep_call(kb_context *ctx, const char *function, const kb_collective *call)
{
    recorded_call *is = kb_alloc_zeroed(1, sizeof *is);
    if (!is)
        return NULL;
    is->ctx = ctx;
    is->function = function;
    is->call = *call;
    bool fits = true;
    if (call->inputs)
        fits = (is->inputs = copy_tensors(call->inputs, call->count)) != NULL;
    if (call->outputs)
        fits = (is->outputs = copy_tensors(call->outputs, call->count)) != NULL && fits;
    if (call->options.algorithm) {
        kb_text text = KB_TEXT_INIT;
        kb_text_puts(&text, call->options.algorithm);
        fits = (is->algorithm = kb_text_take(&text)) != NULL && fits;
    }
    if (!fits) {
        free_call(is);
        return NULL;
    }
    is->call.inputs = is->inputs;
    is->call.outputs = is->outputs;
    is->call.options.algorithm = is->algorithm;
    is->call.options.stream = NULL;
    is->call.options.work = NULL;
    return is;
}

/* The devices that the caller drives. */
static kb_error *find_devices(kb_context *ctx, const char *function, kb_group handle, bool **out)
{
    ccl_group *group;
    uint32_t device, count;
    *out = NULL;
    KB_TRY(ccl_find_group(ctx, function, handle, &group, &device, &count));
    *out = kb_alloc_zeroed(topo_machine_shape(group->state->machine)->sips, sizeof **out);
    if (!*out)
        return kb_error_nomem();
    for (uint32_t i = 0; i < count; i++)
        (*out)[group->sips[device + i]] = true;
    return NULL;
}

kb_error *ccl_record_call(kb_context *ctx, const char *function, const kb_collective *call)
{
    bool *devices;
    KB_TRY(find_devices(ctx, function, call->options.group, &devices));
    recorded_call *is = keep_call(ctx, function, call);
    kb_error *err = is ? check(is) : kb_error_nomem();
    if (err) {
        free_call(is);
        free(devices);
        return err;
    }
    rt_recorded recorded = {
        .name = kb_collective_name(call->kind),
        .self = is,
        .devices = devices,
        .pe_bytes = PE_BYTES,
        .check = check,
        .prepare = prepare,
        .replay = replay,
        .drop = drop,
        .free = free_call,
    };
    kb_stream stream = call->options.stream ? *call->options.stream : KB_DEFAULT_STREAM;
    err = rt_record(ctx, &recorded, stream);
    free(devices);
    return err;
}
