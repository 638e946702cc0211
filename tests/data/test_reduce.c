/*
 * test_reduce.c: reductions and softmax along any axis, and operations that only move elements,
 * against loops over doubles.
 */
#include "data/data_rig.h"

static bool is_integer(kb_dtype dtype)
{
    return dtype == KB_I8 || dtype == KB_I32;
}

/* ---- Along an axis ----------------------------------------------------------------------- */

typedef struct line {
    uint64_t first, stride, length;
} line;

/* The elements along the axis with the given place on the other axes. */
static line line_at(const kb_shape *shape, uint32_t axis, uint64_t outer, uint64_t inner)
{
    line l = {.stride = 1, .length = shape->dims[axis]};
    for (uint32_t i = axis + 1; i < shape->rank; i++)
        l.stride *= shape->dims[i];
    l.first = outer * l.length * l.stride + inner;
    return l;
}

static double expected_reduction(rig *r, data_op op, data_value *in, line l, double *magnitude)
{
    double sum = 0, max = -HUGE_VAL, min = HUGE_VAL;
    *magnitude = 0;
    for (uint64_t i = 0; i < l.length; i++) {
        double x = item(r, in, l.first + i * l.stride);
        if (isnan(x))
            return *magnitude = NOT_A_NUMBER;
        sum += x;
        *magnitude += fabs(x);
        max = fmax(max, x);
        min = fmin(min, x);
    }
    return op == DATA_SUM ? sum : op == DATA_MAX ? max : min;
}

static void check_reduction(rig *r, data_op op, data_value *in, uint32_t axis)
{
    kb_shape shape = *data_shape(in), result_shape = shape;
    kb_dtype dtype = data_dtype(in);
    result_shape.dims[axis] = 1;
    data_value *result = apply(r, op, dtype, result_shape, &in, axis);
    (void)bytes_of(r, result);
    uint64_t inner = line_at(&shape, axis, 0, 0).stride;
    for (uint64_t i = 0; i < elements_of(&result_shape); i++) {
        double magnitude, got = item(r, result, i);
        double expected =
            expected_reduction(r, op, in, line_at(&shape, axis, i / inner, i % inner), &magnitude);
        if (is_integer(dtype) && op == DATA_SUM) {
            int64_t exact = (int64_t)expected;
            assert_true(got == (dtype == KB_I8 ? (int8_t)(uint8_t)exact : (int32_t)exact));
        } else if (op == DATA_SUM && isfinite(magnitude)) {
            /* Rounding in double may change where it is rounded to: one step. */
            assert_true(steps_between(dtype, got, rounded(dtype, expected)) <= 1);
            assert_true(fabs(got - expected) <= 0x1p-20 * magnitude ||
                        got == rounded(dtype, expected) || dtype != KB_F32);
        } else {
            expected = isinf(expected) && !is_integer(dtype) ? rounded(dtype, expected) : expected;
            assert_true(got == expected || (isnan(got) && isnan(expected)));
        }
    }
    drop(r, result);
}

/* Lengths around the sizes of lanes and blocks, in all places of the axis. */
static void reductions(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    const kb_shape shapes[] = {KB_SHAPE(1),
                               KB_SHAPE(31),
                               KB_SHAPE(32),
                               KB_SHAPE(1025),
                               KB_SHAPE(7, 40),
                               KB_SHAPE(3, 1030),
                               KB_SHAPE(1030, 3),
                               KB_SHAPE(5, 4, 6),
                               KB_SHAPE(2, 1, 3),
                               KB_SHAPE(4, 0, 2),
                               KB_SHAPE(2, 3, 2, 1, 2, 1, 2, 2)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = 0; dtype < KB_DTYPES; dtype++) {
            bool is_empty = elements_of(&shapes[i]) == 0;
            data_value *in = random_value(&r, (kb_dtype)dtype, shapes[i], i % 2 == 0);
            for (uint32_t axis = 0; axis < shapes[i].rank; axis++)
                for (int op = DATA_SUM; op <= DATA_MIN; op++)
                    if (op == DATA_SUM || !is_empty || shapes[i].dims[axis] > 0)
                        check_reduction(&r, (data_op)op, in, axis);
            drop(&r, in);
        }
    rig_end(&r);
}

/* The largest and smallest of nothing are as far out as the dtype goes. */
static void reductions_of_nothing(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    static const kb_dtype dtypes[] = {KB_F16, KB_I8, KB_I32};
    static const double highest[] = {HUGE_VAL, INT8_MAX, INT32_MAX};
    static const double lowest[] = {-HUGE_VAL, INT8_MIN, INT32_MIN};
    for (size_t d = 0; d < 3; d++) {
        data_value *in = full(&r, dtypes[d], KB_SHAPE(2, 0), 1);
        for (int op = DATA_SUM; op <= DATA_MIN; op++) {
            data_value *result = apply(&r, (data_op)op, dtypes[d], KB_SHAPE(2, 1), &in, 1);
            double expected = op == DATA_SUM ? 0 : op == DATA_MAX ? lowest[d] : highest[d];
            assert_true(item(&r, result, 1) == expected);
            drop(&r, result);
        }
        drop(&r, in);
    }
    rig_end(&r);
}

/*
 * 1 and then 2^16 times 2^-25: added in f32 one by one, each of them is lost; the sum is
 * 1 + 2^-9 = 1.001953125.
 */
static void sums_keep_what_is_small(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    enum { count = (1 << 16) + 1 };
    double *numbers = malloc(count * sizeof *numbers);
    assert_non_null(numbers);
    numbers[0] = 1;
    for (size_t i = 1; i < count; i++)
        numbers[i] = 0x1p-25;
    data_value *in = value_of_numbers(&r, KB_F32, KB_SHAPE(count), numbers);
    data_value *sum = apply(&r, DATA_SUM, KB_F32, KB_SHAPE(1), &in, 0);
    assert_true(item(&r, sum, 0) == 1.001953125);
    drop(&r, in);
    drop(&r, sum);
    free(numbers);
    rig_end(&r);
}

/* ---- Softmax ----------------------------------------------------------------------------- */

static void check_softmax(rig *r, data_value *in, uint32_t axis)
{
    kb_shape shape = *data_shape(in);
    kb_dtype dtype = data_dtype(in);
    data_value *result = apply(r, DATA_SOFTMAX, dtype, shape, &in, axis);
    (void)bytes_of(r, result);
    uint64_t lines = elements_of(&shape) / shape.dims[axis];
    uint64_t inner = line_at(&shape, axis, 0, 0).stride;
    for (uint64_t n = 0; n < lines; n++) {
        line l = line_at(&shape, axis, n / inner, n % inner);
        double max = -HUGE_VAL, sum = 0;
        for (uint64_t i = 0; i < l.length; i++)
            max = fmax(max, item(r, in, l.first + i * l.stride));
        for (uint64_t i = 0; i < l.length; i++)
            sum += exp(item(r, in, l.first + i * l.stride) - max);
        for (uint64_t i = 0; i < l.length; i++) {
            double expected = exp(item(r, in, l.first + i * l.stride) - max) / sum;
            double got = item(r, result, l.first + i * l.stride);
            /* The difference to the maximum is rounded to f32, and its exponential is worse by so
             * much: up to 2^-24 of 200 here. */
            assert_true(steps_between(dtype, got, rounded(dtype, expected)) <= 2 ||
                        fabs(got - expected) <= 2e-5 * expected);
        }
    }
    drop(r, result);
}

static void softmax_along_any_axis(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    const kb_shape shapes[] = {KB_SHAPE(1),       KB_SHAPE(2000),    KB_SHAPE(9, 33),
                               KB_SHAPE(3, 1100), KB_SHAPE(1100, 3), KB_SHAPE(4, 5, 6)};
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32, KB_F8E5M2};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            data_value *in = random_value(&r, dtypes[d], shapes[i], false);
            for (uint32_t axis = 0; axis < shapes[i].rank; axis++)
                check_softmax(&r, in, axis);
            drop(&r, in);
        }
    rig_end(&r);
}

/* Without subtracting the maximum these would be infinite, or 0 divided by 0. */
static void softmax_of_large_numbers(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    double numbers[] = {60000, 60000, -60000, -60000};
    data_value *in = value_of_numbers(&r, KB_F16, KB_SHAPE(2, 2), numbers);
    data_value *result = apply(&r, DATA_SOFTMAX, KB_F16, KB_SHAPE(2, 2), &in, 1);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(item(&r, result, i) == 0.5);
    drop(&r, in);
    drop(&r, result);

    /* What is masked out with -infinity has no share; NaN spoils its row alone. */
    double masked[] = {1, -HUGE_VAL, 1, NOT_A_NUMBER};
    in = value_of_numbers(&r, KB_F32, KB_SHAPE(2, 2), masked);
    result = apply(&r, DATA_SOFTMAX, KB_F32, KB_SHAPE(2, 2), &in, 1);
    assert_true(item(&r, result, 0) == 1 && item(&r, result, 1) == 0);
    assert_true(isnan(item(&r, result, 2)) && isnan(item(&r, result, 3)));
    drop(&r, in);
    drop(&r, result);
    rig_end(&r);
}

/* ---- Moving ------------------------------------------------------------------------------ */

static void transposing_swaps_the_last_two_axes(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    const kb_shape shapes[] = {KB_SHAPE(1, 1),         KB_SHAPE(5, 70), KB_SHAPE(300, 33),
                               KB_SHAPE(2, 3, 40, 35), KB_SHAPE(3, 0),  KB_SHAPE(0, 3, 4)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = KB_F16; dtype < KB_DTYPES; dtype++) {
            kb_shape from = shapes[i], to = from;
            uint64_t rows = from.dims[from.rank - 2], columns = from.dims[from.rank - 1];
            to.dims[to.rank - 2] = columns;
            to.dims[to.rank - 1] = rows;
            data_value *in = random_value(&r, (kb_dtype)dtype, from, false);
            data_value *out = apply(&r, DATA_TRANSPOSE, (kb_dtype)dtype, to, &in, 0);
            (void)bytes_of(&r, out);
            for (uint64_t e = 0; e < elements_of(&from); e++) {
                uint64_t matrix = e / (rows * columns), row = e / columns % rows,
                         column = e % columns;
                uint64_t there = (matrix * columns + column) * rows + row;
                assert_true(item(&r, in, e) == item(&r, out, there));
            }
            drop(&r, in);
            drop(&r, out);
        }
    rig_end(&r);
}

static void reshaping_keeps_the_elements(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *in = random_value(&r, KB_BF16, KB_SHAPE(300, 400), true);
    data_value *out = apply(&r, DATA_RESHAPE, KB_BF16, KB_SHAPE(2, 60000), &in, 0);
    assert_memory_equal(bytes_of(&r, out), bytes_of(&r, in), 240000);
    assert_int_equal(data_shape(out)->dims[1], 60000);
    drop(&r, in);
    drop(&r, out);
    rig_end(&r);
}

static void numbers_that_are_made_up(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *value = full(&r, KB_F16, KB_SHAPE(3, 50000), 0.1);
    for (uint64_t i = 0; i < 150000; i += 49999)
        assert_true(item(&r, value, i) == rounded(KB_F16, 0.1));
    drop(&r, value);
    value = full(&r, KB_I8, (kb_shape){.rank = 0}, -5);
    assert_true(item(&r, value, 0) == -5);
    drop(&r, value);
    expect_ok(data_arange(r.store, KB_I32, -3, 100000, &value));
    for (uint64_t i = 0; i < 100000; i += 33333)
        assert_true(item(&r, value, i) == (double)i - 3);
    drop(&r, value);
    expect_ok(data_arange(r.store, KB_F16, 2047, 4, &value)); /* 2049 has no f16: 2048 */
    static const double expected[] = {2047, 2048, 2048, 2050};
    for (uint64_t i = 0; i < 4; i++)
        assert_true(item(&r, value, i) == expected[i]);
    drop(&r, value);
    expect_ok(data_arange(r.store, KB_F16, 0, 0, &value));
    assert_non_null(bytes_of(&r, value));
    drop(&r, value);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions),
        cmocka_unit_test(reductions_of_nothing),
        cmocka_unit_test(sums_keep_what_is_small),
        cmocka_unit_test(softmax_along_any_axis),
        cmocka_unit_test(softmax_of_large_numbers),
        cmocka_unit_test(transposing_swaps_the_last_two_axes),
        cmocka_unit_test(reshaping_keeps_the_elements),
        cmocka_unit_test(numbers_that_are_made_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
