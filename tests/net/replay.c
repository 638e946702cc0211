/*
 * replay.c: see replay.h. A hop is a packet on a link of its route; all but the last of a message
 * lead to a channel.
 *
 * - times: a head moves on when it has come, a tail when the link is done and it has come
 * - links: one packet at a time; bytes, hops and waiting are what the figures say
 * - channels: first in, first out; of the right class; one for all packets of a transfer
 * - space: what is in a channel is never more than it holds
 * - work: a link is not idle while a packet is first in its channel, is there, and has room
 * - rotation: while one waits that has room, no other channel is served twice
 * - ports: if they are serial, a port sends one packet at a time
 *
 * Checks N1, N2, N3 and N4.
 */
#include "net/replay.h"

#include <inttypes.h>

typedef struct hop {
    const net_booking *b;
    const struct hop *before, *after; /* the same packet on its way; NULL at the ends */
    const struct hop *ahead;          /* the packet that was in front of it, where it waited */
    uint32_t order, step;
    bool reply, last;
} hop;

typedef struct replay {
    const scenario *s;
    const outcome *o;
    const char *what;
    hop *hops; /* in the order of the bookings */
    uint32_t per_link;
} replay;

#define CHECK(r, condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            scenario_print((r)->s);                                                                \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(" (%s) does not hold: %s", #condition, (r)->what);                            \
        }                                                                                          \
    } while (0)

/* ---- The machine ------------------------------------------------------------------------- */

static kb_time latency(const replay *r, uint32_t link)
{
    return r->s->graph.links.items[link].wire_fs + topo_link_overhead(&r->s->graph, link);
}

static kb_time time_of_part(const replay *r, uint32_t link, uint64_t from, uint64_t to)
{
    uint64_t rate = topo_link_rate(&r->s->graph, link);
    return topo_rate_time(rate, to) - topo_rate_time(rate, from);
}

/* To be compared with what the net says. */
static uint64_t capacity(const replay *r, uint32_t link)
{
    uint64_t packet = r->s->options.fabric.packet_bytes;
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)topo_link_rate(&r->s->graph, link) * (uint64_t)latency(r, link);
    const uint64_t second = (uint64_t)KB_S;
    uint64_t flying = (uint64_t)((product + second - 1) / second);
    uint64_t least = (flying + packet - 1) / packet * packet + packet;
    uint64_t wished = flying + r->s->options.fabric.depth_bytes;
    return wished > least ? wished : least;
}

static const planned_message *message_of(const replay *r, const net_booking *b)
{
    const planned *p = &r->s->orders.items[b->arg];
    return b->is_response ? &p->back : &p->out;
}

/* ---- Putting it together ----------------------------------------------------------------- */

static hop *find(const replay *r, const net_booking *b, uint32_t link)
{
    for (uint32_t i = r->o->first_of_link[link]; i < r->o->first_of_link[link + 1]; i++) {
        const net_booking *other = &r->o->bookings[i];
        if (other->arg == b->arg && other->is_response == b->is_response &&
            other->packet == b->packet)
            return &r->hops[i];
    }
    return NULL;
}

static void find_ways(replay *r)
{
    uint64_t expected = 0;
    for (uint32_t i = 0; i < r->o->orders; i++) {
        const planned *p = &r->s->orders.items[i];
        uint64_t packet = r->s->options.fabric.packet_bytes;
        expected += p->out.count * ((p->out.bytes + packet - 1) / packet);
        expected += p->back.count * ((p->back.bytes + packet - 1) / packet);
    }
    CHECK(r, r->o->count == expected, "%u bookings, not %ju", r->o->count, (uintmax_t)expected);
    CHECK(r, r->o->total.hops == expected, "hops");
    for (uint32_t i = 0; i < r->o->count; i++) {
        hop *h = &r->hops[i];
        h->b = &r->o->bookings[i];
        const planned_message *message = message_of(r, h->b);
        uint32_t step = 0;
        while (step < message->count && topo_step_link(message->steps[step]) != h->b->link)
            step++;
        CHECK(r, step < message->count, "link %u", h->b->link);
        CHECK(r, find(r, h->b, h->b->link) == h, "a packet was booked twice on link %u",
              h->b->link);
        uint64_t offset = (uint64_t)h->b->packet * r->s->options.fabric.packet_bytes;
        uint64_t left = message->bytes - offset;
        CHECK(r, offset < message->bytes, "packet %u", h->b->packet);
        CHECK(r,
              h->b->bytes == (left < r->s->options.fabric.packet_bytes
                                  ? left
                                  : r->s->options.fabric.packet_bytes),
              "packet %u", h->b->packet);
        h->order = (uint32_t)h->b->arg;
        h->step = step;
        h->last = step + 1 == message->count;
        h->reply = h->b->is_response || r->s->orders.items[h->order].reply;
        if (step > 0)
            h->before = find(r, h->b, topo_step_link(message->steps[step - 1]));
        if (!h->last)
            h->after = find(r, h->b, topo_step_link(message->steps[step + 1]));
        CHECK(r, (step == 0 || h->before) && (h->last || h->after), "a packet went astray");
    }
}

/* Where a packet waited before this hop: a source, or a channel of the port it came to. */
static bool same_place(const hop *a, const hop *b)
{
    if (!a->before || !b->before)
        return !a->before && !b->before && a->b->link == b->b->link && a->reply == b->reply;
    return a->before->b->link == b->before->b->link &&
           a->before->b->channel == b->before->b->channel;
}

/* Those that enter a channel pass one link, so they enter it in the order of its bookings. */
static void find_who_was_ahead(replay *r)
{
    for (uint32_t at = 0; at < r->o->links; at++)
        for (uint32_t i = r->o->first_of_link[at]; i < r->o->first_of_link[at + 1]; i++)
            for (uint32_t j = i; j-- > r->o->first_of_link[at];) {
                hop *h = &r->hops[i], *other = &r->hops[j];
                if (!h->before && !h->ahead && same_place(h, other))
                    h->ahead = other;
                hop *next = (hop *)(uintptr_t)h->after;
                if (next && other->after && !next->ahead && same_place(next, other->after))
                    next->ahead = other->after;
            }
}

/* ---- Checks ------------------------------------------------------------------------------ */

static kb_time end_of_message(const replay *r, uint32_t order, bool back)
{
    kb_time end = -1;
    for (uint32_t i = 0; i < r->o->count; i++) {
        const hop *h = &r->hops[i];
        kb_time there = h->b->tail_leaves + latency(r, h->b->link);
        if (h->order == order && h->b->is_response == back && h->last && there > end)
            end = there;
    }
    return end;
}

/* When the message was put at its source: the source's overhead comes after that. */
static kb_time start_of_message(const replay *r, const hop *h)
{
    return h->b->is_response ? end_of_message(r, h->order, false)
                             : r->o->completions[h->order].issued;
}

static void check_times(const replay *r)
{
    for (uint32_t i = 0; i < r->o->count; i++) {
        const hop *h = &r->hops[i];
        const net_booking *b = h->b;
        kb_time head, tail;
        if (h->before) {
            head = h->before->b->start + latency(r, h->before->b->link);
            tail = h->before->b->tail_leaves + latency(r, h->before->b->link);
        } else {
            head = start_of_message(r, h);
            if (b->is_response || !r->s->orders.items[h->order].forwarded)
                head += topo_source_overhead(&r->s->graph, r->s->graph.links.items[b->link].from);
            tail = head;
        }
        uint64_t offset = (uint64_t)b->packet * r->s->options.fabric.packet_bytes;
        kb_time busy = time_of_part(r, b->link, offset, offset + b->bytes);
        CHECK(r, b->ready_at == head, "head on link %u", b->link);
        CHECK(r, b->start >= head, "start on link %u", b->link);
        CHECK(r, b->free_at == b->start + busy, "link %u", b->link);
        CHECK(r, b->tail_leaves == (tail > b->free_at ? tail : b->free_at), "tail on link %u",
              b->link);
    }
    for (uint32_t i = 0; i < r->o->orders; i++) {
        const net_completion *p = &r->o->completions[i];
        bool back = r->s->orders.items[i].back.bytes > 0;
        CHECK(r, p->ended == end_of_message(r, i, back), "order %u", i);
        CHECK(r, p->queueing >= 0, "order %u", i);
        CHECK(r, p->overhead + p->wire + p->drain + p->queueing == p->ended - p->issued, "order %u",
              i);
    }
}

static void check_links(const replay *r)
{
    kb_time makespan = 0;
    for (uint32_t i = 0; i < r->o->orders; i++)
        if (r->o->completions[i].ended > makespan)
            makespan = r->o->completions[i].ended;
    uint64_t all_bytes = 0;
    for (uint32_t at = 0; at < r->o->links; at++) {
        uint64_t bytes = 0;
        kb_time waited = 0, busy = 0;
        for (uint32_t i = r->o->first_of_link[at]; i < r->o->first_of_link[at + 1]; i++) {
            const net_booking *b = &r->o->bookings[i];
            const net_booking *previous = i > r->o->first_of_link[at] ? b - 1 : NULL;
            CHECK(r, !previous || previous->free_at <= b->start, "link %u", at);
            bytes += b->bytes;
            busy += b->free_at - b->start;
            if (!previous || previous->arg != b->arg || previous->is_response != b->is_response)
                waited += b->start - b->ready_at;
        }
        CHECK(r, r->o->stats[at].bytes == bytes, "link %u", at);
        CHECK(r, r->o->stats[at].waited_fs == waited, "link %u", at);
        CHECK(r, busy <= makespan, "link %u", at);
        all_bytes += bytes;
    }
    CHECK(r, r->o->total.link_bytes == all_bytes, "bytes");
}

/* A memory's own link, where it answers in turns. */
static bool serves_itself(const replay *r, uint32_t link)
{
    const topo_link *l = &r->s->graph.links.items[link];
    return l->from == l->to;
}

static void check_channels(const replay *r)
{
    for (uint32_t i = 0; i < r->o->count; i++) {
        const hop *h = &r->hops[i];
        if (h->ahead)
            CHECK(r, h->b->start >= h->ahead->b->start, "order in what waits for link %u",
                  h->b->link);
        if (!h->before && !serves_itself(r, h->b->link)) {
            /* At sources: transfers one after the other, in order of coming. */
            const hop *a = h->ahead;
            bool same = a && a->order == h->order && a->b->is_response == h->b->is_response;
            CHECK(r, h->b->packet == (same ? a->b->packet + 1 : 0), "source of link %u",
                  h->b->link);
            CHECK(r, !a || start_of_message(r, a) <= start_of_message(r, h), "source of link %u",
                  h->b->link);
        }
        if (h->last)
            continue;
        uint32_t first = h->b->link * r->per_link;
        uint32_t class = scenario_class(message_of(r, h->b)->steps[h->step], h->reply);
        CHECK(r, h->b->channel >= first && h->b->channel < first + r->per_link, "channel %u",
              h->b->channel);
        CHECK(r, (h->b->channel - first) / r->s->options.fabric.vcs == class,
              "channel %u of link %u", h->b->channel, h->b->link);
        for (uint32_t j = i; j-- > 0 && r->hops[j].b->link == h->b->link;) {
            const net_booking *other = r->hops[j].b;
            if (other->arg == h->b->arg && other->is_response == h->b->is_response)
                CHECK(r, other->channel == h->b->channel, "one channel on link %u", h->b->link);
        }
    }
}

/* What has started on the link into the channel, and has not left it at that time. */
static uint64_t used_at(const replay *r, uint32_t link, uint32_t channel, kb_time when)
{
    uint64_t used = 0;
    for (uint32_t i = r->o->first_of_link[link]; i < r->o->first_of_link[link + 1]; i++) {
        const hop *h = &r->hops[i];
        if (h->after && h->b->channel == channel && h->b->start <= when &&
            h->after->b->tail_leaves > when)
            used += h->b->bytes;
    }
    return used;
}

static void check_space(const replay *r)
{
    for (uint32_t i = 0; i < r->o->count; i++) {
        const hop *h = &r->hops[i];
        if (!h->last)
            CHECK(r, used_at(r, h->b->link, h->b->channel, h->b->start) <= capacity(r, h->b->link),
                  "channel %u of link %u at %" PRId64, h->b->channel, h->b->link, h->b->start);
    }
}

/* The packet could not have started in this time, in which its link was idle. */
static void check_idle(const replay *r, const hop *h, kb_time from, kb_time to)
{
    if (from >= to)
        return;
    uint32_t link = h->b->link, channel = h->b->channel;
    uint64_t most = capacity(r, link);
    CHECK(r, !h->last && used_at(r, link, channel, from) + r->s->options.fabric.packet_bytes > most,
          "link %u idle at %" PRId64 " while packet %u of order %u waits", link, from, h->b->packet,
          h->order);
    for (uint32_t i = r->o->first_of_link[link]; i < r->o->first_of_link[link + 1]; i++) {
        const hop *other = &r->hops[i];
        if (!other->after || other->b->channel != channel)
            continue;
        kb_time when = other->after->b->tail_leaves;
        CHECK(r,
              when <= from || when >= to ||
                  used_at(r, link, channel, when) + r->s->options.fabric.packet_bytes > most,
              "link %u idle at %" PRId64 " while packet %u of order %u waits", link, when,
              h->b->packet, h->order);
    }
}

static kb_time later(kb_time a, kb_time b)
{
    return a > b ? a : b;
}

/* Since when it was the first one where it waited, and was there. */
static kb_time first_since(const hop *h)
{
    return later(h->b->ready_at, h->ahead ? h->ahead->b->start : -1);
}

static void check_work(const replay *r)
{
    for (uint32_t i = 0; i < r->o->count; i++) {
        const hop *h = &r->hops[i];
        kb_time since = first_since(h);
        /* What the link was not busy with, from there to its start. */
        kb_time busy_until = -1;
        for (uint32_t j = r->o->first_of_link[h->b->link]; j <= i; j++) {
            check_idle(r, h, later(since, busy_until), r->hops[j].b->start);
            busy_until = r->hops[j].b->free_at;
        }
    }
}

static void check_rotation(const replay *r)
{
    for (uint32_t i = 0; i < r->o->count; i++) {
        const hop *h = &r->hops[i];
        if (!h->last) /* others may have had to wait for space */
            continue;
        kb_time since = first_since(h);
        for (uint32_t j = i; j-- > r->o->first_of_link[h->b->link];) {
            if (r->hops[j].b->start <= since)
                break;
            for (uint32_t k = j; k-- > r->o->first_of_link[h->b->link];) {
                if (r->hops[k].b->start <= since)
                    break;
                CHECK(r, !same_place(&r->hops[j], &r->hops[k]),
                      "served twice on link %u while packet %u of order %u waits", h->b->link,
                      h->b->packet, h->order);
            }
        }
    }
}

static void check_serial_ports(const replay *r)
{
    for (uint32_t i = 0; i < r->o->count; i++)
        for (uint32_t j = r->o->first_of_link[r->hops[i].b->link]; j < i; j++) {
            const hop *a = &r->hops[j], *b = &r->hops[i];
            if (!a->after || !b->after)
                continue;
            if (a->after->b->start > b->after->b->start) {
                const hop *swap = a;
                a = b;
                b = swap;
            }
            kb_time reads = a->b->free_at - a->b->start;
            CHECK(r, a->after->b->start + reads <= b->after->b->start, "the port of link %u",
                  a->b->link);
        }
}

void replay_check(const scenario *s, const outcome *o, const char *what)
{
    replay r = {
        .s = s, .o = o, .what = what, .per_link = scenario_classes(s) * s->options.fabric.vcs};
    r.hops = calloc(o->count + 1, sizeof *r.hops);
    assert_non_null(r.hops);
    find_ways(&r);
    find_who_was_ahead(&r);
    check_times(&r);
    check_links(&r);
    check_channels(&r);
    check_space(&r);
    if (s->options.fabric.serial_ports) {
        check_serial_ports(&r);
    } else {
        check_work(&r);
        check_rotation(&r);
    }
    free(r.hops);
}
