/*
 * cache_layout.c: chooses how a cache is divided among PEs.
 *
 * Sequences are assigned to lanes in the order of their lengths, longest first, each to the lanes
 * with the fewest tokens. The split is the divisor of the number of lanes with the shortest
 * expected time: that of the lane with the most tokens, and of the exchange of partial results.
 *
 * Invariant: slots are reserved for the capacity of each sequence, so sequences never move.
 */
#include "cache_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pe/pe.h"
#include "rt/rt.h"

enum {
    TILE_TOKENS = 512, /* of a contiguous page: long, for few commands; short enough that the
                          products of one page hide behind the loads of the next */
    TOKENS_MULTIPLE = 32,
};

/* The time of a step in addition to its keys, measured on the default machine: fixed; per shared
 * sequence of a PE; and per PE that shares it. */
static const double begin_ns = 750, merge_ns = 350, merge_lane_ns = 8;

/* ---- Assignment of sequences to lanes ---- */

typedef struct entry {
    uint32_t length, sequence;
} entry;

typedef struct assignment {
    entry *entries;  /* longest first */
    int64_t *tokens; /* by lane */
    int32_t *first;  /* by sequence */
    int64_t lanes, batch;
    int64_t max_tokens; /* of a lane */
} assignment;

static void free_assignment(assignment *a)
{
    free(a->entries);
    free(a->tokens);
    free(a->first);
}

static int by_length(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a->sequence < b->sequence ? -1 : 1;
}

static kb_error *make_assignment(const nn_cache_layout *layout, const uint32_t *expected,
                                 assignment *a)
{
    *a = (assignment){.lanes = layout->lanes, .batch = layout->batch};
    a->entries = kb_alloc_array((size_t)layout->batch, sizeof *a->entries);
    a->tokens = kb_alloc_array((size_t)layout->lanes, sizeof *a->tokens);
    a->first = kb_alloc_array((size_t)layout->batch, sizeof *a->first);
    if (!a->entries || !a->tokens || !a->first) {
        free_assignment(a);
        return kb_error_nomem();
    }
    for (int64_t b = 0; b < layout->batch; b++)
        a->entries[b] = (entry){expected ? expected[b] : (uint32_t)layout->capacity, (uint32_t)b};
    qsort(a->entries, (size_t)layout->batch, sizeof *a->entries, by_length);
    return NULL;
}

/* The tokens of a sequence on one of its lanes. */
static int64_t tokens_of_share(int64_t length, int64_t page, int64_t split, int64_t share)
{
    int64_t pages = tl_cdiv(length, page), own = (pages - share + split - 1) / split;
    bool has_last = pages > 0 && (pages - 1) % split == share;
    return (pages > share ? own : 0) * page - (has_last ? pages * page - length : 0);
}

static int64_t max_share_tokens(const assignment *a, int64_t first, int64_t split)
{
    int64_t max = 0;
    for (int64_t share = 0; share < split; share++) {
        int64_t tokens = a->tokens[(first + share) % a->lanes];
        max = kb_max(max, tokens);
    }
    return max;
}

/* Chooses the first lane of each sequence. */
static void assign(assignment *a, int64_t page, int64_t split)
{
    int64_t step = a->lanes % split == 0 ? split : 1;
    a->max_tokens = 0;
    for (int64_t lane = 0; lane < a->lanes; lane++)
        a->tokens[lane] = 0;
    for (int64_t i = 0; i < a->batch; i++) {
        const entry *e = &a->entries[i];
        int64_t best = 0, fewest = INT64_MAX;
        for (int64_t first = 0; first < a->lanes; first += step) {
            int64_t tokens = max_share_tokens(a, first, split);
            if (tokens < fewest) {
                fewest = tokens;
                best = first;
            }
        }
        a->first[e->sequence] = (int32_t)best;
        for (int64_t share = 0; share < split; share++) {
            int64_t *tokens = &a->tokens[(best + share) % a->lanes];
            /* An empty sequence counts as one token, because it grows. */
            *tokens += tokens_of_share(e->length > 0 ? e->length : 1, page, split, share);
            a->max_tokens = kb_max(a->max_tokens, *tokens);
        }
    }
}

/* ---- Choice of the split ---- */

double nn_score_cycles(const kb_context *ctx)
{
    const topo_pe_params *pe = &topo_machine_shape(rt_machine(ctx))->pe;
    return 3.0 * pe->math_cycles[PE_MATH_MOVE] + pe->math_cycles[PE_MATH_EXP];
}

double nn_exp_cycles(const kb_context *ctx)
{
    return topo_machine_shape(rt_machine(ctx))->pe.math_cycles[PE_MATH_EXP];
}

/* The time of a key. */
typedef struct costs {
    double hbm_ns, vector_ns;
} costs;

static costs costs_of_key(kb_context *ctx, const nn_cache_layout *layout)
{
    const tp_pe_params pe = tp_get_pe_params(ctx);
    double bytes = 2.0 * (double)layout->head_dim * (double)kb_dtype_bytes(layout->dtype);
    return (costs){.hbm_ns = bytes / pe.hbm_bytes_per_ns,
                   .vector_ns = (double)layout->group * nn_score_cycles(ctx) / pe.vector_per_ns};
}

static int64_t page_for(const nn_cache_layout *layout, const kb_kv_cache_spec *spec,
                        int64_t longest, int64_t split)
{
    if (spec->page_tokens > 0)
        return spec->page_tokens;
    int64_t share = tl_cdiv(longest > 0 ? longest : layout->capacity, split);
    int64_t pages = tl_cdiv(share, TILE_TOKENS);
    return kb_min(KB_ROUND_UP(tl_cdiv(share, pages), TOKENS_MULTIPLE),
                  KB_ROUND_UP(layout->capacity, TOKENS_MULTIPLE));
}

static int64_t longest_of(const assignment *a)
{
    return a->entries[0].length;
}

/* The lane with the most tokens reads its keys, or computes exponentials, whichever takes longer;
 * for its last tile it does both, one after the other. */
static double estimate(const costs *key, const nn_cache_layout *layout,
                       const kb_kv_cache_spec *spec, assignment *a, int64_t split)
{
    assign(a, page_for(layout, spec, longest_of(a), split), split);
    double each = key->hbm_ns > key->vector_ns ? key->hbm_ns : key->vector_ns;
    double last = (double)kb_min(a->max_tokens, TILE_TOKENS) * key->vector_ns;
    double shared = (double)tl_cdiv(layout->batch * split, layout->lanes);
    double merge = split > 1 ? shared * merge_ns + (double)split * merge_lane_ns : 0;
    return begin_ns + (double)a->max_tokens * each + last + merge;
}

static void choose_split(kb_context *ctx, const kb_kv_cache_spec *spec, nn_cache *cache,
                         assignment *a)
{
    nn_cache_layout *layout = &cache->layout;
    const costs key = costs_of_key(ctx, layout);
    double best = 0;
    layout->split = spec->split;
    for (int64_t split = 1; split <= layout->lanes && spec->split == 0; split++) {
        if (layout->lanes % split != 0 || split > NN_MAX_SPLIT)
            continue;
        double ns = estimate(&key, layout, spec, a, split);
        if (split == 1 || ns < best) {
            best = ns;
            layout->split = split;
        }
    }
    layout->page_tokens = page_for(layout, spec, longest_of(a), layout->split);
    assign(a, layout->page_tokens, layout->split);
    char *rule = cache->info.rule;
    size_t room = sizeof cache->info.rule;
    if (spec->split > 0)
        snprintf(rule, room, "split %" PRId64 " of %" PRId64 " PEs of a head, as requested",
                 layout->split, layout->lanes);
    else if (layout->lanes == 1)
        snprintf(rule, room, "no split: a kv head has one PE");
    else
        snprintf(rule, room,
                 "split %" PRId64 " of %" PRId64 " PEs of a head: the fullest PE has %" PRId64
                 " tokens, %.1f us expected",
                 layout->split, layout->lanes, a->max_tokens, best / 1000);
}

/* ---- Slots ---- */

static int64_t slots_of_sequence(const nn_cache_layout *layout)
{
    return tl_cdiv(nn_pages_of(layout, layout->capacity), layout->split);
}

/* Contiguous: the first slot of each sequence, equal on all of its lanes. */
static void assign_bases(nn_cache *cache, int64_t *used)
{
    const nn_cache_layout *layout = &cache->layout;
    for (int64_t b = 0; b < layout->batch; b++) {
        int32_t *record = &cache->record_values[b * NN_RECORD];
        int64_t base = 0;
        for (int64_t share = 0; share < layout->split; share++) {
            int64_t lane = (record[NN_FIRST] + share) % layout->lanes;
            base = kb_max(base, used[lane]);
        }
        record[NN_BASE] = (int32_t)base;
        for (int64_t share = 0; share < layout->split; share++)
            used[(record[NN_FIRST] + share) % layout->lanes] = base + slots_of_sequence(layout);
    }
}

/*
 * Paged: each page takes the next slot of its lane. Sequences alternate, as if they grew together.
 */
static void assign_slots(nn_cache *cache, int64_t *used)
{
    const nn_cache_layout *layout = &cache->layout;
    for (int64_t page = 0; page < layout->table_columns; page++)
        for (int64_t b = 0; b < layout->batch; b++) {
            int64_t lane = (cache->record_values[b * NN_RECORD + NN_FIRST] + page % layout->split) %
                           layout->lanes;
            cache->table_values[b * layout->table_columns + nn_table_column(layout, page)] =
                (int32_t)used[lane]++;
        }
}

/* Renumbers the slots by a random permutation of 0 to slots - 1. */
static kb_error *shuffle_slots(nn_cache *cache, uint64_t seed)
{
    const nn_cache_layout *layout = &cache->layout;
    int32_t *at = kb_alloc_array((size_t)layout->slots, sizeof *at);
    kb_rng rng;
    if (!at)
        return kb_error_nomem();
    kb_rng_init(&rng, seed);
    for (int64_t i = 0; i < layout->slots; i++) {
        int64_t other = (int64_t)kb_rng_below(&rng, (uint64_t)i + 1);
        at[i] = at[other];
        at[other] = (int32_t)i;
    }
    for (int64_t i = 0; i < layout->batch * layout->table_columns; i++)
        cache->table_values[i] = at[cache->table_values[i]];
    free(at);
    return NULL;
}

static kb_error *check_slots(const nn_cache_layout *layout)
{
    /* Slots, table and records are I32. */
    if (layout->slots > INT32_MAX || layout->batch * layout->table_columns > INT32_MAX)
        return kb_error_new(KB_ERR_INPUT,
                            "%" PRId64 " sequences of %" PRId64 " tokens in pages of %" PRId64
                            ": too many pages",
                            layout->batch, layout->capacity, layout->page_tokens);
    return NULL;
}

static kb_error *place_pages(nn_cache *cache, const kb_kv_cache_spec *spec, int64_t *used)
{
    nn_cache_layout *layout = &cache->layout;
    layout->table_columns = layout->is_paged ? slots_of_sequence(layout) * layout->split : 0;
    layout->slots = layout->batch * slots_of_sequence(layout); /* at most */
    KB_TRY(check_slots(layout));
    if (layout->is_paged) {
        cache->table_values = kb_alloc_zeroed((size_t)(layout->batch * layout->table_columns),
                                              sizeof *cache->table_values);
        if (!cache->table_values)
            return kb_error_nomem();
        assign_slots(cache, used);
    } else {
        assign_bases(cache, used);
    }
    layout->slots = 0;
    for (int64_t lane = 0; lane < layout->lanes; lane++)
        layout->slots = kb_max(layout->slots, used[lane]);
    return layout->is_paged && spec->page_seed != 0 ? shuffle_slots(cache, spec->page_seed) : NULL;
}

kb_error *nn_plan_cache(kb_context *ctx, const kb_kv_cache_spec *spec, nn_cache *cache)
{
    assignment a;
    nn_cache_layout *layout = &cache->layout;
    KB_TRY(make_assignment(layout, spec->expected, &a));
    choose_split(ctx, spec, cache, &a);
    cache->record_values =
        kb_alloc_zeroed((size_t)(layout->batch * NN_RECORD), sizeof *cache->record_values);
    int64_t *used = kb_alloc_zeroed((size_t)layout->lanes, sizeof *used);
    kb_error *err;
    if (cache->record_values && used) {
        for (int64_t b = 0; b < layout->batch; b++)
            cache->record_values[b * NN_RECORD + NN_FIRST] = a.first[b];
        err = place_pages(cache, spec, used);
    } else {
        err = kb_error_nomem();
    }
    free(used);
    free_assignment(&a);
    return err;
}
