/*
 * train.h: transfers that are alone on their links move as a whole. A train has the number of the
 * route that it stands on. Private to net.
 */
#ifndef KB_NET_TRAIN_H
#define KB_NET_TRAIN_H

#include "fabric.h"

/*
 * The transfer, which has come and is the first at its source, leaves it as a train or behind one.
 * False if it cannot: it is to move as packets then.
 */
bool train_take(net *n, uint32_t t);

/* A leg of a train has ended. */
void train_end_leg(net *n, uint32_t t);

/* The train leaves its links, and what its legs did that have ended is added to their figures. */
void train_release(net *n, route *r);

/* An idle train does. */
void train_retire(net *n, uint32_t index);

/* Dissolves the trains on the links of the transfer, which is about to use them as packets. */
void claims_clear(net *n, uint32_t t);

/* It does, until it leaves them. False, and the simulator has failed, if there is no memory. */
KB_MUST_USE bool claims_enter(net *n, uint32_t t);
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
    kb_time_sum waited;
} train_figures;

train_figures train_look(const net *n, uint32_t index, uint32_t at);

/* Sees that there is room for unfolding such a leg. False if there is not, or it would be much. */
KB_MUST_USE bool train_reserve(net *n, const route *r, const transfer *tr);

#endif
