/*
 * units_tcm.h: one direction of a PE's TCM: what units read from it, or what they write to it. One
 * server that all units share.
 *
 * An engine books its bytes when it begins, behind what is booked already. A DMA streams: its bytes
 * come or go as the fabric carries them, in time that the engines leave; when the last byte has
 * arrived, what did not fit into that time is booked as well. So streaming does not hold up
 * engines, and no more bytes pass than the bandwidth allows.
 */
#ifndef KB_PE_UNITS_TCM_H
#define KB_PE_UNITS_TCM_H

#include <stddef.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct pe_tcm_gap {
    kb_time from, to;
} pe_tcm_gap;

/* All zeros is one that nobody has used. */
typedef struct pe_tcm_port {
    kb_time free_at;         /* nothing is booked from here on */
    KB_VEC(pe_tcm_gap) gaps; /* before that, while something streams: time that nobody had */
    size_t first;            /* gap that may still matter */
    size_t streams;          /* under way */
} pe_tcm_port;

void pe_tcm_fini(pe_tcm_port *port);

/* Books so much of the port's time, from now on; *done is when it has passed. */
KB_MUST_USE kb_error *pe_tcm_book(pe_tcm_port *port, kb_time now, kb_time work, kb_time *done);

/* Something begins to stream. */
KB_MUST_USE kb_error *pe_tcm_stream_begin(pe_tcm_port *port, kb_time now);

/*
 * The last byte of what began to stream at `begun` is there; its bytes take `work` of the port's
 * time. *done is when they have passed, now or later. `oldest`: when the oldest stream that goes on
 * began; means nothing if none does.
 */
KB_MUST_USE kb_error *pe_tcm_stream_end(pe_tcm_port *port, kb_time begun, kb_time now, kb_time work,
                                        kb_time oldest, kb_time *done);

#endif
