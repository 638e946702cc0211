/*
 * units_tcm.c: one direction of a PE's TCM, as a server with a memory of its idle time.
 *
 * While something streams, the times that no engine booked are kept as gaps. A stream that ends
 * takes the oldest of them since it began: those that end later and began later cannot use these,
 * and those that began earlier can use others as well. That is the best there is: if a stream finds
 * too little, no order of serving could have passed all bytes in time. No instant is taken twice.
 *
 * Gaps are in the order of time and do not overlap; all end at free_at or before, and none has the
 * beginning of a stream inside it. Those before the oldest stream are forgotten, so there are about
 * as many as bookings and beginnings since then.
 */
#include "units_tcm.h"

#include <stdlib.h>
#include <string.h>

void pe_tcm_fini(pe_tcm_port *port)
{
    kb_vec_fini(&port->gaps);
}

/* What was idle up to now becomes a gap. */
static kb_error *close_gap(pe_tcm_port *port, kb_time now)
{
    if (port->free_at >= now)
        return NULL;
    if (port->streams > 0 &&
        !kb_vec_push(&port->gaps, ((pe_tcm_gap){.from = port->free_at, .to = now})))
        return kb_error_nomem();
    port->free_at = now;
    return NULL;
}

kb_error *pe_tcm_book(pe_tcm_port *port, kb_time now, kb_time work, kb_time *done)
{
    *done = now;
    if (work == 0)
        return NULL;
    KB_TRY(close_gap(port, now));
    port->free_at = kb_time_add(port->free_at, work);
    *done = port->free_at;
    return NULL;
}

kb_error *pe_tcm_stream_begin(pe_tcm_port *port, kb_time now)
{
    KB_TRY(close_gap(port, now)); /* which is of no use to this one */
    port->streams++;
    return NULL;
}

/* Forgets gaps that no stream can use. */
static void forget_gaps(pe_tcm_port *port, kb_time oldest)
{
    size_t count = port->gaps.count;
    pe_tcm_gap *gaps = port->gaps.items;
    while (port->first < count && (port->streams == 0 || gaps[port->first].to <= oldest ||
                                   gaps[port->first].from == gaps[port->first].to))
        port->first++;
    if (port->first <= count / 2 && port->first < count)
        return;
    if (port->first < count)
        memmove(gaps, gaps + port->first, (count - port->first) * sizeof *gaps);
    port->gaps.count -= port->first;
    port->first = 0;
}

kb_error *pe_tcm_stream_end(pe_tcm_port *port, kb_time begun, kb_time now, kb_time work,
                            kb_time oldest, kb_time *done)
{
    *done = now;
    KB_ASSERT(port->streams > 0);
    KB_TRY(close_gap(port, now));
    for (size_t g = port->first; g < port->gaps.count && work > 0; g++) {
        pe_tcm_gap *gap = &port->gaps.items[g];
        if (gap->from < begun)
            continue;
        kb_time taken = gap->to - gap->from < work ? gap->to - gap->from : work;
        gap->from += taken;
        work -= taken;
    }
    port->streams--;
    forget_gaps(port, oldest);
    return pe_tcm_book(port, now, work, done);
}
