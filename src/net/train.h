/*
 * train.h: packet trains: messages that are fast-forwarded. Private to net.
 */
#ifndef KB_NET_TRAIN_H
#define KB_NET_TRAIN_H

#include "fabric.h"

typedef enum train_answer {
    TRAIN_SET_OUT,  /* it has left its source as a train */
    TRAIN_DEFERRED, /* it cannot now, but is not needed before trains ahead have left the source */
    TRAIN_REFUSED,  /* it is to move as packets */
} train_answer;

/* The transfer has come and is the first at its source: whether it leaves it as a train. If that is
 * deferred, there will be an event for source_retry(). */
train_answer train_take(net *n, uint32_t t);

/*
 * What is left of the transfer, which is the first at its source and whose packet has just left,
 * goes on as a train. False if it cannot.
 */
bool train_coalesce(net *n, uint32_t t);

/* The transfer moves as packets from packet tr->made on; from which one a train is tried. */
void train_retry(const net *n, transfer *tr, uint32_t gap);

/* A train of the source has failed, or was unfolded: fewer are tried. */
void train_note_failure(source_tries *tries);

/* The train has ended. */
void train_end(net *n, uint32_t t);

/* The message moves as packets, until it has ended. */
void packets_begin(net *n, uint32_t t);
void packets_end(net *n, uint32_t t);

/*
 * unfold.c: the train moves as packets from now on, and so do those that are at the same source
 * with it. A packet at the source `own` is for the caller to offer.
 */
void train_unfold(net *n, uint32_t t, uint32_t own, net_unfold_cause cause);
void train_unfold_all(net *n);

/* What a train is of: bytes and packets of its message; all but those that went ahead of it. */
static inline uint64_t train_bytes(const net *n, const transfer *tr)
{
    return tr->bytes - (uint64_t)tr->train_first * n->options.packet_bytes;
}

static inline uint32_t train_packets(const transfer *tr)
{
    return tr->packets - tr->train_first;
}

/* What trains have reserved on a link and not done yet, which is in the figures already. */
typedef struct train_rest {
    uint64_t packets;
    uint64_t bytes;
    kb_time_sum waited;
} train_rest;

train_rest train_look(const net *n, uint32_t at);

/* Sees that there is room for unfolding such a train. False if there is not, or it would be much.
 */
KB_MUST_USE bool train_reserve(net *n, const route *r, const transfer *tr);

#endif
