/*
 * contention.c: where a transfer waited, and behind whom. Of the links on its route that is the one
 * for which the other transfers under way at the time had most work, as that link made the queue;
 * packets may have stood further up the route.
 *
 * Transfers are in buckets by the time of their begin. The few that last much longer than most are
 * in a list of their own, so that a search need not begin long before its time.
 */
#include "path_private.h"

#include <stdlib.h>
#include <string.h>

enum { PER_BUCKET = 16, LONG = 32 /* times the mean */, CACHE_BITS = 12 };

/* What was found for a transfer holds for those of the same operation between the same nodes. */
typedef struct cached {
    uint64_t key;
    explain_contention is;
} cached;

struct explain_transfers {
    const explain_recorder *recorder;
    uint32_t *ids;
    size_t *first; /* of bucket b: ids from first[b] to first[b + 1] */
    size_t buckets;
    kb_time width, longest; /* of a bucket; of a transfer in one */
    KB_VEC(uint32_t) long_ones;
    explain_route mine, other;
    uint16_t *place; /* by link: its place on the route in hand, and 1; 0: it is not there */
    double *work;    /* of others, by place */
    uint64_t *counts;
    double most_work; /* of one transfer, at the place that turns out to be the queue: by place */
    double *most;
    uint32_t *most_id;
    cached cache[1 << CACHE_BITS];
};

static bool is_transfer(const explain_record *record)
{
    return record && record->known && record->node != TOPO_NONE && record->end > record->start;
}

/* ---- All transfers ----------------------------------------------------------------------- */

typedef void visit_fn(explain_transfers *t, uint32_t id, const explain_record *record, void *with);

static void visit_all(explain_transfers *t, visit_fn *fn, void *with)
{
    const explain_recorder *r = t->recorder;
    for (size_t b = 0; b < r->blocks.count; b++)
        for (size_t i = 0; r->blocks.items[b] && i < BLOCK; i++)
            if (is_transfer(&r->blocks.items[b][i]))
                fn(t, (uint32_t)(b * BLOCK + i), &r->blocks.items[b][i], with);
    for (size_t i = 0; i < r->late_capacity; i++)
        if (r->late_ids[i] != EXPLAIN_NONE && is_transfer(&r->late[i]))
            fn(t, r->late_ids[i], &r->late[i], with);
}

typedef struct census {
    uint64_t count;
    kb_time_sum time;
    kb_time last;
} census;

static void count_one(explain_transfers *t, uint32_t id, const explain_record *record, void *with)
{
    (void)t, (void)id;
    census *all = with;
    all->count++;
    all->time += record->end - record->start;
    all->last = record->start > all->last ? record->start : all->last;
}

static size_t bucket_of(const explain_transfers *t, kb_time time)
{
    if (time <= 0)
        return 0;
    size_t bucket = (size_t)(time / t->width);
    return bucket < t->buckets ? bucket : t->buckets - 1;
}

static bool is_long(const explain_transfers *t, const explain_record *record)
{
    return record->end - record->start > t->longest;
}

static void count_bucket(explain_transfers *t, uint32_t id, const explain_record *record,
                         void *with)
{
    bool *failed = with;
    if (is_long(t, record))
        *failed |= !kb_vec_push(&t->long_ones, id);
    else
        t->first[bucket_of(t, record->start) + 1]++;
}

static void fill_bucket(explain_transfers *t, uint32_t id, const explain_record *record, void *with)
{
    size_t *next = with;
    if (!is_long(t, record))
        t->ids[next[bucket_of(t, record->start)]++] = id;
}

static kb_error *sort_in(explain_transfers *t)
{
    census all = {0};
    visit_all(t, count_one, &all);
    t->buckets = all.count / PER_BUCKET + 1;
    t->width = all.last / (kb_time)t->buckets + 1;
    t->longest = all.count ? (kb_time)(all.time / (kb_time_sum)all.count) * LONG : 0;
    t->first = kb_alloc_zeroed(t->buckets + 1, sizeof *t->first);
    t->ids = kb_alloc_array(all.count + 1, sizeof *t->ids);
    size_t *next = kb_alloc_array(t->buckets + 1, sizeof *next);
    bool failed = !t->first || !t->ids || !next;
    if (!failed) {
        visit_all(t, count_bucket, &failed);
        for (size_t b = 0; b < t->buckets; b++)
            t->first[b + 1] += t->first[b];
        memcpy(next, t->first, (t->buckets + 1) * sizeof *next);
        visit_all(t, fill_bucket, next);
    }
    free(next);
    return failed ? kb_error_nomem() : NULL;
}

kb_error *explain_transfers_create(const explain_recorder *recorder, explain_transfers **out)
{
    *out = NULL;
    explain_transfers *t = kb_alloc_zeroed(1, sizeof *t);
    if (!t)
        return kb_error_nomem();
    size_t steps = 2 * (size_t)topo_machine_shape(recorder->machine)->max_steps;
    t->recorder = recorder;
    t->mine.steps = kb_alloc_array(steps, sizeof(uint32_t));
    t->other.steps = kb_alloc_array(steps, sizeof(uint32_t));
    t->place =
        kb_alloc_zeroed(topo_machine_graph(recorder->machine)->links.count + 1, sizeof *t->place);
    t->work = kb_alloc_array(steps, sizeof *t->work);
    t->counts = kb_alloc_array(steps, sizeof *t->counts);
    t->most = kb_alloc_array(steps, sizeof *t->most);
    t->most_id = kb_alloc_array(steps, sizeof *t->most_id);
    bool made = t->mine.steps && t->other.steps && t->place && t->work && t->counts && t->most &&
                t->most_id;
    kb_error *err = made ? sort_in(t) : kb_error_nomem();
    if (err)
        explain_transfers_destroy(t);
    else
        *out = t;
    return err;
}

void explain_transfers_destroy(explain_transfers *t)
{
    if (!t)
        return;
    kb_vec_fini(&t->long_ones);
    free(t->mine.steps);
    free(t->other.steps);
    free(t->place);
    free(t->work);
    free(t->counts);
    free(t->most);
    free(t->most_id);
    free(t->first);
    free(t->ids);
    free(t);
}

/* ---- One transfer ------------------------------------------------------------------------ */

/* What the other took of the links on the route in hand, while both were under way. */
static void add_other(explain_transfers *t, uint32_t id, const explain_record *mine, uint32_t my_id)
{
    const topo_graph *graph = topo_machine_graph(t->recorder->machine);
    const explain_record *other = explain_record_at(t->recorder, id);
    kb_time from = other->start > mine->start ? other->start : mine->start;
    kb_time to = other->end < mine->end ? other->end : mine->end;
    if (id == my_id || to <= from || other->bandwidth <= 0)
        return;
    explain_find_route(t->recorder, other, &t->other);
    if (t->other.slowest == TOPO_NONE)
        return;
    double share = (double)(to - from) / (double)(other->end - other->start);
    double bytes = (double)other->bandwidth * (double)topo_link_rate(graph, t->other.slowest);
    for (uint32_t i = t->other.data; i < t->other.count; i++) {
        uint32_t link = t->other.steps[i], place = t->place[link];
        if (place == 0)
            continue;
        double work = share * bytes / (double)topo_link_rate(graph, link);
        t->work[place - 1] += work;
        t->counts[place - 1]++;
        if (work > t->most[place - 1]) {
            t->most[place - 1] = work;
            t->most_id[place - 1] = id;
        }
    }
}

static void find(explain_transfers *t, uint32_t id, explain_contention *out)
{
    const explain_record *mine = explain_record_at(t->recorder, id);
    explain_find_route(t->recorder, mine, &t->mine);
    for (uint32_t i = t->mine.data; i < t->mine.count; i++) {
        t->place[t->mine.steps[i]] = (uint16_t)(i + 1);
        t->work[i] = t->most[i] = 0;
        t->counts[i] = 0;
    }
    size_t last = bucket_of(t, mine->end);
    for (size_t b = bucket_of(t, mine->start - t->longest); b <= last; b++)
        for (size_t i = t->first[b]; i < t->first[b + 1]; i++)
            add_other(t, t->ids[i], mine, id);
    for (size_t i = 0; i < t->long_ones.count; i++)
        add_other(t, t->long_ones.items[i], mine, id);
    for (uint32_t i = t->mine.data; i < t->mine.count; i++) {
        t->place[t->mine.steps[i]] = 0;
        if (t->work[i] <= (double)out->work)
            continue;
        *out = (explain_contention){.link = t->mine.steps[i],
                                    .transfers = t->counts[i],
                                    .record = t->most_id[i],
                                    .work = (kb_time)t->work[i]};
    }
}

kb_error *explain_contention_at(explain_transfers *t, uint32_t id, explain_contention *out)
{
    *out = (explain_contention){.link = TOPO_NONE};
    const explain_record *record = explain_record_at(t->recorder, id);
    if (!is_transfer(record))
        return NULL;
    uint64_t key = ((uint64_t)record->site << 48) ^ ((uint64_t)record->at << 24) ^ record->node ^
                   ((uint64_t)record->read << 63);
    cached *known = &t->cache[(key * 0x9e3779b97f4a7c15) >> (64 - CACHE_BITS)];
    if (known->key != key + 1) {
        find(t, id, out);
        *known = (cached){key + 1, *out};
    }
    *out = known->is;
    return NULL;
}

kb_error *explain_find_contention(const explain_recorder *recorder, uint32_t id,
                                  explain_contention *out)
{
    explain_transfers *transfers;
    KB_TRY(explain_transfers_create(recorder, &transfers));
    kb_error *err = explain_contention_at(transfers, id, out);
    explain_transfers_destroy(transfers);
    return err;
}
