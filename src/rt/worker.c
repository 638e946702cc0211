/*
 * worker.c: callers: workers and the host program, how they wait, and their current devices.
 *
 * Workers are coroutines whose source ids come before all of the machine's: at
 * every instant all that can go on do, in the order of ranks, before the machine moves. Outside
 * workers there is one caller, the driver, whose waiting runs the simulator.
 *
 * What one instant cannot decide is left to events behind others: the end of a run in which a
 * worker has failed comes behind all else of its instant, so that others that fail then are heard
 * too; and the next turn of those that yield behind all workers, as well as what is said of workers
 * that have ended.
 */
#include "runtime.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Turns that yielding workers get while something is under way that cannot go on without them: so
 * many will do for all that they may want to do first. */
enum { MAX_VAIN_TURNS = 1 << 16 };

/* ---- Who calls ---- */

static rt_caller *worker_of(const kb_context *ctx, const kb_co *co)
{
    if (!co || !ctx->workers)
        return NULL;
    rt_caller *worker = kb_co_arg(co);
    bool ours = worker >= ctx->workers && worker < ctx->workers + ctx->worker_count;
    return ours && worker->co == co ? worker : NULL;
}

rt_caller *rt_caller_of(kb_context *ctx)
{
    rt_caller *worker = worker_of(ctx, kb_sim_current(ctx->sim));
    return worker ? worker : &ctx->driver;
}

kb_co *kb_context_worker(kb_context *ctx)
{
    kb_co *co = kb_sim_current(ctx->sim);
    return worker_of(ctx, co) ? co : NULL;
}

static void caller_init(rt_caller *caller, kb_context *ctx, uint32_t rank)
{
    *caller = (rt_caller){.ctx = ctx, .rank = rank, .device = ctx->limited ? ctx->only_sip : 0};
    kb_waitlist_init(&caller->idle, "its transfers to end");
}

void rt_caller_fini(rt_caller *caller)
{
    kb_error_free(caller->error);
}

/* ---- Devices ---- */

kb_error *kb_ahbm_set_device(kb_context *ctx, uint32_t sip)
{
    if (sip >= ctx->shape->sips)
        return kb_error_new(KB_ERR_INPUT,
                            "kb_ahbm_set_device: no such device %u: the machine has %u, "
                            "numbered from 0",
                            sip, ctx->shape->sips);
    rt_caller *caller = rt_caller_of(ctx);
    caller->device = sip;
    caller->device_set = true;
    return NULL;
}

uint32_t kb_ahbm_current_device(kb_context *ctx)
{
    rt_caller *caller = rt_caller_of(ctx);
    bool several = caller != &ctx->driver && ctx->worker_count > 1;
    if (several && !caller->device_set && !caller->device_warned && !ctx->limited) {
        caller->device_warned = true; /* first: the warning callback may ask again */
        rt_debug_warn(ctx, "rank %u uses device 0 by default: call kb_ahbm_set_device() first",
                      caller->rank);
    }
    return caller->device;
}

bool kb_ahbm_device_is_set(kb_context *ctx)
{
    return rt_caller_of(ctx)->device_set;
}

uint32_t kb_ahbm_device_count(const kb_context *ctx)
{
    return ctx->shape->sips;
}

kb_error *kb_accelerator_set_device_index(kb_context *ctx, uint32_t sip)
{
    return kb_ahbm_set_device(ctx, sip);
}

uint32_t kb_accelerator_current_device_index(kb_context *ctx)
{
    return kb_ahbm_current_device(ctx);
}

/* ---- Waiting ---- */

kb_error *rt_check_whole(const kb_context *ctx)
{
    if (!ctx->broken)
        return NULL;
    return kb_error_new(KB_ERR_HOST, "the simulation ran out of host memory before and cannot "
                                     "continue");
}

/* Whether the caller may run the machine: it is whole, and the caller neither worker nor handler.
 */
static kb_error *check_driver(const kb_context *ctx)
{
    KB_TRY(rt_check_whole(ctx));
    if (!kb_sim_is_running(ctx->sim))
        return NULL;
    return kb_error_new(KB_ERR_BUG, "event handlers cannot wait or spawn");
}

/* Times and contents are computed with numbers that are rounded to nearest. */
static kb_error *check_rounding(void)
{
    if (fegetround() == FE_TONEAREST)
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "the program has changed the rounding mode (fesetround): set "
                                      "it back to FE_TONEAREST before KernBench is called");
}

/* What the machine has no memory for while it runs is lost, so it must not go on from there. */
static kb_error *run_machine(kb_context *ctx, kb_time until)
{
    KB_TRY(check_rounding());
    kb_error *err = kb_sim_run(ctx->sim, until);
    ctx->broken = kb_error_code(err) == KB_ERR_HOST;
    return err ? err : check_rounding(); /* a kernel may have changed it */
}

/* Nothing will happen any more. If works are under way, they end with the error, for their waiters;
 * else the caller gets it. Takes the error over. */
static kb_error *give_up(kb_context *ctx, kb_error *err)
{
    ctx->deadlock_at = kb_sim_now(ctx->sim);
    err = ipcq_explain_deadlock(ctx->queues, err);
    if (!rt_works_abort_all(ctx, err))
        return err;
    kb_error_free(err);
    return NULL;
}

static kb_error *drive(kb_context *ctx)
{
    KB_TRY(check_driver(ctx));
    bool hopeless = kb_sim_next_time(ctx->sim) == KB_FOREVER;
    ctx->driver_waits = true;
    kb_error *err = run_machine(ctx, KB_FOREVER); /* if it is: tells who else waits */
    ctx->driver_waits = false;
    if (hopeless && !err)
        err = kb_error_new(KB_ERR_DEADLOCK, "the program waits for an event that never happens");
    return kb_error_code(err) == KB_ERR_DEADLOCK ? give_up(ctx, err) : err;
}

static kb_error *check_unwinding(const kb_co *co)
{
    if (!kb_co_is_unwinding(co))
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "%s is being stopped and cannot wait", kb_co_name(co));
}

kb_error *rt_block_on(kb_context *ctx, kb_waitlist *list)
{
    kb_co *co = kb_sim_current(ctx->sim);
    if (!co)
        return drive(ctx);
    KB_TRY(check_unwinding(co));
    kb_wait(co, list);
    ctx->went_on = true;
    return NULL;
}

kb_error *rt_settle(rt_caller *caller)
{
    while (caller->under_way > 0)
        KB_TRY(rt_block_on(caller->ctx, &caller->idle));
    rt_observe(caller->ctx, caller->over);
    return rt_take_faults(caller);
}

kb_error *rt_settle_others(kb_context *ctx)
{
    rt_caller *caller = rt_caller_of(ctx);
    while (caller->under_way > caller->streamed)
        KB_TRY(rt_block_on(ctx, &caller->idle));
    return rt_take_faults(caller);
}

kb_error *rt_settle_streams(kb_context *ctx)
{
    rt_caller *caller = rt_caller_of(ctx);
    while (caller->streamed > 0)
        KB_TRY(rt_block_on(ctx, &caller->idle));
    rt_observe(ctx, caller->over);
    return rt_take_faults(caller);
}

kb_error *rt_wait_for_transfers(rt_caller *caller)
{
    while (caller->under_way > caller->launches)
        KB_TRY(rt_block_on(caller->ctx, &caller->idle));
    return rt_take_faults(caller);
}

kb_error *kb_synchronize(kb_context *ctx)
{
    KB_TRY(rt_refuse_recording(ctx, "kb_synchronize"));
    return rt_settle(rt_caller_of(ctx));
}

/* Contents are shown when all that the caller has under way is over; they are changed, and freed,
 * when none of it in streams uses them, unless the caller is being stopped. */
static bool has_to_wait(kb_context *ctx, const rt_call_entry *entry, const rt_tensor *tensor)
{
    const kb_co *co = kb_sim_current(ctx->sim);
    bool used = tensor->arriving > 0 || tensor->in_use > 0;
    if (entry->shows_contents)
        return !(entry->host_has && tensor->on_host && !used);
    return (entry->changes_contents || entry->frees) && tensor->in_use > 0 &&
           !(co && kb_co_is_unwinding(co));
}

kb_error *rt_enter(kb_context *ctx, rt_call call, kb_tensor handle, rt_tensor **tensor)
{
    const rt_call_entry *entry = &rt_calls[call];
    *tensor = rt_table_get(&ctx->tensors, handle.id);
    if (entry->shows_contents || entry->changes_contents)
        KB_TRY(rt_refuse_recording(ctx, entry->function));
    bool transfers = entry->waits_for_transfers && !rt_is_recording(ctx);
    if (*tensor && (transfers || has_to_wait(ctx, entry, *tensor))) {
        KB_TRY(transfers ? rt_wait_for_transfers(rt_caller_of(ctx)) : rt_settle(rt_caller_of(ctx)));
        *tensor = rt_table_get(&ctx->tensors, handle.id); /* it may have gone meanwhile */
    }
    if (*tensor)
        return NULL;
    kb_error *err =
        rt_bad_handle(ctx, entry->argument ? entry->argument : "", "tensor", "freed", handle.id);
    return kb_error_wrap(err, "%s", entry->function);
}

/* ---- Yielding ---- */

static void give_turn(kb_context *ctx)
{
    ctx->turn = (kb_event){0};
    ctx->went_on = false;
    ctx->turn_pending = false;
    ctx->turn_at_end = false;
    kb_wake_all(ctx->sim, &ctx->yielders);
}

/* Workers have gone. A turn that they were to have must not come to those after them; nor may the
 * driver, when it lets time pass, find an event there. */
static void forget_turn(kb_context *ctx)
{
    if (ctx->yielders.head) /* a coroutine of the program's own, which goes on */
        return;
    (void)kb_sim_cancel(ctx->sim, ctx->turn);
    ctx->turn = (kb_event){0};
    ctx->turn_at_end = ctx->turn_pending = false;
}

/* Kernels wait for each other, and workers ask again and again whether they are done. */
static void fail_in_vain(kb_context *ctx)
{
    ctx->turn_pending = false;
    kb_text now = KB_TEXT_INIT;
    kb_text_append_ns(&now, kb_sim_now(ctx->sim));
    kb_sim_fail(ctx->sim, kb_error_new(KB_ERR_DEADLOCK,
                                       "deadlock at %s ns: no pending events after %d yields "
                                       "of the workers",
                                       kb_text_peek(&now), MAX_VAIN_TURNS));
    kb_text_fini(&now);
}

/*
 * All workers that could go on at this instant have. If none did, time has to pass: until a request
 * ends, or if none is under way until the next event, which then is the program's own. Not until
 * the machine's next event: which those are depends on how it is simulated.
 */
static void on_turn(kb_sim *sim, void *self, uint64_t arg)
{
    (void)arg;
    kb_context *ctx = self;
    if (ctx->ends.slot != 0) { /* first, so that the next event is none of ours */
        ctx->turn = kb_sim_after(sim, &ctx->after_workers, 0, ctx->on_turn, 0);
        return;
    }
    kb_time next = kb_sim_next_time(sim);
    bool in_vain = !ctx->went_on && next == KB_FOREVER && ctx->moving > 0;
    ctx->vain_turns = in_vain ? ctx->vain_turns + 1 : 0;
    if (ctx->vain_turns > MAX_VAIN_TURNS)
        fail_in_vain(ctx);
    else if (ctx->went_on || next == KB_FOREVER)
        give_turn(ctx);
    else if (ctx->moving > 0)
        ctx->turn_at_end = true;
    else
        ctx->turn = kb_sim_at(sim, &ctx->after_all, next, ctx->on_step, 0);
}

static void on_step(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)arg;
    give_turn(self);
}

void rt_request_ended(kb_context *ctx)
{
    if (ctx->turn_at_end) {
        ctx->turn_at_end = false;
        ctx->turn = kb_sim_after(ctx->sim, &ctx->after_all, 0, ctx->on_step, 0);
    }
    if (ctx->driver_waits)
        kb_sim_stop(ctx->sim);
}

kb_error *kb_cooperative_yield(kb_context *ctx)
{
    kb_co *co = kb_sim_current(ctx->sim);
    if (!co) {
        KB_TRY(check_driver(ctx));
        kb_time next = kb_sim_next_time(ctx->sim);
        if (ctx->moving > 0)
            return drive(ctx);
        return next == KB_FOREVER ? NULL : run_machine(ctx, next);
    }
    KB_TRY(check_unwinding(co));
    if (!ctx->turn_pending) {
        ctx->turn = kb_sim_after(ctx->sim, &ctx->after_workers, 0, ctx->on_turn, 0);
        ctx->turn_pending = ctx->turn.slot != 0;
    }
    kb_wait(co, &ctx->yielders);
    return NULL;
}

/* ---- Spawning ---- */

/* All has happened that happens at the instant at which a worker failed. */
static void on_failure(kb_sim *sim, void *self, uint64_t arg)
{
    (void)arg;
    kb_context *ctx = self;
    ctx->halted = true;
    kb_sim_stop(sim);
}

/* All workers have gone on that could when some of them ended: who waits for these does so by now.
 */
static void on_ends(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)arg;
    kb_context *ctx = self;
    ctx->ends = (kb_event){0};
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        rt_caller *worker = &ctx->workers[rank];
        if (!worker->to_be_told_of)
            continue;
        worker->to_be_told_of = false;
        worker->told_of = true;
        for (int layer = 0; layer < RT_LAYERS; layer++)
            if (ctx->layers[layer].hooks && ctx->layers[layer].hooks->worker_ended)
                ctx->layers[layer].hooks->worker_ended(ctx->layers[layer].self, rank);
    }
}

static void tell_of_end(rt_caller *worker)
{
    kb_context *ctx = worker->ctx;
    worker->to_be_told_of = true;
    if (ctx->ends.slot == 0)
        ctx->ends = kb_sim_after(ctx->sim, &ctx->after_workers, 0, ctx->on_ends, 0);
}

static void worker_main(kb_co *co, void *arg)
{
    (void)co;
    rt_caller *worker = arg;
    kb_context *ctx = worker->ctx;
    ctx->went_on = true;
    worker->error = worker->fn(ctx, worker->rank, worker->arg);
    worker->ended = true;
    if (!worker->error) {
        tell_of_end(worker);
        worker->error = rt_settle(worker);
    }
    if (worker->error && ctx->failure.slot == 0)
        ctx->failure = kb_sim_after(ctx->sim, &ctx->after_all, 0, ctx->on_failure, 0);
}

static void worker_gone(void *arg)
{
    rt_caller *worker = arg;
    worker->co = NULL;
    if (!worker->ended && !worker->ctx->halted) { /* by kb_co_exit() or kb_co_kill() */
        worker->ended = true;
        tell_of_end(worker);
    }
    if (--worker->ctx->workers_alive == 0)
        kb_sim_stop(worker->ctx->sim);
}

static kb_error *start_workers(kb_context *ctx, kb_worker_fn *fn, void *arg)
{
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        rt_caller *worker = &ctx->workers[rank];
        caller_init(worker, ctx, rank);
        worker->fn = fn;
        worker->arg = arg;
        char name[32];
        snprintf(name, sizeof name, "rank %u", rank);
        kb_co_options options = {.name = name, .source_id = rank, .on_end = worker_gone};
        KB_TRY(kb_co_spawn(ctx->sim, &options, worker_main, worker, &worker->co));
        ctx->workers_alive++;
    }
    return NULL;
}

/* Waits for what those left who did not get to the end of worker_main(). */
static void settle_workers(kb_context *ctx)
{
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++)
        ctx->workers[rank].error = rt_settle(&ctx->workers[rank]);
}

/* Unwinds those that are left. Their errors do not count: they were asked to stop. */
static void unwind_workers(kb_context *ctx)
{
    ctx->halted = true;
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++) {
        rt_caller *worker = &ctx->workers[rank];
        if (worker->co)
            kb_co_kill(worker->co);
    }
}

/* Lets the machine finish what it was given, whatever events of the program may say to that. */
static void drain(kb_context *ctx)
{
    bool can_move = true;
    while (ctx->under_way > 0 && can_move) {
        kb_error *err = drive(ctx);
        can_move = !ctx->broken && kb_error_code(err) != KB_ERR_DEADLOCK;
        kb_error_free(err);
    }
}

static uint32_t count_failed(const kb_context *ctx)
{
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++)
        failed += ctx->workers[rank].error != NULL;
    return failed;
}

static kb_error *check_spawn(kb_context *ctx, kb_worker_fn *fn, uint32_t nprocs)
{
    kb_co *co = kb_sim_current(ctx->sim);
    if (worker_of(ctx, co))
        return kb_error_new(KB_ERR_INPUT, "kb_spawn: %s is a worker itself; spawn from outside",
                            kb_co_name(co));
    if (co)
        return kb_error_new(KB_ERR_INPUT, "kb_spawn: not inside the coroutine '%s'",
                            kb_co_name(co));
    KB_TRY(check_driver(ctx));
    if (!fn)
        return kb_error_new(KB_ERR_INPUT, "kb_spawn: no function was given");
    if (nprocs < 1 || nprocs > RT_MAX_WORKERS)
        return kb_error_new(KB_ERR_INPUT, "kb_spawn: %u workers; expected 1 to %d", nprocs,
                            RT_MAX_WORKERS);
    return NULL;
}

/* Ends the works of the workers, so that what is under way can end. */
static void abort_works(kb_context *ctx)
{
    kb_error *why = kb_error_new(KB_ERR_FAULT, "cancelled because a worker failed");
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++)
        rt_works_abort(&ctx->workers[rank], why);
    kb_error_free(why);
}

/* All workers are stopped: what they have left behind goes its way without them. */
static void leave_behind(kb_context *ctx, bool failed)
{
    if (failed)
        abort_works(ctx);
    for (uint32_t rank = 0; rank < ctx->worker_count; rank++)
        rt_works_disown(&ctx->workers[rank]);
    rt_requests_disown(ctx);
    if (failed)
        drain(ctx);
    for (int layer = 0; layer < RT_LAYERS; layer++)
        if (ctx->layers[layer].hooks && ctx->layers[layer].hooks->workers_gone)
            ctx->layers[layer].hooks->workers_gone(ctx->layers[layer].self, failed);
}

/* Runs the workers until all are done, or one has failed, or nothing moves any more. */
static kb_error *run_workers(kb_context *ctx, kb_worker_fn *fn, void *arg)
{
    for (int layer = 0; layer < RT_LAYERS; layer++)
        if (ctx->layers[layer].hooks && ctx->layers[layer].hooks->workers_begin)
            ctx->layers[layer].hooks->workers_begin(ctx->layers[layer].self);
    kb_error *err = start_workers(ctx, fn, arg);
    while (!err && ctx->workers_alive > 0 && !ctx->halted) {
        err = run_machine(ctx, KB_FOREVER);
        if (kb_error_code(err) != KB_ERR_DEADLOCK || !ctx->turn_at_end)
            continue;
        kb_error_free(err); /* no request ends; but who yields may be about to start another one */
        err = NULL;
        give_turn(ctx);
    }
    if (kb_error_code(err) == KB_ERR_DEADLOCK) {
        ctx->deadlock_at = kb_sim_now(ctx->sim);
        err = ipcq_explain_deadlock(ctx->queues, err);
    }
    if (!err && kb_sim_cancel(ctx->sim, ctx->ends)) /* it stopped before that came */
        on_ends(ctx->sim, ctx, 0);
    if (!err && count_failed(ctx) == 0)
        settle_workers(ctx);
    return err;
}

kb_error *kb_spawn(kb_context *ctx, kb_worker_fn *fn, void *arg, uint32_t nprocs)
{
    KB_TRY(check_spawn(ctx, fn, nprocs));
    ctx->workers = kb_alloc_zeroed(nprocs, sizeof *ctx->workers);
    if (!ctx->workers)
        return kb_error_nomem();
    ctx->worker_count = nprocs;
    ctx->failure = ctx->ends = (kb_event){0};
    ctx->halted = false;
    ctx->went_on = false;
    ctx->vain_turns = 0;
    rt_failures_forget(ctx);
    kb_error *err = run_workers(ctx, fn, arg);
    (void)kb_sim_cancel(ctx->sim, ctx->failure); /* if all were done before they came */
    (void)kb_sim_cancel(ctx->sim, ctx->ends);
    unwind_workers(ctx);
    forget_turn(ctx);
    leave_behind(ctx, err || count_failed(ctx) > 0);
    kb_error *own = rt_sum_up_failures(ctx);
    for (uint32_t rank = 0; rank < nprocs; rank++)
        rt_caller_fini(&ctx->workers[rank]);
    free(ctx->workers);
    ctx->workers = NULL;
    ctx->worker_count = 0;
    if (!err)
        return own;
    if (own)
        kb_error_add_detail(err, "%s", kb_error_message(own));
    kb_error_free(own);
    return err;
}

uint32_t rt_caller_rank(kb_context *ctx)
{
    const rt_caller *caller = rt_caller_of(ctx);
    return caller == &ctx->driver ? RT_DRIVER : caller->rank;
}

uint32_t rt_worker_count(const kb_context *ctx)
{
    return ctx->worker_count;
}

bool rt_worker_has_ended(const kb_context *ctx, uint32_t rank)
{
    return rank >= ctx->worker_count || ctx->workers[rank].told_of;
}

kb_error *rt_workers_init(kb_context *ctx)
{
    ctx->after_workers = kb_source_make(RT_AFTER_WORKERS);
    ctx->after_all = kb_source_make(RT_AFTER_ALL);
    kb_waitlist_init(&ctx->yielders, "its next turn");
    caller_init(&ctx->driver, ctx, 0);
    KB_TRY(kb_sim_add_handler(ctx->sim, on_failure, ctx, &ctx->on_failure));
    KB_TRY(kb_sim_add_handler(ctx->sim, on_ends, ctx, &ctx->on_ends));
    KB_TRY(kb_sim_add_handler(ctx->sim, on_turn, ctx, &ctx->on_turn));
    return kb_sim_add_handler(ctx->sim, on_step, ctx, &ctx->on_step);
}
