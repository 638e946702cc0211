/*
 * copy.c: copies in streams. Contents change when the copy begins: what comes before it in the
 * stream has ended by then, and what comes after it has not begun.
 *
 * Between devices, the PEs that have the data send it: the copy is a command, which is held at the
 * io_cpu of the device that sends. Between the host and a device, the DMA of the host moves the
 * data: the io_cpu signals it to begin. When the last bytes have arrived, the receiver signals the
 * io_cpu: the host, or the cube that has them.
 */
#include "runtime.h"

#include <stdlib.h>

enum { COPY_BYTES = 32 }; /* of a command: from, to, bytes, how */

struct rt_copy {
    kb_context *ctx;
    rt_request *request;
    rt_copy *next; /* of the request */
    rt_node *node;
    rt_flat_copy what;
    const char *label, *stream; /* for reports */
    rt_job *job;                /* between devices, until it is sent off; else NULL */
    bool with_host, to_host;
    uint64_t ticket; /* of the job's command, at the io_cpu */
    uint32_t left;   /* transfers with the host */
    net_completion last;
    uint32_t cause;  /* the record because of which the transfers with the host began */
    tl_races *races; /* NULL: it is not checked */
    uint32_t run;    /* its number there */
};

void rt_copies_free(rt_copy *first)
{
    for (rt_copy *copy = first, *next; copy; copy = next) {
        next = copy->next;
        rt_job_destroy(copy->job);
        tl_races_release(copy->races);
        free(copy);
    }
}

static rt_tensor *target_of(const rt_copy *copy)
{
    return rt_table_get(&copy->ctx->tensors, copy->what.to.id);
}

static rt_tensor *source_of(const rt_copy *copy)
{
    return rt_table_get(&copy->ctx->tensors, copy->what.from.id);
}

/* ---- Races ---- */

static kb_error *check_shards(const rt_copy *copy, const rt_tensor *tensor, bool writes)
{
    for (size_t i = 0; i < tensor->placement.shards.count && !tensor->on_host; i++) {
        if (tensor->placement.shards.items[i].nbytes == 0)
            continue;
        kb_location at = rt_shard_location(tensor, i);
        KB_TRY(tl_races_add_copied(copy->races, copy->run, &at,
                                   tensor->placement.shards.items[i].nbytes, writes));
    }
    return NULL;
}

/* As if a kernel read and wrote all shards. */
static kb_error *begin_check(rt_copy *copy)
{
    KB_TRY(rt_check_begin(copy->ctx, &copy->races));
    if (!copy->races)
        return NULL;
    tl_copy is = {.label = copy->label,
                  .stream = copy->stream,
                  .pe = {.sip = copy->node->sip},
                  .after = copy->node->after};
    KB_TRY(tl_races_begin_copy(copy->races, &is, &copy->run));
    KB_TRY(check_shards(copy, source_of(copy), false));
    return check_shards(copy, target_of(copy), true);
}

static void end_check(rt_copy *copy)
{
    if (copy->races)
        copy->node->over = tl_races_end_copy(copy->races, copy->run);
    rt_check_over(copy->ctx, copy->races);
    copy->races = NULL;
}

/* ---- With the host ---- */

static void end_at_host(rt_copy *copy, kb_error *err)
{
    rt_tensor *to = target_of(copy);
    if (to && to->on_host)
        to->arriving--;
    rt_request_end_part(copy->request, &copy->last, rt_check_close(copy->ctx, err));
}

/* The io_cpu knows that all is there. */
static void on_host_done(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg, (void)completion;
    rt_copy *copy = self;
    end_check(copy);
    rt_node_end(copy->node, NULL);
    end_at_host(copy, NULL);
}

static void send_or_fail(rt_copy *copy, io_message_kind kind, uint32_t cube, net_done_fn *then)
{
    io_message message = {
        .kind = kind, .sip = copy->node->sip, .peer = cube, .done = then, .self = copy};
    kb_error *err = io_send(copy->ctx->control, &message);
    if (err)
        kb_sim_fail(copy->ctx->sim, err);
}

static void transfer_done(void *self, uint64_t arg, const net_completion *completion)
{
    rt_copy *copy = self;
    rt_tell_host_copy(copy->ctx, copy->cause, (uint32_t)(arg >> 32), copy->to_host, completion);
    copy->last = *completion;
    if (--copy->left == 0)
        send_or_fail(copy, copy->to_host ? IO_HOST_SIGNAL : IO_CUBE_SIGNAL, (uint32_t)arg,
                     on_host_done);
}

static kb_error *add_transfer(void *self, const kb_location *at, uint64_t bytes)
{
    rt_copy *copy = self;
    kb_context *ctx = copy->ctx;
    uint32_t node = mem_memories_node(ctx->memories, at);
    net_order order =
        net_make_order_by_nodes(&ctx->routes, ctx->host_node, node, bytes, copy->to_host);
    order.done = transfer_done;
    order.self = copy;
    order.arg = (uint64_t)node << 32 | at->pe.cube;
    copy->cause = kb_oplog_control_cause(ctx->log);
    copy->left++;
    return net_submit(ctx->fabric, &order);
}

static void on_host_told(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg, (void)completion;
    rt_copy *copy = self;
    const rt_tensor *there = copy->to_host ? source_of(copy) : target_of(copy);
    if (!there) { /* freed by a worker that is being stopped */
        send_or_fail(copy, IO_HOST_SIGNAL, 0, on_host_done);
        return;
    }
    mem_box whole = mem_box_whole(&there->placement.shape);
    kb_error *err = rt_each_transfer(there, &whole, copy->to_host, add_transfer, copy);
    if (err)
        kb_sim_fail(copy->ctx->sim, err);
}

static void on_arrival(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg, (void)completion;
    rt_copy *copy = self;
    rt_node_arrived(copy->node);
}

/* ---- Between devices ---- */

static void held(void *self, uint64_t ticket)
{
    rt_copy *copy = self;
    copy->ticket = ticket;
    rt_node_arrived(copy->node);
}

static void joined(void *self, const kb_error *err)
{
    rt_copy *copy = self;
    end_check(copy);
    rt_node_end(copy->node, err);
}

static kb_error *done(void *self, kb_error *err)
{
    const rt_copy *copy = self;
    return rt_check_close(copy->ctx, err);
}

static kb_error *send_job(rt_copy *copy, bool recorded)
{
    rt_job_order order = {
        .recorded = recorded,
        .held = recorded ? NULL : held,
        .joined = joined,
        .done = done,
        .self = copy,
    };
    rt_job *job = copy->job;
    copy->job = NULL;
    return rt_job_submit_ordered(job, copy->request, &order);
}

/* ---- As a node ---- */

/* The part of the request was there from the start; the job adds its own. */
static void drop_part(rt_copy *copy)
{
    rt_request_end_part(copy->request, NULL, NULL);
}

static void cancel(void *self, const kb_error *why);

static void begin(void *self)
{
    rt_copy *copy = self;
    kb_context *ctx = copy->ctx;
    if (!target_of(copy) || !source_of(copy)) {
        kb_error *gone = kb_error_new(KB_ERR_FAULT,
                                      "copy of '%s': a tensor was freed before the "
                                      "copy began",
                                      copy->label);
        cancel(copy, gone);
        kb_error_free(gone);
        return;
    }
    kb_error *err = begin_check(copy);
    if (!err)
        err = rt_flat_contents(ctx, target_of(copy), source_of(copy), &copy->what);
    if (err) {
        kb_sim_fail(ctx->sim, err);
        return;
    }
    if (copy->with_host) {
        send_or_fail(copy, IO_DEVICE_TO_HOST, 0, on_host_told);
    } else if (!copy->node->run) {
        io_release(ctx->control, copy->ticket);
    } else {
        err = send_job(copy, true);
        if (err)
            kb_sim_fail(ctx->sim, err);
        else
            drop_part(copy);
    }
}

static void cancel(void *self, const kb_error *why)
{
    rt_copy *copy = self;
    if (!copy->with_host && !copy->node->run) {
        io_cancel(copy->ctx->control, copy->ticket, kb_error_copy(why));
        return;
    }
    rt_node_end(copy->node, why);
    copy->last =
        (net_completion){.issued = kb_sim_now(copy->ctx->sim), .ended = kb_sim_now(copy->ctx->sim)};
    end_at_host(copy, kb_error_copy(why));
}

static const rt_node_actions copy_actions = {begin, cancel};

static rt_copy *add_copy(rt_request *request, const rt_flat_copy *what)
{
    rt_copy *copy = kb_alloc_zeroed(1, sizeof *copy);
    if (!copy)
        return NULL;
    *copy =
        (rt_copy){.ctx = request->ctx, .request = request, .next = request->copies, .what = *what};
    request->copies = copy;
    return copy;
}

/* Sends the command on its way, unless it is recorded; a part of the request stands for it. */
static kb_error *submit(rt_copy *copy, const rt_tensor *to, const rt_tensor *from,
                        rt_stream *stream)
{
    rt_node_spec spec = {
        .actions = &copy_actions,
        .self = copy,
        .request = copy->request,
        .sip = from->on_host ? to->sip : from->sip,
        .other_sip = to->on_host || from->on_host ? TOPO_NONE : to->sip,
    };
    KB_TRY(rt_node_open(stream, &spec, &copy->node));
    kb_error *err = NULL;
    if (copy->with_host && !stream->run) {
        io_message message = {.kind = IO_HOST_TO_DEVICE,
                              .sip = spec.sip,
                              .bytes = COPY_BYTES,
                              .done = on_arrival,
                              .self = copy};
        err = io_send(copy->ctx->control, &message);
    } else if (!stream->run) {
        err = send_job(copy, false); /* adds the part */
    }
    if (err) {
        copy->node->begun = true;
        rt_node_end(copy->node, NULL);
        return err;
    }
    if (copy->with_host || stream->run)
        rt_request_add_part(copy->request);
    rt_check_open(copy->ctx);
    return NULL;
}

kb_error *rt_copy_start(rt_request *request, const rt_flat_copy *what, rt_stream *stream)
{
    kb_context *ctx = request->ctx;
    rt_tensor *to = rt_table_get(&ctx->tensors, what->to.id);
    rt_tensor *from = rt_table_get(&ctx->tensors, what->from.id);
    if (!to || !from)
        return rt_bad_handle(ctx, "", "tensor", "freed", to ? what->from.id : what->to.id);
    if (to == from || to->bytes == 0)
        return NULL;
    rt_copy *copy = add_copy(request, what);
    if (!copy)
        return kb_error_nomem();
    copy->label = rt_keep_name(ctx, to->name);
    copy->stream = rt_stream_label(stream);
    copy->with_host = to->on_host || from->on_host;
    copy->to_host = to->on_host;
    if (!copy->label)
        return kb_error_nomem();
    KB_TRY(rt_request_use(request, what->to));
    KB_TRY(rt_request_use(request, what->from));
    if (!copy->with_host)
        KB_TRY(rt_make_flat(ctx, to, from, what, &copy->job));
    if (!copy->with_host && !copy->job)
        return NULL;
    request->completion.bytes += copy->with_host ? to->bytes : 0;
    KB_TRY(submit(copy, to, from, stream));
    if (to->on_host)
        to->arriving++;
    return NULL;
}

/* ---- For users ---- */

typedef struct one_copy {
    rt_flat_copy what;
    rt_stream *stream;
    bool failed;
} one_copy;

static kb_error *copy_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    (void)step;
    one_copy *one = self;
    *over = true;
    kb_error *err = rt_copy_start(rt_work_request(work), &one->what, one->stream);
    one->failed = err != NULL;
    return err;
}

static void forget_copy(void *self, const kb_error *err)
{
    (void)self, (void)err;
}

/* What was sent to the tensors outside streams has to be there; what is in streams need not. */
static kb_error *find_both(kb_context *ctx, kb_tensor to_handle, kb_tensor from_handle,
                           rt_tensor **to, rt_tensor **from)
{
    if (rt_table_get(&ctx->tensors, from_handle.id)) /* else there is nothing to wait for */
        KB_TRY(rt_enter(ctx, RT_STREAM_COPY_TO, to_handle, to));
    KB_TRY(rt_enter(ctx, RT_STREAM_COPY_FROM, from_handle, from));
    KB_TRY(rt_enter(ctx, RT_STREAM_COPY_TO, to_handle, to)); /* it may have gone meanwhile */
    if ((*to)->on_host && (*from)->on_host)
        return kb_error_new(KB_ERR_FAULT,
                            "kb_stream_copy: '%s' and '%s' are both on the host: no device takes "
                            "part; call kb_tensor_copy()",
                            (*to)->name, (*from)->name);
    return rt_check_alike(*to, *from);
}

static kb_error *start_copy(kb_context *ctx, one_copy *one, kb_request *request)
{
    const rt_tensor *to = rt_table_get(&ctx->tensors, one->what.to.id);
    rt_work_options options = {
        .what = "copy",
        .label = to->name,
        .step = copy_step,
        .done = forget_copy,
        .self = one,
        .stream = one->stream,
    };
    rt_work *work;
    KB_TRY(rt_work_open(ctx, &options, &work, request));
    rt_work_start(work); /* takes the only step */
    return one->failed ? rt_wait_and_free(ctx, *request) : NULL;
}

kb_error *kb_stream_copy(kb_context *ctx, kb_stream stream, kb_tensor to_handle,
                         kb_tensor from_handle, kb_request *request)
{
    rt_tensor *to, *from;
    kb_request own = {0};
    one_copy one = {.what = {.to = to_handle, .from = from_handle}};
    if (request)
        *request = own;
    KB_TRY(find_both(ctx, to_handle, from_handle, &to, &from));
    if (rt_is_recording(ctx))
        return rt_record_copy(ctx, to_handle, from_handle, stream);
    KB_TRY(rt_find_stream(ctx, "kb_stream_copy", stream, &one.stream));
    one.what.count = to->bytes / kb_dtype_bytes(to->dtype);
    KB_TRY(start_copy(ctx, &one, &own));
    if (!request)
        return kb_request_free(ctx, own);
    *request = own;
    return NULL;
}
