/*
 * train.h: packet trains: messages that are fast-forwarded. Private to net.
 */
#ifndef KB_NET_TRAIN_H
#define KB_NET_TRAIN_H

#include "fabric.h"

typedef enum train_outcome {
    TRAIN_STARTED,  /* the message is injected as a train */
    TRAIN_DEFERRED, /* not possible now; to be tried again before trains ahead have left injection
                     */
    TRAIN_REFUSED,  /* the message moves as packets */
} train_outcome;

/* The transfer is ready and first at its injection channel: starts it as a train if possible. If
 * deferred, an event for injection_retry() is scheduled. */
train_outcome train_try_start(net *n, uint32_t t);

/*
 * The transfer is first at its injection channel, and its packet has just left: continues with the
 * remaining packets as a train. Returns false if that is not possible.
 */
bool train_coalesce(net *n, uint32_t t);

/* The transfer moves as packets from packet tr->made on: sets the packet of the next attempt at a
 * train. */
void train_retry(const net *n, transfer *tr, uint32_t gap);

/* A train failed or was unfolded: makes attempts at its injection channel rarer. */
void train_note_failure(injection_tries *tries);

/* The train has ended. False if it was a part of a message: the transfer does not exist any more.
 */
bool train_end(net *n, uint32_t t);

/* The part does not exist any more. */
void train_give_part(net *n, uint32_t t);

/* The message moves as packets, until it has ended. */
void packets_begin(net *n, uint32_t t);
void packets_end(net *n, uint32_t t);

/*
 * unfold.c: replaces the train, and those that share its injection channel, by packets. The caller
 * offers a packet at injection channel `own`. Only link `at` is wanted by something else, or
 * NOTHING if that is not known: what has passed it may stay a train.
 */
void train_unfold(net *n, uint32_t t, uint32_t at, uint32_t own, net_unfold_cause cause);
void train_unfold_all(net *n);

/* The bytes and packets of a train: those of its message without the packets ahead of it. */
static inline uint64_t train_bytes(const net *n, const transfer *tr)
{
    return tr->bytes - (uint64_t)tr->train_first * n->options.fabric.packet_bytes;
}

static inline uint32_t train_packets(const transfer *tr)
{
    return tr->packets - tr->train_first;
}

/* The remaining part of reservations on a link, which the statistics count already. */
typedef struct train_remaining {
    uint64_t packets;
    uint64_t bytes;
    kb_time_sum waited;
} train_remaining;

train_remaining train_get_remaining(const net *n, uint32_t at);

/* Reserves memory for unfolding such a train. False if out of memory or if it needs too much. */
KB_MUST_USE bool train_reserve(net *n, const route *r, const transfer *tr);

#endif
