/*
 * test_speed.c: simulated times of layers on the default machine, bf16, without data. The bounds
 * are worked out here: the HBM slice of a PE has 204.8 GB/s, the vector engine makes a pass over 64
 * elements in a cycle of 1 ns, and there are 128 PEs.
 */
#include "layouts.h"

enum { COLUMNS = 8192, PES = 128 };

static kb_context *open_default(void)
{
    kb_context *ctx;
    const kb_context_options options = {.timing_only = true, .threads = 1};
    expect_ok(kb_context_create(&options, &ctx));
    return ctx;
}

/* The time of a launch's kernels, in ns. */
static double kernel_ns(kb_context *ctx, kb_request request)
{
    kb_launch_result result;
    size_t count;
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    expect_ok(kb_request_free(ctx, request));
    return kb_to_ns(result.pe_exec);
}

/* A pass of the vector engine over the elements of (rows, 8192), in ns. */
static double pass_ns(double rows)
{
    return rows * COLUMNS / PES / 64;
}

/* Reading and writing a number of matrices of (rows, 8192), in ns. */
static double hbm_ns(double rows, double matrices)
{
    return rows * COLUMNS * 2 * matrices / PES / 204.8;
}

static double norm_ns(uint64_t rows, const kb_policy *layout, bool has_residual)
{
    kb_context *ctx = open_default();
    kb_request request;
    kb_shape shape = KB_SHAPE(rows, COLUMNS);
    kb_tensor x = make_tensor(ctx, "x", KB_BF16, shape, layout, NULL), residual = {0};
    kb_tensor gain = make_tensor(ctx, "gain", KB_BF16, KB_SHAPE(COLUMNS), &layouts[0], NULL);
    kb_norm_outputs made = {.out = make_tensor(ctx, "out", KB_BF16, shape, layout, NULL)};
    if (has_residual)
        made.sum = residual = make_tensor(ctx, "residual", KB_BF16, shape, layout, NULL);
    const kb_norm_spec spec = {.x = x, .residual = residual, .gain = gain, .request = &request};
    expect_ok(kb_rms_norm(ctx, &spec, &made));
    double time = kernel_ns(ctx, request);
    kb_context_destroy(ctx);
    return time;
}

/* One row, as in a step of decoding: 1 to 2 us at most, wherever it is. */
static void a_row_takes_a_microsecond(void **unused)
{
    (void)unused;
    for (int layout = 0; layout < 3; layout++)
        assert_true(norm_ns(1, &layouts[layout], false) < 2000);
    assert_true(norm_ns(1, &layouts[0], true) < 1000);
}

/* Squares, 1 / rms, gain, cast: four passes over 131072 elements, which take 8.2 us; reading and
 * writing takes 2.6 us. With a residual, five passes: 10.2 us. */
static void many_rows_take_the_time_of_the_vector_engine(void **unused)
{
    (void)unused;
    assert_true(pass_ns(2048) == 2048);
    assert_true(hbm_ns(2048, 2) < 4 * pass_ns(2048));
    for (int layout = 0; layout < 2; layout++) {
        assert_true(norm_ns(2048, &layouts[layout], false) < 1.3 * 4 * pass_ns(2048));
        assert_true(norm_ns(2048, &layouts[layout], true) < 1.3 * 5 * pass_ns(2048));
    }
}

/* A sum of bf16 is one pass, 2.05 us; three matrices of HBM take 3.84 us. GELU takes 9 passes. */
static void elements_take_the_time_of_their_bound(void **unused)
{
    (void)unused;
    kb_context *ctx = open_default();
    kb_request request;
    kb_shape shape = KB_SHAPE(2048, COLUMNS);
    kb_tensor a = make_tensor(ctx, "a", KB_BF16, shape, &layouts[0], NULL);
    kb_tensor b = make_tensor(ctx, "b", KB_BF16, shape, &layouts[0], NULL);
    expect_ok(kb_add(ctx, &(kb_add_spec){.a = a, .b = b, .request = &request}, &b));
    assert_true(kernel_ns(ctx, request) < 1.15 * hbm_ns(2048, 3));
    expect_ok(kb_gelu(ctx, &(kb_gelu_spec){.x = a, .request = &request}, &b));
    assert_true(kernel_ns(ctx, request) < 1.05 * 9 * pass_ns(2048));
    kb_context_destroy(ctx);
}

/* One row of a vocabulary of 128256: each PE searches 1002 elements. */
static void one_argmax_takes_a_microsecond(void **unused)
{
    (void)unused;
    kb_context *ctx = open_default();
    kb_request request;
    kb_tensor out = {0};
    kb_tensor x = make_tensor(ctx, "x", KB_BF16, KB_SHAPE(1, 128256), &layouts[0], NULL);
    expect_ok(kb_argmax(ctx, &(kb_argmax_spec){.logits = x, .request = &request}, &out));
    assert_true(kernel_ns(ctx, request) < 1200);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_takes_a_microsecond),
        cmocka_unit_test(many_rows_take_the_time_of_the_vector_engine),
        cmocka_unit_test(elements_take_the_time_of_their_bound),
        cmocka_unit_test(one_argmax_takes_a_microsecond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
