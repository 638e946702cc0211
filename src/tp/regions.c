/*
 * regions.c: conversions between tensors that are replicated over the ranks of the tensor parallel
 * group and tensors that are split by columns over them.
 */
#include <inttypes.h>

#include "layers.h"
#include "relayout.h"

/* The caller's groups, and the tensor as a matrix. */
static kb_error *enter(kb_context *ctx, const char *function, kb_tensor input, tp_rank *at,
                       tp_view *view, kb_shape *shape, uint32_t *sip)
{
    KB_TRY(tp_get_rank(ctx, function, at));
    kb_error *err = tp_view_make(ctx, input, view);
    if (err)
        return kb_error_wrap(err, "%s: input", function);
    KB_TRY(kb_tensor_shape(ctx, input, shape));
    return kb_tensor_device(ctx, input, sip);
}

kb_error *kb_copy_to_tensor_model_parallel_region(kb_context *ctx, kb_tensor input,
                                                  kb_tensor *output)
{
    static const char function[] = "kb_copy_to_tensor_model_parallel_region";
    tp_rank at;
    tp_view view;
    kb_shape shape;
    uint32_t sip;
    KB_TRY(enter(ctx, function, input, &at, &view, &shape, &sip));
    *output = input;
    return NULL;
}

kb_error *kb_reduce_from_tensor_model_parallel_region(kb_context *ctx, kb_tensor input,
                                                      kb_tensor *output)
{
    static const char function[] = "kb_reduce_from_tensor_model_parallel_region";
    tp_rank at;
    tp_view view;
    kb_shape shape;
    uint32_t sip;
    KB_TRY(enter(ctx, function, input, &at, &view, &shape, &sip));
    KB_TRY(tp_all_reduce(ctx, &at, input, KB_SUM));
    *output = input;
    return NULL;
}

kb_error *kb_scatter_to_tensor_model_parallel_region(kb_context *ctx, kb_tensor input,
                                                     kb_tensor *output)
{
    static const char function[] = "kb_scatter_to_tensor_model_parallel_region";
    tp_rank at;
    tp_view view;
    kb_shape shape;
    uint32_t sip;
    KB_TRY(enter(ctx, function, input, &at, &view, &shape, &sip));
    if (view.columns % at.size != 0)
        return kb_error_new(
            KB_ERR_INPUT,
            "%s: the input has %" PRId64
            " columns, which are not divisible by the tensor parallel size %" PRIu32,
            function, view.columns, at.size);
    int64_t columns = view.columns / at.size;
    kb_shape made = tp_with_columns(&shape, (uint64_t)columns);
    bool was_given = output->id != 0;
    KB_TRY(tp_take_output(ctx, function, sip, "scattered", &made, view.dtype, output));
    const tp_relayout_spec copy = {
        .name = "scatter", .to = *output, .from = input, .from_column = columns * at.index};
    kb_error *err = view.rows * columns > 0 ? tp_relayout(ctx, &copy) : NULL;
    return tp_end_output(ctx, err, was_given, output);
}

static kb_error *gather(kb_context *ctx, const tp_rank *at, const tp_view *view, uint32_t sip,
                        kb_tensor input, kb_tensor output)
{
    kb_tensor staging;
    const tp_relayout_spec copy = {.name = "gather", .to = output, .from = input};
    const kb_tensor_spec spec = {
        .name = "gathered",
        .dtype = view->dtype,
        .shape = KB_SHAPE((uint64_t)view->rows * at->size, (uint64_t)view->columns)};
    if (view->rows * view->columns == 0)
        return NULL;
    if (at->size == 1)
        return tp_relayout(ctx, &copy);
    KB_TRY(tp_make_tensor(ctx, sip, &spec, &staging));
    kb_error *err = tp_gather_columns(ctx, at, "gather", input, staging, output);
    kb_error *freed = kb_tensor_free(ctx, staging);
    if (!err)
        return freed;
    kb_error_free(freed);
    return err;
}

kb_error *kb_gather_from_tensor_model_parallel_region(kb_context *ctx, kb_tensor input,
                                                      kb_tensor *output)
{
    static const char function[] = "kb_gather_from_tensor_model_parallel_region";
    tp_rank at;
    tp_view view;
    kb_shape shape;
    uint32_t sip;
    KB_TRY(enter(ctx, function, input, &at, &view, &shape, &sip));
    if (at.size > 1)
        KB_TRY(tp_refuse_recording(ctx, function,
                                   "call it outside the graph, or use gather_output of a layer"));
    kb_shape made = tp_with_columns(&shape, (uint64_t)view.columns * at.size);
    bool was_given = output->id != 0;
    KB_TRY(tp_take_output(ctx, function, sip, "gathered", &made, view.dtype, output));
    kb_error *err = gather(ctx, &at, &view, sip, input, *output);
    return tp_end_output(ctx, err, was_given, output);
}
