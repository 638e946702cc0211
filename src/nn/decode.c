/* decode.c: attention of one new token for each sequence: host. See decode.h. */
#include "decode.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cache_layout.h"
#include "minmax.h"
#include "state.h"

static const char function[] = "kb_attention_decode";

/* ---- Sizes of tiles ---- */

enum {
    PIECE_TOKENS = 256, /* the TCM serves its keys while the exponentials of another one are made */
    TILE_TOKENS = 512,  /* few maxima and sums, and short enough to begin and end soon */
    TILES_IN_USE = NN_TILES_AHEAD + 2,
    UNIT_VALUES = 24, /* of (group, head_dim) in f32, that are in use at a time */
};

static kb_error *choose_tiles(kb_context *ctx, nn_decode_plan *plan)
{
    const nn_cache_layout *is = &plan->is;
    int64_t tcm = (int64_t)kb_context_machine(ctx).tcm_bytes, element = 4;
    int64_t units = UNIT_VALUES * is->group * is->head_dim * element;
    /* Keys and values; scores, differences and exponentials. */
    int64_t token = 2 * is->head_dim * (int64_t)kb_dtype_bytes(is->dtype) + 3 * is->group * element;
    int64_t tokens = (tcm - tcm / 8 - units) / (TILES_IN_USE * token);
    if (tokens < 1)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %" PRId64 " query heads of %" PRId64
                            " elements of a kv head do not fit in a TCM of %" PRId64 " bytes",
                            function, is->group, is->head_dim, tcm);
    plan->tile_tokens = nn_min(tokens, TILE_TOKENS);
    plan->piece_tokens = nn_min(plan->tile_tokens, PIECE_TOKENS);
    return NULL;
}

/* ---- Arguments ---- */

static kb_error *check_matrix(const nn_cache *cache, const char *what, const tp_view *view,
                              uint32_t sip, int64_t columns)
{
    const nn_cache_layout *is = &cache->is;
    if (view->rows != is->batch || view->columns != columns)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s is (%" PRId64 ", %" PRId64 "): expected (%" PRId64 ", %" PRId64
                            ")",
                            function, what, view->rows, view->columns, is->batch, columns);
    if (view->dtype != is->dtype)
        return kb_error_new(KB_ERR_INPUT, "%s: %s is %s and the cache %s", function, what,
                            kb_dtype_name(view->dtype), kb_dtype_name(is->dtype));
    if (sip != cache->sip)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s is on sip%" PRIu32 " and the cache on sip%" PRIu32, function,
                            what, sip, cache->sip);
    return NULL;
}

static kb_error *view_matrix(kb_context *ctx, const nn_cache *cache, const char *what,
                             kb_tensor tensor, bool by_cube, int64_t columns, tp_view *view)
{
    uint32_t sip = 0;
    kb_error *err =
        by_cube ? tp_view_make_by_cube(ctx, tensor, view) : tp_view_make(ctx, tensor, view);
    if (!err)
        err = kb_tensor_device(ctx, tensor, &sip);
    if (err)
        return kb_error_wrap(err, "%s: %s", function, what);
    return check_matrix(cache, what, view, sip, columns);
}

static kb_error *check_lengths(const nn_cache *cache)
{
    for (int64_t b = 0; b < cache->is.batch; b++)
        if (cache->record_values[b * NN_RECORD + NN_ADDED] > 1)
            return kb_error_new(KB_ERR_INPUT,
                                "%s: %" PRId32 " tokens are added to sequence %" PRId64
                                ": expected 1, or 0 if it is not active",
                                function, cache->record_values[b * NN_RECORD + NN_ADDED], b);
    return NULL;
}

static kb_error *make_plan(kb_context *ctx, const kb_attention_decode_spec *spec,
                           const nn_cache *cache, nn_decode_plan *plan)
{
    const nn_cache_layout *is = &cache->is;
    int64_t heads = is->heads + 2 * is->kv_heads, dim = is->head_dim;
    memset(plan, 0, sizeof *plan); /* padding too: plans are compared byte by byte */
    KB_TRY(view_matrix(ctx, cache, "qkv", spec->qkv, false, heads * dim, &plan->qkv));
    KB_TRY(
        view_matrix(ctx, cache, "out", spec->out, spec->out_by_cube, is->heads * dim, &plan->out));
    if (plan->out.copies > 1)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: out has %" PRId64 " copies: expected a layout with one, or "
                            "out_by_cube",
                            function, plan->out.copies);
    if (!isfinite(spec->scale))
        return kb_error_new(KB_ERR_INPUT, "%s: the scale is not finite", function);
    memcpy(&plan->is, is, sizeof *is);
    plan->window = spec->window;
    plan->scale = spec->scale != 0 ? spec->scale : 1 / sqrt((double)dim);
    plan->style = cache->rope.style;
    plan->pairs = nn_rope_pairs(&cache->rope, (uint32_t)dim);
    plan->names = cache->lane_names;
    return choose_tiles(ctx, plan);
}

/* ---- Bounds ---- */

static kb_time to_time(double ns)
{
    return (kb_time)(ns * (double)KB_NS);
}

kb_error *kb_attention_decode_bounds(kb_context *ctx, kb_kv_cache handle, uint32_t window,
                                     kb_attention_bounds *bounds)
{
    nn_cache *cache;
    *bounds = (kb_attention_bounds){0};
    KB_TRY(nn_find_cache(ctx, "kb_attention_decode_bounds", handle, &cache));
    const nn_cache_layout *is = &cache->is;
    const tp_pe_params pe = tp_get_pe_params(ctx);
    double pes = (double)is->pes, dim = (double)is->head_dim, keys = 0, read = 0;
    for (int64_t b = 0; b < is->batch; b++) {
        const int32_t *record = &cache->record_values[b * NN_RECORD];
        int64_t tokens = record[NN_ADDED] > 0 ? record[NN_CACHED] + 1 : 0;
        tokens = window > 0 ? nn_min(tokens, window) : tokens;
        keys += (double)tokens;
        read += (double)(tokens > 0 ? tokens - 1 : 0); /* the new one is not read */
    }
    double scores = keys * (double)is->heads;
    double products = 2 * scores * dim / (double)(pe.array_rows * pe.array_columns);
    bounds->cache_bytes =
        (uint64_t)(read * 2 * (double)is->kv_heads * dim) * kb_dtype_bytes(is->dtype);
    bounds->hbm = to_time((double)bounds->cache_bytes / pe.hbm_bytes_per_ns / pes);
    bounds->vector = to_time(scores * nn_score_cycles(ctx) / pe.vector_per_ns / pes);
    bounds->exponentials = to_time(scores * nn_exp_cycles(ctx) / pe.vector_per_ns / pes);
    bounds->matrix = to_time(products * pe.cycle_ns / pes);
    return NULL;
}

/* ---- The call ---- */

kb_error *kb_attention_decode(kb_context *ctx, const kb_attention_decode_spec *spec)
{
    nn_cache *cache;
    nn_decode_plan plan;
    const kb_kernel *kernel, unplanned = nn_decode_kernel();
    kb_tensor frequencies;
    KB_TRY(nn_find_cache(ctx, function, spec->cache, &cache));
    if (spec->layer >= cache->layers)
        return kb_error_new(KB_ERR_INPUT, "%s: layer %" PRIu32 ": the cache has %" PRIu32 " layers",
                            function, spec->layer, cache->layers);
    KB_TRY(check_lengths(cache));
    KB_TRY(make_plan(ctx, spec, cache, &plan));
    KB_TRY(nn_get_frequencies(ctx, function, cache->sip, &cache->rope, (uint32_t)cache->is.head_dim,
                              &frequencies));
    KB_TRY(nn_get_kernel(ctx, &unplanned, &plan, sizeof plan, &kernel));
    const kb_arg args[] = {
        kb_arg_tensor(spec->qkv),
        kb_arg_tensor(spec->out),
        kb_arg_tensor(cache->keys[spec->layer]),
        kb_arg_tensor(cache->values[spec->layer]),
        kb_arg_tensor(cache->records),
        cache->is.is_paged ? kb_arg_tensor(cache->table) : kb_arg_integer(0),
        frequencies.id != 0 ? kb_arg_tensor(frequencies) : kb_arg_integer(0),
    };
    const kb_launch_options options = {.name = spec->name ? spec->name : "attention_decode",
                                       .request = spec->request,
                                       .stream = spec->stream,
                                       .queues = cache->queues};
    return kb_launch_args(ctx, &options, kernel, args, sizeof args / sizeof args[0]);
}
