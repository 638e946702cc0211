/*
 * reservation.h: reservations of links by packet trains. Private to net.
 *
 * A train reserves each link of its route from the start of its first packet until the last tail
 * has left the link, gaps between packets included. The packets are in the port behind the link for
 * the link's latency longer. The reservations of a link form a ring in the order of time. The link
 * points to the last one, because most trains come after all others. Past reservations are removed
 * when the ring is read or when their train ends.
 *
 * The reservations of a train are consecutive in a block of the step pool.
 */
#ifndef KB_NET_RESERVATION_H
#define KB_NET_RESERVATION_H

#include "fabric.h"

#include "sim/sim.h"

typedef struct reservation {
    kb_time from, to;
    uint32_t transfer;
    uint32_t next;     /* on the link, in the order of time; the last one points to the first */
    uint32_t feeder;   /* previous link of the train's route; NOTHING for the first */
    uint16_t vc_class; /* first channel of its class, relative to the first behind the link */
    uint8_t vc;        /* VC_OPEN or VC_PLANNED until chosen; VC_OF_ROUTE for a remainder */
    uint8_t flags;
} reservation;

enum {
    RESERVATION_WHOLE = 1,     /* all packets are full */
    RESERVATION_FINAL = 2,     /* the link is the last of its route */
    RESERVATION_LISTED = 4,    /* in the ring of the link */
    RESERVATION_REMAINDER = 8, /* of the remainder of a message: its first packets are ahead and
                                  choose the virtual channel */
    RESERVATION_FREED = 16,    /* the channel of a remainder is free again */
    RESERVATION_PLANNED = 32,  /* its virtual channel may be out of round-robin order */
    RESERVATION_PART = 64,     /* of the first packets of a message: others of it come later */
    RESERVATION_PASSED = 128,  /* the state of the link says how long the train is there */
};

enum {
    RESERVATION_WORDS = sizeof(reservation) / sizeof(uint32_t),
    MAX_TRAIN_STEPS = (1 << STEP_POOL_CHUNK_SHIFT) / RESERVATION_WORDS,
};

static inline reservation *reservation_at(const net *n, uint32_t index)
{
    return (void *)step_pool_at(&n->step_pool, index);
}

/* Returns the reservation of a train on link `i` of its route. */
static inline uint32_t reservation_of(const transfer *tr, uint32_t i)
{
    return tr->train + i * RESERVATION_WORDS;
}

static inline bool reservation_is_final(const reservation *r)
{
    return (r->flags & RESERVATION_FINAL) != 0;
}

/* Returns when the last packet of the train leaves the link and the port behind it. */
static inline kb_time reservation_leaves(const net *n, uint32_t at, const reservation *r)
{
    return reservation_is_final(r) ? r->to : r->to + profile_of(n, at)->latency;
}

/* See class_of(). */
static inline uint32_t reservation_class(const net *n, uint32_t at, const reservation *r)
{
    return first_channel(n, at) + r->vc_class;
}

static inline bool reservation_is_remainder(const reservation *r)
{
    return (r->flags & RESERVATION_REMAINDER) != 0;
}

/* Whether its virtual channel may be out of round-robin order. */
static inline bool reservation_is_out_of_turn(const reservation *r)
{
    return (r->flags & (RESERVATION_REMAINDER | RESERVATION_PLANNED)) != 0;
}

/* Returns the step of a remainder's message on the link: see STEP_OPEN. */
static inline uint32_t reservation_step(const net *n, uint32_t index, const reservation *r)
{
    const transfer *tr = transfer_at(n, r->transfer);
    return *step_pool_at(&n->step_pool, tr->own_route + (index - tr->train) / RESERVATION_WORDS);
}

/* Whether the train has not passed the link; the transfer of a past reservation may have ended. */
static inline bool reservation_is_live(const net *n, const reservation *r)
{
    return r->to > kb_sim_now(n->sim);
}

/* Removes past reservations of the link and returns the first remaining one, or NONE. */
uint32_t reservation_first_remaining(net *n, uint32_t at);

static inline uint32_t reservation_first(net *n, uint32_t at)
{
    return n->links[at].reserved == NONE ? NONE : reservation_first_remaining(n, at);
}

/* Returns the next reservation of the link, or NONE. */
static inline uint32_t reservation_after(const net *n, uint32_t at, uint32_t index)
{
    return index == n->links[at].reserved ? NONE : reservation_at(n, index)->next;
}

/*
 * Adds a reservation, complete but for `next`. Returns false and changes nothing if it overlaps
 * another one, or if the packets of both would share the port behind the link, where they might
 * lack space or change the round-robin choice of virtual channels.
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

/* Removes the reservation if it is in the ring. */
void reservation_remove(net *n, uint32_t at, uint32_t index);

/* Removes the reservation `r` at `index`, whose train has ended. */
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
    /* It is the only one on the link: the same as in reservation_first_remaining(). */
    uint32_t turn = l->turn + 1u;
    if (r->vc == VC_OPEN && !reservation_is_final(r))
        l->turn = (uint8_t)(turn == n->options.fabric.vcs ? 0 : turn);
    if (l->free_at <= r->from)
        l->last = NONE;
    l->reserved = NONE;
}

/* Trains that have passed the link since its last booking: that was not the last one. */
void reservation_note_passed(net *n, uint32_t at);

/* Whether packets of a train that has passed the link are in that channel behind it. Only the
 * channels of trains whose first link is their slowest are known. */
bool reservation_occupies(const net *n, uint32_t at, uint32_t c);

/* When the last packet of the train, whose first link is its slowest, starts on the link. */
kb_time reservation_last_start(const net *n, const reservation *r);

/* Advances the round-robin choice of virtual channels by the trains that have started on the link
 * until then, and frees the channels that remainders have passed. */
void reservation_take_turns(net *n, uint32_t at, kb_time until);

#endif
