/*
 * group.c: the process group: ranks, and calls of all ranks that belong together.
 *
 * Such calls are matched by order: the n-th of each rank are one epoch. Ranks may be epochs apart;
 * those that not all have joined are open, in a list. A rank whose worker has ended will join none,
 * so open epochs that lack it fail, and so do later ones.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

static const char backend_name[] = "ahbm";

typedef struct rt_epoch {
    struct rt_epoch *next;
    uint64_t number;
    uint32_t joined;
    uint64_t *requests; /* by rank: 0 if it has not joined */
} rt_epoch;

static void free_epoch(rt_epoch *epoch)
{
    if (epoch)
        free(epoch->requests);
    free(epoch);
}

static rt_epoch *new_epoch(uint32_t world, uint64_t number)
{
    rt_epoch *epoch = kb_alloc_zeroed(1, sizeof *epoch);
    if (!epoch)
        return NULL;
    epoch->number = number;
    epoch->requests = kb_alloc_zeroed(world, sizeof *epoch->requests);
    if (epoch->requests)
        return epoch;
    free(epoch);
    return NULL;
}

static void unlink_epoch(rt_group *group, rt_epoch *epoch)
{
    rt_epoch *before = NULL;
    for (rt_epoch *e = group->first; e != epoch; e = e->next)
        before = e;
    if (before)
        before->next = epoch->next;
    else
        group->first = epoch->next;
    if (group->last == epoch)
        group->last = before;
}

/* Ends the requests of all who joined. */
static void end_epoch(kb_context *ctx, rt_epoch *epoch, const kb_error *why)
{
    unlink_epoch(&ctx->group, epoch);
    net_receipt now = {.ended = kb_sim_now(ctx->sim)};
    for (uint32_t rank = 0; rank < ctx->group.world; rank++) {
        rt_request *request = rt_table_get(&ctx->requests, epoch->requests[rank]);
        if (!request)
            continue;
        now.queueing = now.ended - request->completion.issued;
        rt_request_end_part(request, &now, why ? kb_error_copy(why) : NULL);
    }
    free_epoch(epoch);
}

static void abandon_epochs(kb_context *ctx)
{
    kb_error *why = NULL;
    if (ctx->group.first)
        why = kb_error_new(KB_ERR_FAULT, "the barrier was abandoned");
    while (ctx->group.first)
        end_epoch(ctx, ctx->group.first, why);
    kb_error_free(why);
}

/* ---- The group ---- */

static bool is_member(kb_context *ctx, const rt_caller *caller)
{
    const rt_group *group = &ctx->group;
    return group->exists &&
           (caller == &ctx->driver || (caller->rank < group->world && group->joined[caller->rank]));
}

static void dissolve(rt_group *group)
{
    free(group->joined);
    free(group->ended);
    free(group->calls);
    *group = (rt_group){0};
}

/* False if there is no memory. */
static bool found(kb_context *ctx)
{
    rt_group *group = &ctx->group;
    uint32_t world = ctx->limited ? 1 : ctx->shape->sips;
    *group = (rt_group){
        .exists = true,
        .world = world,
        .joined = kb_alloc_zeroed(world, sizeof *group->joined),
        .ended = kb_alloc_zeroed(world, sizeof *group->ended),
        .calls = kb_alloc_zeroed(world, sizeof *group->calls),
    };
    if (!group->joined || !group->ended || !group->calls) {
        dissolve(group);
        return false;
    }
    if (ctx->workers)
        rt_group_begin(ctx);
    return true;
}

static kb_error *check_rank(const kb_context *ctx, const rt_caller *caller, const char *function)
{
    if (caller == &ctx->driver || caller->rank < ctx->group.world)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "%s: rank %u has no device: the world size is %u", function,
                        caller->rank, ctx->group.world);
}

kb_error *kb_distributed_init_process_group(kb_context *ctx, const char *backend)
{
    rt_caller *caller = rt_caller_of(ctx);
    rt_group *group = &ctx->group;
    if (!backend || strcmp(backend, backend_name) != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "kb_distributed_init_process_group: there is no backend '%s': use '%s'",
                            backend ? backend : "", backend_name);
    if (is_member(ctx, caller))
        return kb_error_new(KB_ERR_INPUT, "kb_distributed_init_process_group: it is initialised "
                                          "already");
    if (!group->exists && !found(ctx))
        return kb_error_nomem();
    KB_TRY(check_rank(ctx, caller, "kb_distributed_init_process_group"));
    if (caller == &ctx->driver) {
        memset(group->joined, true, group->world * sizeof *group->joined);
        group->of_driver = true;
    } else {
        group->joined[caller->rank] = true;
    }
    return NULL;
}

static kb_error *check_member(kb_context *ctx, const char *function)
{
    const rt_caller *caller = rt_caller_of(ctx);
    if (is_member(ctx, caller))
        return NULL;
    if (ctx->group.exists)
        KB_TRY(check_rank(ctx, caller, function));
    return kb_error_new(KB_ERR_INPUT, "%s: call kb_distributed_init_process_group() first",
                        function);
}

kb_error *kb_distributed_destroy_process_group(kb_context *ctx)
{
    KB_TRY(check_member(ctx, "kb_distributed_destroy_process_group"));
    rt_caller *caller = rt_caller_of(ctx);
    rt_group *group = &ctx->group;
    if (caller != &ctx->driver) {
        group->joined[caller->rank] = false;
        for (uint32_t rank = 0; rank < group->world; rank++)
            if (group->joined[rank])
                return NULL;
    }
    abandon_epochs(ctx);
    dissolve(group);
    return NULL;
}

bool kb_distributed_is_initialized(kb_context *ctx)
{
    return is_member(ctx, rt_caller_of(ctx));
}

kb_error *kb_distributed_get_rank(kb_context *ctx, uint32_t *rank)
{
    KB_TRY(check_member(ctx, "kb_distributed_get_rank"));
    const rt_caller *caller = rt_caller_of(ctx);
    if (caller == &ctx->driver)
        rt_warn(ctx, "kb_distributed_get_rank: outside workers the rank is 0");
    *rank = caller->rank;
    return NULL;
}

kb_error *kb_distributed_get_world_size(kb_context *ctx, uint32_t *size)
{
    KB_TRY(check_member(ctx, "kb_distributed_get_world_size"));
    *size = ctx->group.world;
    return NULL;
}

kb_error *kb_distributed_get_backend(kb_context *ctx, const char **backend)
{
    KB_TRY(check_member(ctx, "kb_distributed_get_backend"));
    *backend = backend_name;
    return NULL;
}

/* ---- Joining ---- */

/* The epoch of a rank's next call: an open one, or a new one behind the others. */
static rt_epoch *next_epoch(rt_group *group, uint32_t rank)
{
    uint64_t number = group->calls[rank];
    bool is_new = !group->last || group->last->number < number;
    for (rt_epoch *epoch = is_new ? NULL : group->first; epoch; epoch = epoch->next)
        if (epoch->number == number)
            return epoch;
    rt_epoch *epoch = new_epoch(group->world, number);
    if (!epoch)
        return NULL;
    if (group->last)
        group->last->next = epoch;
    else
        group->first = epoch;
    group->last = epoch;
    return epoch;
}

static void append_waiting(const rt_group *group, const rt_epoch *epoch, kb_text *text)
{
    enum { MOST = 16 };
    uint32_t said = 0;
    for (uint32_t rank = 0; rank < group->world; rank++) {
        if (!epoch->requests[rank])
            continue;
        if (said++ < MOST)
            kb_text_printf(text, "%s%u", said > 1 ? ", " : "", rank);
    }
    if (said > MOST)
        kb_text_printf(text, " and %u more", said - MOST);
}

/* Fails the epoch if a rank that has ended is missing in it. */
static bool fail_if_hopeless(kb_context *ctx, rt_epoch *epoch)
{
    const rt_group *group = &ctx->group;
    for (uint32_t rank = 0; rank < group->world; rank++) {
        if (!group->ended[rank] || group->calls[rank] > epoch->number)
            continue; /* it may still join; or has, if only to be told that it failed */
        kb_text waiting = KB_TEXT_INIT;
        append_waiting(group, epoch, &waiting);
        bool was_there = rank < ctx->worker_count;
        kb_error *why = kb_error_new(
            KB_ERR_FAULT, "barrier %ju: rank %u %s; in it: rank %s", (uintmax_t)epoch->number + 1,
            rank, was_there ? "ended without joining it" : "has no worker", kb_text_peek(&waiting));
        kb_text_fini(&waiting);
        end_epoch(ctx, epoch, why);
        kb_error_free(why);
        return true;
    }
    return false;
}

void rt_group_worker_ended(rt_caller *worker)
{
    kb_context *ctx = worker->ctx;
    rt_group *group = &ctx->group;
    if (!group->exists || worker->rank >= group->world)
        return;
    group->ended[worker->rank] = true;
    for (rt_epoch *epoch = group->first, *next; epoch; epoch = next) {
        next = epoch->next;
        (void)fail_if_hopeless(ctx, epoch);
    }
}

void rt_group_begin(kb_context *ctx)
{
    rt_group *group = &ctx->group;
    for (uint32_t rank = 0; rank < group->world; rank++) {
        group->ended[rank] = rank >= ctx->worker_count || ctx->workers[rank].ended;
        group->calls[rank] = 0;
    }
}

void rt_group_end(kb_context *ctx)
{
    rt_group *group = &ctx->group;
    abandon_epochs(ctx);
    if (!group->of_driver)
        dissolve(group);
    else /* who of the workers left it did so for himself */
        memset(group->joined, true, group->world * sizeof *group->joined);
}

void rt_group_fini(kb_context *ctx)
{
    rt_group *group = &ctx->group;
    while (group->first) {
        rt_epoch *epoch = group->first;
        group->first = epoch->next;
        free_epoch(epoch);
    }
    dissolve(group);
}

/* ---- The barrier ---- */

static kb_error *join(kb_context *ctx, rt_request *request)
{
    rt_group *group = &ctx->group;
    uint32_t rank = request->owner->rank;
    rt_epoch *epoch = next_epoch(group, rank);
    if (!epoch)
        return kb_error_nomem();
    group->calls[rank]++;
    epoch->requests[rank] = request->id;
    epoch->joined++;
    rt_request_add_part(request); /* ended with the epoch */
    if (epoch->joined == group->world)
        end_epoch(ctx, epoch, NULL);
    else
        (void)fail_if_hopeless(ctx, epoch);
    return NULL;
}

kb_error *kb_distributed_barrier_async(kb_context *ctx, kb_request *work)
{
    *work = (kb_request){0};
    KB_TRY(check_member(ctx, "kb_distributed_barrier"));
    rt_request *request;
    KB_TRY(rt_request_open(ctx, "barrier", NULL, &request));
    rt_request_moves_nothing(request);
    kb_waitlist_init(&request->waiters, "other ranks to join a barrier");
    kb_error *err = NULL;
    if (request->owner != &ctx->driver) /* who stands for all ranks: they are all there */
        err = join(ctx, request);
    if (!err)
        *work = rt_request_handle(request);
    rt_request_close(request, NULL);
    return err;
}

/* A worker that is unwound in the barrier leaves no handle behind. */
typedef struct held_work {
    kb_context *ctx;
    kb_request work;
} held_work;

static void let_go(void *arg)
{
    const held_work *held = arg;
    kb_error_free(kb_request_free(held->ctx, held->work));
}

kb_error *kb_distributed_barrier(kb_context *ctx)
{
    held_work held = {.ctx = ctx};
    KB_TRY(check_member(ctx, "kb_distributed_barrier"));
    KB_TRY(rt_settle(rt_caller_of(ctx)));
    KB_TRY(kb_distributed_barrier_async(ctx, &held.work));
    kb_co *co = kb_sim_current(ctx->sim);
    kb_cleanup cleanup;
    if (co)
        kb_co_push_cleanup(co, &cleanup, let_go, &held);
    kb_error *err = kb_request_wait(ctx, held.work, NULL);
    if (co)
        kb_co_pop_cleanup(co, false);
    let_go(&held);
    return err;
}
