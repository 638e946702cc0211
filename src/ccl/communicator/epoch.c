/*
 * epoch.c: matches calls. The n-th calls of all ranks of a group form an epoch; so do the n-th send
 * from a rank to another and the n-th receive there. The first call defines the signature.
 *
 * Ranks may be several epochs apart. An epoch is kept until all ranks have joined it and their
 * calls have ended, also if it has failed, so that later ranks get its error. Invariant: op_count
 * is the number of non-NULL entries of `ops`, which are calls that have not ended.
 *
 * If an epoch fails after kernels were launched, its queues hold messages that will not be
 * received. Calls of later epochs in the same queues cannot complete and fail too; new calls wait
 * until the queues are reset (ccl_reset_stale_queues()).
 *
 * Messages that are left after success are a mistake of the kernel: the next collective would
 * receive them. As ranks may be apart, a message may be for a call to come, so only the last call
 * that uses the queues can decide.
 */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

static void free_epoch(ccl_epoch *epoch)
{
    if (!epoch)
        return;
    kb_error_free(epoch->error);
    free(epoch->joined);
    free(epoch->ops);
    free(epoch);
}

/* ---- Messages ---- */

void ccl_print_signature(const ccl_group *group, const ccl_signature *signature, kb_text *text)
{
    kb_text_puts(text, kb_collective_name(signature->kind));
    if (signature->kind == KB_BARRIER)
        return;
    if (ccl_reduces(signature->kind))
        kb_text_printf(text, "(%s)", kb_reduce_op_name(signature->op));
    kb_text_puts(text, " of ");
    mem_shape_print(&signature->shape, text);
    kb_text_printf(text, " %s", kb_dtype_name(signature->dtype));
    if (ccl_has_root(signature->kind))
        kb_text_printf(text, ", root %u", signature->root);
    else if (ccl_is_pair(signature->kind))
        kb_text_printf(text, " %s rank %u", signature->kind == KB_SEND ? "to" : "from",
                       group->global_ranks[signature->root]);
    if (signature->algorithm)
        kb_text_printf(text, ", by '%s'", signature->algorithm);
}

/* Sends and receives are numbered by pair of ranks. */
static void print_number(const ccl_group *group, const ccl_epoch *epoch, kb_text *text)
{
    kb_text_printf(text, "%s %ju", epoch->is_pair ? "send" : "collective",
                   (uintmax_t)epoch->number + 1);
    if (epoch->is_pair)
        kb_text_printf(text, " from rank %u to rank %u", group->global_ranks[epoch->from],
                       group->global_ranks[epoch->to]);
    ccl_print_group(group, text);
}

void ccl_print_epoch(const ccl_group *group, const ccl_epoch *epoch, kb_text *text)
{
    print_number(group, epoch, text);
    if (!epoch->is_pair)
        kb_text_printf(text, ", %s", kb_collective_name(epoch->signature.kind));
}

static kb_error *mismatch_error(const ccl_group *group, const ccl_epoch *epoch, uint32_t device,
                                const ccl_signature *signature)
{
    kb_text name = KB_TEXT_INIT, own = KB_TEXT_INIT, first = KB_TEXT_INIT;
    print_number(group, epoch, &name);
    ccl_print_signature(group, signature, &own);
    ccl_print_signature(group, &epoch->signature, &first);
    kb_error *err =
        kb_error_new(KB_ERR_FAULT, "%s: rank %u calls %s, but rank %u called %s",
                     kb_text_peek(&name), group->global_ranks[device], kb_text_peek(&own),
                     group->global_ranks[epoch->first], kb_text_peek(&first));
    kb_text_fini(&name);
    kb_text_fini(&own);
    kb_text_fini(&first);
    return err;
}

static void print_joined(const ccl_group *group, const ccl_epoch *epoch, kb_text *text)
{
    enum { MAX_LISTED = 16 };
    uint32_t said = 0;
    for (uint32_t device = 0; device < group->device_count; device++) {
        if (!epoch->joined[device])
            continue;
        if (said++ < MAX_LISTED)
            kb_text_printf(text, "%s%u", said > 1 ? ", " : "", group->global_ranks[device]);
    }
    if (said > MAX_LISTED)
        kb_text_printf(text, " and %u more", said - MAX_LISTED);
}

static kb_error *missing_rank_error(const ccl_group *group, const ccl_epoch *epoch, uint32_t device)
{
    uint32_t rank = group->global_ranks[device];
    bool was_there = rank < rt_worker_count(group->state->ctx);
    kb_text name = KB_TEXT_INIT, joined = KB_TEXT_INIT;
    ccl_print_epoch(group, epoch, &name);
    print_joined(group, epoch, &joined);
    kb_error *err = kb_error_new(
        KB_ERR_FAULT, "%s: rank %u %s; in it: rank %s", kb_text_peek(&name), rank,
        was_there ? "ended without joining it" : "has no worker", kb_text_peek(&joined));
    kb_text_fini(&name);
    kb_text_fini(&joined);
    return err;
}

/* ---- The list of epochs ---- */

static ccl_epoch *new_epoch(const ccl_group *group)
{
    ccl_epoch *epoch = kb_alloc_zeroed(1, sizeof *epoch);
    if (!epoch)
        return NULL;
    epoch->expected = group->device_count;
    epoch->joined = kb_alloc_zeroed(group->device_count, sizeof *epoch->joined);
    epoch->ops = kb_alloc_zeroed(group->device_count, sizeof *epoch->ops);
    if (epoch->joined && epoch->ops)
        return epoch;
    free_epoch(epoch);
    return NULL;
}

/* Frees the epoch if all ranks have joined and their calls have ended. */
static void free_if_over(ccl_group *group, ccl_epoch *epoch)
{
    if (epoch->joined_count < epoch->expected || epoch->op_count > 0)
        return;
    ccl_epoch **link = &group->epochs;
    while (*link != epoch)
        link = &(*link)->next;
    *link = epoch->next;
    free_epoch(epoch);
}

void ccl_free_epochs(ccl_group *group)
{
    while (group->epochs) {
        ccl_epoch *epoch = group->epochs;
        group->epochs = epoch->next;
        for (uint32_t device = 0; device < group->device_count; device++)
            if (epoch->ops[device])
                epoch->ops[device]->epoch = NULL;
        free_epoch(epoch);
    }
}

/* Identifies the epoch of a call. */
typedef struct key {
    uint64_t number;
    bool is_pair;
    uint32_t from, to;
} key;

static ccl_pair *find_pair(ccl_group *group, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < group->pairs.count; i++)
        if (group->pairs.items[i].from == from && group->pairs.items[i].to == to)
            return &group->pairs.items[i];
    return NULL;
}

static key key_of(ccl_group *group, uint32_t device, const ccl_signature *signature)
{
    if (!ccl_is_pair(signature->kind))
        return (key){.number = group->calls[device]};
    bool sends = signature->kind == KB_SEND;
    key k = {.is_pair = true,
             .from = sends ? device : signature->root,
             .to = sends ? signature->root : device};
    const ccl_pair *pair = find_pair(group, k.from, k.to);
    if (pair)
        k.number = sends ? pair->sent : pair->received;
    return k;
}

static ccl_epoch *find_epoch(const ccl_group *group, const key *k)
{
    for (ccl_epoch *epoch = group->epochs; epoch; epoch = epoch->next)
        if (epoch->number == k->number && epoch->is_pair == k->is_pair && epoch->from == k->from &&
            epoch->to == k->to)
            return epoch;
    return NULL;
}

ccl_epoch *ccl_peek_epoch(ccl_group *group, uint32_t device, const ccl_signature *signature)
{
    key k = key_of(group, device, signature);
    return find_epoch(group, &k);
}

/* ---- Failing ---- */

static void abort_op(ccl_op *op, const kb_error *why)
{
    if (!op->work)
        return; /* not started: the waiting caller returns the error */
    if (op->signature.kind == KB_BARRIER)
        rt_work_release(op->work, kb_error_copy(why));
    else
        rt_work_abort(op->work, why);
}

static void fail_epoch(ccl_group *group, ccl_epoch *epoch, const kb_error *why)
{
    epoch->error = kb_error_copy(why);
    kb_error_set_secondary(epoch->error); /* the rank that failed has its own error */
    epoch->op_count++;                    /* keeps the epoch while its calls end */
    for (uint32_t device = 0; device < group->device_count; device++)
        if (epoch->ops[device])
            abort_op(epoch->ops[device], epoch->error);
    epoch->op_count--;
    free_if_over(group, epoch);
}

/* An epoch that cannot complete because it uses the stale queues after a failed one. Sends are
 * ordered only within a pair; but a send that waits for its receive would prevent the reset of the
 * queues. */
static ccl_epoch *find_affected(const ccl_group *group, const ccl_instance *instance,
                                const key *failed)
{
    for (ccl_epoch *epoch = group->epochs; epoch; epoch = epoch->next) {
        if (epoch->instance != instance || !epoch->begun || epoch->error)
            continue;
        bool same = !epoch->is_pair || (epoch->from == failed->from && epoch->to == failed->to);
        bool waits = epoch->is_pair && epoch->joined_count < epoch->expected;
        if (waits || (same && epoch->number > failed->number))
            return epoch;
    }
    return NULL;
}

void ccl_fail_epoch(ccl_group *group, ccl_epoch *epoch, const kb_error *why)
{
    if (epoch->error)
        return;
    ccl_instance *instance = epoch->begun ? epoch->instance : NULL;
    key failed = {epoch->number, epoch->is_pair, epoch->from, epoch->to};
    if (instance)
        instance->stale = true;
    fail_epoch(group, epoch, why);
    if (!instance)
        return;
    kb_error *behind = kb_error_wrap(kb_error_copy(why), "after a failed collective");
    for (ccl_epoch *next; (next = find_affected(group, instance, &failed));)
        fail_epoch(group, next, behind);
    kb_error_free(behind);
}

static bool takes_part(const ccl_epoch *epoch, uint32_t device)
{
    return !epoch->is_pair || device == epoch->from || device == epoch->to;
}

/* Fails the epoch if a rank that has not joined it has ended. */
static bool fail_if_incomplete(ccl_group *group, ccl_epoch *epoch)
{
    for (uint32_t device = 0; device < group->device_count && !epoch->error; device++) {
        bool expected = takes_part(epoch, device) && !epoch->joined[device];
        if (!expected || !group->state->gone[group->global_ranks[device]])
            continue;
        kb_error *why = missing_rank_error(group, epoch, device);
        ccl_fail_epoch(group, epoch, why);
        kb_error_free(why);
        return true;
    }
    return false;
}

void ccl_worker_missing(ccl_group *group)
{
    ccl_epoch *epoch = group->epochs;
    while (epoch)
        epoch = !epoch->error && fail_if_incomplete(group, epoch) ? group->epochs : epoch->next;
}

void ccl_abandon_epochs(ccl_group *group)
{
    ccl_epoch *epoch = group->epochs;
    while (epoch) {
        if (epoch->error || epoch->joined_count == epoch->expected) {
            epoch = epoch->next;
            continue;
        }
        kb_error *why = kb_error_new(KB_ERR_FAULT, "the %s was abandoned",
                                     kb_collective_name(epoch->signature.kind));
        ccl_fail_epoch(group, epoch, why);
        kb_error_free(why);
        epoch = group->epochs;
    }
}

/* ---- Joining and leaving ---- */

static bool is_same_call(const ccl_signature *a, const ccl_signature *b)
{
    bool by_same = a->algorithm && b->algorithm ? strcmp(a->algorithm, b->algorithm) == 0
                                                : a->algorithm == b->algorithm;
    if (ccl_is_pair(a->kind) && ccl_is_pair(b->kind))
        return by_same && a->dtype == b->dtype && mem_shape_equal(&a->shape, &b->shape);
    if (a->kind != b->kind || a->kind == KB_BARRIER)
        return a->kind == b->kind;
    return by_same && a->dtype == b->dtype && mem_shape_equal(&a->shape, &b->shape) &&
           (!ccl_reduces(a->kind) || a->op == b->op) &&
           (!ccl_has_root(a->kind) || a->root == b->root);
}

/* Counts the call, whether it fails or not. False if there is no memory. */
static bool count_call(ccl_group *group, uint32_t device, const ccl_signature *signature,
                       const key *k)
{
    if (!k->is_pair) {
        group->calls[device]++;
        return true;
    }
    ccl_pair *pair = find_pair(group, k->from, k->to);
    if (!pair) {
        if (!kb_vec_push(&group->pairs, ((ccl_pair){.from = k->from, .to = k->to})))
            return false;
        pair = &group->pairs.items[group->pairs.count - 1];
    }
    if (signature->kind == KB_SEND)
        pair->sent++;
    else
        pair->received++;
    return true;
}

static ccl_epoch *create_epoch(ccl_group *group, const ccl_op *op, const key *k)
{
    ccl_epoch *epoch = new_epoch(group);
    if (!epoch)
        return NULL;
    epoch->number = k->number;
    epoch->is_pair = k->is_pair;
    epoch->from = k->from;
    epoch->to = k->to;
    epoch->expected = k->is_pair ? 2 : group->device_count;
    epoch->signature = op->signature;
    epoch->first = op->shares[0].device;
    epoch->instance = op->instance;
    epoch->lane_layout = op->lane_layout;
    ccl_epoch **link = &group->epochs;
    while (*link)
        link = &(*link)->next;
    *link = epoch;
    return epoch;
}

kb_error *ccl_join(ccl_op *op)
{
    ccl_group *group = op->group;
    uint32_t device = op->shares[0].device;
    key k = key_of(group, device, &op->signature);
    ccl_epoch *epoch = find_epoch(group, &k);
    bool is_first = !epoch;
    if (is_first)
        epoch = create_epoch(group, op, &k);
    if (!epoch || !count_call(group, device, &op->signature, &k)) {
        if (is_first && epoch) {
            epoch->joined_count = epoch->expected;
            free_if_over(group, epoch);
        }
        return kb_error_nomem();
    }
    epoch->joined[device] = true;
    epoch->joined_count++;
    kb_error *err = epoch->error ? kb_error_copy(epoch->error) : NULL;
    if (!err && !is_same_call(&epoch->signature, &op->signature)) {
        err = mismatch_error(group, epoch, device, &op->signature);
        epoch->op_count++;
        ccl_fail_epoch(group, epoch, err);
        epoch->op_count--;
    }
    if (err) {
        free_if_over(group, epoch);
        return err;
    }
    op->epoch = epoch;
    epoch->ops[device] = op;
    epoch->op_count++;
    return NULL;
}

void ccl_leave(ccl_op *op)
{
    ccl_epoch *epoch = op->epoch;
    if (!epoch)
        return;
    op->epoch = NULL;
    epoch->ops[op->shares[0].device] = NULL;
    epoch->op_count--;
    free_if_over(op->group, epoch);
}

/* ---- Messages that were not received ---- */

/* Whether all other calls that use the queues, and those of their epochs, have ended. */
static bool is_last(const ccl_op *op)
{
    const ccl_epoch *own = op->epoch;
    if (op->instance->launched > 1)
        return false;
    if (own && (own->joined_count < own->expected || own->op_count > 1))
        return false;
    for (const ccl_epoch *epoch = op->group->epochs; epoch; epoch = epoch->next)
        if (epoch != own && epoch->instance == op->instance && epoch->begun && !epoch->error)
            return false;
    return true;
}

static kb_error *describe_unreceived(const ccl_op *op, const char *messages)
{
    const char *kind = kb_collective_name(op->signature.kind);
    kb_text name = KB_TEXT_INIT;
    if (op->epoch)
        ccl_print_epoch(op->group, op->epoch, &name);
    else
        kb_text_puts(&name, kind);
    kb_error *err = kb_error_new(KB_ERR_FAULT, "%s: kernel '%s': %s", kb_text_peek(&name),
                                 op->instance->entry->algorithm->kernel->name, messages);
    kb_text_fini(&name);
    return err;
}

kb_error *ccl_check_queues(const ccl_op *op)
{
    if (op->instance->stale || !is_last(op))
        return NULL;
    kb_text messages = KB_TEXT_INIT;
    kb_error *err = NULL;
    if (ipcq_print_unreceived(op->instance->queues, &messages))
        err = describe_unreceived(op, kb_text_peek(&messages));
    kb_text_fini(&messages);
    return err;
}
