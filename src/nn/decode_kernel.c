/*
 * decode_kernel.c: a PE's part of the attention of one new token for each sequence.
 *
 * Units of a PE execute commands in order, so a command that waits delays those behind it. So the
 * tiles of all sequences go through one pipeline:
 *
 *     DMA       loads of tile t + 3
 *     matrix    scores of tile t + 1, then probabilities times values of tile t
 *     vector    maximum, exponentials and sum of tile t, then the result of tile t - 1
 *
 * The new token is not part of a tile. The vector engine computes its score, which is the first
 * value of the running maximum, sum and result. Its key and value are stored to the cache and not
 * read back.
 */
#include "decode.h"
#include "rows.h"

/* Products of a tile that are not added to the unit's result yet. */
typedef struct pending {
    nn_unit *unit; /* NULL: none */
    tl_tensor rescale;
    tl_tensor products[NN_TILE_PIECES];
    int64_t count;
    bool is_last;
} pending;

typedef struct decoder {
    nn_work work;
    nn_tile tiles[NN_TILES_AHEAD + 1]; /* loaded tiles, a circular buffer */
    int64_t loaded, done;
    bool has_more; /* there are more tiles to load */
    tl_tensor frequencies;
    pending last;
    nn_merge merge;
} decoder;

/* Replaces a value; the old one may be {0}. */
static void replace(tl_context *tl, tl_tensor *value, tl_tensor by)
{
    if (value->id != 0)
        tl_free(*value);
    *value = by;
}

static nn_tile *tile_at(decoder *d, int64_t index)
{
    return &d->tiles[index % (NN_TILES_AHEAD + 1)];
}

/* Pieces that are loaded and not used yet. */
static int64_t count_pieces_ahead(decoder *d)
{
    int64_t count = 0;
    for (int64_t i = d->done; i < d->loaded; i++)
        count += tile_at(d, i)->count;
    return count;
}

/* ---- Loads ---- */

static void load_keys(tl_context *tl, const nn_cache_layout *layout, nn_tile *tile)
{
    for (int64_t i = 0; i < tile->count; i++) {
        nn_piece *piece = &tile->pieces[i];
        piece->keys = tl_load(piece->key_address, tl_shape(layout->head_dim, piece->tokens),
                              layout->dtype, .strides = tl_strides(layout->page_tokens, 1));
    }
}

static void load_values(tl_context *tl, const nn_cache_layout *layout, nn_tile *tile)
{
    for (int64_t i = 0; i < tile->count; i++) {
        nn_piece *piece = &tile->pieces[i];
        piece->values =
            tl_load(piece->value_address, tl_shape(piece->tokens, layout->head_dim), layout->dtype);
    }
}

/* False if there is no further tile. */
static bool load_tile(tl_context *tl, decoder *d)
{
    nn_tile *tile = tile_at(d, d->loaded);
    if (!nn_next_tile(tl, &d->work, tile))
        return false;
    load_keys(tl, &d->work.plan->layout, tile);
    if (tile->is_first)
        nn_load_token(tl, &d->work, tile->unit);
    load_values(tl, &d->work.plan->layout, tile);
    d->loaded++;
    return true;
}

/* ---- The new token ---- */

/* Stores the new key and value, and initializes the unit's maximum, sum and result with them. */
static void add_new_token(tl_context *tl, const nn_work *work, nn_unit *unit, tl_tensor key)
{
    const nn_cache_layout *layout = &work->plan->layout;
    int64_t at = unit->s.cached % layout->page_tokens,
            element = (int64_t)kb_dtype_bytes(layout->dtype);
    int64_t offset = nn_page_offset(layout, unit->kv_head, work->lane, unit->new_slot);
    TL_SCOPE {
        tl_tensor column = tl_reshape(key, tl_shape(layout->head_dim, 1));
        tl_store(work->keys + offset + at * element, column,
                 .strides = tl_strides(layout->page_tokens, 1));
        tl_store(work->values + offset + at * layout->head_dim * element, unit->v);
        tl_tensor ones = tl_full(tl_shape(layout->group, 1), TL_F32, 1);
        tl_assign(&unit->max, tl_sum(tl_mul(unit->q, key), 1));
        tl_assign(&unit->result, tl_mul(ones, unit->v));
        tl_assign(&unit->sum, ones);
    }
    tl_free(unit->v);
}

/* Rotates queries and the new key. */
static void prepare_unit(tl_context *tl, const decoder *d, nn_unit *unit)
{
    const nn_decode_plan *plan = d->work.plan;
    const nn_cache_layout *layout = &plan->layout;
    nn_heads heads = {.tokens = 1,
                      .heads = layout->group,
                      .head_dim = layout->head_dim,
                      .style = plan->style,
                      .pairs = plan->pairs};
    nn_angles angles = {0};
    if (plan->pairs > 0)
        angles = nn_angles_at(tl, d->frequencies, plan->pairs, unit->s.cached);
    tl_tensor rotated = nn_rotate(tl, &heads, unit->q, &angles);
    replace(tl, &unit->q, tl_mul(rotated, plan->scale));
    tl_free(rotated);
    if (unit->has_new) {
        heads.heads = 1;
        tl_tensor wide = nn_rotate(tl, &heads, unit->k, &angles);
        tl_tensor key = tp_cast(tl, wide, KB_F32, layout->dtype);
        add_new_token(tl, &d->work, unit, key);
        tl_free(key);
        tl_free(unit->k);
    }
    if (plan->pairs > 0)
        nn_free_angles(tl, &angles);
}

/* ---- Tiles ---- */

static void make_score(tl_context *tl, const nn_unit *unit, nn_piece *piece)
{
    piece->scores = tl_dot(unit->q, piece->keys, .out_f32 = true);
    tl_free(piece->keys);
}

/* Updates the running maximum. Returns the factor for earlier sums; {0}: there are none. */
static tl_tensor take_maximum(tl_context *tl, nn_tile *tile)
{
    nn_unit *unit = tile->unit;
    tl_tensor max = tl_max(tile->pieces[0].scores, 1), rescale = {0};
    for (int64_t i = 1; i < tile->count; i++) {
        tl_tensor next = tl_max(tile->pieces[i].scores, 1);
        replace(tl, &max, tl_maximum(max, next));
        tl_free(next);
    }
    if (unit->max.id != 0) {
        replace(tl, &max, tl_maximum(unit->max, max));
        tl_tensor less = tl_sub(unit->max, max);
        rescale = tl_exp(less);
        tl_free(less);
    }
    replace(tl, &unit->max, max);
    return rescale;
}

/* Adds the sum of the exponentials. Consumes them. */
static void add_sums(tl_context *tl, nn_unit *unit, tl_tensor *exponentials, int64_t count,
                     tl_tensor rescale)
{
    tl_tensor sum = {0};
    for (int64_t i = 0; i < count; i++) {
        tl_tensor part = tl_sum(exponentials[i], 1);
        tl_free(exponentials[i]);
        tl_tensor both = i == 0 ? part : tl_add(sum, part);
        if (i > 0)
            tl_free(part);
        replace(tl, &sum, both);
    }
    if (rescale.id != 0)
        replace(tl, &sum, tl_fma(unit->sum, rescale, sum));
    replace(tl, &unit->sum, sum);
}

/*
 * Maximum, exponentials, sum, and the products with values, which are pending. An engine that
 * begins a command waits until the TCM has served the reads of other engines. Products read many
 * bytes, and only exponentials take longer than these reads. So all products, also those of the
 * scores of the next tile, are issued to begin with an exponential.
 */
static pending weigh_values(tl_context *tl, nn_tile *tile, nn_tile *next)
{
    nn_unit *unit = tile->unit;
    pending result = {.unit = unit, .count = tile->count, .is_last = tile->is_last};
    tl_tensor exponentials[NN_TILE_PIECES];
    if (tile->count > 0)
        result.rescale = take_maximum(tl, tile);
    for (int64_t i = 0; i < tile->count; i++) {
        nn_piece *piece = &tile->pieces[i];
        replace(tl, &piece->scores, tl_sub(piece->scores, unit->max));
    }
    for (int64_t i = 0; i < NN_TILE_PIECES; i++) {
        if (i < tile->count) {
            nn_piece *piece = &tile->pieces[i];
            exponentials[i] = tl_exp(piece->scores);
            tl_free(piece->scores);
            result.products[i] = tl_dot(exponentials[i], piece->values, .out_f32 = true);
            tl_free(piece->values);
        }
        if (next && i < next->count)
            make_score(tl, next->unit, &next->pieces[i]);
    }
    if (tile->count > 0)
        add_sums(tl, unit, exponentials, tile->count, result.rescale);
    return result;
}

/* Adds the products of a tile to the unit's result. */
static void add_products(tl_context *tl, pending *p)
{
    if (p->count == 0)
        return;
    tl_tensor total = p->products[0];
    for (int64_t i = 1; i < p->count; i++) {
        replace(tl, &total, tl_add(total, p->products[i]));
        tl_free(p->products[i]);
    }
    if (p->rescale.id != 0) {
        tl_tensor own = total;
        total = tl_fma(p->unit->result, p->rescale, own);
        tl_free(own);
        tl_free(p->rescale);
    }
    replace(tl, &p->unit->result, total);
}

/* ---- Results ---- */

void nn_store_heads(tl_context *tl, const nn_work *work, const nn_unit *unit, int64_t row,
                    int64_t rows, tl_tensor result)
{
    const nn_cache_layout *layout = &work->plan->layout;
    int64_t columns = rows * layout->head_dim;
    tl_tensor rounded = tp_cast(tl, result, KB_F32, layout->dtype);
    tl_tensor flat = tl_reshape(rounded, tl_shape(1, columns));
    nn_store_row(tl, &work->plan->out, work->out, unit->s.index,
                 (unit->kv_head * layout->group + row) * layout->head_dim, columns, flat);
    tl_free(flat);
    tl_free(rounded);
}

static void store_result(tl_context *tl, const nn_work *work, const nn_unit *unit)
{
    tl_tensor inverse = tl_div(1, unit->sum);
    nn_store_heads(tl, work, unit, 0, work->plan->layout.group, tl_mul(unit->result, inverse));
    tl_free(inverse);
}

/* Adds the pending products to the unit's result, which is stored or sent if it is complete. */
static void finish_pending(tl_context *tl, decoder *d)
{
    pending *p = &d->last;
    nn_unit *unit = p->unit;
    if (!unit)
        return;
    bool is_shared = p->is_last && unit->sharers > 1;
    if (is_shared) {
        nn_end_merge(tl, &d->work, &d->merge);
        nn_begin_merge(tl, &d->work, unit, &d->merge);
    }
    add_products(tl, p);
    if (is_shared)
        nn_send_results(tl, &d->work, unit, &d->merge);
    else if (p->is_last)
        store_result(tl, &d->work, unit);
    if (p->is_last) {
        tl_free(unit->max);
        tl_free(unit->sum);
        tl_free(unit->result);
    }
    p->unit = NULL;
}

/* Loads delay those behind them in the DMA, such as the first ones of the next sequence. So only as
 * many pieces are loaded ahead as keep the memory busy, but at least one tile. */
static void load_ahead(tl_context *tl, decoder *d)
{
    while (d->has_more && d->loaded - d->done < NN_TILES_AHEAD + 1 &&
           (d->loaded - d->done < 2 || count_pieces_ahead(d) <= NN_PIECES_AHEAD))
        d->has_more = load_tile(tl, d);
}

static void run_tiles(tl_context *tl, decoder *d)
{
    d->has_more = true;
    for (load_ahead(tl, d); d->done < d->loaded; d->done++) {
        nn_tile *tile = tile_at(d, d->done);
        if (d->done == 0) {
            prepare_unit(tl, d, tile->unit);
            for (int64_t i = 0; i < tile->count; i++)
                make_score(tl, tile->unit, &tile->pieces[i]);
        }
        load_ahead(tl, d);
        nn_tile *next = d->done + 1 < d->loaded ? tile_at(d, d->done + 1) : NULL;
        if (tile->is_last)
            tl_free(tile->unit->q);
        if (next && next->is_first)
            prepare_unit(tl, d, next->unit);
        pending products = weigh_values(tl, tile, next);
        finish_pending(tl, d);
        d->last = products;
    }
    finish_pending(tl, d);
    nn_end_merge(tl, &d->work, &d->merge);
}

KB_KERNEL(attention_decode, tl_ptr qkv, tl_ptr out, tl_ptr keys, tl_ptr values, tl_ptr records,
          tl_ptr table, tl_ptr frequencies)
{
    const nn_decode_plan *plan = tl_user();
    decoder d = {.work = {.plan = plan,
                          .qkv = qkv,
                          .out = out,
                          .keys = keys,
                          .values = values,
                          .records = records,
                          .table = table}};
    if (plan->pairs > 0)
        d.frequencies = nn_load_frequencies(tl, frequencies, plan->pairs);
    nn_begin_work(tl, &d.work);
    run_tiles(tl, &d);
}

kb_kernel nn_decode_kernel(void)
{
    return attention_decode;
}
