/*
 * conflict.c: see conflict.h.
 *
 * A packet that does not wait is on a link and in the port behind it for a known time. Its *window*
 * on the link is from when its head is there until its tail has left, or a full packet would have
 * left the link and the port behind it, if that is later. Trains that pass the link outside of the
 * window do not delay the packet, and are not delayed by it: while nothing waits in a port, what is
 * in a channel has come within the latency of its link, so it leaves room for more ("roomy"), and
 * what came before has left before the next head comes. A packet that has to wait unfolds the
 * trains that come to the link it waits for, and to the port where it waits.
 *
 * Windows of packets are closed at their beginning and open at their end; so where a packet comes
 * to a link at the very instant when a train leaves it, the order within the instant is that of
 * packets.
 *
 * Followers: packets may be behind a train in a port, if its first link is its slowest one. It does
 * not wait, so it has left the port when the first of them could; and the port holds all that comes
 * within the latency of its link ("roomy"). If the train is unfolded nevertheless, its packets are
 * put before them. A message that chooses a virtual channel counts those in which a train is: that
 * matters only if the channel whose turn it is is not empty. With more than two virtual channels
 * the train is unfolded instead.
 *
 * With several virtual channels, a train takes the one whose turn it is. That is what a packet
 * would do if channels are used in turn: see keeps_turns().
 */
#include "conflict.h"

#include "packet_ops.h"
#include "reservation.h"
#include "train.h"
#include "vc_predict.h"

/* ---- Turns of virtual channels ----------------------------------------------------------- */

static bool is_newest(const net *n, uint32_t at, uint32_t vc)
{
    return n->links[at].turn == (vc + 1 == n->options.fabric.vcs ? 0 : vc + 1);
}

/*
 * Whether only the channel of the class that was chosen last may hold packets, so that those who
 * come next use the channels in turn. No transfer is passing, but perhaps one through channel
 * `passing`, whose last packet comes first.
 */
static bool keeps_turns(const net *n, uint32_t at, uint32_t class, uint32_t passing)
{
    for (uint32_t vc = 0; vc < n->options.fabric.vcs; vc++) {
        const channel *ch = &n->channels[class + vc];
        bool newest = is_newest(n, at, vc);
        if ((ch->first != NONE && !newest) ||
            (ch->space & SPACE_TAKEN && !(newest && vc == passing)))
            return false;
    }
    return true;
}

/* Whether the train, which has a port behind the link, takes the channel whose turn it is though
 * the packet has chosen its own. */
static bool finds_its_turn(const net *n, const visit *v, const reservation *r)
{
    uint32_t class = reservation_class(n, v->at, r);
    bool same = class == class_of(n, step_channel(v->step));
    return (v->is_last || r->feeder == v->feeder) &&
           keeps_turns(n, v->at, class, same ? step_vc(n, v->step) : VC_OPEN);
}

void conflict_choose(net *n, const visit *v)
{
    uint32_t i = reservation_first(n, v->at);
    bool in_turn = true; /* all trains so far */
    while (i != NONE) {
        const reservation *r = reservation_at(n, i);
        bool is_fixed = reservation_is_final(r) || reservation_is_remainder(r) || r->vc < VC_OPEN;
        if (!is_fixed && r->vc >= VC_PLANNED)
            in_turn = false;
        if (!is_fixed && !(in_turn && finds_its_turn(n, v, r))) {
            in_turn = false;
            if (!repredict_vc(n, v, i)) {
                train_unfold(n, r->transfer, NOTHING, NOTHING, NET_PACKET_MET);
                i = reservation_first(n, v->at);
                continue;
            }
        }
        i = reservation_after(n, v->at, i);
    }
}

/* ---- Meeting ----------------------------------------------------------------------------- */

/* The end of the packet's window. */
static kb_time window_end(const net *n, const visit *v)
{
    kb_time end = kb_time_add(v->head, profile_of(n, v->at)->clearance);
    return v->tail > end ? v->tail : end;
}

/*
 * Whether packets may be behind the train in the port: see "Followers". Those of a train whose
 * first link is its slowest one never wait.
 */
bool conflict_may_follow(const net *n, uint32_t at, const route *r)
{
    return n->options.fabric.vcs <= 2 && r->first == r->slowest && profile_of(n, at)->roomy;
}

/* Whether the link is busy with the train up to the end of its reservation: the last packet takes
 * as long as on the first link. */
static bool is_last_as_long(const net *n, uint32_t at, const reservation *r, const route *ro)
{
    const topo_pace *pace = &profile_of(n, at)->pace;
    const transfer *tr = transfer_at(n, r->transfer);
    uint64_t last = tr->bytes - (uint64_t)(tr->packets - 1) * n->options.fabric.packet_bytes;
    kb_time most = topo_rate_time(pace->bytes_per_s, last);
    return pace == ro->first || reservation_last_start(n, r) + most + 1 >= r->to;
}

/* Whether the train leaves the link before the packet comes, and does not matter to it. */
static bool is_ahead(const net *n, const visit *v, const reservation *r)
{
    const route *ro = route_of(n, transfer_at(n, r->transfer));
    if (!(r->flags & RESERVATION_PASSED) && r->to >= v->head &&
        (r->to > v->head || !conflict_may_follow(n, v->at, ro) || is_last_as_long(n, v->at, r, ro)))
        return false;
    return reservation_leaves(n, v->at, r) <= v->head || v->is_final ||
           conflict_may_follow(n, v->at, ro);
}

/* Whether the packet leaves the link before the train comes, and does not matter to it. */
static bool is_behind(const net *n, const visit *v, const reservation *r)
{
    kb_time end = window_end(n, v);
    if (r->from < end)
        return false;
    if (v->is_final || reservation_is_final(r))
        return true;
    bool meet_in_port = r->from < kb_time_add(end, profile_of(n, v->at)->latency);
    if (meet_in_port && !profile_of(n, v->at)->roomy)
        return false;
    if (n->options.fabric.vcs == 1 || reservation_is_remainder(r))
        return true;
    /* Packets of the message that are still to come hold the channel; those that come over another
     * link than the train may do so for any time. */
    if (!v->is_last && r->feeder != v->feeder)
        return false;
    uint32_t class = reservation_class(n, v->at, r);
    if (!meet_in_port || class != class_of(n, step_channel(v->step)))
        return true;
    if (r->vc >= VC_PLANNED)
        return false;
    uint32_t vc = step_vc(n, v->step);
    return (vc == VC_OPEN || is_newest(n, v->at, vc)) && keeps_turns(n, v->at, class, vc);
}

/* Whether the packet is of the same message as the remainder, and so ahead of it all the way. */
static bool is_own(const net *n, const visit *v, uint32_t index, const reservation *r)
{
    if (!reservation_is_remainder(r))
        return false;
    const transfer *tr = transfer_at(n, r->transfer);
    return v->next_step == tr->own_route + (index - tr->train) / RESERVATION_WORDS;
}

static void meet(net *n, const visit *v, uint32_t own, net_unfold_cause cause)
{
    uint32_t i = reservation_first(n, v->at);
    reservation_take_turns(n, v->at, n->now - 1);
    while (i != NONE) {
        const reservation *r = reservation_at(n, i);
        if (is_ahead(n, v, r) || is_behind(n, v, r) || is_own(n, v, i, r)) {
            i = reservation_after(n, v->at, i);
        } else {
            train_unfold(n, r->transfer, v->at, own, cause);
            i = reservation_first(n, v->at);
        }
    }
}

void conflict_meet(net *n, const visit *v)
{
    meet(n, v, NOTHING, NET_PACKET_MET);
}

/* Nothing comes after all that links do at this instant but what begins at sources; and a transfer
 * that waits at its source waits for its first link for any time. */
void conflict_leave_source(net *n, const route *r, uint32_t own)
{
    visit v = {.at = r->first_link,
               .feeder = NOTHING,
               .step = *step_pool_at(&n->step_pool, r->words),
               .is_final = r->steps == 1,
               .head = n->now + 1,
               .tail = KB_FOREVER};
    if (n->links[v.at].reserved != NONE)
        meet(n, &v, own, NET_SOURCE_TAKEN);
}

void conflict_clear(net *n, uint32_t at, uint32_t own)
{
    uint32_t i = reservation_first(n, at);
    while (i != NONE) {
        const reservation *r = reservation_at(n, i);
        if (reservation_is_live(n, r) && !(r->flags & RESERVATION_PASSED)) {
            train_unfold(n, r->transfer, at, own, NET_PACKET_WAITED);
            i = reservation_first(n, at);
        } else {
            i = reservation_after(n, at, i);
        }
    }
}

void conflict_feed_at_once(net *n, const uint32_t *step)
{
    while (profile_of(n, step_link(n, step[0]))->latency == 0 && step[1] != END_OF_ROUTE) {
        uint32_t at = step_link(n, *++step);
        if (n->links[at].flags & LINK_FED_AT_ONCE)
            continue;
        n->links[at].flags |= LINK_FED_AT_ONCE;
        conflict_clear(n, at, NOTHING);
    }
}

/* Whether the train may come to be behind a packet that waits in the channel. */
static bool may_be_behind(const net *n, uint32_t at, uint32_t index, uint32_t c)
{
    const reservation *r = reservation_at(n, index);
    if (reservation_is_final(r) || reservation_class(n, at, r) != class_of(n, c))
        return false;
    uint32_t step = reservation_is_remainder(r) ? reservation_step(n, index, r) : STEP_OPEN;
    return step & STEP_OPEN || step == c;
}

/* Trains that come to the port, or are in it behind the packet that waits in the channel. */
static void clear_port(net *n, uint32_t at, uint32_t c)
{
    uint32_t i = reservation_first(n, at);
    while (i != NONE) {
        const reservation *r = reservation_at(n, i);
        if (may_be_behind(n, at, i, c)) {
            train_unfold(n, r->transfer, NOTHING, NOTHING, NET_PACKET_WAITED);
            i = reservation_first(n, at);
        } else {
            i = reservation_after(n, at, i);
        }
    }
}

void conflict_delay(net *n, uint32_t at)
{
    n->links[at].late++;
    if (n->links[at].reserved != NONE)
        conflict_clear(n, at, NOTHING);
}

void conflict_delay_behind(net *n, uint32_t c)
{
    for (uint32_t p = n->channels[c].first; p != n->channels[c].last;) {
        packet *behind = packet_at(n, p = packet_at(n, p)->next);
        if (behind->number & PACKET_LATE)
            continue;
        behind->number |= PACKET_LATE;
        conflict_delay(n, step_link(n, behind->step));
    }
}

void conflict_wait(net *n, uint32_t at, uint32_t c)
{
    if (n->links[at].reserved != NONE)
        conflict_clear(n, at, NOTHING);
    if (is_injection(n, c))
        return;
    uint32_t feeder = link_of(n, c);
    n->links[feeder].flags |= LINK_PORT_USED;
    /* If it came earlier, one before it has waited until now, and all behind it are late. */
    bool comes_now = first_packet(n, c)->head_at >= n->now;
    if (KB_UNLIKELY(n->links[feeder].reserved != NONE)) {
        clear_port(n, feeder, c);
        comes_now = true;
    }
    if (comes_now)
        conflict_delay_behind(n, c);
}

/* ---- Quiet ------------------------------------------------------------------------------- */

/* Notes it if there is nothing in the port any more. */
static void look_into_port(net *n, uint32_t at)
{
    const channel *ch = &n->channels[first_channel(n, at)];
    for (uint32_t i = reservation_first(n, at); i != NONE; i = reservation_after(n, at, i))
        if (reservation_is_out_of_turn(reservation_at(n, i)))
            return;
    for (uint32_t i = 0; i < n->channels_per_link; i++)
        if (ch[i].first != NONE || ch[i].space & SPACE_TAKEN)
            return;
    n->links[at].flags &= (uint8_t)~LINK_PORT_USED;
}

/* Whether the first packet of the channel is there, or does not come when it was to come. */
static bool has_waiting(const net *n, uint32_t c)
{
    uint32_t p = n->channels[c].first;
    return p != NONE &&
           (packet_at(n, p)->head_at <= n->now || packet_at(n, p)->number & PACKET_LATE);
}

/*
 * Whether trains of the class whose virtual channels may not be in turn leave their turns to others
 * that come after them, from `head` on. *passing is the channel of a remainder.
 */
static bool trains_keep_turns(net *n, uint32_t at, uint32_t class, kb_time head, uint32_t *passing)
{
    for (uint32_t i = reservation_first(n, at); i != NONE; i = reservation_after(n, at, i)) {
        const reservation *r = reservation_at(n, i);
        if (!reservation_is_out_of_turn(r) || reservation_is_final(r) ||
            reservation_class(n, at, r) != class)
            continue;
        if (!reservation_is_remainder(r) || r->flags & RESERVATION_PART)
            return false;
        uint32_t vc = step_vc(n, reservation_step(n, i, r));
        if (vc == VC_OPEN)
            continue; /* its first packet has still to choose: see conflict_choose() */
        if (r->to > head || !is_newest(n, at, vc))
            return false;
        *passing = vc;
    }
    return true;
}

/*
 * Whether the packets in the port do not matter to a train that comes over the link: none waits in
 * a channel of its class, and it takes the virtual channel whose turn it is, or *vc.
 */
static bool is_port_quiet(net *n, uint32_t at, uint32_t class, kb_time head, uint32_t passing,
                          uint8_t *vc)
{
    uint32_t vcs = n->options.fabric.vcs;
    if (n->links[at].reserved != NONE)
        reservation_take_turns(n, at, n->now - 1);
    for (uint32_t i = 0; i < vcs; i++)
        if (has_waiting(n, class + i))
            return false;
    if (vcs > 1 &&
        !(trains_keep_turns(n, at, class, head, &passing) && keeps_turns(n, at, class, passing))) {
        n->links[at].flags |= LINK_PORT_USED; /* so that others behind the train look here too */
        return predict_vc(n, at, class, head, vc);
    }
    look_into_port(n, at);
    return true;
}

bool conflict_may_pass(net *n, uint32_t t, uint32_t i, kb_time head, uint8_t *vc)
{
    const transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    uint32_t step = step_pool_at(&n->step_pool, r->words)[i], at = step_link(n, step);
    const link *l = &n->links[at];
    const profile *pr = &n->profiles.items[l->profile];
    /* Until then they are in the port, unless they wait. */
    if (kb_time_add(l->held_until, pr->latency) > head && !pr->roomy)
        return false;
    uint32_t passing = VC_OPEN, ahead = *last_begun_at(n, r->injection);
    if (ahead != NONE) {
        const transfer *other = transfer_at(n, ahead);
        if (other->route == tr->route && other->made == other->packets &&
            l->last == other->own_route + i)
            passing = step_vc(n, *step_pool_at(&n->step_pool, l->last));
    }
    return is_port_quiet(n, at, step_channel(step), head, passing, vc);
}

bool conflict_may_resume(const net *n, uint32_t step, bool is_final, kb_time head)
{
    const link *l = &n->links[step_link(n, step)];
    if (l->held_until > head || l->ready != NOTHING || l->blocked != NOTHING ||
        l->flags & LINK_FED_AT_ONCE || l->late > 0)
        return false;
    if (is_final)
        return true;
    uint32_t count = step & STEP_OPEN ? n->options.fabric.vcs : 1;
    for (uint32_t i = 0; i < count; i++)
        if (has_waiting(n, step_channel(step) + i))
            return false;
    return n->profiles.items[l->profile].roomy;
}
