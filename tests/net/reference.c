/*
 * reference.c: a slow transport. See reference.h.
 *
 * There are things that wait: packets in the channels of ports, and packets in sources, which are
 * channels without a limit. And there are six kinds of events:
 *
 *     HEAD    the head of a packet has come to the front of the port behind a link
 *     CREDIT  a tail has left such a port, so there is space in its channel again
 *     END     the last byte of a transfer has come over its last link
 *     GRANT   a link is free, or there is space behind it
 *     INJECT  a transfer is ready at its source
 *     SUBMIT  a transfer is submitted
 *
 * They happen in the order of (time, place, order of being planned); the places are, for each link,
 * first what happens at its end and then what it grants; then the sources. Submissions come before
 * or after all of these.
 */
#include "net/reference.h"

__extension__ typedef unsigned __int128 wide;

enum { MAX_EVENTS = 40000, MAX_PACKETS = 8000, MAX_CHANNELS = 1000, MAX_LINKS = 64 };
enum { MAX_WAITING = 256 };

typedef enum kind { HEAD, CREDIT, END, GRANT, INJECT, SUBMIT } kind;

typedef struct event {
    int64_t time;
    int64_t place;
    kind kind;
    uint32_t subject; /* packet, channel, order, link */
    uint32_t bytes;   /* of a credit */
} event;

typedef struct queue {
    uint32_t items[MAX_WAITING];
    uint32_t count;
} queue;

/* A packet of the message that its order is in. */
typedef struct piece {
    uint32_t order;
    bool back;
    uint32_t number, bytes;
    uint64_t offset;
    uint32_t hop; /* the link that it is to pass next, in its way */
    int64_t head, tail;
    bool head_is_there;
} piece;

typedef struct basin { /* a channel, or a source */
    uint32_t pieces[MAX_PACKETS / 8];
    uint32_t count;
    uint32_t used;
    bool taken; /* a transfer has begun to pass, and none has ended since */
} basin;

typedef struct track {
    bool busy;
    int64_t free_at;
    bool grant_planned;
    queue ready, blocked; /* of basins */
    uint32_t turn;
    uint32_t last_order;
    bool last_back, used_before;
} track;

typedef struct trip {
    int64_t issued, ends_at;
    bool returning;
    uint32_t pieces, delivered;
    uint32_t vc[2][MAX_STEPS]; /* chosen channels, of both messages */
    bool chosen[2][MAX_STEPS];
} trip;

typedef struct world {
    const scenario *s;
    outcome *o;
    int64_t now;
    event events[MAX_EVENTS];
    uint32_t event_count;
    piece pieces[MAX_PACKETS];
    uint32_t piece_count;
    basin basins[MAX_CHANNELS]; /* of links, then two a link for sources */
    track tracks[MAX_LINKS];
    trip *trips;
    uint32_t links, per_link, vcs;
} world;

/* ---- Events ------------------------------------------------------------------------------ */

static void plan(world *w, int64_t time, int64_t place, kind what, uint32_t subject, uint32_t bytes)
{
    assert_true(w->event_count < MAX_EVENTS && time >= w->now);
    w->events[w->event_count++] = (event){time, place, what, subject, bytes};
}

/* Of equal ones the one that was planned first. */
static event take_event(world *w)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < w->event_count; i++)
        if (w->events[i].time < w->events[best].time ||
            (w->events[i].time == w->events[best].time &&
             w->events[i].place < w->events[best].place))
            best = i;
    event taken = w->events[best];
    memmove(&w->events[best], &w->events[best + 1],
            (w->event_count - best - 1) * sizeof *w->events);
    w->event_count--;
    return taken;
}

static int64_t place_of_end(uint32_t link)
{
    return 2 * (int64_t)link;
}

static int64_t place_of_grant(uint32_t link)
{
    return 2 * (int64_t)link + 1;
}

/* ---- The machine ------------------------------------------------------------------------- */

static const topo_link *link_at(const world *w, uint32_t link)
{
    return &w->s->graph.links.items[link];
}

static uint64_t rate_of(const world *w, uint32_t link)
{
    return w->s->graph.rates.items[link_at(w, link)->rate];
}

/* Of a memory the latency is charged behind its service alone. */
static int64_t latency_behind(const world *w, uint32_t link)
{
    const topo_link *l = link_at(w, link);
    const topo_node *node = &w->s->graph.nodes.items[l->to];
    bool passes_by = node->service != TOPO_NONE && l->from != l->to;
    return l->wire_fs + (passes_by ? 0 : node->overhead_fs);
}

static int64_t time_of(uint64_t rate, uint64_t bytes)
{
    wide fs = (wide)bytes * 1000000000000000u;
    return (int64_t)(fs / rate) + (fs % rate != 0);
}

static uint64_t capacity(const world *w, uint32_t link)
{
    wide fill = (wide)rate_of(w, link) * (uint64_t)latency_behind(w, link);
    wide second = 1000000000000000u;
    uint64_t on_the_way = (uint64_t)(fill / second) + (fill % second != 0);
    uint64_t packet = w->s->options.fabric.packet_bytes;
    uint64_t in_packets = packet;
    while (in_packets < on_the_way + packet)
        in_packets += packet;
    uint64_t wished = w->s->options.fabric.depth_bytes + on_the_way;
    return wished > in_packets ? wished : in_packets;
}

static const planned_message *message_of(const world *w, uint32_t order, bool back)
{
    const planned *p = &w->s->orders.items[order];
    return back ? &p->back : &p->out;
}

static uint32_t link_of_hop(const world *w, const piece *p, uint32_t hop)
{
    return topo_step_link(message_of(w, p->order, p->back)->steps[hop]);
}

static uint32_t source_of(const world *w, uint32_t link, bool reply)
{
    return w->links * w->per_link + 2 * link + reply;
}

static bool travels_as_reply(const world *w, const piece *p)
{
    return p->back || w->s->orders.items[p->order].reply;
}

/* ---- Channels ---------------------------------------------------------------------------- */

static void join(queue *q, uint32_t item)
{
    assert_true(q->count < MAX_WAITING);
    q->items[q->count++] = item;
}

static void drop(queue *q, uint32_t index)
{
    memmove(&q->items[index], &q->items[index + 1], (q->count - index - 1) * sizeof *q->items);
    q->count--;
}

/* One that no transfer passes through and that is empty; or that none passes through; or any. */
static uint32_t choose(world *w, uint32_t link, uint32_t base)
{
    uint32_t turn = w->tracks[link].turn;
    for (int patience = 0; patience < 3; patience++)
        for (uint32_t i = 0; i < w->vcs; i++) {
            uint32_t vc = (turn + i) % w->vcs;
            const basin *b = &w->basins[base + vc];
            if ((patience < 2 && b->taken) || (patience < 1 && b->count > 0))
                continue;
            w->tracks[link].turn = (vc + 1) % w->vcs;
            return vc;
        }
    return turn;
}

/* Where the piece goes behind the link that it wants. */
static uint32_t channel_for(world *w, const piece *p)
{
    const planned_message *message = message_of(w, p->order, p->back);
    uint32_t link = topo_step_link(message->steps[p->hop]);
    uint32_t class = scenario_class(message->steps[p->hop], travels_as_reply(w, p));
    uint32_t base = link * w->per_link + class * w->vcs;
    trip *t = &w->trips[p->order];
    if (!t->chosen[p->back][p->hop]) {
        t->chosen[p->back][p->hop] = true;
        t->vc[p->back][p->hop] = choose(w, link, base);
        w->basins[base + t->vc[p->back][p->hop]].taken = true;
    }
    return base + t->vc[p->back][p->hop];
}

static bool is_last_hop(const world *w, const piece *p)
{
    return p->hop + 1 == message_of(w, p->order, p->back)->count;
}

static bool is_last_piece(const world *w, const piece *p)
{
    return p->number + 1 == w->trips[p->order].pieces;
}

/* ---- Moving ------------------------------------------------------------------------------ */

static void plan_grant(world *w, uint32_t link)
{
    track *t = &w->tracks[link];
    if (t->grant_planned)
        return;
    t->grant_planned = true;
    plan(w, t->free_at > w->now ? t->free_at : w->now, place_of_grant(link), GRANT, link, 0);
}

static void book(world *w, uint32_t link, const piece *p, uint32_t to, int64_t leaves)
{
    track *t = &w->tracks[link];
    bool own = t->used_before && t->last_order == p->order && t->last_back == p->back;
    w->o->stats[link].bytes += p->bytes;
    w->o->stats[link].waited_fs += own ? 0 : w->now - p->head;
    w->o->total.hops++;
    t->used_before = true;
    t->last_order = p->order;
    t->last_back = p->back;
    outcome_add_booking(w->o, &(net_booking){.arg = p->order,
                                             .packet = p->number,
                                             .bytes = p->bytes,
                                             .link = link,
                                             .channel = to,
                                             .is_response = p->back,
                                             .ready_at = p->head,
                                             .start = w->now,
                                             .free_at = t->free_at,
                                             .tail_leaves = leaves});
}

static uint32_t reader_of(const world *w, const piece *p)
{
    const planned_message *message = message_of(w, p->order, p->back);
    return link_at(w, topo_step_link(message->steps[message->count - 1]))->to;
}

/* A memory answers in turns: what is left of what one reader wants goes behind all others. */
static void take_turns(const world *w, basin *b, uint32_t reader)
{
    uint32_t kept = 0, moved = 0, behind[MAX_PACKETS / 8];
    for (uint32_t i = 0; i < b->count; i++) {
        if (reader_of(w, &w->pieces[b->pieces[i]]) == reader)
            behind[moved++] = b->pieces[i];
        else
            b->pieces[kept++] = b->pieces[i];
    }
    memcpy(&b->pieces[kept], behind, moved * sizeof *behind);
}

/* The first piece of the basin passes the link, to channel `to` unless it has come to its end. */
static void start(world *w, uint32_t link, uint32_t from, uint32_t to)
{
    track *t = &w->tracks[link];
    basin *b = &w->basins[from];
    uint32_t index = b->pieces[0];
    piece *p = &w->pieces[index];
    uint64_t rate = rate_of(w, link);
    t->busy = true;
    t->free_at = w->now + time_of(rate, p->offset + p->bytes) - time_of(rate, p->offset);
    int64_t leaves = t->free_at > p->tail ? t->free_at : p->tail;
    book(w, link, p, is_last_hop(w, p) ? 0 : to, leaves);
    plan_grant(w, link);

    memmove(&b->pieces[0], &b->pieces[1], (b->count - 1) * sizeof *b->pieces);
    b->count--;
    if (p->hop == 0 && link_at(w, link)->from == link_at(w, link)->to)
        take_turns(w, b, reader_of(w, p));
    if (p->hop > 0) {
        uint32_t fed_by = link_of_hop(w, p, p->hop - 1);
        plan(w, leaves, place_of_end(fed_by), CREDIT, from, p->bytes);
    }

    if (is_last_hop(w, p)) {
        trip *its = &w->trips[p->order];
        int64_t there = leaves + latency_behind(w, link);
        its->ends_at = there > its->ends_at ? there : its->ends_at;
        if (++its->delivered == its->pieces)
            plan(w, its->ends_at, place_of_end(link), END, p->order, 0);
        return;
    }
    p->head = w->now + latency_behind(w, link);
    p->tail = leaves + latency_behind(w, link);
    p->head_is_there = false;
    p->hop++;
    basin *next = &w->basins[to];
    assert_true(next->count < MAX_PACKETS / 8);
    next->pieces[next->count++] = index;
    next->used += p->bytes;
    assert_true(next->used <= capacity(w, link));
    if (is_last_piece(w, p))
        next->taken = false;
    plan(w, p->head, place_of_end(link), HEAD, to, index);
}

/* Whether the first piece of the basin has space behind its link. */
static bool has_space(world *w, uint32_t link, uint32_t from, uint32_t *to)
{
    const piece *p = &w->pieces[w->basins[from].pieces[0]];
    *to = 0;
    if (is_last_hop(w, p))
        return true;
    *to = channel_for(w, p);
    return w->basins[*to].used + w->s->options.fabric.packet_bytes <= capacity(w, link);
}

/* The first piece of the basin is there. */
static void offer(world *w, uint32_t from)
{
    const piece *p = &w->pieces[w->basins[from].pieces[0]];
    uint32_t link = link_of_hop(w, p, p->hop);
    track *t = &w->tracks[link];
    uint32_t to;
    if (t->busy || t->ready.count > 0) {
        join(&t->ready, from);
        plan_grant(w, link);
        return;
    }
    if (!has_space(w, link, from, &to)) {
        join(&t->blocked, from);
        return;
    }
    start(w, link, from, to);
    if (w->basins[from].count > 0 && w->pieces[w->basins[from].pieces[0]].head_is_there)
        offer(w, from);
}

static void on_grant(world *w, uint32_t link)
{
    track *t = &w->tracks[link];
    t->grant_planned = false;
    if (t->free_at > w->now) {
        plan_grant(w, link);
        return;
    }
    t->busy = false;
    uint32_t to;
    for (uint32_t i = 0; i < t->blocked.count;) {
        uint32_t c = t->blocked.items[i];
        if (!has_space(w, link, c, &to)) {
            i++;
            continue;
        }
        drop(&t->blocked, i);
        join(&t->ready, c);
    }
    while (t->ready.count > 0) {
        uint32_t c = t->ready.items[0];
        drop(&t->ready, 0);
        if (!has_space(w, link, c, &to)) {
            join(&t->blocked, c);
            continue;
        }
        start(w, link, c, to);
        if (w->basins[c].count > 0 && w->pieces[w->basins[c].pieces[0]].head_is_there)
            offer(w, c);
        break;
    }
}

static void on_credit(world *w, uint32_t c, uint32_t bytes)
{
    uint32_t link = c / w->per_link;
    w->basins[c].used -= bytes;
    if (w->tracks[link].blocked.count > 0)
        plan_grant(w, link);
}

/* ---- Transfers --------------------------------------------------------------------------- */

/* All packets of the message are put into the source. */
static void enter_source(world *w, uint32_t order, bool back, uint32_t source, int64_t ready)
{
    const planned_message *message = message_of(w, order, back);
    trip *t = &w->trips[order];
    basin *b = &w->basins[source];
    for (uint64_t offset = 0; offset < message->bytes;
         offset += w->s->options.fabric.packet_bytes) {
        uint64_t left = message->bytes - offset;
        uint32_t packet = w->s->options.fabric.packet_bytes;
        assert_true(w->piece_count < MAX_PACKETS && b->count < MAX_PACKETS / 8);
        w->pieces[w->piece_count] = (piece){.order = order,
                                            .back = back,
                                            .number = t->pieces++,
                                            .bytes = left < packet ? (uint32_t)left : packet,
                                            .offset = offset,
                                            .head = ready,
                                            .tail = ready};
        b->pieces[b->count++] = w->piece_count++;
    }
}

static bool is_memory_source(const world *w, uint32_t source)
{
    uint32_t link = (source - source_of(w, 0, false)) / 2;
    return link_at(w, link)->from == link_at(w, link)->to;
}

/* It has its place at the source from now on; at a memory it has one when it is ready there. */
static void begin_message(world *w, uint32_t order, bool back)
{
    const planned_message *message = message_of(w, order, back);
    uint32_t link = topo_step_link(message->steps[0]);
    uint32_t source = source_of(w, link, back || w->s->orders.items[order].reply);
    const topo_node *node = &w->s->graph.nodes.items[link_at(w, link)->from];
    bool charged = back || !w->s->orders.items[order].forwarded;
    int64_t ready = w->now + (charged && node->service == TOPO_NONE ? node->overhead_fs : 0);
    trip *t = &w->trips[order];
    t->returning = back;
    t->pieces = 0;
    t->delivered = 0;
    t->ends_at = ready;
    if (!is_memory_source(w, source))
        enter_source(w, order, back, source, ready);
    uint32_t number = source - source_of(w, 0, false);
    plan(w, ready, place_of_end(w->links) + number, INJECT, order, source);
}

static void on_inject(world *w, uint32_t order, uint32_t source)
{
    basin *b = &w->basins[source];
    if (is_memory_source(w, source))
        enter_source(w, order, w->trips[order].returning, source, w->now);
    for (uint32_t i = 0; i < b->count; i++)
        if (w->pieces[b->pieces[i]].order == order)
            w->pieces[b->pieces[i]].head_is_there = true;
    const piece *first = &w->pieces[b->pieces[0]];
    if (first->order == order && first->number == 0)
        offer(w, source);
}

static void plan_submission(world *w, uint32_t order, int64_t time)
{
    plan(w, time, w->s->submit_first ? -1 : INT64_MAX, SUBMIT, order, 0);
}

static void on_end(world *w, uint32_t order)
{
    const planned *p = &w->s->orders.items[order];
    trip *t = &w->trips[order];
    if (p->back.bytes > 0 && !t->returning) {
        begin_message(w, order, true);
        return;
    }
    w->o->completions[order] = (net_completion){.issued = t->issued, .ended = w->now};
    w->o->done[w->o->done_count++] = order;
    for (uint32_t i = 0; i < w->s->orders.count; i++)
        if (w->s->orders.items[i].after == order)
            plan_submission(w, i, w->now + w->s->orders.items[i].at);
}

static void happen(world *w, const event *e)
{
    switch (e->kind) {
    case HEAD:
        w->pieces[e->bytes].head_is_there = true;
        if (w->basins[e->subject].pieces[0] == e->bytes)
            offer(w, e->subject);
        break;
    case CREDIT:
        on_credit(w, e->subject, e->bytes);
        break;
    case END:
        on_end(w, e->subject);
        break;
    case GRANT:
        on_grant(w, e->subject);
        break;
    case INJECT:
        on_inject(w, e->subject, e->bytes);
        break;
    case SUBMIT:
        w->trips[e->subject].issued = w->now;
        begin_message(w, e->subject, false);
        break;
    }
}

/* Splits the time of a transfer into its parts. */
static void account(const world *w, uint32_t order)
{
    net_completion *r = &w->o->completions[order];
    for (int back = 0; back < 2; back++) {
        const planned_message *message = message_of(w, order, back);
        int64_t drain = 0;
        for (uint32_t i = 0; i < message->count; i++) {
            uint32_t link = topo_step_link(message->steps[i]);
            int64_t all = time_of(rate_of(w, link), message->bytes);
            drain = all > drain ? all : drain;
            r->wire += link_at(w, link)->wire_fs;
            r->overhead += latency_behind(w, link) - link_at(w, link)->wire_fs;
            const topo_node *from = &w->s->graph.nodes.items[link_at(w, link)->from];
            bool forwarded = !back && w->s->orders.items[order].forwarded;
            if (i == 0 && from->service == TOPO_NONE && !forwarded)
                r->overhead += from->overhead_fs;
        }
        r->drain += drain;
    }
    r->queueing = r->ended - r->issued - r->overhead - r->wire - r->drain;
}

outcome *reference_run(const scenario *s)
{
    uint32_t orders = (uint32_t)s->orders.count;
    world *w = calloc(1, sizeof *w); /* large, but little of it is touched */
    assert_non_null(w);
    w->s = s;
    w->links = (uint32_t)s->graph.links.count;
    w->vcs = s->options.fabric.vcs;
    w->per_link = scenario_classes(s) * w->vcs;
    assert_true(w->links <= MAX_LINKS && w->links * (w->per_link + 2) <= MAX_CHANNELS);
    w->o = outcome_new(orders, w->links);
    w->trips = calloc(orders + 1, sizeof *w->trips);
    assert_non_null(w->trips);
    for (uint32_t link = 0; link < w->links; link++)
        w->tracks[link].free_at = -1;
    for (uint32_t i = 0; i < orders; i++)
        if (s->orders.items[i].after == AT_ONCE)
            plan_submission(w, i, s->orders.items[i].at);
    while (w->event_count > 0) {
        event e = take_event(w);
        w->now = e.time;
        happen(w, &e);
    }
    assert_int_equal(w->o->done_count, orders);
    for (uint32_t i = 0; i < orders; i++)
        account(w, i);
    outcome *o = w->o;
    outcome_sort(o);
    free(w->trips);
    free(w);
    return o;
}
