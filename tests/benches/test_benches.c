/*
 * test_benches.c: the shipped benches, on machines of several shapes and with sizes that do not
 * divide. Their results are read from the machine and compared element by element with results
 * computed here, independent of the verification of the benches.
 */
#include "rt/tensors.h"

#include <math.h>

#include "benches/benches.h"
#include "rt/rt.h"
#include "rt/runtime.h"

/* ---- Running ----------------------------------------------------------------------------- */

/* Runs a bench with values for all of its parameters, eight at most, and keeps the context. */
static kb_context *run(const kb_bench_spec *spec, const char *yaml, const int64_t *values,
                       kb_context_options options)
{
    char texts[8][40];
    const char *settings[8];
    assert_true(spec->param_count <= 8);
    for (size_t i = 0; i < spec->param_count; i++) {
        const kb_param *param = &spec->params[i];
        if (param->names)
            snprintf(texts[i], sizeof texts[i], "%s=%s", param->name, param->names[values[i]]);
        else
            snprintf(texts[i], sizeof texts[i], "%s=%lld", param->name, (long long)values[i]);
        settings[i] = texts[i];
    }
    rt_bench_options o = {
        .settings = settings, .setting_count = spec->param_count, .verify = !options.timing_only};
    kb_context *ctx = open_context(yaml, options);
    kb_bench *bench;
    expect_ok(rt_bench_create(spec, &o, &bench));
    expect_ok(rt_bench_run(bench, ctx));
    assert_int_equal(rt_bench_verdict(bench), options.timing_only ? RT_NOT_VERIFIED : RT_VERIFIED);
    rt_bench_destroy(bench);
    return ctx;
}

/* ---- Looking ----------------------------------------------------------------------------- */

/* The numbers of a tensor, by its name and device: free() them. */
static double *numbers_of(kb_context *ctx, const char *name, uint32_t sip, uint64_t *rows,
                          uint64_t *columns)
{
    for (uint64_t id = rt_table_next(&ctx->tensors, 0); id; id = rt_table_next(&ctx->tensors, id)) {
        const rt_tensor *tensor = rt_table_get(&ctx->tensors, id);
        if (strcmp(tensor->name, name) != 0 || tensor->sip != sip)
            continue;
        *rows = tensor->placement.shape.dims[0];
        *columns = tensor->placement.shape.dims[1];
        size_t count = (size_t)(*rows * *columns);
        size_t bytes = count * kb_dtype_bytes(tensor->dtype);
        void *elements = malloc(bytes);
        float *floats = malloc(count * sizeof *floats);
        double *numbers = malloc(count * sizeof *numbers);
        assert_true(elements && floats && numbers);
        expect_ok(kb_tensor_to_host(ctx, (kb_tensor){id}, KB_UNTIMED, elements, bytes));
        kb_convert(KB_F32, floats, tensor->dtype, elements, count);
        for (size_t i = 0; i < count; i++)
            numbers[i] = (double)floats[i];
        free(elements);
        free(floats);
        return numbers;
    }
    fail_msg("there is no tensor '%s' on sip%u", name, sip);
    return NULL;
}

/* Row by row and column by column; `precision` is half a unit in the last place of the result. */
static void expect_product_within(kb_context *ctx, uint32_t sip, const char *left,
                                  const char *right, const char *out, double precision)
{
    uint64_t m, k, k2, n, m2, n2;
    double *a = numbers_of(ctx, left, sip, &m, &k);
    double *b = numbers_of(ctx, right, sip, &k2, &n);
    double *c = numbers_of(ctx, out, sip, &m2, &n2);
    assert_true(m == m2 && k == k2 && n == n2);
    bool all_zero = true;
    for (uint64_t i = 0; i < m; i++) {
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0;
            for (uint64_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * n + j];
            double got = c[i * n + j];
            if (fabs(got - sum) > fabs(sum) * precision + (precision > 0 ? 1e-4 : 0))
                fail_msg("%s[%llu, %llu] is %g, not %g", out, (unsigned long long)i,
                         (unsigned long long)j, got, sum);
            all_zero = all_zero && got == 0;
        }
    }
    assert_false(all_zero);
    free(a);
    free(b);
    free(c);
}

/* Of f16, which has 11 bits. */
static void expect_product(kb_context *ctx, uint32_t sip, const char *left, const char *right,
                           const char *out)
{
    expect_product_within(ctx, sip, left, right, out, 0x1p-11);
}

static void expect_same(kb_context *ctx, const char *from, const char *to)
{
    uint64_t rows, columns, rows2, columns2;
    double *a = numbers_of(ctx, from, 0, &rows, &columns);
    double *b = numbers_of(ctx, to, 0, &rows2, &columns2);
    assert_true(rows == rows2 && columns == columns2);
    assert_memory_equal(a, b, rows * columns * sizeof *a);
    free(a);
    free(b);
}

/* ---- The benches ------------------------------------------------------------------------- */

static void gemm_single_pe_multiplies(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {64, 64, 64}, {7, 130, 65}, {100, 3, 200}, {65, 257, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        kb_context *ctx = run(&bench_gemm_single_pe, small_machines[i % SMALL_MACHINES], sizes[i],
                              (kb_context_options){0});
        expect_product(ctx, 0, "a", "b", "c");
        kb_context_destroy(ctx);
    }
}

/* operands, m, k, n, dtype: all three kinds of operands, and every dtype that there is. */
static void matmul_composite_multiplies(void **state)
{
    (void)state;
    static const double precisions[] = {
        [KB_F16] = 0x1p-11,    [KB_BF16] = 0x1p-8,    [KB_F32] = 0x1p-20,
        [KB_F8E4M3] = 0x1p-20, [KB_F8E5M2] = 0x1p-20, [KB_I8] = 0};
    static const int64_t sizes[][3] = {{3, 5, 7}, {64, 64, 64}, {7, 130, 65}, {100, 3, 200}};
    for (int64_t dtype = KB_F16; dtype <= KB_I8; dtype++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const int64_t values[] = {3, sizes[i][0], sizes[i][1], sizes[i][2], dtype};
            kb_context *ctx = run(&bench_matmul_composite, small_machines[i % SMALL_MACHINES],
                                  values, (kb_context_options){.races = KB_RACES_FAIL});
            for (int operands = 0; operands < 3; operands++)
                expect_product_within(ctx, 0, "a", "b",
                                      bench_matmul_composite.params[0].names[operands],
                                      precisions[dtype]);
            kb_context_destroy(ctx);
        }
}

static void qkv_gemm_projects(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {5, 70}, {65, 129}, {3, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        kb_context *ctx = run(&bench_qkv_gemm, small_machines[i % SMALL_MACHINES], sizes[i],
                              (kb_context_options){0});
        expect_product(ctx, 0, "x", "wq", "q");
        expect_product(ctx, 0, "x", "wk", "k");
        expect_product(ctx, 0, "x", "wv", "v");
        kb_context_destroy(ctx);
    }
}

static void qkv_gemm_multi_pe_projects_on_every_sip(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {17, 64}, {2, 101}};
    for (size_t shape = 0; shape < SMALL_MACHINES; shape++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            kb_context *ctx = run(&bench_qkv_gemm_multi_pe, small_machines[shape], sizes[i],
                                  (kb_context_options){0});
            for (uint32_t sip = 0; sip < kb_context_machine(ctx).sips; sip++) {
                expect_product(ctx, sip, "x", "wq", "q");
                expect_product(ctx, sip, "x", "wk", "k");
                expect_product(ctx, sip, "x", "wv", "v");
            }
            assert_int_equal(rt_get_stats(ctx).launch_count, kb_context_machine(ctx).sips);
            kb_context_destroy(ctx);
        }
    }
}

static void a_bench_stays_on_its_device(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2, 10};
    kb_context *ctx =
        run(&bench_qkv_gemm_multi_pe, THREE_SIPS, sizes, (kb_context_options){.device = "sip:1"});
    rt_stats stats = rt_get_stats(ctx);
    assert_int_equal(stats.launch_count, 1);
    assert_int_equal(stats.launches[0].sip, 1);
    expect_product(ctx, 1, "x", "wv", "v");
    kb_context_destroy(ctx);
}

/* The bench compares with its own reference (run() expects that); here the sizes matter: rows on
 * some PEs only, one column, rows larger than all slots of a queue. */
static void halo_exchanges_edges(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 3}, {2, 7, 4}, {13, 1, 5}, {37, 40, 6}, {9, 5000, 2}};
    for (size_t shape = 0; shape < SMALL_MACHINES; shape++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            kb_context_destroy(
                run(&bench_halo, small_machines[shape], sizes[i], (kb_context_options){0}));
}

/* launches, order: the results are verified; a stream costs less than the host, a graph least. */
static void launch_chain_keeps_its_order(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{0, 2}, {1, 0}, {2, 1}, {7, 0}, {7, 1}, {7, 2}};
    for (size_t shape = 0; shape < SMALL_MACHINES; shape++) {
        kb_time took[3] = {0};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            kb_context *ctx = run(&bench_launch_chain, small_machines[shape], sizes[i],
                                  (kb_context_options){.races = KB_RACES_FAIL});
            took[sizes[i][1]] = kb_context_now(ctx);
            kb_context_destroy(ctx);
        }
        assert_true(took[1] < took[0]);
    }
}

/* batch, width, hidden, tp (0: all SIPs), overlap, activation, dtype. The bench compares both of
 * its results with its own reference. */
static void tp_mlp_is_verified(void **state)
{
    (void)state;
    static const int64_t sizes[][7] = {
        {1, 6, 6, 0, 1, 0, 1}, {5, 33, 60, 1, 3, 1, 1}, {70, 100, 192, 0, 2, 2, 1}};
    for (size_t shape = 0; shape < SMALL_MACHINES; shape++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            kb_context *ctx =
                run(&bench_tp_mlp, small_machines[shape], sizes[i], (kb_context_options){0});
            kb_time time = kb_context_now(ctx);
            kb_context_destroy(ctx);
            ctx = run(&bench_tp_mlp, small_machines[shape], sizes[i],
                      (kb_context_options){.timing_only = true});
            assert_int_equal(kb_context_now(ctx), time);
            kb_context_destroy(ctx);
        }
}

static void va_offset_verify_copies(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {16, 64}, {50, 401}};
    for (size_t shape = 0; shape < SMALL_MACHINES; shape++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            kb_context *ctx = run(&bench_va_offset_verify, small_machines[shape], sizes[i],
                                  (kb_context_options){0});
            expect_same(ctx, "matrix", "copy of matrix");
            expect_same(ctx, "vector", "copy of vector");
            kb_context_destroy(ctx);
        }
    }
}

/* With data, without, and with every step an event of its own. */
static void times_do_not_depend_on_data(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{33, 40, 50}, {5, 70}, {6, 100}, {20, 31}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        static const kb_context_options modes[] = {
            {0}, {.timing_only = true}, {.no_elision = true}, {.threads = 1}};
        kb_time first = 0;
        for (size_t mode = 0; mode < 4; mode++) {
            kb_context *ctx = run(benches[i], ODD_ONES, sizes[i], modes[mode]);
            assert_true(kb_context_now(ctx) > 0);
            if (mode == 0)
                first = kb_context_now(ctx);
            assert_int_equal(kb_context_now(ctx), first);
            kb_context_destroy(ctx);
        }
    }
}

/*
 * What each PE streams from its own memory is alone on its way, so it takes few events: that is
 * what makes large runs quick. As packets they would take more than one a hop.
 */
static void streams_take_few_events(void **state)
{
    (void)state;
    kb_context *ctx = run(&bench_qkv_gemm_multi_pe, NULL, (const int64_t[]){128, 12288},
                          (kb_context_options){.timing_only = true, .device = "sip:0"});
    uint64_t hops = net_get_stats(rt_get_stats(ctx).fabric).hops;
    uint64_t events = kb_sim_get_stats(kb_context_sim(ctx)).events;
    assert_true(hops > 1000000);
    assert_true(events * 8 < hops);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_single_pe_multiplies),
        cmocka_unit_test(matmul_composite_multiplies),
        cmocka_unit_test(qkv_gemm_projects),
        cmocka_unit_test(qkv_gemm_multi_pe_projects_on_every_sip),
        cmocka_unit_test(a_bench_stays_on_its_device),
        cmocka_unit_test(va_offset_verify_copies),
        cmocka_unit_test(halo_exchanges_edges),
        cmocka_unit_test(launch_chain_keeps_its_order),
        cmocka_unit_test(tp_mlp_is_verified),
        cmocka_unit_test(times_do_not_depend_on_data),
        cmocka_unit_test(streams_take_few_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
