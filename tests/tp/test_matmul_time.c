/*
 * test_matmul_time.c: a pair of layers as wide as those of a 70B model, on the default machine.
 *
 * x (64, 8192) * (8192, 14336) and back. The array of a PE does 64 x 64 products a cycle; of the
 * 128 PEs each has 8192 * 14336 / 4096 / 128 = 224 folds of 64 cycles: 14336 ns for each product,
 * 28672 ns for both. The rest is the fill, the first loads, and the exchange.
 */
#include "tp_ranks.h"

#include "tp/matmul.h"

static kb_time time_product(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_tensor x,
                            kb_tensor *out)
{
    kb_policy pw, px, po;
    kb_request request;
    kb_launch_result result;
    size_t count;
    tp_best_layout(ctx, m, k, n, KB_BF16, false, &pw, &px, &po);
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

/* The same pair as layers on both SIPs, in one graph: the products are all of its launches. */
static kb_error *time_recorded_pair(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_time *sums = arg;
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_tp_linear_spec
        first = {.name = "up", .in_features = 8192, .out_features = 28672, .dtype = KB_BF16},
        second = {.name = "down", .in_features = 28672, .out_features = 8192, .dtype = KB_BF16};
    kb_tp_layer up, down;
    kb_tensor hidden = {0}, out = {0};
    kb_graph graph;
    kb_request request;
    KB_TRY(join_ranks(ctx, rank, 2));
    kb_tensor x = make_tensor(ctx, "x", KB_BF16, KB_SHAPE(64, 8192), &columns, NULL);
    KB_TRY(kb_column_parallel_linear_create(ctx, &first, &up));
    KB_TRY(kb_row_parallel_linear_create(ctx, &second, &down));
    KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &hidden));
    KB_TRY(kb_row_parallel_linear_forward(ctx, down, hidden, &out));
    KB_TRY(kb_graph_begin(ctx, "pair", &graph));
    KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &hidden));
    KB_TRY(kb_row_parallel_linear_forward(ctx, down, hidden, &out));
    KB_TRY(kb_graph_end(ctx, graph));
    KB_TRY(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
    KB_TRY(kb_request_wait(ctx, request, NULL));
    kb_launch_result results[4];
    size_t count;
    KB_TRY(kb_launch_results(ctx, request, results, 4, &count));
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(results[i].sip, rank);
        assert_int_equal(results[i].pes, 128);
        sums[rank] += results[i].pe_exec;
    }
    KB_TRY(kb_request_free(ctx, request));
    return kb_graph_free(ctx, graph);
}

static void a_recorded_pair_comes_near_the_bound(void **unused)
{
    (void)unused;
    kb_context *ctx;
    const kb_context_options options = {.timing_only = true};
    kb_time sums[2] = {0};
    expect_ok(kb_context_create(&options, &ctx));
    expect_ok(kb_spawn(ctx, time_recorded_pair, sums, 2));
    for (int sip = 0; sip < 2; sip++) {
        if (getenv("KB_TP_PRINT"))
            printf("graph on sip%d: %.1f ns\n", sip, kb_to_ns(sums[sip]));
        assert_true(sums[sip] > 28672 * KB_NS);
        assert_true(sums[sip] <= 33800 * KB_NS);
    }
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
        cmocka_unit_test(a_recorded_pair_comes_near_the_bound),
        cmocka_unit_test(a_single_row_is_bound_by_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
