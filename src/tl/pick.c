/*
 * pick.c: operations of the vector engine that look elements up: gather, scatter, and the largest
 * k.
 *
 * An index that is not structural is known when its command begins, so only then can it be wrong:
 * the kernel ends there, in the middle of whatever it does, with the place of the call.
 */
#include "tl_private.h"

/* ---- Indices ----------------------------------------------------------------------------- */

/* "(0, 3)" for element `at` of the shape. */
static tl_shape_text coordinates_print(const tl_dims *shape, uint64_t at)
{
    tl_dims coordinates = {.rank = shape->rank};
    for (int i = shape->rank; i-- > 0; at /= (uint64_t)shape->dims[i])
        coordinates.dims[i] = (int64_t)(at % (uint64_t)shape->dims[i]);
    return tl_shape_print(&coordinates);
}

/* A fault if a number of the index, which has data, is no place on the axis of x. */
static kb_error *check_numbers(tl_context *tl, const tl_operand *index, const tl_dims *x,
                               uint32_t axis)
{
    data_store *store = tl->runner->has.store;
    data_value *data;
    bool is_inside = true;
    uint64_t at = 0;
    int32_t number = 0;
    KB_TRY(tl_operand_data(tl, index, &data));
    kb_error *err =
        data_check_index(store, data, (uint64_t)x->dims[axis], &is_inside, &at, &number);
    data_release(store, data);
    if (err || is_inside)
        return err;
    return kb_error_new(KB_ERR_FAULT, "index %d at %s is out of range for axis %u of shape %s",
                        (int)number, coordinates_print(&index->shape, at).text, (unsigned)axis,
                        tl_shape_print(x).text);
}

/* The axis of x, which the index fits: on no other axis does it have more than x. */
static uint32_t check_index(const tl_call *call, const tl_operand *x, const tl_operand *index,
                            int axis)
{
    uint32_t along = tl_check_axis(call, &x->shape, axis);
    if (index->dtype != KB_I32)
        tl_fault(call, "the index is %s; expected i32", kb_dtype_name(index->dtype));
    bool fits = index->shape.rank == x->shape.rank;
    for (int i = 0; fits && i < x->shape.rank; i++)
        fits = i == (int)along || index->shape.dims[i] <= x->shape.dims[i];
    if (!fits)
        tl_fault(call, "an index of shape %s does not fit axis %d of shape %s",
                 tl_shape_print(&index->shape).text, axis, tl_shape_print(&x->shape).text);
    if (index->value->structural)
        tl_check(call, check_numbers(call->tl, index, &x->shape, along));
    return along;
}

static kb_error *bind_index_op(tl_details *details)
{
    tl_context *tl = details->tl;
    const tl_operand *x = &details->inputs[0], *index = &details->inputs[1];
    kb_error *err = NULL;
    if (!index->value->structural)
        err = check_numbers(tl, index, &x->shape, details->axis);
    if (!err)
        return tl_bind_op(details);
    if (kb_error_code(err) != KB_ERR_FAULT)
        return err;
    tl_call call = {.tl = tl, .at = details->at, .name = details->name};
    tl_context_stop(tl, tl_locate_error(&call, err));
    return NULL; /* it makes nothing, and neither does what needs it */
}

/* `moves` and `picks`: passes over the elements of the index. */
static uint64_t index_cycles(const tl_context *tl, const tl_operand *index, uint32_t moves,
                             uint32_t picks)
{
    uint32_t counts[PE_MATH_CLASSES] = {[PE_MATH_MOVE] = moves, [PE_MATH_GATHER] = picks};
    return pe_math_cycles(tl->runner->params, tl_elements(&index->shape), counts);
}

/* ---- Gather ------------------------------------------------------------------------------ */

tl_tensor tl_gather_(tl_context *tl, tl_srcloc at, tl_tensor x, tl_tensor index, int axis)
{
    tl_call call = tl_enter(tl, at, "tl_gather");
    tl_work is = {.op = DATA_GATHER, .input_count = 2, .bind = bind_index_op};
    is.inputs[0] = tl_take_value(&call, x);
    is.inputs[1] = tl_take_value(&call, index);
    is.axis = check_index(&call, &is.inputs[0], &is.inputs[1], axis);
    is.checks_data = !is.inputs[1].value->structural && !tl->runner->has.timing_only;
    is.shape = is.inputs[1].shape;
    is.cycles = index_cycles(tl, &is.inputs[1], 0, 1);
    tl_value *result = tl_value_new(&call, is.inputs[0].dtype, &is.shape);
    is.tcm_reads = tl_operand_bytes(&is.inputs[1]) + result->bytes;
    is.tcm_writes = result->bytes;
    tl_issue_work(&call, &is, result, NULL);
    tl_end_call(tl);
    return tl_handle_of(&call, result, &is.shape);
}

/* ---- Scatter ----------------------------------------------------------------------------- */

/* What is put: as the index says it, or a number. */
static tl_operand take_source(const tl_call *call, tl_tensor src, const tl_operand *x,
                              const tl_operand *index)
{
    tl_operand is = tl_take(call, src);
    if (!is.value) {
        is.dtype = tl_number_beside(is.number, x->dtype);
        if (is.dtype != x->dtype)
            tl_fault(call, "%g is no number of %s", is.number, kb_dtype_name(x->dtype));
        is.shape = index->shape;
        return is;
    }
    if (is.dtype != x->dtype)
        tl_fault(call, "dtypes %s and %s: cast one first", kb_dtype_name(x->dtype),
                 kb_dtype_name(is.dtype));
    bool fits = is.shape.rank == index->shape.rank;
    for (int i = 0; fits && i < is.shape.rank; i++)
        fits = index->shape.dims[i] <= is.shape.dims[i];
    if (!fits)
        tl_fault(call, "the source of shape %s is smaller than the index, %s",
                 tl_shape_print(&is.shape).text, tl_shape_print(&index->shape).text);
    return is;
}

tl_tensor tl_scatter_(tl_context *tl, tl_srcloc at, tl_tensor x, tl_tensor index, int axis,
                      tl_tensor src, bool adds)
{
    tl_call call = tl_enter(tl, at, adds ? "tl_scatter_add" : "tl_scatter");
    tl_work is = {
        .op = adds ? DATA_SCATTER_ADD : DATA_SCATTER, .input_count = 3, .bind = bind_index_op};
    const tl_operand *places = &is.inputs[1];
    is.inputs[0] = tl_take_value(&call, x);
    is.inputs[1] = tl_take_value(&call, index);
    if (adds)
        tl_check_not_f8(&call, &is.inputs[0]);
    is.axis = check_index(&call, &is.inputs[0], places, axis);
    is.checks_data = !places->value->structural && !tl->runner->has.timing_only;
    is.inputs[2] = take_source(&call, src, &is.inputs[0], places);
    is.shape = is.inputs[0].shape;
    /* A copy of x; then elements are put, for which sums fetch what is there first. */
    uint64_t elements = tl_elements(&places->shape);
    is.cycles = tl_move_cycles(tl, tl_elements(&is.shape), 1) +
                index_cycles(tl, places, adds ? 1 : 0, adds ? 2 : 1);
    is.flops = adds ? elements : 0;
    tl_value *result = tl_value_new(&call, is.inputs[0].dtype, &is.shape);
    uint64_t put = elements * kb_dtype_bytes(result->dtype);
    is.tcm_reads = result->bytes + tl_operand_bytes(places) + (is.inputs[2].value ? put : 0) +
                   (adds ? put : 0);
    is.tcm_writes = result->bytes + put;
    tl_issue_work(&call, &is, result, NULL);
    tl_end_call(tl);
    return tl_handle_of(&call, result, &is.shape);
}

/* ---- The largest k ----------------------------------------------------------------------- */

static kb_error *bind_topk(tl_details *details)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    kb_shape shape = tl_shape_of(&details->shape);
    data_value *inputs[2] = {NULL, NULL}; /* x, the indices */
    kb_error *err = tl_operand_data(tl, &details->inputs[0], &inputs[0]);
    if (!err)
        err = data_apply(store, DATA_TOPK, KB_I32, &shape, inputs, 1, details->axis, &inputs[1]);
    if (!err)
        err = data_apply(store, DATA_GATHER, details->result->dtype, &shape, inputs, 2,
                         details->axis, &details->result->data);
    if (!err)
        details->second->data = data_retain(inputs[1]);
    data_release(store, inputs[1]);
    data_release(store, inputs[0]);
    return err;
}

/*
 * Rounds of three passes: in each of k, the largest is found, its index is kept, and it is taken
 * out; or a bitonic network sorts all in s * (s + 1) / 2, of which each compares, and keeps numbers
 * and indices. Whichever is less.
 */
static uint32_t passes_of_topk(uint64_t length, uint64_t k)
{
    uint64_t s = tl_log2_up(length), sorting = s * (s + 1) / 2;
    if (sorting == 0)
        sorting = 1;
    return 3 * (uint32_t)(k < sorting ? k : sorting);
}

tl_topk_result tl_topk_(tl_context *tl, tl_srcloc at, tl_tensor x, int64_t k, int axis)
{
    tl_call call = tl_enter(tl, at, "tl_topk");
    tl_work is = {.op = DATA_TOPK, .input_count = 1, .bind = bind_topk};
    is.inputs[0] = tl_take_value(&call, x);
    tl_check_not_f8(&call, &is.inputs[0]);
    is.shape = is.inputs[0].shape;
    is.axis = tl_check_axis(&call, &is.shape, axis);
    int64_t length = is.shape.dims[is.axis];
    if (k < 0 || k > length)
        tl_fault(&call, "k is %lld, and axis %d of shape %s has %lld elements", (long long)k, axis,
                 tl_shape_print(&is.shape).text, (long long)length);
    uint64_t elements = tl_elements(&is.shape);
    uint32_t passes = passes_of_topk((uint64_t)length, (uint64_t)k);
    is.shape.dims[is.axis] = k;
    is.cycles = tl_move_cycles(tl, elements, passes);
    is.flops = elements * (passes / 3);
    tl_value *values = tl_value_new(&call, is.inputs[0].dtype, &is.shape);
    tl_value *indices = tl_value_new(&call, KB_I32, &is.shape);
    is.tcm_reads = k > 0 ? tl_operand_bytes(&is.inputs[0]) : 0;
    is.tcm_writes = values->bytes + indices->bytes;
    tl_issue_work(&call, &is, values, indices);
    tl_end_call(tl);
    tl_topk_result result;
    result.values = tl_handle_of(&call, values, &is.shape);
    result.indices = tl_handle_of(&call, indices, &is.shape);
    return result;
}
