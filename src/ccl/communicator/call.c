/*
 * call.c: a collective from the call to its end.
 *
 *     checked > joins its epoch > waits for transfers, mappings and queues > launched > done
 *
 * All that can be wrong with the arguments is found before the call counts. What waits, waits
 * before the kernels are sent off, also in calls that return work. From then on it is a work of the
 * runtime: copies in, the launch, copies out. As copies take time, calls whose kernels are to be
 * sent off stand in line, and a rank's kernels are sent to its PEs in the order of its calls: if
 * they came in another order than on other ranks, ranks would wait for each other for ever. Kernels
 * of one PE run one after the other, but copies do not wait for them, nor do PEs that work on what
 * others have: so where a tensor is staged or PEs share their work, calls that use it wait until
 * those before them are over. A send and its receive are sent off together, when both have been
 * called, and may pass others of their kind: so ranks can send to each other before they receive.
 *
 * A call belongs to its group until it is done. If its worker is unwound while it waits, or
 * something goes wrong, the epoch fails for the others: they would wait for ever.
 */
#include "communicator.h"

#include <stdlib.h>

/* ---- Beginnings and ends ---- */

static ccl_op *new_op(ccl_group *group, uint32_t shares)
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

static void free_op(ccl_op *op)
{
    ccl_op **link = &op->group->ops;
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    ccl_leave(op);
    ccl_unstage(op);
    ccl_free_shares(op);
    kb_text_fini(&op->awaited);
    free(op);
}

void ccl_free_calls(ccl_group *group)
{
    while (group->ops)
        free_op(group->ops);
}

/* The rank did not get to the end: those who wait for it are told why. */
static void fail_others(ccl_op *op, const kb_error *why)
{
    if (!op->epoch || op->epoch->error)
        return;
    uint32_t rank = op->group->members[op->shares[0].seat];
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
        op->group->last[op->shares[i].seat] = (ccl_last){
            .wiring = op->wiring,
            .kind = op->what.kind,
            .dtype = op->what.dtype,
            .memory = op->memory,
            .size = op->size,
            .part = op->part,
        };
}

/* ---- Whose turn it is to be sent off ---- */

static bool share_a_device(const ccl_op *a, const ccl_op *b)
{
    for (size_t i = 0; i < a->share_count; i++)
        for (size_t k = 0; k < b->share_count; k++)
            if (a->group->sips[a->shares[i].seat] == b->group->sips[b->shares[k].seat])
                return true;
    return false;
}

static bool is_same_pair(const ccl_op *a, const ccl_op *b)
{
    return a->group == b->group && a->epoch && b->epoch && a->epoch->from == b->epoch->from &&
           a->epoch->to == b->epoch->to;
}

/* Sends and receives have an order only among those between the same two ranks. */
static bool may_pass(const ccl_op *op, const ccl_op *before)
{
    return ccl_is_pair(op->what.kind) && ccl_is_pair(before->what.kind) &&
           !is_same_pair(op, before);
}

/* Nobody stands before it who has to go first. */
static bool is_free(const ccl_op *op)
{
    for (const ccl_op *before = op->group->state->line; before != op; before = before->behind) {
        if (!may_pass(op, before) && share_a_device(before, op))
            return false;
    }
    return true;
}

static bool has_turn(const ccl_op *op)
{
    const ccl_epoch *epoch = op->epoch;
    if (!ccl_is_pair(op->what.kind) || !epoch)
        return is_free(op);
    const ccl_op *other = epoch->ops[op == epoch->ops[epoch->from] ? epoch->to : epoch->from];
    return epoch->cleared || (other && other->ready && is_free(op) && is_free(other));
}

static void stand_in_line(ccl_op *op)
{
    ccl_op **link = &op->group->state->line;
    while (*link)
        link = &(*link)->behind;
    *link = op;
    op->in_line = true;
}

static void leave_line(ccl_op *op)
{
    ccl_op **link = &op->group->state->line;
    if (!op->in_line)
        return;
    while (*link != op)
        link = &(*link)->behind;
    *link = op->behind;
    op->in_line = op->held = false;
}

static bool is_given(const ccl_op *op, kb_tensor tensor)
{
    bool found = false;
    for (size_t i = 0; i < op->share_count; i++)
        found =
            found || op->shares[i].input.id == tensor.id || op->shares[i].output.id == tensor.id;
    return found;
}

/* Whether one changes a tensor that the other uses too. */
static bool share_a_tensor(const ccl_op *a, const ccl_op *b)
{
    for (size_t i = 0; i < a->share_count; i++)
        if (a->shares[i].output.id != 0 && is_given(b, a->shares[i].output))
            return true;
    for (size_t i = 0; i < b->share_count; i++)
        if (b->shares[i].output.id != 0 && is_given(a, b->shares[i].output))
            return true;
    return false;
}

static bool is_staged(const ccl_op *op)
{
    bool found = false;
    for (size_t i = 0; i < op->share_count; i++)
        found = found || op->shares[i].in || op->shares[i].out;
    return found;
}

/* Whether not every PE keeps to its own part of the tensors: then it is not enough that the kernels
 * of a PE run one after the other. */
static bool crosses_parts(const ccl_op *op)
{
    return is_staged(op) || op->wiring->entry->algorithm->shares_work;
}

/* Whether the other one began before it, and copies or changes what it copies or changes. */
static bool comes_after(const ccl_op *op, const ccl_op *other)
{
    return other->work && other->turn < op->turn && !may_pass(op, other) &&
           (crosses_parts(op) || crosses_parts(other)) && share_a_tensor(op, other);
}

static bool comes_after_some(const ccl_op *op, const ccl_group *group)
{
    const ccl_op *other = group->ops;
    while (other && !comes_after(op, other))
        other = other->next;
    return other;
}

/* No call that is under way has a claim on its tensors. */
static bool has_tensors(const ccl_op *op)
{
    const ccl_state *state = op->group->state;
    bool waits = false;
    for (size_t i = 0; i < state->groups.count && !waits; i++)
        waits = comes_after_some(op, state->groups.items[i]);
    for (size_t i = 0; i < state->leaving.count && !waits; i++)
        waits = comes_after_some(op, state->leaving.items[i]);
    return !waits;
}

static bool can_go_on(const ccl_op *op)
{
    return op->ready ? has_turn(op) : has_tensors(op);
}

/* The first of those who are held and can go on. */
static ccl_op *next_in_line(const ccl_state *state)
{
    ccl_op *op = state->line;
    while (op && !(op->held && can_go_on(op)))
        op = op->behind;
    return op;
}

/* Somebody has left: others may go on, who then leave too. */
static void call_next(const ccl_state *state)
{
    for (ccl_op *op; (op = next_in_line(state));) {
        op->held = false;
        rt_work_release(op->work, NULL);
    }
}

/* ---- Steps of the work ---- */

static kb_error *launch(const ccl_op *op)
{
    const ccl_entry *entry = op->wiring->entry;
    for (size_t i = 0; i < op->share_count; i++) {
        const ccl_share *share = &op->shares[i];
        if (share->target_count == 0)
            continue;
        rt_launch_spec spec = {
            .name = entry->name,
            .kernel = entry->algorithm->kernel,
            .sip = op->group->sips[share->seat],
            .queues = op->wiring->queues,
            .targets = share->targets,
            .target_count = share->target_count,
        };
        KB_TRY(rt_work_launch(op->work, &spec));
    }
    return NULL;
}

static kb_error *send_off(ccl_op *op)
{
    kb_error *err = launch(op);
    if (op->epoch)
        op->epoch->cleared = true;
    leave_line(op);
    call_next(op->group->state);
    return err;
}

static kb_error *op_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    enum { GET_TENSORS, COPY_IN, TAKE_TURN, LAUNCH, COPY_OUT }; /* and then it looks back */
    ccl_op *op = self;
    if (step == COPY_IN)
        return ccl_copy_in(op);
    if (step == GET_TENSORS || step == TAKE_TURN) {
        op->ready = step == TAKE_TURN;
        op->held = !can_go_on(op);
        if (op->held)
            rt_work_hold(work);
        return NULL;
    }
    if (step == LAUNCH)
        return send_off(op);
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

static kb_error *send_all(ccl_op *op)
{
    KB_TRY(use_tensors(op));
    KB_TRY(ccl_copy_in(op));
    KB_TRY(launch(op));
    if (op->epoch)
        op->epoch->cleared = true;
    return ccl_copy_out(op);
}

/* In a stream devices keep the order: all is sent off at once, or nothing: kernels of some ranks
 * would wait for those of the others. */
static kb_error *stream_step(void *self, rt_work *work, uint32_t step, bool *over)
{
    ccl_op *op = self;
    if (step > 0) {
        *over = true;
        return ccl_check_queues(op);
    }
    kb_error *err = send_all(op);
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
    leave_line(op);
    op->wiring->launched--;
    if (err) {
        op->wiring->stale = true; /* also if nobody else is in it */
        fail_others(op, err);
    } else {
        note_stats(op);
    }
    free_op(op);
    call_next(state);
    if (graph)
        rt_work_end_part(graph, err ? kb_error_copy(err) : NULL);
}

/* "send to rank 1" */
static void print_pair(const ccl_op *op, kb_text *text)
{
    kb_text_printf(text, "%s rank %u", op->what.kind == KB_SEND ? "send to" : "receive from",
                   op->group->members[op->what.root]);
    ccl_print_group(op->group, text);
}

/* A send or receive that holds the op back as the other rank has not called its part; NULL: none
 * does. */
static const ccl_op *find_unmatched(const ccl_op *op)
{
    for (const ccl_op *before = op->group->state->line; before; before = before->behind) {
        bool is_unmatched = ccl_is_pair(before->what.kind) && before->epoch &&
                            before->epoch->joined_count < before->epoch->expected;
        if (is_unmatched && !may_pass(op, before) && share_a_device(op, before))
            return before;
    }
    return NULL;
}

/* What a rank is said to wait for. */
static const char *describe_wait(ccl_op *op)
{
    kb_text *text = &op->awaited;
    const ccl_op *unmatched = find_unmatched(op);
    if (!op->epoch) {
        kb_text_puts(text, kb_collective_name(op->what.kind));
    } else if (ccl_is_pair(op->what.kind)) {
        kb_text_puts(text, "a ");
        print_pair(op, text);
    } else {
        ccl_print_epoch(op->group, op->epoch, text);
        kb_text_puts(text, ", among its ranks");
    }
    if (unmatched) { /* true whatever comes of it: the text stays */
        kb_text_puts(text, ", called while a ");
        print_pair(unmatched, text);
        kb_text_puts(text, " waited");
    }
    return kb_text_peek(text);
}

/* The op is the work's from here on. */
static kb_error *start(ccl_op *op, kb_request *request)
{
    rt_work_options options = {
        .what = kb_collective_name(op->what.kind),
        .label = op->wiring->entry->name,
        .step = op->stream ? stream_step : op_step,
        .done = op_done,
        .self = op,
        .waits_for = describe_wait(op),
        .stream = op->stream,
    };
    KB_TRY(rt_work_open(op->group->state->ctx, &options, &op->work, request));
    op->turn = ++op->group->state->turns;
    op->wiring->launched++;
    if (op->epoch)
        op->epoch->begun = true;
    if (!op->stream)
        stand_in_line(op);
    rt_work_start(op->work);
    return NULL;
}

/* ---- Before it starts ---- */

/* Which entry, and in which layout lanes work: the first of an epoch decides for all. */
static kb_error *settle(ccl_op *op, bool alone)
{
    ccl_group *group = op->group;
    const ccl_epoch *epoch = alone ? NULL : ccl_peek_epoch(group, op->shares[0].seat, &op->what);
    if (epoch) {
        op->wiring = epoch->wiring;
        op->base = epoch->base;
        return NULL;
    }
    KB_TRY(ccl_select(op));
    return op->wiring->lanes ? ccl_choose_base(op) : NULL;
}

static kb_error *failure_of(const ccl_op *op)
{
    bool failed = op->epoch && op->epoch->error;
    return failed ? kb_error_copy(op->epoch->error) : NULL;
}

/* All that takes time before kernels can be sent off. */
static kb_error *get_ready(ccl_op *op)
{
    kb_context *ctx = op->group->state->ctx;
    for (size_t i = 0; i < op->share_count; i++) {
        if (op->shares[i].input.id != 0)
            KB_TRY(rt_wait_for_tensor(ctx, op->shares[i].input));
        if (op->shares[i].output.id != 0)
            KB_TRY(rt_wait_for_tensor(ctx, op->shares[i].output));
    }
    KB_TRY(ccl_install(op->group, op->wiring));
    if (op->wiring->lanes)
        KB_TRY(ccl_stage_tensors(op));
    if (!op->epoch || !op->epoch->begun)
        KB_TRY(ccl_freshen(op->group, op->wiring));
    return failure_of(op);
}

static kb_error *prepare(ccl_op *op)
{
    KB_TRY(failure_of(op));
    if (!op->wiring->lanes)
        KB_TRY(ccl_validate(op));
    KB_TRY(get_ready(op));
    return ccl_make_targets(op);
}

/* The worker is being unwound where it waits. */
static void abandon(void *arg)
{
    ccl_op *op = arg;
    kb_error *why = kb_error_new(KB_ERR_FAULT, "its worker was stopped");
    fail_others(op, why);
    kb_error_free(why);
    free_op(op);
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

/* Takes the op over if it fails. */
static kb_error *get_going(ccl_op *op, bool alone)
{
    kb_error *err = settle(op, alone);
    if (!err && !alone) {
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
    fail_others(op, why);
    free_op(op);
}

kb_error *ccl_prepare_call(kb_context *ctx, const char *function, const kb_collective *call,
                           ccl_op **out)
{
    ccl_group *group;
    uint32_t seat, count;
    *out = NULL;
    KB_TRY(ccl_find_group(ctx, function, call->options.group, &group, &seat, &count));
    bool alone = rt_caller_rank(ctx) == RT_DRIVER || group->state->rank_is_pe;
    ccl_op *op = new_op(group, count);
    if (!op)
        return kb_error_nomem();
    kb_error *err = ccl_check_call(group, call, seat, count, op);
    if (err) {
        free_op(op);
        return kb_error_wrap(err, "%s", function);
    }
    KB_TRY(get_going(op, alone));
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

/* ---- Waiting for it ---- */

static kb_error *hand_over(kb_context *ctx, kb_request request, kb_request *work)
{
    if (!work)
        return rt_wait_and_free(ctx, request);
    *work = request;
    return NULL;
}

/* ---- Barriers ---- */

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
        fail_others(op, err);
    free_op(op);
}

/* All are there. */
static void open_barrier(ccl_group *group, ccl_epoch *epoch)
{
    epoch->op_count++; /* it stays until the last one has left */
    uint32_t last = epoch->first;
    for (uint32_t seat = 0; seat < group->seats; seat++) {
        if (epoch->ops[seat] && seat != last)
            rt_work_release(epoch->ops[seat]->work, NULL);
    }
    epoch->op_count--;
    rt_work_release(epoch->ops[last]->work, NULL);
}

/* Joins; what goes wrong is told by the work. */
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

/*
 * All ranks leave a barrier at one instant. The rank that joined last would go on first: it waits
 * for its place, so that ranks leave in the order of their numbers. What they call next then takes
 * the same time whichever rank was last.
 */
static void leave_barrier(kb_context *ctx)
{
    kb_co *worker = kb_context_worker(ctx);
    if (worker)
        kb_co_sleep(worker, 0);
}

/* Who stands for all ranks: they are all there. */
static kb_error *barrier(ccl_group *group, uint32_t seat, bool alone, kb_request *work)
{
    kb_context *ctx = group->state->ctx;
    if (!work)
        KB_TRY(kb_synchronize(ctx));
    ccl_op *op = new_op(group, alone ? 0 : 1);
    if (!op)
        return kb_error_nomem();
    op->what.kind = KB_BARRIER;
    if (!alone)
        op->shares[0].seat = seat;
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
        free_op(op);
        return err;
    }
    rt_work_start(op->work);
    if (!alone)
        join_barrier(op);
    KB_TRY(hand_over(ctx, request, work));
    if (!work)
        leave_barrier(ctx);
    return NULL;
}

/* ---- Calls ---- */

/* A collective in a stream follows those that the caller has called outside of streams, and the
 * other way round: on all ranks kernels are sent to PEs in one order. */
static kb_error *find_stream(kb_context *ctx, const kb_collective *call, struct rt_stream **stream)
{
    *stream = NULL;
    if (!call->options.stream)
        return rt_settle_streams(ctx);
    KB_TRY(rt_settle_others(ctx));
    return rt_find_stream(ctx, "kb_collective_options.stream", *call->options.stream, stream);
}

static kb_error *run_barrier(kb_context *ctx, const char *function, const kb_collective *call)
{
    ccl_group *group;
    uint32_t seat, count;
    KB_TRY(ccl_find_group(ctx, function, call->options.group, &group, &seat, &count));
    bool alone = rt_caller_rank(ctx) == RT_DRIVER || group->state->rank_is_pe;
    if (call->options.stream || rt_is_recording(ctx))
        return kb_error_new(KB_ERR_FAULT,
                            "%s: a barrier is between workers: it cannot be in a stream or graph",
                            function);
    return barrier(group, seat, alone, call->options.work);
}

static kb_error *run(kb_context *ctx, const char *function, const kb_collective *call)
{
    struct rt_stream *stream;
    kb_request *work = call->options.work, request;
    ccl_op *op;
    if (work)
        *work = (kb_request){0};
    if (call->kind == KB_BARRIER)
        return run_barrier(ctx, function, call);
    if (rt_is_recording(ctx))
        return ccl_record_call(ctx, function, call);
    KB_TRY(find_stream(ctx, call, &stream));
    KB_TRY(ccl_prepare_call(ctx, function, call, &op));
    KB_TRY(ccl_start_call(op, stream, NULL, &request));
    return hand_over(ctx, request, work);
}

kb_error *kb_distributed_call(kb_context *ctx, const kb_collective *call)
{
    static const char function[] = "kb_distributed_call";
    if (!call)
        return kb_error_new(KB_ERR_INPUT, "%s: call is NULL", function);
    return run(ctx, function, call);
}

/* One tensor of the caller's for each argument. */
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

/* ---- Figures ---- */

/* Where the algorithm adds up shards too, its members are the participants. */
static kb_error *members_of(const ccl_wiring *wiring, kb_pe **out)
{
    *out = kb_alloc_array(wiring->spot_count, sizeof **out);
    if (!*out)
        return kb_error_nomem();
    for (size_t i = 0; i < wiring->spot_count; i++)
        (*out)[i] = wiring->spots[i].pe;
    return NULL;
}

kb_error *kb_distributed_get_stats(kb_context *ctx, kb_group handle, kb_collective_stats *stats)
{
    static const char function[] = "kb_distributed_get_stats";
    ccl_group *group;
    uint32_t seat, count;
    *stats = (kb_collective_stats){0};
    KB_TRY(ccl_find_group(ctx, function, handle, &group, &seat, &count));
    const ccl_last *last = &group->last[seat];
    if (!last->wiring)
        return kb_error_new(KB_ERR_FAULT, "%s: no collective is done yet", function);
    kb_pe *members = NULL;
    bool by_pe = group->state->rank_is_pe, shards = last->wiring->entry->reduce_shards;
    if (shards)
        KB_TRY(members_of(last->wiring, &members));
    ccl_bound_query query = {
        .machine = group->state->machine,
        .kind = last->kind,
        .ranks = shards ? members : group->ranks,
        .world = shards ? (uint32_t)last->wiring->spot_count : group->world,
        .rank_is_pe = shards || by_pe,
        .memory = last->memory,
        .dtype = last->dtype,
        .size = shards ? last->part : last->size,
    };
    ccl_bound bound;
    kb_error *err = ccl_bound_of(&query, &bound);
    free(members);
    if (err)
        return err;
    *stats = (kb_collective_stats){
        .algorithm = last->wiring->entry->name,
        .lower_bound = bound.time,
        .bus_factor = ccl_bus_factor(last->kind, query.world),
        .size = query.size,
        .participants = query.world,
    };
    return NULL;
}
