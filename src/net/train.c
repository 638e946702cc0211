/*
 * train.c: transfers that are alone on their links, moved as a whole.
 *
 * Nothing can hold up a leg that is alone on all links of its way: it takes latency and drain, to
 * the femtosecond (L1). So nothing is simulated of it but its end. Legs over the same way may
 * follow it while they do not meet it on any link but the first: they are its train. Other legs
 * that want one of its links dissolve it (unfold.c), and then all is as if there had been packets
 * from the start.
 *
 * A leg joins its links, as a train or as packets, in the event of its arrival at the source or
 * later. Everything that links do at an instant comes before that, so what a train has done by then
 * is what it does up to that time, whatever the order within the instant.
 *
 * Links of a train are not looked at by anybody else, and what they would remember of it, such as
 * when they were free again, is past when its last leg has ended: so nothing of that is kept. It
 * then waits on its links for another leg over the same way, and goes when others want one.
 *
 * Not as trains go: ways that pass a link twice; several packets where rates differ by so little
 * that rounding may hold one up; anything with serial ports, without elision, or while somebody
 * watches.
 */
#include "train.h"

#include "flow.h"
#include "source.h"

/* ---- Legs -------------------------------------------------------------------------------- */

static uint64_t last_bytes(const net *n, const transfer *tr)
{
    return tr->bytes - (uint64_t)(tr->packets - 1) * n->options.packet_bytes;
}

static bool is_whole(const net *n, const transfer *tr)
{
    return last_bytes(n, tr) == n->options.packet_bytes;
}

/* ---- Claims ------------------------------------------------------------------------------ */

/* The leg, on the links as packets, is the last one of the line that it continues or begins. */
static void stand_in_line(net *n, uint32_t t, uint32_t ahead)
{
    transfer *tr = transfer_at(n, t);
    tr->line_whole = is_whole(n, tr);
    if (ahead == NONE || transfer_at(n, ahead)->route != tr->route) {
        tr->line = ++n->lines;
        tr->line_length = 1;
        return;
    }
    const transfer *before = transfer_at(n, ahead);
    tr->line = before->line;
    tr->line_length = before->line_length + 1;
    tr->line_whole = tr->line_whole && before->line_whole;
}

void claims_clear(net *n, uint32_t t)
{
    const route *r = route_of(n, transfer_at(n, t));
    const uint32_t *step = paths_at(&n->paths, r->words);
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(step[i]);
        if (KB_UNLIKELY(n->claims[at] & CLAIM_TRAIN))
            train_dissolve(n, n->train_on[at], r->source);
    }
}

bool claims_enter(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    if (!net_need_path(n, t)) {
        kb_sim_fail(n->sim, kb_error_nomem());
        return false;
    }
    const route *r = route_of(n, tr);
    const uint32_t *step = paths_at(&n->paths, r->words);
    tr->on_links = true;
    for (uint32_t i = 0; i < r->steps; i++)
        n->claims[step_link(step[i])]++;
    uint32_t *latest = &n->latest[r->first_link];
    stand_in_line(n, t, *latest);
    *latest = t;
    return true;
}

void claims_leave(net *n, uint32_t t)
{
    const transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    const uint32_t *step = paths_at(&n->paths, r->words);
    uint32_t *latest = &n->latest[r->first_link];
    if (*latest == t)
        *latest = NONE;
    else if (*latest != NONE && transfer_at(n, *latest)->line == tr->line)
        transfer_at(n, *latest)->line_length--;
    for (uint32_t i = 0; i < r->steps; i++)
        n->claims[step_link(step[i])]--;
}

/* ---- Ways -------------------------------------------------------------------------------- */

static bool is_idle(const net *n, uint32_t index)
{
    return route_at(n, index)->first_leg == NONE;
}

/*
 * Claims the links of the way. False, and nothing is claimed, if there is anybody on it but the
 * line that `ahead` ends, which goes the same way; NONE: nobody may be.
 */
static bool claim(net *n, uint32_t index, uint32_t ahead)
{
    route *r = route_at(n, index);
    const uint32_t *step = paths_at(&n->paths, r->words);
    uint32_t length = ahead != NONE ? transfer_at(n, ahead)->line_length : 0;
    uint32_t i;
    for (i = 0; i < r->steps; i++) {
        uint32_t at = step_link(step[i]);
        if (n->claims[at] == CLAIM_TRAIN && n->train_on[at] != index && is_idle(n, n->train_on[at]))
            train_retire(n, n->train_on[at]);
        if (n->claims[at] != length)
            break;
        n->claims[at] |= CLAIM_TRAIN;
        n->train_on[at] = index;
    }
    r->stands = i == r->steps;
    if (r->stands)
        return true;
    while (i-- > 0)
        n->claims[step_link(step[i])] &= ~CLAIM_TRAIN;
    return false;
}

static kb_time time_of(const net *n, const topo_pace *pace, const transfer *tr)
{
    if (pace->remainder == 0 && is_whole(n, tr) && pace->quotient < (1u << 31))
        return (kb_time)(pace->quotient * tr->packets);
    return topo_rate_time(pace->bytes_per_s, tr->bytes);
}

/* Whether the slowest link alone decides how long the leg takes. */
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

/* Whether legs of this size may go as trains. */
static bool is_fit(net *n, route *r, const transfer *tr)
{
    if (KB_LIKELY(r->size == tr->bytes))
        return true;
    kb_time drain = time_of(n, r->slowest, tr);
    if (drain > FARTHEST || r->latency > FARTHEST || !is_foreseeable(n, r, tr) ||
        !train_reserve(n, r, tr))
        return false;
    r->size = tr->bytes;
    r->packets = tr->packets;
    r->size_whole = is_whole(n, tr);
    r->drain = drain;
    return true;
}

/* ---- Leaving ----------------------------------------------------------------------------- */

/* The leg, which is fit for it, leaves its source at this time, as the last one of the train. */
static void append(net *n, route *r, uint32_t t, kb_time start)
{
    transfer *tr = transfer_at(n, t);
    source_drop(n, r->source);
    r->clear_at = start + r->drain;
    if (r->first_leg == NONE) {
        r->first_leg = t;
        r->whole = r->size_whole;
    } else {
        transfer_at(n, r->last_leg)->behind = t;
        r->whole = r->whole && r->size_whole;
    }
    r->last_leg = t;
    tr->behind = NONE;
    tr->in_train = true;
    tr->start = start;
    tr->ends_at = r->clear_at + r->latency;
    tr->end = schedule_end(n, tr->ends_at, r->last_link, t);
}

/* Nobody queues behind the first link if that is the slowest one, or there is one packet alone. */
static bool stays_in_line(const route *r, const transfer *tr)
{
    return tr->packets == 1 || r->first == r->slowest;
}

/* When the first of the packets comes to the head of the port behind the link, which has taken in
 * only such of this class; KB_FOREVER if there are none. */
static kb_time first_head(const net *n, uint32_t step)
{
    uint32_t c = step_link(step) * n->channels_per_link + step_class(step) * n->options.vcs;
    kb_time first = KB_FOREVER;
    for (uint32_t end = c + n->options.vcs; c < end; c++)
        if (n->channels[c].first != NONE && first_packet(n, c)->head_at < first)
            first = first_packet(n, c)->head_at;
    return first;
}

/*
 * Whether a leg that starts at this time meets nobody, though packets of the line ahead of it are
 * still under way, the only ones there. They have left the source. Nobody will wait if nobody
 * waits now, each link is free when the next packet comes to it, and links do not become slower:
 * then each packet is as long behind the one before it as that needs on the next link. And full
 * packets that do not wait find room.
 */
static bool is_clear(const net *n, const route *r, const transfer *ahead, kb_time start)
{
    const uint32_t *path = paths_at(&n->paths, ahead->path);
    kb_time next = start; /* when the next packet comes to the link in hand */
    if (!r->rising || !r->distinct || !ahead->line_whole)
        return false;
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(path[i]), vc = path[i] >> VC_SHIFT;
        const link *l = &n->links[at];
        if (l->ready != NOTHING || l->blocked != NOTHING || l->free_at > next)
            return false;
        if (i + 1 == r->steps)
            break;
        /* If it has no channel yet, it will take the one whose turn it is. */
        if (vc != VC_OPEN && l->turn != (vc + 1 == n->options.vcs ? 0 : vc + 1))
            return false; /* it is not certain which channels legs will find */
        kb_time first = first_head(n, path[i]);
        next =
            first < KB_FOREVER ? first : kb_time_add(next, n->profiles.items[l->profile].latency);
    }
    return true;
}

/* Whether nobody is on the first link but a line over the same way, which has left the source. */
static bool is_next_in_line(const net *n, const transfer *tr, uint32_t claims, uint32_t ahead)
{
    if (claims == 0)
        return true;
    const transfer *last = ahead != NONE ? transfer_at(n, ahead) : NULL;
    return last && last->line_length == claims && last->made == last->packets &&
           last->route == tr->route;
}

static bool set_out(net *n, uint32_t t)
{
    const transfer *tr = transfer_at(n, t);
    route *r = route_of(n, tr);
    uint32_t ahead = n->latest[r->first_link];
    if (!is_next_in_line(n, tr, n->claims[r->first_link], ahead) || !claim(n, tr->route, ahead))
        return false;
    routes_survey(n, r);
    kb_time free_at = n->links[r->first_link].free_at;
    kb_time start = n->now > free_at ? n->now : free_at;
    bool clear =
        ahead == NONE || (stays_in_line(r, tr) && is_clear(n, r, transfer_at(n, ahead), start));
    if (start > FARTHEST || !clear || !is_fit(n, r, tr)) {
        train_release(n, r);
        return false;
    }
    append(n, r, t, start);
    return true;
}

/*
 * The leg goes with the train that stands on its way. Packets may queue there, but those of the
 * train keep up with the slowest link: on every link they are gone, and have left their room, by
 * when a leg comes that starts at clear_at. Legs that may start later than they come, because the
 * first link is the slowest, wait until then.
 */
static bool join(net *n, route *r, uint32_t t)
{
    kb_time start = n->now;
    if (r->first_leg != NONE && start < r->clear_at) {
        if (r->first != r->slowest)
            return false;
        start = r->clear_at;
    }
    bool has_room = r->first_leg == NONE || r->roomy || r->whole;
    if (start > FARTHEST || !has_room || !is_fit(n, r, transfer_at(n, t)))
        return false;
    append(n, r, t, start);
    return true;
}

bool train_take(net *n, uint32_t t)
{
    route *r = route_of(n, transfer_at(n, t));
    const channel *ch = &n->channels[r->source];
    if (n->ports || n->options.no_elision || n->watch || ch->first_transfer != ch->last_transfer)
        return false;
    if (r->stands && join(n, r, t))
        return true;
    if (n->claims[r->first_link] & CLAIM_TRAIN) {
        uint32_t other = n->train_on[r->first_link];
        if (!is_idle(n, other))
            return false;
        train_retire(n, other);
    }
    return set_out(n, t);
}

void train_release(net *n, route *r)
{
    const uint32_t *step = paths_at(&n->paths, r->words);
    uint32_t vcs = n->options.vcs;
    add_waited(&n->links[r->first_link], r->ended_waited);
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(step[i]);
        link *l = &n->links[at];
        l->bytes += r->ended_bytes;
        if (vcs > 1 && i + 1 < r->steps) /* each took the next channel: the longest unused one */
            l->turn = (uint8_t)((l->turn + r->ended_turns) % vcs);
        n->claims[at] &= ~CLAIM_TRAIN;
    }
    r->ended_turns = 0;
    r->ended_bytes = 0;
    r->ended_waited = 0;
    r->stands = false;
}

void train_retire(net *n, uint32_t index)
{
    route *r = route_at(n, index);
    KB_ASSERT(r->first_leg == NONE);
    train_release(n, r);
}

void train_end_leg(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    route *r = route_of(n, tr);
    KB_ASSERT(r->first_leg == t);
    r->first_leg = tr->behind;
    r->ended_turns = (uint8_t)(r->ended_turns + 1u == n->options.vcs ? 0 : r->ended_turns + 1u);
    r->ended_bytes += tr->bytes;
    kb_time waited = tr->start - tr->ready_at;
    if (KB_UNLIKELY(waited > KB_FOREVER - r->ended_waited)) { /* the link has more bits */
        add_waited(&n->links[r->first_link], r->ended_waited);
        r->ended_waited = 0;
    }
    r->ended_waited += waited;
    n->hops += (uint64_t)tr->packets * r->steps;
    tr->in_train = false;
}
