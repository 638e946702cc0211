/*
 * unfold.c: a train becomes packets again: each is put where it is by now.
 *
 * Where packets are follows from the rules of flow.c for a leg that is alone. A packet starts on a
 * link when its head has come, the one before it has had its time there, and the one that is so far
 * ahead as the channel behind holds packets has left that channel. These times are found packet by
 * packet, link by link, and what has started up to now has happened: links, channels, sources and
 * figures are left as they would be if there had been packets all the time.
 *
 * Legs of a train wait for nobody but on the first link, so each is looked at on its own.
 */
#include "flow.h"
#include "source.h"
#include "train.h"

__extension__ typedef unsigned __int128 wide;

/* A link of the way, and what the packet in hand does there. */
struct stage {
    kb_time start, free_at, leaves;
    kb_time latency;
    const topo_pace *pace;
    uint64_t slack;      /* by how much, in parts of a rate, the time so far is rounded up */
    kb_time *departures; /* of the last packets from behind the link, as many as fit there */
    uint32_t window;     /* how many these are; 0 if the leg has not more */
    uint32_t cursor;     /* the oldest one */
    uint32_t at;         /* the link */
    uint32_t channel;    /* behind it; NOTHING if no packet of the leg has started there */
    bool waits;          /* the first packet in that channel, for the next link */
};

enum { MOST_DEPARTURES = 1 << 16 };

/* How many packets fit into the channel behind a link, if that limits the leg. */
static uint32_t window_of(const net *n, const route *r, const transfer *tr, uint32_t at)
{
    uint32_t fit = n->profiles.items[n->links[at].profile].capacity / n->options.packet_bytes;
    return r->first == r->slowest || fit >= tr->packets ? 0 : fit;
}

bool train_reserve(net *n, const route *r, const transfer *tr)
{
    const uint32_t *path = paths_at(&n->paths, r->words);
    uint64_t departures = 0;
    if (r->first != r->slowest)
        for (uint32_t i = 0; i + 1 < r->steps; i++)
            departures += window_of(n, r, tr, step_link(path[i]));
    if (departures > MOST_DEPARTURES)
        return false;
    if (kb_vec_reserve(&n->stages, r->steps) && kb_vec_reserve(&n->departures, departures))
        return true;
    /* Packets would take the same time, but another number of events. */
    kb_sim_fail(n->sim, kb_error_nomem());
    return false;
}

/* ---- When packets start ------------------------------------------------------------------ */

/*
 * Packets of the leg that have gone for good, if those that are left can be looked at without them:
 * if nobody waits behind the first link.
 */
static uint32_t count_gone(const route *r, const transfer *tr, kb_time now)
{
    kb_time since = now - tr->start - r->latency;
    if (since <= 0 || r->first != r->slowest)
        return 0;
    wide gone = (wide)(uint64_t)since * r->first->bytes_per_s /
                ((wide)r->first->packet_bytes * (uint64_t)KB_S);
    return gone < tr->packets ? (uint32_t)gone : tr->packets - 1;
}

/* Makes ready for packet `first` of the leg and those after it. */
static void begin_walk(const net *n, const route *r, const transfer *tr, uint32_t first)
{
    const uint32_t *path = paths_at(&n->paths, r->words);
    kb_time *departures = n->departures.items;
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(path[i]);
        const profile *pr = &n->profiles.items[n->links[at].profile];
        const topo_pace *pace = &pr->pace;
        uint64_t over = (uint64_t)((wide)first * pace->remainder % pace->bytes_per_s);
        stage *st = &n->stages.items[i];
        *st = (stage){.free_at = -1,
                      .latency = pr->latency,
                      .pace = pace,
                      .slack = over > 0 ? pace->bytes_per_s - over : 0,
                      .departures = departures,
                      .window = i + 1 < r->steps ? window_of(n, r, tr, at) : 0,
                      .at = at,
                      .channel = NOTHING};
        for (uint32_t k = 0; k < st->window; k++)
            *departures++ = -1;
    }
    n->stages.items[0].free_at =
        tr->start +
        topo_rate_time(r->first->bytes_per_s, (uint64_t)first * n->options.packet_bytes);
}

/* topo_pace_time(), for one packet after the other. */
static inline kb_time stage_time(stage *st, uint32_t index, uint32_t bytes)
{
    const topo_pace *pace = st->pace;
    if (bytes != pace->packet_bytes)
        return topo_pace_time(pace, index, bytes);
    bool more = st->slack < pace->remainder;
    st->slack += (more ? pace->bytes_per_s : 0) - pace->remainder;
    return (kb_time)pace->quotient + more;
}

static uint32_t bytes_at(const net *n, const transfer *tr, uint32_t index)
{
    uint64_t left = tr->bytes - (uint64_t)index * n->options.packet_bytes;
    return left < n->options.packet_bytes ? (uint32_t)left : n->options.packet_bytes;
}

/* Follows a packet along the way. */
static void walk(const net *n, uint32_t steps, uint32_t index, uint32_t bytes)
{
    kb_time head = -1, tail = -1;
    for (stage *st = n->stages.items, *end = st + steps; st < end; st++) {
        kb_time start = head > st->free_at ? head : st->free_at;
        if (st->window > 0 && st->departures[st->cursor] > start)
            start = st->departures[st->cursor];
        st->start = start;
        st->free_at = kb_time_add(start, stage_time(st, index, bytes));
        st->leaves = st->free_at > tail ? st->free_at : tail;
        head = kb_time_add(start, st->latency);
        tail = kb_time_add(st->leaves, st->latency);
        if (st > n->stages.items && st[-1].window > 0) {
            st[-1].departures[st[-1].cursor] = st->leaves;
            st[-1].cursor = st[-1].cursor + 1 == st[-1].window ? 0 : st[-1].cursor + 1;
        }
    }
}

/* ---- Where packets are ------------------------------------------------------------------- */

/* The channel of the leg behind a link: each leg of a train takes the next one. */
static uint32_t take_channel(net *n, uint32_t *step, uint32_t at)
{
    uint32_t base = at * n->channels_per_link + step_class(*step) * n->options.vcs;
    uint32_t vc = *step >> VC_SHIFT;
    if (vc == VC_OPEN) {
        link *l = &n->links[at];
        vc = l->turn;
        l->turn = (uint8_t)(vc + 1 == n->options.vcs ? 0 : vc + 1);
        *step = (*step & (STEP_MASK | REPLY_BIT)) | vc << VC_SHIFT;
    }
    return base + vc;
}

/* The packet has started on link `i` of the way: what start() does to what stays behind. */
static void pass(net *n, const route *r, const transfer *tr, uint32_t i, uint32_t bytes, bool last)
{
    stage *st = &n->stages.items[i];
    link *l = &n->links[st->at];
    if (l->owed_channel != NOTHING)
        settle(n, l);
    l->free_at = st->free_at;
    l->last = tr->path + i;
    l->bytes += bytes;
    n->hops++;
    if (i > 0) {
        l->owed_at = st->leaves;
        l->owed_channel = st[-1].channel;
        l->owed_bytes = bytes;
    }
    if (i + 1 == r->steps)
        return;
    if (st->channel == NOTHING)
        st->channel = take_channel(n, paths_at(&n->paths, tr->path + i), st->at);
    channel *ch = &n->channels[st->channel];
    ch->used += bytes & SPACE_MASK;
    if (n->options.vcs > 1)
        ch->taken = !last;
}

/* The packet is in the port behind link `i` of the way, or comes there. */
static void put_in_port(net *n, const transfer *tr, uint32_t i, uint32_t index, uint32_t bytes,
                        bool last)
{
    stage *st = &n->stages.items[i];
    channel *ch = &n->channels[st->channel];
    uint32_t p = kb_pool_take(&n->packets);
    if (p == NONE) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return;
    }
    packet *pk = packet_at(n, p);
    pk->head_at = st->start + st->latency;
    pk->tail_at = st->leaves + st->latency;
    pk->path = tr->path + i + 1;
    pk->step = *paths_at(&n->paths, pk->path);
    pk->number = (last ? bytes : index) & (MAX_PACKETS - 1);
    pk->flags = last ? PACKET_LAST : 0u;
    if (ch->first != NONE) {
        packet_at(n, ch->last)->next = p;
    } else {
        ch->first = p;
        st->waits = pk->head_at <= n->now;
        if (!st->waits)
            schedule(n, pk->head_at, arrival_id(n, st->at), n->on_arrival,
                     (uint64_t)st->channel << 32 | p);
    }
    ch->last = p;
}

/*
 * Packets of the leg are the first in ports of the way: they wait there. (Others have events for
 * their arrival.) In each port only one leg has such packets: the next one comes when they are
 * gone.
 */
static void wait_in_ports(net *n, uint32_t steps)
{
    for (uint32_t i = 0; i + 1 < steps; i++) {
        const stage *st = &n->stages.items[i];
        if (st->waits)
            flow_offer(n, st->channel, n->channels[st->channel].first);
    }
}

/* Puts the packets of a leg where they are that have left the source. */
static void put_packets(net *n, const route *r, transfer *tr)
{
    for (; tr->made < tr->packets; tr->made++) {
        bool last = tr->made + 1 == tr->packets;
        uint32_t bytes = bytes_at(n, tr, tr->made), i = 0;
        walk(n, r->steps, tr->made, bytes);
        if (n->stages.items[0].start > n->now)
            return;
        for (; i < r->steps && n->stages.items[i].start <= n->now; i++)
            pass(n, r, tr, i, bytes, last);
        const stage *st = &n->stages.items[i - 1];
        if (i < r->steps) {
            put_in_port(n, tr, i - 1, tr->made, bytes, last);
        } else {
            tr->delivered++;
            tr->ends_at = st->leaves + st->latency;
        }
    }
}

/* Makes packets of a leg; its end is not certain any more, unless all are on their last link. */
static void unfold(net *n, const route *r, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    kb_time end = tr->ends_at;
    tr->in_train = false;
    tr->made = tr->delivered = 0;
    tr->ends_at = tr->ready_at;
    if (tr->start <= n->now) {
        if (!net_need_path(n, t)) {
            kb_sim_fail(n->sim, kb_error_nomem());
            return;
        }
        tr->made = tr->delivered = count_gone(r, tr, n->now);
        begin_walk(n, r, tr, tr->made);
        add_waited(&n->links[n->stages.items[0].at], tr->start - tr->ready_at);
        for (uint32_t i = 0; i < r->steps; i++)
            n->links[n->stages.items[i].at].bytes += (uint64_t)tr->made * n->options.packet_bytes;
        n->hops += (uint64_t)tr->made * r->steps;
        put_packets(n, r, tr);
        wait_in_ports(n, r->steps);
    }
    if (tr->delivered < tr->packets)
        (void)kb_sim_cancel(n->sim, tr->end);
    else
        KB_ASSERT(tr->ends_at == end);
}

/* ---- Going on ---------------------------------------------------------------------------- */

/* The legs from this one on have packets left at their source. */
static void put_back(net *n, uint32_t t, uint32_t last_leg, uint32_t own)
{
    transfer *tr = transfer_at(n, t);
    uint32_t source = route_of(n, tr)->source;
    tr->last_behind = last_leg;
    source_push(n, t);
    source_make_packet(n, source);
    uint32_t p = n->channels[source].first;
    if (p != NONE && source != own)
        flow_offer(n, source, p);
}

void train_dissolve(net *n, uint32_t index, uint32_t own)
{
    route *r = route_at(n, index);
    if (r->first_leg == NONE) {
        train_retire(n, index);
        return;
    }
    kb_time now = n->now;
    uint32_t current = n->current, left = NONE;
    n->now = kb_sim_now(n->sim);
    n->current = UINT32_MAX; /* all that links do at this instant has been done */

    train_release(n, r);
    uint32_t t = r->first_leg;
    for (r->first_leg = NONE; t != NONE; t = transfer_at(n, t)->behind) {
        unfold(n, r, t);
        if (left != NONE)
            continue; /* it stands behind another one at the source */
        if (claims_enter(n, t) && transfer_at(n, t)->made < transfer_at(n, t)->packets)
            left = t;
    }
    if (left != NONE)
        put_back(n, left, r->last_leg, own);
    n->now = now;
    n->current = current;
}

/* ---- Looking ----------------------------------------------------------------------------- */

/* What the leg has done on the link, `place` in its way, by now. */
static train_figures look_at_leg(const net *n, const route *r, const transfer *tr, uint32_t place)
{
    kb_time now = kb_sim_now(n->sim);
    if (tr->start > now)
        return (train_figures){0};
    uint32_t packets = count_gone(r, tr, now);
    begin_walk(n, r, tr, packets);
    for (; packets < tr->packets; packets++) {
        walk(n, r->steps, packets, bytes_at(n, tr, packets));
        if (n->stages.items[place].start > now)
            break;
    }
    bool all = packets == tr->packets;
    return (train_figures){
        .packets = packets,
        .bytes = all ? tr->bytes : (uint64_t)packets * n->options.packet_bytes,
        .waited = place == 0 ? tr->start - tr->ready_at : 0,
    };
}

train_figures train_look(const net *n, uint32_t index, uint32_t at)
{
    const route *r = route_at(n, index);
    const uint32_t *path = paths_at(&n->paths, r->words);
    uint32_t place = 0;
    while (step_link(path[place]) != at)
        place++;
    train_figures all = {.bytes = r->ended_bytes, .waited = place == 0 ? r->ended_waited : 0};
    for (uint32_t t = r->first_leg; t != NONE; t = transfer_at(n, t)->behind) {
        train_figures leg = look_at_leg(n, r, transfer_at(n, t), place);
        all.packets += leg.packets;
        all.bytes += leg.bytes;
        all.waited += leg.waited;
    }
    return all;
}

void train_dissolve_all(net *n)
{
    for (uint32_t at = 0; at < n->graph->links.count; at++)
        if (n->claims[at] & CLAIM_TRAIN)
            train_dissolve(n, n->train_on[at], NOTHING);
}
