/* test_engine_times.c: how long the engines take, and what they read. */
#include "support/expect.h"

#include "pe/units.h"

static const topo_pe_params params = {
    .gemm_rows = 64,
    .gemm_columns = 64,
    .gemm_cycle_fs = KB_NS,
    .math_lanes = 64,
    .math_cycle_fs = 2 * KB_NS,
    .math_cycles = {1, 4, 8},
    .math_latency_cycles = 4,
};

static kb_time math_ns(uint64_t elements, uint32_t moves, uint32_t divisions, uint32_t exps)
{
    uint32_t counts[PE_MATH_CLASSES] = {moves, divisions, exps};
    return pe_math_time(&params, pe_math_cycles(&params, elements, counts)) / KB_NS;
}

/* ceil(elements / 64) * class + 4 cycles of 2 ns. */
static void vector_operations_pass_the_lanes(void **state)
{
    (void)state;
    assert_int_equal(math_ns(4096, 1, 0, 0), 2 * (64 + 4));
    assert_int_equal(math_ns(4097, 1, 0, 0), 2 * (65 + 4));
    assert_int_equal(math_ns(1, 0, 1, 0), 2 * (4 + 4));
    assert_int_equal(math_ns(128, 0, 0, 1), 2 * (16 + 4));
    assert_int_equal(math_ns(128, 3, 1, 1), 2 * (2 * (3 + 4 + 8) + 4)); /* a softmax */
    assert_int_equal(math_ns(0, 1, 0, 0), 2 * 4);
}

static kb_time cycles(const topo_pe_params *f, uint64_t m, uint64_t k, uint64_t n)
{
    pe_gemm_time time = pe_gemm_time_of(f, m, k, n);
    return (time.occupied + time.fill) / f->gemm_cycle_fs;
}

/* ceil(k / R) * ceil(n / C) * m, and 2R + C - 2 once; what is ragged pays for its padding. */
static void matrices_are_folded(void **state)
{
    (void)state;
    pe_gemm_time time = pe_gemm_time_of(&params, 512, 512, 512);
    assert_int_equal(time.occupied, 8 * 8 * 512 * KB_NS);
    assert_int_equal(time.fill, 190 * KB_NS);
    assert_int_equal(cycles(&params, 1, 1, 1), 1 + 190);
    assert_int_equal(cycles(&params, 3, 65, 1), 2 * 3 + 190);
    assert_int_equal(cycles(&params, 3, 64, 129), 3 * 3 + 190);
}

/* Figures of SCALE-Sim, an array of 32 x 32. */
static void fills_are_counted_as_scale_sim_does(void **state)
{
    (void)state;
    topo_pe_params f = params;
    f.gemm_rows = f.gemm_columns = 32;
    f.gemm_fill_per_fold = true;
    assert_int_equal(cycles(&f, 512, 512, 512), 155135);
    assert_int_equal(cycles(&f, 1024, 1024, 1024), 1144831);
    assert_int_equal(pe_gemm_time_of(&f, 512, 512, 512).fill, 0);
    f.gemm_rows = 16; /* 2 * 3 folds of 7 + 32 + 32 - 2 */
    assert_int_equal(cycles(&f, 7, 17, 65), 6 * 69 - 1);
}

/* a of 3 x 100 passes for each of two folds of columns, b of 100 x 65 once. */
static void operands_are_read_from_the_tcm(void **state)
{
    (void)state;
    assert_int_equal(pe_gemm_reads(&params, 3, 100, 65, 2, 4), 2 * 600 + 26000);
    assert_int_equal(pe_gemm_reads(&params, 3, 100, 64, 1, 2), 300 + 12800);
}

/* Times, cycles and flops that do not fit stay at the largest number, for the engine to refuse. */
static void what_takes_too_long_takes_for_ever(void **state)
{
    (void)state;
    pe_gemm_time time = pe_gemm_time_of(&params, UINT64_MAX / 2, 1000, 1000);
    assert_true(time.occupied == KB_FOREVER);
    assert_true(time.fill < KB_NS * 1000);
    assert_true(pe_math_time(&params, UINT64_MAX) == KB_FOREVER);
    assert_true(pe_math_cycles(&params, UINT64_MAX, (const uint32_t[PE_MATH_CLASSES]){1000}) ==
                UINT64_MAX);
    assert_true(pe_gemm_flops(3, 4, 5) == 120);
    /* 2 * 2^21 * 2^21 * 2^21 is 2^64. */
    assert_true(pe_gemm_flops(1 << 21, 1 << 21, 1 << 21) == UINT64_MAX);
    assert_true(pe_gemm_flops(1 << 21, 1 << 21, 1 << 20) == (uint64_t)1 << 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_operations_pass_the_lanes),
        cmocka_unit_test(matrices_are_folded),
        cmocka_unit_test(fills_are_counted_as_scale_sim_does),
        cmocka_unit_test(operands_are_read_from_the_tcm),
        cmocka_unit_test(what_takes_too_long_takes_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
