/*
 * reservation.c: see reservation.h.
 *
 * Which virtual channel a train takes behind a link is decided as for packets (choose_vc() in
 * packet_engine.inc), but when its reservation is looked at after it has started there. It is
 * always the one whose turn it is: trains of different classes that are near each other on a link
 * are not accepted, and among those of one class the channel whose turn it is was left alone for
 * the longest time. So if it is not empty no other one is.
 */
#include "reservation.h"

#include "sim/sim.h"

/* The train, which is the first on the link that has not had its turn, takes it. */
static inline void take_turn(const net *n, link *l, reservation *r)
{
    if ((r->vc != VC_OPEN && r->vc < VC_PLANNED) || reservation_is_final(r))
        return;
    r->vc = (uint8_t)(r->vc == VC_OPEN ? l->turn : r->vc - VC_PLANNED);
    l->turn = (uint8_t)(r->vc + 1u == n->options.fabric.vcs ? 0 : r->vc + 1u);
}

/* The last packet of a remainder has started on the link: its virtual channel is free again. */
static void free_channel(net *n, uint32_t index, reservation *r)
{
    enum { MASK = RESERVATION_REMAINDER | RESERVATION_FREED | RESERVATION_FINAL };
    if ((r->flags & MASK) != RESERVATION_REMAINDER)
        return;
    r->flags |= RESERVATION_FREED;
    n->channels[step_channel(reservation_step(n, index, r))].space &= ~(uint32_t)SPACE_TAKEN;
}

void reservation_take_turns(net *n, uint32_t at, kb_time until)
{
    link *l = &n->links[at];
    if (n->options.fabric.vcs == 1 || l->reserved == NONE)
        return;
    uint32_t i = l->reserved;
    do {
        i = reservation_at(n, i)->next;
        reservation *r = reservation_at(n, i);
        if (r->from > until)
            return;
        take_turn(n, l, r);
        if (reservation_is_remainder(r) && !reservation_is_live(n, r))
            free_channel(n, i, r);
    } while (i != l->reserved);
}

/* What the link booked last, if that was the train. */
static uint32_t last_of(const net *n, uint32_t index, const reservation *r)
{
    if (KB_LIKELY(!(r->flags & RESERVATION_PART)))
        return NONE;
    const transfer *tr = transfer_at(n, r->transfer);
    return tr->own_route + (index - tr->train) / RESERVATION_WORDS;
}

void reservation_note_passed(net *n, uint32_t at)
{
    link *l = &n->links[at];
    uint32_t i = reservation_first(n, at);
    for (; i != NONE && !reservation_is_live(n, reservation_at(n, i));
         i = reservation_after(n, at, i))
        if (l->free_at <= reservation_at(n, i)->from)
            l->last = last_of(n, i, reservation_at(n, i));
}

kb_time reservation_last_start(const net *n, const reservation *r)
{
    const transfer *tr = transfer_at(n, r->transfer);
    const route *ro = route_of(n, tr);
    kb_time drain = tr->ends_at - ro->latency - tr->start;
    uint64_t before = (uint64_t)(tr->packets - 1) * n->options.fabric.packet_bytes;
    return r->to - drain + topo_rate_time(ro->first->bytes_per_s, before);
}

/* Whether the last packet of the train, which has passed the link, is in the port behind it. */
static bool is_in_port(const net *n, uint32_t at, const reservation *r)
{
    kb_time gone = reservation_last_start(n, r) + profile_of(n, at)->latency;
    return gone > n->now || (gone == n->now && n->current < arrival_id(n, at));
}

bool reservation_occupies(const net *n, uint32_t at, uint32_t c)
{
    uint32_t i = reservation_at(n, n->links[at].reserved)->next;
    for (; i != NONE; i = reservation_after(n, at, i)) {
        const reservation *r = reservation_at(n, i);
        if (r->from >= n->now)
            return false;
        if (reservation_is_final(r) || reservation_class(n, at, r) != class_of(n, c))
            continue;
        uint32_t used = reservation_is_remainder(r) ? step_channel(reservation_step(n, i, r))
                                                    : class_of(n, c) + r->vc;
        if (used == c && is_in_port(n, at, r))
            return true;
    }
    return false;
}

/* The train has passed the link: its reservation, after the one before it, goes. */
static inline void leave_ring(link *l, reservation *before, uint32_t before_index, reservation *r,
                              uint32_t index)
{
    r->flags &= (uint8_t)~RESERVATION_LISTED;
    before->next = r->next;
    if (l->reserved == index)
        l->reserved = before == r ? NONE : before_index;
}

uint32_t reservation_first_remaining(net *n, uint32_t at)
{
    kb_time now = kb_sim_now(n->sim);
    link *l = &n->links[at];
    reservation *last = reservation_at(n, l->reserved);
    do {
        uint32_t first = last->next;
        reservation *r = reservation_at(n, first);
        if (reservation_leaves(n, at, r) > now)
            return first;
        if (n->options.fabric.vcs > 1) {
            take_turn(n, l, r);
            free_channel(n, first, r);
        }
        if (l->free_at <= r->from)
            l->last = last_of(n, first, r); /* the train was the last on the link */
        leave_ring(l, last, l->reserved, r, first);
    } while (l->reserved != NONE);
    return NONE;
}

static uint32_t find_before(const net *n, uint32_t at, uint32_t index)
{
    uint32_t before = n->links[at].reserved;
    while (reservation_at(n, before)->next != index)
        before = reservation_at(n, before)->next;
    return before;
}

void reservation_remove(net *n, uint32_t at, uint32_t index)
{
    reservation *r = reservation_at(n, index);
    if (!(r->flags & RESERVATION_LISTED))
        return;
    uint32_t before = find_before(n, at, index);
    leave_ring(&n->links[at], reservation_at(n, before), before, r, index);
}

void reservation_drop_among(net *n, uint32_t at, uint32_t index)
{
    link *l = &n->links[at];
    reservation *r = reservation_at(n, index);
    reservation_take_turns(n, at, r->from);
    free_channel(n, index, r);
    if (l->free_at <= r->from)
        l->last = last_of(n, index, r);
    reservation_remove(n, at, index);
}

/* Whether two trains, the first of which is ahead, pass the link without meeting there or behind
 * it. */
static bool are_apart(const net *n, uint32_t at, const reservation *ahead, const reservation *after)
{
    if (ahead->to > after->from)
        return false;
    if (reservation_leaves(n, at, ahead) <= after->from || reservation_is_final(after))
        return true;
    return (ahead->flags & RESERVATION_WHOLE || profile_of(n, at)->roomy) &&
           (n->options.fabric.vcs == 1 || ahead->vc_class == after->vc_class);
}

/* Whether the virtual channel of the train behind may be another one with this train ahead of it.
 */
static bool changes_turn(const reservation *ahead, const reservation *behind)
{
    return !reservation_is_final(behind) && !reservation_is_final(ahead) &&
           (reservation_is_out_of_turn(ahead) || reservation_is_out_of_turn(behind));
}

/* The reservation after which this one comes, *last being that of the link; NONE if it meets
 * another one. */
static uint32_t find_place(net *n, uint32_t at, const reservation *wanted, uint32_t first)
{
    uint32_t last = n->links[at].reserved, before = last, after = first;
    while (after != NONE && reservation_at(n, after)->from < wanted->from) {
        if (!are_apart(n, at, reservation_at(n, after), wanted))
            return NONE;
        before = after;
        after = reservation_after(n, at, after);
    }
    bool is_near = true;
    for (uint32_t i = after; i != NONE; i = reservation_after(n, at, i)) {
        const reservation *behind = reservation_at(n, i);
        if (is_near && !are_apart(n, at, wanted, behind))
            return NONE;
        if (n->options.fabric.vcs > 1 && changes_turn(wanted, behind))
            return NONE;
        is_near &= behind->from < reservation_leaves(n, at, wanted);
    }
    return before;
}

bool reservation_add_among(net *n, uint32_t at, uint32_t index)
{
    if (reservation_first(n, at) == NONE)
        return reservation_add(n, at, index);
    link *l = &n->links[at];
    reservation *r = reservation_at(n, index);
    /* Trains that are past the port behind the link do not matter, nor do those ahead of them. */
    uint32_t before = l->reserved;
    const reservation *last = reservation_at(n, before);
    bool is_last = last->from < r->from;
    if (!is_last || last->to + profile_of(n, at)->latency > r->from) {
        before = find_place(n, at, r, last->next);
        if (before == NONE)
            return false;
    }
    r->next = reservation_at(n, before)->next;
    reservation_at(n, before)->next = index;
    if (is_last)
        l->reserved = index;
    return true;
}
