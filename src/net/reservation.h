/*
 * reservation.h: when packet trains pass a link. Private to net.
 *
 * A train reserves each link of its route from when its first packet starts there until its last
 * tail has left the link, however its packets are spaced in between. The packets are in the port
 * behind the link for the link's latency longer. The reservations of a link are a ring in the order
 * of time, and the link knows the last one: most trains come after all others. Those that have
 * passed are dropped when the ring is looked at, or when their train ends.
 *
 * The reservations of a train stand one after the other in a block of the store of paths.
 */
#ifndef KB_NET_RESERVATION_H
#define KB_NET_RESERVATION_H

#include "fabric.h"

#include "sim/sim.h"

typedef struct reservation {
    kb_time from, to;
    uint32_t transfer;
    uint32_t next;     /* on the link, in the order of time; after the last one comes the first */
    uint32_t feeder;   /* the link before it on the train's route; NOTHING if it is the first */
    uint16_t vc_class; /* its first channel behind the link, from the first of all on */
    uint8_t vc;        /* VC_OPEN or VC_PLANNED until it is taken; VC_OF_PATH of a remainder */
    uint8_t flags;
} reservation;

enum {
    RESERVATION_WHOLE = 1,  /* its packets are all full */
    RESERVATION_FINAL = 2,  /* there is no port behind the link on its route */
    RESERVATION_LISTED = 4, /* it is in the ring of the link */
    RESERVATION_REST = 8,   /* of what is left of a message whose first packets are ahead of it, and
                               have taken a virtual channel or will */
    RESERVATION_FREED = 16, /* and the channel is not marked as taken by it any more */
    RESERVATION_PLANNED = 32, /* its virtual channel is perhaps not the one whose turn it is */
};

enum {
    RESERVATION_WORDS = sizeof(reservation) / sizeof(uint32_t),
    MAX_TRAIN_STEPS = (1 << PATHS_CHUNK_SHIFT) / RESERVATION_WORDS,
};

static inline reservation *reservation_at(const net *n, uint32_t index)
{
    return (void *)paths_at(&n->paths, index);
}

/* The reservation of a train on link `i` of its route. */
static inline uint32_t reservation_of(const transfer *tr, uint32_t i)
{
    return tr->train + i * RESERVATION_WORDS;
}

static inline bool reservation_is_final(const reservation *r)
{
    return (r->flags & RESERVATION_FINAL) != 0;
}

/* Until when packets of the train are on the link or in the port behind it. */
static inline kb_time reservation_leaves(const net *n, uint32_t at, const reservation *r)
{
    return reservation_is_final(r) ? r->to : r->to + profile_of(n, at)->latency;
}

/* See class_of(). */
static inline uint32_t reservation_class(const net *n, uint32_t at, const reservation *r)
{
    return first_channel(n, at) + r->vc_class;
}

static inline bool reservation_is_rest(const reservation *r)
{
    return (r->flags & RESERVATION_REST) != 0;
}

/* Whether its virtual channel may not be the one whose turn it is when it comes there. */
static inline bool reservation_is_out_of_turn(const reservation *r)
{
    return (r->flags & (RESERVATION_REST | RESERVATION_PLANNED)) != 0;
}

/* The step of a remainder's message that it does on the link: see STEP_OPEN. */
static inline uint32_t reservation_step(const net *n, uint32_t index, const reservation *r)
{
    const transfer *tr = transfer_at(n, r->transfer);
    return *paths_at(&n->paths, tr->path + (index - tr->train) / RESERVATION_WORDS);
}

/* Whether the reservation is of a train that is not past the link; if it is, its transfer may have
 * ended. */
static inline bool reservation_is_live(const net *n, const reservation *r)
{
    return r->to > kb_sim_now(n->sim);
}

/* The first reservation of the link that is not over; others are dropped. */
uint32_t reservation_first_left(net *n, uint32_t at);

static inline uint32_t reservation_first(net *n, uint32_t at)
{
    return n->links[at].reserved == NONE ? NONE : reservation_first_left(n, at);
}

/* The one after it; NONE if it is the last. */
static inline uint32_t reservation_after(const net *n, uint32_t at, uint32_t index)
{
    return index == n->links[at].reserved ? NONE : reservation_at(n, index)->next;
}

/*
 * Adds a reservation, which says all but `next`. False, and nothing changes, if it overlaps another
 * one, or if the packets of both would be in the port behind the link at a time and might not find
 * room or take other virtual channels than in turn.
 */
bool reservation_add_among(net *n, uint32_t at, uint32_t index);

static inline bool reservation_add(net *n, uint32_t at, uint32_t index)
{
    link *l = &n->links[at];
    if (l->reserved != NONE)
        return reservation_add_among(n, at, index);
    reservation_at(n, index)->next = index;
    l->reserved = index;
    return true;
}

/* Removes the reservation, unless it has been dropped. */
void reservation_remove(net *n, uint32_t at, uint32_t index);

/* Reservation `r`, which has the index, is dropped: its train has ended. */
void reservation_drop_among(net *n, uint32_t at, uint32_t index);

static inline void reservation_drop(net *n, uint32_t at, uint32_t index, const reservation *r)
{
    link *l = &n->links[at];
    if (!(r->flags & RESERVATION_LISTED))
        return;
    if (r->next != index || reservation_is_out_of_turn(r)) {
        reservation_drop_among(n, at, index);
        return;
    }
    /* It is the only one on the link: as reservation_first_left() does it. */
    uint32_t turn = l->turn + 1u;
    if (r->vc == VC_OPEN && !reservation_is_final(r))
        l->turn = (uint8_t)(turn == n->options.vcs ? 0 : turn);
    if (l->free_at <= r->from)
        l->last = NONE;
    l->reserved = NONE;
}

/* Trains that have started on the link up to then take their turns of its virtual channels; and
 * channels are free again that remainders have passed. */
void reservation_take_turns(net *n, uint32_t at, kb_time until);

#endif
