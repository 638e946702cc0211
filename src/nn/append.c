/* append.c: the host side of kb_kv_append(): checks, plan, launch. */
#include "append.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "attention_operands.h"
#include "nn_state.h"

static const char function[] = "kb_kv_append";

enum {
    /* The time of a load of a piece, if several are in flight; and of the cosine and sine of
     * angles, per 64 lanes. In ns on the default machine. They only affect how queries are divided.
     */
    LOAD_NS = 150,
    ANGLES_NS = 18,
    LANES = 64,
    TCM_SHARE = 96, /* bytes of TCM for each element of a piece: about ten f32 values of its size
                       exist at a time */
};

/* An estimate of the number of shards that a rectangle of this size covers. */
static int64_t count_pieces(const tp_view *view, int64_t rows, int64_t columns)
{
    tp_block block = tp_find_block(view, 0, 0);
    return (tl_cdiv(rows, block.at.rows) + (rows % block.at.rows != 0)) *
           (tl_cdiv(columns, block.at.columns) + (columns % block.at.columns != 0));
}

/* The number of parts of the query heads. With fewer parts a PE has fewer tokens and computes fewer
 * angles; but if columns are split over PEs, it loads from many of them. */
static int64_t choose_head_parts(const nn_append_plan *plan)
{
    const nn_cache_layout *layout = &plan->cache;
    int64_t best = 1, best_cost = INT64_MAX;
    for (int64_t parts = 1; parts <= layout->heads && parts <= layout->pes; parts *= 2) {
        int64_t tokens = tl_cdiv(layout->batch * plan->prompt, layout->pes / parts);
        int64_t columns = tl_cdiv(layout->heads, parts) * layout->head_dim;
        int64_t pieces =
            count_pieces(&plan->qkv, tokens, columns) + count_pieces(&plan->q, tokens, columns);
        int64_t work = tokens * columns / LANES;
        int64_t cost = pieces * LOAD_NS + tokens * plan->pairs * ANGLES_NS / LANES + 6 * work;
        if (cost < best_cost) {
            best_cost = cost;
            best = parts;
        }
    }
    return best;
}

/* Whether each PE of the device has a share of whole rows. */
static bool is_by_rows(const nn_cache_layout *layout, const tp_view *q)
{
    return q->tiling == KB_NOT_TILED && q->cube == KB_ROW_WISE && q->pe == KB_ROW_WISE &&
           q->cubes * q->pes == layout->pes && q->pes == layout->pes_of_cube;
}

static kb_error *make_plan(kb_context *ctx, const kb_kv_append_spec *spec, const nn_cache *cache,
                           nn_append_plan *plan)
{
    const nn_cache_layout *layout = &cache->layout;
    nn_call call;
    const nn_operand qkv = {.name = "qkv",
                            .tensor = spec->qkv,
                            .is_written = spec->q.id == 0,
                            .columns = (layout->heads + 2 * layout->kv_heads) * layout->head_dim};
    const nn_operand q = {.name = "q",
                          .tensor = spec->q,
                          .is_written = true,
                          .columns = layout->heads * layout->head_dim};
    memset(plan, 0, sizeof *plan);
    memcpy(&plan->cache, layout, sizeof *layout);
    KB_TRY(nn_begin_call(ctx, function, cache, spec->layer, spec->scale, &call));
    KB_TRY(nn_view_operand(&call, cache, &qkv, &plan->qkv));
    memcpy(&plan->q, &plan->qkv, sizeof plan->q);
    if (spec->q.id != 0)
        KB_TRY(nn_view_operand(&call, cache, &q, &plan->q));
    if (plan->q.rows != plan->qkv.rows)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: qkv has %" PRId64 " rows and q %" PRId64 ": expected the same",
                            function, plan->qkv.rows, plan->q.rows);
    plan->prompt = plan->qkv.rows / layout->batch;
    KB_TRY(nn_check_added(&call, cache, plan->prompt));
    plan->scale = spec->scale != 0 ? spec->scale : 1 / sqrt((double)layout->head_dim);
    plan->style = cache->rope.style;
    plan->pairs = nn_rope_pairs(&cache->rope, (uint32_t)layout->head_dim);
    plan->elements = (int64_t)kb_context_machine(ctx).tcm_bytes / TCM_SHARE;
    plan->q_by_rows = is_by_rows(layout, &plan->q);
    plan->head_parts = choose_head_parts(plan);
    return NULL;
}

kb_error *kb_kv_append(kb_context *ctx, const kb_kv_append_spec *spec)
{
    nn_cache *cache;
    nn_append_plan plan;
    const kb_kernel *kernel;
    kb_tensor frequencies;
    KB_TRY(nn_find_cache(ctx, function, spec->cache, &cache));
    KB_TRY(make_plan(ctx, spec, cache, &plan));
    KB_TRY(nn_get_frequencies(ctx, function, cache->sip, &cache->rope,
                              (uint32_t)cache->layout.head_dim, &frequencies));
    KB_TRY(nn_get_kernel(ctx, nn_append_kernel(), &plan, sizeof plan, &kernel));
    const kb_arg args[] = {kb_arg_tensor(spec->qkv),
                           kb_arg_tensor(spec->q.id != 0 ? spec->q : spec->qkv),
                           kb_arg_tensor(cache->keys[spec->layer]),
                           kb_arg_tensor(cache->values[spec->layer]),
                           kb_arg_tensor(cache->records),
                           cache->layout.is_paged ? kb_arg_tensor(cache->table) : kb_arg_integer(0),
                           plan.pairs > 0 ? kb_arg_tensor(frequencies) : kb_arg_integer(0)};
    const kb_launch_options options = {.name = spec->name ? spec->name : "kv_append",
                                       .stream = spec->stream,
                                       .request = spec->request};
    return kb_launch_args(ctx, &options, kernel, args, sizeof args / sizeof args[0]);
}
