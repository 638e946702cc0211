/*
 * ops.c: operations on DTensors: checks, placements by the rules, and the local operation on every
 * rank. A local part may be empty; its reduction is the identity of the reduction.
 */
#include <inttypes.h>
#include <string.h>

#include "conversions.h"
#include "local.h"
#include "propagate.h"
#include "redistribute.h"
#include "tp/tp.h"

/* ---- Common parts ---- */

static kb_error *check_dtype(const dt_tensor *x)
{
    if (!mem_is_storage(x->dtype))
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "unsupported dtype %s of DTensor '%s': it is for storage only",
                        kb_dtype_name(x->dtype), x->name);
}

static kb_error *check_pair(const dt_tensor *a, const dt_tensor *b)
{
    KB_TRY(check_dtype(a));
    KB_TRY(check_dtype(b));
    if (a->mesh != b->mesh)
        return kb_error_new(KB_ERR_FAULT, "DTensors '%s' and '%s' are on different device meshes",
                            a->name, b->name);
    if (a->dtype != b->dtype)
        return kb_error_new(KB_ERR_FAULT, "DTensor '%s' is %s, but '%s' is %s", a->name,
                            kb_dtype_name(a->dtype), b->name, kb_dtype_name(b->dtype));
    return NULL;
}

static kb_shape local_of(const dt_value *value, uint32_t driven)
{
    return dt_local_shape(value->mesh, value->mesh->first + driven, &value->shape,
                          value->placements, NULL);
}

/* The state of an operation. */
typedef struct operation {
    dt_frame frame;
    const char *name; /* of the operation */
    dt_problem problem;
    dt_value a, b, result; /* the shape and dtype of the result are set before prepare() */
    kb_dtensor_report report;
} operation;

/* Redistributes operands so that a rule fits, and makes the local tensors of the result. */
static kb_error *prepare(operation *o)
{
    dt_value *b = o->problem.has_b ? &o->b : NULL;
    o->problem.a = o->a.shape;
    o->problem.b = o->b.shape;
    o->problem.result = o->result.shape;
    o->result.mesh = o->a.mesh;
    o->result.name = o->name;
    KB_TRY(
        dt_propagate(&o->frame, o->name, &o->problem, &o->a, b, &o->result.placements, &o->report));
    KB_TRY(dt_make_row_major(&o->frame, &o->a));
    if (b)
        KB_TRY(dt_make_row_major(&o->frame, b));
    return dt_new_locals(&o->frame, &o->result);
}

/* ---- matmul ---- */

static kb_error *check_matmul(const dt_tensor *a, const dt_tensor *b)
{
    KB_TRY(check_pair(a, b));
    if (a->shape.rank < 2 || b->shape.rank != 2)
        return kb_error_new(KB_ERR_FAULT,
                            "DTensors '%s' and '%s' have %" PRIu32 " and %" PRIu32
                            " dimensions: expected at least 2, and 2",
                            a->name, b->name, a->shape.rank, b->shape.rank);
    uint64_t k = a->shape.dims[a->shape.rank - 1];
    if (k == b->shape.dims[0])
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "DTensor '%s' has %" PRIu64 " columns, but '%s' has %" PRIu64 " rows",
                        a->name, k, b->name, b->shape.dims[0]);
}

/* Matrix products need tensors in HBM. */
static kb_error *move_to_hbm(operation *o, dt_value *value)
{
    dt_value copy = *value;
    bool moves = false;
    for (uint32_t i = 0; i < value->mesh->driven && !moves; i++) {
        rt_tensor_view view;
        KB_TRY(rt_view_tensor(o->frame.ctx, value->locals[i], &view));
        moves = view.memory != KB_HBM;
    }
    if (!moves)
        return NULL;
    KB_TRY(dt_new_locals(&o->frame, &copy));
    for (uint32_t i = 0; i < value->mesh->driven; i++) {
        kb_shape shape = local_of(value, i);
        KB_TRY(dt_copy(&o->frame, value->mesh, i, copy.locals[i], value->locals[i], value->dtype,
                       dt_elements(&shape)));
    }
    *value = copy;
    return dt_wait(&o->frame);
}

static kb_error *multiply_local(operation *o, uint32_t driven)
{
    kb_shape a = local_of(&o->a, driven), out = local_of(&o->result, driven);
    const dt_mesh *mesh = o->a.mesh;
    if (dt_elements(&out) == 0)
        return NULL;
    if (dt_elements(&a) == 0) /* an empty sum */
        return dt_new_filled(&o->frame, mesh->devices[mesh->first + driven], o->name,
                             o->result.dtype, &out, 0, &o->result.locals[driven]);
    kb_request request;
    tp_matmul_spec spec = {.name = "dtensor matmul",
                           .x = o->a.locals[driven],
                           .w = o->b.locals[driven],
                           .out = o->result.locals[driven]};
    KB_TRY(dt_request_room(&o->frame, &request, &spec.request));
    KB_TRY(tp_matmul(o->frame.ctx, &spec));
    dt_add_request(&o->frame, request);
    return NULL;
}

static kb_error *matmul(operation *o, const dt_tensor *a, const dt_tensor *b, kb_dtensor *handle)
{
    KB_TRY(check_matmul(a, b));
    KB_TRY(dt_read(&o->frame, a, &o->a));
    KB_TRY(dt_read(&o->frame, b, &o->b));
    o->result.shape = a->shape;
    o->result.shape.dims[a->shape.rank - 1] = b->shape.dims[1];
    o->result.dtype = mem_is_integer(a->dtype) ? KB_I32 : a->dtype;
    KB_TRY(prepare(o));
    KB_TRY(move_to_hbm(o, &o->a));
    KB_TRY(move_to_hbm(o, &o->b));
    for (uint32_t i = 0; i < o->a.mesh->driven; i++)
        KB_TRY(multiply_local(o, i));
    KB_TRY(dt_wait(&o->frame));
    return dt_finish(&o->frame, &o->result, &o->report, handle);
}

kb_error *kb_dtensor_matmul(kb_context *ctx, kb_dtensor a_handle, kb_dtensor b_handle,
                            kb_dtensor *result)
{
    static const char function[] = "kb_dtensor_matmul";
    dt_tensor *a, *b;
    operation o = {.name = "matmul", .problem = {.class = DT_OP_MATMUL, .has_b = true}};
    *result = (kb_dtensor){0};
    KB_TRY(dt_find_tensor(ctx, function, a_handle, &a));
    KB_TRY(dt_find_tensor(ctx, function, b_handle, &b));
    KB_TRY(dt_frame_begin(&o.frame, ctx, function));
    return dt_frame_end(&o.frame, matmul(&o, a, b, result));
}

/* ---- Binary operations ---- */

static const struct {
    const char *name;
    tl_op op;
    dt_op_class class;
} binary_ops[KB_BINARY_OPS] = {
    [KB_BINARY_ADD] = {"add", TL_ADD_, DT_OP_ADD},
    [KB_BINARY_SUB] = {"sub", TL_SUB_, DT_OP_ADD},
    [KB_BINARY_MUL] = {"mul", TL_MUL_, DT_OP_MUL},
    [KB_BINARY_DIV] = {"div", TL_DIV_, DT_OP_DIV},
    [KB_BINARY_MAXIMUM] = {"maximum", TL_MAXIMUM_, DT_OP_MAXIMUM},
    [KB_BINARY_MINIMUM] = {"minimum", TL_MINIMUM_, DT_OP_MINIMUM},
};

/* Aligned at the last dimensions. */
static kb_error *broadcast_shapes(const dt_tensor *a, const dt_tensor *b, kb_shape *out)
{
    const kb_shape *x = &a->shape, *y = &b->shape;
    *out = x->rank >= y->rank ? *x : *y;
    for (uint32_t i = 1; i <= out->rank; i++) {
        uint64_t m = i <= x->rank ? x->dims[x->rank - i] : 1;
        uint64_t n = i <= y->rank ? y->dims[y->rank - i] : 1;
        if (m != n && m != 1 && n != 1)
            return kb_error_new(KB_ERR_FAULT,
                                "shapes of DTensors '%s' and '%s' do not broadcast: %" PRIu64
                                " and %" PRIu64 " in dimension -%" PRIu32,
                                a->name, b->name, m, n, i);
        out->dims[out->rank - i] = m == 1 ? n : m;
    }
    return NULL;
}

/* Strides along the dimensions of the result; 0 where the operand is repeated. */
static void operand_strides(const kb_shape *operand, const kb_shape *result, dt_operand *side)
{
    uint64_t strides[KB_MAX_DIMS];
    uint32_t missing = result->rank - operand->rank;
    dt_row_major_strides(operand, strides);
    for (uint32_t axis = 0; axis < result->rank; axis++) {
        bool there = axis >= missing && operand->dims[axis - missing] == result->dims[axis];
        side->strides[axis] = there ? strides[axis - missing] : 0;
    }
}

static kb_error *binary_local(operation *o, tl_op op, uint32_t driven)
{
    kb_shape a = local_of(&o->a, driven), b = local_of(&o->b, driven);
    kb_shape out = local_of(&o->result, driven);
    dt_loop loop = {
        .name = o->name,
        .op = (int)op,
        .inputs = 2,
        .dtype = o->a.dtype,
        .axes = out.rank,
        .out = {.tensor = o->result.locals[driven]},
        .a = {.tensor = o->a.locals[driven]},
        .b = {.tensor = o->b.locals[driven]},
    };
    dt_row_major_strides(&out, loop.out.strides);
    operand_strides(&a, &out, &loop.a);
    operand_strides(&b, &out, &loop.b);
    for (uint32_t axis = 0; axis < out.rank; axis++)
        loop.sizes[axis] = out.dims[axis];
    return dt_run_loop(&o->frame, o->a.mesh, driven, &loop);
}

static kb_error *binary(operation *o, kb_binary_op op, const dt_tensor *a, const dt_tensor *b,
                        kb_dtensor *handle)
{
    KB_TRY(check_pair(a, b));
    if (op == KB_BINARY_DIV && mem_is_integer(a->dtype))
        return kb_error_new(KB_ERR_FAULT,
                            "division of DTensor '%s', which is %s: division needs floating point",
                            a->name, kb_dtype_name(a->dtype));
    KB_TRY(broadcast_shapes(a, b, &o->result.shape));
    KB_TRY(dt_read(&o->frame, a, &o->a));
    KB_TRY(dt_read(&o->frame, b, &o->b));
    o->result.dtype = a->dtype;
    KB_TRY(prepare(o));
    for (uint32_t i = 0; i < o->a.mesh->driven; i++)
        KB_TRY(binary_local(o, binary_ops[op].op, i));
    KB_TRY(dt_wait(&o->frame));
    return dt_finish(&o->frame, &o->result, &o->report, handle);
}

static kb_error *call_binary(kb_context *ctx, const char *function, kb_binary_op op,
                             kb_dtensor a_handle, kb_dtensor b_handle, kb_dtensor *result)
{
    dt_tensor *a, *b;
    *result = (kb_dtensor){0};
    if ((unsigned)op >= KB_BINARY_OPS)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid operation %d", function, (int)op);
    KB_TRY(dt_find_tensor(ctx, function, a_handle, &a));
    KB_TRY(dt_find_tensor(ctx, function, b_handle, &b));
    operation o = {.name = binary_ops[op].name,
                   .problem = {.class = binary_ops[op].class, .has_b = true}};
    KB_TRY(dt_frame_begin(&o.frame, ctx, function));
    return dt_frame_end(&o.frame, binary(&o, op, a, b, result));
}

kb_error *kb_dtensor_binary(kb_context *ctx, kb_binary_op op, kb_dtensor a, kb_dtensor b,
                            kb_dtensor *result)
{
    return call_binary(ctx, "kb_dtensor_binary", op, a, b, result);
}

kb_error *kb_dtensor_add(kb_context *ctx, kb_dtensor a, kb_dtensor b, kb_dtensor *result)
{
    return call_binary(ctx, "kb_dtensor_add", KB_BINARY_ADD, a, b, result);
}

kb_error *kb_dtensor_mul(kb_context *ctx, kb_dtensor a, kb_dtensor b, kb_dtensor *result)
{
    return call_binary(ctx, "kb_dtensor_mul", KB_BINARY_MUL, a, b, result);
}

/* ---- Unary operations ---- */

static const struct {
    const char *name;
    int op;
    dt_op_class class;
    bool keeps_integers;
} unary_ops[KB_UNARY_OPS] = {
    [KB_UNARY_NEG] = {"neg", TL_NEG_, DT_OP_NEG, true},
    [KB_UNARY_ABS] = {"abs", TL_ABS_, DT_OP_UNARY, true},
    [KB_UNARY_RELU] = {"relu", DT_MAP_RELU, DT_OP_MONOTONE, true},
    [KB_UNARY_EXP] = {"exp", TL_EXP_, DT_OP_MONOTONE, false},
    [KB_UNARY_LOG] = {"log", TL_LOG_, DT_OP_UNARY, false},
    [KB_UNARY_SQRT] = {"sqrt", TL_SQRT_, DT_OP_UNARY, false},
    [KB_UNARY_RSQRT] = {"rsqrt", TL_RSQRT_, DT_OP_UNARY, false},
    [KB_UNARY_SIGMOID] = {"sigmoid", TL_SIGMOID_, DT_OP_MONOTONE, false},
    [KB_UNARY_TANH] = {"tanh", TL_TANH_, DT_OP_MONOTONE, false},
    [KB_UNARY_COS] = {"cos", TL_COS_, DT_OP_UNARY, false},
    [KB_UNARY_SIN] = {"sin", TL_SIN_, DT_OP_UNARY, false},
    [KB_UNARY_GELU] = {"gelu", TL_GELU_, DT_OP_UNARY, false},
    [KB_UNARY_SILU] = {"silu", TL_SILU_, DT_OP_UNARY, false},
};

static kb_error *unary(operation *o, kb_unary_op op, const dt_tensor *x, kb_dtensor *handle)
{
    KB_TRY(check_dtype(x));
    KB_TRY(dt_read(&o->frame, x, &o->a));
    bool widens = mem_is_integer(x->dtype) && !unary_ops[op].keeps_integers;
    o->result.shape = x->shape;
    o->result.dtype = widens ? KB_F32 : x->dtype;
    KB_TRY(prepare(o));
    for (uint32_t i = 0; i < o->a.mesh->driven; i++) {
        kb_shape shape = local_of(&o->a, i);
        dt_loop loop = {
            .name = o->name,
            .op = unary_ops[op].op,
            .inputs = 1,
            .dtype = x->dtype,
            .axes = 1,
            .sizes = {dt_elements(&shape)},
            .out = {.tensor = o->result.locals[i], .strides = {1}},
            .a = {.tensor = o->a.locals[i], .strides = {1}},
        };
        KB_TRY(dt_run_loop(&o->frame, o->a.mesh, i, &loop));
    }
    KB_TRY(dt_wait(&o->frame));
    return dt_finish(&o->frame, &o->result, &o->report, handle);
}

kb_error *kb_dtensor_unary(kb_context *ctx, kb_unary_op op, kb_dtensor handle, kb_dtensor *result)
{
    static const char function[] = "kb_dtensor_unary";
    dt_tensor *x;
    *result = (kb_dtensor){0};
    if ((unsigned)op >= KB_UNARY_OPS)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid operation %d", function, (int)op);
    KB_TRY(dt_find_tensor(ctx, function, handle, &x));
    operation o = {.name = unary_ops[op].name, .problem = {.class = unary_ops[op].class}};
    KB_TRY(dt_frame_begin(&o.frame, ctx, function));
    return dt_frame_end(&o.frame, unary(&o, op, x, result));
}

/* ---- Reductions ---- */

typedef enum reduction_op { SUM, MEAN, MAX, MIN } reduction_op;

static const struct {
    const char *name;
    tl_op op;
    kb_reduce_op terms; /* the reduction of the ranks' terms */
    dt_op_class class;
} reductions[] = {
    [SUM] = {"sum", TL_SUM_, KB_SUM, DT_OP_SUM},
    [MEAN] = {"mean", TL_SUM_, KB_SUM, DT_OP_SUM},
    [MAX] = {"max", TL_MAX_, KB_MAX, DT_OP_MAX},
    [MIN] = {"min", TL_MIN_, KB_MIN, DT_OP_MIN},
};

/* The shape of the result. Returns the number of elements that each is reduced from. */
static uint64_t reduce_shape(const dt_problem *p, const kb_shape *x, kb_shape *out)
{
    uint64_t count = 1;
    *out = (kb_shape){0};
    for (uint32_t axis = 0; axis < x->rank; axis++) {
        bool reduced = p->reduces_all || axis == p->reduced;
        if (reduced)
            count *= x->dims[axis];
        if (!reduced || p->keeps_dim)
            out->dims[out->rank++] = reduced ? 1 : x->dims[axis];
    }
    return count;
}

static kb_error *check_reduction(reduction_op op, const dt_tensor *x, uint64_t count)
{
    KB_TRY(check_dtype(x));
    if (op == MEAN && mem_is_integer(x->dtype))
        return kb_error_new(KB_ERR_FAULT,
                            "mean of DTensor '%s', which is %s: a mean is not a whole "
                            "number",
                            x->name, kb_dtype_name(x->dtype));
    if (count == 0 && (op == MAX || op == MIN))
        return kb_error_new(KB_ERR_FAULT, "%s of no elements of DTensor '%s'", reductions[op].name,
                            x->name);
    return NULL;
}

static kb_error *reduce_local(operation *o, reduction_op op, double scale, uint32_t driven)
{
    const dt_problem *p = &o->problem;
    const dt_mesh *mesh = o->a.mesh;
    kb_shape in = local_of(&o->a, driven), out = local_of(&o->result, driven);
    if (dt_elements(&out) == 0)
        return NULL;
    if (dt_elements(&in) == 0) {
        double nothing = op == MEAN || op == SUM
                             ? 0 * scale
                             : dt_identity(reductions[op].terms, o->result.dtype);
        return dt_new_filled(&o->frame, mesh->devices[mesh->first + driven], o->name,
                             o->result.dtype, &out, nothing, &o->result.locals[driven]);
    }
    dt_reduction r = {
        .name = o->name,
        .out = o->result.locals[driven],
        .in = o->a.locals[driven],
        .op = reductions[op].op,
        .dtype = o->a.dtype,
        .out_dtype = o->result.dtype,
        .outer = p->reduces_all ? 1 : dt_outer(&in, p->reduced),
        .length = p->reduces_all ? dt_elements(&in) : in.dims[p->reduced],
        .inner = p->reduces_all ? 1 : dt_inner(&in, p->reduced),
        .scale = scale,
    };
    return dt_reduce(&o->frame, mesh, driven, &r);
}

static kb_error *reduce(operation *o, reduction_op op, const dt_tensor *x, int dim,
                        kb_dtensor *handle)
{
    dt_problem *p = &o->problem;
    p->reduces_all = dim == KB_ALL_DIMS;
    if (!p->reduces_all)
        KB_TRY(dt_check_dim(dim, x->shape.rank, &p->reduced));
    uint64_t count = reduce_shape(p, &x->shape, &o->result.shape);
    KB_TRY(check_reduction(op, x, count));
    KB_TRY(dt_read(&o->frame, x, &o->a));
    o->result.dtype = (op == SUM && mem_is_integer(x->dtype)) ? KB_I32 : x->dtype;
    KB_TRY(prepare(o));
    double scale = op == MEAN ? 1 / (double)count : 1;
    for (uint32_t i = 0; i < o->a.mesh->driven; i++)
        KB_TRY(reduce_local(o, op, scale, i));
    KB_TRY(dt_wait(&o->frame));
    return dt_finish(&o->frame, &o->result, &o->report, handle);
}

static kb_error *reduce_call(kb_context *ctx, const char *function, reduction_op op,
                             kb_dtensor handle, int dim, bool keepdim, kb_dtensor *result)
{
    dt_tensor *x;
    *result = (kb_dtensor){0};
    KB_TRY(dt_find_tensor(ctx, function, handle, &x));
    operation o = {.name = reductions[op].name,
                   .problem = {.class = reductions[op].class, .keeps_dim = keepdim}};
    KB_TRY(dt_frame_begin(&o.frame, ctx, function));
    return dt_frame_end(&o.frame, reduce(&o, op, x, dim, result));
}

kb_error *kb_dtensor_sum(kb_context *ctx, kb_dtensor x, int dim, bool keepdim, kb_dtensor *result)
{
    return reduce_call(ctx, "kb_dtensor_sum", SUM, x, dim, keepdim, result);
}

kb_error *kb_dtensor_mean(kb_context *ctx, kb_dtensor x, int dim, bool keepdim, kb_dtensor *result)
{
    return reduce_call(ctx, "kb_dtensor_mean", MEAN, x, dim, keepdim, result);
}

kb_error *kb_dtensor_max(kb_context *ctx, kb_dtensor x, int dim, bool keepdim, kb_dtensor *result)
{
    return reduce_call(ctx, "kb_dtensor_max", MAX, x, dim, keepdim, result);
}

kb_error *kb_dtensor_min(kb_context *ctx, kb_dtensor x, int dim, bool keepdim, kb_dtensor *result)
{
    return reduce_call(ctx, "kb_dtensor_min", MIN, x, dim, keepdim, result);
}
