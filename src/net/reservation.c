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
static void take_turn(net *n, link *l, reservation *r)
{
    if (r->vc != VC_OPEN || r->is_final)
        return;
    r->vc = l->turn;
    l->turn = (uint8_t)(l->turn + 1u == n->options.vcs ? 0 : l->turn + 1u);
}

void reservation_take_turns(net *n, uint32_t at, kb_time until)
{
    link *l = &n->links[at];
    if (n->options.vcs == 1)
        return;
    for (uint32_t i = l->reserved; i != NONE; i = reservation_at(n, i)->next) {
        reservation *r = reservation_at(n, i);
        if (r->from > until)
            return;
        take_turn(n, l, r);
    }
}

uint32_t reservation_first_left(net *n, uint32_t at)
{
    kb_time now = kb_sim_now(n->sim);
    link *l = &n->links[at];
    do {
        uint32_t first = l->reserved;
        reservation *r = reservation_at(n, first);
        if (reservation_leaves(n, at, r) > now)
            break;
        if (n->options.vcs > 1)
            take_turn(n, l, r);
        if (l->free_at <= r->from)
            l->last = NONE; /* the train was the last on the link */
        l->reserved = r->next;
        kb_pool_give(&n->reservations, first);
    } while (l->reserved != NONE);
    return l->reserved;
}

/* Whether two trains, the first of which is ahead, pass the link without meeting there or behind
 * it. A train that passes the link twice might meet itself. */
static bool are_apart(const net *n, uint32_t at, const reservation *ahead, const reservation *after)
{
    if (ahead->to > after->from || ahead->transfer == after->transfer)
        return false;
    if (reservation_leaves(n, at, ahead) <= after->from || after->is_final)
        return true;
    return (ahead->whole || profile_of(n, at)->roomy) &&
           (n->options.vcs == 1 || ahead->vc_class == after->vc_class);
}

bool reservation_add(net *n, uint32_t at, const reservation *wanted)
{
    uint32_t before = NONE, after = reservation_first(n, at);
    while (after != NONE && reservation_at(n, after)->from < wanted->from) {
        if (!are_apart(n, at, reservation_at(n, after), wanted))
            return false;
        before = after;
        after = reservation_at(n, after)->next;
    }
    for (uint32_t i = after; i != NONE; i = reservation_at(n, i)->next) {
        if (!are_apart(n, at, wanted, reservation_at(n, i)))
            return false;
        if (reservation_at(n, i)->from >= reservation_leaves(n, at, wanted))
            break;
    }
    uint32_t index = kb_pool_take(&n->reservations);
    KB_ASSERT(index != NONE);
    reservation *r = reservation_at(n, index);
    *r = *wanted;
    r->next = after;
    r->vc = VC_OPEN;
    if (before == NONE)
        n->links[at].reserved = index;
    else
        reservation_at(n, before)->next = index;
    return true;
}

uint32_t reservation_remove(net *n, uint32_t at, uint32_t t, kb_time from)
{
    uint32_t *place = &n->links[at].reserved;
    while (*place != NONE) {
        uint32_t index = *place;
        reservation *r = reservation_at(n, index);
        if (r->transfer == t && r->from == from) {
            uint32_t vc = r->vc;
            *place = r->next;
            kb_pool_give(&n->reservations, index);
            return vc;
        }
        place = &r->next;
    }
    return VC_OPEN;
}
