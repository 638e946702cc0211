/*
 * tcm_port.c: one direction of a PE's TCM, as a list of the intervals that are taken.
 *
 * A stream that ends takes the oldest idle time since it began: streams that end later and began
 * later cannot use it, and those that began earlier can use other time as well. So if a stream
 * lags, no order of service could have passed all bytes in time. No instant is taken twice.
 *
 * Intervals that no stream can look at any more are dropped: those before the begin of the oldest
 * stream and before the service of the oldest lag.
 */
#include "tcm_port.h"

#include <stdlib.h>
#include <string.h>

void tcm_port_fini(tcm_port *port)
{
    kb_vec_fini(&port->taken);
    kb_vec_fini(&port->lags);
}

/* Intervals that end by then do not matter any more. */
static void forget(tcm_port *port, kb_time until)
{
    while (port->first < port->taken.count && port->taken.items[port->first].to <= until)
        port->first++;
    if (port->first == port->taken.count)
        port->first = 0, port->taken.count = 0;
}

static void drop_forgotten(tcm_port *port)
{
    port->taken.count -= port->first;
    memmove(port->taken.items, port->taken.items + port->first,
            port->taken.count * sizeof *port->taken.items);
    port->first = 0;
}

static bool make_room(tcm_port *port)
{
    if (port->taken.count < port->taken.capacity)
        return true;
    if (port->first <= port->taken.count / 2)
        return kb_vec_reserve(&port->taken, 1);
    drop_forgotten(port);
    return true;
}

/* Marks idle time as taken, in front of interval `at`, and merges it with its neighbours. */
static bool insert(tcm_port *port, size_t at, tcm_interval idle)
{
    tcm_interval *items = port->taken.items;
    bool joins_before = at > port->first && items[at - 1].to == idle.from;
    bool joins_after = at < port->taken.count && items[at].from == idle.to;
    if (joins_before && joins_after) {
        items[at - 1].to = items[at].to;
        memmove(&items[at], &items[at + 1], (--port->taken.count - at) * sizeof *items);
    } else if (joins_before) {
        items[at - 1].to = idle.to;
    } else if (joins_after) {
        items[at].from = idle.from;
    } else {
        size_t behind = port->taken.count - at;
        if (!make_room(port))
            return false;
        items = port->taken.items + port->taken.count - behind;
        memmove(items + 1, items, behind * sizeof *items);
        *items = idle;
        port->taken.count++;
    }
    return true;
}

/* Takes idle time between the two, the oldest first; *work becomes what is left of it, and *done
 * the end of what was taken. */
static kb_error *take_idle(tcm_port *port, kb_time from, kb_time to, kb_time *work, kb_time *done)
{
    while (*work > 0 && from < to) {
        size_t at = port->taken.count;
        while (at > port->first && port->taken.items[at - 1].to > from)
            at--;
        const tcm_interval *next = at < port->taken.count ? &port->taken.items[at] : NULL;
        if (next && next->from <= from) {
            from = next->to;
            continue;
        }
        kb_time end = next && next->from < to ? next->from : to;
        kb_time share = end - from < *work ? end - from : *work;
        if (!insert(port, at, (tcm_interval){from, kb_time_add(from, share)}))
            return kb_error_nomem();
        *work -= share;
        *done = kb_time_add(from, share);
        from = end;
    }
    return NULL;
}

/* The room that is left is used up first, so that old intervals are dropped in batches. */
kb_error *tcm_port_book_idle(tcm_port *port, kb_time now, kb_time begin, kb_time work,
                             kb_time *done)
{
    *done = begin;
    if (port->streams == 0 && port->lags.count == 0)
        forget(port, now);
    if (port->first > 0)
        drop_forgotten(port);
    return take_idle(port, begin, KB_FOREVER, &work, done);
}

void tcm_port_stream_begin(tcm_port *port)
{
    port->streams++;
}

/* Gives the idle time up to now to the streams that lag, in their order. */
static kb_error *serve_lags(tcm_port *port, kb_time now)
{
    for (size_t i = 0; i < port->lags.count; i++) {
        tcm_lag *lag = &port->lags.items[i];
        KB_TRY(take_idle(port, lag->since, now, &lag->work, &(kb_time){0}));
        lag->since = now;
    }
    return NULL;
}

static void forget_unused(tcm_port *port, kb_time now, kb_time oldest)
{
    kb_time until = port->streams > 0 && oldest < now ? oldest : now;
    for (size_t i = 0; i < port->lags.count; i++)
        if (port->lags.items[i].since < until)
            until = port->lags.items[i].since;
    forget(port, until);
}

static kb_time idle_time(const tcm_port *port, kb_time from, kb_time to)
{
    kb_time idle = to - from;
    for (size_t i = port->taken.count; i-- > port->first && port->taken.items[i].to > from;) {
        const tcm_interval *busy = &port->taken.items[i];
        kb_time begin = busy->from > from ? busy->from : from;
        kb_time end = busy->to < to ? busy->to : to;
        idle -= end > begin ? end - begin : 0;
    }
    return idle;
}

kb_error *tcm_port_stream_end(tcm_port *port, uint64_t stream, kb_time begun, kb_time now,
                              kb_time work, kb_time oldest, bool *lags)
{
    KB_ASSERT(port->streams > 0);
    port->streams--;
    if (KB_LIKELY(port->streams == 0 && port->lags.count == 0) &&
        work <= idle_time(port, begun, now)) {
        *lags = false; /* it was alone: what it has taken is not needed any more */
        forget(port, now);
        return NULL;
    }
    KB_TRY(serve_lags(port, now));
    KB_TRY(take_idle(port, begun, now, &work, &(kb_time){0}));
    *lags = work > 0;
    if (*lags && !kb_vec_push(&port->lags, ((tcm_lag){now, work, stream})))
        return kb_error_nomem();
    forget_unused(port, now, oldest);
    return NULL;
}

static size_t find_lag(const tcm_port *port, uint64_t stream)
{
    size_t at = 0;
    while (at < port->lags.count && port->lags.items[at].stream != stream)
        at++;
    KB_ASSERT(at < port->lags.count);
    return at;
}

kb_error *tcm_port_catch_up(tcm_port *port, uint64_t stream, kb_time now, bool *done)
{
    KB_TRY(serve_lags(port, now));
    size_t at = find_lag(port, stream);
    *done = port->lags.items[at].work == 0;
    if (*done)
        memmove(&port->lags.items[at], &port->lags.items[at + 1],
                (--port->lags.count - at) * sizeof *port->lags.items);
    return NULL;
}

kb_time tcm_port_estimate(const tcm_port *port, uint64_t stream, kb_time now)
{
    size_t own = find_lag(port, stream);
    kb_time work = 0, at = now;
    for (size_t i = 0; i <= own; i++)
        work = kb_time_add(work, port->lags.items[i].work);
    for (size_t i = port->first; i < port->taken.count; i++) {
        const tcm_interval *busy = &port->taken.items[i];
        if (busy->to <= at)
            continue;
        kb_time idle = busy->from > at ? busy->from - at : 0;
        if (idle >= work)
            break;
        work -= idle;
        at = busy->to;
    }
    return kb_time_add(at, work);
}
