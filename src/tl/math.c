/*
 * math.c: operations of the vector engine: on elements, along an axis, and some that only move
 * elements (the others are in pieces.c and pick.c). Here are the rules for shapes and types, and
 * what each of these operations costs.
 *
 * An operation passes over its elements once for each step of a class (see the table): over those
 * of the result, or of the input if it is along an axis. Not modelled: that repeating an axis, or
 * swapping two, is slower than going straight ahead.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "tl_private.h"

/* ---- What operations are ----------------------------------------------------------------- */

typedef enum rule {
    MEET,     /* the result has the type in which the inputs meet */
    COMPARE,  /* the same for comparing; the result is i8 */
    CHOOSE,   /* the first input decides, the others meet */
    KEEP,     /* the result has the type of the input */
    FLOATING, /* the same, but f32 for integers */
    TOTAL,    /* the same as KEEP, but i32 for integers */
    INDEX,    /* the result is i32 */
} rule;

typedef enum extent {
    EACH,    /* element by element */
    ALONG,   /* along an axis, of which 1 is left */
    THROUGH, /* along an axis, which stays */
} extent;

typedef struct facts {
    rule rule;
    extent extent;
    uint32_t passes[PE_MATH_CLASSES]; /* moves and sums, divisions, exponentials, picking */
    uint32_t flops;                   /* of an element */
} facts;

/*
 * Flops are what a person would count: one for every sum, product, quotient, comparison or
 * function, two for a product with a sum or for two comparisons, none for moving.
 */
static const facts facts_of[TL_OPS_] = {
    [TL_ADD_] = {MEET, EACH, {1}, 1},
    [TL_SUB_] = {MEET, EACH, {1}, 1},
    [TL_MUL_] = {MEET, EACH, {1}, 1},
    [TL_DIV_] = {MEET, EACH, {0, 1}, 1},
    [TL_MAXIMUM_] = {MEET, EACH, {1}, 1},
    [TL_MINIMUM_] = {MEET, EACH, {1}, 1},
    [TL_LT_] = {COMPARE, EACH, {1}, 1},
    [TL_LE_] = {COMPARE, EACH, {1}, 1},
    [TL_GT_] = {COMPARE, EACH, {1}, 1},
    [TL_GE_] = {COMPARE, EACH, {1}, 1},
    [TL_EQ_] = {COMPARE, EACH, {1}, 1},
    [TL_NE_] = {COMPARE, EACH, {1}, 1},
    [TL_FMA_] = {MEET, EACH, {1}, 2},
    [TL_CLAMP_] = {MEET, EACH, {1}, 2},
    [TL_WHERE_] = {CHOOSE, EACH, {1}, 0},
    [TL_EXP_] = {FLOATING, EACH, {0, 0, 1}, 1},
    [TL_LOG_] = {FLOATING, EACH, {0, 0, 1}, 1},
    [TL_SQRT_] = {FLOATING, EACH, {0, 1}, 1},
    [TL_RSQRT_] = {FLOATING, EACH, {0, 1}, 1},
    [TL_ABS_] = {KEEP, EACH, {1}, 1},
    [TL_SIGMOID_] = {FLOATING, EACH, {0, 0, 1}, 1},
    [TL_TANH_] = {FLOATING, EACH, {0, 0, 1}, 1},
    [TL_COS_] = {FLOATING, EACH, {0, 0, 1}, 1},
    [TL_SIN_] = {FLOATING, EACH, {0, 0, 1}, 1},
    [TL_GELU_] = {FLOATING, EACH, {1, 0, 1}, 2},
    [TL_SILU_] = {FLOATING, EACH, {1, 0, 1}, 2},
    [TL_NEG_] = {KEEP, EACH, {1}, 1},
    [TL_CAST_] = {KEEP, EACH, {1}, 0},
    [TL_SUM_] = {TOTAL, ALONG, {1}, 1},
    [TL_MAX_] = {KEEP, ALONG, {1}, 1},
    [TL_MIN_] = {KEEP, ALONG, {1}, 1},
    /* The maximum, subtracting it, the sum; a division; an exponential. */
    [TL_SOFTMAX_] = {FLOATING, THROUGH, {3, 1, 1}, 5},
    [TL_TRANSPOSE_] = {KEEP, EACH, {1}, 0},
    [TL_RESHAPE_] = {KEEP, EACH, {0}, 0},
    /* Comparing, which keeps the number, and keeping its index. */
    [TL_ARGMAX_] = {INDEX, ALONG, {2}, 1},
    [TL_ARGMIN_] = {INDEX, ALONG, {2}, 1},
    [TL_CUMSUM_] = {TOTAL, THROUGH, {0}, 1}, /* see passes_of_cumsum() */
};

static const char *const name_of[TL_OPS_] = {
#define NAME(op, name, inputs, kernel) [TL_##op##_] = "tl_" #name,
    TL_DETAIL_EACH_OP(NAME)
#undef NAME
};

/* ---- Types ------------------------------------------------------------------------------- */

kb_dtype tl_dtypes_meet(kb_dtype a, kb_dtype b)
{
    if (a == b)
        return a;
    if (mem_is_integer(a) != mem_is_integer(b))
        return mem_is_integer(a) ? b : a;
    return mem_sum_dtype(a);
}

kb_dtype tl_number_beside(double number, kb_dtype dtype)
{
    if (!mem_is_integer(dtype))
        return dtype;
    if (!(number >= INT32_MIN && number <= INT32_MAX) || number != trunc(number))
        return KB_F32;
    return number < mem_integer_min(dtype) || number > mem_integer_max(dtype) ? KB_I32 : dtype;
}

/* The type in which the operands meet; numbers among them get theirs. f32 if all are numbers. */
static inline kb_dtype meet(tl_operand *operands, uint32_t count)
{
    bool any = false;
    kb_dtype tensors = KB_F32;
    if (KB_LIKELY(count == 2 && operands[0].value && operands[1].value))
        return tl_dtypes_meet(operands[0].dtype, operands[1].dtype);
    for (uint32_t i = 0; i < count; i++) {
        if (!operands[i].value)
            continue;
        tensors = any ? tl_dtypes_meet(tensors, operands[i].dtype) : operands[i].dtype;
        any = true;
    }
    kb_dtype all = tensors;
    for (uint32_t i = 0; i < count; i++) {
        if (operands[i].value)
            continue;
        operands[i].dtype = tl_number_beside(operands[i].number, tensors);
        all = tl_dtypes_meet(all, operands[i].dtype);
    }
    return all;
}

static kb_dtype result_dtype(const facts *is, tl_operand *operands, uint32_t count)
{
    kb_dtype first = operands[0].dtype;
    switch (is->rule) {
    case MEET:
        return meet(operands, count);
    case COMPARE:
        (void)meet(operands, count);
        return KB_I8;
    case CHOOSE:
        return meet(operands + 1, count - 1);
    case FLOATING:
        return mem_is_integer(first) ? KB_F32 : first;
    case TOTAL:
        return mem_is_integer(first) ? KB_I32 : first;
    case INDEX:
        return KB_I32;
    case KEEP:
        break;
    }
    return first;
}

/* ---- Shapes ------------------------------------------------------------------------------ */

bool tl_broadcast(const tl_dims *a, const tl_dims *b, tl_dims *both)
{
    *both = (tl_dims){.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 1; i <= both->rank; i++) { /* from the last */
        int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        both->dims[both->rank - i] = x == 1 ? y : x;
    }
    return true;
}

uint32_t tl_check_axis(const tl_call *call, const tl_dims *shape, int axis)
{
    int from_first = axis < 0 ? axis + shape->rank : axis;
    if (from_first < 0 || from_first >= shape->rank)
        tl_fault(call, "axis %d of shape %s", axis, tl_shape_print(shape).text);
    return (uint32_t)from_first;
}

/* ---- Issuing ----------------------------------------------------------------------------- */

uint64_t tl_move_cycles(const tl_context *tl, uint64_t elements, uint32_t moves)
{
    return pe_math_cycles(tl->runner->params, elements,
                          (uint32_t[PE_MATH_CLASSES]){[PE_MATH_MOVE] = moves});
}

void tl_issue_work(const tl_call *call, tl_work *is, tl_value *result, tl_value *second)
{
    is->unit = KB_UNIT_MATH;
    is->time = pe_math_time(call->tl->runner->params, is->cycles);
    is->tail = 0;
    tl_issue_engine(call, is, result, second);
}

/* An operation with one result, which has a place of its own. */
static tl_tensor issue(const tl_call *call, tl_work *is)
{
    tl_value *result = tl_value_new(call, is->dtype, &is->shape);
    is->tcm_writes = result->bytes;
    for (uint32_t i = 0; i < is->input_count; i++)
        is->tcm_reads += tl_operand_bytes(&is->inputs[i]);
    tl_issue_work(call, is, result, NULL);
    tl_end_call(call->tl);
    return tl_handle_of(call, result, &is->shape);
}

kb_error *tl_bind_op(tl_details *details)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    data_value *inputs[TL_MAX_INPUTS] = {NULL};
    kb_shape shape = tl_shape_of(&details->shape);
    kb_error *err = NULL;
    for (uint32_t i = 0; i < details->input_count && !err; i++)
        err = tl_operand_data(tl, &details->inputs[i], &inputs[i]);
    if (!err)
        err = data_apply(store, details->op, details->result->dtype, &shape, inputs,
                         details->input_count, details->axis, &details->result->data);
    for (uint32_t i = 0; i < details->input_count; i++)
        data_release(store, inputs[i]);
    return err;
}

/*
 * Running sums along the last axis are made within a row of lanes in steps that double what is
 * summed, and then what came before is added; along another axis, lanes have different sums, and
 * each row of lanes is added to the one before.
 */
static uint32_t passes_of_cumsum(const tl_context *tl, const tl_dims *shape, uint32_t axis)
{
    uint64_t length = (uint64_t)shape->dims[axis], lanes = tl->runner->params->math_lanes;
    for (int i = (int)axis + 1; i < shape->rank; i++)
        if (shape->dims[i] != 1)
            return 1;
    uint32_t passes = tl_log2_up(length < lanes ? length : lanes) + (length > lanes);
    return passes > 0 ? passes : 1;
}

/* Issues the operation of the table on `elements` elements, with its cost. */
static inline tl_tensor issue_op(const tl_call *call, tl_op op, tl_work *is, uint64_t elements)
{
    const facts *known = &facts_of[op];
    is->op = (data_op)op;
    is->bind = tl_bind_op;
    is->cycles = pe_math_cycles(call->tl->runner->params, elements, known->passes);
    if (KB_UNLIKELY(op == TL_CUMSUM_))
        is->cycles = tl_move_cycles(call->tl, elements,
                                    passes_of_cumsum(call->tl, &is->inputs[0].shape, is->axis));
    is->flops = elements * known->flops;
    return issue(call, is);
}

/* ---- Element by element, and along an axis ----------------------------------------------- */

void tl_check_not_f8(const tl_call *call, const tl_operand *operand)
{
    if (operand->value && mem_is_storage(operand->dtype))
        tl_fault(call, "%s is for storage: cast it first", kb_dtype_name(operand->dtype));
}

static inline void check_inputs(const tl_call *call, const tl_work *is)
{
    bool any = false;
    for (uint32_t i = 0; i < is->input_count; i++) {
        any = any || is->inputs[i].value;
        if (KB_UNLIKELY(mem_is_storage(is->inputs[i].dtype)))
            tl_check_not_f8(call, &is->inputs[i]);
    }
    if (KB_UNLIKELY(!any))
        tl_fault(call, "%s: use C for that",
                 is->input_count == 1 ? "its operand is a plain number"
                                      : "its operands are plain numbers");
}

/* The shape of the result, and its elements. */
static inline uint64_t check_broadcast(const tl_call *call, tl_work *is)
{
    bool is_alike = true;
    is->shape = is->inputs[0].shape;
    for (uint32_t i = 1; i < is->input_count; i++) {
        if (KB_LIKELY(tl_same_shape(&is->shape, &is->inputs[i].shape)))
            continue;
        is_alike = false;
        tl_dims so_far = is->shape;
        if (!tl_broadcast(&so_far, &is->inputs[i].shape, &is->shape))
            tl_fault(call, "shapes %s and %s do not broadcast", tl_shape_print(&so_far).text,
                     tl_shape_print(&is->inputs[i].shape).text);
    }
    return is_alike ? is->inputs[0].elements : tl_check_shape(call, &is->shape);
}

tl_tensor tl_apply_(tl_context *tl, tl_srcloc at, tl_op op, const tl_tensor *inputs, int axis)
{
    KB_ASSERT((unsigned)op < TL_OPS_);
    const facts *known = &facts_of[op];
    tl_call call = tl_enter(tl, at, name_of[op]);
    tl_work is; /* not all zeros: it is large, and this is called for most operations */
    is.input_count = data_op_inputs((data_op)op);
    is.axis = 0;
    is.number = 0;
    is.first = 0;
    is.checks_data = false;
    is.tcm_reads = 0;
    for (uint32_t i = 0; i < is.input_count; i++)
        tl_take_to(&call, inputs[i], &is.inputs[i]);
    check_inputs(&call, &is);
    is.dtype = result_dtype(known, is.inputs, is.input_count);
    uint64_t elements = check_broadcast(&call, &is);
    if (known->extent != EACH)
        is.axis = tl_check_axis(&call, &is.shape, axis);
    if (known->extent == ALONG) {
        int64_t *length = &is.shape.dims[is.axis];
        if (*length == 0 && op != TL_SUM_)
            tl_fault(&call, "axis %d of shape %s is empty", axis, tl_shape_print(&is.shape).text);
        *length = 1;
    }
    return issue_op(&call, op, &is, elements);
}

/* ---- Types and shapes -------------------------------------------------------------------- */

tl_operand tl_take_value(const tl_call *call, tl_tensor x)
{
    tl_operand operand = tl_take(call, x);
    if (!operand.value)
        tl_fault(call, "its operand is a plain number: use C for that");
    return operand;
}

/* On one operand alone, which cannot be a number. */
static tl_work work_on(const tl_call *call, tl_tensor x)
{
    tl_work is = {.input_count = 1};
    is.inputs[0] = tl_take_value(call, x);
    is.dtype = is.inputs[0].dtype;
    is.shape = is.inputs[0].shape;
    return is;
}

tl_tensor tl_cast_(tl_context *tl, tl_srcloc at, tl_tensor x, kb_dtype dtype)
{
    tl_call call = tl_enter(tl, at, "tl_cast");
    tl_check_dtype(&call, dtype);
    tl_work is = work_on(&call, x);
    is.dtype = dtype;
    return issue_op(&call, TL_CAST_, &is, is.inputs[0].elements);
}

tl_tensor tl_transpose_(tl_context *tl, tl_srcloc at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_transpose");
    tl_work is = work_on(&call, x);
    int last = is.shape.rank - 1;
    if (last < 1)
        tl_fault(&call, "shape %s has no two axes to swap", tl_shape_print(&is.shape).text);
    int64_t columns = is.shape.dims[last];
    is.shape.dims[last] = is.shape.dims[last - 1];
    is.shape.dims[last - 1] = columns;
    return issue_op(&call, TL_TRANSPOSE_, &is, is.inputs[0].elements);
}

/* ---- Of numbers alone -------------------------------------------------------------------- */

static kb_error *bind_full(tl_details *details)
{
    kb_shape shape = tl_shape_of(&details->shape);
    return data_full(details->tl->runner->has.store, details->result->dtype, &shape,
                     details->number, &details->result->data);
}

tl_tensor tl_full_(tl_context *tl, tl_srcloc at, tl_dims shape, kb_dtype dtype, double number)
{
    tl_call call = tl_enter(tl, at, "tl_full");
    tl_check_dtype(&call, dtype);
    return issue(&call, &(tl_work){.dtype = dtype,
                                   .shape = shape,
                                   .number = number,
                                   .bind = bind_full,
                                   .cycles = tl_move_cycles(tl, tl_check_shape(&call, &shape), 1)});
}

static kb_error *bind_arange(tl_details *details)
{
    return data_arange(details->tl->runner->has.store, details->result->dtype, details->first,
                       (uint64_t)details->shape.dims[0], &details->result->data);
}

tl_tensor tl_arange_(tl_context *tl, tl_srcloc at, int64_t begin, int64_t end)
{
    tl_call call = tl_enter(tl, at, "tl_arange");
    if (begin > end || begin < INT32_MIN || end > (int64_t)INT32_MAX + 1)
        tl_fault(&call, "from %lld to %lld: these are no numbers of i32 that count up",
                 (long long)begin, (long long)end);
    return issue(&call, &(tl_work){.dtype = KB_I32,
                                   .shape = {.rank = 1, .dims = {end - begin}},
                                   .first = begin,
                                   .bind = bind_arange,
                                   .cycles = tl_move_cycles(tl, (uint64_t)(end - begin), 1)});
}
