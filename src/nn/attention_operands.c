/* attention_operands.c: checks of the matrices of attention. */
#include "attention_operands.h"

#include <inttypes.h>
#include <math.h>

kb_error *nn_begin_call(kb_context *ctx, const char *function, const nn_cache *cache,
                        uint32_t layer, double scale, nn_call *call)
{
    *call = (nn_call){.ctx = ctx, .function = function, .sip = cache->sip, .has_sip = true};
    if (layer >= cache->layers)
        return kb_error_new(KB_ERR_INPUT, "%s: layer %" PRIu32 ": the cache has %" PRIu32 " layers",
                            function, layer, cache->layers);
    if (!isfinite(scale))
        return kb_error_new(KB_ERR_INPUT, "%s: scale is %g: expected a finite number", function,
                            scale);
    return NULL;
}

static kb_error *check_size(const nn_call *call, const nn_cache *cache, const nn_operand *o,
                            const tp_view *view)
{
    int64_t batch = cache->layout.batch;
    bool is_wide =
        view->columns == o->columns || (o->or_columns > 0 && view->columns == o->or_columns);
    if (o->tokens > 0 && (!is_wide || view->rows != batch * o->tokens))
        return kb_error_new(
            KB_ERR_INPUT,
            "%s: %s is (%" PRId64 ", %" PRId64 "): expected (%" PRId64 ", %" PRId64 ")",
            call->function, o->name, view->rows, view->columns, batch * o->tokens, o->columns);
    if (!is_wide || view->rows == 0 || view->rows % batch != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s is (%" PRId64 ", %" PRId64 "): expected a multiple of %" PRId64
                            " rows, one part for each sequence of the cache, and %" PRId64
                            " columns",
                            call->function, o->name, view->rows, view->columns, batch, o->columns);
    return NULL;
}

kb_error *nn_view_operand(nn_call *call, const nn_cache *cache, const nn_operand *o, tp_view *view)
{
    rt_tensor_view seen;
    KB_TRY(nn_check_tensor(call, o->name, o->tensor, NN_DTYPE(cache->layout.dtype), &seen));
    KB_TRY(nn_make_view(call, o->name, o->tensor, o->by_cube, view));
    if (o->is_written && view->copies > 1)
        return kb_error_new(KB_ERR_INPUT, "%s: %s is replicated: expected a layout with one copy",
                            call->function, o->name);
    return check_size(call, cache, o, view);
}

kb_error *nn_check_added(const nn_call *call, const nn_cache *cache, int64_t tokens)
{
    for (int64_t b = 0; b < cache->layout.batch; b++) {
        int32_t added = cache->record_values[b * NN_RECORD + NN_ADDED];
        if (added > tokens)
            return kb_error_new(KB_ERR_INPUT,
                                "%s: %" PRId32 " tokens are added to sequence %" PRId64
                                ", which has %" PRId64 " row%s",
                                call->function, added, b, tokens, kb_plural((uint64_t)tokens));
    }
    return NULL;
}
