/*
 * test_index_values.c: operations that look elements up, order them or join them, against plain
 * loops over coordinates: random shapes of up to four axes, sizes 0 and 1 among them, all dtypes,
 * all axes.
 */
#include "data/data_rig.h"

static bool is_integer(kb_dtype dtype)
{
    return dtype == KB_I8 || dtype == KB_I32;
}

/* ---- Coordinates ------------------------------------------------------------------------- */

typedef struct place {
    uint64_t at[4];
} place;

static place place_of(const kb_shape *shape, uint64_t element)
{
    place p = {{0}};
    for (uint32_t i = shape->rank; i-- > 0; element /= shape->dims[i])
        p.at[i] = element % shape->dims[i];
    return p;
}

static uint64_t element_at(const kb_shape *shape, const place *p)
{
    uint64_t element = 0;
    for (uint32_t i = 0; i < shape->rank; i++)
        element = element * shape->dims[i] + p->at[i];
    return element;
}

/* The number of `value` at the place, but at `along` on the axis. */
static double along(rig *r, data_value *value, place p, uint32_t axis, uint64_t along)
{
    p.at[axis] = along;
    return item(r, value, element_at(data_shape(value), &p));
}

/* The bytes of an element, as a number. */
static uint32_t bits(rig *r, data_value *value, uint64_t element)
{
    size_t size = kb_dtype_bytes(data_dtype(value));
    uint32_t is = 0;
    memcpy(&is, (const unsigned char *)bytes_of(r, value) + element * size, size);
    return is;
}

static kb_shape random_shape(kb_rng *rng)
{
    static const uint64_t sizes[] = {1, 2, 3, 5, 7, 8, 1, 4};
    kb_shape shape = {.rank = 1 + (uint32_t)kb_rng_below(rng, 4)};
    for (uint32_t i = 0; i < shape.rank; i++)
        shape.dims[i] = kb_rng_below(rng, 24) == 0 ? 0 : sizes[kb_rng_below(rng, 8)];
    return shape;
}

/* Few different ones, so that there are ties; NaN and infinity among them. */
static data_value *value_with_ties(rig *r, kb_dtype dtype, kb_shape shape)
{
    uint64_t count = elements_of(&shape);
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t kind = kb_rng_below(&r->rng, 12);
        numbers[i] = (double)kb_rng_below(&r->rng, 5) - 2;
        if (kind == 0 && !is_integer(dtype))
            numbers[i] = NOT_A_NUMBER;
        else if (kind == 1 && !is_integer(dtype))
            numbers[i] = kb_rng_below(&r->rng, 2) ? HUGE_VAL : -HUGE_VAL;
        else if (kind == 2)
            numbers[i] = -0.0;
    }
    data_value *value = value_of_numbers(r, dtype, shape, numbers);
    free(numbers);
    return value;
}

static data_value *random_index(rig *r, kb_shape shape, uint64_t limit)
{
    uint64_t count = elements_of(&shape);
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (double)kb_rng_below(&r->rng, limit);
    data_value *value = value_of_numbers(r, KB_I32, shape, numbers);
    free(numbers);
    return value;
}

typedef void check_fn(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis);

/* With every dtype, random shapes, and each of their axes. */
static void check_all(check_fn *check)
{
    rig r = rig_make(1, 0);
    for (uint64_t round = 0; round < cases(40); round++)
        for (int dtype = 0; dtype < KB_DTYPES; dtype++) {
            kb_shape shape = random_shape(&r.rng);
            for (uint32_t axis = 0; axis < shape.rank; axis++)
                check(&r, (kb_dtype)dtype, shape, axis);
        }
    rig_end(&r);
}

/* ---- The largest and the smallest -------------------------------------------------------- */

static void check_arg(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis)
{
    if (shape.dims[axis] == 0)
        return;
    data_value *in = value_with_ties(r, dtype, shape);
    kb_shape result_shape = shape;
    result_shape.dims[axis] = 1;
    for (int largest = 0; largest < 2; largest++) {
        data_op op = largest ? DATA_ARGMAX : DATA_ARGMIN;
        data_value *out = apply(r, op, KB_I32, result_shape, &in, axis);
        for (uint64_t i = 0; i < elements_of(&result_shape); i++) {
            place p = place_of(&result_shape, i);
            uint64_t best = 0;
            for (uint64_t j = 1; j < shape.dims[axis]; j++) {
                double x = along(r, in, p, axis, j), than = along(r, in, p, axis, best);
                if (isnan(than))
                    break;
                if (isnan(x) || (largest ? x > than : x < than))
                    best = j;
            }
            assert_int_equal(item(r, out, i), best);
        }
        drop(r, out);
    }
    drop(r, in);
}

static void the_place_of_the_largest(void **state)
{
    (void)state;
    check_all(check_arg);
}

/* Whether the number at index i is to come before the one at j. */
static bool comes_before(double a, uint64_t i, double b, uint64_t j)
{
    if (isnan(a) != isnan(b))
        return isnan(a);
    if (isnan(a) || a == b)
        return i < j;
    return a > b;
}

/* The rank of an element is the number of those that come before it. */
static void check_topk_of(rig *r, data_value *in, uint32_t axis, uint64_t k)
{
    kb_shape shape = *data_shape(in), result_shape = shape;
    result_shape.dims[axis] = k;
    data_value *out = apply(r, DATA_TOPK, KB_I32, result_shape, &in, axis);
    (void)bytes_of(r, out);
    for (uint64_t i = 0; i < elements_of(&result_shape); i++) {
        place p = place_of(&result_shape, i);
        uint64_t index = (uint64_t)item(r, out, i), before = 0;
        assert_true(index < shape.dims[axis]);
        double x = along(r, in, p, axis, index);
        for (uint64_t j = 0; j < shape.dims[axis]; j++)
            before += comes_before(along(r, in, p, axis, j), j, x, index);
        assert_int_equal(before, p.at[axis]);
    }
    drop(r, out);
}

static void check_topk(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis)
{
    data_value *in = value_with_ties(r, dtype, shape);
    for (uint64_t k = 0; k <= shape.dims[axis]; k++)
        check_topk_of(r, in, axis, k);
    drop(r, in);
}

static void the_largest_come_first(void **state)
{
    (void)state;
    check_all(check_topk);
    rig r = rig_make(1, 0);
    data_value *in = random_value(&r, KB_F16, KB_SHAPE(3, 1500), false);
    check_topk_of(&r, in, 1, 40);
    drop(&r, in);
    rig_end(&r);
}

/* ---- Running sums ------------------------------------------------------------------------ */

static void check_cumsum(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis)
{
    data_value *in = random_value(r, dtype, shape, elements_of(&shape) % 2 == 0);
    kb_dtype to = is_integer(dtype) ? KB_I32 : dtype;
    data_value *out = apply(r, DATA_CUMSUM, to, shape, &in, axis);
    (void)bytes_of(r, out);
    for (uint64_t i = 0; i < elements_of(&shape); i++) {
        place p = place_of(&shape, i);
        double sum = 0, got = item(r, out, i);
        for (uint64_t j = 0; j <= p.at[axis]; j++)
            sum += along(r, in, p, axis, j);
        double expected =
            is_integer(dtype) ? (double)(int32_t)(uint32_t)(int64_t)sum : rounded(to, sum);
        assert_true(got == expected || (isnan(got) && isnan(expected)));
    }
    drop(r, out);
    drop(r, in);
}

/* Longer than blocks; and what is small is not lost: 2048 and then ones are no sum in f16. */
static void running_sums(void **state)
{
    (void)state;
    check_all(check_cumsum);
    rig r = rig_make(1, 0);
    check_cumsum(&r, KB_F32, KB_SHAPE(2, 2500), 1);
    check_cumsum(&r, KB_BF16, KB_SHAPE(50, 1100), 0);
    double numbers[9] = {2048, 1, 1, 1, 1, 1, 1, 1, 1};
    data_value *in = value_of_numbers(&r, KB_F16, KB_SHAPE(9), numbers);
    data_value *out = apply(&r, DATA_CUMSUM, KB_F16, KB_SHAPE(9), &in, 0);
    assert_true(item(&r, out, 8) == 2056); /* 2048 if each sum were of the rounded one before */
    drop(&r, in);
    drop(&r, out);
    rig_end(&r);
}

/* ---- Gather and scatter ------------------------------------------------------------------ */

/* At most x on other axes, of any length on this one. */
static kb_shape index_shape(kb_rng *rng, kb_shape x, uint32_t axis)
{
    kb_shape shape = x;
    for (uint32_t i = 0; i < x.rank; i++)
        if (i == axis)
            shape.dims[i] = kb_rng_below(rng, 6);
        else if (x.dims[i] > 0 && kb_rng_below(rng, 4) == 0)
            shape.dims[i] = kb_rng_below(rng, x.dims[i]) + 1;
    return shape;
}

static void check_gather(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis)
{
    if (shape.dims[axis] == 0)
        return;
    kb_shape picked = index_shape(&r->rng, shape, axis);
    data_value *x = random_value(r, dtype, shape, true);
    data_value *index = random_index(r, picked, shape.dims[axis]);
    data_value *out = apply(r, DATA_GATHER, dtype, picked, (data_value *[]){x, index}, axis);
    (void)bytes_of(r, out);
    for (uint64_t i = 0; i < elements_of(&picked); i++) {
        place p = place_of(&picked, i);
        p.at[axis] = (uint64_t)item(r, index, i);
        assert_int_equal(bits(r, out, i), bits(r, x, element_at(&shape, &p)));
    }
    drop(r, x);
    drop(r, index);
    drop(r, out);
}

static void gathering(void **state)
{
    (void)state;
    check_all(check_gather);
    rig r = rig_make(1, 0);
    check_gather(&r, KB_F32, KB_SHAPE(3, 70000), 0); /* in several parts */
    rig_end(&r);
}

/* x with src put or added, one after the other. */
static void check_scatter_of(rig *r, kb_dtype dtype, kb_shape shape, kb_shape put, uint32_t axis)
{
    kb_shape wide = put; /* src may have more than the index */
    wide.dims[put.rank - 1] += kb_rng_below(&r->rng, 3);
    data_value *x = random_value(r, dtype, shape, false);
    data_value *src = random_value(r, dtype, wide, false);
    data_value *index = random_index(r, put, shape.dims[axis]);
    uint64_t count = elements_of(&shape);
    double *last = malloc((count + 1) * sizeof *last), *sum = malloc((count + 1) * sizeof *sum);
    assert_true(last && sum);
    for (uint64_t i = 0; i < count; i++)
        last[i] = sum[i] = item(r, x, i);
    for (uint64_t i = 0; i < elements_of(&put); i++) {
        place p = place_of(&put, i);
        double number = item(r, src, element_at(&wide, &p));
        p.at[axis] = (uint64_t)item(r, index, i);
        last[element_at(&shape, &p)] = number;
        sum[element_at(&shape, &p)] += number;
    }
    data_value *inputs[] = {x, index, src};
    data_value *placed = apply(r, DATA_SCATTER, dtype, shape, inputs, axis);
    data_value *added = apply(r, DATA_SCATTER_ADD, dtype, shape, inputs, axis);
    (void)bytes_of(r, placed);
    (void)bytes_of(r, added);
    for (uint64_t i = 0; i < count; i++) {
        assert_true(item(r, placed, i) == last[i]);
        double right = dtype == KB_I8 ? (double)(int8_t)(int64_t)sum[i] : rounded(dtype, sum[i]);
        assert_true(item(r, added, i) == right);
    }
    free(last);
    free(sum);
    drop(r, placed);
    drop(r, added);
    for (int i = 0; i < 3; i++)
        drop(r, inputs[i]);
}

static void check_scatter(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis)
{
    if (shape.dims[axis] > 0)
        check_scatter_of(r, dtype, shape, index_shape(&r->rng, shape, axis), axis);
}

static void scattering(void **state)
{
    (void)state;
    check_all(check_scatter);
    rig r = rig_make(1, 0);
    check_scatter_of(&r, KB_F16, KB_SHAPE(70000), KB_SHAPE(9000), 0); /* more than a window */
    check_scatter_of(&r, KB_I32, KB_SHAPE(300, 250), KB_SHAPE(200, 40), 1);
    rig_end(&r);
}

static void an_index_out_of_range_is_found(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    bool is_inside;
    uint64_t at = 99;
    int32_t number = 99;
    double numbers[] = {3, 0, 4, -1};
    data_value *index = value_of_numbers(&r, KB_I32, KB_SHAPE(2, 2), numbers);
    expect_ok(data_check_index(r.store, index, 4, &is_inside, &at, &number));
    assert_true(!is_inside && at == 2 && number == 4);
    expect_ok(data_check_index(r.store, index, 5, &is_inside, &at, &number));
    assert_true(!is_inside && at == 3 && number == -1);
    drop(&r, index);
    index = value_of_numbers(&r, KB_I32, KB_SHAPE(2), numbers);
    expect_ok(data_check_index(r.store, index, 4, &is_inside, &at, &number));
    assert_true(is_inside);
    drop(&r, index);
    index = value_of_numbers(&r, KB_I32, KB_SHAPE(0), numbers);
    expect_ok(data_check_index(r.store, index, 0, &is_inside, &at, &number));
    assert_true(is_inside);
    drop(&r, index);
    rig_end(&r);
}

/* ---- Parts ------------------------------------------------------------------------------- */

static void check_pieces(rig *r, kb_dtype dtype, kb_shape shape, uint32_t axis)
{
    data_value *x = random_value(r, dtype, shape, true);
    data_value *parts[DATA_MAX_INPUTS], *whole;
    uint64_t length = shape.dims[axis], begin = 0;
    size_t count = 1 + (size_t)kb_rng_below(&r->rng, DATA_MAX_INPUTS);
    for (size_t i = 0; i < count; i++) {
        uint64_t end = i + 1 == count ? length : begin + kb_rng_below(&r->rng, length - begin + 1);
        expect_ok(data_slice(r->store, x, axis, begin, end, &parts[i]));
        kb_shape part = *data_shape(parts[i]);
        assert_int_equal(part.dims[axis], end - begin);
        for (uint64_t j = 0; j < elements_of(&part); j++) {
            place p = place_of(&part, j);
            p.at[axis] += begin;
            assert_int_equal(bits(r, parts[i], j), bits(r, x, element_at(&shape, &p)));
        }
        begin = end;
    }
    expect_ok(data_concat(r->store, parts, count, axis, &whole));
    assert_true(mem_shape_equal(data_shape(whole), &shape));
    for (uint64_t i = 0; i < elements_of(&shape); i++)
        assert_int_equal(bits(r, whole, i), bits(r, x, i));
    for (size_t i = 0; i < count; i++)
        drop(r, parts[i]);
    drop(r, whole);
    drop(r, x);
}

static void slices_can_be_joined_again(void **state)
{
    (void)state;
    check_all(check_pieces);
    rig r = rig_make(1, 0);
    check_pieces(&r, KB_F16, KB_SHAPE(7, 30000), 1); /* in several parts */
    check_pieces(&r, KB_I8, KB_SHAPE(3, 50, 1000), 1);
    rig_end(&r);
}

static void a_part_of_the_elements_in_a_shape(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *x = random_value(&r, KB_BF16, KB_SHAPE(300, 500), true), *part;
    expect_ok(data_part(r.store, x, 777, &KB_SHAPE(2, 70000), &part));
    for (uint64_t i = 0; i < 140000; i += 997)
        assert_int_equal(bits(&r, part, i), bits(&r, x, 777 + i));
    drop(&r, x);
    drop(&r, part);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_of_the_largest),
        cmocka_unit_test(the_largest_come_first),
        cmocka_unit_test(running_sums),
        cmocka_unit_test(gathering),
        cmocka_unit_test(scattering),
        cmocka_unit_test(an_index_out_of_range_is_found),
        cmocka_unit_test(slices_can_be_joined_again),
        cmocka_unit_test(a_part_of_the_elements_in_a_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
