/*
 * train.c: messages that meet no others, fast-forwarded as packet trains.
 *
 * Nothing holds up a message that is alone: it takes latency and drain, to the femtosecond (L1). So
 * nothing is simulated of it but its end. Its train reserves each link of its route for the drain,
 * from when its first packet comes there (reservation.h). Trains whose reservations do not overlap
 * do not hold up each other: where one comes to a link the one before has left it, and it leaves
 * room in the ports as a lone message does for itself. Packets that come near a train unfold it
 * (conflict.h, unfold.c), and then all is as if there had been packets from the start.
 *
 * A message becomes a train in the event of its arrival at the source, or when those before it have
 * left. What links have counted for it is what it will have done when it has ended.
 *
 * Where one train after the other fails, trying small messages costs more than trains save: a try
 * costs as much as a few hops of packets. So each that fails, or is unfolded, makes its source send
 * twice as many hops as packets before it tries again, up to a limit; one that ends whole makes it
 * try each message. A large message is tried always. What is tried makes no difference to
 * what happens.
 *
 * These move as packets from the start: messages over a route that passes a link twice; several
 * packets where rates differ by so little that rounding may hold one up; anything over links that
 * are fed by links without latency, with serial ports, without elision, or while bookings are
 * watched.
 */
#include "train.h"

#include "conflict.h"
#include "injection.h"
#include "packet_ops.h"
#include "reservation.h"

enum {
    FEW_FAILURES = 4,
    TRY_HOPS = 4, /* what a try that fails costs, in hops of packets */
    MAX_DOUBLINGS = 8,
    SMALL_HOPS = 128, /* a message of more is tried always */
    DEFER_TRIES = 4,  /* while the trains ahead leave the source */
};

/* ---- Messages ---------------------------------------------------------------------------- */

static uint64_t last_bytes(const net *n, const transfer *tr)
{
    return tr->bytes - (uint64_t)(tr->packets - 1) * n->options.fabric.packet_bytes;
}

static bool is_whole(const net *n, const transfer *tr)
{
    return last_bytes(n, tr) == n->options.fabric.packet_bytes;
}

static kb_time time_of(const net *n, const topo_pace *pace, const transfer *tr)
{
    if (pace->remainder == 0 && is_whole(n, tr) && pace->quotient < (1u << 31))
        return (kb_time)(pace->quotient * tr->packets);
    return topo_rate_time(pace->bytes_per_s, tr->bytes);
}

/* Whether the slowest link alone decides how long the message takes. */
static bool is_foreseeable(const net *n, const route *r, const transfer *tr)
{
    if (tr->packets == 1)
        return true;
    if (!r->distinct)
        return false;
    if (is_whole(n, tr))
        return true;
    /* Wherever in the transfer it is, the last packet takes longest on that link. */
    uint64_t last = last_bytes(n, tr);
    for (uint32_t i = 0; i < r->rate_count; i++) {
        const topo_pace *pace = &n->profiles.items[r->rates[i]].pace;
        if (pace != r->slowest && topo_rate_time(pace->bytes_per_s, last) >=
                                      topo_rate_time(r->slowest->bytes_per_s, last))
            return false;
    }
    return true;
}

/* Whether messages of this size may go as trains. */
static bool is_fit(net *n, route *r, const transfer *tr)
{
    if (KB_LIKELY(r->size == tr->bytes))
        return true;
    routes_compute_timing(n, r);
    kb_time drain = time_of(n, r->slowest, tr);
    if (drain > FARTHEST || r->latency > FARTHEST || !r->is_simple || r->steps > MAX_TRAIN_STEPS ||
        !is_foreseeable(n, r, tr) || !train_reserve(n, r, tr))
        return false;
    r->size = tr->bytes;
    r->packets = tr->packets;
    r->size_whole = is_whole(n, tr);
    r->drain = drain;
    return true;
}

/* ---- Setting out ------------------------------------------------------------------------- */

/* Whether messages over the two routes leave their source one after the other, not in turns. */
static bool leave_in_order(const route *a, const route *b)
{
    return a->injection == b->injection && a->reader == b->reader;
}

/*
 * When the first link is free for the message, if trains of the same source are before it there.
 * They are known to keep it busy for all their time if it is their slowest one; else the message
 * must wait until they have left to be a train.
 */
static kb_time start_of(net *n, const route *r)
{
    kb_time free_at = n->links[r->first_link].free_at;
    kb_time start = n->now > free_at ? n->now : free_at;
    for (uint32_t i = reservation_first(n, r->first_link); i != NONE;) {
        const reservation *other = reservation_at(n, i);
        if (other->to > start && other->from <= start && other->feeder == NOTHING) {
            const route *before = route_of(n, transfer_at(n, other->transfer));
            if (!leave_in_order(before, r) || before->first != before->slowest)
                return start;
            start = other->to;
        }
        i = reservation_after(n, r->first_link, i);
    }
    return start;
}

/* Gives the reservations back, of which the first `count` are on links. */
static void withdraw(net *n, const route *r, transfer *tr, uint32_t count)
{
    const uint32_t *step = step_pool_at(&n->step_pool, r->words);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = step_link(n, step[i]);
        reservation_remove(n, at, reservation_of(tr, i));
        n->links[at].bytes -= train_bytes(n, tr);
    }
    step_pool_free(&n->step_pool, tr->train, tr->train_size);
}

/* Reserves all links if no packets are near any when the train comes there, nor trains; or none. */
static __attribute__((noinline)) bool reserve(net *n, const route *r, uint32_t t, kb_time start,
                                              net_packets_cause *cause)
{
    const uint32_t *step = step_pool_at(&n->step_pool, r->words);
    transfer *tr = transfer_at(n, t);
    uint32_t index = tr->train, feeder = NOTHING;
    uint32_t flags = RESERVATION_LISTED | (r->size_whole ? RESERVATION_WHOLE : 0u);
    kb_time from = start, drain = r->drain;
    uint64_t bytes = tr->bytes;
    link *links = n->links;
    const profile *profiles = n->profiles.items;
    reservation *wanted = reservation_at(n, index);
    for (uint32_t i = 0, steps = r->steps; i < steps; i++, wanted++) {
        uint32_t at = step_link(n, step[i]);
        link *l = &links[at];
        const profile *pr = &profiles[l->profile];
        bool is_final = i + 1 == steps;
        uint8_t vc = VC_OPEN;
        bool is_quiet = conflict_is_quiet(n, l, pr, t, i, from, is_final, &vc);
        wanted->from = from;
        wanted->to = from + drain;
        wanted->transfer = t;
        wanted->feeder = feeder;
        wanted->vc_class = (uint16_t)(step_channel(step[i]) - first_channel(n, at));
        wanted->vc = vc;
        wanted->flags = (uint8_t)(flags | (is_final ? RESERVATION_FINAL : 0u) |
                                  (vc >= VC_PLANNED ? RESERVATION_PLANNED : 0u));
        if (!is_quiet || !reservation_add(n, at, index)) {
            *cause = is_quiet ? NET_TRAIN_IN_THE_WAY : NET_PACKETS_IN_THE_WAY;
            withdraw(n, r, tr, i);
            return false;
        }
        l->bytes += bytes;
        from += pr->latency;
        feeder = at;
        index += RESERVATION_WORDS;
    }
    return true;
}

/* The message, which has reserved its links, leaves its source. */
static void set_out(net *n, const route *r, uint32_t t, kb_time start)
{
    transfer *tr = transfer_at(n, t);
    injection_drop(n, r->injection);
    tr->in_train = true;
    tr->start = start;
    tr->ends_at = start + r->drain + r->latency;
    tr->end = schedule_end(n, tr->ends_at, r->last_link, t);
    if (start > tr->ready_at)
        add_waited(n, r->first_link, start - tr->ready_at);
    n->hops += (uint64_t)tr->packets * r->steps;
}

void train_note_failure(injection_tries *tries)
{
    if (tries->failures < FEW_FAILURES + MAX_DOUBLINGS)
        tries->failures++;
    if (tries->failures > FEW_FAILURES)
        tries->skip_hops = (uint16_t)(TRY_HOPS << (tries->failures - FEW_FAILURES));
}

/*
 * When the last of the trains that have not left the source starts its last packet, if messages
 * over the route leave the source after them and not before: so nothing is to be known of these
 * until then. KB_FOREVER if there are no such trains.
 */
static kb_time last_start_ahead(net *n, const route *r)
{
    kb_time last = KB_FOREVER;
    for (uint32_t i = reservation_first(n, r->first_link); i != NONE;
         i = reservation_after(n, r->first_link, i)) {
        const reservation *ahead = reservation_at(n, i);
        const transfer *tr = transfer_at(n, ahead->transfer);
        const route *of = route_of(n, tr);
        if (!reservation_is_live(n, ahead) || ahead->feeder != NOTHING ||
            of->injection != r->injection)
            continue;
        if (!leave_in_order(of, r) || of->first != of->slowest)
            return KB_FOREVER;
        last = tr->start +
               topo_rate_time(of->first->bytes_per_s,
                              (uint64_t)(tr->packets - 1) * n->options.fabric.packet_bytes);
    }
    return last;
}

/* Tries again when there is more to know, but not later than the message may leave its source. */
static bool defer(net *n, route *r, transfer *tr)
{
    kb_time last = last_start_ahead(n, r);
    if (last == KB_FOREVER || last <= n->now)
        return false;
    routes_compute_timing(n, r);
    kb_time some = (last - n->now) / DEFER_TRIES + 1; /* where latencies are short */
    kb_time soon = kb_time_add(n->now, r->latency > some ? r->latency : some);
    schedule_retry(n, soon < last ? soon : last, r->injection);
    tr->deferred = true;
    return true;
}

static train_outcome refuse(net *n, route *r, transfer *tr, net_packets_cause cause)
{
    if (defer(n, r, tr))
        return TRAIN_DEFERRED;
    n->trains.as_packets[cause]++;
    train_note_failure(tries_at(n, r->injection));
    return TRAIN_REFUSED;
}

/* The message is not worth a try. */
static train_outcome skip(net *n, route *r, transfer *tr, uint64_t hops)
{
    if (defer(n, r, tr))
        return TRAIN_DEFERRED;
    injection_tries *tries = tries_at(n, r->injection);
    tries->skip_hops = (uint16_t)(tries->skip_hops - hops);
    n->trains.as_packets[NET_PACKETS_IN_THE_WAY]++;
    return TRAIN_REFUSED;
}

train_outcome train_try_start(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    route *r = route_of(n, tr);
    const channel *ch = &n->channels[r->injection];
    const injection_tries *tries = tries_at(n, r->injection);
    if (n->engine != &engine_parallel || n->watch)
        return TRAIN_REFUSED;
    uint64_t hops = (uint64_t)tr->packets * r->steps;
    if (hops <= tries->skip_hops && hops <= SMALL_HOPS)
        return skip(n, r, tr, hops);
    if (ch->first_transfer != ch->last_transfer) /* several readers take turns */
        return refuse(n, r, tr, NET_PACKETS_IN_THE_WAY);
    kb_time start = start_of(n, r);
    if (start > FARTHEST || !is_fit(n, r, tr))
        return refuse(n, r, tr, NET_UNPREDICTABLE);
    tr->train = step_pool_alloc(&n->step_pool, r->steps * RESERVATION_WORDS, &tr->train_size);
    if (tr->train == NONE) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return TRAIN_REFUSED;
    }
    tr->train_first = 0;
    net_packets_cause cause;
    if (!reserve(n, r, t, start, &cause))
        return refuse(n, r, tr, cause);
    set_out(n, r, t, start);
    return TRAIN_STARTED;
}

void train_give_part(net *n, uint32_t t)
{
    kb_pool_give(&n->transfers, t);
    n->parts--;
}

bool train_end(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    const uint32_t *step = step_pool_at(&n->step_pool, r->words);
    reservation *of_link = reservation_at(n, tr->train);
    for (uint32_t i = 0, steps = r->steps; i < steps; i++, of_link++)
        reservation_drop(n, step_link(n, step[i]), reservation_of(tr, i), of_link);
    step_pool_free(&n->step_pool, tr->train, tr->train_size);
    tr->in_train = false;
    if (KB_UNLIKELY(tr->part_of != NONE)) {
        train_give_part(n, t);
        return false;
    }
    if (tr->train_first > 0) {
        packets_end(n, t);
        return true;
    }
    tries_at(n, r->injection)->failures = 0;
    n->trains.whole++;
    return true;
}

/* ---- What is left of a message ----------------------------------------------------------- */

enum {
    MIN_COALESCED = 16, /* packets: fewer are not worth a try */
    MAX_GAP = 64,
};

void train_retry(const net *n, transfer *tr, uint32_t gap)
{
    bool is_worth = n->engine == &engine_parallel && tr->packets - tr->made > gap &&
                    tr->packets - tr->made - gap >= MIN_COALESCED;
    tr->retry_gap = gap;
    tr->retry_at = is_worth ? tr->made + gap : UINT32_MAX;
}

static bool put_off(const net *n, transfer *tr)
{
    train_retry(n, tr, tr->retry_gap < MAX_GAP ? 2 * tr->retry_gap : MAX_GAP);
    return false;
}

/* Reserves all links from when packet tr->train_first comes there, which is `from` on the first. */
static bool reserve_rest(net *n, const route *r, uint32_t t, kb_time from, kb_time to)
{
    transfer *tr = transfer_at(n, t);
    const uint32_t *step = step_pool_at(&n->step_pool, tr->own_route);
    uint32_t feeder = NOTHING, index = tr->train;
    uint32_t flags =
        RESERVATION_LISTED | RESERVATION_REMAINDER | (r->size_whole ? RESERVATION_WHOLE : 0);
    for (uint32_t i = 0; i < r->steps; i++, index += RESERVATION_WORDS) {
        uint32_t at = step_link(n, step[i]), c = step_channel(step[i]);
        kb_time latency = profile_of(n, at)->latency;
        bool is_final = i + 1u == r->steps;
        *reservation_at(n, index) = (reservation){
            .from = from,
            .to = to,
            .transfer = t,
            .feeder = feeder,
            .vc_class = (uint16_t)(class_of(n, c) - first_channel(n, at)),
            .vc = VC_OF_ROUTE,
            .flags = (uint8_t)(flags | (is_final ? RESERVATION_FINAL : 0u)),
        };
        if (!conflict_may_resume(n, step[i], is_final, from) || !reservation_add(n, at, index)) {
            withdraw(n, r, tr, i);
            return false;
        }
        n->links[at].bytes += train_bytes(n, tr);
        n->links[at].flags |= LINK_PORT_USED;
        from += latency;
        to += latency;
        feeder = at;
    }
    return true;
}

bool train_coalesce(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    route *r = route_of(n, tr);
    const channel *ch = &n->channels[r->injection];
    const link *l = &n->links[r->first_link];
    uint32_t first = tr->made;
    if (ch->first_transfer != ch->last_transfer || n->watch || n->is_unfolding ||
        l->last != tr->own_route || l->free_at <= n->now || l->free_at > FARTHEST)
        return false;
    if (!is_fit(n, r, tr) || r->first != r->slowest) {
        tr->retry_at = UINT32_MAX;
        return false;
    }
    tr->train = step_pool_alloc(&n->step_pool, r->steps * RESERVATION_WORDS, &tr->train_size);
    if (tr->train == NONE) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return false;
    }
    kb_time start = l->free_at - topo_rate_time(r->first->bytes_per_s,
                                                (uint64_t)first * n->options.fabric.packet_bytes);
    tr->train_first = first;
    if (!reserve_rest(n, r, t, l->free_at, start + r->drain))
        return put_off(n, tr);
    injection_drop(n, r->injection);
    tr->in_train = true;
    tr->start = start;
    tr->ends_at = start + r->drain + r->latency;
    tr->end = schedule_end(n, tr->ends_at, r->last_link, t);
    n->hops += (uint64_t)train_packets(tr) * r->steps;
    n->trains.coalesced++;
    return true;
}

/* ---- Messages that move as packets ------------------------------------------------------- */

void packets_begin(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    if (!net_need_own_route(n, t)) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return;
    }
    tr->on_links = true;
    *last_begun_at(n, route_of(n, tr)->injection) = t;
}

void packets_end(net *n, uint32_t t)
{
    uint32_t *last = last_begun_at(n, route_of(n, transfer_at(n, t))->injection);
    if (*last == t)
        *last = NONE;
}
