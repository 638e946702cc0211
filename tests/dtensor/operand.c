/* operand.c: see operand.h. */
#include "operand.h"

#include <math.h>

/* ---- Operands ---- */

static bool is_partial(const operand *o, uint32_t dim)
{
    return dim < o->placements.count && o->placements.items[dim].kind == KB_PLACEMENT_PARTIAL;
}

static double reduce_two(kb_reduce_op op, double a, double b)
{
    switch (op) {
    case KB_MAX:
        return fmax(a, b);
    case KB_MIN:
        return fmin(a, b);
    case KB_PROD:
        return a * b;
    default:
        return a + b;
    }
}

/* Terms along the second dimension of the mesh first, then those along the first. */
static double reduce_terms(const operand *o, uint64_t element)
{
    double all = 0;
    uint32_t h = is_partial(o, 0) ? o->mesh[0] : 1, w = is_partial(o, 1) ? o->mesh[1] : 1;
    for (uint32_t i = 0; i < h; i++) {
        double row = 0;
        for (uint32_t j = 0; j < w; j++) {
            double term = o->terms[i * o->mesh[1] + j].numbers[element];
            row = j == 0 ? term : reduce_two(o->placements.items[1].op, row, term);
        }
        if (is_partial(o, 1) && o->placements.items[1].op == KB_AVG)
            row /= w;
        all = i == 0 ? row : reduce_two(o->placements.items[0].op, all, row);
    }
    return is_partial(o, 0) && o->placements.items[0].op == KB_AVG ? all / h : all;
}

void operand_draw(operand *o, kb_rng *rng, const uint32_t mesh[2], kb_placements placements,
                  const kb_shape *shape, kb_dtype dtype, bool positive)
{
    *o = (operand){.mesh = {mesh[0], mesh[1]}, .placements = placements, .dtype = dtype};
    uint64_t count = plain_count(shape);
    for (uint32_t position = 0; position < mesh[0] * mesh[1]; position++) {
        /* the same along dimensions that are not partial */
        uint32_t i = is_partial(o, 0) ? position / mesh[1] : 0;
        uint32_t j = is_partial(o, 1) ? position % mesh[1] : 0;
        plain *terms = &o->terms[position];
        *terms = plain_draw(rng, shape);
        for (uint64_t e = 0; e < count; e++) {
            if (positive)
                terms->numbers[e] = 1 + fabs(terms->numbers[e]) / 2;
            if (i * mesh[1] + j != position)
                terms->numbers[e] = o->terms[i * mesh[1] + j].numbers[e];
        }
    }
    o->whole = plain_new(shape);
    for (uint64_t e = 0; e < count; e++)
        o->whole.numbers[e] = reduce_terms(o, e);
}

void operand_fini(operand *o)
{
    for (uint32_t i = 0; i < o->mesh[0] * o->mesh[1]; i++)
        plain_free(&o->terms[i]);
    plain_free(&o->whole);
}

void operand_open(operand *o, kb_context *ctx, kb_device_mesh mesh, uint32_t first, uint32_t count)
{
    static const kb_policy policies[] = {
        {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE},
        {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE},
        {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE},
        {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 3},
        {.num_cubes = 1, .num_pes = 1},
    };
    for (uint32_t position = first; position < first + count; position++) {
        plain part = plain_part(&o->terms[position], o->mesh, o->placements, position);
        kb_tensor_spec spec = {.name = "part",
                               .dtype = o->dtype,
                               .shape = part.shape,
                               .policy = &policies[plain_count(&part.shape) % 5]};
        kb_tensor host = host_tensor(ctx, "host", &part, o->dtype);
        expect_ok(kb_ahbm_set_device(ctx, position));
        expect_ok(kb_empty(ctx, &spec, &o->locals[position]));
        expect_ok(kb_tensor_copy(ctx, o->locals[position], host, KB_UNTIMED));
        expect_ok(kb_tensor_free(ctx, host));
        plain_free(&part);
    }
    expect_ok(kb_dtensor_from_locals(ctx, &o->locals[first], count, mesh, o->placements,
                                     &o->whole.shape, &o->dtensor));
}

void operand_close(operand *o, kb_context *ctx, uint32_t first, uint32_t count)
{
    expect_ok(kb_dtensor_free(ctx, o->dtensor));
    for (uint32_t position = first; position < first + count; position++)
        expect_ok(kb_tensor_free(ctx, o->locals[position]));
}

/* ---- Plain operations ---- */

plain plain_matmul(const plain *a, const plain *b)
{
    kb_shape shape = a->shape;
    uint64_t k = b->shape.dims[0], n = b->shape.dims[1];
    shape.dims[shape.rank - 1] = n;
    plain out = plain_new(&shape);
    for (uint64_t e = 0; e < plain_count(&shape); e++)
        for (uint64_t i = 0; i < k; i++)
            out.numbers[e] += a->numbers[e / n * k + i] * b->numbers[i * n + e % n];
    return out;
}

/* Which element of an operand goes to element e of the result. */
static uint64_t broadcast_index(const kb_shape *from, const kb_shape *result, uint64_t e)
{
    uint64_t index = 0, stride = 1;
    for (uint32_t i = 1; i <= result->rank; i++) {
        uint64_t at = e % result->dims[result->rank - i];
        e /= result->dims[result->rank - i];
        if (i > from->rank)
            continue;
        uint64_t size = from->dims[from->rank - i];
        index += (size == 1 ? 0 : at) * stride;
        stride *= size;
    }
    return index;
}

static double compute_binary(kb_binary_op op, double a, double b)
{
    switch (op) {
    case KB_BINARY_ADD:
        return a + b;
    case KB_BINARY_SUB:
        return a - b;
    case KB_BINARY_MUL:
        return a * b;
    case KB_BINARY_DIV:
        return a / b;
    case KB_BINARY_MAXIMUM:
        return fmax(a, b);
    default:
        return fmin(a, b);
    }
}

plain plain_binary(kb_binary_op op, const plain *a, const plain *b)
{
    kb_shape shape = a->shape.rank >= b->shape.rank ? a->shape : b->shape;
    for (uint32_t i = 1; i <= shape.rank; i++) {
        uint64_t m = i <= a->shape.rank ? a->shape.dims[a->shape.rank - i] : 1;
        uint64_t n = i <= b->shape.rank ? b->shape.dims[b->shape.rank - i] : 1;
        shape.dims[shape.rank - i] = m == 1 ? n : m;
    }
    plain out = plain_new(&shape);
    for (uint64_t e = 0; e < plain_count(&shape); e++)
        out.numbers[e] = compute_binary(op, a->numbers[broadcast_index(&a->shape, &shape, e)],
                                        b->numbers[broadcast_index(&b->shape, &shape, e)]);
    return out;
}

static double compute_unary(kb_unary_op op, double x)
{
    switch (op) {
    case KB_UNARY_NEG:
        return -x;
    case KB_UNARY_ABS:
        return fabs(x);
    case KB_UNARY_RELU:
        return fmax(x, 0);
    case KB_UNARY_EXP:
        return exp(x);
    case KB_UNARY_LOG:
        return log(x);
    case KB_UNARY_SQRT:
        return sqrt(x);
    case KB_UNARY_RSQRT:
        return 1 / sqrt(x);
    case KB_UNARY_SIGMOID:
        return 1 / (1 + exp(-x));
    case KB_UNARY_TANH:
        return tanh(x);
    case KB_UNARY_COS:
        return cos(x);
    case KB_UNARY_SIN:
        return sin(x);
    case KB_UNARY_GELU:
        return x * (1 + erf(x / sqrt(2))) / 2;
    default:
        return x / (1 + exp(-x));
    }
}

plain plain_unary(kb_unary_op op, const plain *x)
{
    plain out = plain_new(&x->shape);
    for (uint64_t e = 0; e < plain_count(&x->shape); e++)
        out.numbers[e] = compute_unary(op, x->numbers[e]);
    return out;
}

plain plain_reduce(plain_reduction op, const plain *x, int dim, bool keepdim)
{
    kb_shape shape = {0}, kept = {0}; /* kept: with sizes of 1 */
    uint64_t each = 1;
    for (uint32_t axis = 0; axis < x->shape.rank; axis++) {
        bool reduced = dim == KB_ALL_DIMS || (uint32_t)dim == axis;
        kept.dims[kept.rank++] = reduced ? 1 : x->shape.dims[axis];
        each *= reduced ? x->shape.dims[axis] : 1;
        if (!reduced || keepdim)
            shape.dims[shape.rank++] = reduced ? 1 : x->shape.dims[axis];
    }
    plain out = plain_new(&shape);
    double start = op == PLAIN_MAX ? -HUGE_VAL : op == PLAIN_MIN ? HUGE_VAL : 0;
    for (uint64_t e = 0; e < plain_count(&shape); e++)
        out.numbers[e] = start;
    for (uint64_t e = 0; e < plain_count(&x->shape); e++) {
        double *to = &out.numbers[broadcast_index(&kept, &x->shape, e)], value = x->numbers[e];
        *to = op == PLAIN_MAX ? fmax(*to, value) : op == PLAIN_MIN ? fmin(*to, value) : *to + value;
    }
    for (uint64_t e = 0; op == PLAIN_MEAN && e < plain_count(&shape); e++)
        out.numbers[e] /= (double)each;
    return out;
}

kb_error *reduce_dtensor(kb_context *ctx, plain_reduction op, kb_dtensor x, int dim, bool keepdim,
                         kb_dtensor *result)
{
    switch (op) {
    case PLAIN_SUM:
        return kb_dtensor_sum(ctx, x, dim, keepdim, result);
    case PLAIN_MEAN:
        return kb_dtensor_mean(ctx, x, dim, keepdim, result);
    case PLAIN_MAX:
        return kb_dtensor_max(ctx, x, dim, keepdim, result);
    default:
        return kb_dtensor_min(ctx, x, dim, keepdim, result);
    }
}
