/*
 * contact.h: where packets and packet trains come near each other. Private to net.
 *
 * A train ignores packets, and packets ignore trains, as long as neither can make a difference to
 * the other. This is checked whenever a packet starts on a link, for the link that it comes to
 * next, and whenever a packet has to wait; and whenever a train sets out, for all of its links. A
 * train that a packet would meet is unfolded before it happens, at an earlier instant.
 */
#ifndef KB_NET_CONTACT_H
#define KB_NET_CONTACT_H

#include "fabric.h"

/* A packet that comes to a link. */
struct visit {
    uint32_t at;        /* the link */
    uint32_t feeder;    /* the link that it comes from; NOTHING at a source */
    uint32_t step;      /* of its path */
    uint32_t path;      /* the word of that step; NONE if it does not matter */
    bool is_final;      /* it arrives behind the link */
    bool is_last;       /* packet of its message */
    kb_time head, tail; /* when these are there */
};

/* Unfolds the trains that the packet would meet on the link, if it does not wait there. */
void contact_meet(net *n, const visit *v);

/* Unfolds all trains that have not passed the link. A packet of the source `own` is for the caller
 * to offer. */
void contact_clear(net *n, uint32_t at, uint32_t own);

/* The same for the first link of a route at whose source a transfer is about to go as packets. */
void contact_leave_source(net *n, const route *r, uint32_t own);

/*
 * A packet comes to a link, at `step` of its path. If the link has no latency, the packet is at the
 * next one in the instant in which it starts, and nothing can be known beforehand of what it meets
 * there: so no trains pass that one any more.
 */
void contact_feed_at_once(net *n, const uint32_t *step);

/* A packet that wants the link is late: unfolds all trains there, and none passes the link until
 * the packet has started. */
void contact_delay(net *n, uint32_t at);

/* All packets behind the first of the channel, which waits, are late. */
void contact_delay_behind(net *n, uint32_t c);

/* A packet begins to wait for link `at`, as the first of channel `c`: unfolds the trains that
 * depend on either, and delays the packets behind it. */
void contact_wait(net *n, uint32_t at, uint32_t c);

/* The packet is on the link and has chosen its virtual channel: unfolds trains that would not find
 * theirs in turn any more. */
void contact_choose(net *n, const visit *v);

/*
 * Whether a train of the transfer passes link `i` of its route, where its head comes then, without
 * meeting the packets that have been there or in the port behind the link lately. *vc is the
 * virtual channel that it takes: VC_OPEN if it is the one whose turn it is, or planned.
 */
bool contact_may_pass(net *n, uint32_t t, uint32_t i, kb_time head, uint8_t *vc);

/* The same for any packets; most often there are none near the link. */
static inline bool contact_is_quiet(net *n, const link *l, const profile *pr, uint32_t t,
                                    uint32_t i, kb_time head, bool is_final, uint8_t *vc)
{
    if (l->held_until > head || l->ready != NOTHING || l->blocked != NOTHING ||
        l->flags & LINK_FED_AT_ONCE || l->late > 0)
        return false;
    if (is_final ||
        (kb_time_add(l->held_until, pr->latency) <= n->now && !(l->flags & LINK_PORT_USED)))
        return true;
    return contact_may_pass(n, t, i, head, vc);
}

/*
 * Whether what is left of a message passes a link, where its head comes then, without meeting
 * packets of other messages. The packets of its own that are ahead of it do not wait.
 */
bool contact_may_resume(const net *n, uint32_t step, bool is_final, kb_time head);

#endif
