/*
 * reservation.h: when packet trains pass a link. Private to net.
 *
 * A train reserves each link of its route from when its first packet starts there until its last
 * tail has left the link, however its packets are spaced in between. The packets are in the port
 * behind the link for the link's latency longer. The reservations of a link are a list in the order
 * of time; those that have passed stay in it until the list is looked at again.
 */
#ifndef KB_NET_RESERVATION_H
#define KB_NET_RESERVATION_H

#include "fabric.h"

#include "sim/sim.h"

typedef struct reservation {
    kb_time from, to;
    uint32_t transfer;
    uint32_t next;     /* on the link, in the order of time; NONE if it is the last */
    uint32_t feeder;   /* the link before it on the train's route; NOTHING if it is the first */
    uint32_t vc_class; /* see class_of() */
    uint8_t vc;        /* VC_OPEN until its turn is taken */
    bool whole;        /* its packets are all full */
    bool is_final;     /* there is no port behind the link on its route */
} reservation;

static inline reservation *reservation_at(const net *n, uint32_t index)
{
    return kb_pool_at(&n->reservations, index);
}

/* Until when packets of the train are on the link or in the port behind it. */
static inline kb_time reservation_leaves(const net *n, uint32_t at, const reservation *r)
{
    return r->is_final ? r->to : r->to + profile_of(n, at)->latency;
}

/* Whether the reservation is of a train that is not past the link; if it is, its transfer may have
 * ended. */
static inline bool reservation_is_live(const net *n, const reservation *r)
{
    return r->to > kb_sim_now(n->sim);
}

/* The first reservation of the link that is not over; others are removed. */
uint32_t reservation_first_left(net *n, uint32_t at);

static inline uint32_t reservation_first(net *n, uint32_t at)
{
    return n->links[at].reserved == NONE ? NONE : reservation_first_left(n, at);
}

/*
 * Adds a reservation, of which all but `next` and `vc` is given. False, and nothing changes, if it
 * overlaps another one, or if the packets of both would be in the port behind the link at a time
 * and might not find room or take other virtual channels than in turn. The pool must have room.
 */
bool reservation_add(net *n, uint32_t at, const reservation *wanted);

/* Removes the one of the transfer that is from this time on, if it is still there. Returns its
 * virtual channel, or VC_OPEN if it has not had its turn. */
uint32_t reservation_remove(net *n, uint32_t at, uint32_t t, kb_time from);

/* Trains that have started on the link up to then take their turns of its virtual channels. */
void reservation_take_turns(net *n, uint32_t at, kb_time until);

#endif
