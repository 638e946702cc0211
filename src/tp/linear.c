/*
 * linear.c: linear layers. A column parallel layer splits the weights by columns: each rank
 * computes some columns of the output. A row parallel layer splits them by rows: each rank computes
 * a part of every sum.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "layers.h"
#include "matmul.h"
#include "relayout.h"

enum { DEFAULT_BATCH = 64 };
static const uint64_t max_batch = UINT32_MAX;

/* ---- Creation ---- */

static kb_error *check_spec(const char *function, const kb_tp_linear_spec *spec, uint32_t ranks,
                            bool cuts_columns)
{
    const char *what = cuts_columns ? "out_features" : "in_features";
    uint64_t cut = cuts_columns ? spec->out_features : spec->in_features;
    if (spec->in_features == 0 || spec->out_features == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: in_features is %" PRIu64 " and out_features is %" PRIu64
                            ": both must be at least 1",
                            function, spec->in_features, spec->out_features);
    if (cut % ranks != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s (%" PRIu64
                            ") is not divisible by the tensor parallel size %" PRIu32,
                            function, what, cut, ranks);
    if ((unsigned)spec->dtype >= KB_DTYPES)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid dtype %u", function, (unsigned)spec->dtype);
    if ((unsigned)spec->input_is_parallel > KB_TP_YES)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: invalid input_is_parallel %u: expected KB_TP_DEFAULT, KB_TP_NO or "
                            "KB_TP_YES",
                            function, (unsigned)spec->input_is_parallel);
    if (spec->batch > max_batch)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: batch (%" PRIu64 ") is larger than the maximum %" PRIu64, function,
                            spec->batch, max_batch);
    if (spec->weight.id != 0 && spec->seed != 0)
        return kb_error_new(KB_ERR_INPUT, "%s: both weights and a seed are given", function);
    if (!spec->bias && spec->bias_values.id != 0)
        return kb_error_new(KB_ERR_INPUT, "%s: bias values are given, but bias is false", function);
    return NULL;
}

/* As torch.nn.Linear. */
static double random_scale(const kb_tp_linear_spec *spec)
{
    return 1 / sqrt((double)spec->in_features);
}

/* The number of ranks whose sums the matmul kernel adds; 1: a collective adds them afterwards. */
static uint32_t shared_ranks(const tp_layer *layer)
{
    bool overlaps = layer->kind == TP_ROW && layer->overlap > 0 && layer->at.size <= TP_MAX_RANKS &&
                    layer->sip == layer->at.first + layer->at.index;
    return overlaps ? layer->at.size : 1;
}

static kb_error *make_weight(kb_context *ctx, const kb_tp_linear_spec *spec, tp_layer *layer)
{
    bool is_column = layer->kind == TP_COLUMN;
    kb_policy w, x, out;
    tp_best_layout(ctx, spec->batch > 0 ? spec->batch : DEFAULT_BATCH, layer->rows, layer->columns,
                   layer->dtype, false, &w, &x, &out);
    const kb_tensor_spec tensor = {.name = layer->name,
                                   .dtype = layer->dtype,
                                   .shape = KB_SHAPE(layer->rows, layer->columns),
                                   .policy = &w,
                                   .access = spec->access};
    const tp_weight_source source = {
        .given = spec->weight,
        .seed = spec->seed,
        .all_rows = spec->in_features,
        .all_columns = spec->out_features,
        .row = is_column ? 0 : layer->rows * layer->at.index,
        .column = is_column ? layer->columns * layer->at.index : 0,
        .scale = random_scale(spec),
    };
    KB_TRY(tp_make_tensor(ctx, layer->sip, &tensor, &layer->weight));
    KB_TRY(tp_matmul_prepare(ctx, layer->weight, layer->at.index, shared_ranks(layer)));
    return tp_fill_weight(ctx, layer->weight, "weight", layer->rows, layer->columns, layer->dtype,
                          spec->access, &source);
}

/* Column: of the rank's outputs. Row: of all outputs, on each rank. */
static kb_error *make_bias(kb_context *ctx, const kb_tp_linear_spec *spec, tp_layer *layer)
{
    const kb_tensor_spec tensor = {.name = layer->name,
                                   .dtype = layer->dtype,
                                   .shape = KB_SHAPE(layer->columns),
                                   .access = spec->access};
    const tp_weight_source source = {
        .given = spec->bias_values,
        .seed = spec->seed != 0 ? spec->seed + 1 : 0,
        .all_rows = 1,
        .all_columns = spec->out_features,
        .column = layer->kind == TP_COLUMN ? layer->columns * layer->at.index : 0,
        .scale = random_scale(spec),
    };
    KB_TRY(tp_make_tensor(ctx, layer->sip, &tensor, &layer->bias));
    return tp_fill_weight(ctx, layer->bias, "bias", 1, layer->columns, layer->dtype, spec->access,
                          &source);
}

static kb_error *fill_layer(kb_context *ctx, const char *function, const kb_tp_linear_spec *spec,
                            tp_layer *layer)
{
    bool is_column = layer->kind == TP_COLUMN;
    KB_TRY(check_spec(function, spec, layer->at.size, is_column));
    layer->inputs = spec->in_features;
    layer->outputs = spec->out_features;
    layer->rows = spec->in_features / (is_column ? 1 : layer->at.size);
    layer->columns = spec->out_features / (is_column ? layer->at.size : 1);
    layer->dtype = spec->dtype;
    layer->gathers = spec->gather_output;
    layer->whole_input = spec->input_is_parallel == KB_TP_NO;
    layer->overlap = spec->overlap;
    kb_error *err = make_weight(ctx, spec, layer);
    if (!err && spec->bias)
        err = make_bias(ctx, spec, layer);
    return err ? kb_error_wrap(err, "%s: layer '%s'", function, layer->name) : NULL;
}

static kb_error *create(kb_context *ctx, const char *function, tp_layer_kind kind,
                        const kb_tp_linear_spec *spec, kb_tp_layer *handle)
{
    tp_layer *layer;
    KB_TRY(tp_add_layer(ctx, function, kind, spec->name, &layer, handle));
    kb_error *err = fill_layer(ctx, function, spec, layer);
    if (err)
        tp_drop_layer(ctx, handle);
    return err;
}

kb_error *kb_column_parallel_linear_create(kb_context *ctx, const kb_tp_linear_spec *spec,
                                           kb_tp_layer *layer)
{
    return create(ctx, "kb_column_parallel_linear_create", TP_COLUMN, spec, layer);
}

kb_error *kb_row_parallel_linear_create(kb_context *ctx, const kb_tp_linear_spec *spec,
                                        kb_tp_layer *layer)
{
    return create(ctx, "kb_row_parallel_linear_create", TP_ROW, spec, layer);
}

/* ---- Times ---- */

/* Records the times since `began` of the launches with the layer's name. */
static void note_times(kb_context *ctx, tp_layer *layer, kb_time began)
{
    const rt_stats stats = rt_get_stats(ctx);
    kb_tp_times *times = &layer->times;
    *times = (kb_tp_times){.total = kb_context_now(ctx) - began};
    for (size_t i = stats.launch_count; i > 0 && times->kernel == 0; i--) {
        const kb_launch_result *result = &stats.launches[i - 1];
        if (result->issued < began)
            break;
        if (result->sip != layer->sip || strcmp(result->name, layer->name) != 0)
            continue;
        times->kernel = result->pe_exec;
        times->gemm = result->pe_exec - (kb_time)(result->split.communication / result->pes);
    }
    times->exposed = times->total - times->gemm;
}

/* ---- Forward ---- */

/* The output must not be an input: it would be overwritten while PEs still load it. */
static kb_error *check_output(const char *function, const tp_layer *layer, kb_tensor input,
                              kb_tensor output)
{
    const char *what = NULL;
    if (output.id == 0)
        return NULL;
    if (output.id == input.id)
        what = "input";
    else if (output.id == layer->weight.id)
        what = "weight";
    else if (output.id == layer->bias.id)
        what = "bias";
    return what ? kb_error_new(KB_ERR_INPUT,
                               "%s: the output is the same tensor as the %s of layer '%s': pass "
                               "another tensor, or {0} for a new one",
                               function, what, layer->name)
                : NULL;
}

static kb_error *check_input(kb_context *ctx, const char *function, const tp_layer *layer,
                             kb_tensor input, uint64_t features, kb_shape *shape)
{
    tp_view view;
    uint32_t sip;
    kb_error *err = tp_view_make(ctx, input, &view);
    if (err)
        return kb_error_wrap(err, "%s: input", function);
    KB_TRY(kb_tensor_device(ctx, input, &sip));
    KB_TRY(kb_tensor_shape(ctx, input, shape));
    if (sip != layer->sip)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: the input is on sip%" PRIu32 ", but layer '%s' on sip%" PRIu32,
                            function, sip, layer->name, layer->sip);
    if ((uint64_t)view.columns != features)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: the input has %" PRId64 " columns, but layer '%s' takes %" PRIu64,
                            function, view.columns, layer->name, features);
    if (view.dtype != layer->dtype)
        return kb_error_new(KB_ERR_INPUT, "%s: the input is %s, but layer '%s' is %s", function,
                            kb_dtype_name(view.dtype), layer->name, kb_dtype_name(layer->dtype));
    if (view.rows == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: the input has no rows", function);
    return NULL;
}

/* The number of PEs that have a part of the matrix, and the number of parts of a column. */
static int64_t count_holders(const tp_view *view)
{
    if (view->tiling == KB_NOT_TILED)
        return view->cubes * view->pes;
    int64_t tiles =
        tl_cdiv(view->rows, view->tile_rows) * tl_cdiv(view->columns, view->tile_columns);
    return tiles < view->cubes * view->pes ? tiles : view->cubes * view->pes;
}

static int64_t count_row_parts(const tp_view *view)
{
    if (view->tiling != KB_NOT_TILED)
        return tl_cdiv(view->rows, view->tile_rows);
    int64_t parts =
        (view->cube == KB_ROW_WISE ? view->cubes : 1) * (view->pe == KB_ROW_WISE ? view->pes : 1);
    return parts < view->rows ? parts : view->rows;
}

enum { FEW_HOLDERS = 8, MANY_ROW_PARTS = 4, SMALL_BYTES = 16384 };

/* All PEs load x. If x is on a few PEs, their ports are the bottleneck; if it is split by rows,
 * loads are many and small. Such an input is first copied to a better layout. */
static kb_error *spread_input(kb_context *ctx, tp_layer *layer, kb_tensor *input)
{
    tp_view view;
    kb_machine machine = kb_context_machine(ctx);
    KB_TRY(tp_view_make(ctx, *input, &view));
    bool is_small = view.rows * view.columns * (int64_t)kb_dtype_bytes(view.dtype) <= SMALL_BYTES;
    bool on_few = FEW_HOLDERS * count_holders(&view) < (int64_t)machine.cubes * machine.pes;
    if (is_small || (!on_few && count_row_parts(&view) <= MANY_ROW_PARTS))
        return NULL;
    tp_relayout_spec copy = {.name = "spread", .from = *input};
    KB_TRY(tp_get_buffer(ctx, layer, TP_INPUT, (uint64_t)view.rows, (uint64_t)view.columns,
                         view.dtype, &copy.to));
    *input = copy.to;
    return tp_relayout(ctx, &copy);
}

/* For an output with several copies it uses a tensor that the layer keeps, so that a graph can
 * record the call. */
static kb_error *multiply(kb_context *ctx, tp_layer *layer, tp_matmul_spec *product)
{
    tp_view out;
    KB_TRY(tp_view_make(ctx, product->out, &out));
    if (out.copies > 1)
        KB_TRY(tp_get_buffer(ctx, layer, TP_SINGLE, (uint64_t)out.rows, (uint64_t)out.columns,
                             out.dtype, &product->single));
    return tp_matmul(ctx, product);
}

static kb_error *run_column(kb_context *ctx, tp_layer *layer, kb_tensor input, uint64_t rows,
                            kb_tensor output)
{
    tp_matmul_spec product = {
        .name = layer->name, .x = input, .w = layer->weight, .bias = layer->bias, .out = output};
    if (!layer->gathers || layer->at.size == 1)
        return multiply(ctx, layer, &product);
    kb_tensor gathered;
    KB_TRY(tp_get_buffer(ctx, layer, TP_PARTIAL, rows, layer->columns, layer->dtype, &product.out));
    KB_TRY(tp_get_buffer(ctx, layer, TP_GATHERED, rows * layer->at.size, layer->columns,
                         layer->dtype, &gathered));
    KB_TRY(multiply(ctx, layer, &product));
    return tp_gather_columns(ctx, &layer->at, "gather_output", product.out, gathered, output);
}

kb_error *kb_column_parallel_linear_forward(kb_context *ctx, kb_tp_layer handle, kb_tensor input,
                                            kb_tensor *output)
{
    static const char function[] = "kb_column_parallel_linear_forward";
    tp_layer *layer;
    kb_shape shape;
    KB_TRY(tp_find_layer(ctx, function, TP_COLUMN, handle, &layer));
    KB_TRY(check_input(ctx, function, layer, input, layer->rows, &shape));
    KB_TRY(check_output(function, layer, input, *output));
    kb_shape made = tp_with_columns(&shape, layer->gathers ? layer->outputs : layer->columns);
    bool was_given = output->id != 0;
    KB_TRY(tp_take_output(ctx, function, layer->sip, layer->name, &made, layer->dtype, output));
    kb_time began = kb_context_now(ctx);
    kb_error *err = spread_input(ctx, layer, &input);
    if (!err)
        err = run_column(ctx, layer, input, tp_shape_rows(&shape), *output);
    if (!err)
        note_times(ctx, layer, began);
    return tp_end_output(ctx, err, was_given, output);
}

static kb_error *run_row(kb_context *ctx, tp_layer *layer, kb_tensor input, uint64_t rows,
                         kb_tensor output)
{
    kb_dtype dtype = tp_reduce_dtype(layer->dtype);
    tp_matmul_spec product = {.name = layer->name,
                              .x = input,
                              .w = layer->weight,
                              .out = output,
                              .x_columns = (int64_t)layer->rows};
    if (layer->whole_input)
        product.x_column = (int64_t)(layer->rows * layer->at.index);
    tp_view view;
    KB_TRY(tp_view_make(ctx, output, &view));
    if (layer->at.size == 1 || (shared_ranks(layer) > 1 && view.copies == 1)) {
        product.bias = layer->bias;
        product.rank = layer->at.index;
        product.ranks = layer->at.size;
        product.chunks = layer->overlap;
        product.sum_dtype = dtype;
        return multiply(ctx, layer, &product);
    }
    if (dtype != layer->dtype)
        KB_TRY(tp_get_buffer(ctx, layer, TP_PARTIAL, rows, layer->columns, dtype, &product.out));
    KB_TRY(multiply(ctx, layer, &product));
    KB_TRY(tp_all_reduce(ctx, &layer->at, product.out, KB_SUM));
    if (layer->bias.id == 0 && dtype == layer->dtype)
        return NULL;
    const tp_relayout_spec add = {
        .name = "add_bias", .to = output, .from = product.out, .bias = layer->bias};
    return tp_relayout(ctx, &add);
}

kb_error *kb_row_parallel_linear_forward(kb_context *ctx, kb_tp_layer handle, kb_tensor input,
                                         kb_tensor *output)
{
    static const char function[] = "kb_row_parallel_linear_forward";
    tp_layer *layer;
    kb_shape shape;
    KB_TRY(tp_find_layer(ctx, function, TP_ROW, handle, &layer));
    KB_TRY(check_input(ctx, function, layer, input,
                       layer->whole_input ? layer->inputs : layer->rows, &shape));
    KB_TRY(check_output(function, layer, input, *output));
    kb_shape made = tp_with_columns(&shape, layer->columns);
    bool was_given = output->id != 0;
    KB_TRY(tp_take_output(ctx, function, layer->sip, layer->name, &made, layer->dtype, output));
    kb_time began = kb_context_now(ctx);
    kb_error *err = spread_input(ctx, layer, &input);
    if (!err)
        err = run_row(ctx, layer, input, tp_shape_rows(&shape), *output);
    if (!err)
        note_times(ctx, layer, began);
    return tp_end_output(ctx, err, was_given, output);
}
