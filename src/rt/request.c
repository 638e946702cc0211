/*
 * request.c: things under way, their ends, and the handles that users have of them.
 *
 * A request has parts that start together: the transfers of a copy, a command to PEs. It is done
 * when its last part ends, and that part says how the time came about. While it is put together it
 * has one more part, so that nothing can end it early; one of a work keeps that part from step to
 * step.
 *
 * Invariant: a caller's `under_way` is the number of its requests that count and are not done.
 */
#include "runtime.h"

#include <stdio.h>
#include <string.h>

kb_error *rt_request_open(kb_context *ctx, const char *what, const char *label, rt_request **out)
{
    uint64_t id;
    *out = NULL;
    KB_TRY(rt_check_whole(ctx));
    rt_request *request = rt_table_add(&ctx->requests, &id);
    *out = request;
    if (!request)
        return kb_error_nomem();
    request->ctx = ctx;
    request->id = id;
    request->owner = rt_caller_of(ctx);
    request->counts = true;
    request->parts = 1;
    request->what = what;
    snprintf(request->label, sizeof request->label, "%s", label ? label : "");
    request->completion.issued = request->completion.ended = kb_sim_now(ctx->sim);
    kb_waitlist_init(&request->waiters, "a request to end");
    request->owner->under_way++;
    ctx->under_way++;
    ctx->moving++;
    kb_oplog_request_begin(ctx->log);
    return NULL;
}

void rt_request_moves_nothing(rt_request *request)
{
    request->counts = false;
    request->owner->under_way--;
    request->ctx->moving--;
    kb_oplog_request_end(request->ctx->log);
}

void rt_request_is_launch(rt_request *request, bool all_of_it)
{
    request->is_launch = true;
    request->logs_launch = all_of_it;
    if (all_of_it)
        kb_oplog_launch_begin(request->ctx->log);
    request->owner->launches++;
}

void rt_request_add_part(rt_request *request)
{
    request->parts++;
}

static void free_parts(rt_request *request)
{
    kb_error_free(request->error);
    rt_launches_free(request->launches);
    rt_copies_free(request->copies);
    kb_vec_fini(&request->uses);
}

static void remove_request(rt_request *request)
{
    free_parts(request);
    rt_table_remove(&request->ctx->requests, request->id);
}

/* ---- In streams ---- */

void rt_request_in_stream(rt_request *request, rt_stream *stream)
{
    request->stream = stream;
    stream->under_way++;
    request->owner->streamed++;
    const char *name = rt_stream_label(stream);
    if (!name)
        return;
    snprintf(request->awaited, sizeof request->awaited, "%s '%s' in stream '%s' to end",
             request->what, request->label, name);
    size_t length = strlen(request->label);
    snprintf(request->label + length, sizeof request->label - length, " in stream %s", name);
    kb_waitlist_init(&request->waiters, request->awaited);
}

kb_error *rt_request_use(rt_request *request, kb_tensor handle)
{
    rt_tensor *tensor = rt_table_get(&request->ctx->tensors, handle.id);
    if (!tensor)
        return NULL;
    if (!kb_vec_push(&request->uses, handle.id))
        return kb_error_nomem();
    tensor->in_use++;
    return NULL;
}

/* Its nodes have ended: what they used is free, and who waits for the stream goes on. */
static void leave_stream(rt_request *request)
{
    kb_context *ctx = request->ctx;
    for (size_t i = 0; i < request->uses.count; i++) {
        rt_tensor *tensor = rt_table_get(&ctx->tensors, request->uses.items[i]);
        if (tensor)
            tensor->in_use--;
    }
    request->uses.count = 0;
    while (request->nodes) {
        rt_node *node = request->nodes;
        request->nodes = node->next;
        request->over = tl_mark_join(ctx->kernels, request->over, node->over);
        rt_node_release(node);
    }
    rt_stream *stream = request->stream;
    request->stream = NULL;
    if (stream && --stream->under_way == 0)
        kb_wake_all(ctx->sim, &stream->idle);
    rt_caller *owner = request->owner;
    if (!owner)
        return;
    owner->over = tl_mark_join(ctx->kernels, owner->over, request->over);
    if (stream && --owner->streamed == 0)
        kb_wake_all(ctx->sim, &owner->idle);
}

/* ---- Faults that were not reported ---- */

static void note_fault(rt_request *request)
{
    rt_caller *owner = request->owner;
    request->untold = true;
    request->fault_before = owner->last_fault;
    if (owner->last_fault)
        owner->last_fault->fault_after = request;
    else
        owner->first_fault = request;
    owner->last_fault = request;
}

static void strike_fault(rt_request *request)
{
    rt_caller *owner = request->owner;
    if (!request->untold)
        return;
    if (request->fault_after)
        request->fault_after->fault_before = request->fault_before;
    else
        owner->last_fault = request->fault_before;
    if (request->fault_before)
        request->fault_before->fault_after = request->fault_after;
    else
        owner->first_fault = request->fault_after;
    request->untold = false;
    request->fault_before = request->fault_after = NULL;
}

/* It is done and has no handle. Of failed requests without a handle one stays, for its error. */
static void dismiss(rt_request *request)
{
    if (request->untold && !request->owner->nameless_fault) {
        request->owner->nameless_fault = true;
        return;
    }
    strike_fault(request);
    remove_request(request);
}

kb_error *rt_take_faults(rt_caller *caller)
{
    kb_error *first = caller->first_fault ? kb_error_copy(caller->first_fault->error) : NULL;
    while (caller->first_fault) {
        rt_request *request = caller->first_fault;
        strike_fault(request);
        if (!request->has_handle)
            remove_request(request);
    }
    caller->nameless_fault = false;
    return first;
}

/* ---- Ends ---- */

static void tell_owner(rt_request *request)
{
    rt_caller *owner = request->owner;
    if (!owner)
        return;
    if (request->error)
        note_fault(request);
    owner->under_way -= request->counts;
    owner->launches -= request->is_launch;
    if (request->counts &&
        (owner->under_way == owner->launches || owner->under_way == owner->streamed))
        kb_wake_all(request->ctx->sim, &owner->idle);
}

static kb_op op_of(const rt_request *request)
{
    const kb_completion *completion = &request->completion;
    return (kb_op){
        .unit = KB_UNIT_HOST,
        .name = request->what,
        .label = request->label,
        .start = completion->issued,
        .end = kb_sim_now(request->ctx->sim), /* later than its last completion if it failed */
        .bytes = completion->bytes,
        .launch = request->number,
    };
}

void rt_requests_show_unfinished(kb_context *ctx)
{
    for (uint64_t id = 0; (id = rt_table_next(&ctx->requests, id)) != 0;) {
        const rt_request *request = rt_table_get(&ctx->requests, id);
        if (request->done)
            continue;
        kb_op op = op_of(request);
        op.unfinished = true;
        op.id = kb_oplog_new_id(ctx->log);
        kb_oplog_show(ctx->log, &op);
    }
}

/* What took no time is not worth a record. */
static void log_request(const rt_request *request)
{
    kb_op op = op_of(request);
    if (op.end <= op.start)
        return;
    op.id = kb_oplog_new_id(request->ctx->log);
    kb_oplog_add(request->ctx->log, KB_OPLOG_HOST, &op);
}

static void end_request(rt_request *request)
{
    kb_context *ctx = request->ctx;
    request->done = true;
    leave_stream(request);
    ctx->under_way--;
    if (request->counts) {
        ctx->moving--;
        log_request(request);
        kb_oplog_request_end(ctx->log);
        if (request->logs_launch)
            kb_oplog_launch_end(ctx->log);
    }
    tell_owner(request);
    kb_wake_all(ctx->sim, &request->waiters);
    if (request->on_end)
        request->on_end(request);
    if (!request->has_handle)
        dismiss(request);
    rt_request_ended(ctx);
}

void rt_request_end_part(rt_request *request, const net_completion *transfer, kb_error *err)
{
    if (!request->error)
        request->error = err;
    else
        kb_error_free(err);
    if (transfer) {
        kb_completion *completion = &request->completion;
        completion->ended = transfer->ended;
        completion->overhead = transfer->overhead;
        completion->wire = transfer->wire;
        completion->drain = transfer->drain;
        completion->queueing = transfer->queueing;
    }
    if (--request->parts == 0)
        end_request(request);
    else if (request->parts == 1 && request->work)
        rt_work_advance(request->work);
}

void rt_request_close(rt_request *request, kb_error *err)
{
    rt_request_end_part(request, NULL, err);
}

void rt_tell_host_copy(kb_context *ctx, uint64_t cause, uint32_t node, bool read,
                       const net_completion *completion)
{
    if (KB_LIKELY(!kb_oplog_is_path_watched(ctx->log)))
        return;
    kb_oplog_control record = {
        .name = "copy",
        .end = completion->ended,
        .moved = {.from = ctx->host_node,
                  .to = node,
                  .read = read,
                  .issued = completion->issued,
                  .ended = completion->ended,
                  .latency = completion->overhead + completion->wire,
                  .bandwidth = completion->drain,
                  .queueing = completion->queueing},
        .begun_by = {KB_REASON_ISSUE, cause},
    };
    kb_oplog_tell_control(ctx->log, &record);
}

/* What its end says: the record because of which it began, its memory and its direction. */
enum { NODE_BITS = 31 };

static uint64_t transfer_arg(const kb_context *ctx, uint32_t node, bool read)
{
    return (uint64_t)kb_oplog_control_cause(ctx->log) << 32 | (uint64_t)read << NODE_BITS | node;
}

static void transfer_done(void *self, uint64_t arg, const net_completion *completion)
{
    const rt_request *request = self;
    rt_tell_host_copy(request->ctx, arg >> 32, (uint32_t)arg & ((1u << NODE_BITS) - 1),
                      arg >> NODE_BITS & 1, completion);
    rt_request_end_part(self, completion, NULL);
}

kb_error *rt_request_transfer(rt_request *request, const kb_location *location, uint64_t bytes,
                              bool read)
{
    kb_context *ctx = request->ctx;
    uint32_t node = mem_memories_node(ctx->memories, location);
    net_order order = net_make_order_by_nodes(&ctx->routes, ctx->host_node, node, bytes, read);
    order.done = transfer_done;
    order.self = request;
    order.arg = transfer_arg(ctx, node, read);
    KB_TRY(net_submit(ctx->fabric, &order));
    rt_request_add_part(request);
    request->completion.bytes += bytes;
    return NULL;
}

kb_request rt_request_handle(rt_request *request)
{
    request->has_handle = true;
    return (kb_request){request->id};
}

void rt_requests_disown(kb_context *ctx)
{
    for (uint64_t id = rt_table_next(&ctx->requests, 0); id;
         id = rt_table_next(&ctx->requests, id)) {
        rt_request *request = rt_table_get(&ctx->requests, id);
        if (request->owner == &ctx->driver || !request->owner)
            continue;
        strike_fault(request);
        request->owner = NULL;
        if (request->done && !request->has_handle)
            remove_request(request);
    }
}

void rt_requests_fini(kb_context *ctx)
{
    for (uint64_t id = rt_table_next(&ctx->requests, 0); id;
         id = rt_table_next(&ctx->requests, id)) {
        rt_request *request = rt_table_get(&ctx->requests, id);
        free_parts(request);
    }
    rt_table_fini(&ctx->requests);
}

/* ---- What users do with handles ---- */

static kb_error *find_request(kb_context *ctx, const char *function, kb_request handle,
                              rt_request **out)
{
    rt_request *request = rt_table_get(&ctx->requests, handle.id);
    *out = request;
    if (request && request->has_handle)
        return NULL;
    if (handle.id == 0)
        return kb_error_new(KB_ERR_FAULT,
                            "%s: invalid request handle 0: the call was recorded, or has failed",
                            function);
    return rt_bad_handle(ctx, function, "request", "freed", handle.id);
}

kb_error *kb_request_wait(kb_context *ctx, kb_request handle, kb_completion *completion)
{
    rt_request *request;
    KB_TRY(find_request(ctx, "kb_request_wait", handle, &request));
    while (!request->done) {
        KB_TRY(rt_block_on(ctx, &request->waiters));
        KB_TRY(find_request(ctx, "kb_request_wait", handle, &request));
    }
    if (completion)
        *completion = request->completion;
    rt_observe(ctx, request->over);
    if (!request->error)
        return NULL;
    strike_fault(request); /* its error is returned here */
    return kb_error_copy(request->error);
}

kb_error *kb_request_test(kb_context *ctx, kb_request handle, bool *done)
{
    rt_request *request;
    KB_TRY(find_request(ctx, "kb_request_test", handle, &request));
    *done = request->done;
    if (request->done)
        rt_observe(ctx, request->over);
    return NULL;
}

kb_error *kb_request_free(kb_context *ctx, kb_request handle)
{
    rt_request *request;
    if (handle.id == 0)
        return NULL; /* that of a call that was recorded */
    KB_TRY(find_request(ctx, "kb_request_free", handle, &request));
    request->has_handle = false;
    if (request->done) {
        dismiss(request);
        return NULL;
    }
    /* Those who wait for it are told so; see kb_request_wait(). */
    kb_wake_all(ctx->sim, &request->waiters);
    return NULL;
}

/* ---- Waiting for it to be over ---- */

typedef struct handle {
    kb_context *ctx;
    kb_request request;
} handle;

static void free_handle(void *arg)
{
    const handle *h = arg;
    kb_error_free(kb_request_free(h->ctx, h->request));
}

kb_error *rt_wait_and_free(kb_context *ctx, kb_request request)
{
    handle h = {ctx, request};
    kb_co *worker = kb_context_worker(ctx);
    kb_cleanup cleanup;
    if (worker)
        kb_co_push_cleanup(worker, &cleanup, free_handle, &h);
    kb_error *err = kb_request_wait(ctx, request, NULL);
    if (worker)
        kb_co_pop_cleanup(worker, false);
    free_handle(&h);
    return err;
}
