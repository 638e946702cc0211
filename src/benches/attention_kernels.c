/*
 * attention_kernels.c: attention over a ring of ranks, one per PE. attention_ring.h has the layout
 * of the tensors. m is the maximum of the scaled scores of a query, l the sum of their
 * exponentials, o the sum of the values weighted by these; all are f32.
 *
 * Messages of different shapes share the queues, and slots are reused while received values are
 * still unread. Both are safe: a received value has its own memory, and a send waits until its
 * value is computed.
 *
 * In each step receives are posted before sends, so a ring makes progress with one slot per queue,
 * and with messages of any number of slots.
 */
#include "attention_kernels.h"

#include <alloca.h>
#include <math.h>

/*
 * The maximum of an empty set of scores, and a masked score. Both are finite, so a difference is
 * never NaN; and exp(MASKED - NO_SCORE) is 0.
 */
#define NO_SCORE (-1e20)
#define MASKED (-1e30)

typedef struct triplet {
    tl_tensor m, l, o; /* (rows, 1), (rows, 1), (rows, dim) */
} triplet;

/* A ring, and the rank of this PE in it. */
typedef struct ring {
    int64_t ranks, rank;
    int64_t global_rank; /* among the ranks of all rings: selects its part of the tensors */
} ring;

static ring find_ring(tl_context *tl, int axis, int64_t ranks)
{
    int64_t global_rank = tl_program_id(axis);
    return (ring){.ranks = ranks, .rank = global_rank % ranks, .global_rank = global_rank};
}

/* The rank `steps` steps to the west: its eastward message arrives after that many steps. */
static int64_t rank_west(const ring *r, int64_t steps)
{
    return (r->rank - steps + r->ranks) % r->ranks;
}

static int64_t rank_east(const ring *r, int64_t steps)
{
    return (r->rank + steps) % r->ranks;
}

static int64_t max_part(int64_t count, int64_t ranks)
{
    int64_t max = tl_part_size(count, ranks, 0);
    return max > 0 ? max : 1;
}

static triplet no_keys(tl_context *tl, int64_t rows, int64_t dim)
{
    return (triplet){.m = tl_full(tl_shape(rows, 1), TL_F32, NO_SCORE),
                     .l = tl_zeros(tl_shape(rows, 1), TL_F32),
                     .o = tl_zeros(tl_shape(rows, dim), TL_F32)};
}

/* o / l. With at least one key l is 1 or more, because the weight of the largest score is 1.
 * Without keys both are 0, and so is the result. */
static tl_tensor normalize(tl_context *tl, const triplet *t, kb_dtype dtype)
{
    return tl_cast(tl_div(t->o, tl_maximum(t->l, 1e-30)), dtype);
}

/* ---- mlo: partial results circulate ------------------------------------------------------ */

typedef struct decode {
    int64_t heads, kv_heads, dim;
    int64_t keys, tile_keys; /* of this rank; the maximum of a product */
    kb_dtype dtype;
    tl_ptr q, k, v; /* this rank's parts of the tensors */
} decode;

/* 1 where a kv head (second axis) belongs to a head (first axis). */
static tl_tensor heads_mask(tl_context *tl, const decode *d)
{
    tl_tensor of_head = tl_div(tl_arange(0, d->heads), d->heads / d->kv_heads);
    return tl_eq(tl_reshape(of_head, tl_shape(d->heads, 1, 1)),
                 tl_reshape(tl_arange(0, d->kv_heads), tl_shape(1, d->kv_heads, 1)));
}

/* Prepares one product for the scores of all heads: each query (dim) is placed in the columns of
 * its kv head, among zeros (kv_heads * dim), and multiplied with K, which has all kv heads. */
static tl_tensor spread(tl_context *tl, const decode *d, tl_tensor q)
{
    tl_tensor each = tl_reshape(q, tl_shape(d->heads, 1, d->dim));
    tl_tensor all = tl_where(heads_mask(tl, d), each, 0);
    return tl_reshape(all, tl_shape(d->heads, d->kv_heads * d->dim));
}

/* The inverse for the second product, with the values of all kv heads. */
static tl_tensor gather_own(tl_context *tl, const decode *d, tl_tensor o)
{
    tl_tensor each = tl_reshape(o, tl_shape(d->heads, d->kv_heads, d->dim));
    tl_tensor own = tl_where(heads_mask(tl, d), each, 0);
    return tl_reshape(tl_sum(own, 1), tl_shape(d->heads, d->dim));
}

/* Merges triplets in the order of ranks, not of arrival, so that all ranks get the same bits. */
static triplet merge(tl_context *tl, const triplet *of_ranks, int64_t ranks)
{
    triplet all = {.m = of_ranks[0].m};
    for (int64_t i = 1; i < ranks; i++)
        all.m = tl_maximum(all.m, of_ranks[i].m);
    for (int64_t i = 0; i < ranks; i++)
        TL_SCOPE {
            const triplet *t = &of_ranks[i];
            tl_tensor weight = tl_exp(tl_sub(t->m, all.m));
            tl_assign(&all.l, i > 0 ? tl_fma(t->l, weight, all.l) : tl_mul(t->l, weight));
            tl_assign(&all.o, i > 0 ? tl_fma(t->o, weight, all.o) : tl_mul(t->o, weight));
        }
    return all;
}

/* The result for keys of this rank, from `first`: two products. */
static triplet attend_keys(tl_context *tl, const decode *d, tl_tensor q, int64_t first,
                           int64_t count)
{
    const double scale = 1 / sqrt((double)d->dim);
    const int64_t width = d->kv_heads * d->dim, bytes = (int64_t)kb_dtype_bytes(d->dtype);
    triplet t = {0};
    TL_SCOPE {
        tl_tensor scores = {0};
        TL_SCOPE {
            tl_tensor k = tl_load(d->k + first * bytes, tl_shape(width, count), d->dtype,
                                  .strides = tl_strides(d->keys, 1));
            tl_assign(&scores, tl_dot(q, k, .out_f32 = true));
        }
        tl_tensor v = tl_load(d->v + first * width * bytes, tl_shape(count, width), d->dtype);
        tl_assign(&t.m, tl_mul(tl_max(scores, 1), scale));
        tl_tensor e = tl_exp(tl_fma(scores, scale, tl_neg(t.m)));
        tl_assign(&t.l, tl_sum(e, 1));
        tl_tensor o = tl_dot(tl_cast(e, d->dtype), v, .out_f32 = true);
        tl_assign(&t.o, d->kv_heads > 1 ? gather_own(tl, d, o) : o);
    }
    return t;
}

/* The result for all keys of this rank. They are one tile if they fit in the TCM. */
static triplet attend_own_keys(tl_context *tl, const decode *d)
{
    if (d->keys == 0)
        return no_keys(tl, d->heads, d->dim);
    triplet sum = {0};
    tl_tensor q = tl_load(d->q, tl_shape(d->heads, d->dim), d->dtype);
    if (d->kv_heads > 1)
        TL_SCOPE {
            tl_assign(&q, spread(tl, d, q));
        }
    for (int64_t first = 0; first < d->keys; first += d->tile_keys)
        TL_SCOPE {
            int64_t left = d->keys - first, count = left < d->tile_keys ? left : d->tile_keys;
            triplet tile = attend_keys(tl, d, q, first, count);
            if (first > 0)
                tile = merge(tl, (const triplet[]){sum, tile}, 2);
            tl_assign(&sum.m, tile.m);
            tl_assign(&sum.l, tile.l);
            tl_assign(&sum.o, tile.o);
        }
    tl_free(q);
    return sum;
}

static triplet receive_triplet(tl_context *tl, const char *direction, const decode *d)
{
    triplet t;
    t.m = tl_recv_async(direction, tl_shape(d->heads, 1), TL_F32);
    t.l = tl_recv_async(direction, tl_shape(d->heads, 1), TL_F32);
    t.o = tl_recv_async(direction, tl_shape(d->heads, d->dim), TL_F32);
    return t;
}

static void send_triplet(tl_context *tl, const char *direction, const triplet *t)
{
    tl_send(direction, t->m);
    tl_send(direction, t->l);
    tl_send(direction, t->o);
}

/* Stores the triplet of a rank unless there is one already. Returns whether it was stored. */
static bool keep(triplet *of_rank, const triplet *t)
{
    bool is_new = of_rank->m.id == 0;
    if (is_new)
        *of_rank = *t;
    return is_new;
}

static void free_triplet(tl_context *tl, const triplet *t)
{
    tl_free(t->m);
    tl_free(t->l);
    tl_free(t->o);
}

/* A triplet that is forwarded, and then freed unless this rank keeps it. */
typedef struct relayed {
    triplet t;
    bool is_kept;
} relayed;

static void pass_on(tl_context *tl, const char *direction, relayed *now, const relayed *next)
{
    send_triplet(tl, direction, &now->t);
    if (!now->is_kept)
        free_triplet(tl, &now->t);
    *now = *next;
}

static void exchange(tl_context *tl, const ring *r, const decode *d, int64_t steps,
                     triplet *of_ranks)
{
    relayed eastward = {of_ranks[r->rank], true}, westward = eastward;
    for (int64_t step = 1; step <= steps; step++) {
        relayed from_west = {.t = receive_triplet(tl, "W", d)};
        relayed from_east = {.t = receive_triplet(tl, "E", d)};
        from_west.is_kept = keep(&of_ranks[rank_west(r, step)], &from_west.t);
        from_east.is_kept = keep(&of_ranks[rank_east(r, step)], &from_east.t);
        pass_on(tl, "E", &eastward, &from_west);
        pass_on(tl, "W", &westward, &from_east);
    }
}

KB_KERNEL(mlo, tl_ptr q, tl_ptr k, tl_ptr v, tl_ptr o, int axis, int64_t ranks, int64_t heads,
          int64_t kv_heads, int64_t dim, int64_t keys, int dtype, int64_t tile_keys, int64_t steps)
{
    ring r = find_ring(tl, axis, ranks);
    int64_t bytes = (int64_t)kb_dtype_bytes((kb_dtype)dtype);
    int64_t of_queries = r.global_rank * heads * dim * bytes;
    int64_t of_keys = r.global_rank * kv_heads * max_part(keys, ranks) * dim * bytes;
    decode d = {.heads = heads,
                .kv_heads = kv_heads,
                .dim = dim,
                .keys = tl_part_size(keys, ranks, r.rank),
                .tile_keys = tile_keys,
                .dtype = (kb_dtype)dtype,
                .q = q + of_queries,
                .k = k + of_keys,
                .v = v + of_keys};
    triplet *of_ranks = alloca((size_t)ranks * sizeof *of_ranks);
    for (int64_t i = 0; i < ranks; i++)
        of_ranks[i] = (triplet){0};
    of_ranks[r.rank] = attend_own_keys(tl, &d);
    exchange(tl, &r, &d, steps, of_ranks);
    triplet all = merge(tl, of_ranks, ranks);
    tl_store(o + of_queries, normalize(tl, &all, d.dtype));
}

const kb_kernel *attention_mlo_kernel(void)
{
    return &mlo;
}

/* ---- kv: keys and values circulate ------------------------------------------------------- */

/* The rows of a kv head are the queries of all heads that share it. A pass has as many rows as fit
 * in the TCM, with their results; all keys circulate once per pass. The rows of a pass are divided
 * into blocks, each of which is multiplied with a tile of keys. */
typedef struct prefill {
    int64_t kv_heads, dim;
    int64_t queries, first_query; /* of this rank, and their first position */
    int64_t all_keys, tile_keys;
    kb_dtype dtype;
    tl_ptr q, k, v, o; /* this rank's parts of the tensors */
    int64_t rows;      /* of a kv head on this rank */
    int64_t block_rows;
} prefill;

/* One circulation of all keys. */
typedef struct pass {
    int64_t kv_head;
    int64_t begin, end; /* rows; may be empty on ranks with fewer queries */
    int64_t blocks;
    tl_tensor q; /* (rows, dim) */
    triplet sums[ATTENTION_MAX_BLOCKS];
} pass;

/* Keys and values of a kv head: a tile of those of one rank. */
typedef struct tile {
    int64_t keys, first_key; /* their number, and the position of the first */
    tl_tensor k, v;          /* (dim, keys), (keys, dim) */
} tile;

static tile find_tile(const prefill *p, const ring *r, int64_t rank, int64_t number)
{
    int64_t of_rank = tl_part_size(p->all_keys, r->ranks, rank), before = number * p->tile_keys;
    int64_t left = of_rank > before ? of_rank - before : 0;
    return (tile){.keys = left < p->tile_keys ? left : p->tile_keys,
                  .first_key = tl_part_begin(p->all_keys, r->ranks, rank) + before};
}

/* A tile of this rank. */
static tile load_tile(tl_context *tl, const prefill *p, const ring *r, int64_t kv_head,
                      int64_t number)
{
    tile t = find_tile(p, r, r->rank, number);
    int64_t bytes = (int64_t)kb_dtype_bytes(p->dtype), before = number * p->tile_keys;
    int64_t keys = tl_part_size(p->all_keys, r->ranks, r->rank);
    if (t.keys == 0)
        return t;
    t.k = tl_load(p->k + (kv_head * p->dim * keys + before) * bytes, tl_shape(p->dim, t.keys),
                  p->dtype, .strides = tl_strides(keys, 1));
    t.v =
        tl_load(p->v + (before * p->kv_heads + kv_head) * p->dim * bytes, tl_shape(t.keys, p->dim),
                p->dtype, .strides = tl_strides(p->kv_heads * p->dim, 1));
    return t;
}

static void receive_tile(tl_context *tl, const prefill *p, tile *t)
{
    if (t->keys == 0)
        return;
    t->k = tl_recv_async("W", tl_shape(p->dim, t->keys), p->dtype);
    t->v = tl_recv_async("W", tl_shape(t->keys, p->dim), p->dtype);
}

static void send_tile(tl_context *tl, const tile *t)
{
    if (t->keys == 0)
        return;
    tl_send("E", t->k);
    tl_send("E", t->v);
}

static void free_tile(tl_context *tl, const tile *t)
{
    if (t->keys == 0)
        return;
    tl_free(t->k);
    tl_free(t->v);
}

/* A block of rows, and the first and last position of its queries. Row i of a kv head is query
 * i % queries. */
typedef struct block {
    int64_t begin, end;
    int64_t first_position, last_position;
} block;

static block find_block(const prefill *p, const pass *now, int64_t number)
{
    int64_t begin = now->begin + number * p->block_rows, end = begin + p->block_rows;
    block b = {.begin = begin, .end = end < now->end ? end : now->end};
    bool one_head = begin / p->queries == (b.end - 1) / p->queries;
    b.first_position = p->first_query + (one_head ? begin % p->queries : 0);
    b.last_position = p->first_query + (one_head ? (b.end - 1) % p->queries : p->queries - 1);
    return b;
}

/* Masks the scores of keys that come after their query. */
static tl_tensor mask_future(tl_context *tl, const prefill *p, const block *b, const tile *t,
                             tl_tensor scores)
{
    tl_tensor row = tl_arange(b->begin, b->end);
    tl_tensor query = tl_sub(row, tl_mul(tl_div(row, p->queries), p->queries));
    tl_tensor position = tl_reshape(tl_add(query, p->first_query), tl_shape(b->end - b->begin, 1));
    tl_tensor key =
        tl_reshape(tl_arange(t->first_key, t->first_key + t->keys), tl_shape(1, t->keys));
    return tl_where(tl_le(key, position), scores, MASKED);
}

/* Adds the keys of a tile to the running result of a block: two products. */
static void attend(tl_context *tl, const prefill *p, pass *now, int64_t number, const tile *t)
{
    const double scale = 1 / sqrt((double)p->dim);
    block b = find_block(p, now, number);
    triplet *sum = &now->sums[number];
    if (t->first_key > b.last_position)
        return;
    TL_SCOPE {
        tl_tensor m = {0}, e = {0};
        TL_SCOPE {
            tl_tensor q = tl_slice(now->q, 0, b.begin - now->begin, b.end - now->begin);
            tl_tensor scores = tl_dot(q, t->k, .out_f32 = true);
            if (t->first_key + t->keys - 1 > b.first_position)
                scores = mask_future(tl, p, &b, t, scores);
            tl_assign(&m, tl_maximum(sum->m, tl_mul(tl_max(scores, 1), scale)));
            tl_assign(&e, tl_exp(tl_fma(scores, scale, tl_neg(m))));
        }
        tl_tensor weight = tl_exp(tl_sub(sum->m, m));
        tl_tensor o = tl_dot(tl_cast(e, p->dtype), t->v, .out_f32 = true);
        tl_assign(&sum->l, tl_fma(sum->l, weight, tl_sum(e, 1)));
        tl_assign(&sum->o, tl_fma(sum->o, weight, o));
        tl_assign(&sum->m, m);
    }
}

/* Sends one tile of each rank around the ring, eastward. */
static void circulate_tile(tl_context *tl, const prefill *p, const ring *r, pass *now,
                           int64_t number)
{
    tile t = load_tile(tl, p, r, now->kv_head, number);
    for (int64_t step = 0; step < r->ranks; step++) {
        tile next = find_tile(p, r, rank_west(r, step + 1), number);
        if (step < r->ranks - 1) {
            receive_tile(tl, p, &next);
            send_tile(tl, &t);
        }
        for (int64_t i = 0; i < now->blocks && t.keys > 0; i++)
            attend(tl, p, now, i, &t);
        free_tile(tl, &t);
        t = next;
    }
}

static void run_pass(tl_context *tl, const prefill *p, const ring *r, pass *now)
{
    int64_t bytes = (int64_t)kb_dtype_bytes(p->dtype), row_bytes = p->dim * bytes;
    int64_t before = now->kv_head * p->rows * row_bytes; /* rows of other kv heads */
    int64_t tiles = tl_cdiv(tl_part_size(p->all_keys, r->ranks, 0), p->tile_keys);
    if (now->blocks > 0)
        now->q = tl_load(p->q + before + now->begin * row_bytes,
                         tl_shape(now->end - now->begin, p->dim), p->dtype);
    for (int64_t i = 0; i < now->blocks; i++) {
        block b = find_block(p, now, i);
        now->sums[i] = no_keys(tl, b.end - b.begin, p->dim);
    }
    for (int64_t i = 0; i < tiles; i++)
        circulate_tile(tl, p, r, now, i);
    for (int64_t i = 0; i < now->blocks; i++)
        TL_SCOPE {
            block b = find_block(p, now, i);
            tl_store(p->o + before + b.begin * row_bytes, normalize(tl, &now->sums[i], p->dtype));
        }
}

KB_KERNEL(kv, tl_ptr q, tl_ptr k, tl_ptr v, tl_ptr o, int axis, int64_t ranks, int64_t heads,
          int64_t kv_heads, int64_t dim, int64_t queries, int64_t keys, int dtype,
          int64_t tile_keys, int64_t block_rows, int64_t pass_rows)
{
    ring r = find_ring(tl, axis, ranks);
    int64_t bytes = (int64_t)kb_dtype_bytes((kb_dtype)dtype), group = heads / kv_heads;
    int64_t of_queries = r.global_rank * heads * max_part(queries, ranks) * dim * bytes;
    int64_t of_keys = r.global_rank * kv_heads * max_part(keys, ranks) * dim * bytes;
    prefill p = {.kv_heads = kv_heads,
                 .dim = dim,
                 .queries = tl_part_size(queries, ranks, r.rank),
                 .first_query = keys - queries + tl_part_begin(queries, ranks, r.rank),
                 .all_keys = keys,
                 .tile_keys = tile_keys,
                 .dtype = (kb_dtype)dtype,
                 .q = q + of_queries,
                 .k = k + of_keys,
                 .v = v + of_keys,
                 .o = o + of_queries,
                 .block_rows = block_rows};
    p.rows = group * p.queries;

    /* All ranks run as many passes as the rank with the most queries. */
    for (int64_t head = 0; head < kv_heads; head++)
        for (int64_t begin = 0; begin < group * max_part(queries, ranks); begin += pass_rows)
            TL_SCOPE {
                int64_t end = begin + pass_rows < p.rows ? begin + pass_rows : p.rows;
                pass now = {.kv_head = head, .begin = begin, .end = end};
                now.blocks = end > begin ? tl_cdiv(end - begin, p.block_rows) : 0;
                run_pass(tl, &p, &r, &now);
            }
}

const kb_kernel *attention_kv_kernel(void)
{
    return &kv;
}
