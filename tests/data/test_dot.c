/*
 * test_dot.c: products of matrices against doubles, with bounds that follow from the depth.
 */
#include "data/data_rig.h"

typedef struct product {
    kb_dtype a, b, acc, result;
    uint64_t m, k, n;
    bool has_acc;
} product;

/*
 * A sum of k products in f32, in any order, is off by no more than (k + 1) * 2^-24 of the sum of
 * their magnitudes; rounding to the dtype adds half a step.
 */
static void expect_real(const product *p, double sum, double magnitude, double got)
{
    double slack = (double)(p->k + 1) * 0x1p-24 * magnitude * 1.01;
    double low = rounded(p->result, sum - slack), high = rounded(p->result, sum + slack);
    if (isnan(got) && (isnan(low) || isnan(high)))
        return; /* too large for a dtype that has no infinity */
    if (!(got >= low && got <= high))
        fail_msg("(%d, %d, %d): %a is not between %a and %a", (int)p->m, (int)p->k, (int)p->n, got,
                 low, high);
}

static double *numbers_of(rig *r, data_value *value)
{
    uint64_t count = elements_of(data_shape(value));
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = item(r, value, i);
    return numbers;
}

static void check(rig *r, const product *p)
{
    data_value *a = random_value(r, p->a, KB_SHAPE(p->m, p->k), false);
    data_value *b = random_value(r, p->b, KB_SHAPE(p->k, p->n), false);
    data_value *acc = p->has_acc ? random_value(r, p->acc, KB_SHAPE(p->m, p->n), false) : NULL;
    data_value *got = dot(r, a, b, acc, p->result);
    (void)bytes_of(r, got);
    double *as = numbers_of(r, a), *bs = numbers_of(r, b);
    bool in_integers = p->a >= KB_I8 && p->b >= KB_I8 && (!p->has_acc || p->acc >= KB_I8);
    for (uint64_t i = 0; i < p->m; i++)
        for (uint64_t j = 0; j < p->n; j++) {
            double sum = acc ? item(r, acc, i * p->n + j) : 0, magnitude = fabs(sum);
            for (uint64_t l = 0; l < p->k; l++) {
                double x = as[i * p->k + l] * bs[l * p->n + j];
                sum += x;
                magnitude += fabs(x);
            }
            double found = item(r, got, i * p->n + j);
            if (in_integers)
                assert_true(found == (p->result == KB_I8 ? (int8_t)(uint8_t)(int64_t)sum : sum));
            else
                expect_real(p, sum, magnitude, found);
        }
    free(as);
    free(bs);
    drop(r, a);
    drop(r, b);
    drop(r, acc);
    drop(r, got);
}

static void all_dtypes(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    for (int dtype = 0; dtype < KB_DTYPES; dtype++)
        for (int has_acc = 0; has_acc < 2; has_acc++) {
            kb_dtype d = (kb_dtype)dtype;
            check(&r, &(product){d, d, d, d, 5, 17, 9, has_acc});
            check(&r, &(product){d, d, KB_F32, d >= KB_I8 ? KB_I32 : KB_F32, 3, 70, 2,
                                 has_acc && d < KB_I8});
        }
    check(&r, &(product){KB_F16, KB_F32, KB_BF16, KB_F16, 6, 20, 7, true});
    check(&r, &(product){KB_I8, KB_F16, KB_I32, KB_F32, 6, 20, 7, true});
    check(&r, &(product){KB_I8, KB_I8, KB_F16, KB_F32, 6, 20, 7, true});
    rig_end(&r);
}

/* Around the size of the tiles, of which a result has one part each. */
static void ragged_shapes(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    if (!RUNNING_ON_VALGRIND) {
        check(&r, &(product){KB_F16, KB_F16, KB_F16, KB_F16, 257, 65, 513, true});
        check(&r, &(product){KB_F32, KB_F32, KB_F32, KB_F32, 257, 33, 513, true});
        check(&r, &(product){KB_I8, KB_I8, KB_I32, KB_I32, 258, 20, 514, true});
        check(&r, &(product){KB_BF16, KB_BF16, KB_F32, KB_F32, 3, 1500, 5, false});
    }
    check(&r, &(product){KB_F16, KB_F16, KB_F16, KB_F16, 1, 513, 1, true});
    check(&r, &(product){KB_F32, KB_F32, KB_F32, KB_F16, 2, 1025, 3, false});
    for (uint64_t n = 0; n < cases(100); n++)
        check(&r, &(product){KB_F16, KB_BF16, KB_F32, KB_F32, kb_rng_below(&r.rng, 20),
                             kb_rng_below(&r.rng, 40), kb_rng_below(&r.rng, 20),
                             kb_rng_below(&r.rng, 2)});
    rig_end(&r);
}

/* Without depth there is what was to be added to, or 0. */
static void no_depth(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    check(&r, &(product){KB_F16, KB_F16, KB_F16, KB_F16, 3, 0, 4, true});
    check(&r, &(product){KB_F16, KB_F16, KB_F16, KB_F16, 3, 0, 4, false});
    check(&r, &(product){KB_I32, KB_I32, KB_I32, KB_I32, 3, 0, 4, true});
    check(&r, &(product){KB_F16, KB_F16, KB_F16, KB_F16, 0, 5, 4, true});
    check(&r, &(product){KB_F16, KB_F16, KB_F16, KB_F16, 4, 5, 0, true});
    rig_end(&r);
}

/*
 * 2048 + 1 has no f16, it would round to 2048: rounded after every step, 2048 + 1 + 1 would be
 * 2048, but it is 2050. 65504 + 65504 - 65504 would be infinite on the way.
 */
static void sums_are_rounded_once(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    double left[] = {2048, 1, 1, 65504, 65504, -65504};
    data_value *a = value_of_numbers(&r, KB_F16, KB_SHAPE(2, 3), left);
    data_value *b = full(&r, KB_F16, KB_SHAPE(3, 1), 1), *c = dot(&r, a, b, NULL, KB_F16);
    assert_true(item(&r, c, 0) == 2050);
    assert_true(item(&r, c, 1) == 65504);
    data_value *acc = full(&r, KB_F16, KB_SHAPE(2, 1), 1), *d = dot(&r, a, b, acc, KB_F16);
    assert_true(item(&r, d, 0) == 2052); /* 2051 is half-way, and 2052 the even one */
    drop(&r, a);
    drop(&r, b);
    drop(&r, c);
    drop(&r, d);
    drop(&r, acc);
    rig_end(&r);
}

/* 2^31 twice is 2^32, which is 0; 200 * 200 in i8 is 40000 = 156 * 256 + 64. */
static void integers_wrap_around(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    double large[] = {-2147483648.0, -2147483648.0}, hundreds[] = {100, 100, 100, 100};
    data_value *a = value_of_numbers(&r, KB_I32, KB_SHAPE(1, 2), large);
    data_value *b = full(&r, KB_I32, KB_SHAPE(2, 1), 1), *c = dot(&r, a, b, NULL, KB_I32);
    assert_true(item(&r, c, 0) == 0);
    data_value *d = value_of_numbers(&r, KB_I8, KB_SHAPE(1, 4), hundreds);
    data_value *e = value_of_numbers(&r, KB_I8, KB_SHAPE(4, 1), hundreds);
    data_value *wide = dot(&r, d, e, NULL, KB_I32), *narrow = dot(&r, d, e, NULL, KB_I8);
    assert_true(item(&r, wide, 0) == 40000);
    assert_true(item(&r, narrow, 0) == 64);
    data_value *all[] = {a, b, c, d, e, wide, narrow};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(&r, all[i]);
    rig_end(&r);
}

/* NaN and infinity are not lost, also where the other factor is 0. */
static void special_numbers(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    double left[] = {HUGE_VAL, 1, NOT_A_NUMBER, 0}, right[] = {1, 0, 2, 3};
    data_value *a = value_of_numbers(&r, KB_F16, KB_SHAPE(2, 2), left);
    data_value *b = value_of_numbers(&r, KB_F16, KB_SHAPE(2, 2), right);
    data_value *c = dot(&r, a, b, NULL, KB_F16);
    assert_true(isinf(item(&r, c, 0)));
    assert_true(isnan(item(&r, c, 1))); /* infinity times 0 */
    assert_true(isnan(item(&r, c, 2)) && isnan(item(&r, c, 3)));
    drop(&r, a);
    drop(&r, b);
    drop(&r, c);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_dtypes),
        cmocka_unit_test(ragged_shapes),
        cmocka_unit_test(no_depth),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(special_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
