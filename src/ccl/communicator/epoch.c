/*
 * epoch.c: which calls belong together. The n-th call of each rank of a group are one epoch; the
 * n-th send from a rank to another and the n-th receive there are one too. The first to join says
 * what it is.
 *
 * Ranks may be epochs apart. An epoch stays until all have joined it and their calls are over: also
 * one that has failed, so that whoever comes later learns of it. Invariant: op_count is the number
 * of entries of `ops` that are not NULL, and these are calls that are under way.
 *
 * When an epoch fails after kernels were sent off for it, its queues hold messages that nobody will
 * receive. What other ranks have sent off behind it in the same queues cannot come to a good end
 * then, and fails as well; who comes later waits until the queues are fresh (wiring.c).
 *
 * Messages that are left when all went well are a mistake of the kernel, which the next collective
 * would take for its own. Ranks may be apart, so what lies in a queue may be for a call to come:
 * only the last call of those that use the queues can tell.
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

void ccl_print_signature(const ccl_group *group, const ccl_signature *what, kb_text *text)
{
    kb_text_puts(text, kb_collective_name(what->kind));
    if (what->kind == KB_BARRIER)
        return;
    if (ccl_reduces(what->kind))
        kb_text_printf(text, "(%s)", kb_reduce_op_name(what->op));
    kb_text_puts(text, " of ");
    mem_shape_print(&what->shape, text);
    kb_text_printf(text, " %s", kb_dtype_name(what->dtype));
    if (ccl_has_root(what->kind))
        kb_text_printf(text, ", root %u", what->root);
    else if (ccl_is_pair(what->kind))
        kb_text_printf(text, " %s rank %u", what->kind == KB_SEND ? "to" : "from",
                       group->members[what->root]);
    if (what->algorithm)
        kb_text_printf(text, ", by '%s'", what->algorithm);
}

/* Sends are counted for themselves. */
static void print_number(const ccl_group *group, const ccl_epoch *epoch, kb_text *text)
{
    kb_text_printf(text, "%s %ju", epoch->is_pair ? "send" : "collective",
                   (uintmax_t)epoch->number + 1);
    if (epoch->is_pair)
        kb_text_printf(text, " from rank %u to rank %u", group->members[epoch->from],
                       group->members[epoch->to]);
    ccl_print_group(group, text);
}

void ccl_print_epoch(const ccl_group *group, const ccl_epoch *epoch, kb_text *text)
{
    print_number(group, epoch, text);
    if (!epoch->is_pair)
        kb_text_printf(text, ", %s", kb_collective_name(epoch->what.kind));
}

static kb_error *differs(const ccl_group *group, const ccl_epoch *epoch, uint32_t seat,
                         const ccl_signature *what)
{
    kb_text name = KB_TEXT_INIT, own = KB_TEXT_INIT, first = KB_TEXT_INIT;
    print_number(group, epoch, &name);
    ccl_print_signature(group, what, &own);
    ccl_print_signature(group, &epoch->what, &first);
    kb_error *err = kb_error_new(KB_ERR_FAULT, "%s: rank %u calls %s, but rank %u called %s",
                                 kb_text_peek(&name), group->members[seat], kb_text_peek(&own),
                                 group->members[epoch->first], kb_text_peek(&first));
    kb_text_fini(&name);
    kb_text_fini(&own);
    kb_text_fini(&first);
    return err;
}

static void print_joined(const ccl_group *group, const ccl_epoch *epoch, kb_text *text)
{
    enum { MAX_LISTED = 16 };
    uint32_t said = 0;
    for (uint32_t seat = 0; seat < group->seats; seat++) {
        if (!epoch->joined[seat])
            continue;
        if (said++ < MAX_LISTED)
            kb_text_printf(text, "%s%u", said > 1 ? ", " : "", group->members[seat]);
    }
    if (said > MAX_LISTED)
        kb_text_printf(text, " and %u more", said - MAX_LISTED);
}

static kb_error *lacks(const ccl_group *group, const ccl_epoch *epoch, uint32_t seat)
{
    uint32_t rank = group->members[seat];
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

/* ---- The list ---- */

static ccl_epoch *new_epoch(const ccl_group *group)
{
    ccl_epoch *epoch = kb_alloc_zeroed(1, sizeof *epoch);
    if (!epoch)
        return NULL;
    epoch->expected = group->seats;
    epoch->joined = kb_alloc_zeroed(group->seats, sizeof *epoch->joined);
    epoch->ops = kb_alloc_zeroed(group->seats, sizeof *epoch->ops);
    if (epoch->joined && epoch->ops)
        return epoch;
    free_epoch(epoch);
    return NULL;
}

/* It goes when all have joined and all their calls are over. */
static void drop_if_over(ccl_group *group, ccl_epoch *epoch)
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
        for (uint32_t seat = 0; seat < group->seats; seat++)
            if (epoch->ops[seat])
                epoch->ops[seat]->epoch = NULL;
        free_epoch(epoch);
    }
}

/* Which epoch a call is of. */
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

static key key_of(ccl_group *group, uint32_t seat, const ccl_signature *what)
{
    if (!ccl_is_pair(what->kind))
        return (key){.number = group->calls[seat]};
    bool sends = what->kind == KB_SEND;
    key k = {.is_pair = true, .from = sends ? seat : what->root, .to = sends ? what->root : seat};
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

ccl_epoch *ccl_peek_epoch(ccl_group *group, uint32_t seat, const ccl_signature *what)
{
    key k = key_of(group, seat, what);
    return find_epoch(group, &k);
}

/* ---- Failing ---- */

static void end_op(ccl_op *op, const kb_error *why)
{
    if (!op->work)
        return; /* its caller is told when it comes back from waiting */
    if (op->what.kind == KB_BARRIER)
        rt_work_release(op->work, kb_error_copy(why));
    else
        rt_work_abort(op->work, why);
}

static void fail_one(ccl_group *group, ccl_epoch *epoch, const kb_error *why)
{
    epoch->error = kb_error_copy(why);
    kb_error_set_secondary(epoch->error); /* whoever is to blame has its own */
    epoch->op_count++;                    /* it stays while its calls end */
    for (uint32_t seat = 0; seat < group->seats; seat++)
        if (epoch->ops[seat])
            end_op(epoch->ops[seat], epoch->error);
    epoch->op_count--;
    drop_if_over(group, epoch);
}

/*
 * An epoch that cannot end well any more, as it comes behind another one in queues that have gone
 * stale. Sends have no order but among those of the same pair; but one that waits for its receive
 * would keep the queues from being made fresh.
 */
static ccl_epoch *find_spoilt(const ccl_group *group, const ccl_wiring *wiring, const key *failed)
{
    for (ccl_epoch *epoch = group->epochs; epoch; epoch = epoch->next) {
        if (epoch->wiring != wiring || !epoch->begun || epoch->error)
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
    ccl_wiring *wiring = epoch->begun ? epoch->wiring : NULL;
    key failed = {epoch->number, epoch->is_pair, epoch->from, epoch->to};
    if (wiring)
        wiring->stale = true;
    fail_one(group, epoch, why);
    if (!wiring)
        return;
    kb_error *behind = kb_error_wrap(kb_error_copy(why), "after a failed collective");
    for (ccl_epoch *next; (next = find_spoilt(group, wiring, &failed));)
        fail_one(group, next, behind);
    kb_error_free(behind);
}

static bool takes_part(const ccl_epoch *epoch, uint32_t seat)
{
    return !epoch->is_pair || seat == epoch->from || seat == epoch->to;
}

/* Fails the epoch if a rank that has ended is missing in it. */
static bool fail_if_hopeless(ccl_group *group, ccl_epoch *epoch)
{
    for (uint32_t seat = 0; seat < group->seats && !epoch->error; seat++) {
        bool expected = takes_part(epoch, seat) && !epoch->joined[seat];
        if (!expected || !group->state->gone[group->members[seat]])
            continue;
        kb_error *why = lacks(group, epoch, seat);
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
        epoch = !epoch->error && fail_if_hopeless(group, epoch) ? group->epochs : epoch->next;
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
                                     kb_collective_name(epoch->what.kind));
        ccl_fail_epoch(group, epoch, why);
        kb_error_free(why);
        epoch = group->epochs;
    }
}

/* ---- Joining and leaving ---- */

static bool is_same(const ccl_signature *a, const ccl_signature *b)
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

/* The call counts, however it ends. False if there is no memory. */
static bool count_call(ccl_group *group, uint32_t seat, const ccl_signature *what, const key *k)
{
    if (!k->is_pair) {
        group->calls[seat]++;
        return true;
    }
    ccl_pair *pair = find_pair(group, k->from, k->to);
    if (!pair) {
        if (!kb_vec_push(&group->pairs, ((ccl_pair){.from = k->from, .to = k->to})))
            return false;
        pair = &group->pairs.items[group->pairs.count - 1];
    }
    if (what->kind == KB_SEND)
        pair->sent++;
    else
        pair->received++;
    return true;
}

static ccl_epoch *found_epoch(ccl_group *group, const ccl_op *op, const key *k)
{
    ccl_epoch *epoch = new_epoch(group);
    if (!epoch)
        return NULL;
    epoch->number = k->number;
    epoch->is_pair = k->is_pair;
    epoch->from = k->from;
    epoch->to = k->to;
    epoch->expected = k->is_pair ? 2 : group->seats;
    epoch->what = op->what;
    epoch->first = op->shares[0].seat;
    epoch->wiring = op->wiring;
    epoch->base = op->base;
    ccl_epoch **link = &group->epochs;
    while (*link)
        link = &(*link)->next;
    *link = epoch;
    return epoch;
}

kb_error *ccl_join(ccl_op *op)
{
    ccl_group *group = op->group;
    uint32_t seat = op->shares[0].seat;
    key k = key_of(group, seat, &op->what);
    ccl_epoch *epoch = find_epoch(group, &k);
    bool is_first = !epoch;
    if (is_first)
        epoch = found_epoch(group, op, &k);
    if (!epoch || !count_call(group, seat, &op->what, &k)) {
        if (is_first && epoch) {
            epoch->joined_count = epoch->expected;
            drop_if_over(group, epoch);
        }
        return kb_error_nomem();
    }
    epoch->joined[seat] = true;
    epoch->joined_count++;
    kb_error *err = epoch->error ? kb_error_copy(epoch->error) : NULL;
    if (!err && !is_same(&epoch->what, &op->what)) {
        err = differs(group, epoch, seat, &op->what);
        epoch->op_count++;
        ccl_fail_epoch(group, epoch, err);
        epoch->op_count--;
    }
    if (err) {
        drop_if_over(group, epoch);
        return err;
    }
    op->epoch = epoch;
    epoch->ops[seat] = op;
    epoch->op_count++;
    return NULL;
}

void ccl_leave(ccl_op *op)
{
    ccl_epoch *epoch = op->epoch;
    if (!epoch)
        return;
    op->epoch = NULL;
    epoch->ops[op->shares[0].seat] = NULL;
    epoch->op_count--;
    drop_if_over(op->group, epoch);
}

/* ---- Queues that are not empty ---- */

/* All kernels that use its queues have ended, and those that belong to them too. */
static bool is_last(const ccl_op *op)
{
    const ccl_epoch *own = op->epoch;
    if (op->wiring->launched > 1)
        return false;
    if (own && (own->joined_count < own->expected || own->op_count > 1))
        return false;
    for (const ccl_epoch *epoch = op->group->epochs; epoch; epoch = epoch->next)
        if (epoch != own && epoch->wiring == op->wiring && epoch->begun && !epoch->error)
            return false;
    return true;
}

static kb_error *describe_unreceived(const ccl_op *op, const char *messages)
{
    const char *kind = kb_collective_name(op->what.kind);
    kb_text name = KB_TEXT_INIT;
    if (op->epoch)
        ccl_print_epoch(op->group, op->epoch, &name);
    else
        kb_text_puts(&name, kind);
    kb_error *err = kb_error_new(KB_ERR_FAULT, "%s: kernel '%s': %s", kb_text_peek(&name),
                                 op->wiring->entry->algorithm->kernel->name, messages);
    kb_text_fini(&name);
    return err;
}

kb_error *ccl_check_queues(const ccl_op *op)
{
    if (op->wiring->stale || !is_last(op))
        return NULL;
    kb_text messages = KB_TEXT_INIT;
    kb_error *err = NULL;
    if (ipcq_print_unreceived(op->wiring->queues, &messages))
        err = describe_unreceived(op, kb_text_peek(&messages));
    kb_text_fini(&messages);
    return err;
}
