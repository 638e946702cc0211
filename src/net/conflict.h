/*
 * conflict.h: detects conflicts between packets and packet trains. Private to net.
 *
 * Packets and trains are simulated independently as long as neither changes the timing of the
 * other. The check runs when a packet starts on a link, for the next link of its route; when a
 * packet waits; and when a train starts, for all of its links. A train that conflicts with a packet
 * is unfolded at an instant before the conflict.
 */
#ifndef KB_NET_CONFLICT_H
#define KB_NET_CONFLICT_H

#include "fabric.h"

/* A packet that arrives at a link. */
struct visit {
    uint32_t at;        /* the link */
    uint32_t feeder;    /* previous link of its route; NOTHING after injection */
    uint32_t step;      /* of its route */
    uint32_t next_step; /* word of that step in the step pool; NONE if irrelevant */
    bool is_final;      /* the link is the last of its route */
    bool is_last;       /* last packet of its message */
    kb_time head, tail; /* arrival times */
};

/* Unfolds the trains that conflict with the packet on the link, unless it waits there. */
void conflict_meet(net *n, const visit *v);

/* Whether packets may come to the port behind the link while those of a train over the route are
 * there. */
bool conflict_may_follow(const net *n, uint32_t at, const route *r);

/* Unfolds all trains that have not passed the link. The caller offers a packet of injection channel
 * `own`. */
void conflict_clear(net *n, uint32_t at, uint32_t own);

/* The same for the first link of a route, when a transfer is about to be injected as packets. */
void conflict_leave_source(net *n, const route *r, uint32_t own);

/*
 * A packet arrives at a link, at `step` of its route. If the link has no latency, the packet
 * reaches the next link in the instant of its start, too late to check for conflicts. So no train
 * may pass that next link any more.
 */
void conflict_feed_at_once(net *n, const uint32_t *step);

/* A packet that needs the link is late: unfolds all trains there. No train passes the link until
 * the packet has started. */
void conflict_delay(net *n, uint32_t at);

/* The first packet of the channel waits: marks all packets behind it as late. */
void conflict_delay_behind(net *n, uint32_t c);

/* The first packet of channel `c` begins to wait for link `at`: unfolds the trains that depend on
 * either and marks the packets behind it as late. */
void conflict_wait(net *n, uint32_t at, uint32_t c);

/* The packet has started on the link and chosen its virtual channel: unfolds trains for which the
 * round-robin choice changes. */
void conflict_choose(net *n, const visit *v);

/*
 * Whether a train of the transfer, whose head arrives at link `i` of its route at `head`, passes
 * the link without conflict with recent packets there or in the port behind the link. *vc is the
 * virtual channel that it takes: VC_OPEN for the next one in round-robin order, or a planned one.
 */
bool conflict_may_pass(net *n, uint32_t t, uint32_t i, kb_time head, uint8_t *vc);

/* The same with a quick test first: usually there is no packet near the link. */
static inline bool conflict_is_quiet(net *n, const link *l, const profile *pr, uint32_t t,
                                     uint32_t i, kb_time head, bool is_final, uint8_t *vc)
{
    if (l->held_until > head || l->ready != NOTHING || l->blocked != NOTHING ||
        l->flags & LINK_FED_AT_ONCE || l->late > 0)
        return false;
    if (is_final ||
        (kb_time_add(l->held_until, pr->latency) <= n->now && !(l->flags & LINK_PORT_USED)))
        return true;
    return conflict_may_pass(n, t, i, head, vc);
}

/*
 * Whether the remainder of a message, whose head arrives at a link at `head`, passes it without
 * conflict with packets of other messages. Its own packets ahead of it do not wait.
 */
bool conflict_may_resume(const net *n, uint32_t step, bool is_final, kb_time head);

#endif
