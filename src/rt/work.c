/*
 * work.c: requests that consist of steps: copies, launches, and parts that another module ends. A
 * step begins when all parts of the one before have ended, and none begins once something failed.
 *
 * A work's request has one part that is the work's own, so a step is over when no other is left.
 * Works are in a list of who opened them, the newest first, until they are aborted or their owner
 * goes. Its time is that of the parts that were the last of their steps; what is left is waiting.
 */
#include "runtime.h"

#include <stdlib.h>

struct rt_work {
    kb_context *ctx;
    rt_request *request;
    rt_step_fn *step;
    void (*done)(void *self, const kb_error *err);
    void *self;
    rt_stream *stream; /* NULL: none */
    uint32_t next_step;
    uint32_t held;  /* parts that are still to be released */
    bool is_over;   /* no step is left */
    bool advancing; /* a step is about to begin, and those behind it that take no time */
    kb_time overhead, wire, drain; /* of the steps that are over */
    rt_work **list;
    rt_work *next, *prev;
};

static void move_to(rt_work *work, rt_work **list)
{
    KB_LIST_TAKE_OUT(*work->list, work);
    work->list = list;
    KB_LIST_PUSH(*list, work);
}

/* ---- Steps ---- */

/* The part that ended last has left its times in the request: adds them up. */
static void add_times(rt_work *work)
{
    kb_completion *completion = &work->request->completion;
    work->overhead += completion->overhead;
    work->wire += completion->wire;
    work->drain += completion->drain;
    completion->overhead = completion->wire = completion->drain = completion->queueing = 0;
}

static void end_work(rt_work *work)
{
    rt_request *request = work->request;
    net_completion completion = {
        .issued = request->completion.issued,
        .ended = kb_sim_now(work->ctx->sim),
        .overhead = work->overhead,
        .wire = work->wire,
        .drain = work->drain,
    };
    completion.queueing = completion.ended - completion.issued;
    completion.queueing -= completion.overhead + completion.wire + completion.drain;
    request->work = NULL;
    work->done(work->self, request->error);
    KB_LIST_TAKE_OUT(*work->list, work);
    free(work);
    rt_request_end_part(request, &completion, NULL);
}

void rt_work_advance(rt_work *work)
{
    rt_request *request = work->request;
    if (work->advancing)
        return;
    work->advancing = true;
    add_times(work);
    while (request->parts == 1 && !work->is_over && !request->error) {
        kb_error *err = work->step(work->self, work, work->next_step++, &work->is_over);
        if (!request->error)
            request->error = err;
        else
            kb_error_free(err);
    }
    work->advancing = false;
    if (request->parts == 1)
        end_work(work);
}

/* ---- For those who do things in works ---- */

kb_error *rt_work_open(kb_context *ctx, const rt_work_options *options, rt_work **out,
                       kb_request *handle)
{
    rt_request *request;
    *out = NULL;
    *handle = (kb_request){0};
    rt_work *work = kb_alloc_zeroed(1, sizeof *work);
    if (!work)
        return kb_error_nomem();
    kb_error *err = rt_request_open(ctx, options->what, options->label, &request);
    if (err) {
        free(work);
        return err;
    }
    if (options->moves_nothing)
        rt_request_moves_nothing(request);
    else
        rt_request_is_launch(request, !options->stream);
    if (options->stream && !options->stream->run) /* else the graph is */
        rt_request_in_stream(request, options->stream);
    if (options->waits_for)
        kb_waitlist_init(&request->waiters, options->waits_for);
    *work = (rt_work){
        .ctx = ctx,
        .request = request,
        .step = options->step,
        .done = options->done,
        .self = options->self,
        .stream = options->stream,
    };
    work->list = &request->owner->works;
    KB_LIST_PUSH(*work->list, work);
    request->work = work;
    *handle = rt_request_handle(request);
    *out = work;
    return NULL;
}

rt_request *rt_work_request(const rt_work *work)
{
    return work->request;
}

void rt_work_start(rt_work *work)
{
    rt_work_advance(work);
}

kb_error *rt_work_use(rt_work *work, kb_tensor tensor)
{
    return rt_request_use(work->request, tensor);
}

kb_error *rt_work_launch(rt_work *work, const rt_launch_spec *spec)
{
    return rt_launch_on(work->request, spec, work->stream);
}

static kb_error *find_tensor(kb_context *ctx, kb_tensor handle, rt_tensor **tensor)
{
    *tensor = rt_table_get(&ctx->tensors, handle.id);
    if (*tensor)
        return NULL;
    return rt_bad_handle(ctx, "", "tensor", "freed", handle.id);
}

kb_error *rt_work_copy(rt_work *work, const rt_flat_copy *copy)
{
    rt_tensor *to, *from;
    KB_TRY(find_tensor(work->ctx, copy->to, &to));
    KB_TRY(find_tensor(work->ctx, copy->from, &from));
    if (work->stream)
        return rt_copy_start(work->request, copy, work->stream);
    return rt_copy_flat(work->request, to, from, copy);
}

void rt_work_hold(rt_work *work)
{
    work->held++;
    rt_request_add_part(work->request);
}

void rt_work_release(rt_work *work, kb_error *err)
{
    if (work->held == 0) { /* it was aborted */
        kb_error_free(err);
        return;
    }
    work->held--;
    rt_request_end_part(work->request, NULL, err);
}

void rt_work_add_part(rt_work *work)
{
    rt_request_add_part(work->request);
}

void rt_work_end_part(rt_work *work, kb_error *err)
{
    rt_request_end_part(work->request, NULL, err);
}

/* ---- Ends that come from outside ---- */

/* Each kernel gets a copy of the reason: so without its detail, which may be long. */
void rt_work_stop(rt_work *work, const kb_error *why)
{
    kb_error *brief = kb_error_new(kb_error_code(why), "%s", kb_error_message(why));
    for (rt_launch *launch = work->request->launches; launch; launch = rt_launch_next(launch))
        rt_launch_stop(launch, brief);
    for (rt_node *node = work->request->nodes; node; node = node->next)
        rt_node_cancel(node, brief);
    kb_error_free(brief);
}

void rt_work_abort(rt_work *work, const kb_error *why)
{
    rt_request *request = work->request;
    if (!request->error)
        request->error = kb_error_copy(why);
    move_to(work, &work->ctx->loose_works);
    if (request->launches || request->nodes)
        rt_work_stop(work, why);
    request->parts -= work->held;
    work->held = 0;
    if (request->parts == 1)
        rt_work_advance(work);
}

void rt_works_abort(rt_caller *caller, const kb_error *why)
{
    while (caller->works)
        rt_work_abort(caller->works, why);
}

bool rt_works_abort_all(kb_context *ctx, const kb_error *why)
{
    bool any = ctx->driver.works;
    rt_works_abort(&ctx->driver, why);
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        any = any || ctx->workers[rank].works;
        rt_works_abort(&ctx->workers[rank], why);
    }
    return any;
}

void rt_works_disown(rt_caller *caller)
{
    while (caller->works) {
        rt_work *work = caller->works;
        move_to(work, &work->ctx->loose_works);
    }
}

/* All lists of works of the context, one after the other: 0 is the driver's. */
static rt_work *list_at(const kb_context *ctx, uint32_t index)
{
    if (index == 0)
        return ctx->driver.works;
    return index <= ctx->worker_count ? ctx->workers[index - 1].works : ctx->loose_works;
}

/* If a kernel of the work has failed, all of its kernels are stopped. */
static void stop_if_failed(rt_work *work)
{
    const kb_error *failure = NULL;
    for (rt_launch *launch = work->request->launches; launch && !failure;
         launch = rt_launch_next(launch))
        failure = rt_launch_failure(launch);
    if (failure)
        rt_work_stop(work, failure);
}

/* Stopping kernels ends no work at once: their completions have to travel. So lists stay. */
static void on_stop(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)arg;
    kb_context *ctx = self;
    ctx->stop_pending = false;
    for (uint32_t list = 0; list < ctx->worker_count + 2; list++)
        for (rt_work *work = list_at(ctx, list); work; work = work->next)
            stop_if_failed(work);
}

void rt_works_stop_soon(kb_context *ctx)
{
    if (ctx->stop_pending)
        return;
    /* Behind all else of the instant: not in the middle of the one that failed. */
    ctx->stop_pending = kb_sim_after(ctx->sim, &ctx->after_all, 0, ctx->on_stop, 0).slot != 0;
}

kb_error *rt_works_init(kb_context *ctx)
{
    return kb_sim_add_handler(ctx->sim, on_stop, ctx, &ctx->on_stop);
}

static void free_list(rt_work *first)
{
    for (rt_work *work = first, *next; work; work = next) {
        next = work->next;
        free(work);
    }
}

void rt_works_fini(kb_context *ctx)
{
    free_list(ctx->driver.works);
    free_list(ctx->loose_works);
}
