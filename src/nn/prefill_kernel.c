/*
 * prefill_kernel.c: causal attention of a PE's blocks of queries: see prefill.h.
 *
 * In each step the scores of a block and all keys of a chunk are in the TCM, so they have one
 * maximum and results need no rescaling. Only if the keys of a sequence are several chunks, m, l
 * and o of a block are kept from chunk to chunk: m is the maximum of the scores of a query, l the
 * sum of exponentials, o the sum of values weighted by them.
 *
 * The vector engine is the bottleneck: it computes maximum, difference and exponential of every
 * score. Other units do the rest. The matrix engine sums the exponentials, as a product with ones.
 * Scores of the next step are multiplied between the exponentials of this one, and the loads of the
 * step after it are in flight:
 *
 *     loads       | step 2              | step 3
 *     matrices    | scores 1, values 0  | scores 2, values 1
 *     vectors     | exponentials 0      | result 0, exponentials 1
 *
 * Only pieces at the diagonal, or at the edge of a window, are masked. K and V of such a piece are
 * loaded for the block, as many keys as it needs; those of whole tiles are kept for other blocks.
 */
#include "prefill.h"

#include <alloca.h>

#include "sequences.h"

/* A masked score: finite, so that the difference of two is not NaN. */
#define MASKED (-1e30)

enum {
    STEPS = 3,     /* in flight */
    NEW_TILES = 4, /* maximum of tiles that are loaded for a step */
};

/* A block of queries with its running results. */
typedef struct block {
    bool in_use;
    nn_sequence sequence;
    int64_t kv_head;
    int64_t token, tokens; /* among the added ones */
    int64_t head, heads;   /* query heads */
    int64_t key, end;      /* keys that any of its queries sees */
    int64_t keys_left;     /* of these, not yet in a step */
    tl_tensor q, m, l, o;  /* m, l, o: {0} before the first chunk */
} block;

/* Keys and values of a chunk: whole tiles, loaded at their first use. */
typedef struct chunk {
    int64_t sequence, kv_head, index; /* index -1: empty */
    int64_t steps;                    /* in flight that use it */
    tl_tensor keys[NN_MAX_TILES], values[NN_MAX_TILES];
} chunk;

/* Keys of a step that are multiplied together: a tile or a part of one. */
typedef struct piece {
    int64_t key, count;
    bool is_own; /* keys and values belong to the step and are freed with it */
    tl_tensor keys, values, scores;
} piece;

typedef struct step {
    block *of;
    chunk *from;
    bool is_last; /* the last step of its block */
    int64_t count;
    piece pieces[NN_MAX_TILES];
} step;

typedef struct kernel {
    const nn_prefill_plan *plan;
    nn_cache_tensors cache;
    tl_ptr q, out;
    nn_head_share share; /* of the current round */
    tl_tensor ones;      /* (tile, 1) */
    nn_page_slots slots;
    chunk chunks[STEPS];
    chunk *current;                        /* its slots have been read */
    block blocks[NN_MAX_KEPT + STEPS + 1]; /* of a batch, of steps, and `complete` */
    step steps[STEPS];                     /* a circular buffer */
    int64_t loaded, multiplied, done;      /* steps so far */
    block *complete;                       /* to be stored */
} kernel;

static step *step_at(kernel *k, int64_t number)
{
    return &k->steps[number % STEPS];
}

/* ---- Loads ---- */

static void load_queries(tl_context *tl, kernel *k, block *b)
{
    const nn_prefill_plan *plan = k->plan;
    int64_t dim = plan->cache.head_dim;
    const tp_rect at = {b->sequence.index * plan->prompt + b->token, b->tokens,
                        plan->q_column + b->head * dim, b->heads * dim};
    tl_tensor loaded = tp_load(tl, &plan->q, k->q, at);
    tl_tensor q = tl_reshape(loaded, tl_shape(b->tokens * b->heads, dim));
    tl_free(loaded);
    b->q = q;
    if (plan->scale == 1)
        return;
    tl_tensor scale = tl_full(tl_shape(1, 1), TL_F32, plan->scale); /* the product is f32 */
    b->q = tl_mul(q, scale);
    tl_free(scale);
    tl_free(q);
}

static void release_chunk(tl_context *tl, const kernel *k, chunk *c)
{
    if (c->steps > 0 || c == k->current || c->index < 0)
        return;
    for (int64_t i = 0; i < NN_MAX_TILES; i++) {
        if (c->keys[i].id == 0)
            continue;
        tl_free(c->keys[i]);
        tl_free(c->values[i]);
        c->keys[i] = c->values[i] = (tl_tensor){0};
    }
    c->index = -1;
}

/* Makes the chunk the current one, and reads the slots of its pages. */
static void enter_chunk(tl_context *tl, kernel *k, const block *b, int64_t index)
{
    chunk *last = k->current;
    int64_t first = index * k->plan->chunk;
    int64_t end = kb_min(first + k->plan->chunk, b->sequence.cached + b->sequence.added);
    if (last && last->index == index && last->sequence == b->sequence.index &&
        last->kv_head == b->kv_head)
        return;
    k->current = NULL;
    if (last)
        release_chunk(tl, k, last);
    for (int i = 0; i < STEPS && !k->current; i++)
        if (k->chunks[i].index < 0)
            k->current = &k->chunks[i];
    /* There are as many chunks as steps in flight, and the current chunk has no step yet. */
    KB_ASSERT(k->current);
    k->current->sequence = b->sequence.index;
    k->current->kv_head = b->kv_head;
    k->current->index = index;
    nn_read_page_slots(tl, &k->plan->cache, k->cache.table, &b->sequence, first, end - first,
                       &k->slots);
}

static void load_range(tl_context *tl, const kernel *k, const block *b, int64_t key, int64_t count,
                       tl_tensor *keys, tl_tensor *values)
{
    const nn_key_range range = {&b->sequence, b->kv_head, key, count};
    *keys = nn_load_keys(tl, &k->plan->cache, &k->cache, &k->slots, &range);
    *values = nn_load_values(tl, &k->plan->cache, &k->cache, &k->slots, &range);
}

/* A range of whole tiles of a chunk. */
typedef struct tile_range {
    int64_t first, end;
} tile_range;

/* The whole tiles that the block needs. Its other keys are parts of the tiles before and after. */
static tile_range find_tiles(const nn_prefill_plan *plan, const block *b, int64_t index)
{
    int64_t begin = index * plan->chunk;
    tile_range tiles = {.first = tl_cdiv(kb_max(b->key - begin, 0), plan->tile),
                        .end = kb_min(b->end - begin, plan->chunk) / plan->tile};
    tiles.end = kb_max(tiles.end, tiles.first);
    return tiles;
}

static piece *new_piece(step *s, int64_t key, int64_t count)
{
    piece *p = &s->pieces[s->count++];
    *p = (piece){.key = key, .count = count};
    s->of->keys_left -= count;
    return p;
}

static void add_tile(tl_context *tl, kernel *k, step *s, int64_t tile)
{
    chunk *c = k->current;
    int64_t count = k->plan->tile;
    piece *p = new_piece(s, c->index * k->plan->chunk + tile * count, count);
    if (c->keys[tile].id == 0)
        load_range(tl, k, s->of, p->key, count, &c->keys[tile], &c->values[tile]);
    p->keys = c->keys[tile];
    p->values = c->values[tile];
}

/* A part of a tile: keys from `key` to before `end`, if any. */
static void add_part(tl_context *tl, const kernel *k, step *s, int64_t key, int64_t end)
{
    if (key >= end)
        return;
    piece *p = new_piece(s, key, end - key);
    p->is_own = true;
    load_range(tl, k, s->of, key, end - key, &p->keys, &p->values);
}

static void add_parts(tl_context *tl, const kernel *k, step *s, const tile_range *tiles)
{
    int64_t begin = k->current->index * k->plan->chunk, tile = k->plan->tile;
    int64_t key = kb_max(s->of->key, begin), end = kb_min(s->of->end, begin + k->plan->chunk);
    int64_t first = begin + tiles->first * tile; /* without tiles it may be after the end */
    add_part(tl, k, s, key, kb_min(first, end));
    add_part(tl, k, s, kb_max(key, begin + tiles->end * tile), end);
}

/* ---- Scores ---- */

static void multiply_keys(tl_context *tl, const step *s, piece *p)
{
    p->scores = tl_dot(s->of->q, p->keys, .out_f32 = true);
    if (p->is_own)
        tl_free(p->keys);
}

/* Issues the scores of pieces `from` to before `to` of the next step, if any. */
static void multiply_next(tl_context *tl, kernel *k, int64_t from, int64_t to)
{
    if (k->multiplied == k->loaded)
        return;
    step *s = step_at(k, k->multiplied);
    for (int64_t i = from; i < to; i++)
        multiply_keys(tl, s, &s->pieces[i]);
    if (to < s->count)
        return;
    k->multiplied++;
    if (s->is_last)
        tl_free(s->of->q);
}

static int64_t next_count(kernel *k)
{
    return k->multiplied < k->loaded ? step_at(k, k->multiplied)->count : 0;
}

/* 1 where a query (first axis) sees a key (last axis): (tokens, 1, keys). */
static tl_tensor make_mask(tl_context *tl, const nn_prefill_plan *plan, const block *b,
                           const piece *p)
{
    tl_tensor result = {0};
    TL_SCOPE {
        int64_t first = b->sequence.cached + b->token;
        tl_tensor query =
            tl_reshape(tl_arange(first, first + b->tokens), tl_shape(b->tokens, 1, 1));
        tl_tensor key = tl_reshape(tl_arange(p->key, p->key + p->count), tl_shape(1, 1, p->count));
        tl_tensor seen = tl_le(key, query);
        if (plan->window > 0)
            seen = tl_mul(seen, tl_gt(key, tl_sub(query, plan->window)));
        tl_assign(&result, seen);
    }
    return result;
}

/* Sets the scores of keys that a query does not see to MASKED. */
static void mask_scores(tl_context *tl, const nn_prefill_plan *plan, const block *b, piece *p)
{
    int64_t first = b->sequence.cached + b->token;
    bool is_diagonal = p->key + p->count > first + 1;
    bool is_edge = plan->window > 0 && p->key <= first + b->tokens - 1 - plan->window;
    if (!is_diagonal && !is_edge)
        return;
    TL_SCOPE {
        tl_tensor each = tl_reshape(p->scores, tl_shape(b->tokens, b->heads, p->count));
        tl_tensor masked = tl_where(make_mask(tl, plan, b, p), each, MASKED);
        tl_assign(&p->scores, tl_reshape(masked, tl_shape(b->tokens * b->heads, p->count)));
    }
}

/* The maximum of the step's scores and of those of earlier chunks. */
static tl_tensor find_max(tl_context *tl, const kernel *k, step *s)
{
    tl_tensor max = {0};
    for (int64_t i = 0; i < s->count; i++) {
        mask_scores(tl, k->plan, s->of, &s->pieces[i]);
        TL_SCOPE {
            tl_tensor of_piece = tl_max(s->pieces[i].scores, 1);
            tl_tensor before = i == 0 ? s->of->m : max;
            tl_assign(&max, before.id != 0 ? tl_maximum(before, of_piece) : of_piece);
        }
    }
    return max;
}

/* ---- Exponentials and values ---- */

static void add_product(tl_context *tl, tl_tensor a, tl_tensor b, tl_tensor *sum)
{
    *sum = sum->id == 0 ? tl_dot(a, b, .out_f32 = true) : tl_dot(a, b, .acc = *sum);
}

/* Rescales l and o of earlier chunks to the new maximum. */
static void rescale(tl_context *tl, block *b, tl_tensor max)
{
    if (b->m.id != 0)
        TL_SCOPE {
            tl_tensor weight = tl_exp(tl_sub(b->m, max));
            tl_assign(&b->l, tl_mul(b->l, weight));
            tl_assign(&b->o, tl_mul(b->o, weight));
        }
    if (b->m.id != 0)
        tl_free(b->m);
    b->m = max;
}

static void add_piece(tl_context *tl, const kernel *k, block *b, piece *p)
{
    tl_tensor difference = tl_sub(p->scores, b->m);
    tl_free(p->scores);
    tl_tensor weights = tl_exp(difference);
    tl_free(difference);
    add_product(tl, weights, p->values, &b->o);
    tl_tensor ones = p->count < k->plan->tile ? tl_slice(k->ones, 0, 0, p->count) : k->ones;
    add_product(tl, weights, ones, &b->l);
    if (ones.id != k->ones.id)
        tl_free(ones);
    tl_free(weights);
    if (p->is_own)
        tl_free(p->values);
}

/* ---- Results ---- */

static void store_result(tl_context *tl, kernel *k)
{
    const nn_prefill_plan *plan = k->plan;
    block *b = k->complete;
    k->complete = NULL;
    if (!b)
        return;
    TL_SCOPE {
        int64_t dim = plan->cache.head_dim;
        const tp_rect at = {b->sequence.index * plan->prompt + b->token, b->tokens, b->head * dim,
                            b->heads * dim};
        tl_tensor o = tl_mul(b->o, tl_div(1, b->l));
        tl_tensor rounded = plan->out.dtype == KB_F32 ? o : tl_cast(o, plan->out.dtype);
        tp_store(tl, &plan->out, k->out, at, tl_reshape(rounded, tl_shape(at.rows, at.columns)));
    }
    tl_free(b->m);
    tl_free(b->l);
    tl_free(b->o);
    b->in_use = false;
}

/* Runs a step, and issues the scores of the next one. */
static void run_step(tl_context *tl, kernel *k)
{
    step *s = step_at(k, k->done);
    if (k->multiplied == k->done)
        multiply_next(tl, k, 0, s->count);
    tl_tensor max = find_max(tl, k, s);
    store_result(tl, k);
    rescale(tl, s->of, max);
    int64_t next = next_count(k), issued = 0;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t until = kb_min((i + 2) * next / s->count, next); /* one piece ahead */
        if (issued < next)
            multiply_next(tl, k, issued, until);
        issued = until;
        add_piece(tl, k, s->of, &s->pieces[i]);
    }
    if (s->is_last)
        k->complete = s->of;
    s->from->steps--;
    release_chunk(tl, k, s->from);
    k->done++;
}

static void run_all_steps(tl_context *tl, kernel *k)
{
    while (k->done < k->loaded)
        run_step(tl, k);
    store_result(tl, k);
}

/* ---- The blocks of a PE ---- */

static block *new_block(kernel *k)
{
    for (size_t i = 0;; i++)
        if (!k->blocks[i].in_use) {
            k->blocks[i] = (block){.in_use = true};
            return &k->blocks[i];
        }
}

/* Blocks that are processed chunk by chunk together. */
typedef struct batch {
    int64_t count;
    block *blocks[NN_MAX_KEPT];
} batch;

/* The tiles of the current chunk that a batch needs, in the order of their products. */
typedef struct tile_order {
    int64_t first, count;
    int64_t rotation; /* the first one to be multiplied, relative to `first` */
    int64_t group;    /* tiles that are multiplied with all blocks before the next group */
} tile_order;

/* The first tile in the memory of this PE, if any. Otherwise lanes begin at different tiles, evenly
 * spaced. */
static int64_t find_rotation(const kernel *k, const nn_sequence *sequence, int64_t tiles)
{
    const nn_cache_layout *layout = &k->plan->cache;
    int64_t page =
        k->share.lanes == layout->lanes ? nn_share_of_lane(layout, sequence, k->share.lane) : -1;
    if (tiles == 0)
        return 0;
    if (page >= 0)
        return page * layout->page_tokens / k->plan->tile % tiles;
    return k->share.lane * tiles / k->share.lanes;
}

/* If many tiles must be loaded, a small group of tiles is multiplied with all blocks of the batch
 * before the next group, so that loads are spread over the time of the batch. Otherwise each block
 * is multiplied with all tiles, which saves rescaling. */
static tile_order order_tiles(const kernel *k, const batch *of)
{
    tile_range all = {INT64_MAX, 0};
    int64_t missing = 0;
    for (int64_t i = 0; i < of->count; i++) {
        tile_range tiles = find_tiles(k->plan, of->blocks[i], k->current->index);
        if (tiles.first == tiles.end)
            continue;
        all.first = kb_min(all.first, tiles.first);
        all.end = kb_max(all.end, tiles.end);
    }
    for (int64_t tile = all.first; tile < all.end; tile++)
        missing += k->current->keys[tile].id == 0;
    tile_order order = {.first = all.first, .count = kb_max(0, all.end - all.first)};
    order.rotation = find_rotation(k, &of->blocks[0]->sequence, order.count);
    order.group = missing > NEW_TILES ? NEW_TILES : kb_max(order.count, 1);
    return order;
}

/* Adds a step of the block, if it needs any of the tiles `first` to before `end` of the order or,
 * after the last of these, parts of tiles. */
static void add_step(tl_context *tl, kernel *k, block *b, const tile_order *order, int64_t first,
                     int64_t end)
{
    if (k->loaded - k->done == STEPS)
        run_step(tl, k);
    if (b->q.id == 0)
        load_queries(tl, k, b);
    step *s = step_at(k, k->loaded);
    tile_range needed = find_tiles(k->plan, b, k->current->index);
    *s = (step){.of = b, .from = k->current};
    for (int64_t i = first; i < end; i++) {
        int64_t tile = order->first + (i + order->rotation) % order->count;
        if (tile >= needed.first && tile < needed.end)
            add_tile(tl, k, s, tile);
    }
    if (end == order->count)
        add_parts(tl, k, s, &needed);
    if (s->count == 0)
        return;
    s->is_last = b->keys_left == 0;
    s->from->steps++;
    k->loaded++;
}

static void run_batch(tl_context *tl, kernel *k, batch *of)
{
    int64_t chunk_keys = k->plan->chunk, key = INT64_MAX, end = 0;
    for (int64_t i = 0; i < of->count; i++) {
        key = kb_min(key, of->blocks[i]->key);
        end = kb_max(end, of->blocks[i]->end);
    }
    for (int64_t index = key / chunk_keys; index * chunk_keys < end; index++) {
        if (k->loaded - k->done == STEPS)
            run_step(tl, k); /* may release its chunk */
        enter_chunk(tl, k, of->blocks[0], index);
        tile_order order = order_tiles(k, of);
        int64_t first = 0;
        do {
            int64_t next = kb_min(first + order.group, order.count);
            for (int64_t i = 0; i < of->count; i++)
                add_step(tl, k, of->blocks[i], &order, first, next);
            first = next;
        } while (first < order.count);
    }
    of->count = 0;
}

static block *add_block(kernel *k, const nn_blocks *blocks, const nn_sequence *sequence,
                        int64_t kv_head, int64_t number)
{
    const nn_prefill_plan *plan = k->plan;
    int64_t part = number % blocks->head_parts;
    block *b = new_block(k);
    b->sequence = *sequence;
    b->kv_head = kv_head;
    b->token = number / blocks->head_parts * blocks->tokens;
    b->tokens = kb_min(blocks->tokens, sequence->added - b->token);
    b->head = kv_head * plan->cache.group + part * blocks->heads;
    b->heads = kb_min(blocks->heads, plan->cache.group - part * blocks->heads);
    b->end = sequence->cached + b->token + b->tokens;
    if (plan->window > 0)
        b->key = kb_max(0, sequence->cached + b->token + 1 - plan->window);
    b->keys_left = b->end - b->key;
    return b;
}

/* Stores 0 to rows of the prompt after the last token of a sequence. */
static void clear_rest(tl_context *tl, const kernel *k, const nn_sequence *sequence,
                       int64_t kv_head)
{
    const nn_prefill_plan *plan = k->plan;
    const nn_head_share *share = &k->share;
    int64_t rest = plan->prompt - sequence->added, width = plan->cache.group * plan->cache.head_dim;
    int64_t row = sequence->index * plan->prompt + sequence->added +
                  tl_part_begin(rest, share->lanes, share->lane);
    int64_t left = tl_part_size(rest, share->lanes, share->lane);
    int64_t at_a_time = kb_max(1, plan->rows / plan->cache.group);
    for (; left > 0; row += at_a_time, left -= at_a_time)
        TL_SCOPE {
            const tp_rect at = {row, kb_min(left, at_a_time), kv_head * width, width};
            tp_store(tl, &plan->out, k->out, at,
                     tl_zeros(tl_shape(at.rows, at.columns), plan->out.dtype));
        }
}

/* The number of blocks that share loads of tiles. 1 if all keys fit in the TCM and the exponentials
 * of a block take longer than its loads: then there is less rescaling. */
static int64_t choose_batch(const nn_prefill_plan *plan, const nn_blocks *blocks,
                            const nn_sequence *sequence)
{
    bool is_short = sequence->cached + sequence->added <= plan->chunk;
    double exponentials_ns = (double)(blocks->tokens * blocks->heads) * plan->ns_of_score;
    return is_short && exponentials_ns >= plan->ns_of_key ? 1 : plan->kept;
}

static int64_t count_blocks(const nn_blocks *blocks, const nn_sequence *sequence)
{
    return tl_cdiv(sequence->added, blocks->tokens) * blocks->head_parts;
}

/*
 * Runs the PE's blocks of a sequence and head. Each lane has about one block in each turn, and
 * longer blocks in earlier turns. Heads begin with different turns, so that not all PEs of the
 * device load the same rows of q at the same time. From there the order goes to the longest blocks,
 * and continues with the shorter ones: a step is never much longer than the previous one, which
 * hides its products, and the last step is short.
 */
static void run_sequence(tl_context *tl, kernel *k, const nn_blocks *blocks,
                         const nn_sequence *sequence, int64_t kv_head, int64_t before)
{
    batch of = {0};
    int64_t lanes = k->share.lanes, count = count_blocks(blocks, sequence);
    int64_t turns = tl_cdiv(count, lanes), first = turns > 0 ? kv_head % turns : 0;
    int64_t size = choose_batch(k->plan, blocks, sequence);
    for (int64_t n = 0; n < turns; n++) {
        int64_t turn = n <= first ? first - n : n;
        int64_t i = count - 1 - turn * lanes;
        for (int64_t end = kb_max(i - lanes, -1); i > end; i--) {
            if (nn_lane_of_block(lanes, before, count, i) != k->share.lane)
                continue;
            of.blocks[of.count++] = add_block(k, blocks, sequence, kv_head, i);
            if (of.count == size)
                run_batch(tl, k, &of);
        }
    }
    run_batch(tl, k, &of);
    clear_rest(tl, k, sequence, kv_head);
}

/* ---- The kernel ---- */

/* The blocks of all previous sequences, for one head. */
static int64_t count_before(tl_context *tl, nn_sequences *sequences, const nn_blocks *blocks,
                            int64_t index)
{
    int64_t count = 0;
    for (int64_t i = 0; i < index; i++)
        count += count_blocks(blocks, nn_get_sequence(tl, sequences, i));
    return count;
}

/* Heads begin with different sequences, for the same reason as with different turns. */
static void run_head(tl_context *tl, kernel *k, nn_sequences *sequences, const nn_blocks *blocks,
                     int64_t head)
{
    int64_t count = sequences->batch, kv_head = k->share.first_head + head;
    int64_t first = kv_head * count / k->plan->cache.kv_heads;
    int64_t others = head > 0 ? head * count_before(tl, sequences, blocks, count) : 0;
    int64_t before = count_before(tl, sequences, blocks, first);
    for (int64_t n = 0; n < count; n++) {
        int64_t index = (first + n) % count;
        const nn_sequence *sequence = nn_get_sequence(tl, sequences, index);
        if (index == 0)
            before = 0;
        run_sequence(tl, k, blocks, sequence, kv_head, others + before);
        before += count_blocks(blocks, sequence);
    }
}

static void run_kernel(tl_context *tl, kernel *k, int64_t pe)
{
    const nn_prefill_plan *plan = k->plan;
    nn_sequences sequences = {.records = k->cache.records, .batch = plan->cache.batch};
    int64_t tokens = nn_count_added(tl, &sequences);
    for (int64_t round = 0; nn_get_head_share(&plan->cache, pe, round, &k->share); round++) {
        nn_blocks blocks = nn_divide_queries(plan, &k->share, tokens);
        for (int64_t head = 0; head < k->share.heads; head++)
            run_head(tl, k, &sequences, &blocks, head);
    }
    run_all_steps(tl, k);
}

/* All PEs of the device have a copy of the records. */
KB_KERNEL(prefill, tl_ptr q, tl_ptr out, tl_ptr keys, tl_ptr values, tl_ptr records, tl_ptr table)
{
    kernel k = {.plan = tl_user(), .cache = {keys, values, records, table}, .q = q, .out = out};
    for (int i = 0; i < STEPS; i++)
        k.chunks[i].index = -1;
    k.slots.slots = alloca(sizeof(int64_t) * (size_t)(nn_count_page_slots(k.plan) + 1));
    k.ones = tl_full(tl_shape(k.plan->tile, 1), TL_F32, 1);
    run_kernel(tl, &k, tl_program_id(1) * k.plan->cache.pes_of_cube + tl_program_id(0));
}

const kb_kernel *nn_prefill_kernel(void)
{
    return &prefill;
}
