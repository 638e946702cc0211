/*
 * epilogue.c: the epilogue of a product: bias, gate, residual, rounding, and the store. Everything
 * before the rounding is computed in the dtype of sums.
 */
#include "matmul_private.h"

tp_rect tp_out_rect(const team_pe *me, const tp_rect *at)
{
    tp_rect out = *at;
    if (me->plan->problem.gated) {
        out.column /= 2;
        out.columns /= 2;
    }
    return out;
}

part_operands tp_load_operands(tl_context *tl, const team_pe *me, const tp_rect *at)
{
    const tp_matmul_plan *plan = me->plan;
    const tp_rect bias_at = {0, 1, at->column, at->columns};
    part_operands operands = {0};
    if (plan->has_bias)
        operands.bias = tp_load(tl, &plan->bias, me->bias, bias_at);
    if (plan->has_residual)
        operands.residual = tp_load(tl, &plan->residual, me->residual, tp_out_rect(me, at));
    return operands;
}

/* Whether the vector engine can add the dtypes without a cast, with a result in the dtype of the
 * sum. */
static bool adds_directly(kb_dtype dtype, kb_dtype sum)
{
    return sum == KB_I32 ? mem_is_integer(dtype) : mem_is_float(dtype);
}

/* Consumes the sum and the operand. */
static tl_tensor add_operand(tl_context *tl, tl_tensor sum, kb_dtype sum_dtype, tl_tensor operand,
                             kb_dtype dtype)
{
    if (!adds_directly(dtype, sum_dtype))
        operand = tp_cast(tl, operand, dtype, sum_dtype);
    tl_tensor both = tl_add(sum, operand);
    tl_free(sum);
    tl_free(operand);
    return both;
}

/* silu(gate) * up of pairs of columns. Consumes the sum. */
static tl_tensor apply_gate(tl_context *tl, tl_tensor sum, const tp_rect *at)
{
    tl_tensor pairs = tl_reshape(sum, tl_shape(at->rows, at->columns / 2, 2));
    tl_tensor halves[2];
    for (int i = 0; i < 2; i++) {
        tl_tensor half = tl_slice(pairs, 2, i, i + 1);
        halves[i] = tl_reshape(half, tl_shape(at->rows, at->columns / 2));
        tl_free(half);
    }
    tl_free(pairs);
    tl_free(sum);
    tl_tensor gate = tl_silu(halves[0]);
    tl_tensor result = tl_mul(gate, halves[1]);
    tl_free(gate);
    tl_free(halves[0]);
    tl_free(halves[1]);
    return result;
}

tl_tensor tp_finish_part(tl_context *tl, const team_pe *me, tl_tensor sum, kb_dtype dtype,
                         const tp_rect *at, part_operands *operands)
{
    const tp_matmul_plan *plan = me->plan;
    const kb_dtype wide = tp_team_sum_dtype(me);
    if (plan->has_bias || plan->has_residual || plan->problem.gated) {
        sum = tp_cast(tl, sum, dtype, wide);
        dtype = wide;
    }
    if (plan->has_bias)
        sum = add_operand(tl, sum, wide, operands->bias, plan->bias.dtype);
    if (plan->problem.gated)
        sum = apply_gate(tl, sum, at);
    if (plan->has_residual)
        sum = add_operand(tl, sum, wide, operands->residual, plan->residual.dtype);
    *operands = (part_operands){0};
    return tp_cast(tl, sum, dtype, plan->out.dtype);
}

/* ---- Stores ---- */

/* A store to all cubes occupies write channels of the DMA that sums also need, and a smaller store
 * than this is dominated by latency. So parts of sums over ranks are
 * stored together. Other parts are not held, which would delay the last stores. */
enum { SMALL_STORE_BYTES = 2048 };

/* The axis along which the next part is adjacent to the previous one; -1: none. */
static int find_axis(const tp_rect *before, const tp_rect *next)
{
    if (next->row == before->row && next->rows == before->rows &&
        next->column == before->column + before->columns)
        return 1;
    if (next->column == before->column && next->columns == before->columns &&
        next->row == before->row + before->rows)
        return 0;
    return -1;
}

/* Appends a part to the held part, along the axis. */
static void extend_held(tl_context *tl, held_part *held, int axis, const tp_rect *at,
                        tl_tensor value)
{
    tp_concat joint = {.axis = axis};
    tp_concat_add(tl, &joint, held->value);
    tp_concat_add(tl, &joint, value);
    held->value = tp_concat_finish(tl, &joint);
    if (axis == 0)
        held->at.rows += at->rows;
    else
        held->at.columns += at->columns;
}

void tp_flush_parts(tl_context *tl, const team_pe *me)
{
    held_part *held = me->held;
    if (held->value.id == 0)
        return;
    tp_store(tl, &me->plan->out, me->out, held->at, held->value);
    tl_free(held->value);
    held->value = (tl_tensor){0};
}

void tp_store_part(tl_context *tl, const team_pe *me, const tp_rect *at, tl_tensor value)
{
    const tp_view *out = &me->plan->out;
    held_part *held = me->held;
    tp_rect next = tp_out_rect(me, at);
    int axis = held->value.id != 0 ? find_axis(&held->at, &next) : -1;
    if (axis >= 0) {
        extend_held(tl, held, axis, &next, value);
    } else {
        tp_flush_parts(tl, me);
        *held = (held_part){next, value};
    }
    int64_t bytes = held->at.rows * held->at.columns * (int64_t)kb_dtype_bytes(out->dtype);
    bool is_held = out->cube_copies > 1 && me->plan->ranks > 1 && bytes < SMALL_STORE_BYTES;
    if (!is_held)
        tp_flush_parts(tl, me);
}
