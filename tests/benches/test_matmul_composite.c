/*
 * test_matmul_composite.c: the report of the bench matmul_composite for its three kinds of
 * operands. test_benches.c checks the products.
 */
#include "report.h"

#include <math.h>

static const char *const kinds[] = {"ref_ref", "load_ref", "load_load"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static double figure(const report *r, const char *name, const char *kind)
{
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, kind);
    const double *value = find_metric(r, full);
    if (!value)
        fail_msg("there is no metric %s", full);
    return *value;
}

static void expect_ns(double found, kb_time expected)
{
    if (found < kb_to_ns(expected) || found > kb_to_ns(expected))
        fail_msg("%.6f ns, not %.6f", found, kb_to_ns(expected));
}

/*
 * One element of two bytes each, as in tests/pe/test_composite.c. The array takes a cycle and 190
 * until the result is out. A load from the own HBM takes 90 ns, .08 of wire, .0625 for the request
 * and b / 204.8 for b bytes; the store 83 ns, .04 of wire and 2 / 204.8 = .009766.
 *   ref_ref:   both operands at once, 4 / 204.8 = .019532: 90.162032 + 191 + 83.049766 = 364.211798
 *   load_ref:  one of them, .009766:                       90.152266 + 191 + 83.049766 = 364.202032
 *   load_load: nothing to load:                                        191 + 83.049766 = 274.049766
 */
static void one_element_by_hand(void **state)
{
    (void)state;
    static const kb_time composite[KINDS] = {364211798, 364202032, 274049766};
    report r;
    job j = {.spec = &bench_matmul_composite,
             .machine = ONE_PE,
             .params = {"m=1", "k=1", "n=1"},
             .with_data = true};
    run(&j, &r);
    assert_int_equal(r.verdict, RT_VERIFIED);
    assert_int_equal(r.count, 5 * KINDS);
    for (size_t i = 0; i < KINDS; i++) {
        expect_ns(figure(&r, "matrix_busy", kinds[i]), 191 * KB_NS);
        expect_ns(figure(&r, "composite_time", kinds[i]), composite[i]);
        double share = 191 / kb_to_ns(composite[i]);
        assert_true(fabs(figure(&r, "pipeline_efficiency", kinds[i]) - 100 * share) < 1e-9);
    }
}

/*
 * 512 x 512 x 512: 8 x 8 folds of 512 rows, and once 190: 32,958 cycles. The pipeline is nearly
 * full in all of them; what is loaded first makes it fuller and the launch longer.
 */
static void loads_shorten_the_pipeline_and_lengthen_the_launch(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_matmul_composite};
    run(&j, &r);
    for (size_t i = 0; i < KINDS; i++) {
        double busy = figure(&r, "matrix_busy", kinds[i]);
        double launch = figure(&r, "launch_time", kinds[i]);
        expect_ns(busy, 32958 * KB_NS);
        assert_true(figure(&r, "pipeline_efficiency", kinds[i]) > 98);
        assert_true(fabs(figure(&r, "launch_efficiency", kinds[i]) - 100 * busy / launch) < 1e-9);
        assert_true(launch > figure(&r, "composite_time", kinds[i]));
        if (i == 0)
            continue;
        assert_true(figure(&r, "composite_time", kinds[i]) <
                    figure(&r, "composite_time", kinds[i - 1]));
        assert_true(launch > figure(&r, "launch_time", kinds[i - 1]));
    }
}

/* One kind alone takes the time that it takes among all. */
static void kinds_do_not_depend_on_each_other(void **state)
{
    (void)state;
    report all, one;
    job j = {.spec = &bench_matmul_composite,
             .machine = ODD_ONES,
             .params = {"m=70", "k=33", "n=129", "dtype=bf16"}};
    run(&j, &all);
    for (size_t i = 0; i < KINDS; i++) {
        char operands[32];
        snprintf(operands, sizeof operands, "operands=%s", kinds[i]);
        j.params[4] = operands;
        run(&j, &one);
        assert_int_equal(one.count, 5);
        for (size_t k = 0; k < one.count; k++) {
            const double *value = find_metric(&all, one.metrics[k].name);
            assert_true(value && fabs(*value - one.metrics[k].value) <= 0);
        }
    }
}

/* An operand that the TCM of 12 MiB cannot hold is a fault of the kernel, not a wrong figure. */
static void operands_larger_than_the_tcm(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_matmul_composite,
             .machine = ONE_PE,
             .params = {"m=4096", "k=4096", "n=1", "operands=load_ref"}};
    kb_error *err = try_run(&j, &r);
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    assert_non_null(strstr(kb_error_message(err), "tl_load"));
    kb_error_free(err);
    j.params[3] = "operands=ref_ref";
    run(&j, &r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_element_by_hand),
        cmocka_unit_test(loads_shorten_the_pipeline_and_lengthen_the_launch),
        cmocka_unit_test(kinds_do_not_depend_on_each_other),
        cmocka_unit_test(operands_larger_than_the_tcm),
    };
    return cmocka_run_group_tests_name("matmul_composite", tests, NULL, NULL);
}
