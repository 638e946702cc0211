/*
 * gemm_single_pe.c: C = A * B on one PE. All three matrices are in its HBM: the kernel issues one
 * composite operation, and the scheduler streams the matrices through the TCM tile by tile. A large
 * product reaches the roofline of the PE.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "benches.h"
#include "common.h"

KB_KERNEL(gemm, tl_ptr a, tl_ptr b, tl_ptr c, int64_t m, int64_t k, int64_t n)
{
    tl_tensor left = tl_ref(a, tl_shape(m, k), TL_F16);
    tl_tensor right = tl_ref(b, tl_shape(k, n), TL_F16);
    tl_tensor out = tl_ref(c, tl_shape(m, n), TL_F16);
    tl_wait(tl_composite(TL_GEMM, left, right, out));
}

static kb_error *multiply(kb_bench *bench, matrix *a, matrix *b, matrix *c)
{
    kb_context *ctx = kb_bench_context(bench);
    int64_t m = kb_bench_param(bench, "m"), k = kb_bench_param(bench, "k"),
            n = kb_bench_param(bench, "n");
    KB_TRY(matrix_random(bench, &(matrix_spec){"a", (uint64_t)m, (uint64_t)k, KB_F16, NULL}, 1, a));
    KB_TRY(matrix_random(bench, &(matrix_spec){"b", (uint64_t)k, (uint64_t)n, KB_F16, NULL}, 2, b));
    KB_TRY(matrix_empty(bench, &(matrix_spec){"c", (uint64_t)m, (uint64_t)n, KB_F16, NULL}, c));
    kb_bench_print(bench,
                   "C (%lld, %lld) = A (%lld, %lld) * B (%lld, %lld), f16, on "
                   "one PE; A and B are in its HBM from the start",
                   (long long)m, (long long)n, (long long)m, (long long)k, (long long)k,
                   (long long)n);

    kb_request launch;
    launch_time time;
    kb_time before = kb_context_kernel_time(ctx);
    KB_TRY(kb_launch_async(ctx, &launch, "gemm", &gemm, a->tensor, b->tensor, c->tensor, m, k, n));
    KB_TRY(wait_for_launch(bench, launch, before, &time));
    double flops = 2.0 * (double)m * (double)k * (double)n;
    report_tflops(bench, flops, &time);
    return matrix_verify_product(bench, c, a, b);
}

static kb_error *run(kb_bench *bench)
{
    matrix a = {0}, b = {0}, c = {0};
    kb_error *err = multiply(bench, &a, &b, &c);
    matrix_fini(&a);
    matrix_fini(&b);
    matrix_fini(&c);
    return err;
}

static const kb_param params[] = {
    {.name = "m", .value = 512, .min = 1, .max = 1 << 15, .help = "rows of A and C"},
    {.name = "k", .value = 512, .min = 1, .max = 1 << 15, .help = "columns of A, rows of B"},
    {.name = "n", .value = 512, .min = 1, .max = 1 << 15, .help = "columns of B and C"},
};

const kb_bench_spec bench_gemm_single_pe = {
    .name = "gemm_single_pe",
    .summary = "C = A * B on one PE, streamed from its HBM by the scheduler",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
