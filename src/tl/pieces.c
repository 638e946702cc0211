/*
 * pieces.c: the elements of values in another shape, parts of values, and values joined to one.
 *
 * Values are packed row by row in the TCM. So another shape, and a part whose elements follow each
 * other without gaps, is where the value is already: it takes no time and no TCM of its own. Other
 * parts are moved by the vector engine, and so is everything that is joined.
 */
#include "tl_private.h"

/* ---- Where the value is ------------------------------------------------------------------ */

/* Elements of the operand's value from its `first` on, in a shape. */
static tl_tensor view(const tl_call *call, const tl_operand *x, const tl_dims *shape)
{
    tl_value_retain(x->value);
    tl_tensor tensor = tl_handle_of(call, x->value, shape);
    tl_handle_find(call, tensor)->first = x->first;
    return tensor;
}

tl_tensor tl_reshape_(tl_context *tl, tl_srcloc at, tl_tensor x, tl_dims shape)
{
    tl_call call = tl_enter(tl, at, "tl_reshape");
    uint64_t elements = tl_check_shape(&call, &shape);
    tl_operand is = tl_take_value(&call, x);
    if (elements != tl_elements(&is.shape))
        tl_fault(&call, "shape %s has other elements than %s", tl_shape_print(&shape).text,
                 tl_shape_print(&is.shape).text);
    tl_tensor reshaped = view(&call, &is, &shape);
    tl_end_call(tl);
    return reshaped;
}

/* ---- Parts ------------------------------------------------------------------------------- */

static kb_error *bind_slice(tl_details *details)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    data_value *input;
    KB_TRY(tl_operand_data(tl, &details->inputs[0], &input));
    uint64_t begin = (uint64_t)details->first;
    uint64_t end = begin + (uint64_t)details->shape.dims[details->axis];
    kb_error *err = data_slice(store, input, details->axis, begin, end, &details->result->data);
    data_release(store, input);
    return err;
}

static tl_tensor move_slice(const tl_call *call, const tl_operand *x, const tl_dims *shape,
                            uint32_t axis, int64_t begin)
{
    tl_value *result = tl_value_new(call, x->dtype, shape);
    tl_issue_work(call,
                  &(tl_work){.op = DATA_SLICE,
                             .inputs = {*x},
                             .input_count = 1,
                             .shape = *shape,
                             .axis = axis,
                             .first = begin,
                             .bind = bind_slice,
                             .cycles = tl_move_cycles(call->tl, tl_elements(shape), 1),
                             .tcm_reads = result->bytes,
                             .tcm_writes = result->bytes},
                  result, NULL);
    return tl_handle_of(call, result, shape);
}

/* Whether a part along the axis has no gaps: nothing is repeated before it, or it is all there is.
 */
static bool is_without_gaps(const tl_dims *whole, const tl_dims *part, uint32_t axis)
{
    if (part->dims[axis] == whole->dims[axis] || tl_elements(part) == 0)
        return true;
    for (uint32_t i = 0; i < axis; i++)
        if (whole->dims[i] != 1)
            return false;
    return true;
}

/* From `begin` to before `end`, which are there. */
static tl_tensor slice(const tl_call *call, const tl_operand *x, uint32_t axis, int64_t begin,
                       int64_t end)
{
    tl_dims shape = x->shape;
    shape.dims[axis] = end - begin;
    if (!is_without_gaps(&x->shape, &shape, axis))
        return move_slice(call, x, &shape, axis, begin);
    tl_operand part = *x;
    uint64_t row = 1;
    for (int i = (int)axis + 1; i < shape.rank; i++)
        row *= (uint64_t)shape.dims[i];
    if (tl_elements(&shape) > 0)
        part.first += (uint64_t)begin * row;
    return view(call, &part, &shape);
}

tl_tensor tl_slice_(tl_context *tl, tl_srcloc at, tl_tensor x, int axis, int64_t begin, int64_t end)
{
    tl_call call = tl_enter(tl, at, "tl_slice");
    tl_operand is = tl_take_value(&call, x);
    uint32_t along = tl_check_axis(&call, &is.shape, axis);
    if (begin < 0 || begin > end || end > is.shape.dims[along])
        tl_fault(&call, "from %lld to %lld of axis %d of shape %s", (long long)begin,
                 (long long)end, axis, tl_shape_print(&is.shape).text);
    tl_tensor part = slice(&call, &is, along, begin, end);
    tl_end_call(tl);
    return part;
}

void tl_split_(tl_context *tl, tl_srcloc at, tl_tensor x, int axis, tl_tensor *parts, int64_t count)
{
    tl_call call = tl_enter(tl, at, "tl_split");
    tl_operand is = tl_take_value(&call, x);
    uint32_t along = tl_check_axis(&call, &is.shape, axis);
    if (count < 1)
        tl_fault(&call, "into %lld parts", (long long)count);
    int64_t length = is.shape.dims[along];
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = tl_part_begin(length, count, i);
        parts[i] = slice(&call, &is, along, begin, begin + tl_part_size(length, count, i));
    }
    tl_end_call(tl);
}

void tl_split_sizes_(tl_context *tl, tl_srcloc at, tl_tensor x, int axis, tl_tensor *parts,
                     const int64_t *sizes, int count)
{
    tl_call call = tl_enter(tl, at, "tl_split_sizes");
    tl_operand is = tl_take_value(&call, x);
    uint32_t along = tl_check_axis(&call, &is.shape, axis);
    int64_t length = is.shape.dims[along], left = length;
    for (int i = 0; i < count; i++) {
        if (sizes[i] < 0)
            tl_fault(&call, "size %lld is negative", (long long)sizes[i]);
        if (sizes[i] > left)
            tl_fault(&call, "sizes add up to more than the %lld of axis %d of shape %s",
                     (long long)length, axis, tl_shape_print(&is.shape).text);
        left -= sizes[i];
    }
    if (left > 0)
        tl_fault(&call, "sizes add up to %lld, and axis %d of shape %s has %lld",
                 (long long)(length - left), axis, tl_shape_print(&is.shape).text,
                 (long long)length);
    int64_t begin = 0;
    for (int i = 0; i < count; begin += sizes[i++])
        parts[i] = slice(&call, &is, along, begin, begin + sizes[i]);
    tl_end_call(tl);
}

/* ---- Joined ------------------------------------------------------------------------------ */

static kb_error *bind_concat(tl_details *details)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    data_value *inputs[TL_MAX_INPUTS] = {NULL};
    kb_error *err = NULL;
    for (uint32_t i = 0; i < details->input_count && !err; i++)
        err = tl_operand_data(tl, &details->inputs[i], &inputs[i]);
    if (!err)
        err =
            data_concat(store, inputs, details->input_count, details->axis, &details->result->data);
    for (uint32_t i = 0; i < details->input_count; i++)
        data_release(store, inputs[i]);
    return err;
}

/* The shape of all, and their type. Nothing is loaded yet. */
static tl_dims check_joined(const tl_call *call, const tl_tensor *inputs, size_t count, int axis,
                            uint32_t *along, kb_dtype *dtype)
{
    const tl_handle *first = tl_handle_find(call, inputs[0]);
    tl_dims shape = first->shape;
    *dtype = first->dtype;
    *along = tl_check_axis(call, &shape, axis);
    for (size_t i = 1; i < count; i++) {
        const tl_handle *next = tl_handle_find(call, inputs[i]);
        tl_dims same = next->shape;
        if (same.rank == shape.rank)
            same.dims[*along] = shape.dims[*along];
        if (!tl_same_shape(&same, &shape))
            tl_fault(call, "shapes %s and %s differ elsewhere than on axis %d",
                     tl_shape_print(&first->shape).text, tl_shape_print(&next->shape).text, axis);
        if (next->dtype != *dtype)
            tl_fault(call, "dtypes %s and %s: cast one first", kb_dtype_name(*dtype),
                     kb_dtype_name(next->dtype));
        shape.dims[*along] += next->shape.dims[*along];
    }
    (void)tl_check_shape(call, &shape);
    return shape;
}

/* What is joined so far, and its value, which has the place of all. */
typedef struct joined {
    tl_value *value; /* NULL: nothing yet */
    tl_dims shape;
} joined;

/* One command: moves some more behind what is there. */
static void join(const tl_call *call, const tl_tensor *inputs, size_t count, uint32_t along,
                 tl_value *result, joined *so_far)
{
    tl_work is = {.op = DATA_CONCAT, .axis = along, .bind = bind_concat, .shape = so_far->shape};
    if (so_far->value)
        is.inputs[is.input_count++] = (tl_operand){.value = so_far->value,
                                                   .dtype = result->dtype,
                                                   .shape = so_far->shape,
                                                   .elements = tl_elements(&so_far->shape)};
    else
        is.shape.dims[along] = 0;
    uint64_t elements = 0;
    for (size_t i = 0; i < count; i++) {
        tl_operand *next = &is.inputs[is.input_count++];
        *next = tl_take(call, inputs[i]);
        is.shape.dims[along] += next->shape.dims[along];
        elements += next->elements;
    }
    is.cycles = tl_move_cycles(call->tl, elements, 1);
    is.tcm_reads = is.tcm_writes = elements * kb_dtype_bytes(result->dtype);
    tl_issue_work(call, &is, result, NULL);
    tl_end_call(call->tl);
    if (so_far->value)
        tl_value_release(call->tl, so_far->value);
    *so_far = (joined){result, is.shape};
}

tl_tensor tl_concat_(tl_context *tl, tl_srcloc at, int axis, const tl_tensor *inputs, size_t count)
{
    tl_call call = tl_enter(tl, at, "tl_concat");
    uint32_t along;
    kb_dtype dtype;
    tl_dims shape = check_joined(&call, inputs, count, axis, &along, &dtype);
    tl_value *result = tl_value_new(&call, dtype, &shape);
    joined so_far = {.shape = shape};
    for (size_t done = 0, now; done < count; done += now) {
        size_t room = so_far.value ? TL_MAX_INPUTS - 1 : TL_MAX_INPUTS;
        now = count - done < room ? count - done : room;
        if (so_far.value)
            result = tl_value_in_place_of(&call, so_far.value);
        join(&call, inputs + done, now, along, result, &so_far);
    }
    return tl_handle_of(&call, result, &shape);
}
