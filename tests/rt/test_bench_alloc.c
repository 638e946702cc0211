/*
 * test_bench_alloc.c: whichever allocation fails, a bench runs or says that there is no memory;
 * nothing is lost, and a comparison is never taken for one that was made.
 */
#include "tensors.h"

#include "rt/rt.h"
#include "support/failing_alloc.h"

static kb_context *ctx;
static kb_tensor tensor;

static kb_error *run(kb_bench *bench)
{
    static const double expected[6] = {1, 1, 1, 1, 1, 1};
    kb_bench_print(bench, "a line of %d", (int)kb_bench_param(bench, "n"));
    kb_bench_metric(bench, "figure", 1.5, "GB/s");
    return kb_bench_verify(bench, tensor, expected, 0, 0);
}

static const kb_param params[] = {{.name = "n", .value = 1, .min = 1, .max = 9, .help = ""}};
static const kb_bench_spec spec = {
    .name = "b", .summary = "", .params = params, .param_count = 1, .run = run};

static size_t lines;

static void count_line(void *self, const char *line)
{
    (void)self;
    lines += strcmp(line, "a line of 4") == 0;
}

static void body(void)
{
    const char *setting = "n=4";
    rt_bench_options options = {
        .settings = &setting, .setting_count = 1, .verify = true, .print = count_line};
    kb_bench *bench;
    size_t count;
    lines = 0;
    kb_error *err = rt_bench_create(&spec, &options, &bench);
    if (!err) {
        err = rt_bench_run(bench, ctx);
        (void)rt_bench_metrics(bench, &count);
        if (!err) {
            assert_int_equal(rt_bench_verdict(bench), RT_VERIFIED);
            assert_int_equal(lines, 1);
            assert_int_equal(count, 1);
        }
    }
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    rt_bench_destroy(bench);
}

static void whichever_allocation_fails(void **state)
{
    (void)state;
    ctx = open_machine(ONE_PE);
    kb_tensor_spec of = {
        .name = "x", .dtype = KB_F16, .shape = KB_SHAPE(2, 3), .access = KB_UNTIMED};
    expect_ok(kb_full(ctx, &of, 1, &tensor));
    failing_alloc_try_all(body);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
