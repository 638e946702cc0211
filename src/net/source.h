/*
 * source.h: the transfers that stand at a source, and whose packet comes next. Private to net.
 */
#ifndef KB_NET_SOURCE_H
#define KB_NET_SOURCE_H

#include "fabric.h"

/* The transfer stands at its source from now on, behind those of the same reader. */
void source_append(net *n, uint32_t t);

/*
 * The transfer, with those behind it, which are of the same reader, comes before all that stand at
 * its source; these are of one reader.
 */
void source_push(net *n, uint32_t t);

/* The first transfer leaves as a whole. */
void source_drop(net *n, uint32_t c);

/*
 * No packet stands at the source. If the transfer whose turn it is has come, it leaves as a whole,
 * and the next one is looked at; or its next packet is made, for the caller to offer.
 */
void source_prepare(net *n, uint32_t c);

/* The transfer whose turn it is may have been deferred: then it is looked at again. Whether there
 * is a packet now, for the caller to offer. */
bool source_retry(net *n, uint32_t c);

/* The packet there has left, and what comes next is prepared. */
void source_next(net *n, uint32_t c);

/* Makes the next packet of the transfer whose turn it is. */
void source_make_packet(net *n, uint32_t c);

#endif
