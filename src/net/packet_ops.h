/*
 * packet_ops.h: the primitives of packet_engine.inc: order of events, credits, rings of channels
 * and fields of packets. Private to net.
 */
#ifndef KB_NET_PACKET_OPS_H
#define KB_NET_PACKET_OPS_H

#include "fabric.h"

#include "sim/sim.h"

/* ---- Order ------------------------------------------------------------------------------- */

static inline void begin(net *n, uint32_t id)
{
    kb_time now = n->clock->now;
    /* An event may have been scheduled for this instant by one that comes after it. */
    n->current = now == n->now && n->current > id ? n->current : id;
    n->now = now;
}

/* Whether an elided event would have come before the current event (N5). */
static inline bool has_passed(const net *n, kb_time when, uint32_t id)
{
    return when < n->now || (when == n->now && id < n->current);
}

/* The same for an elided event that comes first of all with its id, such as a credit. */
static inline bool has_come(const net *n, kb_time when, uint32_t id)
{
    return when < n->now || (when == n->now && id <= n->current);
}

/*
 * The order at one source id and one instant: credits first, so that arrivals find the space; then
 * arrivals or grants; then ends of transfers, with consecutive sequence numbers.
 */
enum { FIRST_SEQUENCE = 0, SECOND_SEQUENCE = 1, THIRD_SEQUENCE = 2 };

/* At the end of the clock or of memory, the simulator reports the error. */
static __attribute__((noinline, cold, unused)) kb_event
refuse_event(net *n, kb_time when, uint64_t key, kb_handler handler, uint64_t arg)
{
    kb_source source = {key};
    return kb_sim_at(n->sim, &source, when, handler, arg);
}

/* kb_sim_at(), inlined: no event is scheduled in the past. */
static inline __attribute__((always_inline)) kb_event push_event(net *n, kb_time when, uint64_t key,
                                                                 kb_handler handler, uint64_t arg)
{
    if (KB_UNLIKELY(when == KB_FOREVER))
        return refuse_event(n, when, key, handler, arg);
    kb_event event = kb_eventset_push(n->events, when, key, handler, arg);
    return KB_LIKELY(event.slot != 0) ? event : refuse_event(n, when, key, handler, arg);
}

/* The same for an event that is known to be before the end of the clock. */
static inline __attribute__((always_inline)) void
push_safe_event(net *n, kb_time when, uint64_t key, kb_handler handler, uint64_t arg)
{
    kb_event event = kb_eventset_push(n->events, when, key, handler, arg);
    if (KB_UNLIKELY(event.slot == 0))
        (void)refuse_event(n, when, key, handler, arg);
}

static inline void schedule_in(net *n, kb_time when, uint32_t id, uint64_t sequence,
                               kb_handler handler, uint64_t arg)
{
    (void)push_event(n, when, kb_source_make(id).next_key + sequence, handler, arg);
}

static inline void schedule(net *n, kb_time when, uint32_t id, kb_handler handler, uint64_t arg)
{
    schedule_in(n, when, id, SECOND_SEQUENCE, handler, arg);
}

static inline void schedule_credit(net *n, kb_time when, uint32_t feeder, uint32_t c,
                                   uint32_t bytes)
{
    schedule_in(n, when, arrival_id(n, feeder), FIRST_SEQUENCE, n->on_credit,
                (uint64_t)c << 32 | bytes);
}

/* Two transfers may end at one instant over one link: in the order of these calls. */
static inline kb_event schedule_end(net *n, kb_time when, uint32_t at, uint32_t t)
{
    uint64_t key = kb_source_make(arrival_id(n, at)).next_key + THIRD_SEQUENCE + n->delivered++;
    return push_event(n, when, key, n->on_end, (uint64_t)at << 32 | t);
}

/* Schedules injection_retry(): an inject event without a message. */
static inline void schedule_retry(net *n, kb_time when, uint32_t source)
{
    uint64_t key = kb_source_make(inject_id(n, source)).next_key + SECOND_SEQUENCE + n->arrivals++;
    (void)push_event(n, when, key, n->on_inject, (uint64_t)source << 32 | NONE);
}

/* ---- Space ------------------------------------------------------------------------------- */

static inline void take_space(channel *ch, uint32_t bytes)
{
    ch->space += bytes << SPACE_SHIFT;
}

static inline void return_space(channel *ch, uint32_t bytes)
{
    ch->space -= bytes << SPACE_SHIFT;
}

/* Returns the link's credit now if it is due, or else by an event. */
static inline void return_credit(net *n, link *l)
{
    if (KB_LIKELY(l->credit_due_at < n->now) ||
        has_come(n, l->credit_due_at, arrival_id(n, link_of(n, l->credit_channel))))
        return_space(&n->channels[l->credit_channel], l->credit_bytes);
    else
        schedule_credit(n, l->credit_due_at, link_of(n, l->credit_channel), l->credit_channel,
                        l->credit_bytes);
    l->credit_channel = NOTHING;
    l->flags &= (uint8_t)~LINK_CREDIT_AWAITED;
}

/* ---- Rings of channels ------------------------------------------------------------------- */

static inline void ring_append(net *n, uint32_t *last, uint32_t c)
{
    if (*last == NOTHING) {
        n->channels[c].next = c;
    } else {
        n->channels[c].next = n->channels[*last].next;
        n->channels[*last].next = c;
    }
    *last = c;
}

static inline uint32_t ring_take(net *n, uint32_t *last)
{
    uint32_t first = n->channels[*last].next;
    if (first == *last)
        *last = NOTHING;
    else
        n->channels[*last].next = n->channels[first].next;
    return first;
}

/* Removes the channel behind `before`. */
static inline void ring_remove_after(net *n, uint32_t *last, uint32_t before)
{
    uint32_t c = n->channels[before].next;
    if (before == c)
        *last = NOTHING;
    else if (*last == c)
        *last = before;
    n->channels[before].next = n->channels[c].next;
}

static inline void ring_remove(net *n, uint32_t *last, uint32_t c)
{
    uint32_t before = *last;
    while (n->channels[before].next != c)
        before = n->channels[before].next;
    ring_remove_after(n, last, before);
}

/* ---- Packets ----------------------------------------------------------------------------- */

static inline packet *packet_at(const net *n, uint32_t index)
{
    return pool_at(&n->packets, PACKET_STRIDE, index);
}

static inline bool is_injection(const net *n, uint32_t c)
{
    return c >= n->injection_base;
}

static inline packet *first_packet(const net *n, uint32_t c)
{
    return packet_at(n, n->channels[c].first);
}

static inline uint32_t bytes_of(const net *n, const packet *pk)
{
    return pk->number & PACKET_LAST ? pk->number >> PACKET_NUMBER_SHIFT
                                    : n->options.fabric.packet_bytes;
}

/* Returns the transfer of a packet: its number follows the last step of its own route. */
static inline const transfer *owner_of(const net *n, const packet *pk)
{
    const uint32_t *step = step_pool_at(&n->step_pool, pk->next_step);
    while (*step != END_OF_ROUTE)
        step++;
    return transfer_at(n, step[1]);
}

static inline uint32_t index_of(const net *n, const packet *pk)
{
    return pk->number & PACKET_LAST ? owner_of(n, pk)->packets - 1
                                    : pk->number >> PACKET_NUMBER_SHIFT;
}

static __attribute__((noinline, unused)) kb_time uneven_occupancy(const net *n, const profile *pr,
                                                                  const packet *pk, uint32_t bytes)
{
    if (KB_LIKELY(pr->even_bytes != 0)) /* the packets before it take whole femtoseconds */
        return topo_rate_time(pr->pace.bytes_per_s, bytes);
    return topo_pace_time(&pr->pace, index_of(n, pk), bytes);
}

/* Most rates divide a packet evenly; then its index in the message does not matter. */
static inline kb_time occupancy(const net *n, const profile *pr, const packet *pk, uint32_t bytes)
{
    if (KB_LIKELY(bytes == pr->even_bytes))
        return (kb_time)pr->pace.quotient;
    return uneven_occupancy(n, pr, pk, bytes);
}

#endif
