/* decode.c: attention of one new token for each sequence: the host side. See decode.h. */
#include "decode.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "attention_operands.h"
#include "nn_state.h"

static const char function[] = "kb_attention_decode";

/* ---- Sizes of tiles ---- */

enum {
    PIECE_TOKENS = 256, /* its keys are read from the TCM during exponentials of another piece */
    TILE_TOKENS = 512,  /* long, for few maxima and sums; short, for a short start and end */
    TILES_IN_USE = NN_TILES_AHEAD + 2,
    UNIT_VALUES = 24, /* values of (group, head_dim) in f32 that exist at a time */
};

static kb_error *choose_tiles(kb_context *ctx, nn_decode_plan *plan)
{
    const nn_cache_layout *layout = &plan->layout;
    int64_t tcm = (int64_t)kb_context_machine(ctx).tcm_bytes, element = 4;
    int64_t units = UNIT_VALUES * layout->group * layout->head_dim * element;
    /* Keys and values; scores, differences and exponentials. */
    int64_t token =
        2 * layout->head_dim * (int64_t)kb_dtype_bytes(layout->dtype) + 3 * layout->group * element;
    int64_t tokens = (tcm - tcm / 8 - units) / (TILES_IN_USE * token);
    if (tokens < 1)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %" PRId64 " query heads of %" PRId64
                            " elements of a kv head do not fit in a TCM of %" PRId64 " bytes",
                            function, layout->group, layout->head_dim, tcm);
    plan->tile_tokens = kb_min(tokens, TILE_TOKENS);
    plan->piece_tokens = kb_min(plan->tile_tokens, PIECE_TOKENS);
    return NULL;
}

/* ---- The plan ---- */

static kb_error *make_plan(kb_context *ctx, const kb_attention_decode_spec *spec,
                           const nn_cache *cache, nn_decode_plan *plan)
{
    const nn_cache_layout *layout = &cache->layout;
    int64_t dim = layout->head_dim;
    nn_call call;
    const nn_operand qkv = {.name = "qkv",
                            .tensor = spec->qkv,
                            .tokens = 1,
                            .columns = (layout->heads + 2 * layout->kv_heads) * dim};
    const nn_operand out = {.name = "out",
                            .tensor = spec->out,
                            .by_cube = spec->out_by_cube,
                            .is_written = true,
                            .tokens = 1,
                            .columns = layout->heads * dim};
    memset(plan, 0, sizeof *plan); /* padding too: plans are compared byte by byte */
    KB_TRY(nn_begin_call(ctx, function, cache, spec->layer, spec->scale, &call));
    KB_TRY(nn_check_added(&call, cache, 1));
    KB_TRY(nn_view_operand(&call, cache, &qkv, &plan->qkv));
    KB_TRY(nn_view_operand(&call, cache, &out, &plan->out));
    memcpy(&plan->layout, layout, sizeof *layout);
    plan->window = spec->window;
    plan->scale = spec->scale != 0 ? spec->scale : 1 / sqrt((double)dim);
    plan->style = cache->rope.style;
    plan->pairs = nn_rope_pairs(&cache->rope, (uint32_t)dim);
    plan->names = cache->lane_names;
    return choose_tiles(ctx, plan);
}

/* ---- The call ---- */

kb_error *kb_attention_decode(kb_context *ctx, const kb_attention_decode_spec *spec)
{
    nn_cache *cache;
    nn_decode_plan plan;
    const kb_kernel *kernel, unplanned = nn_decode_kernel();
    kb_tensor frequencies;
    KB_TRY(nn_find_cache(ctx, function, spec->cache, &cache));
    KB_TRY(make_plan(ctx, spec, cache, &plan));
    KB_TRY(nn_get_frequencies(ctx, function, cache->sip, &cache->rope,
                              (uint32_t)cache->layout.head_dim, &frequencies));
    KB_TRY(nn_get_kernel(ctx, &unplanned, &plan, sizeof plan, &kernel));
    const kb_arg args[] = {
        kb_arg_tensor(spec->qkv),
        kb_arg_tensor(spec->out),
        kb_arg_tensor(cache->keys[spec->layer]),
        kb_arg_tensor(cache->values[spec->layer]),
        kb_arg_tensor(cache->records),
        cache->layout.is_paged ? kb_arg_tensor(cache->table) : kb_arg_integer(0),
        frequencies.id != 0 ? kb_arg_tensor(frequencies) : kb_arg_integer(0),
    };
    const kb_launch_options options = {.name = spec->name ? spec->name : "attention_decode",
                                       .request = spec->request,
                                       .stream = spec->stream,
                                       .queues = cache->queues};
    return kb_launch_args(ctx, &options, kernel, args, sizeof args / sizeof args[0]);
}
