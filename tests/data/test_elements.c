/*
 * test_elements.c: every operation on elements against doubles, one element at a time.
 */
#include "data/data_rig.h"

static bool is_integer(kb_dtype dtype)
{
    return dtype == KB_I8 || dtype == KB_I32;
}

/* ---- The reference ----------------------------------------------------------------------- */

static double maximum(double x, double y)
{
    if (isnan(x) || isnan(y))
        return NOT_A_NUMBER;
    if (x == 0 && y == 0)
        return signbit(x) && signbit(y) ? -0.0 : 0.0;
    return x > y ? x : y;
}

static double minimum(double x, double y)
{
    return -maximum(-x, -y);
}

/* In floating point; exact but for one rounding to double. `dtype` is for products of fma. */
static double expected_real(data_op op, kb_dtype dtype, double x, double y, double z)
{
    switch (op) {
    case DATA_ADD:
        return x + y;
    case DATA_SUB:
        return x - y;
    case DATA_MUL:
        return x * y;
    case DATA_DIV:
        return x / y;
    case DATA_MAXIMUM:
        return maximum(x, y);
    case DATA_MINIMUM:
        return minimum(x, y);
    case DATA_LT:
        return x < y;
    case DATA_LE:
        return x <= y;
    case DATA_GT:
        return x > y;
    case DATA_GE:
        return x >= y;
    case DATA_EQ:
        return x == y;
    case DATA_NE:
        return x != y;
    case DATA_FMA:
        return rounded(dtype, x * y) + z;
    case DATA_CLAMP:
        return minimum(maximum(x, y), z);
    case DATA_WHERE:
        return x != 0 ? y : z;
    case DATA_EXP:
        return exp(x);
    case DATA_LOG:
        return log(x);
    case DATA_SQRT:
        return sqrt(x);
    case DATA_RSQRT:
        return 1 / sqrt(x);
    case DATA_ABS:
        return fabs(x);
    case DATA_SIGMOID: /* by another formula than the code's */
        return x < 0 ? exp(x) / (1 + exp(x)) : 1 - exp(-x) / (1 + exp(-x));
    case DATA_TANH:
        return tanh(x);
    case DATA_COS:
        return cos(x);
    case DATA_SIN:
        return sin(x);
    case DATA_GELU:
        return x * 0.5 * erfc(-x / sqrt(2));
    case DATA_SILU:
        return x * expected_real(DATA_SIGMOID, dtype, x, 0, 0);
    case DATA_NEG:
        return -x;
    default:
        fail();
        return 0;
    }
}

/* In integers without bounds, then modulo the size. */
static double expected_integer(data_op op, kb_dtype dtype, int64_t x, int64_t y, int64_t z)
{
    int64_t exact;
    switch (op) {
    case DATA_MUL:
        exact = x * y;
        break;
    case DATA_DIV:
        exact = y == 0 ? 0 : x / y;
        break;
    case DATA_FMA:
        exact = (int64_t)((uint64_t)(x * y) + (uint64_t)z);
        break;
    default:
        exact = (int64_t)expected_real(op, dtype, (double)x, (double)y, (double)z);
    }
    return dtype == KB_I8 ? (int8_t)(uint8_t)exact : (int32_t)(uint32_t)exact;
}

static bool has_integer_form(data_op op)
{
    return op < DATA_EXP || op == DATA_ABS || op == DATA_NEG;
}

/* Steps of the dtype that a result may be off. */
static double tolerance(data_op op)
{
    return op < DATA_EXP || op == DATA_SQRT || op == DATA_ABS || op == DATA_NEG ? 0 : 2;
}

static void expect_element(data_op op, kb_dtype dtype, bool in_integers, const double *in,
                           double got)
{
    /* A condition may be half of one. */
    int64_t first = op == DATA_WHERE ? in[0] != 0 : in_integers ? (int64_t)in[0] : 0;
    double expected = in_integers
                          ? expected_integer(op, dtype, first, (int64_t)in[1], (int64_t)in[2])
                          : rounded(dtype, expected_real(op, dtype, in[0], in[1], in[2]));
    double steps = is_integer(dtype) ? fabs(expected - got) : steps_between(dtype, expected, got);
    bool sign_matters = tolerance(op) == 0 && !isnan(got) && !is_integer(dtype);
    if (steps > tolerance(op) || (sign_matters && signbit(got) != signbit(expected)))
        fail_msg("op %d, dtype %d of %a, %a, %a: expected %a, found %a", (int)op, (int)dtype, in[0],
                 in[1], in[2], expected, got);
}

/* Applies the operation and checks every element. */
static void check(rig *r, data_op op, kb_dtype dtype, kb_shape shape, data_value *const *inputs)
{
    unsigned count = data_op_inputs(op);
    data_value *result = apply(r, op, dtype, shape, inputs, 0);
    bool in_integers = is_integer(dtype) && has_integer_form(op);
    for (unsigned i = op == DATA_WHERE; i < count; i++)
        in_integers = in_integers && is_integer(data_dtype(inputs[i]));
    const unsigned char *bytes = bytes_of(r, result);
    for (uint64_t i = 0; i < elements_of(&shape); i++) {
        double in[3] = {0};
        for (unsigned j = 0; j < count; j++)
            in[j] = item(r, inputs[j], input_index(data_shape(inputs[j]), &shape, i));
        double got = mem_number_get(dtype, bytes + i * kb_dtype_bytes(dtype));
        expect_element(op, dtype, in_integers, in, got);
    }
    drop(r, result);
}

/* ---- Tests ------------------------------------------------------------------------------- */

static bool is_comparison(data_op op)
{
    return op >= DATA_LT && op <= DATA_NE;
}

static void every_operation_in_every_dtype(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    kb_shape shape = KB_SHAPE(cases(3000));
    for (int dtype = 0; dtype < KB_DTYPES; dtype++) {
        data_value *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = random_value(&r, (kb_dtype)dtype, shape, true);
        for (int op = 0; op < DATA_CAST; op++) {
            if (is_integer((kb_dtype)dtype) && !has_integer_form((data_op)op))
                continue;
            check(&r, (data_op)op, is_comparison((data_op)op) ? KB_I8 : (kb_dtype)dtype, shape, in);
        }
        for (int i = 0; i < 3; i++)
            drop(&r, in[i]);
    }
    rig_end(&r);
}

static void special_numbers(void **state)
{
    (void)state;
    static const double numbers[] = {
        0,    -0.0,  1,      -1,       HUGE_VAL, -HUGE_VAL, NOT_A_NUMBER, 0x1p-24,
        6e-8, 65504, -65504, 0x1p-149, 3.4e38,   100,       -100,         0.5};
    enum { count = sizeof numbers / sizeof *numbers };
    rig r = rig_make(1, 0);
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        data_value *in[3] = {value_of_numbers(&r, dtypes[d], KB_SHAPE(count, 1, 1), numbers),
                             value_of_numbers(&r, dtypes[d], KB_SHAPE(1, count, 1), numbers),
                             value_of_numbers(&r, dtypes[d], KB_SHAPE(1, 1, count), numbers)};
        for (int op = 0; op < DATA_CAST; op++) {
            unsigned arity = data_op_inputs((data_op)op);
            kb_shape shape = KB_SHAPE(count, arity > 1 ? count : 1, arity > 2 ? count : 1);
            check(&r, (data_op)op, is_comparison((data_op)op) ? KB_I8 : dtypes[d], shape, in);
        }
        for (int i = 0; i < 3; i++)
            drop(&r, in[i]);
    }
    rig_end(&r);
}

static void integers_wrap_around(void **state)
{
    (void)state;
    static const double numbers[] = {0,         1,         -1,  2,     -2, 127, -128,
                                     INT32_MAX, INT32_MIN, 100, 65536, -7, 3};
    enum { count = sizeof numbers / sizeof *numbers };
    rig r = rig_make(1, 0);
    for (int d = 0; d < 2; d++) {
        kb_dtype dtype = d ? KB_I32 : KB_I8;
        data_value *in[3] = {value_of_numbers(&r, dtype, KB_SHAPE(count, 1, 1), numbers),
                             value_of_numbers(&r, dtype, KB_SHAPE(1, count, 1), numbers),
                             value_of_numbers(&r, dtype, KB_SHAPE(1, 1, count), numbers)};
        for (int op = 0; op < DATA_CAST; op++) {
            if (!has_integer_form((data_op)op))
                continue;
            unsigned arity = data_op_inputs((data_op)op);
            kb_shape shape = KB_SHAPE(count, arity > 1 ? count : 1, arity > 2 ? count : 1);
            check(&r, (data_op)op, is_comparison((data_op)op) ? KB_I8 : dtype, shape, in);
        }
        for (int i = 0; i < 3; i++)
            drop(&r, in[i]);
    }
    rig_end(&r);
}

/* Integers as large as that are not the same in f32; neither are half ones in i32. */
static void the_condition_may_be_of_any_dtype(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    double conditions[] = {0, 0.25, -0.0, NOT_A_NUMBER}, large[] = {16777217},
           small[] = {-16777217};
    data_value *in[3] = {value_of_numbers(&r, KB_F16, KB_SHAPE(4), conditions),
                         value_of_numbers(&r, KB_I32, KB_SHAPE(1), large),
                         value_of_numbers(&r, KB_I32, KB_SHAPE(1), small)};
    data_value *got = apply(&r, DATA_WHERE, KB_I32, KB_SHAPE(4), in, 0);
    static const double expected[] = {-16777217, 16777217, -16777217, 16777217};
    for (uint64_t i = 0; i < 4; i++)
        assert_true(item(&r, got, i) == expected[i]);
    drop(&r, got);
    for (int i = 0; i < 3; i++)
        drop(&r, in[i]);
    rig_end(&r);
}

static kb_shape random_shape(rig *r)
{
    kb_shape shape = {.rank = (uint32_t)kb_rng_below(&r->rng, KB_MAX_DIMS + 1)};
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < shape.rank; axis++) {
        uint64_t limit = elements > 300 ? 2 : kb_rng_below(&r->rng, 6) == 0 ? 40 : 5;
        uint64_t lowest = kb_rng_below(&r->rng, 30) == 0 ? 0 : 1;
        shape.dims[axis] = lowest + kb_rng_below(&r->rng, limit);
        elements *= shape.dims[axis];
    }
    return shape;
}

/* A shape that is broadcast to the other: some axes of 1, some left out. */
static kb_shape part_of(rig *r, const kb_shape *whole)
{
    uint32_t lacking = (uint32_t)kb_rng_below(&r->rng, 3) == 0
                           ? (uint32_t)kb_rng_below(&r->rng, whole->rank + 1)
                           : 0;
    kb_shape shape = {.rank = whole->rank - lacking};
    for (uint32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = kb_rng_below(&r->rng, 3) == 0 ? 1 : whole->dims[axis + lacking];
    return shape;
}

static void inputs_broadcast(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    static const data_op ops[] = {DATA_ADD, DATA_WHERE, DATA_LT, DATA_FMA, DATA_NEG, DATA_MAXIMUM};
    for (uint64_t n = 0; n < cases(400); n++) {
        data_op op = ops[kb_rng_below(&r.rng, sizeof ops / sizeof *ops)];
        kb_shape shape = random_shape(&r);
        data_value *in[3];
        for (unsigned i = 0; i < data_op_inputs(op); i++)
            in[i] = random_value(&r, (kb_dtype)kb_rng_below(&r.rng, KB_DTYPES), part_of(&r, &shape),
                                 false);
        bool of_integers = true;
        for (unsigned i = op == DATA_WHERE; i < data_op_inputs(op); i++)
            of_integers = of_integers && is_integer(data_dtype(in[i]));
        kb_dtype dtype = op == DATA_LT ? KB_I8
                         : of_integers ? KB_I32
                                       : (kb_dtype)kb_rng_below(&r.rng, KB_I8);
        check(&r, op, dtype, shape, in);
        for (unsigned i = 0; i < data_op_inputs(op); i++)
            drop(&r, in[i]);
    }
    rig_end(&r);
}

/* More than a block, and more than a part: rows and columns that do not divide them. */
static void large_arrays_broadcast(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    const uint64_t n = RUNNING_ON_VALGRIND ? 3 : 37, m = 1111;
    kb_shape shapes[] = {KB_SHAPE(n, m), KB_SHAPE(n, 1), KB_SHAPE(1, m),
                         KB_SHAPE(m),    KB_SHAPE(1),    {.rank = 0}};
    enum { count = sizeof shapes / sizeof *shapes };
    for (size_t i = 0; i < count; i++) {
        data_value *in[] = {random_value(&r, KB_F16, KB_SHAPE(n, m), false),
                            random_value(&r, i % 2 ? KB_BF16 : KB_F16, shapes[i], false)};
        check(&r, DATA_ADD, KB_F16, KB_SHAPE(n, m), in);
        drop(&r, in[0]);
        drop(&r, in[1]);
    }
    rig_end(&r);
}

/* As kb_convert does, which is tested by itself; also when it is repeated on the way. */
static void casts_are_conversions(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    const uint64_t n = 1500;
    for (int from = 0; from < KB_DTYPES; from++)
        for (int to = 0; to < KB_DTYPES; to++) {
            unsigned char expected[1500 * 4];
            data_value *in = random_value(&r, (kb_dtype)from, KB_SHAPE(n), true);
            kb_convert((kb_dtype)to, expected, (kb_dtype)from, bytes_of(&r, in), n);
            data_value *same = apply(&r, DATA_CAST, (kb_dtype)to, KB_SHAPE(n), &in, 0);
            data_value *twice = apply(&r, DATA_CAST, (kb_dtype)to, KB_SHAPE(2, n), &in, 0);
            size_t bytes = n * kb_dtype_bytes((kb_dtype)to);
            assert_memory_equal(bytes_of(&r, same), expected, bytes);
            assert_memory_equal(bytes_of(&r, twice), expected, bytes);
            assert_memory_equal((const char *)bytes_of(&r, twice) + bytes, expected, bytes);
            drop(&r, in);
            drop(&r, same);
            drop(&r, twice);
        }
    rig_end(&r);
}

static void arrays_without_elements(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(3, 0, 2), 1), *b = full(&r, KB_F16, KB_SHAPE(1), 1);
    data_value *sum = apply(&r, DATA_ADD, KB_F16, KB_SHAPE(3, 0, 2), (data_value *[]){a, b}, 0);
    assert_non_null(bytes_of(&r, sum));
    assert_int_equal(data_shape(sum)->dims[1], 0);
    drop(&r, a);
    drop(&r, b);
    drop(&r, sum);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_in_every_dtype),
        cmocka_unit_test(special_numbers),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(the_condition_may_be_of_any_dtype),
        cmocka_unit_test(inputs_broadcast),
        cmocka_unit_test(large_arrays_broadcast),
        cmocka_unit_test(casts_are_conversions),
        cmocka_unit_test(arrays_without_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
