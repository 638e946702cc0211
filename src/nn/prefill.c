/* prefill.c: the host side of causal attention of many tokens: checks, plan, launch. */
#include "prefill.h"

#include <inttypes.h>
#include <string.h>

#include "attention_operands.h"
#include "nn_state.h"

static const char function[] = "kb_attention_prefill";

static kb_error *make_plan(kb_context *ctx, const kb_attention_prefill_spec *spec,
                           const nn_cache *cache, nn_prefill_plan *plan)
{
    const nn_cache_layout *layout = &cache->layout;
    nn_call call;
    const nn_operand q = {.name = "q",
                          .tensor = spec->q,
                          .columns = layout->heads * layout->head_dim,
                          .or_columns = (layout->heads + 2 * layout->kv_heads) * layout->head_dim};
    const nn_operand out = {.name = "out",
                            .tensor = spec->out,
                            .by_cube = spec->out_by_cube,
                            .is_written = true,
                            .columns = layout->heads * layout->head_dim};
    memset(plan, 0, sizeof *plan);
    memcpy(&plan->cache, layout, sizeof *layout);
    KB_TRY(nn_begin_call(ctx, function, cache, spec->layer, spec->scale, &call));
    KB_TRY(nn_view_operand(&call, cache, &q, &plan->q));
    KB_TRY(nn_view_operand(&call, cache, &out, &plan->out));
    if (plan->q.rows != plan->out.rows)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: q has %" PRId64 " rows and out %" PRId64 ": expected the same",
                            function, plan->q.rows, plan->out.rows);
    plan->prompt = plan->q.rows / layout->batch;
    KB_TRY(nn_check_added(&call, cache, plan->prompt));
    plan->window = spec->window;
    plan->scale = spec->scale != 0 ? spec->scale : 1;
    const tp_pe_params pe = tp_get_pe_params(ctx);
    if (!nn_size_prefill(plan, &pe, nn_prefill_cycles(ctx)))
        return kb_error_new(KB_ERR_INPUT,
                            "%s: heads of %" PRId64 " elements do not fit in the TCM of a PE, "
                            "which has %" PRId64 " bytes",
                            function, layout->head_dim, pe.tcm_bytes);
    return NULL;
}

kb_error *kb_attention_prefill(kb_context *ctx, const kb_attention_prefill_spec *spec)
{
    nn_cache *cache;
    nn_prefill_plan plan;
    const kb_kernel *kernel;
    KB_TRY(nn_find_cache(ctx, function, spec->cache, &cache));
    KB_TRY(make_plan(ctx, spec, cache, &plan));
    KB_TRY(nn_get_kernel(ctx, nn_prefill_kernel(), &plan, sizeof plan, &kernel));
    const kb_arg args[] = {kb_arg_tensor(spec->q),
                           kb_arg_tensor(spec->out),
                           kb_arg_tensor(cache->keys[spec->layer]),
                           kb_arg_tensor(cache->values[spec->layer]),
                           kb_arg_tensor(cache->records),
                           cache->layout.is_paged ? kb_arg_tensor(cache->table)
                                                  : kb_arg_integer(0)};
    const kb_launch_options options = {.name = spec->name ? spec->name : "attention_prefill",
                                       .stream = spec->stream,
                                       .request = spec->request};
    return kb_launch_args(ctx, &options, kernel, args, sizeof args / sizeof args[0]);
}
