/*
 * call.c: a collective from the call to its end.
 *
 *     checked > joins its epoch > waits for transfers, mappings and queues > started > done
 *
 * All errors in the arguments are found before the call joins its epoch. The caller waits until the
 * tensors and queues can be used, also in asynchronous calls. Then the call is a work of the
 * runtime: copies into staging tensors, launch, copies out of them. launch_order.c has the order of
 * launches.
 *
 * A call belongs to its group until it is done. If its worker is stopped while it waits, or the
 * call fails, its epoch fails on the other ranks, which would otherwise wait forever.
 */
#include "communicator.h"

#include <stdlib.h>

/* ---- Creation and end ---- */

ccl_op *ccl_new_op(ccl_group *group, uint32_t shares)
{
    ccl_op *op = kb_alloc_zeroed(1, sizeof *op);
    if (!op)
        return NULL;
    op->shares = kb_alloc_zeroed(shares, sizeof *op->shares);
    if (!op->shares) {
        free(op);
        return NULL;
    }
    op->share_count = shares;
    op->group = group;
    op->next = group->ops;
    group->ops = op;
    return op;
}

void ccl_free_op(ccl_op *op)
{
    ccl_op **link = &op->group->ops;
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    ccl_leave(op);
    ccl_release_staging(op);
    ccl_free_shares(op);
    kb_text_fini(&op->awaited);
    free(op);
}

void ccl_free_calls(ccl_group *group)
{
    while (group->ops)
        ccl_free_op(group->ops);
}

void ccl_fail_others(ccl_op *op, const kb_error *why)
{
    if (!op->epoch || op->epoch->error)
        return;
    uint32_t rank = op->group->global_ranks[op->shares[0].device];
    kb_text name = KB_TEXT_INIT;
    ccl_print_epoch(op->group, op->epoch, &name);
    kb_error *err = kb_error_wrap(kb_error_copy(why), "%s: rank %u", kb_text_peek(&name), rank);
    kb_text_fini(&name);
    ccl_fail_epoch(op->group, op->epoch, err);
    kb_error_free(err);
}

static void note_stats(const ccl_op *op)
{
    for (size_t i = 0; i < op->share_count; i++)
        op->group->last[op->shares[i].device] = (ccl_last){
            .instance = op->instance,
            .kind = op->signature.kind,
            .dtype = op->signature.dtype,
            .memory = op->memory,
            .size = op->size,
            .part = op->part,
        };
}

/* ---- Steps of the work ---- */

static kb_error *launch(const ccl_op *op)
{
    const ccl_entry *entry = op->instance->entry;
    for (size_t i = 0; i < op->share_count; i++) {
        const ccl_share *share = &op->shares[i];
        if (share->target_count == 0)
            continue;
        rt_launch_spec spec = {
            .name = entry->name,
            .kernel = entry->algorithm->kernel,
            .sip = op->group->sips[share->device],
            .queues = op->instance->queues,
            .targets = share->targets,
            .target_count = share->target_count,
        };
        KB_TRY(rt_work_launch(op->work, &spec));
    }
    return NULL;
}

/* Launches, and releases the calls that waited for it. */
static kb_error *launch_in_order(ccl_op *op)
{
    kb_error *err = launch(op);
    if (op->epoch)
        op->epoch->launched = true;
    ccl_remove_pending(op);
    ccl_release_runnable(op->group->state);
    return err;
}

static kb_error *op_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    enum { AWAIT_TENSORS, COPY_IN, AWAIT_TURN, LAUNCH, COPY_OUT }; /* then: check queues */
    ccl_op *op = self;
    if (step == COPY_IN)
        return ccl_copy_in(op);
    if (step == AWAIT_TENSORS || step == AWAIT_TURN) {
        op->ready = step == AWAIT_TURN;
        op->blocked = !ccl_can_continue(op);
        if (op->blocked)
            rt_work_hold(work);
        return NULL;
    }
    if (step == LAUNCH)
        return launch_in_order(op);
    if (step == COPY_OUT)
        return ccl_copy_out(op);
    *over = true;
    return ccl_check_queues(op);
}

static kb_error *use_tensors(const ccl_op *op)
{
    for (size_t i = 0; i < op->share_count; i++) {
        const ccl_share *share = &op->shares[i];
        KB_TRY(rt_work_use(op->work, share->input));
        KB_TRY(rt_work_use(op->work, share->output));
    }
    return NULL;
}

static kb_error *submit_all(ccl_op *op)
{
    KB_TRY(use_tensors(op));
    KB_TRY(ccl_copy_in(op));
    KB_TRY(launch(op));
    if (op->epoch)
        op->epoch->launched = true;
    return ccl_copy_out(op);
}

/* In a stream the devices keep the order, so everything is submitted at once. A partial submission
 * would leave kernels that wait for missing ones: after an error the work stops. */
static kb_error *stream_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    ccl_op *op = self;
    if (step > 0) {
        *over = true;
        return ccl_check_queues(op);
    }
    kb_error *err = submit_all(op);
    if (err)
        rt_work_stop(work, err);
    return err;
}

static void op_done(void *self, const kb_error *err)
{
    ccl_op *op = self;
    const ccl_state *state = op->group->state;
    rt_work *graph = op->graph;
    op->work = NULL;
    ccl_remove_pending(op);
    op->instance->launched--;
    if (err) {
        op->instance->stale = true; /* also if there is no epoch */
        ccl_fail_others(op, err);
    } else {
        note_stats(op);
    }
    ccl_free_op(op);
    ccl_release_runnable(state);
    if (graph)
        rt_work_end_part(graph, err ? kb_error_copy(err) : NULL);
}

/* "send to rank 1" */
static void print_pair(const ccl_op *op, kb_text *text)
{
    kb_text_printf(text, "%s rank %u", op->signature.kind == KB_SEND ? "send to" : "receive from",
                   op->group->global_ranks[op->signature.root]);
    ccl_print_group(op->group, text);
}

/* For reports: what a rank waits for. */
static const char *describe_wait(ccl_op *op)
{
    kb_text *text = &op->awaited;
    const ccl_op *unmatched = ccl_find_unmatched(op);
    if (!op->epoch) {
        kb_text_puts(text, kb_collective_name(op->signature.kind));
    } else if (ccl_is_pair(op->signature.kind)) {
        kb_text_puts(text, "a ");
        print_pair(op, text);
    } else {
        ccl_print_epoch(op->group, op->epoch, text);
        kb_text_puts(text, ", among its ranks");
    }
    if (unmatched) { /* stays true later: it says "called while .. waited" */
        kb_text_puts(text, ", called while a ");
        print_pair(unmatched, text);
        kb_text_puts(text, " waited");
    }
    return kb_text_peek(text);
}

/* From here on the work owns the op. */
static kb_error *start(ccl_op *op, kb_request *request)
{
    rt_work_options options = {
        .what = kb_collective_name(op->signature.kind),
        .label = op->instance->entry->name,
        .step = op->stream ? stream_step : op_step,
        .done = op_done,
        .self = op,
        .waits_for = describe_wait(op),
        .stream = op->stream,
    };
    KB_TRY(rt_work_open(op->group->state->ctx, &options, &op->work, request));
    op->sequence = ++op->group->state->last_sequence;
    op->instance->launched++;
    if (op->epoch)
        op->epoch->begun = true;
    if (!op->stream)
        ccl_append_pending(op);
    rt_work_start(op->work);
    return NULL;
}

/* ---- Before the start ---- */

/* Sets entry and layout: the first call of an epoch chooses for all. */
static kb_error *select_for_epoch(ccl_op *op, bool drives_all)
{
    ccl_group *group = op->group;
    const ccl_epoch *epoch =
        drives_all ? NULL : ccl_peek_epoch(group, op->shares[0].device, &op->signature);
    if (epoch) {
        op->instance = epoch->instance;
        op->lane_layout = epoch->lane_layout;
        return NULL;
    }
    KB_TRY(ccl_select(op));
    return op->instance->lanes ? ccl_choose_layout(op) : NULL;
}

static kb_error *failure_of(const ccl_op *op)
{
    bool failed = op->epoch && op->epoch->error;
    return failed ? kb_error_copy(op->epoch->error) : NULL;
}

/* All waiting before the start. */
static kb_error *await_resources(ccl_op *op)
{
    kb_context *ctx = op->group->state->ctx;
    for (size_t i = 0; i < op->share_count; i++) {
        if (op->shares[i].input.id != 0)
            KB_TRY(rt_wait_for_tensor(ctx, op->shares[i].input));
        if (op->shares[i].output.id != 0)
            KB_TRY(rt_wait_for_tensor(ctx, op->shares[i].output));
    }
    KB_TRY(ccl_install(op->group, op->instance));
    if (op->instance->lanes)
        KB_TRY(ccl_stage_tensors(op));
    if (!op->epoch || !op->epoch->begun)
        KB_TRY(ccl_reset_stale_queues(op->group, op->instance));
    return failure_of(op);
}

static kb_error *prepare(ccl_op *op)
{
    KB_TRY(failure_of(op));
    if (!op->instance->lanes)
        KB_TRY(ccl_validate(op));
    KB_TRY(await_resources(op));
    return ccl_make_targets(op);
}

/* The worker is stopped while it waits. */
static void abandon(void *arg)
{
    ccl_op *op = arg;
    kb_error *why = kb_error_new(KB_ERR_FAULT, "its worker was stopped");
    ccl_fail_others(op, why);
    kb_error_free(why);
    ccl_free_op(op);
}

static kb_error *prepare_in_worker(ccl_op *op)
{
    kb_co *worker = kb_context_worker(op->group->state->ctx);
    kb_cleanup cleanup;
    if (worker)
        kb_co_push_cleanup(worker, &cleanup, abandon, op);
    kb_error *err = prepare(op);
    if (worker)
        kb_co_pop_cleanup(worker, false);
    return err;
}

/* Frees the op on failure. */
static kb_error *join_and_prepare(ccl_op *op, bool drives_all)
{
    kb_error *err = select_for_epoch(op, drives_all);
    if (!err && !drives_all) {
        err = ccl_join(op);
        if (!err)
            ccl_worker_missing(op->group);
    }
    if (!err)
        err = prepare_in_worker(op);
    if (err)
        ccl_drop_call(op, err);
    return err;
}

void ccl_drop_call(ccl_op *op, const kb_error *why)
{
    ccl_fail_others(op, why);
    ccl_free_op(op);
}

kb_error *ccl_prepare_call(kb_context *ctx, const char *function, const kb_collective *call,
                           ccl_op **out)
{
    ccl_group *group;
    uint32_t device, count;
    *out = NULL;
    KB_TRY(ccl_find_group(ctx, function, call->options.group, &group, &device, &count));
    bool drives_all = rt_caller_rank(ctx) == RT_DRIVER || group->state->rank_is_pe;
    ccl_op *op = ccl_new_op(group, count);
    if (!op)
        return kb_error_nomem();
    kb_error *err = ccl_check_call(group, call, device, count, op);
    if (err) {
        ccl_free_op(op);
        return kb_error_wrap(err, "%s", function);
    }
    KB_TRY(join_and_prepare(op, drives_all));
    *out = op;
    return NULL;
}

kb_error *ccl_start_call(ccl_op *op, struct rt_stream *stream, rt_work *graph, kb_request *request)
{
    op->stream = stream;
    op->graph = graph;
    kb_error *err = start(op, request);
    if (err)
        ccl_drop_call(op, err);
    return err;
}

kb_error *ccl_wait_or_return(kb_context *ctx, kb_request request, kb_request *work)
{
    if (!work)
        return rt_wait_and_free(ctx, request);
    *work = request;
    return NULL;
}
