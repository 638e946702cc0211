/* operands.c: checks of the matrices of attention. */
#include "operands.h"

#include <inttypes.h>
#include <math.h>

static kb_error *check_place(kb_context *ctx, const nn_cache *cache, const nn_operand *o,
                             const tp_view *view)
{
    uint32_t sip;
    KB_TRY(kb_tensor_device(ctx, o->tensor, &sip));
    if (sip != cache->sip)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s is on sip%" PRIu32 " and the cache on sip%" PRIu32
                            ": expected one device",
                            o->function, o->name, sip, cache->sip);
    if (view->dtype != cache->is.dtype)
        return kb_error_new(KB_ERR_INPUT, "%s: %s is %s and the cache %s: expected one dtype",
                            o->function, o->name, kb_dtype_name(view->dtype),
                            kb_dtype_name(cache->is.dtype));
    if (o->is_written && view->copies > 1)
        return kb_error_new(KB_ERR_INPUT, "%s: %s is replicated: expected a layout with one copy",
                            o->function, o->name);
    return NULL;
}

kb_error *nn_view_operand(kb_context *ctx, const nn_cache *cache, const nn_operand *o,
                          tp_view *view)
{
    kb_error *err = o->by_cube ? tp_view_make_by_cube(ctx, o->tensor, view)
                               : tp_view_make(ctx, o->tensor, view);
    if (err)
        return kb_error_wrap(err, "%s: %s", o->function, o->name);
    KB_TRY(check_place(ctx, cache, o, view));
    bool is_wide =
        view->columns == o->columns || (o->or_columns > 0 && view->columns == o->or_columns);
    if (!is_wide || view->rows == 0 || view->rows % cache->is.batch != 0)
        return kb_error_new(
            KB_ERR_INPUT,
            "%s: %s is (%" PRId64 ", %" PRId64 "): expected a multiple of %" PRId64
            " rows, one part for each sequence of the cache, and %" PRId64 " columns",
            o->function, o->name, view->rows, view->columns, cache->is.batch, o->columns);
    return NULL;
}

kb_error *nn_check_call(const char *function, const nn_cache *cache, uint32_t layer, double scale)
{
    if (layer >= cache->layers)
        return kb_error_new(KB_ERR_INPUT, "%s: layer %" PRIu32 ": the cache has %" PRIu32 " layers",
                            function, layer, cache->layers);
    if (!isfinite(scale))
        return kb_error_new(KB_ERR_INPUT, "%s: scale is %g: expected a finite number", function,
                            scale);
    return NULL;
}

kb_error *nn_check_added(const char *function, const nn_cache *cache, int64_t prompt)
{
    for (int64_t b = 0; b < cache->is.batch; b++) {
        int32_t added = cache->record_values[b * NN_RECORD + NN_ADDED];
        if (added > prompt)
            return kb_error_new(KB_ERR_INPUT,
                                "%s: %" PRId32 " tokens are added to sequence %" PRId64
                                ", which has %" PRId64 " rows",
                                function, added, b, prompt);
    }
    return NULL;
}
