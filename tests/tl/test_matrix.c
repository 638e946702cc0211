/*
 * test_matrix.c: tl_dot and tl_composite: numbers, types, accumulating, and time. The matrix engine
 * of the default machine has 64 x 64 cells at 1 GHz: ceil(k / 64) * ceil(n / 64) * m ns, and 190
 * until the last result is there. For other figures see test_kernels.c.
 */
#include "tl_rig.h"

enum { A = 0, B = 1 << 20, C = 2 << 20, OUT = 3 << 20 };

/* All types have these numbers, f8 too. */
static double element(size_t i, size_t j, double scale)
{
    return (double)((i * 7 + j * 3) % 11) * scale - 1;
}

static void put_matrix(rig *r, uint64_t offset, kb_dtype dtype, size_t rows, size_t columns,
                       double scale)
{
    double *numbers = malloc(rows * columns * sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < rows * columns; i++)
        numbers[i] = element(i / columns, i % columns, scale);
    put(r, offset, dtype, numbers, rows * columns);
    free(numbers);
}

/* OUT has the product, of which each element may be off by `room` times itself. */
static void expect_product(rig *r, kb_dtype dtype, size_t m, size_t k, size_t n, double acc,
                           double room)
{
    double *out = malloc(m * n * sizeof *out);
    assert_non_null(out);
    get(r, OUT, dtype, out, m * n);
    for (size_t i = 0; i < m * n; i++) {
        double right = acc;
        for (size_t l = 0; l < k; l++)
            right += element(i / n, l, 0.25) * element(l, i % n, 0.5);
        if (fabs(out[i] - right) > room * fabs(right))
            fail_msg("element %zu is %g, not %g", i, out[i], right);
    }
    free(out);
}

KB_KERNEL(multiply, tl_ptr memory, int m, int k, int n, int dtype, bool out_f32)
{
    tl_tensor a = tl_load(memory + A, tl_shape(m, k), (kb_dtype)dtype);
    tl_tensor b = tl_load(memory + B, tl_shape(k, n), (kb_dtype)dtype);
    tl_store(memory + OUT, tl_dot(a, b, .out_f32 = out_f32));
}

static void products_are_rounded_once_to_their_type(void **state)
{
    (void)state;
    static const struct {
        kb_dtype in, out;
        bool out_f32;
        double room;
    } cases[] = {{KB_F32, KB_F32, false, 0x1p-22}, {KB_F16, KB_F16, false, 0x1p-11},
                 {KB_F16, KB_F32, true, 0x1p-22},  {KB_BF16, KB_BF16, false, 0x1p-8},
                 {KB_F8E5M2, KB_F32, false, 0},    {KB_F8E4M3, KB_F32, true, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r = rig_default();
        put_matrix(&r, A, cases[i].in, 13, 70, 0.25);
        put_matrix(&r, B, cases[i].in, 70, 9, 0.5);
        (void)time_of(&r, multiply, MEMORY, 13, 70, 9, cases[i].in, cases[i].out_f32);
        expect_product(&r, cases[i].out, 13, 70, 9, 0, cases[i].room);
        rig_fini(&r);
    }
}

KB_KERNEL(multiply_mixed, tl_ptr memory)
{
    tl_tensor i = tl_load(memory + A, tl_shape(2, 2), TL_I8);
    tl_tensor e = tl_load(memory + B, tl_shape(2, 2), TL_F8E5M2);
    tl_tensor f = tl_cast(e, TL_F16);
    tl_store(memory + OUT, tl_dot(i, i));
    tl_store(memory + OUT + 16, tl_dot(e, e));
    tl_store(memory + OUT + 32, tl_dot(i, f));
    tl_store(memory + OUT + 48, tl_dot(f, tl_cast(e, TL_BF16)));
    tl_store(memory + OUT + 64, tl_dot(tl_ref(memory + A, tl_shape(2, 2), TL_I8), i));
}

static void types_of_products_meet(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, A, KB_I8, (const double[]){100, 2, 3, 4}, 4);
    put(&r, B, KB_F8E5M2, (const double[]){0.5, 1, 2, 4}, 4);
    (void)time_of(&r, multiply_mixed, MEMORY);
    expect_numbers(&r, OUT, KB_I32, 10006, 208, 312, 22);
    expect_numbers(&r, OUT + 16, KB_F32, 2.25, 4.5, 9, 18);
    expect_numbers(&r, OUT + 32, KB_F16, 54, 108, 9.5, 19);
    expect_numbers(&r, OUT + 48, KB_F32, 2.25, 4.5, 9, 18);
    expect_numbers(&r, OUT + 64, KB_I32, 10006, 208, 312, 22);
    rig_fini(&r);
}

/* In steps of `step` over k; the sum lives in one place, in the scope of the kernel. */
KB_KERNEL(accumulate, tl_ptr memory, int m, int k, int n, int step, int dtype)
{
    tl_tensor acc = tl_full(tl_shape(m, n), (kb_dtype)dtype, 2);
    for (int first = 0; first < k; first += step)
        TL_SCOPE {
            int width = k - first < step ? k - first : step;
            tl_tensor a = tl_load(memory + A + first * 2, tl_shape(m, width), TL_F16,
                                  .strides = tl_strides(k, 1));
            tl_tensor b = tl_load(memory + B + first * n * 2, tl_shape(width, n), TL_F16);
            acc = tl_dot(a, b, .acc = acc);
        }
    tl_store(memory + OUT, acc);
}

static void a_product_adds_to_what_it_takes_over(void **state)
{
    (void)state;
    rig r = rig_default();
    put_matrix(&r, A, KB_F16, 13, 70, 0.25);
    put_matrix(&r, B, KB_F16, 70, 9, 0.5);
    (void)time_of(&r, accumulate, MEMORY, 13, 70, 9, 16, KB_F32);
    expect_product(&r, KB_F32, 13, 70, 9, 2, 0x1p-20);
    (void)time_of(&r, accumulate, MEMORY, 13, 70, 9, 70, KB_F16);
    expect_product(&r, KB_F16, 13, 70, 9, 2, 0x1p-11);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* In the middle the sum is stored: what was stored does not change afterwards. */
KB_KERNEL(store_and_go_on, tl_ptr memory)
{
    tl_tensor a = tl_full(tl_shape(64, 64), TL_F16, 1), b = tl_full(tl_shape(64, 64), TL_F16, 1);
    tl_tensor acc = tl_dot(a, b);
    tl_store(memory + OUT, acc);
    acc = tl_dot(a, b, .acc = acc);
    tl_store(memory + C, acc);
}

/*
 * The vector engine makes a and b in 64 + 4 each, one after the other: until 21 + 136 = 157. The
 * first product takes 64 + 190, until 411, and its store of 8192 bytes 83.04 + 40, until 534.04.
 * Before that the pe_cpu does not issue the second product, which writes over what is stored: 1 +
 * 64
 * + 190, until 789.04; and 123.04 to store it.
 */
static void what_is_read_is_not_written_over(void **state)
{
    (void)state;
    rig r = rig_default();
    assert_int_equal(time_of(&r, store_and_go_on, MEMORY), 912080000);
    expect_numbers(&r, OUT, KB_F16, 64, 64);
    expect_numbers(&r, C, KB_F16, 128, 128);
    rig_fini(&r);
}

KB_KERNEL(dots, int m, int k, int n, int times)
{
    tl_tensor a = tl_full(tl_shape(m, k), TL_F16, 1), b = tl_full(tl_shape(k, n), TL_F16, 1);
    tl_wait(a);
    tl_wait(b);
    for (int i = 0; i < times; i++)
        ignore(tl_dot(a, b));
}

/*
 * a of (100, 65) takes 102 + 4 to be made, b of (65, 129) 132 + 4: there at 21 + 242 = 263. A
 * product takes 2 * 3 * 100 and 190: 1 + 790. Three of them share the engine: 3 * 600 + 190, as the
 * array is free for the next one when the last row has gone in.
 */
static void products_take_what_the_array_takes(void **state)
{
    (void)state;
    rig r = rig_default();
    assert_int_equal(time_of(&r, dots, 100, 65, 129, 1), (264 + 790) * KB_NS);
    assert_int_equal(time_of(&r, dots, 100, 65, 129, 3), (264 + 1990) * KB_NS);
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    uint64_t flops = 0;
    for (size_t i = 0; i < count; i++)
        if (sums[i].unit == KB_UNIT_GEMM)
            flops += sums[i].flops;
    assert_int_equal(flops, 4 * 2 * 100 * 65 * 129);
    rig_fini(&r);
}

KB_KERNEL(dot_through_a_slow_tcm, bool accumulates)
{
    tl_tensor a = tl_full(tl_shape(64, 64), TL_F16, 1), b = tl_full(tl_shape(64, 64), TL_F16, 1);
    tl_tensor acc = tl_zeros(tl_shape(64, 64), TL_F32);
    tl_wait(acc);
    if (accumulates)
        ignore(tl_dot(a, b, .acc = acc));
    else
        ignore(tl_dot(a, b, .out_f32 = true));
}

/*
 * At 1 GB/s a and b are made in 8192 each, and acc in 16384: at 20 + 1 + 32768 all are there, and
 * one is issued: 1. The product reads 16384 bytes and writes as many; with acc it reads 16384 more.
 */
static void products_pass_the_tcm(void **state)
{
    (void)state;
    rig r = rig_make(one_cube("{ pe_tcm: { bw_gbs: 1 } }"), false);
    assert_int_equal(time_of(&r, dot_through_a_slow_tcm, false), (32790 + 16384) * KB_NS);
    assert_int_equal(time_of(&r, dot_through_a_slow_tcm, true), (32790 + 32768) * KB_NS);
    rig_fini(&r);
}

static void empty_products(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, OUT, KB_F16, (const double[]){5, 5, 5}, 3);
    (void)time_of(&r, multiply, MEMORY, 0, 3, 2, KB_F16, false);
    expect_numbers(&r, OUT, KB_F16, 5, 5, 5);
    (void)time_of(&r, multiply, MEMORY, 1, 0, 2, KB_F16, false);
    expect_numbers(&r, OUT, KB_F16, 0, 0, 5);
    rig_fini(&r);
}

/* ---- Composite --------------------------------------------------------------------------- */

KB_KERNEL(compose, tl_ptr memory, int m, int k, int n, int dtype, int out)
{
    tl_tensor a = tl_ref(memory + A, tl_shape(m, k), (kb_dtype)dtype);
    tl_tensor b = tl_ref(memory + B, tl_shape(k, n), (kb_dtype)dtype);
    tl_wait(tl_composite(TL_GEMM, a, b, tl_ref(memory + OUT, tl_shape(m, n), (kb_dtype)out)));
}

static void composite_products_are_rounded_once(void **state)
{
    (void)state;
    static const struct {
        kb_dtype in, out;
        double room;
    } cases[] = {{KB_F16, KB_F16, 0x1p-11}, {KB_F16, KB_F32, 0x1p-22}, {KB_F32, KB_BF16, 0x1p-8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r = rig_default();
        put_matrix(&r, A, cases[i].in, 67, 130, 0.25);
        put_matrix(&r, B, cases[i].in, 130, 33, 0.5);
        (void)time_of(&r, compose, MEMORY, 67, 130, 33, cases[i].in, cases[i].out);
        expect_product(&r, cases[i].out, 67, 130, 33, 0, cases[i].room);
        rig_fini(&r);
    }
}

/* b is a value, out is a block of a larger matrix, and what is read afterwards is the result. */
KB_KERNEL(compose_and_read, tl_ptr memory)
{
    tl_tensor b = tl_mul(tl_load(memory + B, tl_shape(4, 2), TL_F16), 2);
    tl_tensor a = tl_ref(memory + A, tl_shape(3, 4), TL_F16);
    tl_composite(TL_GEMM, a, b,
                 tl_ref(memory + C + 2, tl_shape(3, 2), TL_F16, .strides = tl_strides(4, 1)));
    tl_store(memory + OUT, tl_load(memory + C, tl_shape(3, 4), TL_F16));
    tl_store(memory + A, tl_zeros(tl_shape(3, 4), TL_F16)); /* not before it was read */
}

static void a_composite_is_in_the_order_of_the_program(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, A, KB_F16, 12);
    put_sequence(&r, B, KB_F16, 8);
    (void)time_of(&r, compose_and_read, MEMORY);
    /* (0 1 2 3; 4 5 6 7; 8 9 10 11) times twice (0 1; 2 3; 4 5; 6 7). */
    expect_numbers(&r, OUT, KB_F16, 0, 56, 68, 0, 0, 152, 196, 0, 0, 248, 324, 0);
    expect_numbers(&r, A, KB_F16, 0, 0, 0);
    rig_fini(&r);
}

static void an_empty_composite_does_nothing(void **state)
{
    (void)state;
    rig r = rig_default();
    assert_int_equal(time_of(&r, compose, MEMORY, 0, 4, 3, KB_F16, KB_F16), 20 * KB_NS);
    rig_fini(&r);
}

KB_KERNEL(compose_often, tl_ptr memory, int times)
{
    kb_time start = tl_now();
    for (int i = 0; i < times; i++)
        tl_composite(TL_GEMM, tl_ref(memory + A, tl_shape(64, 64), TL_F16),
                     tl_ref(memory + B, tl_shape(64, 64), TL_F16),
                     tl_ref(memory + OUT + i * 8192, tl_shape(64, 64), TL_F16));
    tl_store(memory + C, tl_full(tl_shape(1), TL_F32, kb_to_ns(tl_now() - start)));
}

/* The scheduler takes 16, 1 to issue each; with the next one the pe_cpu waits until the first is
 * done, which takes more than its 64 + 190. */
static void the_queue_of_the_scheduler_is_limited(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, compose_often, MEMORY, 16);
    expect_numbers(&r, C, KB_F32, 16);
    (void)time_of(&r, compose_often, MEMORY, 17);
    assert_true(get_one(&r, C, KB_F32) > 254);
    rig_fini(&r);
}

/* What the scheduler refuses is a fault of the kernel, which ends. */
static void the_scheduler_needs_tcm(void **state)
{
    (void)state;
    rig r = rig_make(one_cube("{ pe_tcm: { capacity_mib: 1, reserved_mib: 0 } }"), false);
    ending e = run(&r, compose, MEMORY, 64, 64, 64, KB_F16, KB_F16);
    assert_int_equal(kb_error_code(e.err), KB_ERR_FAULT);
    assert_non_null(strstr(kb_error_message(e.err), "tl_composite: "));
    assert_non_null(strstr(kb_error_message(e.err), "cube.pe_tcm.reserved_mib"));
    kb_error_free(e.err);
    rig_fini(&r);
}

static kb_time chains_took;

KB_KERNEL(chains, tl_ptr memory, int count, int steps)
{
    tl_tensor acc[4], a = tl_load(memory, tl_shape(64, 64), TL_F16);
    tl_tensor b = tl_load(memory, tl_shape(64, 64), TL_F16);
    tl_wait(a);
    tl_wait(b);
    kb_time start = tl_now();
    for (int chain = 0; chain < count; chain++)
        acc[chain] = tl_dot(a, b, .out_f32 = true);
    for (int step = 1; step < steps; step++)
        for (int chain = 0; chain < count; chain++)
            acc[chain] = tl_dot(a, b, .acc = acc[chain]);
    for (int chain = 0; chain < count; chain++)
        tl_wait(acc[chain]);
    chains_took = tl_now() - start;
}

/*
 * A product of 64 x 64 x 64 is in the array for 64 cycles and out of it 190 later; 1 ns to issue
 * the first. One chain of 16: 16 * (64 + 190) + 1 = 4065, of which 1024 are work: 25 %. Four chains
 * are in step, as 4 * 64 is more than 254: 16 * 4 * 64 + 190 + 1 = 4287, of which 4096 are work: 96
 * %. That is what tl.h says.
 */
static void chains_overlap_if_they_are_interleaved(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, chains, MEMORY, 1, 16);
    assert_int_equal(chains_took, 4065 * KB_NS);
    (void)time_of(&r, chains, MEMORY, 4, 16);
    assert_int_equal(chains_took, 4287 * KB_NS);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_rounded_once_to_their_type),
        cmocka_unit_test(types_of_products_meet),
        cmocka_unit_test(a_product_adds_to_what_it_takes_over),
        cmocka_unit_test(what_is_read_is_not_written_over),
        cmocka_unit_test(products_take_what_the_array_takes),
        cmocka_unit_test(products_pass_the_tcm),
        cmocka_unit_test(empty_products),
        cmocka_unit_test(composite_products_are_rounded_once),
        cmocka_unit_test(a_composite_is_in_the_order_of_the_program),
        cmocka_unit_test(an_empty_composite_does_nothing),
        cmocka_unit_test(the_queue_of_the_scheduler_is_limited),
        cmocka_unit_test(the_scheduler_needs_tcm),
        cmocka_unit_test(chains_overlap_if_they_are_interleaved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
