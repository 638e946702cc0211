/*
 * test_run_figures.c: how the time of a run is divided, and what is said of it: with numbers that
 * are made up here.
 */
#include "support/expect.h"

#include "base/base.h"
#include "cli/run.h"

static void expect_split(kb_split_time split, kb_time compute, kb_time memory,
                         kb_time communication, kb_time idle)
{
    assert_int_equal(split.compute, compute);
    assert_int_equal(split.memory, memory);
    assert_int_equal(split.communication, communication);
    assert_int_equal(split.idle, idle);
}

/* 10 in three equal parts is 3 1/3 each: the one that is left goes to the first. 7 by 5 : 5 : 4 is
 * 2.5, 2.5 and 2: the same. 7 by 1 : 5 : 8 is 0.5, 2.5 and 4: again. 8 by 1 : 2 : 3 is 1 1/3, 2 2/3
 * and 4: the second lost most. */
static void time_is_divided_without_loss(void **state)
{
    (void)state;
    expect_split(run_divide(10, &(kb_split_time){1, 1, 1, 0}), 4, 3, 3, 0);
    expect_split(run_divide(7, &(kb_split_time){5, 5, 4, 0}), 3, 2, 2, 0);
    expect_split(run_divide(7, &(kb_split_time){1, 5, 8, 0}), 1, 2, 4, 0);
    expect_split(run_divide(8, &(kb_split_time){1, 2, 3, 0}), 1, 3, 4, 0);
    expect_split(run_divide(100, &(kb_split_time){0, 0, 0, 9}), 0, 0, 0, 100);
    expect_split(run_divide(0, &(kb_split_time){1, 2, 3, 4}), 0, 0, 0, 0);
    expect_split(run_divide(5, &(kb_split_time){0}), 0, 0, 0, 5); /* nobody ran anything */
}

static void parts_add_up_whatever_they_are(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, 3);
    for (int i = 0; i < 10000; i++) {
        kb_time whole = (kb_time)(kb_rng_u64(&rng) >> (1 + kb_rng_below(&rng, 63)));
        kb_split_time by = {(kb_time)(kb_rng_u64(&rng) >> (3 + kb_rng_below(&rng, 61))),
                            (kb_time)(kb_rng_u64(&rng) >> (3 + kb_rng_below(&rng, 61))),
                            (kb_time)(kb_rng_u64(&rng) >> (3 + kb_rng_below(&rng, 61))),
                            (kb_time)(kb_rng_u64(&rng) >> (3 + kb_rng_below(&rng, 61)))};
        kb_split_time parts = run_divide(whole, &by);
        assert_true(parts.compute >= 0 && parts.memory >= 0 && parts.communication >= 0 &&
                    parts.idle >= 0);
        assert_int_equal(parts.compute + parts.memory + parts.communication + parts.idle, whole);
    }
}

static void expect_verdict(const run_figures *f, const char *beginning)
{
    kb_text text = KB_TEXT_INIT;
    run_verdict(f, &text);
    if (strncmp(kb_text_peek(&text), beginning, strlen(beginning)) != 0)
        fail_msg("'%s' does not begin with '%s'", kb_text_peek(&text), beginning);
    assert_null(strchr(kb_text_peek(&text), '\n'));
    assert_int_equal(kb_text_peek(&text)[text.length - 1], '.');
    kb_text_fini(&text);
}

static void the_largest_part_is_what_bound_the_run(void **state)
{
    (void)state;
    run_figures f = {.roofline = {.peak_tflops = 8, .tflops = 6, .gbs = 10, .peak_gbs = 20}};
    expect_verdict(&f, "Nothing took any time");
    f.sim = 100;
    f.pe_time = 100;
    f.split = (kb_split_time){60, 20, 10, 10};
    f.units[KB_UNIT_GEMM].at_work = 75;
    expect_verdict(&f, "Bound by computing, 60.0 % of the time: the matrix engines of the PEs, "
                       "which reach 75.0 % of their peak while kernels run.");
    f.units[KB_UNIT_GEMM].at_work = 99;
    f.roofline.slots = 0.75;
    expect_verdict(&f, "Bound by computing, 60.0 % of the time: the matrix engines of the PEs, "
                       "which reach 75.0 % of their peak while kernels run though at work for "
                       "99.0 %: 25.0 % of the arrays' slots have no work, as they fill");
    f.units[KB_UNIT_MATH].at_work = 100;
    expect_verdict(&f, "Bound by computing, 60.0 % of the time: the vector engines of the PEs.");
    f.roofline.gbs = 19;
    f.units[KB_UNIT_MATH].at_work = 80;
    f.units[KB_UNIT_GEMM].at_work = 10;
    expect_verdict(&f, "Bound by computing, 60.0 % of the time: the vector engines of the PEs; "
                       "but HBM gives 95.0 % of what it can, so that faster engines would not "
                       "help.");
    f.roofline.gbs = 10;
    f.split = (kb_split_time){20, 60, 10, 10};
    expect_verdict(&f, "Bound by memory, 60.0 % of the time: PEs wait for memory of their cube, "
                       "which gives 10.00 GB/s of 20.00.");
    f.split = (kb_split_time){5, 10, 75, 10};
    expect_verdict(&f, "Bound by communication, 75.0 % of the time: PEs wait for other cubes and "
                       "devices, and do not compute.");
    f.outside = 40;
    expect_verdict(&f, "Bound by launches and copies, 75.0 % of the time: they are on their way "
                       "between the host and PEs, and no kernel runs.");
    f.split = (kb_split_time){9, 10, 20, 61};
    expect_verdict(&f, "Bound by nothing in particular: for 61.0 % of the time");
}

/* Compute and memory together would be the largest part; alone neither is. */
static void kernels_that_matter_are_told_of_too(void **state)
{
    (void)state;
    run_figures f = {.sim = 100, .pe_time = 60, .outside = 40, .split = {30, 29, 41, 0}};
    expect_verdict(&f, "Bound by launches and copies, 41.0 % of the time: they are on their way "
                       "between the host and PEs, and no kernel runs; while kernels run they are "
                       "bound by computing.");
    f.split = (kb_split_time){9, 11, 30, 50};
    expect_verdict(&f, "Bound by nothing in particular: for 50.0 % of the time PEs that run a "
                       "kernel have no unit at work, or nothing is under way; while kernels run "
                       "they are bound by memory.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_divided_without_loss),
        cmocka_unit_test(parts_add_up_whatever_they_are),
        cmocka_unit_test(the_largest_part_is_what_bound_the_run),
        cmocka_unit_test(kernels_that_matter_are_told_of_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
