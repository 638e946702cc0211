/*
 * matmul_composite.c: C = A * B on one PE as a composite operation, with the operands in HBM
 * (`ref`: the scheduler streams them) or in the TCM (`load`: the kernel loads them first).
 *
 * It reports two efficiencies of the matrix engine. That of the pipeline is the busy time of the
 * engine divided by the time of the composite operation, from its first load to its last store.
 * That of the launch divides by the time that the host sees: it includes the launch command, the
 * loads before the composite operation, and the completion.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include <stdio.h>

#include "benches.h"
#include "common.h"

enum { REF_REF, LOAD_REF, LOAD_LOAD, ALL };

static const char *const operand_names[] = {"ref_ref", "load_ref", "load_load", "all", NULL};

/* The index is the kb_dtype of A and B. */
static const char *const dtype_names[] = {"f16", "bf16", "f32", "f8e4m3", "f8e5m2", "i8", NULL};

KB_KERNEL(matmul, tl_ptr a, tl_ptr b, tl_ptr c, int64_t m, int64_t k, int64_t n, int dtype,
          int out_dtype, int operands)
{
    tl_dims left_shape = tl_shape(m, k), right_shape = tl_shape(k, n);
    kb_dtype type = (kb_dtype)dtype;
    tl_tensor left =
        operands == REF_REF ? tl_ref(a, left_shape, type) : tl_load(a, left_shape, type);
    tl_tensor right =
        operands == LOAD_LOAD ? tl_load(b, right_shape, type) : tl_ref(b, right_shape, type);
    /* The composite operation begins when its operands have arrived: its time excludes loads of
     * whole operands. */
    if (operands != REF_REF)
        tl_wait(left);
    if (operands == LOAD_LOAD)
        tl_wait(right);
    tl_wait(tl_composite(TL_GEMM, left, right, tl_ref(c, tl_shape(m, n), (kb_dtype)out_dtype)));
}

typedef struct product {
    int64_t m, k, n;
    kb_dtype dtype, out_dtype;
    matrix a, b, c;
} product;

/* The dtype of results: i32 for integers; f32 for f8, which is for storage only. */
static kb_dtype result_of(kb_dtype dtype)
{
    switch (dtype) {
    case KB_I8:
        return KB_I32;
    case KB_F8E4M3:
    case KB_F8E5M2:
        return KB_F32;
    default:
        return dtype;
    }
}

static double percent(kb_time_sum part, kb_time_sum whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* A metric for one kind of operands: "pipeline_efficiency_load_ref". */
static void report(kb_bench *bench, const char *name, const char *operands, double value,
                   const char *unit)
{
    char full[64];
    snprintf(full, sizeof full, "%s_%s", name, operands);
    kb_bench_detail(bench, full, value, unit);
}

static void print_head(kb_bench *bench, const product *p)
{
    kb_bench_print(bench,
                   "C (%lld, %lld) %s = A (%lld, %lld) * B (%lld, %lld) %s on one PE, by a "
                   "composite operation",
                   (long long)p->m, (long long)p->n, kb_dtype_name(p->out_dtype), (long long)p->m,
                   (long long)p->k, (long long)p->k, (long long)p->n, kb_dtype_name(p->dtype));
    kb_bench_print(bench, "ref: streamed from HBM; load: loaded into the TCM before it begins. "
                          "Efficiency: matrix engine");
    kb_bench_print(bench, "busy / time of the composite operation (pipeline), and / time of the "
                          "launch (launch)");
    kb_bench_print(bench, "%-10s %12s %12s %12s %10s %10s", "operands", "matrix busy", "composite",
                   "launch", "pipeline", "launch");
    kb_bench_print(bench, "%-10s %12s %12s %12s %10s %10s", "", "(ns)", "(ns)", "(ns)", "(%)",
                   "(%)");
}

static void print_row(kb_bench *bench, int operands, const kb_launch_result *result)
{
    const char *name = operand_names[operands];
    kb_time_sum busy = result->busy[KB_UNIT_GEMM], composite = result->busy[KB_UNIT_SCHEDULER],
                launch = result->ended - result->issued;
    double pipeline_efficiency = percent(busy, composite),
           launch_efficiency = percent(busy, launch);
    kb_bench_print(bench, "%-10s %12.3f %12.3f %12.3f %10.2f %10.2f", name, kb_to_ns(busy),
                   kb_to_ns(composite), kb_to_ns(launch), pipeline_efficiency, launch_efficiency);
    report(bench, "matrix_busy", name, kb_to_ns(busy), "ns");
    report(bench, "composite_time", name, kb_to_ns(composite), "ns");
    report(bench, "launch_time", name, kb_to_ns(launch), "ns");
    report(bench, "pipeline_efficiency", name, pipeline_efficiency,
           "% of the composite's time in which the matrix engine is busy");
    report(bench, "launch_efficiency", name, launch_efficiency,
           "% of the launch's time in which the matrix engine is busy");
}

/* One launch with its own result, so that each is verified. */
static kb_error *multiply(kb_bench *bench, product *p, int operands)
{
    kb_context *ctx = kb_bench_context(bench);
    KB_TRY(matrix_empty(
        bench, &(matrix_spec){operand_names[operands], p->a.rows, p->b.columns, p->out_dtype, NULL},
        &p->c));
    kb_request launch;
    kb_launch_result result;
    size_t devices;
    KB_TRY(kb_launch_async(ctx, &launch, operand_names[operands], &matmul, p->a.tensor, p->b.tensor,
                           p->c.tensor, p->m, p->k, p->n, p->dtype, p->out_dtype, operands));
    KB_TRY(kb_request_wait(ctx, launch, NULL));
    KB_TRY(kb_launch_results(ctx, launch, &result, 1, &devices));
    KB_TRY(kb_request_free(ctx, launch));
    print_row(bench, operands, &result);
    return matrix_verify_product(bench, &p->c, &p->a, &p->b);
}

static kb_error *run_all(kb_bench *bench, product *p)
{
    uint64_t m = (uint64_t)p->m, k = (uint64_t)p->k, n = (uint64_t)p->n;
    int64_t operands = kb_bench_param(bench, "operands");
    KB_TRY(matrix_random(bench, &(matrix_spec){"a", m, k, p->dtype, NULL}, 1, &p->a));
    KB_TRY(matrix_random(bench, &(matrix_spec){"b", k, n, p->dtype, NULL}, 2, &p->b));
    print_head(bench, p);
    for (int i = REF_REF; i < ALL; i++)
        if (operands == ALL || operands == i)
            KB_TRY(multiply(bench, p, i));
    return NULL;
}

static kb_error *run(kb_bench *bench)
{
    kb_dtype dtype = (kb_dtype)kb_bench_param(bench, "dtype");
    product p = {.m = kb_bench_param(bench, "m"),
                 .k = kb_bench_param(bench, "k"),
                 .n = kb_bench_param(bench, "n"),
                 .dtype = dtype,
                 .out_dtype = result_of(dtype)};
    kb_error *err = run_all(bench, &p);
    matrix_fini(&p.a);
    matrix_fini(&p.b);
    matrix_fini(&p.c);
    return err;
}

static const kb_param params[] = {
    {.name = "operands",
     .value = ALL,
     .help = "A and B: each in HBM (ref) or loaded into the TCM first (load)",
     .names = operand_names},
    {.name = "m", .value = 512, .min = 1, .max = 1 << 15, .help = "rows of A and C"},
    {.name = "k", .value = 512, .min = 1, .max = 1 << 15, .help = "columns of A, rows of B"},
    {.name = "n", .value = 512, .min = 1, .max = 1 << 15, .help = "columns of B and C"},
    {.name = "dtype",
     .value = KB_F16,
     .help = "of A and B; C is i32 for i8, f32 for f8",
     .names = dtype_names},
};

const kb_bench_spec bench_matmul_composite = {
    .name = "matmul_composite",
    .summary = "a composite C = A * B on one PE: efficiency of the pipeline and of the launch",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
