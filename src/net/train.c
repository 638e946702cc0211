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

/* So that times can be added. */
#define FARTHEST (KB_FOREVER / 4)

/* ---- Legs -------------------------------------------------------------------------------- */

static uint64_t last_bytes(const net *n, const transfer *tr)
{
    return tr->bytes - (uint64_t)(tr->packets - 1) * n->options.packet_bytes;
}

static bool is_whole(const net *n, const transfer *tr)
{
    return last_bytes(n, tr) == n->options.packet_bytes;
}

static bool are_same(const net *n, uint32_t path, uint32_t other, uint32_t steps)
{
    const uint32_t *x = paths_at(&n->paths, path), *y = paths_at(&n->paths, other);
    for (uint32_t i = 0; i < steps; i++)
        if ((x[i] ^ y[i]) & (STEP_MASK | REPLY_BIT)) /* the channels are each one's own */
            return false;
    return true;
}

static bool same_way(const net *n, const transfer *a, const transfer *b)
{
    return a->source == b->source && a->steps == b->steps &&
           are_same(n, a->path, b->path, a->steps);
}

static bool is_way_of(const net *n, const train *tn, const transfer *tr)
{
    return tn->source == tr->source && tn->steps == tr->steps &&
           are_same(n, tn->path, tr->path, tr->steps);
}

/* ---- Claims ------------------------------------------------------------------------------ */

/* The leg, on the links as packets, is the last one of the line that it continues or begins. */
static void stand_in_line(net *n, uint32_t t, uint32_t ahead)
{
    transfer *tr = transfer_at(n, t);
    tr->line_whole = is_whole(n, tr);
    if (ahead == NONE || !same_way(n, transfer_at(n, ahead), tr)) {
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
    const transfer *tr = transfer_at(n, t);
    const uint32_t *path = paths_at(&n->paths, tr->path);
    for (uint32_t i = 0; i < tr->steps; i++) {
        uint32_t at = step_link(path[i]);
        if (KB_UNLIKELY(n->claims[at] & CLAIM_TRAIN))
            train_dissolve(n, n->train_on[at], tr->source);
    }
}

void claims_enter(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    const uint32_t *path = paths_at(&n->paths, tr->path);
    tr->on_links = true;
    for (uint32_t i = 0; i < tr->steps; i++)
        n->claims[step_link(path[i])]++;
    uint32_t *latest = &n->latest[step_link(*path)];
    stand_in_line(n, t, *latest);
    *latest = t;
}

void claims_leave(net *n, uint32_t t)
{
    const transfer *tr = transfer_at(n, t);
    const uint32_t *path = paths_at(&n->paths, tr->path);
    uint32_t *latest = &n->latest[step_link(*path)];
    if (*latest == t)
        *latest = NONE;
    else if (*latest != NONE && transfer_at(n, *latest)->line == tr->line)
        transfer_at(n, *latest)->line_length--;
    for (uint32_t i = 0; i < tr->steps; i++)
        n->claims[step_link(path[i])]--;
}

/* ---- Ways -------------------------------------------------------------------------------- */

static kb_time packet_time(const topo_pace *pace)
{
    return (kb_time)(pace->quotient + (pace->remainder != 0));
}

/* Notes the rate of a link of the way. */
static void add_rate(train *tn, const topo_pace *pace)
{
    kb_time time = packet_time(pace);
    for (uint32_t i = 0; i < tn->rate_count; i++) {
        if (tn->rates[i]->bytes_per_s == pace->bytes_per_s)
            return;
        kb_time difference = time - packet_time(tn->rates[i]);
        if (difference < 3 && difference > -3)
            tn->distinct = false;
    }
    if (pace->bytes_per_s < tn->slowest->bytes_per_s)
        tn->slowest = pace;
    if (tn->rate_count < TRAIN_RATES)
        tn->rates[tn->rate_count++] = pace;
    else
        tn->distinct = false;
}

static bool is_idle(const net *n, uint32_t index)
{
    return train_at(n, index)->first_leg == NONE;
}

/*
 * Claims the links of the way, and says what it is like. False, and nothing is claimed, if there is
 * anybody on it but the line that `ahead` ends, which goes the same way; NONE: nobody may be.
 */
static bool survey(net *n, const transfer *tr, uint32_t ahead, uint32_t index, train *tn)
{
    const uint32_t *path = paths_at(&n->paths, tr->path);
    uint32_t length = ahead != NONE ? transfer_at(n, ahead)->line_length : 0;
    const topo_pace *before = NULL;
    uint32_t i;
    for (i = 0; i < tr->steps; i++) {
        uint32_t at = step_link(path[i]);
        const profile *pr = &n->profiles.items[n->links[at].profile];
        if (n->claims[at] == CLAIM_TRAIN && n->train_on[at] != index && is_idle(n, n->train_on[at]))
            train_retire(n, n->train_on[at]);
        if (n->claims[at] != length || pr->latency > FARTHEST - tn->latency)
            break;
        n->claims[at] |= CLAIM_TRAIN;
        n->train_on[at] = index;
        tn->latency += pr->latency;
        tn->roomy &= pr->roomy || i + 1 == tr->steps;
        if (&pr->pace == before)
            continue;
        if (i == 0)
            tn->first = tn->slowest = &pr->pace;
        else
            tn->rising &= pr->pace.bytes_per_s >= before->bytes_per_s;
        add_rate(tn, &pr->pace);
        before = &pr->pace;
    }
    if (i == tr->steps)
        return true;
    while (i-- > 0)
        n->claims[step_link(path[i])] &= ~CLAIM_TRAIN;
    return false;
}

static kb_time time_of(const net *n, const topo_pace *pace, const transfer *tr)
{
    if (pace->remainder == 0 && is_whole(n, tr) && pace->quotient < (1u << 31))
        return (kb_time)(pace->quotient * tr->packets);
    return topo_rate_time(pace->bytes_per_s, tr->bytes);
}

/* Whether the slowest link alone decides how long the leg takes. */
static bool is_foreseeable(const net *n, const train *tn, const transfer *tr)
{
    if (tr->packets == 1)
        return true;
    if (!tn->distinct)
        return false;
    if (is_whole(n, tr))
        return true;
    /* Wherever in the transfer it is, the last packet takes longest on that link. */
    uint64_t last = last_bytes(n, tr);
    for (uint32_t i = 0; i < tn->rate_count; i++)
        if (tn->rates[i] != tn->slowest && topo_rate_time(tn->rates[i]->bytes_per_s, last) >=
                                               topo_rate_time(tn->slowest->bytes_per_s, last))
            return false;
    return true;
}

/* ---- Leaving ----------------------------------------------------------------------------- */

/*
 * The leg leaves its source, as the last one of the train. It starts at this time, and takes so
 * long on the slowest link.
 */
static void append(net *n, uint32_t index, uint32_t t, kb_time start, kb_time drain)
{
    train *tn = train_at(n, index);
    transfer *tr = transfer_at(n, t);
    const uint32_t *path = paths_at(&n->paths, tr->path);
    source_drop(n, tr->source);
    tn->free_at = start + (tn->first == tn->slowest ? drain : time_of(n, tn->first, tr));
    tn->clear_at = start + drain;
    tn->whole = tn->whole && is_whole(n, tr);
    if (tn->first_leg == NONE)
        tn->first_leg = t;
    else
        transfer_at(n, tn->last_leg)->behind = t;
    tn->last_leg = t;
    tn->path = tr->path;
    tr->behind = NONE;
    tr->train = index;
    tr->start = start;
    tr->ends_at = tn->clear_at + tn->latency;
    tr->end = schedule_end(n, tr->ends_at, step_link(path[tr->steps - 1]), t);
}

/* Nobody queues behind the first link if that is the slowest one, or there is one packet alone. */
static bool stays_in_line(const train *tn, const transfer *tr)
{
    return tr->packets == 1 || tn->first == tn->slowest;
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
static bool is_clear(const net *n, const train *tn, const transfer *ahead, kb_time start)
{
    const uint32_t *path = paths_at(&n->paths, ahead->path);
    kb_time next = start; /* when the next packet comes to the link in hand */
    if (!tn->rising || !tn->distinct || !ahead->line_whole)
        return false;
    for (uint32_t i = 0; i < ahead->steps; i++) {
        uint32_t at = step_link(path[i]), vc = path[i] >> VC_SHIFT;
        const link *l = &n->links[at];
        if (l->ready != NOTHING || l->blocked != NOTHING || l->free_at > next)
            return false;
        if (i + 1 == ahead->steps)
            break;
        /* If it has no channel yet, it will take the one whose turn it is. */
        if (vc != VC_OPEN && l->turn != (vc + 1 == n->options.vcs ? 0 : vc + 1))
            return false; /* it is not certain which channels legs will find */
        kb_time first = first_head(n, path[i]);
        next = first < KB_FOREVER ? first : next + n->profiles.items[l->profile].latency;
    }
    return true;
}

static bool can_set_out(net *n, const train *tn, const transfer *tr, uint32_t ahead, kb_time start)
{
    if (start > FARTHEST || !is_foreseeable(n, tn, tr))
        return false;
    if (ahead != NONE && !(stays_in_line(tn, tr) && is_clear(n, tn, transfer_at(n, ahead), start)))
        return false;
    return train_reserve(n, tn, tr);
}

/* Whether nobody is on the first link but a line over the same way, which has left the source. */
static bool is_next_in_line(const net *n, const transfer *tr, uint32_t claims, uint32_t ahead)
{
    if (claims == 0)
        return true;
    const transfer *last = ahead != NONE ? transfer_at(n, ahead) : NULL;
    return last && last->line_length == claims && last->made == last->packets &&
           same_way(n, last, tr);
}

static bool set_out(net *n, uint32_t t)
{
    const transfer *tr = transfer_at(n, t);
    uint32_t first = step_link(*paths_at(&n->paths, tr->path));
    uint32_t ahead = n->latest[first];
    if (!is_next_in_line(n, tr, n->claims[first], ahead))
        return false;
    uint32_t index = kb_pool_take(&n->trains);
    if (index == NONE)
        return false;
    train *tn = train_at(n, index);
    *tn = (train){.distinct = true, .rising = true, .roomy = true, .whole = true};
    if (survey(n, tr, ahead, index, tn)) {
        kb_time free_at = n->links[first].free_at;
        kb_time start = n->now > free_at ? n->now : free_at;
        tn->steps = tr->steps;
        tn->source = tr->source;
        tn->path = tr->path;
        kb_time drain = time_of(n, tn->slowest, tr);
        if (drain <= FARTHEST && can_set_out(n, tn, tr, ahead, start)) {
            append(n, index, t, start, drain);
            return true;
        }
        train_release(n, tn);
    }
    kb_pool_give(&n->trains, index);
    return false;
}

/* The leg goes the way of an idle train, as one that nobody is on. */
static bool resume(net *n, uint32_t index, uint32_t t)
{
    train *tn = train_at(n, index);
    const transfer *tr = transfer_at(n, t);
    kb_time drain = time_of(n, tn->slowest, tr);
    if (drain > FARTHEST || !is_way_of(n, tn, tr) || !can_set_out(n, tn, tr, NONE, n->now)) {
        train_retire(n, index);
        return set_out(n, t);
    }
    paths_give(&n->paths, tn->path, tn->path_size);
    tn->whole = true;
    append(n, index, t, n->now, drain);
    return true;
}

/*
 * Packets may queue on the way, but those of the train keep up with the slowest link: on every link
 * they are gone, and have left their room, by when a leg comes that starts at clear_at.
 */
static bool follow(net *n, uint32_t index, uint32_t t)
{
    const train *tn = train_at(n, index);
    const transfer *tr = transfer_at(n, t);
    if (tn->first_leg == NONE)
        return resume(n, index, t);
    if (!is_way_of(n, tn, tr))
        return false;
    kb_time start = n->now > tn->free_at ? n->now : tn->free_at;
    if (start < tn->clear_at || start > FARTHEST || !(tn->roomy || tn->whole) ||
        !is_foreseeable(n, tn, tr) || !train_reserve(n, tn, tr))
        return false;
    kb_time drain = time_of(n, tn->slowest, tr);
    if (drain > FARTHEST)
        return false;
    append(n, index, t, start, drain);
    return true;
}

bool train_take(net *n, uint32_t t)
{
    const transfer *tr = transfer_at(n, t);
    const channel *ch = &n->channels[tr->source];
    if (n->options.no_elision || n->ports || n->watch || ch->first_transfer != ch->last_transfer)
        return false;
    uint32_t first = step_link(*paths_at(&n->paths, tr->path));
    if (n->claims[first] & CLAIM_TRAIN)
        return follow(n, n->train_on[first], t);
    return set_out(n, t);
}

void train_release(net *n, const train *tn)
{
    const uint32_t *step = paths_at(&n->paths, tn->path);
    uint32_t vcs = n->options.vcs;
    n->links[step_link(*step)].waited += tn->ended_waited;
    for (uint32_t i = 0; i < tn->steps; i++) {
        uint32_t at = step_link(step[i]);
        link *l = &n->links[at];
        l->bytes += tn->ended_bytes;
        if (vcs > 1 && i + 1 < tn->steps) /* each took the next channel: the longest unused one */
            l->turn = (uint8_t)((l->turn + tn->ended_legs) % vcs);
        n->claims[at] &= ~CLAIM_TRAIN;
    }
}

void train_retire(net *n, uint32_t index)
{
    const train *tn = train_at(n, index);
    KB_ASSERT(tn->first_leg == NONE);
    train_release(n, tn);
    paths_give(&n->paths, tn->path, tn->path_size);
    kb_pool_give(&n->trains, index);
}

void train_end_leg(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    uint32_t index = tr->train;
    train *tn = train_at(n, index);
    KB_ASSERT(tn->first_leg == t);
    tn->first_leg = tr->behind;
    tn->ended_legs++;
    tn->ended_bytes += tr->bytes;
    tn->ended_waited += tr->start - tr->ready_at;
    n->hops += (uint64_t)tr->packets * tr->steps;
    tr->train = NONE;
    if (tn->first_leg != NONE)
        return;
    tn->path_size = tr->path_size; /* the path is the train's now */
    tr->path = NONE;
}
