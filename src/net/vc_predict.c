/*
 * vc_predict.c: see vc_predict.h.
 *
 * A message takes the virtual channel whose turn it is; or if that one is taken or not empty, the
 * next one that is (search_vc() in packet_engine.inc). Packets in the port leave it when their
 * heads have come, and the last packet of a train ahead does so when the latency of the link has
 * passed since it started there. So the channels that will be empty are known, as long as nothing
 * waits and no other message comes in between; and both unfold the train (conflict.c).
 */
#include "vc_predict.h"

#include "packet_ops.h"
#include "reservation.h"

/* The port as it will be: sets of virtual channels of the class. */
typedef struct outlook {
    uint64_t taken, occupied;
    uint32_t turn;
} outlook;

_Static_assert(NET_MAX_VCS < 64, "a set of virtual channels is a word");

/* What is in a channel until `gone` is, or is not, there at `head`. False if it goes just then. */
static bool add_occupant(outlook *ahead, uint32_t vc, kb_time gone, kb_time head)
{
    if (gone > head)
        ahead->occupied |= (uint64_t)1 << vc;
    return gone != head;
}

static bool add_packets(const net *n, uint32_t class, kb_time head, outlook *ahead)
{
    for (uint32_t vc = 0; vc < n->options.fabric.vcs; vc++) {
        const channel *ch = &n->channels[class + vc];
        if (ch->space & SPACE_TAKEN)
            ahead->taken |= (uint64_t)1 << vc;
        if (ch->first != NONE && !add_occupant(ahead, vc, packet_at(n, ch->last)->head_at, head))
            return false;
    }
    return true;
}

/* When the last packet of the train has left the port; not exactly, if packets wait on the way. */
static kb_time gone_at(const net *n, uint32_t at, const reservation *r, kb_time head)
{
    const transfer *tr = transfer_at(n, r->transfer);
    const route *ro = route_of(n, tr);
    kb_time latency = profile_of(n, at)->latency;
    if (ro->first != ro->slowest) /* a packet leaves the port before its tail does */
        return r->to + latency <= head ? r->to + latency - 1 : head;
    kb_time drain = tr->ends_at - ro->latency - tr->start;
    uint64_t before = (uint64_t)(tr->packets - 1) * n->options.fabric.packet_bytes;
    return r->to - drain + topo_rate_time(ro->first->bytes_per_s, before) + latency;
}

/* The train is ahead. It takes its turn, if it has not, and its packets are in the port for a time.
 */
static bool add_train(const net *n, uint32_t at, uint32_t class, uint32_t index, kb_time head,
                      outlook *ahead)
{
    const reservation *r = reservation_at(n, index);
    if (r->from >= head)
        return false;
    if (reservation_is_final(r))
        return true;
    uint32_t vc = r->vc;
    bool same = reservation_class(n, at, r) == class;
    if (reservation_is_remainder(r)) {
        if (!same)
            return true;
        vc = step_vc(n, reservation_step(n, index, r));
        if (vc == VC_OPEN)
            return false;
        if (!(r->flags & RESERVATION_FREED))
            ahead->taken &= ~((uint64_t)1 << vc);
    } else if (vc >= VC_OPEN) {
        vc = vc == VC_OPEN ? ahead->turn : vc - VC_PLANNED;
        ahead->turn = vc + 1 == n->options.fabric.vcs ? 0 : vc + 1;
    }
    return !same || add_occupant(ahead, vc, gone_at(n, at, r, head), head);
}

/* The virtual channel that a packet takes that comes then; VC_OPEN if that is not certain. */
static uint32_t choose(const net *n, const outlook *ahead)
{
    if (ahead->taken != 0)
        return VC_OPEN;
    for (uint32_t i = 0, vc = ahead->turn; i < n->options.fabric.vcs; i++) {
        if (!(ahead->occupied >> vc & 1))
            return vc;
        vc = vc + 1 == n->options.fabric.vcs ? 0 : vc + 1;
    }
    return VC_OPEN;
}

bool predict_vc(net *n, uint32_t at, uint32_t class, kb_time head, uint8_t *vc)
{
    outlook ahead = {.turn = n->links[at].turn};
    if (!add_packets(n, class, head, &ahead))
        return false;
    for (uint32_t i = reservation_first(n, at); i != NONE; i = reservation_after(n, at, i))
        if (!add_train(n, at, class, i, head, &ahead))
            return false;
    uint32_t chosen = choose(n, &ahead);
    *vc = (uint8_t)(VC_PLANNED + chosen);
    return chosen != VC_OPEN;
}

/* The packet enters its channel now, and is not there yet; nor has it left the mark. */
static bool add_visitor(const net *n, const visit *v, uint32_t class, kb_time head, outlook *ahead)
{
    uint32_t c = step_channel(v->step);
    if (class_of(n, c) != class)
        return true;
    ahead->taken &= ~((uint64_t)1 << (c - class));
    return add_occupant(ahead, c - class, n->now + profile_of(n, v->at)->latency, head);
}

bool repredict_vc(net *n, const visit *v, uint32_t index)
{
    reservation *r = reservation_at(n, index);
    uint32_t at = v->at, class = reservation_class(n, at, r);
    outlook ahead = {.turn = n->links[at].turn};
    if (!v->is_last || r->vc < VC_OPEN || !add_packets(n, class, r->from, &ahead) ||
        !add_visitor(n, v, class, r->from, &ahead))
        return false;
    for (uint32_t i = reservation_first(n, at); i != index; i = reservation_after(n, at, i))
        if (!add_train(n, at, class, i, r->from, &ahead))
            return false;
    uint32_t chosen = choose(n, &ahead);
    if (chosen == VC_OPEN)
        return false;
    r->vc = (uint8_t)(VC_PLANNED + chosen);
    r->flags |= RESERVATION_PLANNED;
    return true;
}
