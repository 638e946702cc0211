/*
 * elements.c: operations on elements, block by block: inputs are converted to f32 or i32, computed
 * with, and rounded to the result's dtype.
 *
 * Sums, products, quotients and roots in f32 are rounded right, and stay so when they are rounded
 * again to a type with less than half its digits. Functions of the C library are good to about one
 * unit in the last digit; those that consist of several are computed in double, and so are as good.
 * Not kept: which of two NaNs comes out.
 */
#include <math.h>
#include <string.h>

#include "data_private.h"

/* A block: o[i] from a[i], b[i] and c[i]. Inputs that an operation does not have are `a` again. */
typedef void block_fn(void *restrict out, const void *a, const void *b, const void *c,
                      size_t count);

#define BLOCK_FN(name, T, A, expression)                                                           \
    static void name(void *restrict out, const void *a, const void *b, const void *c,              \
                     size_t count)                                                                 \
    {                                                                                              \
        __typeof__(T) *restrict o = out;                                                           \
        const __typeof__(A) *as = a;                                                               \
        const __typeof__(T) *bs = b, *cs = c;                                                      \
        for (size_t i = 0; i < count; i++) {                                                       \
            A x = as[i];                                                                           \
            T y = bs[i], z = cs[i];                                                                \
            (void)x, (void)y, (void)z;                                                             \
            o[i] = (T)(expression);                                                                \
        }                                                                                          \
    }
#define F32_FN(name, expression) BLOCK_FN(f32_##name, float, float, expression)
#define I32_FN(name, expression) BLOCK_FN(i32_##name, int32_t, int32_t, expression)

/* ---- In f32 ------------------------------------------------------------------------------ */

/* NaN if one is; +0 is larger than -0. */
static inline float maximum(float x, float y)
{
    bool first = x > y || x != x || (x == y && !signbit(x));
    return first ? x : y;
}

static inline float minimum(float x, float y)
{
    bool first = x < y || x != x || (x == y && signbit(x));
    return first ? x : y;
}

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

F32_FN(add, x + y)
F32_FN(sub, x - y)
F32_FN(mul, x *y)
F32_FN(div, x / y)
F32_FN(maximum, maximum(x, y))
F32_FN(minimum, minimum(x, y))
F32_FN(lt, x < y)
F32_FN(le, x <= y)
F32_FN(gt, x > y)
F32_FN(ge, x >= y)
F32_FN(eq, x == y)
F32_FN(ne, x != y)
F32_FN(clamp, minimum(maximum(x, y), z))
F32_FN(where, x != 0 ? y : z)
F32_FN(exp, expf(x))
F32_FN(log, logf(x))
F32_FN(sqrt, sqrtf(x))
F32_FN(rsqrt, 1 / sqrt((double)x))
F32_FN(abs, fabsf(x))
F32_FN(sigmoid, sigmoid((double)x))
F32_FN(tanh, tanh((double)x))
F32_FN(cos, cosf(x))
F32_FN(sin, sinf(x))
F32_FN(gelu, 0.5 * (double)x * erfc(-(double)x * M_SQRT1_2))
F32_FN(silu, (double)x *sigmoid((double)x))
F32_FN(neg, -x)

/* ---- In i32, modulo 2^32 ----------------------------------------------------------------- */

static inline int32_t divide(int32_t x, int32_t y)
{
    if (y == 0)
        return 0;
    return y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}

I32_FN(add, (uint32_t)x + (uint32_t)y)
I32_FN(sub, (uint32_t)x - (uint32_t)y)
I32_FN(mul, (uint32_t)x *(uint32_t)y)
I32_FN(div, divide(x, y))
I32_FN(maximum, x > y ? x : y)
I32_FN(minimum, x < y ? x : y)
I32_FN(lt, x < y)
I32_FN(le, x <= y)
I32_FN(gt, x > y)
I32_FN(ge, x >= y)
I32_FN(eq, x == y)
I32_FN(ne, x != y)
I32_FN(clamp, (x > y ? x : y) < z ? (x > y ? x : y) : z)
I32_FN(abs, x < 0 ? 0u - (uint32_t)x : (uint32_t)x)
I32_FN(neg, 0u - (uint32_t)x)

/* The condition is looked at in f32, where everything that is not 0 stays so. */
BLOCK_FN(i32_where, int32_t, float, x != 0 ? y : z)

/* ---- Which one --------------------------------------------------------------------------- */

typedef struct element_op {
    block_fn *f32, *i32; /* NULL: integers are computed with in f32 too */
    unsigned cost;       /* of an element, in about a nanosecond */
} element_op;

static const element_op ops[] = {
    [DATA_ADD] = {f32_add, i32_add, 2},
    [DATA_SUB] = {f32_sub, i32_sub, 2},
    [DATA_MUL] = {f32_mul, i32_mul, 2},
    [DATA_DIV] = {f32_div, i32_div, 3},
    [DATA_MAXIMUM] = {f32_maximum, i32_maximum, 2},
    [DATA_MINIMUM] = {f32_minimum, i32_minimum, 2},
    [DATA_LT] = {f32_lt, i32_lt, 2},
    [DATA_LE] = {f32_le, i32_le, 2},
    [DATA_GT] = {f32_gt, i32_gt, 2},
    [DATA_GE] = {f32_ge, i32_ge, 2},
    [DATA_EQ] = {f32_eq, i32_eq, 2},
    [DATA_NE] = {f32_ne, i32_ne, 2},
    [DATA_FMA] = {f32_mul, i32_mul, 4},
    [DATA_CLAMP] = {f32_clamp, i32_clamp, 3},
    [DATA_WHERE] = {f32_where, i32_where, 3},
    [DATA_EXP] = {f32_exp, NULL, 5},
    [DATA_LOG] = {f32_log, NULL, 5},
    [DATA_SQRT] = {f32_sqrt, NULL, 3},
    [DATA_RSQRT] = {f32_rsqrt, NULL, 5},
    [DATA_ABS] = {f32_abs, i32_abs, 2},
    [DATA_SIGMOID] = {f32_sigmoid, NULL, 15},
    [DATA_TANH] = {f32_tanh, NULL, 25},
    [DATA_COS] = {f32_cos, NULL, 8},
    [DATA_SIN] = {f32_sin, NULL, 8},
    [DATA_GELU] = {f32_gelu, NULL, 30},
    [DATA_SILU] = {f32_silu, NULL, 15},
    [DATA_NEG] = {f32_neg, i32_neg, 2},
    [DATA_CAST] = {NULL, NULL, 2},
};

static data_class class_of(const data_value *value)
{
    bool in_i32 = ops[value->op].i32 && mem_is_integer(value->dtype);
    for (uint32_t i = value->op == DATA_WHERE; i < value->input_count; i++)
        in_i32 = in_i32 && mem_is_integer(value->inputs[i]->dtype);
    return in_i32 ? DATA_IN_I32 : DATA_IN_F32;
}

/* ---- Block by block ---------------------------------------------------------------------- */

enum { PIECE = 32 * DATA_BLOCK, OPERANDS = 3 };

typedef struct task {
    const data_value *value;
    data_class class;
    block_fn *fn;
    data_view views[OPERANDS];
} task;

static void task_init(task *t, const data_value *value)
{
    t->value = value;
    t->class = class_of(value);
    t->fn = t->class == DATA_IN_I32 ? ops[value->op].i32 : ops[value->op].f32;
    for (uint32_t i = 0; i < value->input_count; i++)
        data_view_init(&t->views[i], value->inputs[i], &value->shape);
}

/* The product is rounded, as an operation of its own would be. */
static void add_to_product(const task *t, data_number *product, const void *addend, size_t count)
{
    data_number rounded[DATA_BLOCK], sum[DATA_BLOCK];
    kb_dtype computed = data_dtype_of_class(t->class);
    data_store_numbers(t->value->dtype, rounded, t->class, product, count);
    kb_convert(computed, product, t->value->dtype, rounded, count);
    block_fn *add = t->class == DATA_IN_I32 ? i32_add : f32_add;
    add(sum, product, addend, addend, count);
    memcpy(product, sum, count * sizeof *sum);
}

static void run_block(const task *t, uint64_t at, size_t count)
{
    data_number in[OPERANDS][DATA_BLOCK], out[DATA_BLOCK];
    const void *numbers[OPERANDS] = {NULL};
    const data_value *value = t->value;
    KB_ASSERT(value->input_count > 0 && value->input_count <= OPERANDS);
    for (uint32_t i = 0; i < value->input_count; i++) {
        bool is_condition = value->op == DATA_WHERE && i == 0;
        kb_dtype dtype = is_condition ? KB_F32 : data_dtype_of_class(t->class);
        numbers[i] = data_view_get(&t->views[i], at, count, dtype, in[i]);
    }
    for (uint32_t i = value->input_count; i < OPERANDS; i++)
        numbers[i] = numbers[0];
    void *result = value->bytes + at * kb_dtype_bytes(value->dtype);
    bool is_direct = value->dtype == data_dtype_of_class(t->class) && value->op != DATA_FMA;
    t->fn(is_direct ? result : out, numbers[0], numbers[1], numbers[2], count);
    if (value->op == DATA_FMA)
        add_to_product(t, out, numbers[2], count);
    if (!is_direct)
        data_store_numbers(value->dtype, result, t->class, out, count);
}

static void cast_block(const task *t, uint64_t at, size_t count)
{
    size_t size = kb_dtype_bytes(t->value->dtype);
    void *result = t->value->bytes + at * size;
    const void *from = data_view_get(&t->views[0], at, count, t->value->dtype, result);
    if (from != result)
        memcpy(result, from, count * size);
}

static void run(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    task t;
    task_init(&t, value);
    uint64_t end = kb_min(value->elements, (part + 1) * PIECE);
    for (uint64_t at = part * PIECE; at < end; at += DATA_BLOCK) {
        size_t count = (size_t)kb_min(end - at, DATA_BLOCK);
        if (value->op == DATA_CAST)
            cast_block(&t, at, count);
        else
            run_block(&t, at, count);
    }
}

static uint64_t parts(const data_value *value)
{
    return KB_DIV_UP(value->elements, PIECE);
}

static uint64_t cost(const data_value *value)
{
    return value->elements * ops[value->op].cost;
}

const data_kernel data_elements_kernel = {
    .parts = parts, .run = run, .cost = cost, .broadcasts = true};
