/*
 * test_matmul_time.c: a pair of layers as wide as those of a 70B model, on the default machine.
 *
 * x (64, 8192) * (8192, 14336) and back. The array of a PE does 64 x 64 products a cycle; of the
 * 128 PEs each has 8192 * 14336 / 4096 / 128 = 224 folds of 64 cycles: 14336 ns for each product,
 * 28672 ns for both. What comes on top is filling, loading the first pieces, and the exchange.
 */
#include "machines.h"

#include "tp/matmul.h"

static kb_time time_product(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_tensor x,
                            kb_tensor *out)
{
    kb_policy pw, px, po;
    kb_request request;
    kb_launch_result result;
    size_t count;
    tp_best_layout(ctx, m, k, n, KB_BF16, &pw, &px, &po);
    if (x.id == 0)
        x = make_tensor(ctx, "x", KB_BF16, KB_SHAPE(m, k), &px, NULL);
    *out = make_tensor(ctx, "out", KB_BF16, KB_SHAPE(m, n), &po, NULL);
    const tp_matmul_spec spec = {
        .x = x,
        .w = make_tensor(ctx, "w", KB_BF16, KB_SHAPE(k, n), &pw, NULL),
        .out = *out,
        .request = &request,
    };
    expect_ok(tp_matmul(ctx, &spec));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    assert_int_equal(count, 1);
    if (getenv("KB_TP_PRINT"))
        printf("%llu x %llu x %llu: %.1f ns, %u PEs\n", (unsigned long long)m,
               (unsigned long long)k, (unsigned long long)n, kb_to_ns(result.pe_exec), result.pes);
    expect_ok(kb_request_free(ctx, request));
    return result.pe_exec;
}

static void a_wide_pair_comes_near_the_bound(void **unused)
{
    (void)unused;
    kb_context *ctx;
    const kb_context_options options = {.timing_only = true};
    expect_ok(kb_context_create(&options, &ctx));
    kb_tensor hidden, out;
    kb_time column = time_product(ctx, 64, 8192, 14336, (kb_tensor){0}, &hidden);
    kb_time row = time_product(ctx, 64, 14336, 8192, hidden, &out);
    assert_true(column > 14336 * KB_NS && row > 14336 * KB_NS);
    assert_true(column + row <= 33800 * KB_NS);
    kb_context_destroy(ctx);
}

/* One row needs all weights once: 8192 * 14336 * 2 bytes at 204.8 GB/s for each of 128 PEs. */
static void a_single_row_is_bound_by_memory(void **unused)
{
    (void)unused;
    kb_context *ctx;
    const kb_context_options options = {.timing_only = true};
    expect_ok(kb_context_create(&options, &ctx));
    kb_tensor out;
    const kb_time bound = 8960 * KB_NS;
    kb_time time = time_product(ctx, 1, 8192, 14336, (kb_tensor){0}, &out);
    assert_true(time > bound && time < bound + bound / 4);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_pair_comes_near_the_bound),
        cmocka_unit_test(a_single_row_is_bound_by_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
