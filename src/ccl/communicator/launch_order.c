/*
 * launch_order.c: the order in which calls launch their kernels.
 *
 * The kernels of a rank must be launched in the order of its calls: ranks with different orders
 * would wait for each other forever. Copies of staging tensors take time, so started calls are kept
 * in a list of pending calls until they launch. Three rules:
 *
 * - A call launches when no earlier pending call shares a device with it.
 * - A send launches together with its receive, when both have been called. Pairs of different ranks
 *   may pass each other, so ranks can send to each other before they receive.
 * - Kernels of one PE run in order, but copies do not wait for kernels, and neither do PEs that
 *   work on other PEs' parts. So if either of two calls is staged or shares work, and they use the
 *   same tensor, the later call waits until the earlier one has ended.
 *
 * Invariant: a pending call is blocked exactly while its work is held.
 */
#include "communicator.h"

/* ---- When a call may launch ---- */

static bool share_device(const ccl_op *a, const ccl_op *b)
{
    for (size_t i = 0; i < a->share_count; i++)
        for (size_t k = 0; k < b->share_count; k++)
            if (a->group->sips[a->shares[i].device] == b->group->sips[b->shares[k].device])
                return true;
    return false;
}

static bool is_same_pair(const ccl_op *a, const ccl_op *b)
{
    return a->group == b->group && a->epoch && b->epoch && a->epoch->from == b->epoch->from &&
           a->epoch->to == b->epoch->to;
}

/* Sends and receives are ordered only among those between the same two ranks. */
static bool may_pass(const ccl_op *op, const ccl_op *before)
{
    return ccl_is_pair(op->signature.kind) && ccl_is_pair(before->signature.kind) &&
           !is_same_pair(op, before);
}

/* No earlier pending call has to launch before it. */
static bool is_first(const ccl_op *op)
{
    for (const ccl_op *before = op->group->state->pending; before != op;
         before = before->next_pending) {
        if (!may_pass(op, before) && share_device(before, op))
            return false;
    }
    return true;
}

static bool may_launch(const ccl_op *op)
{
    const ccl_epoch *epoch = op->epoch;
    if (!ccl_is_pair(op->signature.kind) || !epoch)
        return is_first(op);
    const ccl_op *other = epoch->ops[op == epoch->ops[epoch->from] ? epoch->to : epoch->from];
    return epoch->launched || (other && other->ready && is_first(op) && is_first(other));
}

void ccl_append_pending(ccl_op *op)
{
    ccl_op **link = &op->group->state->pending;
    while (*link)
        link = &(*link)->next_pending;
    *link = op;
    op->is_pending = true;
}

void ccl_remove_pending(ccl_op *op)
{
    ccl_op **link = &op->group->state->pending;
    if (!op->is_pending)
        return;
    while (*link != op)
        link = &(*link)->next_pending;
    *link = op->next_pending;
    op->is_pending = op->blocked = false;
}

static bool uses_tensor(const ccl_op *op, kb_tensor tensor)
{
    bool found = false;
    for (size_t i = 0; i < op->share_count; i++)
        found =
            found || op->shares[i].input.id == tensor.id || op->shares[i].output.id == tensor.id;
    return found;
}

/* Whether one writes a tensor that the other uses. */
static bool share_tensor(const ccl_op *a, const ccl_op *b)
{
    for (size_t i = 0; i < a->share_count; i++)
        if (a->shares[i].output.id != 0 && uses_tensor(b, a->shares[i].output))
            return true;
    for (size_t i = 0; i < b->share_count; i++)
        if (b->shares[i].output.id != 0 && uses_tensor(a, b->shares[i].output))
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

/* Whether a PE may access parts of tensors that belong to other PEs. */
static bool crosses_pes(const ccl_op *op)
{
    return is_staged(op) || op->instance->entry->algorithm->shares_work;
}

/* Whether the op must wait for the end of another one that started before it. */
static bool must_follow(const ccl_op *op, const ccl_op *other)
{
    return other->work && other->sequence < op->sequence && !may_pass(op, other) &&
           (crosses_pes(op) || crosses_pes(other)) && share_tensor(op, other);
}

static bool must_follow_any(const ccl_op *op, const ccl_group *group)
{
    const ccl_op *other = group->ops;
    while (other && !must_follow(op, other))
        other = other->next;
    return other;
}

/* Whether no started call prevents the use of its tensors. */
static bool may_use_tensors(const ccl_op *op)
{
    const ccl_state *state = op->group->state;
    bool waits = false;
    for (size_t i = 0; i < state->groups.count && !waits; i++)
        waits = must_follow_any(op, state->groups.items[i]);
    for (size_t i = 0; i < state->leaving.count && !waits; i++)
        waits = must_follow_any(op, state->leaving.items[i]);
    return !waits;
}

bool ccl_can_continue(const ccl_op *op)
{
    return op->ready ? may_launch(op) : may_use_tensors(op);
}

/* The first blocked call that can continue. */
static ccl_op *find_runnable(const ccl_state *state)
{
    ccl_op *op = state->pending;
    while (op && !(op->blocked && ccl_can_continue(op)))
        op = op->next_pending;
    return op;
}

/* A released call may launch at once and leave the list, so that others can continue. */
void ccl_release_runnable(const ccl_state *state)
{
    for (ccl_op *op; (op = find_runnable(state));) {
        op->blocked = false;
        rt_work_release(op->work, NULL);
    }
}

const ccl_op *ccl_find_unmatched(const ccl_op *op)
{
    for (const ccl_op *before = op->group->state->pending; before; before = before->next_pending) {
        bool is_unmatched = ccl_is_pair(before->signature.kind) && before->epoch &&
                            before->epoch->joined_count < before->epoch->expected;
        if (is_unmatched && !may_pass(op, before) && share_device(op, before))
            return before;
    }
    return NULL;
}
