/*
 * engine.h: how packets move: the hot path of every simulation. It is compiled several times, each
 * time for other options, which are constants here: ENGINE_ELIDES (no events where nothing waits
 * for them), ENGINE_SERIAL (ports send one packet at a time), and ENGINE, the name of the result.
 * Elision with parallel ports is the common case, and the only one with packet trains. The engine
 * without elision is the reference.
 *
 * A packet waits in a channel, of the port where it arrived or of its source, until it is the first
 * there, its head has come, the link that it wants is free, and the channel behind that link has
 * room. Then it is *started*: the link is booked, space is taken behind it, and the space in front
 * of it is given back when the tail has left.
 *
 * What happens at one instant happens in the order of source ids: first what arrives over link 0 or
 * is given back behind it, then what link 0 grants, then the same for link 1, and so on; at last
 * what enters at sources.
 *
 * Most of it needs no event. Only the first packet of a channel needs one for its arrival; a link
 * needs one for becoming free only while somebody waits for it, and space one for being given back
 * only while somebody is blocked. Where there was no event, has_passed() says whether it would have
 * come before the one in hand, so the result is the same.
 */
#if !defined ENGINE || !defined ENGINE_ELIDES || !defined ENGINE_SERIAL
#error "engine.h is for engine_*.c alone"
#endif

#include "contact.h"
#include "flow.h"
#include "reservation.h"
#include "source.h"
#include "train.h"

enum { HAS_TRAINS = ENGINE_ELIDES && !ENGINE_SERIAL };

/* ---- Links ------------------------------------------------------------------------------- */

static inline bool is_free(const net *n, const link *l, uint32_t at)
{
    if (!ENGINE_ELIDES)
        return (l->flags & LINK_BUSY) == 0;
    return has_passed(n, l->free_at, grant_id(n, at));
}

/* The link looks at those that wait when it is free, or now if it is already. */
static inline void want_grant(net *n, link *l, uint32_t at)
{
    if (l->flags & LINK_GRANT_PENDING)
        return;
    l->flags |= LINK_GRANT_PENDING;
    kb_time when = l->free_at > n->now ? l->free_at : n->now;
    schedule(n, when, grant_id(n, at), n->on_grant, at);
}

/* ---- Space ------------------------------------------------------------------------------- */

/* Sees that link `at` looks again when this one gives back what it owes. */
static inline void await_owed(net *n, link *l, uint32_t at)
{
    if (l->flags & LINK_OWED_AWAITED)
        return;
    l->flags |= LINK_OWED_AWAITED;
    schedule_in(n, l->owed_at, grant_id(n, at), FIRST_SEQUENCE, n->on_space, at);
}

/* Space in channel `c` behind link `at` is short: asks all links that may owe it some. */
static __attribute__((noinline)) void collect(net *n, uint32_t at, uint32_t c)
{
    const topo_graph *g = n->graph;
    uint32_t node = g->links.items[at].to;
    for (uint32_t i = g->first_out[node]; i < g->first_out[node + 1]; i++) {
        link *l = &n->links[g->out[i]];
        if (l->owed_channel != c)
            continue;
        if (has_come(n, l->owed_at, arrival_id(n, at)))
            settle(n, l);
        else
            await_owed(n, l, at);
    }
}

/* Room is room for a whole packet: small ones must not slip in for ever before a large one. */
static inline bool has_room(net *n, const link *l, uint32_t at, uint32_t c)
{
    uint32_t most = n->profiles.items[l->profile].capacity - n->options.packet_bytes;
    if (KB_LIKELY(n->channels[c].used <= most))
        return true;
    collect(n, at, c);
    return n->channels[c].used <= most;
}

/* ---- Trains ------------------------------------------------------------------------------ */

static inline void hold(net *n, uint32_t at, kb_time until)
{
    if (n->held_until[at] < until)
        n->held_until[at] = until;
}

static __attribute__((noinline, cold)) void
meet_trains(net *n, uint32_t at, const packet *pk, const uint32_t *step, kb_time head, kb_time tail)
{
    contact_meet(n, &(visit){.at = step_link(step[0]),
                             .feeder = at,
                             .step = step[0],
                             .is_final = step[1] == END_OF_PATH,
                             .is_last = (pk->flags & PACKET_LAST) != 0,
                             .head = head,
                             .tail = tail});
}

/*
 * The packet has started on link `at` and comes to the next one, through channel `to`. It is still
 * the first where it comes from, so that trains that are unfolded behind it take their places.
 * Returns whether it is late.
 */
static inline bool approach(net *n, uint32_t at, uint32_t to, const packet *pk,
                            const uint32_t *step, kb_time head, kb_time tail)
{
    uint32_t next = step_link(step[0]);
    const link *l = &n->links[next];
    const profile *pr = &n->profiles.items[l->profile];
    kb_time end = kb_time_add(head, pr->clearance);
    hold(n, next, end > tail ? end : tail);
    if (KB_UNLIKELY(l->reserved != NONE))
        meet_trains(n, at, pk, step, head, tail);
    if (KB_UNLIKELY(pr->latency == 0))
        contact_feed_at_once(n, step);
    bool is_late = n->channels[to].first != NONE && first_packet(n, to)->head_at <= n->now;
    if (is_late)
        contact_delay(n, next);
    return is_late;
}

/*
 * The packet starts on the link later than it came there, or at its source, so that it was not
 * known when it would: it is in the way of trains for as long as it leaves the link and its port.
 */
static __attribute__((noinline)) void start_late(net *n, link *l, uint32_t at, uint32_t c,
                                                 const packet *pk, kb_time leaves)
{
    if (HAS_TRAINS) {
        kb_time end = kb_time_add(n->now, n->profiles.items[l->profile].clearance);
        hold(n, at, end > leaves ? end : leaves);
        if (!is_source(n, c))
            hold(n, link_of(n, c), leaves);
        if (KB_UNLIKELY(l->reserved != NONE))
            (void)reservation_first(n, at); /* trains that have passed were the last there */
        if (pk->flags & PACKET_LATE && n->late[at] < LATE_MAX)
            n->late[at]--;
    }
    /* The memory of a path may have been another's before: a first packet is always a new one. */
    if (n->now > pk->head_at && (l->last != pk->path || index_of(n, pk) == 0))
        add_waited(l, n->now - pk->head_at);
}

/* ---- Channels ---------------------------------------------------------------------------- */

/*
 * The first packet of a transfer that asks for a link chooses one of the channels of its class
 * behind it: one that no transfer is passing through, an empty one if it can, in rotation. It keeps
 * to it, and the others follow.
 */
static inline uint32_t choose_vc(net *n, link *l, uint32_t base)
{
    uint32_t vcs = n->options.vcs;
    uint32_t best = l->turn;
    for (uint32_t i = 0, vc = best; i < vcs; i++, vc = vc + 1 == vcs ? 0 : vc + 1) {
        if (n->channels[base + vc].taken)
            continue;
        if (n->channels[base + vc].first == NONE) {
            best = vc;
            break;
        }
        if (n->channels[base + best].taken)
            best = vc;
    }
    l->turn = (uint8_t)(best + 1 == vcs ? 0 : best + 1);
    l->flags |= LINK_PORT_USED;
    n->channels[base + best].taken = 1;
    return best;
}

/* The same on a link that is reserved: trains that have passed have had their turns, and others
 * must find theirs. */
static __attribute__((noinline, cold)) uint32_t
choose_vc_among_trains(net *n, link *l, uint32_t at, uint32_t c, const packet *pk, uint32_t base)
{
    (void)reservation_first(n, at);
    uint32_t vc = choose_vc(n, l, base);
    uint32_t step = pk->step & (STEP_MASK | REPLY_BIT);
    contact_choose(n, &(visit){.at = at,
                               .feeder = is_source(n, c) ? NOTHING : link_of(n, c),
                               .step = step | vc << VC_SHIFT,
                               .is_last = (pk->flags & PACKET_LAST) != 0});
    return vc;
}

static __attribute__((noinline)) uint32_t take_vc(net *n, link *l, uint32_t at, uint32_t c,
                                                  const packet *pk, uint32_t base)
{
    uint32_t vc = KB_UNLIKELY(l->reserved != NONE) ? choose_vc_among_trains(n, l, at, c, pk, base)
                                                   : choose_vc(n, l, base);
    uint32_t *step = paths_at(&n->paths, pk->path);
    *step = (*step & (STEP_MASK | REPLY_BIT)) | vc << VC_SHIFT;
    return vc;
}

/* The channel that the first packet of channel `c` takes behind the link; NOTHING if it has arrived
 * there. */
static inline uint32_t channel_behind(net *n, link *l, uint32_t at, uint32_t c, const packet *pk)
{
    const uint32_t *step = paths_at(&n->paths, pk->path);
    if (step[1] == END_OF_PATH)
        return NOTHING;
    uint32_t base = first_channel(n, at) + step_class(*step) * n->options.vcs;
    uint32_t vc = *step >> VC_SHIFT;
    if (KB_UNLIKELY(vc == VC_OPEN))
        vc = take_vc(n, l, at, c, pk, base);
    return base + vc;
}

/* Whether the first packet of channel `c` may take space in channel *to behind the link. */
static inline bool can_enter(net *n, link *l, uint32_t at, uint32_t c, const packet *pk,
                             uint32_t *to)
{
    *to = channel_behind(n, l, at, c, pk);
    return *to == NOTHING || has_room(n, l, at, *to);
}

static inline void block(net *n, link *l, uint32_t at, uint32_t c, uint32_t to)
{
    if (HAS_TRAINS)
        contact_wait(n, at, c);
    n->channels[to].awaited = 1;
    ring_append(n, &l->blocked, c);
}

/* ---- Starting ---------------------------------------------------------------------------- */

/* A packet leaves a serial port at the rate at which packets come in. */
static __attribute__((noinline)) void occupy_port(net *n, uint32_t feeder, uint32_t at,
                                                  const packet *pk)
{
    port *from = &n->ports[feeder];
    const profile *pr = &n->profiles.items[n->links[feeder].profile];
    from->free_at = kb_time_add(n->now, occupancy(n, &pr->pace, pk, bytes_of(n, pk)));
    /* A link that is not faster never waits for the port, though rounding may say so by 1 fs. */
    const link *l = &n->links[at];
    if (n->profiles.items[l->profile].pace.bytes_per_s <= pr->pace.bytes_per_s &&
        l->free_at < from->free_at)
        from->free_at = l->free_at;
    n->ports[at].last_feeder = feeder;
}

/* The packet leaves its source: the next one is made. */
static inline void leave_source(net *n, uint32_t at, uint32_t c)
{
    if (ENGINE_SERIAL)
        n->ports[at].last_feeder = NOTHING; /* ports have a turn too */
    source_next(n, c);
}

/* The packet leaves its port: its space is given back when its tail has left, at `leaves`. */
static inline void leave_port(net *n, link *l, uint32_t at, uint32_t c, const packet *pk,
                              uint32_t bytes, kb_time leaves)
{
    channel *ch = &n->channels[c];
    ch->first = ch->first == ch->last ? NONE : pk->next;
    if (ENGINE_SERIAL)
        occupy_port(n, link_of(n, c), at, pk);
    if (!ENGINE_ELIDES) {
        schedule_credit(n, leaves, link_of(n, c), c, bytes);
        return;
    }
    l->owed_at = leaves;
    l->owed_channel = c;
    l->owed_bytes = bytes;
    if (KB_UNLIKELY(ch->awaited)) {
        uint32_t feeder = link_of(n, c);
        if (n->links[feeder].blocked == NOTHING)
            ch->awaited = 0; /* nobody waits any more */
        else
            await_owed(n, l, feeder);
    }
}

/* The packet is on its way to the port behind the link. */
static inline void enter_port(net *n, uint32_t at, uint32_t c, uint32_t p, packet *pk,
                              uint32_t bytes)
{
    channel *ch = &n->channels[c];
    ch->used += bytes & SPACE_MASK;
    if (ch->first == NONE) {
        ch->first = p;
        ch->last = p;
    } else {
        packet_at(n, ch->last)->next = p;
        ch->last = p;
        if (ENGINE_ELIDES)
            return;
    }
    schedule(n, pk->head_at, arrival_id(n, at), n->on_arrival, (uint64_t)c << 32 | p);
}

/* The packet is on its last link: nothing holds it up any more. */
static inline void deliver(net *n, uint32_t at, uint32_t p, const uint32_t *step, kb_time tail_at)
{
    uint32_t t = step[2];
    transfer *tr = transfer_at(n, t);
    kb_pool_give(&n->packets, p);
    if (tail_at > tr->ends_at)
        tr->ends_at = tail_at;
    if (++tr->delivered == tr->packets)
        (void)schedule_end(n, tr->ends_at, at, t);
}

static __attribute__((noinline)) void report(const net *n, uint32_t at, uint32_t c,
                                             const packet *pk, kb_time leaves)
{
    const transfer *tr = owner_of(n, pk);
    net_booking booking = {
        .arg = tr->arg,
        .packet = index_of(n, pk),
        .bytes = bytes_of(n, pk),
        .link = at,
        .channel = c == NOTHING ? c : at * n->channels_per_link + (c - first_channel(n, at)),
        .back = tr->returning,
        .ready_at = pk->head_at,
        .start = n->now,
        .free_at = n->links[at].free_at,
        .tail_leaves = leaves};
    n->watch(n->watcher, &booking);
}

/* Books link `at` for packet `p`, the first of channel `from`, which goes to channel `to`. */
static void start(net *n, link *l, uint32_t at, uint32_t from, uint32_t p, uint32_t to)
{
    packet *pk = packet_at(n, p);
    const profile *pr = &n->profiles.items[l->profile];
    uint32_t bytes = bytes_of(n, pk);
    kb_time free_at = kb_time_add(n->now, occupancy(n, &pr->pace, pk, bytes));
    kb_time leaves = free_at > pk->tail_at ? free_at : pk->tail_at;

    if (n->now > pk->head_at || is_source(n, from) || (HAS_TRAINS && pk->flags & PACKET_LATE))
        start_late(n, l, at, from, pk, leaves);
    l->last = pk->path;
    l->free_at = free_at;
    l->bytes += bytes;
    n->hops++;
    if (KB_UNLIKELY(n->watch != NULL))
        report(n, at, to, pk, leaves);
    if (!ENGINE_ELIDES) {
        l->flags |= LINK_BUSY;
        want_grant(n, l, at);
    }

    const uint32_t *step = paths_at(&n->paths, pk->path);
    kb_time head_at = kb_time_add(n->now, pr->latency), tail_at = kb_time_add(leaves, pr->latency);
    bool is_late =
        HAS_TRAINS && to != NOTHING && approach(n, at, to, pk, step + 1, head_at, tail_at);

    if (l->owed_channel != NOTHING)
        settle(n, l);
    if (KB_LIKELY(!is_source(n, from)))
        leave_port(n, l, at, from, pk, bytes, leaves);

    if (to == NOTHING) {
        deliver(n, at, p, step, tail_at);
    } else {
        if (pk->flags & PACKET_LAST)
            n->channels[to].taken = 0;
        pk->head_at = head_at;
        pk->tail_at = tail_at;
        pk->path++;
        pk->step = step[1];
        pk->flags = (pk->flags & PACKET_LAST) | (is_late ? PACKET_LATE : 0u);
        enter_port(n, at, to, p, pk, bytes);
    }
    if (KB_UNLIKELY(is_source(n, from)))
        leave_source(n, at, from);
}

/* ---- Waiting ----------------------------------------------------------------------------- */

/*
 * Has the head of the channel's first packet come? If not, an event will tell. At a source there is
 * no packet before its transfer has come.
 */
static inline bool head_is_there(net *n, uint32_t c, uint32_t p, const packet *pk)
{
    if (KB_UNLIKELY(is_source(n, c)))
        return true;
    if (!ENGINE_ELIDES)
        return (pk->flags & PACKET_ARRIVED) != 0;
    uint32_t feeder = link_of(n, c);
    if (has_passed(n, pk->head_at, arrival_id(n, feeder)))
        return true;
    schedule(n, pk->head_at, arrival_id(n, feeder), n->on_arrival, (uint64_t)c << 32 | p);
    return false;
}

/* What leaves a serial port is decided when everything has come that comes at the same time. */
static inline bool waits_for_port(const net *n, uint32_t c)
{
    return ENGINE_SERIAL && !is_source(n, c);
}

/*
 * Packet `p`, the first of channel `c`, is there: it starts, and the next ones while they can, or
 * the channel waits.
 */
static inline void offer(net *n, uint32_t c, uint32_t p)
{
    packet *pk = packet_at(n, p);
    for (;;) {
        uint32_t at = step_link(pk->step), to;
        link *l = &n->links[at];
        if (!is_free(n, l, at) || l->ready != NOTHING || waits_for_port(n, c)) {
            if (HAS_TRAINS)
                contact_wait(n, at, c);
            ring_append(n, &l->ready, c);
            want_grant(n, l, at);
            return;
        }
        if (!can_enter(n, l, at, c, pk, &to)) {
            block(n, l, at, c, to);
            return;
        }
        start(n, l, at, c, p, to);
        p = n->channels[c].first;
        if (p == NONE)
            return;
        pk = packet_at(n, p);
        if (!head_is_there(n, c, p, pk))
            return;
    }
}

static void offer_from_outside(net *n, uint32_t c, uint32_t p)
{
    offer(n, c, p);
}

/* ---- Granting ---------------------------------------------------------------------------- */

/* Those that have room now are ready again. */
static __attribute__((noinline)) void unblock(net *n, link *l, uint32_t at)
{
    uint32_t stay = NOTHING, to;
    while (l->blocked != NOTHING) {
        uint32_t c = ring_take(n, &l->blocked);
        bool room = can_enter(n, l, at, c, first_packet(n, c), &to);
        ring_append(n, room ? &l->ready : &stay, c);
    }
    l->blocked = stay;
    l->flags &= (uint8_t)~LINK_SPACE;
}

/* Takes the next one of those that are ready, in rotation, and blocks those without room. */
static inline uint32_t take_ready(net *n, link *l, uint32_t at, uint32_t *to)
{
    while (l->ready != NOTHING) {
        uint32_t c = ring_take(n, &l->ready);
        if (can_enter(n, l, at, c, first_packet(n, c), to))
            return c;
        block(n, l, at, c, *to);
    }
    return NOTHING;
}

/*
 * The same with serial ports, as a router's allocator does it in one pass: each link that is free
 * chooses one candidate, of another port than the last time if it can; then each port accepts one
 * of the links that have chosen it (on_accept).
 */
static __attribute__((noinline)) uint32_t take_serial(net *n, link *l, uint32_t at, uint32_t *to)
{
    uint32_t best = NOTHING, best_feeder = NOTHING, looked_at = NOTHING;
    uint32_t turn = n->ports[at].last_feeder;
    kb_time retry_at = KB_FOREVER;
    while (l->ready != NOTHING) {
        uint32_t c = ring_take(n, &l->ready), c_to;
        if (!can_enter(n, l, at, c, first_packet(n, c), &c_to)) {
            block(n, l, at, c, c_to);
            continue;
        }
        ring_append(n, &looked_at, c);
        uint32_t feeder = is_source(n, c) ? NOTHING : link_of(n, c);
        if (feeder != NOTHING && n->ports[feeder].free_at > n->now) { /* reads the one before */
            kb_time free_at = n->ports[feeder].free_at;
            retry_at = free_at < retry_at ? free_at : retry_at;
        } else if (best == NOTHING || (best_feeder == turn && feeder != turn)) {
            best = c;
            best_feeder = feeder;
            *to = c_to;
        }
    }
    l->ready = looked_at;
    if (best == NOTHING && retry_at < KB_FOREVER)
        l->free_at = retry_at;
    if (best == NOTHING)
        return NOTHING;
    if (best_feeder != NOTHING) {
        port *from = &n->ports[best_feeder];
        if (from->bids == NOTHING)
            schedule(n, n->now, accept_id(n, best_feeder), n->on_accept, best_feeder);
        n->ports[at].next_bid = from->bids;
        n->ports[at].chosen = best;
        from->bids = at;
        l->flags |= LINK_GRANT_PENDING; /* until the port has decided */
        return NOTHING;
    }
    ring_remove(n, &l->ready, best);
    return best;
}

/* The link is free: it starts one of those that wait. */
static inline void grant(net *n, link *l, uint32_t at)
{
    uint32_t to = NOTHING;
    if (KB_UNLIKELY(l->flags & LINK_SPACE))
        unblock(n, l, at);
    uint32_t c = ENGINE_SERIAL ? take_serial(n, l, at, &to) : take_ready(n, l, at, &to);
    if (c != NOTHING) {
        start(n, l, at, c, n->channels[c].first, to);
        uint32_t p = n->channels[c].first;
        if (p != NONE && head_is_there(n, c, p, packet_at(n, p)))
            offer(n, c, p);
    }
    if (l->ready != NOTHING)
        want_grant(n, l, at);
}

/* ---- Fetching ahead ---------------------------------------------------------------------- */

/*
 * In a large machine each event finds its packet, channel and link in memory that has not been
 * looked at for long. So what a later event begins with is fetched, and what the next one goes on
 * to.
 */
static inline void fetch_ahead(const net *n)
{
    if (KB_LIKELY(!n->is_large))
        return;
    kb_outlook ahead = kb_sim_look_ahead(n->sim);
    if (ahead.later.handler == n->on_arrival) {
        __builtin_prefetch(packet_at(n, (uint32_t)ahead.later.arg));
        __builtin_prefetch(&n->channels[ahead.later.arg >> 32]);
    } else if (ahead.later.handler == n->on_grant) {
        __builtin_prefetch(&n->links[ahead.later.arg]);
    }
    if (ahead.next.handler == n->on_arrival) {
        const packet *pk = packet_at(n, (uint32_t)ahead.next.arg);
        uint32_t at = step_link(pk->step);
        __builtin_prefetch(&n->links[at]);
        __builtin_prefetch(&n->channels[first_channel(n, at)]);
        __builtin_prefetch(paths_at(&n->paths, pk->path));
    } else if (ahead.next.handler == n->on_grant) {
        const link *l = &n->links[ahead.next.arg];
        __builtin_prefetch(&n->channels[first_channel(n, (uint32_t)ahead.next.arg)]);
        if (l->ready != NOTHING)
            __builtin_prefetch(&n->channels[l->ready]);
    }
}

/* ---- Events ------------------------------------------------------------------------------ */

/* The head of the first packet of a channel has come. */
static void on_arrival(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    uint32_t c = (uint32_t)(arg >> 32), p = (uint32_t)arg;
    fetch_ahead(n);
    begin(n, arrival_id(n, link_of(n, c)));
    if (!ENGINE_ELIDES) {
        /* Every packet has an event for its arrival; only the first one acts on it. */
        packet_at(n, p)->flags |= PACKET_ARRIVED;
        if (p != n->channels[c].first)
            return;
    }
    offer(n, c, p);
}

/* The link has become free. */
static void on_grant(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    uint32_t at = (uint32_t)arg;
    link *l = &n->links[at];
    fetch_ahead(n);
    begin(n, grant_id(n, at));
    l->flags &= (uint8_t)~LINK_GRANT_PENDING;
    if (KB_UNLIKELY(l->free_at > n->now)) { /* it was started since */
        if (l->ready != NOTHING || l->flags & LINK_SPACE || !ENGINE_ELIDES)
            want_grant(n, l, at);
        return;
    }
    l->flags &= (uint8_t)~LINK_BUSY;
    grant(n, l, at);
}

/* Space was given back behind the link, which somebody waits for. */
static void on_space(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    uint32_t at = (uint32_t)arg;
    link *l = &n->links[at];
    if (l->blocked == NOTHING)
        return;
    l->flags |= LINK_SPACE;
    if (l->flags & LINK_GRANT_PENDING)
        return;
    begin(n, grant_id(n, at));
    if (l->free_at > n->now)
        want_grant(n, l, at);
    else
        grant(n, l, at);
}

/* A tail has left its port. */
static void on_credit(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    uint32_t c = (uint32_t)(arg >> 32);
    uint32_t at = link_of(n, c);
    link *l = &n->links[at];
    begin(n, arrival_id(n, at));
    n->channels[c].used -= (uint32_t)arg & SPACE_MASK;
    if (l->blocked == NOTHING)
        return;
    l->flags |= LINK_SPACE;
    want_grant(n, l, at);
}

/*
 * A transfer is ready at its source. Its place there it has had since it was submitted; but at a
 * memory, which takes requests in the order in which they come, it has one from now on.
 */
static void inject(net *n, uint32_t c, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    tr->arrived = true;
    if (route_of(n, tr)->from_memory)
        source_append(n, t);
    if (n->channels[c].first_transfer != t)
        return;
    source_prepare(n, c);
    uint32_t p = n->channels[c].first;
    if (p != NONE)
        offer(n, c, p);
}

static void on_inject(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    uint32_t c = (uint32_t)(arg >> 32);
    begin(n, inject_id(n, c));
    inject(n, c, (uint32_t)arg);
}

static void begin_message(net *n, uint32_t t, bool in_end)
{
    const transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    uint32_t id = inject_id(n, r->source);
    if (!r->from_memory)
        source_append(n, t);
    kb_source source = kb_source_make(id);
    source.next_key += SECOND_SEQUENCE + n->arrivals++;
    if (in_end && ENGINE_ELIDES && kb_sim_advance(n->sim, &source, tr->ready_at)) {
        begin(n, id);
        inject(n, r->source, t);
        return;
    }
    (void)kb_sim_at(n->sim, &source, tr->ready_at, n->on_inject, (uint64_t)r->source << 32 | t);
}

/* The one to be served after `last`, in rotation. */
static uint32_t next_bidder(const net *n, uint32_t bids, uint32_t last)
{
    uint32_t best = bids;
    for (uint32_t at = bids; at != NOTHING; at = n->ports[at].next_bid)
        if (at - last - 1 < best - last - 1) /* around 2^32 */
            best = at;
    return best;
}

/* Links have chosen the port. One gets it; the others go away with nothing for a packet's time. */
static void on_accept(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    port *from = &n->ports[arg];
    begin(n, accept_id(n, (uint32_t)arg));
    uint32_t winner = next_bidder(n, from->bids, from->last_taker), next;
    from->last_taker = winner;
    for (uint32_t at = from->bids; at != NOTHING; at = next) {
        link *l = &n->links[at];
        uint32_t c = n->ports[at].chosen, p = n->channels[c].first, to;
        packet *pk = packet_at(n, p);
        next = n->ports[at].next_bid;
        l->flags &= (uint8_t)~LINK_GRANT_PENDING;
        if (at != winner) {
            l->free_at = kb_time_add(
                n->now, occupancy(n, &n->profiles.items[l->profile].pace, pk, bytes_of(n, pk)));
        } else if (can_enter(n, l, at, c, pk, &to)) { /* as it could when it was chosen */
            ring_remove(n, &l->ready, c);
            start(n, l, at, c, p, to);
            p = n->channels[c].first;
            if (p != NONE && head_is_there(n, c, p, packet_at(n, p)))
                offer(n, c, p);
        }
        if (l->ready != NOTHING || l->flags & LINK_SPACE)
            want_grant(n, l, at);
    }
    from->bids = NOTHING;
}

static void on_end(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    net *n = self;
    uint32_t t = (uint32_t)arg;
    begin(n, arrival_id(n, (uint32_t)(arg >> 32)));
    if (transfer_at(n, t)->in_train)
        train_end(n, t);
    else
        packets_end(n, t);
    net_end_leg(n, t);
}

const packet_engine ENGINE = {
    .begin_message = begin_message,
    .offer = offer_from_outside,
    .on_arrival = on_arrival,
    .on_grant = on_grant,
    .on_space = on_space,
    .on_credit = on_credit,
    .on_inject = on_inject,
    .on_accept = on_accept,
    .on_end = on_end,
};
