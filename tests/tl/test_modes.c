/*
 * test_modes.c: with data and without, kernels take the same time to the femtosecond; and what is
 * made of numbers alone is known in both.
 *
 * Checks K5.
 */
#include "tl_rig.h"

enum { X = 0, Y = 1 << 20, OUT = 2 << 20 };

KB_KERNEL(attention, tl_ptr memory, int rows, int width)
{
    tl_tensor q = tl_load(memory + X, tl_shape(rows, width), TL_F16);
    tl_tensor row = tl_reshape(tl_arange(0, rows), tl_shape(rows, 1));
    tl_tensor sum = tl_zeros(tl_shape(rows, width), TL_F32);
    for (int first = 0; first < rows; first += 16)
        TL_SCOPE {
            tl_tensor column = tl_add(tl_arange(0, 16), first);
            tl_tensor within = tl_reshape(tl_lt(column, rows), tl_shape(16, 1));
            tl_tensor k = tl_load(memory + Y + first * width * 2, tl_shape(16, width), TL_F16,
                                  .mask = within);
            tl_tensor scores = tl_dot(q, tl_transpose(k), .out_f32 = true);
            tl_tensor causal = tl_where(tl_le(column, row), scores, -INFINITY);
            tl_tensor weights = tl_cast(tl_softmax(causal, -1), TL_F16);
            sum = tl_dot(weights, k, .acc = sum);
        }
    tl_store(memory + OUT, tl_cast(sum, TL_F16), .mask = tl_lt(row, rows - 1));
}

KB_KERNEL(by_data, tl_ptr memory, int n)
{
    tl_tensor x = tl_load(memory + X, tl_shape(n), TL_F32);
    tl_tensor y =
        tl_load(memory + Y, tl_shape(n), TL_F32, .mask = tl_gt(x, 1), .strides = tl_strides(3));
    tl_store(memory + OUT, tl_fma(x, y, 0.5), .mask = tl_lt(y, x));
    tl_store(memory + OUT + 4 * n, tl_ref(memory + OUT, tl_shape(n), TL_F32));
}

KB_KERNEL(composite, tl_ptr memory, int m, int k, int n)
{
    tl_tensor a = tl_ref(memory + X, tl_shape(m, k), TL_F16);
    tl_tensor b = tl_load(memory + Y, tl_shape(k, n), TL_F16);
    tl_composite(TL_GEMM, a, b, tl_ref(memory + OUT, tl_shape(m, n), TL_F16));
    tl_wait(tl_load(memory + OUT, tl_shape(m, n), TL_F16));
}

KB_KERNEL(branch_on_numbers, tl_ptr memory)
{
    tl_tensor most = tl_max(tl_mul(tl_arange(0, 10), 3), 0);
    if (tl_item(most) == 27)
        tl_store(memory + OUT, most);
    tl_tensor one = tl_full(tl_shape(2, 2), TL_F32, 1);
    if (tl_item(tl_sum(tl_reshape(tl_dot(one, one), tl_shape(4)), 0)) == 8)
        tl_store(memory + OUT, tl_cast(tl_zeros(tl_shape(2), TL_I8), TL_F16));
}

static const struct {
    const kb_kernel *kernel;
    tl_arg args[4];
} cases[] = {
    {&attention, {MEMORY, 40, 64}},
    {&by_data, {MEMORY, 100}},
    {&composite, {MEMORY, 100, 70, 130}},
    {&branch_on_numbers, {MEMORY}},
};

static void time_does_not_depend_on_data(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ending ends[2];
        uint64_t events[2];
        for (int timing_only = 0; timing_only < 2; timing_only++) {
            rig r = rig_make(one_cube(NULL), timing_only);
            if (!timing_only)
                put_sequence(&r, Y, KB_F32, 100);
            ends[timing_only] = run_args(&r, cases[i].kernel, cases[i].args);
            expect_ok(ends[timing_only].err);
            events[timing_only] = kb_sim_get_stats(r.sim).events;
            if (timing_only)
                assert_int_equal(mem_memories_content_bytes(r.memories), 0);
            expect_tcm_free(&r);
            rig_fini(&r);
        }
        assert_memory_equal(&ends[0].outcome, &ends[1].outcome, sizeof ends[0].outcome);
        assert_int_equal(events[0], events[1]);
    }
}

/* All zeros: each row is the average of what it may see. */
static void a_kernel_of_everything_gives_the_right_numbers(void **state)
{
    (void)state;
    rig r = rig_default();
    double ones[16 * 8], out[16 * 8];
    for (int i = 0; i < 128; i++)
        ones[i] = i / 8;
    put(&r, Y, KB_F16, ones, 128);
    (void)time_of(&r, attention, MEMORY, 16, 8);
    get(&r, OUT, KB_F16, out, 128);
    for (int i = 0; i < 128; i++)
        assert_true(fabs(out[i] - (i / 8 < 15 ? i / 8 / 2.0 : 0)) < 0.01);
    rig_fini(&r);
}

KB_KERNEL(branch_on_data, tl_ptr memory)
{
    (void)tl_item(tl_load(memory, tl_shape(1), TL_F32));
}

static void a_kernel_that_branches_on_data_needs_it(void **state)
{
    (void)state;
    rig r = rig_make(one_cube(NULL), true);
    expect_fault(&r, branch_on_data,
                 "tl_item: the kernel reads data, but the run is timing-only; tl_item_or(x, "
                 "stand_in) gives such a run a number to go on with, and an index tensor "
                 "(kb_tensor_spec.is_index) has contents in every run",
                 MEMORY);
    rig_fini(&r);
}

static int asked_at; /* line */

KB_KERNEL(go_on_without_data, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(3), TL_F32);
    asked_at = __LINE__ + 1;
    double first = tl_item_or(tl_slice(x, 0, 1, 2), 5);
    double second = tl_item_or(tl_max(x, 0), 6);
    double known = tl_item_or(tl_max(tl_arange(0, 9), 0), -1) + tl_item_or(tl_scalar(2), -1);
    tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, first + 10 * second + 100 * known));
}

/* With data they are the numbers; without, the stand-ins, which are counted; the time is the same.
 */
static void stand_ins_take_the_place_of_data(void **state)
{
    (void)state;
    kb_time times[2];
    for (int timing_only = 0; timing_only < 2; timing_only++) {
        rig r = rig_make(one_cube(NULL), timing_only);
        if (!timing_only)
            put(&r, X, KB_F32, (const double[]){1, 3, 4}, 3);
        times[timing_only] = time_of(&r, go_on_without_data, MEMORY);
        tl_stand_ins used = tl_runner_stand_ins(r.runner);
        if (timing_only) {
            assert_int_equal(used.count, 2); /* numbers alone are known */
            assert_string_equal(used.first.file, __FILE__);
            assert_int_equal(used.first.line, asked_at);
        } else {
            assert_int_equal(used.count, 0);
            expect_numbers(&r, OUT, KB_F32, 3 + 10 * 4 + 100 * (8 + 2));
        }
        rig_fini(&r);
    }
    assert_int_equal(times[0], times[1]);
}

KB_KERNEL(huge, tl_ptr memory, int64_t times)
{
    tl_tensor x = tl_load(memory, tl_shape(1 << 20), TL_F32);
    for (int64_t i = 0; i < times; i++)
        tl_assign(&x, tl_add(x, 1));
    tl_store(memory, x);
}

/* Without data, no numbers are kept or described. */
static void without_data_nothing_is_kept(void **state)
{
    (void)state;
    rig r = rig_make(one_cube(NULL), true);
    (void)time_of(&r, huge, MEMORY, 1000);
    data_stats stats = data_get_stats(r.store);
    assert_int_equal(stats.computed + stats.dropped, 0);
    assert_int_equal(stats.max_live_bytes, 0);
    rig_fini(&r);
}

/* Wherever they are, kernels and what they issued can be given up. */
static void runs_can_be_abandoned_at_any_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (kb_time until = 5 * KB_NS; until < 1500 * KB_NS; until += 97 * KB_NS) {
            rig r = rig_default();
            ending e = {0};
            expect_ok(start_on(&r, pe0, cases[i].kernel, cases[i].args, &e));
            expect_ok(kb_sim_run(r.sim, until));
            kb_error_free(e.err);
            rig_fini(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_depend_on_data),
        cmocka_unit_test(a_kernel_of_everything_gives_the_right_numbers),
        cmocka_unit_test(a_kernel_that_branches_on_data_needs_it),
        cmocka_unit_test(stand_ins_take_the_place_of_data),
        cmocka_unit_test(without_data_nothing_is_kept),
        cmocka_unit_test(runs_can_be_abandoned_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
