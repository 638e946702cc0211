/*
 * injection.h: injection channels: the queue of transfers at a node, and the arbitration between
 * the readers of a memory, which take turns packet by packet. Private to net.
 */
#ifndef KB_NET_INJECTION_H
#define KB_NET_INJECTION_H

#include "fabric.h"

/* Queues the transfer at its injection channel, behind those of the same reader. */
void injection_append(net *n, uint32_t t);

/*
 * Queues the transfer, and those behind it of the same reader, before all others at its injection
 * channel, which are of one reader.
 */
void injection_push(net *n, uint32_t t);

/* Removes the first transfer: it leaves as a train. */
void injection_drop(net *n, uint32_t c);

/*
 * The channel has no packet. If the transfer in turn is ready, it leaves as a train, and the next
 * one is examined; or its next packet is made, which the caller offers.
 */
void injection_prepare(net *n, uint32_t c);

/* Examines the transfer in turn again if it was deferred. Returns whether there is a packet now,
 * which the caller offers. */
bool injection_retry(net *n, uint32_t c);

/* The packet has left: prepares the next one. */
void injection_next(net *n, uint32_t c);

/* Makes the next packet of the transfer in turn. */
void injection_make_packet(net *n, uint32_t c);

#endif
