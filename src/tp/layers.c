/*
 * layers.c: the layers of a context: handles, tensors, weights.
 *
 * Random weights are a function of the seed and of the index in the whole layer, so a layer
 * computes the same for any number of ranks.
 */
#include "layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "relayout.h"

/* ---- Handles ---- */

static void free_tensor(kb_context *ctx, kb_tensor *tensor)
{
    if (tensor->id != 0)
        kb_error_free(kb_tensor_free(ctx, *tensor));
    *tensor = (kb_tensor){0};
}

static void free_layer(kb_context *ctx, tp_layer *layer)
{
    if (!layer)
        return;
    free_tensor(ctx, &layer->weight);
    free_tensor(ctx, &layer->bias);
    for (int use = 0; use < TP_BUFFERS; use++)
        free_tensor(ctx, &layer->buffers[use]);
    free(layer->name);
    free(layer);
}

void tp_free_layers(tp_state *state)
{
    for (size_t i = 0; i < state->layers.count; i++) {
        const tp_layer *layer = state->layers.items[i];
        if (layer)
            rt_debug_warn(state->ctx,
                          "context destroyed: layer '%s' on sip%" PRIu32 " was not freed",
                          layer->name, layer->sip);
        free_layer(state->ctx, state->layers.items[i]);
    }
    state->layers.count = 0;
}

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = kb_alloc_array(bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

kb_error *tp_add_layer(kb_context *ctx, const char *function, tp_layer_kind kind, const char *name,
                       tp_layer **out, kb_tp_layer *handle)
{
    static const char *const names[] = {"column", "row", "embedding"};
    tp_rank at;
    tp_state *state;
    *handle = (kb_tp_layer){0};
    KB_TRY(tp_get_rank(ctx, function, &at));
    KB_TRY(tp_get_state(ctx, &state));
    if (rt_caller_rank(ctx) == RT_DRIVER && at.size > 1)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: called outside workers with a tensor parallel size of %" PRIu32
                            ": each rank makes its part, in a worker (kb_spawn)",
                            function, at.size);
    tp_layer *layer = kb_alloc_zeroed(1, sizeof *layer);
    char *copy = copy_text(name ? name : names[kind]);
    if (!layer || !copy || !kb_vec_push(&state->layers, layer)) {
        free(layer);
        free(copy);
        return kb_error_nomem();
    }
    layer->kind = kind;
    layer->name = copy;
    layer->at = at;
    layer->sip = kb_ahbm_current_device(ctx);
    *handle = (kb_tp_layer){rt_make_handle(ctx, state->layers.count)};
    *out = layer;
    return NULL;
}

void tp_drop_layer(kb_context *ctx, kb_tp_layer *handle)
{
    tp_state *state = rt_get_layer(ctx, RT_LAYER_TP);
    uint64_t number = rt_number_of(ctx, handle->id);
    free_layer(ctx, state->layers.items[number - 1]);
    state->layers.items[number - 1] = NULL;
    *handle = (kb_tp_layer){0};
}

static kb_error *find_any(kb_context *ctx, const char *function, kb_tp_layer handle, tp_layer **out)
{
    const tp_state *state = rt_get_layer(ctx, RT_LAYER_TP);
    *out = NULL;
    uint64_t number = rt_number_of(ctx, handle.id);
    if (state && number > 0 && number <= state->layers.count)
        *out = state->layers.items[number - 1];
    return *out ? NULL : rt_bad_handle(ctx, function, "layer", "freed", handle.id);
}

kb_error *tp_find_layer(kb_context *ctx, const char *function, tp_layer_kind kind,
                        kb_tp_layer handle, tp_layer **layer)
{
    static const char *const names[] = {"a column parallel linear layer",
                                        "a row parallel linear layer",
                                        "a vocabulary parallel embedding"};
    tp_rank at;
    KB_TRY(tp_get_rank(ctx, function, &at));
    KB_TRY(find_any(ctx, function, handle, layer));
    if ((*layer)->kind != kind)
        return kb_error_new(KB_ERR_INPUT, "%s: layer '%s' is %s", function, (*layer)->name,
                            names[(*layer)->kind]);
    if (at.tensor_group.id != (*layer)->at.tensor_group.id || at.index != (*layer)->at.index)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: layer '%s' was made by another rank, or before model parallelism "
                            "was initialised again",
                            function, (*layer)->name);
    return NULL;
}

kb_error *kb_tp_layer_free(kb_context *ctx, kb_tp_layer handle)
{
    tp_layer *layer;
    KB_TRY(find_any(ctx, "kb_tp_layer_free", handle, &layer));
    tp_drop_layer(ctx, &handle);
    return NULL;
}

kb_error *kb_tp_layer_weight(kb_context *ctx, kb_tp_layer handle, kb_tensor *weight)
{
    tp_layer *layer;
    *weight = (kb_tensor){0};
    KB_TRY(find_any(ctx, "kb_tp_layer_weight", handle, &layer));
    *weight = layer->weight;
    return NULL;
}

kb_error *kb_tp_layer_bias(kb_context *ctx, kb_tp_layer handle, kb_tensor *bias)
{
    tp_layer *layer;
    *bias = (kb_tensor){0};
    KB_TRY(find_any(ctx, "kb_tp_layer_bias", handle, &layer));
    *bias = layer->bias;
    return NULL;
}

kb_error *kb_tp_layer_times(kb_context *ctx, kb_tp_layer handle, kb_tp_times *times)
{
    tp_layer *layer;
    *times = (kb_tp_times){0};
    KB_TRY(find_any(ctx, "kb_tp_layer_times", handle, &layer));
    *times = layer->times;
    return NULL;
}

/* ---- Weights ---- */

/* From -scale to scale; for integers -1, 0 or 1. */
static float random_at(uint64_t seed, uint64_t index, kb_dtype dtype, double scale)
{
    uint64_t state = seed ^ (index * 0x9e3779b97f4a7c15u);
    uint64_t bits = kb_splitmix64(&state);
    if (mem_is_integer(dtype))
        return (float)(int)(bits % 3) - 1;
    return (float)(((double)(bits >> 11) * 0x1p-53 * 2 - 1) * scale);
}

static kb_error *fill_random(kb_context *ctx, kb_tensor tensor, uint64_t rows, uint64_t columns,
                             kb_dtype dtype, kb_access access, const tp_weight_source *source)
{
    size_t bytes = kb_dtype_bytes(dtype);
    float *row = kb_alloc_array(columns, sizeof *row);
    char *data = kb_alloc_array(rows * columns, bytes);
    if (!row || !data) {
        free(row);
        free(data);
        return kb_error_nomem();
    }
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t j = 0; j < columns; j++)
            row[j] = random_at(source->seed,
                               (source->row + i) * source->all_columns + source->column + j, dtype,
                               source->scale);
        kb_convert(dtype, data + i * columns * bytes, KB_F32, row, columns);
    }
    kb_error *err = kb_tensor_set_slice(ctx, tensor, access, NULL, data, rows * columns * bytes);
    free(row);
    free(data);
    return err;
}

/* The part to copy of a tensor of the host; an error if it has neither the whole shape nor that of
 * the part. */
static kb_error *check_given(kb_context *ctx, const char *what, uint64_t rows, uint64_t columns,
                             kb_dtype dtype, const tp_weight_source *source, kb_slice *slice)
{
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(ctx, source->given, &view));
    if (!view.on_host)
        return kb_error_new(KB_ERR_INPUT,
                            "the %s '%s' is on a device: expected a tensor of the host "
                            "(kb_from_host)",
                            what, view.name);
    if (view.shape.rank > 2)
        return kb_error_new(KB_ERR_INPUT,
                            "the %s '%s' has %" PRIu32 " dimensions: expected a matrix (%" PRIu64
                            ", %" PRIu64 "), or the rank's part (%" PRIu64 ", %" PRIu64 ")",
                            what, view.name, view.shape.rank, source->all_rows, source->all_columns,
                            rows, columns);
    uint64_t given_rows = tp_shape_rows(&view.shape);
    uint64_t given_columns = view.shape.rank > 0 ? view.shape.dims[view.shape.rank - 1] : 1;
    bool is_whole = given_rows == source->all_rows && given_columns == source->all_columns;
    bool is_part = given_rows == rows && given_columns == columns;
    if (!is_whole && !is_part)
        return kb_error_new(KB_ERR_INPUT,
                            "the %s is (%" PRIu64 ", %" PRIu64 "): expected (%" PRIu64 ", %" PRIu64
                            "), or the rank's part (%" PRIu64 ", %" PRIu64 ")",
                            what, given_rows, given_columns, source->all_rows, source->all_columns,
                            rows, columns);
    if (view.dtype != dtype)
        return kb_error_new(KB_ERR_INPUT, "the %s is %s, but the layer is %s", what,
                            kb_dtype_name(view.dtype), kb_dtype_name(dtype));
    uint64_t row = is_whole ? source->row : 0, column = is_whole ? source->column : 0;
    *slice = view.shape.rank == 1 ? KB_SLICE({column, column + columns})
                                  : KB_SLICE({row, row + rows}, {column, column + columns});
    return NULL;
}

static kb_error *fill_given(kb_context *ctx, kb_tensor tensor, const char *what, uint64_t rows,
                            uint64_t columns, kb_dtype dtype, kb_access access,
                            const tp_weight_source *source)
{
    kb_slice slice;
    KB_TRY(check_given(ctx, what, rows, columns, dtype, source, &slice));
    size_t bytes = rows * columns * kb_dtype_bytes(dtype);
    void *data = kb_alloc_array(rows * columns, kb_dtype_bytes(dtype));
    if (!data)
        return kb_error_nomem();
    kb_error *err = kb_tensor_get_slice(ctx, source->given, KB_UNTIMED, &slice, data, bytes);
    if (!err)
        err = kb_tensor_set_slice(ctx, tensor, access, NULL, data, bytes);
    free(data);
    return err;
}

kb_error *tp_fill_weight(kb_context *ctx, kb_tensor tensor, const char *what, uint64_t rows,
                         uint64_t columns, kb_dtype dtype, kb_access access,
                         const tp_weight_source *source)
{
    if (source->given.id != 0)
        return fill_given(ctx, tensor, what, rows, columns, dtype, access, source);
    if (source->seed != 0 && !kb_context_is_timing_only(ctx))
        return fill_random(ctx, tensor, rows, columns, dtype, access, source);
    return kb_tensor_fill_slice(ctx, tensor, access, NULL, 0);
}

/* ---- Buffers and outputs ---- */

kb_error *tp_get_buffer(kb_context *ctx, tp_layer *layer, tp_buffer_use use, uint64_t rows,
                        uint64_t columns, kb_dtype dtype, kb_tensor *buffer)
{
    kb_tensor *kept = &layer->buffers[use];
    const kb_tensor_spec spec = {
        .name = layer->name, .dtype = dtype, .shape = KB_SHAPE(rows, columns)};
    if (kept->id != 0) {
        kb_shape shape;
        KB_TRY(kb_tensor_shape(ctx, *kept, &shape));
        if (shape.dims[0] != rows || shape.dims[1] != columns)
            free_tensor(ctx, kept);
    }
    if (kept->id == 0)
        KB_TRY(tp_make_tensor(ctx, layer->sip, &spec, kept));
    *buffer = *kept;
    return NULL;
}

uint64_t tp_shape_rows(const kb_shape *shape)
{
    uint64_t rows = 1;
    for (uint32_t axis = 0; axis + 1 < shape->rank; axis++)
        rows *= shape->dims[axis];
    return rows;
}

kb_shape tp_with_columns(const kb_shape *shape, uint64_t columns)
{
    kb_shape other = *shape;
    if (other.rank == 0)
        other.rank = 1;
    other.dims[other.rank - 1] = columns;
    return other;
}

kb_error *tp_take_output(kb_context *ctx, const char *function, uint32_t sip, const char *name,
                         const kb_shape *shape, kb_dtype dtype, kb_tensor *output)
{
    if (output->id == 0) {
        const kb_tensor_spec spec = {.name = name, .dtype = dtype, .shape = *shape};
        return tp_make_tensor(ctx, sip, &spec, output);
    }
    tp_view view;
    kb_error *err = tp_view_make(ctx, *output, &view);
    if (err)
        return kb_error_wrap(err, "%s: output", function);
    uint64_t columns = shape->rank > 0 ? shape->dims[shape->rank - 1] : 1;
    if ((uint64_t)view.rows == tp_shape_rows(shape) && (uint64_t)view.columns == columns &&
        view.dtype == dtype)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: the output is (%" PRId64 ", %" PRId64 ") %s: expected (%" PRIu64
                        ", %" PRIu64 ") %s",
                        function, view.rows, view.columns, kb_dtype_name(view.dtype),
                        tp_shape_rows(shape), columns, kb_dtype_name(dtype));
}

kb_error *tp_end_output(kb_context *ctx, kb_error *err, bool was_given, kb_tensor *output)
{
    if (err && !was_given)
        free_tensor(ctx, output);
    return err;
}

kb_error *tp_refuse_recording(kb_context *ctx, const char *function, const char *remedy)
{
    if (!rt_is_recording(ctx))
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "%s: a graph is being recorded, which cannot contain a tensor that is "
                        "freed when this call returns: %s",
                        function, remedy);
}

/* ---- Tokens and targets ---- */

/* Copies the elements, row by row, to one PE. */
static kb_error *pack(kb_context *ctx, const char *function, kb_tensor tensor, uint32_t sip,
                      tp_indices *indices)
{
    KB_TRY(tp_refuse_recording(ctx, function, "keep the indices on one PE (no policy)"));
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    const kb_tensor_spec spec = {
        .name = "indices", .dtype = KB_I32, .shape = indices->shape, .policy = &one_pe};
    KB_TRY(tp_make_tensor(ctx, sip, &spec, &indices->packed));
    const tp_relayout_spec copy = {.name = "pack", .to = indices->packed, .from = tensor};
    kb_error *err = tp_relayout(ctx, &copy);
    indices->is_copy = !err;
    return tp_end_output(ctx, err, false, &indices->packed);
}

kb_error *tp_get_indices(kb_context *ctx, const char *function, const char *what, kb_tensor tensor,
                         uint32_t sip, tp_indices *indices)
{
    rt_tensor_view view;
    *indices = (tp_indices){.packed = tensor};
    KB_TRY(rt_view_tensor(ctx, tensor, &view));
    indices->shape = view.shape;
    indices->count = view.elements;
    if (view.on_host)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: the %s '%s' are on the host: copy them to a device first "
                            "(kb_tensor_copy)",
                            function, what, view.name);
    if (view.sip != sip)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: the %s '%s' are on sip%" PRIu32 ": expected sip%" PRIu32, function,
                            what, view.name, view.sip, sip);
    if (view.dtype != KB_I32)
        return kb_error_new(KB_ERR_INPUT, "%s: the %s '%s' are %s: expected i32", function, what,
                            view.name, kb_dtype_name(view.dtype));
    if (view.elements == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: there are no %s", function, what);
    bool is_packed = view.shards[0].nbytes == view.bytes;
    return is_packed ? NULL : pack(ctx, function, tensor, sip, indices);
}

kb_error *tp_free_indices(kb_context *ctx, const tp_indices *indices, kb_error *err)
{
    kb_error *freed = indices->is_copy ? kb_tensor_free(ctx, indices->packed) : NULL;
    if (!err)
        return freed;
    kb_error_free(freed);
    return err;
}

/* ---- Collectives ---- */

kb_dtype tp_reduce_dtype(kb_dtype dtype)
{
    return mem_is_float(dtype) ? dtype : mem_sum_dtype(dtype);
}

/* Options for collectives of the tensor parallel group: "auto", the plain sum, independent of
 * ccl.yaml. */
static kb_collective_options collective_options(const tp_rank *at)
{
    return (kb_collective_options){.group = at->tensor_group, .algorithm = "auto"};
}

kb_error *tp_all_reduce(kb_context *ctx, const tp_rank *at, kb_tensor tensor, kb_reduce_op op)
{
    kb_collective_options options = collective_options(at);
    return at->size > 1 ? kb_distributed_all_reduce(ctx, tensor, op, &options) : NULL;
}

kb_error *tp_gather_columns(kb_context *ctx, const tp_rank *at, const char *name, kb_tensor input,
                            kb_tensor staging, kb_tensor output)
{
    tp_view view;
    kb_collective_options options = collective_options(at);
    KB_TRY(tp_view_make(ctx, input, &view));
    KB_TRY(kb_distributed_all_gather(ctx, staging, input, &options));
    const tp_relayout_spec copy = {
        .name = name, .to = output, .from = staging, .fold = view.columns};
    return tp_relayout(ctx, &copy);
}
