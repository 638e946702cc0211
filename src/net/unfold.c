/*
 * unfold.c: a train becomes packets again: each is put where it is by now.
 *
 * Where packets are follows from the rules of packet_engine.inc for a message that is alone. A
 * packet starts on a link when its head has come, the one before it has had its time there, and the
 * one that is so far ahead as the channel behind holds packets has left that channel. These times
 * are found packet by packet, link by link, and what has started up to now has happened: links,
 * channels, sources and statistics are left as they would be if there had been packets all the
 * time.
 *
 * A train is unfolded before any packet meets it (conflict.h), so whatever it does at this instant
 * makes no difference to the rest of the instant, and counts as done.
 */
#include "conflict.h"
#include "injection.h"
#include "packet_ops.h"
#include "reservation.h"
#include "train.h"

__extension__ typedef unsigned __int128 wide;

/* A link of the route, and what the packet in hand does there. */
struct stage {
    kb_time start, free_at, leaves;
    kb_time latency;
    const topo_pace *pace;
    uint64_t slack;      /* by how much, in parts of a rate, the time so far is rounded up */
    kb_time *departures; /* of the last packets from behind the link, as many as fit there */
    uint32_t window;     /* how many these are; 0 if the message has not more */
    uint32_t cursor;     /* the oldest one */
    uint32_t at;         /* the link */
    uint32_t channel;    /* behind it, if the train has started there */
    bool waits;          /* the first packet in that channel, for the next link */
};

enum { MAX_DEPARTURES = 1 << 16 };

/* How many packets fit into the channel behind a link, if that limits the message. */
static uint32_t window_of(const net *n, const route *r, const transfer *tr, uint32_t at)
{
    uint32_t fit = profile_of(n, at)->capacity / n->options.fabric.packet_bytes;
    return r->first == r->slowest || fit >= tr->packets ? 0 : fit;
}

bool train_reserve(net *n, const route *r, const transfer *tr)
{
    const uint32_t *path = step_pool_at(&n->step_pool, r->words);
    uint64_t departures = 0;
    if (r->first != r->slowest)
        for (uint32_t i = 0; i + 1 < r->steps; i++)
            departures += window_of(n, r, tr, step_link(n, path[i]));
    if (departures > MAX_DEPARTURES)
        return false;
    if (kb_vec_reserve(&n->stages, r->steps) && kb_vec_reserve(&n->departures, departures))
        return true;
    /* Packets would take the same time, but another number of events. */
    kb_sim_fail(n->sim, kb_error_nomem());
    return false;
}

/* ---- When packets start ------------------------------------------------------------------ */

/*
 * Packets that have gone for good, if those that are left can be looked at without them: if none
 * waits behind the first link.
 */
static uint32_t count_gone(const route *r, const transfer *tr, kb_time now)
{
    kb_time since = now - tr->start - r->latency;
    if (since <= 0 || r->first != r->slowest)
        return tr->train_first;
    wide gone = (wide)(uint64_t)since * r->first->bytes_per_s /
                ((wide)r->first->packet_bytes * (uint64_t)KB_S);
    if (gone < tr->train_first)
        return tr->train_first;
    return gone < tr->packets ? (uint32_t)gone : tr->packets - 1;
}

/* The channel behind a link, if the train has started there. */
static uint32_t channel_of(const net *n, const transfer *tr, uint32_t i)
{
    if (tr->own_route == NONE)
        return NOTHING;
    return step_channel(*step_pool_at(&n->step_pool, tr->own_route + i));
}

/* Makes ready for packet `first` of the message and those after it. */
static void begin_walk(const net *n, const route *r, const transfer *tr, uint32_t first)
{
    const uint32_t *path = step_pool_at(&n->step_pool, r->words);
    kb_time *departures = n->departures.items;
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(n, path[i]);
        const profile *pr = profile_of(n, at);
        const topo_pace *pace = &pr->pace;
        uint64_t over = (uint64_t)((wide)first * pace->remainder % pace->bytes_per_s);
        stage *st = &n->stages.items[i];
        *st = (stage){.free_at = -1,
                      .latency = pr->latency,
                      .pace = pace,
                      .slack = over > 0 ? pace->bytes_per_s - over : 0,
                      .departures = departures,
                      .window = i + 1 < r->steps ? window_of(n, r, tr, at) : 0,
                      .at = at,
                      .channel = channel_of(n, tr, i)};
        for (uint32_t k = 0; k < st->window; k++)
            *departures++ = -1;
    }
    n->stages.items[0].free_at =
        tr->start +
        topo_rate_time(r->first->bytes_per_s, (uint64_t)first * n->options.fabric.packet_bytes);
}

/* topo_pace_time(), for one packet after the other. */
static inline kb_time stage_time(stage *st, uint32_t index, uint32_t bytes)
{
    const topo_pace *pace = st->pace;
    if (bytes != pace->packet_bytes)
        return topo_pace_time(pace, index, bytes);
    bool more = st->slack < pace->remainder;
    st->slack += (more ? pace->bytes_per_s : 0) - pace->remainder;
    return (kb_time)pace->quotient + more;
}

static uint32_t bytes_at(const net *n, const transfer *tr, uint32_t index)
{
    uint64_t left = tr->bytes - (uint64_t)index * n->options.fabric.packet_bytes;
    return left < n->options.fabric.packet_bytes ? (uint32_t)left : n->options.fabric.packet_bytes;
}

/*
 * Follows a packet along the route; returns on how many links it has started by then. Where it
 * starts next is the last stage that is looked at: no packet behind it comes farther.
 */
static uint32_t walk(const net *n, uint32_t steps, uint32_t index, uint32_t bytes, kb_time now)
{
    kb_time head = -1, tail = -1;
    for (stage *st = n->stages.items, *end = st + steps; st < end; st++) {
        kb_time start = head > st->free_at ? head : st->free_at;
        if (st->window > 0 && st->departures[st->cursor] > start)
            start = st->departures[st->cursor];
        st->start = start;
        st->free_at = kb_time_add(start, stage_time(st, index, bytes));
        st->leaves = st->free_at > tail ? st->free_at : tail;
        head = kb_time_add(start, st->latency);
        tail = kb_time_add(st->leaves, st->latency);
        if (st > n->stages.items && st[-1].window > 0) {
            st[-1].departures[st[-1].cursor] = st->leaves;
            st[-1].cursor = st[-1].cursor + 1 == st[-1].window ? 0 : st[-1].cursor + 1;
        }
        if (start > now)
            return (uint32_t)(st - n->stages.items);
    }
    return steps;
}

/* ---- Where packets are ------------------------------------------------------------------- */

/* A packet is on the link, or comes to it, then: see packet_engine.inc. */
static void hold(net *n, uint32_t at, kb_time head, kb_time leaves)
{
    link *l = &n->links[at];
    kb_time end = kb_time_add(head, profile_of(n, at)->clearance);
    end = end > leaves ? end : leaves;
    l->held_until = l->held_until > end ? l->held_until : end;
}

/* The packet has started on link `i` of the route: what start() does to what stays behind. */
static void pass(net *n, const transfer *tr, uint32_t i, uint32_t bytes)
{
    stage *st = &n->stages.items[i];
    link *l = &n->links[st->at];
    l->bytes += bytes;
    l->flags |= LINK_PORT_USED;
    n->hops++;
    hold(n, st->at, st->start, st->leaves);
    if (i > 0 && st->start > st[-1].start + st[-1].latency) /* it was in the port for longer */
        hold(n, st[-1].at, st[-1].start, st->leaves);
    if (st->free_at > l->free_at) { /* else packets have passed it since */
        l->free_at = st->free_at;
        l->last = tr->own_route + i;
    }
    if (st->leaves > n->now && i > 0) {
        if (l->credit_channel != NOTHING)
            return_credit(n, l);
        take_space(&n->channels[st[-1].channel], bytes);
        l->credit_due_at = st->leaves;
        l->credit_channel = st[-1].channel;
        l->credit_bytes = bytes;
    }
}

/* The first packet of the channel is to be offered when all trains have been unfolded. */
static void offer_later(net *n, uint32_t c)
{
    if (!kb_vec_push(&n->to_offer, c))
        kb_sim_fail(n->sim, kb_error_nomem());
}

/* The packet comes to the next link of its route. */
static void meet_later(net *n, const packet *pk, uint32_t feeder)
{
    const uint32_t *step = step_pool_at(&n->step_pool, pk->next_step);
    visit v = {.at = step_link(n, step[0]),
               .feeder = feeder,
               .step = step[0],
               .next_step = pk->next_step,
               .is_final = step[1] == END_OF_ROUTE,
               .is_last = (pk->number & PACKET_LAST) != 0,
               .head = pk->head_at,
               .tail = pk->tail_at};
    if (!kb_vec_push(&n->to_meet, v))
        kb_sim_fail(n->sim, kb_error_nomem());
}

/*
 * Puts the packet into the channel, in the order in which packets come there: others may follow the
 * train. Returns whether it is the first.
 */
static bool insert(net *n, channel *ch, uint32_t p)
{
    packet *pk = packet_at(n, p);
    pk->next = NONE;
    if (ch->first == NONE) {
        ch->first = ch->last = p;
        return true;
    }
    packet *last = packet_at(n, ch->last), *first = packet_at(n, ch->first);
    if (KB_LIKELY(last->head_at < pk->head_at)) {
        last->next = p;
        ch->last = p;
        return false;
    }
    if (first->head_at > pk->head_at) {
        first->number |= PACKET_FORESEEN;
        pk->next = ch->first;
        ch->first = p;
        return true;
    }
    packet *before = first;
    while (packet_at(n, before->next)->head_at < pk->head_at)
        before = packet_at(n, before->next);
    pk->next = before->next;
    before->next = p;
    return false;
}

/* The packet is in the port behind link `i` of the route, or comes there. */
static void put_in_port(net *n, const transfer *tr, uint32_t i, uint32_t index, uint32_t bytes,
                        bool last)
{
    stage *st = &n->stages.items[i];
    channel *ch = &n->channels[st->channel];
    uint32_t p = kb_pool_take(&n->packets);
    if (p == NONE) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return;
    }
    packet *pk = packet_at(n, p);
    take_space(ch, bytes);
    pk->head_at = st->start + st->latency;
    pk->tail_at = st->leaves + st->latency;
    pk->next_step = tr->own_route + i + 1;
    pk->step = *step_pool_at(&n->step_pool, pk->next_step);
    pk->number = (last ? bytes : index) << PACKET_NUMBER_SHIFT | (last ? PACKET_LAST : 0u);
    if (insert(n, ch, p)) {
        st->waits = pk->head_at <= n->now;
        if (!st->waits)
            schedule(n, pk->head_at, arrival_id(n, st->at), n->on_arrival,
                     (uint64_t)st->channel << 32 | p);
    }
    hold(n, step_link(n, pk->step), pk->head_at, pk->tail_at);
    if (pk->head_at > n->now)
        meet_later(n, pk, st->at);
}

/* Puts the packets that have left the source where they are. */
static void put_packets(net *n, const route *r, transfer *tr)
{
    for (; tr->made < tr->packets; tr->made++) {
        bool last = tr->made + 1 == tr->packets && tr->part_of == NONE;
        uint32_t bytes = bytes_at(n, tr, tr->made);
        uint32_t started = walk(n, r->steps, tr->made, bytes, n->now);
        if (started == 0)
            return;
        for (uint32_t i = 0; i < started; i++)
            pass(n, tr, i, bytes);
        const stage *st = &n->stages.items[started - 1];
        if (started < r->steps) {
            put_in_port(n, tr, started - 1, tr->made, bytes, last);
        } else {
            tr->delivered++;
            tr->ends_at = st->leaves + st->latency;
        }
    }
}

/*
 * The links are not reserved any more, and have counted nothing. Virtual channels that the train
 * has taken are written into its path; those that the last packet of a remainder has entered are
 * free again.
 */
static void withdraw(net *n, const route *r, uint32_t t)
{
    const transfer *tr = transfer_at(n, t);
    kb_time last =
        tr->start + topo_rate_time(r->first->bytes_per_s,
                                   (uint64_t)(tr->packets - 1) * n->options.fabric.packet_bytes);
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t *step = step_pool_at(&n->step_pool, tr->own_route + i), at = step_link(n, *step);
        const reservation *reserved = reservation_at(n, reservation_of(tr, i));
        reservation_take_turns(n, at, n->now);
        reservation_remove(n, at, reservation_of(tr, i));
        if (reserved->vc < VC_OPEN && i + 1u < r->steps)
            *step = step_channel(*step) + reserved->vc;
        if (reservation_is_remainder(reserved) && !(reserved->flags & RESERVATION_FREED) &&
            i + 1u < r->steps && last <= n->now)
            n->channels[step_channel(*step)].space &= ~(uint32_t)SPACE_TAKEN;
        n->links[at].bytes -= train_bytes(n, tr);
        last += profile_of(n, at)->latency;
    }
    step_pool_free(&n->step_pool, tr->train, tr->train_size);
    if (tr->train_first == 0)
        add_waited(n, r->first_link, tr->ready_at - tr->start);
    n->hops -= (uint64_t)train_packets(tr) * r->steps;
}

/* Virtual channels that the message has entered are taken until its last packet has. The stages, up
 * to where that one has not started, are those of the newest packet that was looked at. */
static void take_channels(net *n, const route *r, const transfer *tr)
{
    if (n->options.fabric.vcs == 1)
        return;
    kb_time from = tr->start;
    bool is_taken = tr->made < tr->packets;
    for (uint32_t i = 0; i + 1u < r->steps && from <= n->now; i++) {
        const stage *st = &n->stages.items[i];
        n->links[st->at].flags |= LINK_PORT_USED;
        is_taken |= st->start > n->now;
        if (is_taken)
            n->channels[st->channel].space |= SPACE_TAKEN;
        from += st->latency;
    }
}

/* Its packets come to some links over a link without latency: see conflict_feed_at_once(). */
static void feed_later(net *n, const route *r)
{
    const uint32_t *path = step_pool_at(&n->step_pool, r->words);
    for (uint32_t i = 1; i < r->steps; i++) {
        uint32_t at = step_link(n, path[i]);
        if (profile_of(n, step_link(n, path[i - 1]))->latency > 0 ||
            n->links[at].flags & LINK_FED_AT_ONCE)
            continue;
        n->links[at].flags |= LINK_FED_AT_ONCE;
        if (!kb_vec_push(&n->to_clear, at))
            kb_sim_fail(n->sim, kb_error_nomem());
    }
}

/* From which packet on the message is tried as a train again: sooner if this train was worth it. */
static void note_retry(const net *n, transfer *tr)
{
    uint32_t gone = tr->made - tr->train_first;
    if (tr->train_first == 0)
        train_retry(n, tr, 4);
    else if (gone >= 4 * tr->retry_gap)
        train_retry(n, tr, tr->retry_gap > 8 ? tr->retry_gap / 2 : 4);
    else
        train_retry(n, tr, tr->retry_gap < 64 ? tr->retry_gap * 2 : 64);
}

/* Puts the packets of the train where they are by now. */
static void put_train(net *n, const route *r, transfer *tr)
{
    uint32_t gone = count_gone(r, tr, n->now), done = gone - tr->train_first;
    tr->made = gone;
    tr->delivered += done;
    begin_walk(n, r, tr, gone);
    for (uint32_t i = 0; i < r->steps; i++)
        n->links[n->stages.items[i].at].bytes += (uint64_t)done * n->options.fabric.packet_bytes;
    n->hops += (uint64_t)done * r->steps;
    put_packets(n, r, tr);
    if (tr->train_first == 0)
        add_waited(n, r->first_link, tr->start - tr->ready_at);
    if (tr->train_first == 0 && tr->part_of == NONE)
        take_channels(n, r, tr);
    for (uint32_t i = 0; i + 1u < r->steps; i++)
        if (n->stages.items[i].waits)
            offer_later(n, n->stages.items[i].channel);
}

/* The packets of the part are packets of its message, which has counted all of them as delivered.
 */
static void end_part(net *n, uint32_t t)
{
    transfer *part = transfer_at(n, t), *of = transfer_at(n, part->part_of);
    of->delivered -= train_packets(part) - part->delivered;
    if (part->ends_at > of->ends_at && !of->in_train)
        of->ends_at = part->ends_at;
    (void)kb_sim_cancel(n->sim, part->end);
    train_give_part(n, t);
}

/* Makes packets of a train; its end is not certain any more, unless all are on their last link. */
static void unfold(net *n, const route *r, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    kb_time end = tr->ends_at, from = reservation_at(n, tr->train)->from;
    tr->in_train = false;
    tr->ends_at = tr->ready_at;
    if (tr->part_of != NONE)
        tr->delivered = 0;
    else if (tr->train_first == 0)
        tr->made = tr->delivered = 0;
    else
        n->trains.coalesced_unfolded++;
    if (!net_need_own_route(n, t)) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return;
    }
    withdraw(n, r, t);
    feed_later(n, r);
    if (from <= n->now)
        put_train(n, r, tr);
    if (KB_UNLIKELY(tr->part_of != NONE)) {
        end_part(n, t);
        return;
    }
    note_retry(n, tr);
    if (tr->delivered < tr->packets)
        (void)kb_sim_cancel(n->sim, tr->end);
    else
        KB_ASSERT(tr->ends_at == end); /* N8 */
}

/* ---- Going on ---------------------------------------------------------------------------- */

/* Unfolds the train, and those that are at the same source with it. */
static void unfold_with_source(net *n, uint32_t t, uint32_t wanted, uint32_t own);

/* The first train on the link, other than `except`, that has not left the source; NONE if there is
 * none. */
static uint32_t first_at_source(net *n, uint32_t at, uint32_t source, uint32_t except)
{
    for (uint32_t i = reservation_first(n, at); i != NONE; i = reservation_after(n, at, i)) {
        const reservation *r = reservation_at(n, i);
        if (r->transfer != except && reservation_is_live(n, r) && r->feeder == NOTHING &&
            !(r->flags & RESERVATION_PASSED) &&
            route_of(n, transfer_at(n, r->transfer))->injection == source)
            return r->transfer;
    }
    return NONE;
}

/*
 * A train that is ahead of this one in a port where both have packets, and that packets may not
 * follow; NONE if there is none.
 */
static uint32_t find_ahead(net *n, const route *r, uint32_t t)
{
    const uint32_t *path = step_pool_at(&n->step_pool, r->words);
    kb_time from = reservation_at(n, transfer_at(n, t)->train)->from;
    for (uint32_t i = 0; i < r->steps && from <= n->now; i++) {
        uint32_t at = step_link(n, path[i]), first = reservation_first(n, at);
        for (; first != NONE && reservation_at(n, first)->from < from;
             first = reservation_after(n, at, first)) {
            uint32_t ahead = reservation_at(n, first)->transfer;
            if (!conflict_may_follow(n, at, route_of(n, transfer_at(n, ahead))))
                return ahead;
        }
        from += profile_of(n, at)->latency;
    }
    return NONE;
}

/* Unfolds the train, which has left its source, or is the first one there; and before it those that
 * are ahead of it. */
static void unfold_in_order(net *n, uint32_t t, uint32_t own)
{
    const route *r = route_of(n, transfer_at(n, t));
    uint32_t ahead;
    while ((ahead = find_ahead(n, r, t)) != NONE)
        unfold_with_source(n, ahead, NOTHING, own);
    unfold(n, r, t);
}

/* ---- Cutting ----------------------------------------------------------------------------- */

/* How many packets of the train have left its source. */
static uint32_t count_started(const net *n, const route *r, const transfer *tr)
{
    uint64_t rate = r->first->bytes_per_s, bytes = n->options.fabric.packet_bytes;
    wide passed = (wide)(uint64_t)(n->now - tr->start) * rate / ((wide)bytes * (uint64_t)KB_S);
    uint32_t count = passed < tr->packets ? (uint32_t)passed : tr->packets;
    while (count < tr->packets && tr->start + topo_rate_time(rate, count * bytes) <= n->now)
        count++;
    while (count > 0 && tr->start + topo_rate_time(rate, (count - 1) * bytes) > n->now)
        count--;
    return count;
}

/* Whether its packets so far may stay a train: other packets may follow them, no train is behind
 * them that reckons with the others, and the virtual channels are known. */
static bool may_cut(const net *n, const route *r, const transfer *tr)
{
    const uint32_t *path = step_pool_at(&n->step_pool, r->words);
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(n, path[i]), index = reservation_of(tr, i);
        const reservation *reserved = reservation_at(n, index);
        if (!(reserved->flags & RESERVATION_LISTED) || n->links[at].reserved != index)
            return false;
        if (i + 1u == r->steps)
            break;
        if (!conflict_may_follow(n, at, r) || profile_of(n, at)->latency == 0 ||
            (reserved->from > n->now && !reservation_is_remainder(reserved)))
            return false;
    }
    return true;
}

/* The first packets of the train keep the reservations, for a shorter time. The channels that they
 * have taken stay taken until the last packet of the message has entered them. */
static void shorten(net *n, const route *r, const transfer *tr, uint32_t part, kb_time earlier)
{
    uint64_t rest = tr->bytes - transfer_at(n, part)->bytes;
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t *step = step_pool_at(&n->step_pool, tr->own_route + i), at = step_link(n, *step);
        reservation *reserved = reservation_at(n, reservation_of(tr, i));
        reservation_take_turns(n, at, n->now);
        if (reserved->vc < VC_OPEN && i + 1u < r->steps) {
            *step = step_channel(*step) + reserved->vc;
            n->links[at].flags |= LINK_PORT_USED;
            if (n->options.fabric.vcs > 1)
                n->channels[*step].space |= SPACE_TAKEN;
        }
        reserved->to -= earlier;
        reserved->transfer = part;
        reserved->vc = VC_OF_ROUTE;
        reserved->flags |= RESERVATION_WHOLE | RESERVATION_REMAINDER | RESERVATION_FREED |
                           RESERVATION_PART | (i == 0 ? RESERVATION_PASSED : 0);
        n->links[at].bytes -= rest;
    }
}

/* Makes a transfer of the first packets of the train: a part of its message. */
static bool make_part(net *n, const route *r, uint32_t t, uint32_t count)
{
    uint32_t p = net_need_own_route(n, t) ? kb_pool_take(&n->transfers) : NONE;
    if (p == NONE) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return false;
    }
    transfer *tr = transfer_at(n, t), *part = transfer_at(n, p);
    uint64_t rate = r->first->bytes_per_s, bytes = (uint64_t)count * n->options.fabric.packet_bytes;
    kb_time to = tr->start + topo_rate_time(rate, bytes);
    kb_time last = tr->start + topo_rate_time(rate, bytes - n->options.fabric.packet_bytes);
    kb_time earlier = tr->ends_at - r->latency - to;
    *part = *tr;
    part->response = NONE;
    part->bytes = bytes;
    part->packets = part->made = count;
    part->ends_at -= earlier;
    part->part_of = t;
    n->parts++;
    shorten(n, r, tr, p, earlier);
    n->hops -= (uint64_t)(tr->packets - count) * r->steps;
    (void)kb_sim_cancel(n->sim, tr->end);
    part->end = schedule_end(n, part->ends_at, r->last_link, p);
    link *l = &n->links[r->first_link];
    l->free_at = to;
    l->last = tr->own_route;
    hold(n, r->first_link, last, to);
    return true;
}

/*
 * Cuts the train: the packets that have left the source stay a train, and the others stand at the
 * source again. False if that is not possible.
 */
static bool cut(net *n, const route *r, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    if (tr->start > n->now || r->first != r->slowest || !may_cut(n, r, tr))
        return false;
    uint32_t count = count_started(n, r, tr);
    if (count <= tr->train_first || count >= tr->packets || !make_part(n, r, t, count))
        return false;
    if (tr->train_first == 0)
        tr->delivered = 0;
    tr->delivered += count - tr->train_first;
    tr->made = count;
    tr->in_train = false;
    tr->ends_at = tr->ready_at;
    train_retry(n, tr, 1);
    return true;
}

/*
 * The last packet of the trains ahead has left the source, if in this very instant. A message that
 * was deferred until then has a packet there that waits for the link, before any that come later in
 * the instant.
 */
static void end_deferral(net *n, uint32_t at, uint32_t source)
{
    uint32_t t = n->channels[source].first_transfer;
    if (t == NONE || !transfer_at(n, t)->deferred)
        return;
    transfer *tr = transfer_at(n, t);
    tr->deferred = false;
    n->trains.as_packets[NET_PACKETS_IN_THE_WAY]++;
    tr->made = tr->delivered = 0;
    train_retry(n, tr, 1);
    packets_begin(n, t);
    if (tr->own_route == NONE)
        return;
    feed_later(n, route_of(n, tr));
    if (!kb_vec_push(&n->to_clear, at))
        kb_sim_fail(n->sim, kb_error_nomem());
    injection_make_packet(n, source);
    offer_later(n, source);
}

/* Transfers that stand at their source again, in order. */
typedef struct standing {
    uint32_t first, last;
} standing;

static void stand(net *n, standing *all, uint32_t t)
{
    transfer_at(n, t)->behind = NONE;
    if (all->first == NONE)
        all->first = t;
    else
        transfer_at(n, all->last)->behind = t;
    all->last = t;
}

/* Unfolds all trains that have not left the source, or cuts the one that leaves it. */
static void unfold_leaving(net *n, uint32_t at, uint32_t source, uint32_t wanted, uint32_t own,
                           standing *all)
{
    uint32_t leaving = first_at_source(n, at, source, NONE), t;
    standing behind = {NONE, NONE};
    while (wanted == at && (t = first_at_source(n, at, source, leaving)) != NONE) {
        unfold_in_order(n, t, own);
        stand(n, &behind, t);
    }
    while ((t = first_at_source(n, at, source, NONE)) != NONE) {
        if (wanted != at || !cut(n, route_of(n, transfer_at(n, t)), t))
            unfold_in_order(n, t, own);
        if (transfer_at(n, t)->made == transfer_at(n, t)->packets)
            packets_begin(n, t);
        else
            stand(n, all, t);
    }
    while ((t = behind.first) != NONE) {
        behind.first = transfer_at(n, t)->behind;
        stand(n, all, t);
    }
}

/* The same. Those with packets left stand at the source again, and the first of them goes on as
 * packets. */
static void unfold_source(net *n, uint32_t at, uint32_t source, uint32_t wanted, uint32_t own)
{
    standing all = {NONE, NONE};
    unfold_leaving(n, at, source, wanted, own, &all);
    if (all.first == NONE) {
        end_deferral(n, at, source);
        return;
    }
    transfer_at(n, all.first)->last_behind = all.last;
    packets_begin(n, all.first);
    injection_push(n, all.first);
    injection_make_packet(n, source);
    if (n->channels[source].first != NONE && source != own)
        offer_later(n, source);
}

static void unfold_with_source(net *n, uint32_t t, uint32_t wanted, uint32_t own)
{
    const transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    if (KB_UNLIKELY(tr->part_of != NONE)) {
        unfold_in_order(n, t, own);
    } else if (tr->ends_at - r->latency > n->now) {
        unfold_source(n, r->first_link, r->injection, wanted, own);
    } else {
        unfold_in_order(n, t, own);
        packets_begin(n, t);
    }
}

/* Lets the packets of trains that were unfolded meet others, and wait; which may unfold more. */
static void go_on(net *n)
{
    size_t cleared = 0, met = 0, offered = 0;
    for (;;) {
        if (cleared < n->to_clear.count) {
            conflict_clear(n, n->to_clear.items[cleared++], NOTHING);
        } else if (met < n->to_meet.count) {
            visit v = n->to_meet.items[met++];
            conflict_meet(n, &v);
        } else if (offered < n->to_offer.count) {
            uint32_t c = n->to_offer.items[offered++];
            n->engine->offer(n, c, n->channels[c].first);
            if (!is_injection(n, c))
                conflict_delay_behind(n, c);
        } else {
            break;
        }
    }
    n->to_clear.count = n->to_meet.count = n->to_offer.count = 0;
}

void train_unfold(net *n, uint32_t t, uint32_t at, uint32_t own, net_unfold_cause cause)
{
    kb_time now = n->now;
    uint32_t current = n->current;
    bool outermost = !n->is_unfolding;
    n->now = kb_sim_now(n->sim);
    n->current = UINT32_MAX; /* what the train does at this instant has been done */
    n->is_unfolding = true;
    n->trains.unfolded[cause]++;
    if (transfer_at(n, t)->train_first == 0)
        train_note_failure(tries_at(n, route_of(n, transfer_at(n, t))->injection));
    unfold_with_source(n, t, at, own);
    if (outermost) {
        go_on(n);
        n->is_unfolding = false;
    }
    n->now = now;
    n->current = current;
}

void train_unfold_all(net *n)
{
    for (uint32_t at = 0; at < n->graph->links.count; at++)
        for (uint32_t i = reservation_first(n, at); i != NONE; i = reservation_first(n, at))
            train_unfold(n, reservation_at(n, i)->transfer, NOTHING, NOTHING, NET_WATCHED);
}

/* ---- Looking ----------------------------------------------------------------------------- */

/* What the train has still to do on the link, which is number `hop` of its route. */
static train_remaining rest_of(const net *n, const route *r, const transfer *tr, uint32_t hop)
{
    kb_time now = kb_sim_now(n->sim);
    if (reservation_at(n, tr->train)->from > now)
        return (train_remaining){
            .packets = train_packets(tr),
            .bytes = train_bytes(n, tr),
            .waited = hop == 0 && tr->train_first == 0 ? tr->start - tr->ready_at : 0};
    uint32_t packets = count_gone(r, tr, now);
    begin_walk(n, r, tr, packets);
    for (; packets < tr->packets; packets++) {
        if (walk(n, r->steps, packets, bytes_at(n, tr, packets), now) <= hop)
            break;
    }
    if (packets == tr->packets)
        return (train_remaining){0};
    return (train_remaining){.packets = tr->packets - packets,
                             .bytes =
                                 tr->bytes - (uint64_t)packets * n->options.fabric.packet_bytes};
}

train_remaining train_get_remaining(const net *n, uint32_t at)
{
    train_remaining all = {0};
    if (n->links[at].reserved == NONE)
        return all;
    uint32_t i = reservation_at(n, n->links[at].reserved)->next;
    for (; i != NONE; i = reservation_after(n, at, i)) {
        const reservation *reserved = reservation_at(n, i);
        if (!reservation_is_live(n, reserved))
            continue;
        const transfer *tr = transfer_at(n, reserved->transfer);
        const route *r = route_of(n, tr);
        const uint32_t *path = step_pool_at(&n->step_pool, r->words);
        uint32_t hop = 0;
        while (step_link(n, path[hop]) != at)
            hop++;
        train_remaining rest = rest_of(n, r, tr, hop);
        all.packets += rest.packets;
        all.bytes += rest.bytes;
        all.waited += rest.waited;
    }
    return all;
}
