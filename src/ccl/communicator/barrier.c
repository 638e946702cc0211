/*
 * barrier.c: barriers among workers.
 *
 * A barrier is an epoch whose calls have no kernels: each call is a work that is held until all
 * ranks have joined. A caller that drives all ranks passes at once. Invariant: all ranks leave at
 * one instant, in the order of their ranks.
 */
#include "communicator.h"

static kb_error *barrier_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    (void)step;
    const ccl_op *op = self;
    *over = true;
    if (op->share_count > 0)
        rt_work_hold(work);
    return NULL;
}

static void barrier_done(void *self, const kb_error *err)
{
    ccl_op *op = self;
    op->work = NULL;
    if (err)
        ccl_fail_others(op, err);
    ccl_free_op(op);
}

/* All ranks have joined: releases their works. */
static void open_barrier(ccl_group *group, ccl_epoch *epoch)
{
    epoch->op_count++; /* keeps the epoch until the last release */
    uint32_t last = epoch->first;
    for (uint32_t device = 0; device < group->device_count; device++) {
        if (epoch->ops[device] && device != last)
            rt_work_release(epoch->ops[device]->work, NULL);
    }
    epoch->op_count--;
    rt_work_release(epoch->ops[last]->work, NULL);
}

/* Errors are passed to the work. */
static void join_barrier(ccl_op *op)
{
    ccl_group *group = op->group;
    kb_error *err = ccl_join(op);
    if (err)
        rt_work_release(op->work, err);
    else if (op->epoch->joined_count == op->epoch->expected)
        open_barrier(group, op->epoch);
    else
        ccl_worker_missing(group);
}

/* The rank that joined last has not waited and would continue first. It yields, so that ranks
 * continue in the order of their ranks, and the time of their next calls does not depend on which
 * rank was last. */
static void leave_barrier(kb_context *ctx)
{
    kb_co *worker = kb_context_worker(ctx);
    if (worker)
        kb_co_sleep(worker, 0);
}

/* `drives_all`: the caller drives all ranks, so no other rank has to join. */
static kb_error *barrier(ccl_group *group, uint32_t device, bool drives_all, kb_request *work)
{
    kb_context *ctx = group->state->ctx;
    if (!work)
        KB_TRY(kb_synchronize(ctx));
    ccl_op *op = ccl_new_op(group, drives_all ? 0 : 1);
    if (!op)
        return kb_error_nomem();
    op->signature.kind = KB_BARRIER;
    if (!drives_all)
        op->shares[0].device = device;
    rt_work_options options = {
        .what = "barrier",
        .step = barrier_step,
        .done = barrier_done,
        .self = op,
        .moves_nothing = true,
        .waits_for = "other ranks to join a barrier",
    };
    kb_request request;
    kb_error *err = rt_work_open(ctx, &options, &op->work, &request);
    if (err) {
        ccl_free_op(op);
        return err;
    }
    rt_work_start(op->work);
    if (!drives_all)
        join_barrier(op);
    KB_TRY(ccl_wait_or_return(ctx, request, work));
    if (!work)
        leave_barrier(ctx);
    return NULL;
}

kb_error *ccl_run_barrier(kb_context *ctx, const char *function, const kb_collective *call)
{
    ccl_group *group;
    uint32_t device, count;
    KB_TRY(ccl_find_group(ctx, function, call->options.group, &group, &device, &count));
    bool drives_all = rt_caller_rank(ctx) == RT_DRIVER || group->state->rank_is_pe;
    if (call->options.stream || rt_is_recording(ctx))
        return kb_error_new(KB_ERR_FAULT,
                            "%s: a barrier is between workers: it cannot be in a stream or graph",
                            function);
    return barrier(group, device, drives_all, call->options.work);
}
