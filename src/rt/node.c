/*
 * node.c: work that begins when other work has ended. What a node waits for is counted at its
 * io_cpu; from another device a signal travels there.
 *
 * Collectives begin on a device in the order of their calls: if one overtook another here and not
 * there, each would wait for kernels of the other for ever.
 */
#include "runtime.h"

#include <stdlib.h>

/* ---- Lists ---- */

bool rt_nodes_add(rt_nodes *list, rt_node *node)
{
    if (!kb_vec_push(list, node))
        return false;
    node->users++;
    return true;
}

void rt_nodes_clear(rt_nodes *list)
{
    for (size_t i = 0; i < list->count; i++)
        rt_node_release(list->items[i]);
    list->count = 0;
}

static void free_node(rt_node *node)
{
    kb_vec_fini(&node->edges);
    kb_error_free(node->failure);
    free(node);
}

void rt_node_release(rt_node *node)
{
    if (!node || --node->users > 0)
        return;
    if (node->after_it)
        node->after_it->before_it = node->before_it;
    else
        node->ctx->newest_node = node->before_it;
    if (node->before_it)
        node->before_it->after_it = node->after_it;
    free_node(node);
}

/* ---- Moments ---- */

void rt_moment_clear(rt_moment *moment)
{
    rt_nodes_clear(&moment->nodes);
    moment->over = 0;
}

void rt_moment_prune(kb_context *ctx, rt_moment *moment)
{
    rt_nodes *nodes = &moment->nodes;
    size_t left = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        rt_node *node = nodes->items[i];
        if (!node->ended) {
            nodes->items[left++] = node;
            continue;
        }
        moment->over = tl_mark_join(ctx->kernels, moment->over, node->over);
        rt_node_release(node);
    }
    nodes->count = left;
}

kb_error *rt_moment_add(kb_context *ctx, rt_moment *moment, const rt_moment *more)
{
    rt_moment_prune(ctx, moment);
    uint64_t stamp = ++ctx->node_stamps;
    for (size_t i = 0; i < moment->nodes.count; i++)
        moment->nodes.items[i]->stamp = stamp;
    moment->over = tl_mark_join(ctx->kernels, moment->over, more->over);
    for (size_t i = 0; i < more->nodes.count; i++) {
        rt_node *node = more->nodes.items[i];
        if (node->ended)
            moment->over = tl_mark_join(ctx->kernels, moment->over, node->over);
        else if (node->stamp != stamp && !rt_nodes_add(&moment->nodes, node))
            return kb_error_nomem();
        node->stamp = stamp;
    }
    return NULL;
}

/* ---- All of them ---- */

void rt_nodes_fini_all(kb_context *ctx)
{
    for (rt_node *node = ctx->newest_node, *before; node; node = before) {
        before = node->before_it;
        free_node(node);
    }
    for (uint32_t sip = 0; ctx->collectives && sip < ctx->shape->sips; sip++)
        kb_vec_fini(&ctx->collectives[sip]);
    free(ctx->collectives);
    if (ctx->signals.size > 0) /* else it was never made */
        kb_pool_fini(&ctx->signals);
}

/* ---- The order of collectives ---- */

static rt_nodes *collectives_of(const rt_node *node)
{
    return &node->ctx->collectives[node->sip];
}

static void leave_collectives(rt_node *node)
{
    rt_nodes *list = collectives_of(node);
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i] != node)
            continue;
        for (size_t k = i + 1; k < list->count; k++)
            list->items[k - 1] = list->items[k];
        list->count--;
        rt_node_release(node);
        return;
    }
}

static bool has_turn(const rt_node *node)
{
    return !node->is_collective || collectives_of(node)->items[0] == node;
}

/* ---- Beginning ---- */

static void take_edge(rt_node *node, rt_node *before, bool at_begin);

/* Those that wait for its beginning. */
static void tell_of_begin(rt_node *node)
{
    for (size_t i = 0; i < node->edges.count; i++) {
        rt_edge edge = node->edges.items[i];
        if (!edge.at_begin)
            continue;
        node->edges.items[i] = node->edges.items[--node->edges.count];
        i--;
        take_edge(edge.to, node, true);
    }
}

static void on_cancel(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)self;
    rt_node *node = (rt_node *)(uintptr_t)arg;
    node->actions->cancel(node->self, node->failure);
    rt_node_release(node);
}

/* By an event of its own: a long sequence of nodes that are cancelled is no recursion. */
static void cancel_soon(rt_node *node)
{
    kb_context *ctx = node->ctx;
    node->users++;
    kb_sim_after(ctx->sim, &ctx->after_all, 0, ctx->on_cancel, (uint64_t)(uintptr_t)node);
}

static void begin(rt_node *node)
{
    node->begun = true;
    node->users++; /* it may be over before this returns */
    if (node->is_collective)
        leave_collectives(node);
    if (node->failure)
        cancel_soon(node);
    else
        node->actions->begin(node->self);
    tell_of_begin(node);
    rt_node_release(node);
}

static bool can_begin(const rt_node *node)
{
    if (node->begun || !node->arrived)
        return false;
    return node->cancelled || (node->missing == 0 && has_turn(node));
}

static void try_to_begin(rt_node *node)
{
    if (!can_begin(node))
        return;
    kb_context *ctx = node->ctx;
    uint32_t sip = node->sip;
    bool is_collective = node->is_collective;
    begin(node);
    const rt_nodes *waiting = &ctx->collectives[sip];
    if (is_collective && waiting->count > 0)
        try_to_begin(waiting->items[0]);
}

void rt_node_arrived(rt_node *node)
{
    node->arrived = true;
    try_to_begin(node);
}

void rt_node_cancel(rt_node *node, const kb_error *why)
{
    if (node->begun)
        return;
    if (!node->failure)
        node->failure = kb_error_copy(why);
    node->cancelled = true;
    try_to_begin(node);
}

/* ---- Waiting for others ---- */

/* What a failed node would have made is missing: the node does not begin either. */
static void inherit_failure(rt_node *node, const rt_node *before)
{
    if (!before->failure || node->failure)
        return;
    node->failure = kb_error_copy(before->failure);
    if (!before->inherits) /* else it says so, once for a whole sequence */
        node->failure = kb_error_wrap(node->failure, "after failed work");
    node->inherits = true;
    kb_error_set_secondary(node->failure);
}

/* What the other one waited for, or all of it, comes before the node. */
static void follow(rt_node *node, const rt_node *before, bool at_begin)
{
    tl_mark mark = at_begin ? before->after : before->over;
    node->after = tl_mark_join(node->ctx->kernels, node->after, mark);
}

static void tell_of_end(rt_node *node);

/* One thing less to wait for. One that begins with a failure does not begin in truth. */
static void take_edge(rt_node *node, rt_node *before, bool at_begin)
{
    node->missing--;
    follow(node, before, at_begin);
    inherit_failure(node, before);
    if (node->over_early && node->missing == 0)
        tell_of_end(node);
    else
        try_to_begin(node);
    rt_node_release(node);
}

typedef struct signal {
    rt_node *node, *before;
} signal;

static void on_signal(void *self, uint64_t arg, const net_completion *completion)
{
    (void)completion;
    kb_context *ctx = self;
    signal is = *(const signal *)kb_pool_at(&ctx->signals, (uint32_t)arg);
    kb_pool_give(&ctx->signals, (uint32_t)arg);
    take_edge(is.node, is.before, false);
    rt_node_release(is.before);
}

/* From io_cpu to io_cpu. */
static void send_signal(rt_node *node, rt_node *before)
{
    kb_context *ctx = node->ctx;
    uint32_t index = kb_pool_take(&ctx->signals);
    kb_error *err = index != 0 ? NULL : kb_error_nomem();
    if (!err) {
        *(signal *)kb_pool_at(&ctx->signals, index) = (signal){node, before};
        before->users++;
        io_message message = {.kind = IO_DEVICE_TO_DEVICE,
                              .sip = before->sip,
                              .peer = node->sip,
                              .done = on_signal,
                              .self = ctx,
                              .arg = index};
        err = io_send(ctx->control, &message);
    }
    if (err)
        kb_sim_fail(ctx->sim, err);
}

static void tell_of_end(rt_node *node)
{
    node->ended = true;
    node->users++;
    while (node->edges.count > 0) {
        rt_edge edge = node->edges.items[--node->edges.count];
        if (edge.to->sip == node->sip)
            take_edge(edge.to, node, false);
        else
            send_signal(edge.to, node);
    }
    rt_node_release(node);
}

/* One that was cancelled may be over while what it waits for is not: the nodes behind it wait for
 * that all the same. */
void rt_node_end(rt_node *node, const kb_error *err)
{
    if (err && !node->failure)
        node->failure = kb_error_copy(err);
    rt_run *run = node->run;
    uint32_t sip = node->sip;
    node->run = NULL; /* which may go now */
    node->over_early = node->missing > 0;
    if (!node->over_early)
        tell_of_end(node);
    if (run)
        rt_run_node_ended(run, sip);
}

static kb_error *wait_for(rt_node *node, rt_node *before, bool at_begin)
{
    if (at_begin ? before->begun : before->ended) {
        follow(node, before, at_begin);
        return NULL;
    }
    if (!kb_vec_push(&before->edges, ((rt_edge){node, at_begin})))
        return kb_error_nomem();
    node->users++;
    node->missing++;
    return NULL;
}

/* ---- Making one ---- */

/* In a narrow scope, launches of the same device need only have begun: PEs run them in order. */
static bool waits_for_begin(const rt_node *node, const rt_node *before, bool narrow)
{
    return narrow && before->is_launch && before->sip == node->sip;
}

/* Such a launch has not begun before all that is in front of it in the lane has begun or ended:
 * so it stands for that, unless it was cancelled. */
static kb_error *wait_for_last(const rt_nodes *last, rt_node *node, bool narrow)
{
    size_t first = last->count;
    while (first > 0) {
        const rt_node *before = last->items[--first];
        if (waits_for_begin(node, before, narrow) && !before->failure)
            break;
    }
    for (size_t i = first; i < last->count; i++)
        KB_TRY(wait_for(node, last->items[i], waits_for_begin(node, last->items[i], narrow)));
    return NULL;
}

static kb_error *enter_lane(rt_lane *lane, rt_node *node, kb_scope scope)
{
    bool narrow = scope != KB_SCOPE_DEVICE;
    tl_runner *kernels = node->ctx->kernels;
    KB_TRY(wait_for_last(&lane->last.nodes, node, narrow));
    for (size_t i = 0; i < lane->waits.nodes.count; i++)
        KB_TRY(wait_for(node, lane->waits.nodes.items[i], false));
    if (!narrow)
        node->after = tl_mark_join(kernels, node->after, lane->last.over);
    node->after = tl_mark_join(kernels, node->after, lane->waits.over);
    rt_moment_clear(&lane->waits);
    if (narrow)
        rt_moment_prune(node->ctx, &lane->last);
    else
        rt_moment_clear(&lane->last);
    return rt_nodes_add(&lane->last.nodes, node) ? NULL : kb_error_nomem();
}

static kb_error *connect(rt_stream *stream, const rt_node_spec *spec, rt_node *node)
{
    KB_TRY(enter_lane(&stream->lanes[spec->sip], node, spec->scope));
    if (spec->other_sip != TOPO_NONE && spec->other_sip != spec->sip)
        KB_TRY(enter_lane(&stream->lanes[spec->other_sip], node, KB_SCOPE_DEVICE));
    rt_moment_clear(&stream->waits); /* an event that is recorded next has the node instead */
    if (spec->is_collective && !rt_nodes_add(collectives_of(node), node))
        return kb_error_nomem();
    return stream->run ? rt_run_add(stream->run, node) : NULL;
}

kb_error *rt_node_open(rt_stream *stream, const rt_node_spec *spec, rt_node **out)
{
    rt_node *node = kb_alloc_zeroed(1, sizeof *node);
    *out = NULL;
    if (!node)
        return kb_error_nomem();
    *node = (rt_node){
        .ctx = stream->ctx,
        .actions = spec->actions,
        .self = spec->self,
        .run = stream->run,
        .sip = spec->sip,
        .users = 1,
        .is_launch = spec->is_launch,
        .is_collective = spec->is_collective,
        .after = stream->ctx->observed,
    };
    kb_context *ctx = stream->ctx;
    node->before_it = ctx->newest_node;
    if (ctx->newest_node)
        ctx->newest_node->after_it = node;
    ctx->newest_node = node;
    kb_error *err = connect(stream, spec, node);
    if (err) { /* what waits for it must not wait for ever */
        if (node->is_collective)
            leave_collectives(node);
        node->begun = node->ended = true;
        rt_node_release(node);
        return err;
    }
    node->next = spec->request->nodes;
    spec->request->nodes = node;
    *out = node;
    return NULL;
}

kb_error *rt_nodes_init(kb_context *ctx)
{
    kb_pool_init(&ctx->signals, sizeof(signal));
    ctx->collectives = kb_alloc_zeroed(ctx->shape->sips, sizeof *ctx->collectives);
    if (!ctx->collectives)
        return kb_error_nomem();
    return kb_sim_add_handler(ctx->sim, on_cancel, ctx, &ctx->on_cancel);
}
