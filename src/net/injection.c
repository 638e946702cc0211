/*
 * injection.c: the order in which transfers leave a source.
 *
 * Transfers go one after the other. But a memory serves those who read in turns, packet by packet,
 * so that one who takes the data slowly does not hold up the others; what one reader asked for
 * comes in the order in which it was asked for. So a source is a ring of readers, each a list of
 * transfers; a source that is no memory has only one.
 *
 * Only the packet that comes next exists. There is no limit to what a source holds.
 */
#include "injection.h"

#include "conflict.h"
#include "packet_ops.h"
#include "train.h"

void injection_append(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    channel *ch = &n->channels[r->injection];
    tr->behind = NONE;
    tr->last_behind = t;
    if (ch->first_transfer == NONE) {
        ch->first_transfer = t;
        ch->last_transfer = t;
        return;
    }
    for (uint32_t i = ch->first_transfer;; i = transfer_at(n, i)->next) {
        transfer *first = transfer_at(n, i);
        if (route_of(n, first)->reader == r->reader) {
            transfer_at(n, first->last_behind)->behind = t;
            first->last_behind = t;
            return;
        }
        if (i == ch->last_transfer)
            break;
    }
    /* If the reader in hand has been deferred, a train of its own is not in order any more. */
    if (transfer_at(n, ch->first_transfer)->deferred)
        conflict_leave_source(n, r, NOTHING);
    transfer_at(n, ch->last_transfer)->next = t;
    ch->last_transfer = t;
}

void injection_push(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    channel *ch = &n->channels[r->injection];
    uint32_t other = ch->first_transfer;
    KB_ASSERT(other == ch->last_transfer || other == NONE);
    ch->first_transfer = t;
    if (other == NONE) {
        ch->last_transfer = t;
    } else if (route_of(n, transfer_at(n, other))->reader == r->reader) {
        transfer_at(n, tr->last_behind)->behind = other;
        tr->last_behind = transfer_at(n, other)->last_behind;
        ch->last_transfer = t;
    } else {
        tr->next = other;
    }
}

void injection_drop(net *n, uint32_t c)
{
    channel *ch = &n->channels[c];
    const transfer *tr = transfer_at(n, ch->first_transfer);
    KB_ASSERT(ch->first_transfer == ch->last_transfer);
    if (tr->behind != NONE)
        transfer_at(n, tr->behind)->last_behind = tr->last_behind;
    ch->first_transfer = tr->behind;
    ch->last_transfer = tr->behind;
}

/* The reader whose turn it was goes to the end, or away if nothing of it is left. */
static void turn(net *n, channel *ch)
{
    uint32_t t = ch->first_transfer;
    const transfer *tr = transfer_at(n, t);
    uint32_t left = t;
    if (tr->made == tr->packets) {
        left = tr->behind;
        if (left != NONE)
            transfer_at(n, left)->last_behind = tr->last_behind;
    }
    if (t == ch->last_transfer) {
        ch->first_transfer = left;
        ch->last_transfer = left;
        return;
    }
    ch->first_transfer = tr->next;
    if (left != NONE) {
        transfer_at(n, ch->last_transfer)->next = left;
        ch->last_transfer = left;
    }
}

void injection_make_packet(net *n, uint32_t c)
{
    channel *ch = &n->channels[c];
    transfer *tr = transfer_at(n, ch->first_transfer);
    uint32_t p = kb_pool_take(&n->packets);
    if (p == NONE) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return;
    }
    packet *pk = packet_at(n, p);
    uint32_t index = tr->made++;
    bool last = tr->made == tr->packets;
    uint64_t left = tr->bytes - (uint64_t)index * n->options.fabric.packet_bytes;
    pk->head_at = tr->ready_at;
    pk->tail_at = tr->ready_at;
    pk->next_step = tr->own_route;
    pk->step = *step_pool_at(&n->step_pool, tr->own_route);
    pk->number = (last ? (uint32_t)left : index) << PACKET_NUMBER_SHIFT | (last ? PACKET_LAST : 0u);
    ch->first = p;
}

void injection_prepare(net *n, uint32_t c)
{
    const channel *ch = &n->channels[c];
    for (;;) {
        uint32_t t = ch->first_transfer;
        if (t == NONE || !transfer_at(n, t)->arrived)
            return;
        if (transfer_at(n, t)->on_links) {
            if (transfer_at(n, t)->made < transfer_at(n, t)->retry_at || !train_coalesce(n, t))
                break;
            continue;
        }
        transfer_at(n, t)->deferred = false;
        train_outcome answer = train_try_start(n, t);
        if (answer == TRAIN_STARTED)
            continue;
        if (answer == TRAIN_DEFERRED)
            return;
        conflict_leave_source(n, route_of(n, transfer_at(n, t)), c);
        if (ch->first_transfer != t) /* a train was unfolded that had not left the source */
            return;
        transfer *tr = transfer_at(n, t);
        tr->made = tr->delivered = 0;
        train_retry(n, tr, 1);
        packets_begin(n, t);
        if (tr->own_route == NONE)
            return;
        conflict_feed_at_once(n, step_pool_at(&n->step_pool, tr->own_route));
    }
    injection_make_packet(n, c);
}

bool injection_retry(net *n, uint32_t c)
{
    const channel *ch = &n->channels[c];
    if (ch->first_transfer == NONE || !transfer_at(n, ch->first_transfer)->deferred)
        return false;
    injection_prepare(n, c);
    return ch->first != NONE;
}

void injection_next(net *n, uint32_t c)
{
    channel *ch = &n->channels[c];
    ch->first = NONE;
    turn(n, ch);
    injection_prepare(n, c);
}
