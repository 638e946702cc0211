/*
 * tcm_port.h: one direction of a PE's TCM: what its units read from it, or what they write to it.
 *
 * Engines come first: the bytes of a command pass from its begin on, in the time that commands
 * booked before leave; bookings are made in the order of begins. A DMA streams: its bytes pass
 * while the fabric carries them, in the time that engines leave. If they left too little by the end
 * of the transfer, the stream lags: the rest passes in the idle time from then on, streams one
 * after the other. So streaming never delays an engine, and no more bytes pass than the bandwidth
 * allows.
 *
 * Engines may book ahead of global time. At global time t all bookings that begin before t must
 * have been made.
 */
#ifndef KB_PE_TCM_PORT_H
#define KB_PE_TCM_PORT_H

#include <stddef.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct tcm_interval {
    kb_time from, to;
} tcm_interval;

/* A stream whose transfer has ended and whose bytes have not all passed. */
typedef struct tcm_lag {
    kb_time since; /* idle time up to here has been given to it */
    kb_time work;  /* port time that it still needs */
    uint64_t stream;
} tcm_lag;

/* All zeros is an unused port. */
typedef struct tcm_port {
    KB_VEC(tcm_interval) taken; /* by engines and streams: sorted, apart, from `first` on */
    KB_VEC(tcm_lag) lags;       /* in the order of service */
    uint32_t first;             /* interval that still matters */
    uint32_t streams;           /* under way, without those that lag */
} tcm_port;

void tcm_port_fini(tcm_port *port);

KB_MUST_USE kb_error *tcm_port_book_idle(tcm_port *port, kb_time now, kb_time begin, kb_time work,
                                         kb_time *done);

/* An engine begins at `begin` and needs `work` of the port's time; *done is when it has passed. */
static inline kb_error *tcm_port_book(tcm_port *port, kb_time now, kb_time begin, kb_time work,
                                      kb_time *done)
{
    size_t count = port->taken.count;
    bool is_last = (count == 0 || port->taken.items[count - 1].to <= begin) && work < KB_S;
    if (KB_UNLIKELY(!is_last || count == port->taken.capacity))
        return tcm_port_book_idle(port, now, begin, work, done);
    *done = begin + work;
    port->taken.items[count] = (tcm_interval){begin, *done};
    port->taken.count = count + 1;
    return NULL;
}

void tcm_port_stream_begin(tcm_port *port);

/*
 * The transfer that began at `begun` has ended; its bytes take `work` of the port's time. *lags: it
 * is not done; ask again at tcm_port_estimate(). `oldest`: when the oldest stream that goes on
 * began; unused if there is none.
 */
KB_MUST_USE kb_error *tcm_port_stream_end(tcm_port *port, uint64_t stream, kb_time begun,
                                          kb_time now, kb_time work, kb_time oldest, bool *lags);

/* Whether the lagging stream is done by now; if so it is forgotten. */
KB_MUST_USE kb_error *tcm_port_catch_up(tcm_port *port, uint64_t stream, kb_time now, bool *done);

/* When the lagging stream is done unless engines book more before that. */
kb_time tcm_port_estimate(const tcm_port *port, uint64_t stream, kb_time now);

#endif
