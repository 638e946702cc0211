/*
 * train.h: transfers that are alone on their links move as a whole. Private to net.
 */
#ifndef KB_NET_TRAIN_H
#define KB_NET_TRAIN_H

#include "fabric.h"

enum { TRAIN_RATES = 6 }; /* different ones on a way; with more only single packets are foreseen */

/*
 * Legs over one way, one behind the other: the first one alone, and those that have followed it.
 * When the last one has ended the train stays on its links, idle, until somebody else wants one of
 * them: most often the next leg there goes the same way. What ended legs did is kept here as long.
 */
typedef struct train {
    uint32_t first_leg, last_leg; /* of those that have not ended; the first is NONE: it is idle */
    uint32_t steps;
    uint32_t source;   /* of all its legs: the channel */
    uint32_t path;     /* the last leg's; its own while it is idle */
    uint8_t path_size; /* while it is idle */
    kb_time latency;   /* of all links */
    kb_time free_at;   /* when the last leg leaves the first link free */
    kb_time clear_at;  /* and a leg that starts then meets it nowhere */
    const topo_pace *first;
    const topo_pace *slowest;
    const topo_pace *rates[TRAIN_RATES]; /* all that are different */
    uint32_t rate_count;
    bool distinct; /* no two of them are so near to each other that rounding may decide */
    bool rising;   /* no link is slower than the one before */
    bool roomy;    /* no leg will wait for room behind another */
    bool whole;    /* all legs were of full packets */

    uint64_t ended_legs, ended_bytes;
    kb_time ended_waited;
} train;

static inline train *train_at(const net *n, uint32_t index)
{
    return kb_pool_at(&n->trains, index);
}

/*
 * The transfer, which has come and is the first at its source, leaves it as a train or behind one.
 * False if it cannot: it is to move as packets then.
 */
bool train_take(net *n, uint32_t t);

/* A leg of a train has ended. */
void train_end_leg(net *n, uint32_t t);

/* The train leaves its links, and what its legs did that have ended is added to their figures. */
void train_release(net *n, const train *tn);

/* An idle train does, and is no more. */
void train_retire(net *n, uint32_t index);

/* Dissolves the trains on the links of the transfer, which is about to use them as packets. */
void claims_clear(net *n, uint32_t t);

/* It does, until it leaves them. */
void claims_enter(net *n, uint32_t t);
void claims_leave(net *n, uint32_t t);

/*
 * unfold.c: the train's legs move as packets from now on. A packet at the source `own` is for the
 * caller to offer.
 */
void train_dissolve(net *n, uint32_t index, uint32_t own);
void train_dissolve_all(net *n);

/* What a train has done by now on one of its links, and is not in the link's figures yet. */
typedef struct train_figures {
    uint64_t packets; /* of legs that have not ended: others are among the net's hops */
    uint64_t bytes;
    kb_time waited;
} train_figures;

train_figures train_look(const net *n, uint32_t index, uint32_t at);

/* Sees that there is room for unfolding such a leg. False if there is not, or it would be much. */
KB_MUST_USE bool train_reserve(net *n, const train *tn, const transfer *tr);

#endif
