/*
 * cache_layout.c: how a cache is divided among PEs.
 *
 * Sequences are assigned to lanes in the order of their lengths, the longest first, each to the
 * lanes that have the fewest tokens. The split is the divisor of the number of lanes for which the
 * lane with the most tokens and the exchange of partial results have the shortest expected time.
 *
 * Slots are reserved for the capacity of each sequence. So sequences never move.
 */
#include "cache_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "minmax.h"
#include "pe/pe.h"
#include "rt/rt.h"

enum {
    TILE_TOKENS = 512, /* of a contiguous page: long enough for few commands, short enough for the
                          products of one to hide behind the loads of the next */
    TOKENS_MULTIPLE = 32,
};

/* What a step takes beside its keys, measured on the default machine: to begin and to end; for each
 * sequence of a PE that is shared; and for each PE that shares it. */
static const double begin_ns = 750, merge_ns = 350, merge_lane_ns = 8;

static int64_t round_up(int64_t n, int64_t multiple)
{
    return tl_cdiv(n, multiple) * multiple;
}

/* ---- Sequences to lanes ---- */

typedef struct entry {
    uint32_t length, sequence;
} entry;

typedef struct assignment {
    entry *entries;  /* the longest first */
    int64_t *tokens; /* by lane */
    int32_t *first;  /* by sequence */
    int64_t lanes, batch;
    int64_t most; /* tokens of the lane that has most */
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

static kb_error *make_assignment(const nn_cache_layout *is, const uint32_t *expected, assignment *a)
{
    *a = (assignment){.lanes = is->lanes, .batch = is->batch};
    a->entries = kb_alloc_array((size_t)is->batch, sizeof *a->entries);
    a->tokens = kb_alloc_array((size_t)is->lanes, sizeof *a->tokens);
    a->first = kb_alloc_array((size_t)is->batch, sizeof *a->first);
    if (!a->entries || !a->tokens || !a->first) {
        free_assignment(a);
        return kb_error_nomem();
    }
    for (int64_t b = 0; b < is->batch; b++)
        a->entries[b] = (entry){expected ? expected[b] : (uint32_t)is->capacity, (uint32_t)b};
    qsort(a->entries, (size_t)is->batch, sizeof *a->entries, by_length);
    return NULL;
}

/* Tokens of a sequence at one of its lanes. */
static int64_t tokens_of_share(int64_t length, int64_t page, int64_t split, int64_t share)
{
    int64_t pages = tl_cdiv(length, page), own = (pages - share + split - 1) / split;
    bool has_last = pages > 0 && (pages - 1) % split == share;
    return (pages > share ? own : 0) * page - (has_last ? pages * page - length : 0);
}

static int64_t most_tokens(const assignment *a, int64_t first, int64_t split)
{
    int64_t most = 0;
    for (int64_t share = 0; share < split; share++) {
        int64_t tokens = a->tokens[(first + share) % a->lanes];
        most = nn_max(most, tokens);
    }
    return most;
}

/* Chooses the first lane of each sequence. */
static void assign(assignment *a, int64_t page, int64_t split)
{
    int64_t step = a->lanes % split == 0 ? split : 1;
    a->most = 0;
    for (int64_t lane = 0; lane < a->lanes; lane++)
        a->tokens[lane] = 0;
    for (int64_t i = 0; i < a->batch; i++) {
        const entry *e = &a->entries[i];
        int64_t best = 0, fewest = INT64_MAX;
        for (int64_t first = 0; first < a->lanes; first += step) {
            int64_t tokens = most_tokens(a, first, split);
            if (tokens < fewest) {
                fewest = tokens;
                best = first;
            }
        }
        a->first[e->sequence] = (int32_t)best;
        for (int64_t share = 0; share < split; share++) {
            int64_t *tokens = &a->tokens[(best + share) % a->lanes];
            /* An empty sequence grows too: it counts as one token. */
            *tokens += tokens_of_share(e->length > 0 ? e->length : 1, page, split, share);
            a->most = nn_max(a->most, *tokens);
        }
    }
}

/* ---- The rule ---- */

double nn_score_cycles(const kb_context *ctx)
{
    const topo_pe_params *pe = &topo_machine_shape(rt_machine(ctx))->pe;
    return 3.0 * pe->math_cycles[PE_MATH_MOVE] + pe->math_cycles[PE_MATH_EXP];
}

double nn_exp_cycles(const kb_context *ctx)
{
    return topo_machine_shape(rt_machine(ctx))->pe.math_cycles[PE_MATH_EXP];
}

/* What a key takes. */
typedef struct costs {
    double hbm_ns, vector_ns;
} costs;

static costs costs_of_key(kb_context *ctx, const nn_cache_layout *is)
{
    const tp_pe_params pe = tp_get_pe_params(ctx);
    double bytes = 2.0 * (double)is->head_dim * (double)kb_dtype_bytes(is->dtype);
    return (costs){.hbm_ns = bytes / pe.hbm_bytes_per_ns,
                   .vector_ns = (double)is->group * nn_score_cycles(ctx) / pe.vector_per_ns};
}

static int64_t page_for(const nn_cache_layout *is, const kb_kv_cache_spec *spec, int64_t longest,
                        int64_t split)
{
    if (spec->page_tokens > 0)
        return spec->page_tokens;
    int64_t share = tl_cdiv(longest > 0 ? longest : is->capacity, split);
    int64_t pages = tl_cdiv(share, TILE_TOKENS);
    return nn_min(round_up(tl_cdiv(share, pages), TOKENS_MULTIPLE),
                  round_up(is->capacity, TOKENS_MULTIPLE));
}

static int64_t longest_of(const assignment *a)
{
    return a->entries[0].length;
}

/* The fullest lane reads its keys, or makes exponentials, whichever takes longer; of its last tile
 * it does both, one after the other. */
static double estimate(const costs *key, const nn_cache_layout *is, const kb_kv_cache_spec *spec,
                       assignment *a, int64_t split)
{
    assign(a, page_for(is, spec, longest_of(a), split), split);
    double each = key->hbm_ns > key->vector_ns ? key->hbm_ns : key->vector_ns;
    double last = (double)nn_min(a->most, TILE_TOKENS) * key->vector_ns;
    double shared = (double)tl_cdiv(is->batch * split, is->lanes);
    double merge = split > 1 ? shared * merge_ns + (double)split * merge_lane_ns : 0;
    return begin_ns + (double)a->most * each + last + merge;
}

static void choose_split(kb_context *ctx, const kb_kv_cache_spec *spec, nn_cache *cache,
                         assignment *a)
{
    nn_cache_layout *is = &cache->is;
    const costs key = costs_of_key(ctx, is);
    double best = 0;
    is->split = spec->split;
    for (int64_t split = 1; split <= is->lanes && spec->split == 0; split++) {
        if (is->lanes % split != 0 || split > NN_MAX_SPLIT)
            continue;
        double ns = estimate(&key, is, spec, a, split);
        if (split == 1 || ns < best) {
            best = ns;
            is->split = split;
        }
    }
    is->page_tokens = page_for(is, spec, longest_of(a), is->split);
    assign(a, is->page_tokens, is->split);
    char *rule = cache->info.rule;
    size_t room = sizeof cache->info.rule;
    if (spec->split > 0)
        snprintf(rule, room, "split %" PRId64 " of %" PRId64 " PEs of a head, as requested",
                 is->split, is->lanes);
    else if (is->lanes == 1)
        snprintf(rule, room, "no split: a kv head has one PE");
    else
        snprintf(rule, room,
                 "split %" PRId64 " of %" PRId64 " PEs of a head: the fullest PE has %" PRId64
                 " tokens, %.1f us expected",
                 is->split, is->lanes, a->most, best / 1000);
}

/* ---- Slots ---- */

static int64_t slots_of_sequence(const nn_cache_layout *is)
{
    return tl_cdiv(nn_pages_of(is, is->capacity), is->split);
}

/* Contiguous: the first slot of each sequence, the same at all of its lanes. */
static void assign_bases(nn_cache *cache, int64_t *used)
{
    const nn_cache_layout *is = &cache->is;
    for (int64_t b = 0; b < is->batch; b++) {
        int32_t *record = &cache->record_values[b * NN_RECORD];
        int64_t base = 0;
        for (int64_t share = 0; share < is->split; share++) {
            int64_t lane = (record[NN_FIRST] + share) % is->lanes;
            base = nn_max(base, used[lane]);
        }
        record[NN_BASE] = (int32_t)base;
        for (int64_t share = 0; share < is->split; share++)
            used[(record[NN_FIRST] + share) % is->lanes] = base + slots_of_sequence(is);
    }
}

/* Paged: each page takes the next slot of its lane. Sequences take turns, as if they grew together.
 */
static void assign_slots(nn_cache *cache, int64_t *used)
{
    const nn_cache_layout *is = &cache->is;
    for (int64_t page = 0; page < is->table_columns; page++)
        for (int64_t b = 0; b < is->batch; b++) {
            int64_t lane =
                (cache->record_values[b * NN_RECORD + NN_FIRST] + page % is->split) % is->lanes;
            cache->table_values[b * is->table_columns + nn_table_column(is, page)] =
                (int32_t)used[lane]++;
        }
}

/* The slots of all lanes are numbered anew, by a random permutation of 0 to slots - 1. */
static kb_error *shuffle_slots(nn_cache *cache, uint64_t seed)
{
    const nn_cache_layout *is = &cache->is;
    int32_t *at = kb_alloc_array((size_t)is->slots, sizeof *at);
    kb_rng rng;
    if (!at)
        return kb_error_nomem();
    kb_rng_init(&rng, seed);
    for (int64_t i = 0; i < is->slots; i++) {
        int64_t other = (int64_t)kb_rng_below(&rng, (uint64_t)i + 1);
        at[i] = at[other];
        at[other] = (int32_t)i;
    }
    for (int64_t i = 0; i < is->batch * is->table_columns; i++)
        cache->table_values[i] = at[cache->table_values[i]];
    free(at);
    return NULL;
}

static kb_error *check_slots(const nn_cache_layout *is)
{
    /* Slots, table and records are I32. */
    if (is->slots > INT32_MAX || is->batch * is->table_columns > INT32_MAX)
        return kb_error_new(KB_ERR_INPUT,
                            "%" PRId64 " sequences of %" PRId64 " tokens in pages of %" PRId64
                            ": too many pages",
                            is->batch, is->capacity, is->page_tokens);
    return NULL;
}

static kb_error *place_pages(nn_cache *cache, const kb_kv_cache_spec *spec, int64_t *used)
{
    nn_cache_layout *is = &cache->is;
    is->table_columns = is->is_paged ? slots_of_sequence(is) * is->split : 0;
    is->slots = is->batch * slots_of_sequence(is); /* at most */
    KB_TRY(check_slots(is));
    if (is->is_paged) {
        cache->table_values =
            kb_alloc_zeroed((size_t)(is->batch * is->table_columns), sizeof *cache->table_values);
        if (!cache->table_values)
            return kb_error_nomem();
        assign_slots(cache, used);
    } else {
        assign_bases(cache, used);
    }
    is->slots = 0;
    for (int64_t lane = 0; lane < is->lanes; lane++)
        is->slots = nn_max(is->slots, used[lane]);
    return is->is_paged && spec->page_seed != 0 ? shuffle_slots(cache, spec->page_seed) : NULL;
}

kb_error *nn_plan_cache(kb_context *ctx, const kb_kv_cache_spec *spec, nn_cache *cache)
{
    assignment a;
    nn_cache_layout *is = &cache->is;
    KB_TRY(make_assignment(is, spec->expected, &a));
    choose_split(ctx, spec, cache, &a);
    cache->record_values =
        kb_alloc_zeroed((size_t)(is->batch * NN_RECORD), sizeof *cache->record_values);
    int64_t *used = kb_alloc_zeroed((size_t)is->lanes, sizeof *used);
    kb_error *err;
    if (cache->record_values && used) {
        for (int64_t b = 0; b < is->batch; b++)
            cache->record_values[b * NN_RECORD + NN_FIRST] = a.first[b];
        err = place_pages(cache, spec, used);
    } else {
        err = kb_error_nomem();
    }
    free(used);
    free_assignment(&a);
    return err;
}
