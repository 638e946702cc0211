/*
 * append_kernel.c: a PE's part of kb_kv_append(): see append.h.
 *
 * The scale of the scores is multiplied into the cosines and sines of queries, so it needs no extra
 * pass over the queries. The loads of a piece are issued before the previous piece is rotated.
 */
#include "append.h"

#include <alloca.h>
#include <string.h>

#include "sequences.h"

/* Some tokens of a sequence, and some query heads or one kv head. */
typedef struct piece {
    nn_sequence sequence;
    int64_t token, tokens; /* among the added ones */
    int64_t head, heads;
    bool is_query;
    int64_t slot, lane; /* keys and values: of their page */
    tl_tensor x, v;     /* queries or keys; values */
    bool has_halves;    /* queries are loaded as halves instead of x, with: */
    nn_pairs halves;
    tl_ptr from, to;
    int64_t from_stride, to_stride; /* between tokens, in elements */
} piece;

typedef struct kernel {
    const nn_append_plan *plan;
    tl_ptr qkv, q, keys, values, table;
    tl_tensor frequencies;
    piece next; /* its loads have been issued; tokens 0: none */
} kernel;

/* ---- A piece ---- */

static tp_rect rect_of(const nn_append_plan *plan, const piece *p, int64_t first_head)
{
    int64_t dim = plan->cache.head_dim;
    return (tp_rect){p->sequence.index * plan->prompt + p->token, p->tokens,
                     (first_head + p->head) * dim, p->heads * dim};
}

/* If half heads are rotated with each other and each half is in one shard, the halves are loaded
 * and stored separately: then the vector engine need not split or concatenate heads. */
static bool find_halves(const kernel *k, piece *p)
{
    const nn_append_plan *plan = k->plan;
    const tp_rect at = rect_of(plan, p, 0);
    return p->is_query && plan->style == KB_ROPE_HALF_SPLIT &&
           2 * plan->pairs == plan->cache.head_dim &&
           tp_find_address(&plan->qkv, k->qkv, &at, &p->from, &p->from_stride) &&
           tp_find_address(&plan->q, k->q, &at, &p->to, &p->to_stride);
}

static void load_piece(tl_context *tl, const kernel *k, piece *p)
{
    const nn_append_plan *plan = k->plan;
    const nn_cache_layout *layout = &plan->cache;
    int64_t half_bytes = plan->pairs * (int64_t)kb_dtype_bytes(layout->dtype);
    p->has_halves = find_halves(k, p);
    if (p->has_halves) {
        const tl_dims shape = tl_shape(p->tokens, p->heads, plan->pairs);
        const tl_dims strides = tl_strides(p->from_stride, layout->head_dim, 1);
        p->halves.first = tl_load(p->from, shape, layout->dtype, .strides = strides);
        p->halves.second = tl_load(p->from + half_bytes, shape, layout->dtype, .strides = strides);
        return;
    }
    p->x = tp_load(tl, &plan->qkv, k->qkv, rect_of(plan, p, p->is_query ? 0 : layout->heads));
    if (!p->is_query)
        p->v = tp_load(tl, &plan->qkv, k->qkv, rect_of(plan, p, layout->heads + layout->kv_heads));
}

/* ---- Rotation ---- */

static void scale_angles(tl_context *tl, nn_angles *angles, double scale)
{
    const nn_angles scaled = {.cosines = tl_mul(angles->cosines, scale),
                              .sines = tl_mul(angles->sines, scale),
                              .minus_sines = tl_mul(angles->minus_sines, scale)};
    nn_free_angles(tl, angles);
    *angles = scaled;
}

/*
 * The angles of the tokens of the piece. If whole heads are rotated, those of queries are scaled.
 */
static nn_angles find_angles(tl_context *tl, const kernel *k, const piece *p)
{
    const nn_append_plan *plan = k->plan;
    int64_t first = p->sequence.cached + p->token;
    if (plan->pairs == 0)
        return (nn_angles){0};
    tl_tensor positions = tl_reshape(tl_arange(first, first + p->tokens), tl_shape(p->tokens, 1));
    nn_angles angles = nn_angles_of(tl, k->frequencies, plan->pairs, positions, p->tokens);
    if (p->is_query && 2 * plan->pairs == plan->cache.head_dim)
        scale_angles(tl, &angles, plan->scale);
    return angles;
}

static nn_heads heads_of(const nn_append_plan *plan, const piece *p)
{
    return (nn_heads){p->tokens, p->heads, plan->cache.head_dim, plan->style, plan->pairs};
}

/* Rotates, rounds and stores halves of queries. */
static void put_halves(tl_context *tl, const kernel *k, const piece *p)
{
    const nn_append_plan *plan = k->plan;
    const nn_heads heads = heads_of(plan, p);
    int64_t half_bytes = plan->pairs * (int64_t)kb_dtype_bytes(plan->cache.dtype);
    const tl_dims strides = tl_strides(p->to_stride, plan->cache.head_dim, 1);
    TL_SCOPE {
        nn_angles angles = find_angles(tl, k, p);
        nn_pairs turned = nn_rotate_pairs(tl, &heads, &p->halves, &angles);
        tl_tensor first = tp_cast(tl, turned.first, KB_F32, plan->cache.dtype);
        tl_tensor second = tp_cast(tl, turned.second, KB_F32, plan->cache.dtype);
        tl_store(p->to, first, .strides = strides);
        tl_store(p->to + half_bytes, second, .strides = strides);
    }
    tl_free(p->halves.first);
    tl_free(p->halves.second);
}

/* Queries or keys of the piece, rotated and rounded: (tokens * heads, head_dim). */
static tl_tensor rotate(tl_context *tl, const kernel *k, const piece *p)
{
    const nn_append_plan *plan = k->plan;
    const nn_heads heads = heads_of(plan, p);
    tl_tensor result = {0};
    TL_SCOPE {
        nn_angles angles = find_angles(tl, k, p);
        tl_tensor rotated = nn_rotate(tl, &heads, p->x, &angles);
        if (p->is_query && 2 * plan->pairs < plan->cache.head_dim)
            rotated = tl_mul(rotated, plan->scale);
        tl_assign(&result, tp_cast(tl, rotated, KB_F32, plan->cache.dtype));
    }
    return result;
}

static void store_queries(tl_context *tl, const kernel *k, const piece *p, tl_tensor rotated)
{
    const tp_rect at = rect_of(k->plan, p, 0);
    tl_tensor rows = tl_reshape(rotated, tl_shape(at.rows, at.columns));
    tp_store(tl, &k->plan->q, k->q, at, rows);
    tl_free(rows);
}

/* Keys become columns of their page, values rows. */
static void store_page(tl_context *tl, const kernel *k, const piece *p, tl_tensor rotated)
{
    const nn_cache_layout *layout = &k->plan->cache;
    int64_t bytes = (int64_t)kb_dtype_bytes(layout->dtype);
    int64_t page = nn_page_offset(layout, p->head, p->lane, p->slot);
    int64_t token = (p->sequence.cached + p->token) % layout->page_tokens;
    tl_store(k->values + page + token * layout->head_dim * bytes, p->v);
    tl_tensor columns = tl_transpose(rotated);
    tl_store(k->keys + page + token * bytes, columns,
             .strides = tl_strides(layout->page_tokens, 1));
    tl_free(columns);
}

static void finish_piece(tl_context *tl, const kernel *k, const piece *p)
{
    if (p->tokens == 0)
        return;
    if (p->has_halves) {
        put_halves(tl, k, p);
        return;
    }
    tl_tensor rotated = rotate(tl, k, p);
    tl_free(p->x);
    if (p->is_query) {
        store_queries(tl, k, p, rotated);
    } else {
        store_page(tl, k, p, rotated);
        tl_free(p->v);
    }
    tl_free(rotated);
}

/* Issues the loads of the piece, then finishes the previous piece. */
static void add_piece(tl_context *tl, kernel *k, piece p)
{
    load_piece(tl, k, &p);
    finish_piece(tl, k, &k->next);
    k->next = p;
}

/* ---- Queries ---- */

/* The queries of this PE: rows that it has, or a range of all added tokens. */
typedef struct query_share {
    bool by_rows;
    int64_t begin, end; /* rows, or tokens */
    int64_t before;     /* tokens of the previous sequences */
    int64_t head, heads;
} query_share;

static query_share find_queries(const nn_append_plan *plan, int64_t pe, int64_t tokens)
{
    const nn_cache_layout *layout = &plan->cache;
    if (plan->q_by_rows) {
        tp_block own =
            tp_get_block(&plan->q, pe / layout->pes_of_cube, pe % layout->pes_of_cube, 0);
        return (query_share){true, own.at.row, own.at.row + own.at.rows, 0, 0, layout->heads};
    }
    int64_t parts = layout->pes / plan->head_parts;
    int64_t part = pe / plan->head_parts, head_part = pe % plan->head_parts;
    query_share share = {.head = tl_part_begin(layout->heads, plan->head_parts, head_part),
                         .heads = tl_part_size(layout->heads, plan->head_parts, head_part)};
    if (part < parts) {
        share.begin = tl_part_begin(tokens, parts, part);
        share.end = share.begin + tl_part_size(tokens, parts, part);
    }
    return share;
}

static void add_queries(tl_context *tl, kernel *k, const nn_sequence *sequence, query_share *share)
{
    int64_t dim = k->plan->cache.head_dim;
    int64_t before = share->by_rows ? sequence->index * k->plan->prompt : share->before;
    int64_t token = kb_max(share->begin - before, 0);
    int64_t end = kb_min(share->end - before, sequence->added);
    int64_t heads = kb_min(share->heads, kb_max(1, k->plan->elements / dim));
    int64_t tokens = kb_max(1, k->plan->elements / (heads * dim));
    for (; token < end; token += tokens)
        for (int64_t head = 0; head < share->heads; head += heads)
            add_piece(tl, k,
                      (piece){.sequence = *sequence,
                              .token = token,
                              .tokens = kb_min(tokens, end - token),
                              .head = share->head + head,
                              .heads = kb_min(heads, share->heads - head),
                              .is_query = true});
    share->before += sequence->added;
}

/* ---- Keys and values ---- */

/* The pages of keys that this PE processes. */
typedef struct page_share {
    int64_t lane;
    bool is_shared; /* all lanes of a head, in turns */
    int64_t turn;
    int64_t tokens; /* of a piece, the maximum */
} page_share;

enum { MIN_KEYS = 4, MAX_KEYS = 64 /* of a piece */ };

/* Adds the new tokens of the sequence to the counts of the lanes that have their pages. */
static void count_tokens(const nn_cache_layout *layout, const nn_sequence *sequence,
                         int64_t *of_lanes)
{
    for (int64_t token = 0, tokens; token < sequence->added; token += tokens) {
        int64_t at = sequence->cached + token;
        tokens = kb_min(layout->page_tokens - at % layout->page_tokens, sequence->added - token);
        of_lanes[nn_lane_of_page(layout, sequence, at / layout->page_tokens)] += tokens;
    }
}

/* Whether one lane has too large a share of the tokens: then all lanes share them. */
static bool is_uneven(tl_context *tl, const nn_cache_layout *layout, nn_sequences *sequences)
{
    int64_t *of_lanes = alloca(sizeof *of_lanes * (size_t)layout->lanes), sum = 0, max = 0;
    memset(of_lanes, 0, sizeof *of_lanes * (size_t)layout->lanes);
    for (int64_t i = 0; i < layout->batch; i++)
        count_tokens(layout, nn_get_sequence(tl, sequences, i), of_lanes);
    for (int64_t lane = 0; lane < layout->lanes; lane++) {
        sum += of_lanes[lane];
        max = kb_max(max, of_lanes[lane]);
    }
    return 4 * max * layout->lanes > 5 * sum;
}

static int64_t slot_of(tl_context *tl, const kernel *k, const nn_sequence *sequence, int64_t page)
{
    const nn_cache_layout *layout = &k->plan->cache;
    int64_t slot;
    if (!layout->is_paged)
        return nn_contiguous_slot(layout, sequence, page);
    tl_tensor loaded =
        nn_load_slots(tl, layout, k->table, sequence->index, nn_table_column(layout, page), 1);
    nn_read_slots(tl, loaded, 1, &slot);
    return slot;
}

/* The new tokens of a page, from `token`. */
static void add_page(tl_context *tl, kernel *k, const nn_sequence *sequence, int64_t kv_head,
                     int64_t token, int64_t tokens, page_share *share)
{
    const nn_cache_layout *layout = &k->plan->cache;
    int64_t page = (sequence->cached + token) / layout->page_tokens, slot = -1;
    int64_t lane = nn_lane_of_page(layout, sequence, page);
    if (!share->is_shared && lane != share->lane)
        return;
    for (int64_t done = 0; done < tokens; done += share->tokens, share->turn++) {
        if (share->is_shared && share->turn % layout->lanes != share->lane)
            continue;
        if (slot < 0)
            slot = slot_of(tl, k, sequence, page);
        add_piece(tl, k,
                  (piece){.sequence = *sequence,
                          .token = token + done,
                          .tokens = kb_min(share->tokens, tokens - done),
                          .head = kv_head,
                          .heads = 1,
                          .slot = slot,
                          .lane = lane});
    }
}

static void add_keys(tl_context *tl, kernel *k, const nn_sequence *sequence, int64_t pe,
                     page_share *share)
{
    const nn_cache_layout *layout = &k->plan->cache;
    for (int64_t i = 0; i < layout->heads_of_pe; i++) {
        int64_t head = nn_head_at(layout, pe, i);
        for (int64_t token = 0, tokens; head >= 0 && token < sequence->added; token += tokens) {
            int64_t in_page = (sequence->cached + token) % layout->page_tokens;
            tokens = kb_min(layout->page_tokens - in_page, sequence->added - token);
            add_page(tl, k, sequence, head, token, tokens, share);
        }
    }
}

/* ---- The kernel ---- */

/* All PEs of the device have a copy of the records. */
KB_KERNEL(append, tl_ptr qkv, tl_ptr q, tl_ptr keys, tl_ptr values, tl_ptr records, tl_ptr table,
          tl_ptr frequencies)
{
    kernel k = {
        .plan = tl_user(), .qkv = qkv, .q = q, .keys = keys, .values = values, .table = table};
    const nn_cache_layout *layout = &k.plan->cache;
    nn_sequences sequences = {.records = records, .batch = layout->batch};
    int64_t pe = tl_program_id(1) * layout->pes_of_cube + tl_program_id(0);
    if (k.plan->pairs > 0)
        k.frequencies = nn_load_frequencies(tl, frequencies, k.plan->pairs);
    int64_t added = nn_count_added(tl, &sequences);
    query_share queries = find_queries(k.plan, pe, added);
    page_share pages = {.lane = nn_lane_of_pe(layout, pe),
                        .is_shared = is_uneven(tl, layout, &sequences)};
    pages.tokens = kb_min(MAX_KEYS, kb_max(MIN_KEYS, tl_cdiv(added, layout->lanes)));
    pages.tokens = kb_min(pages.tokens, kb_max(1, k.plan->elements / layout->head_dim));
    /* Heads begin with different sequences, so that not all PEs of the device load the same
     * rows of qkv at the same time. */
    int64_t first = kb_max(nn_head_at(layout, pe, 0), 0) * layout->batch / layout->kv_heads;
    for (int64_t i = 0; i < layout->batch; i++)
        add_keys(tl, &k, nn_get_sequence(tl, &sequences, (first + i) % layout->batch), pe, &pages);
    for (int64_t i = 0; i < layout->batch; i++)
        add_queries(tl, &k, nn_get_sequence(tl, &sequences, i), &queries);
    finish_piece(tl, &k, &k.next);
}

const kb_kernel *nn_append_kernel(void)
{
    return &append;
}
