/*
 * distributed.c: the calls of programs: kb_distributed_all_reduce() and so on, and statistics of
 * the last call.
 */
#include "communicator.h"

#include <stdlib.h>

/* ---- Collectives ---- */

/* Collectives in streams and outside of streams wait for each other, so that all ranks launch
 * kernels in the same order. */
static kb_error *find_stream(kb_context *ctx, const kb_collective *call, struct rt_stream **stream)
{
    *stream = NULL;
    if (!call->options.stream)
        return rt_settle_streams(ctx);
    KB_TRY(rt_settle_others(ctx));
    return rt_find_stream(ctx, "kb_collective_options.stream", *call->options.stream, stream);
}

static kb_error *run(kb_context *ctx, const char *function, const kb_collective *call)
{
    struct rt_stream *stream;
    kb_request *work = call->options.work, request;
    ccl_op *op;
    if (work)
        *work = (kb_request){0};
    if (call->kind == KB_BARRIER)
        return ccl_run_barrier(ctx, function, call);
    if (rt_is_recording(ctx))
        return ccl_record_call(ctx, function, call);
    KB_TRY(find_stream(ctx, call, &stream));
    KB_TRY(ccl_prepare_call(ctx, function, call, &op));
    KB_TRY(ccl_start_call(op, stream, NULL, &request));
    return ccl_wait_or_return(ctx, request, work);
}

kb_error *kb_distributed_call(kb_context *ctx, const kb_collective *call)
{
    static const char function[] = "kb_distributed_call";
    if (!call)
        return kb_error_new(KB_ERR_INPUT, "%s: call is NULL", function);
    return run(ctx, function, call);
}

/* A call with one tensor for each argument. */
static kb_error *run_one(kb_context *ctx, const char *function, kb_collective call,
                         const kb_tensor *input, const kb_tensor *output,
                         const kb_collective_options *options)
{
    call.inputs = input;
    call.outputs = output;
    call.count = 1;
    if (options)
        call.options = *options;
    return run(ctx, function, &call);
}

kb_error *kb_distributed_all_reduce(kb_context *ctx, kb_tensor tensor, kb_reduce_op op,
                                    const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_ALL_REDUCE, .op = op};
    return run_one(ctx, "kb_distributed_all_reduce", call, &tensor, &tensor, options);
}

kb_error *kb_distributed_all_gather(kb_context *ctx, kb_tensor output, kb_tensor input,
                                    const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_ALL_GATHER};
    return run_one(ctx, "kb_distributed_all_gather", call, &input, &output, options);
}

kb_error *kb_distributed_reduce_scatter(kb_context *ctx, kb_tensor output, kb_tensor input,
                                        kb_reduce_op op, const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_REDUCE_SCATTER, .op = op};
    return run_one(ctx, "kb_distributed_reduce_scatter", call, &input, &output, options);
}

kb_error *kb_distributed_broadcast(kb_context *ctx, kb_tensor tensor, uint32_t root,
                                   const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_BROADCAST, .root = root};
    return run_one(ctx, "kb_distributed_broadcast", call, &tensor, &tensor, options);
}

kb_error *kb_distributed_reduce(kb_context *ctx, kb_tensor tensor, uint32_t root, kb_reduce_op op,
                                const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_REDUCE, .op = op, .root = root};
    return run_one(ctx, "kb_distributed_reduce", call, &tensor, &tensor, options);
}

kb_error *kb_distributed_gather(kb_context *ctx, kb_tensor output, kb_tensor input, uint32_t root,
                                const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_GATHER, .root = root};
    return run_one(ctx, "kb_distributed_gather", call, &input, &output, options);
}

kb_error *kb_distributed_scatter(kb_context *ctx, kb_tensor output, kb_tensor input, uint32_t root,
                                 const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_SCATTER, .root = root};
    return run_one(ctx, "kb_distributed_scatter", call, &input, &output, options);
}

kb_error *kb_distributed_all_to_all(kb_context *ctx, kb_tensor output, kb_tensor input,
                                    const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_ALL_TO_ALL};
    return run_one(ctx, "kb_distributed_all_to_all", call, &input, &output, options);
}

kb_error *kb_distributed_send(kb_context *ctx, kb_tensor tensor, uint32_t to,
                              const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_SEND, .root = to};
    return run_one(ctx, "kb_distributed_send", call, &tensor, NULL, options);
}

kb_error *kb_distributed_recv(kb_context *ctx, kb_tensor tensor, uint32_t from,
                              const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_RECV, .root = from};
    return run_one(ctx, "kb_distributed_recv", call, NULL, &tensor, options);
}

kb_error *kb_distributed_barrier(kb_context *ctx, const kb_collective_options *options)
{
    kb_collective call = {.kind = KB_BARRIER};
    return run_one(ctx, "kb_distributed_barrier", call, NULL, NULL, options);
}

/* ---- Statistics ---- */

/* The PEs of an algorithm that also reduces shards: there a rank of the lower bound is a
 * participant. */
static kb_error *pes_of(const ccl_instance *instance, kb_pe **out)
{
    *out = kb_alloc_array(instance->participant_count, sizeof **out);
    if (!*out)
        return kb_error_nomem();
    for (size_t i = 0; i < instance->participant_count; i++)
        (*out)[i] = instance->participants[i].pe;
    return NULL;
}

kb_error *kb_distributed_get_stats(kb_context *ctx, kb_group handle, kb_collective_stats *stats)
{
    static const char function[] = "kb_distributed_get_stats";
    ccl_group *group;
    uint32_t device, count;
    *stats = (kb_collective_stats){0};
    KB_TRY(ccl_find_group(ctx, function, handle, &group, &device, &count));
    const ccl_last *last = &group->last[device];
    if (!last->instance)
        return kb_error_new(KB_ERR_FAULT, "%s: no collective is done yet", function);
    kb_pe *participants = NULL;
    bool by_pe = group->state->rank_is_pe, shards = last->instance->entry->reduce_shards;
    if (shards)
        KB_TRY(pes_of(last->instance, &participants));
    ccl_bound_query query = {
        .machine = group->state->machine,
        .kind = last->kind,
        .ranks = shards ? participants : group->ranks,
        .world = shards ? (uint32_t)last->instance->participant_count : group->world,
        .rank_is_pe = shards || by_pe,
        .memory = last->memory,
        .dtype = last->dtype,
        .size = shards ? last->part : last->size,
    };
    ccl_bound bound;
    kb_error *err = ccl_bound_of(&query, &bound);
    free(participants);
    if (err)
        return err;
    *stats = (kb_collective_stats){
        .algorithm = last->instance->entry->name,
        .lower_bound = bound.time,
        .bus_factor = ccl_bus_factor(last->kind, query.world),
        .size = query.size,
        .participants = query.world,
    };
    return NULL;
}
