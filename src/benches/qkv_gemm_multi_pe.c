/*
 * qkv_gemm_multi_pe.c: the QKV projection of a model as wide as GPT-3, on all PEs. Every PE has a
 * copy of X and some columns of Wq, Wk and Wv, and computes the same columns of Q, K and V: all
 * traffic stays in its HBM. Each SIP has its own tokens; all SIPs are launched before any is waited
 * for.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include <stdlib.h>

#include "benches.h"
#include "common.h"

KB_KERNEL(qkv, tl_ptr x, tl_ptr wq, tl_ptr wk, tl_ptr wv, tl_ptr q, tl_ptr k, tl_ptr v,
          int64_t tokens, int64_t width)
{
    /* The columns of this PE: columns are split over the cubes, and those of a cube over its PEs.
     */
    int64_t of_cube = tl_part_size(width, tl_num_programs(1), tl_program_id(1));
    int64_t columns = tl_part_size(of_cube, tl_num_programs(0), tl_program_id(0));
    int64_t before = tl_part_begin(width, tl_num_programs(1), tl_program_id(1)) +
                     tl_part_begin(of_cube, tl_num_programs(0), tl_program_id(0));
    if (columns == 0)
        return; /* more PEs than columns */

    const tl_ptr weights[] = {wq, wk, wv}, results[] = {q, k, v};
    tl_tensor all_x = tl_ref(x, tl_shape(tokens, width), TL_F16);
    for (int i = 0; i < 3; i++) {
        /* Shards are consecutive, and each is packed. */
        tl_tensor w = tl_ref(weights[i] + before * width * 2, tl_shape(width, columns), TL_F16);
        tl_tensor out = tl_ref(results[i] + before * tokens * 2, tl_shape(tokens, columns), TL_F16);
        tl_composite(TL_GEMM, all_x, w, out);
    }
}

enum { X, WQ, WK, WV, Q, K, V, MATRICES };

/* The matrices of a device. */
static kb_error *make(kb_bench *bench, uint32_t sip, uint64_t tokens, uint64_t width, matrix *m)
{
    static const char *const names[] = {"x", "wq", "wk", "wv", "q", "k", "v"};
    static const kb_policy everywhere = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    KB_TRY(kb_ahbm_set_device(kb_bench_context(bench), sip));
    KB_TRY(matrix_random(bench, &(matrix_spec){names[X], tokens, width, KB_F16, &everywhere},
                         100 + sip, &m[X]));
    for (int i = WQ; i <= WV; i++)
        KB_TRY(matrix_random(bench, &(matrix_spec){names[i], width, width, KB_F16, &by_columns},
                             (uint64_t)i, &m[i]));
    for (int i = Q; i <= V; i++)
        KB_TRY(matrix_empty(bench, &(matrix_spec){names[i], tokens, width, KB_F16, &by_columns},
                            &m[i]));
    return NULL;
}

/* A matrix of all devices, as an argument of a launch. */
static kb_arg each(const kb_tensor *tensors, int which, uint32_t devices)
{
    return KB_EACH(tensors + (size_t)which * devices, devices);
}

static kb_error *project(kb_bench *bench, uint32_t devices, const kb_tensor *t)
{
    kb_context *ctx = kb_bench_context(bench);
    int64_t tokens = kb_bench_param(bench, "tokens"), width = kb_bench_param(bench, "width");
    kb_request launch;
    launch_time time;
    kb_time before = kb_context_kernel_time(ctx);
    KB_TRY(kb_launch_async(ctx, &launch, "qkv", &qkv, each(t, X, devices), each(t, WQ, devices),
                           each(t, WK, devices), each(t, WV, devices), each(t, Q, devices),
                           each(t, K, devices), each(t, V, devices), tokens, width));
    KB_TRY(wait_for_launch(bench, launch, before, &time));
    double flops = 6.0 * (double)tokens * (double)width * (double)width * devices;
    report_tflops(bench, flops, &time);
    kb_bench_metric(bench, "tokens_per_us", (double)tokens * devices * 1e3 / kb_to_ns(time.total),
                    "tokens/us, from the launch until it is complete");
    return NULL;
}

static kb_error *run_on(kb_bench *bench, uint32_t devices, matrix *m, kb_tensor *tensors)
{
    int64_t tokens = kb_bench_param(bench, "tokens"), width = kb_bench_param(bench, "width");
    for (uint32_t i = 0; i < devices; i++) {
        matrix *of_device = m + (size_t)i * MATRICES;
        KB_TRY(
            make(bench, kb_bench_device(bench, i), (uint64_t)tokens, (uint64_t)width, of_device));
        for (int which = 0; which < MATRICES; which++)
            tensors[(size_t)which * devices + i] = of_device[which].tensor;
    }
    kb_bench_print(bench,
                   "Q, K, V (%lld, %lld) = X * Wq, Wk, Wv, f16, on all PEs of %u "
                   "SIP%s; X and the weights are in their HBM from the start",
                   (long long)tokens, (long long)width, devices, devices == 1 ? "" : "s");
    KB_TRY(project(bench, devices, tensors));
    for (uint32_t i = 0; i < devices; i++) {
        const matrix *of_device = m + (size_t)i * MATRICES;
        for (int k = 0; k < 3; k++)
            KB_TRY(
                matrix_verify_product(bench, &of_device[Q + k], &of_device[X], &of_device[WQ + k]));
    }
    return NULL;
}

static kb_error *run(kb_bench *bench)
{
    uint32_t devices = kb_bench_device_count(bench);
    size_t count = (size_t)devices * MATRICES;
    matrix *m = calloc(count, sizeof *m);
    kb_tensor *tensors = calloc(count, sizeof *tensors);
    kb_error *err = m && tensors ? run_on(bench, devices, m, tensors)
                                 : kb_error_new(KB_ERR_HOST, "out of memory");
    for (size_t i = 0; m && i < count; i++)
        matrix_fini(&m[i]);
    free(m);
    free(tensors);
    return err;
}

/* At full width the weights of a SIP have 900 MB, and X has a copy on every PE. */
static bool is_large(const kb_bench *bench)
{
    double tokens = (double)kb_bench_param(bench, "tokens");
    double width = (double)kb_bench_param(bench, "width");
    return 3 * width * width + 128 * tokens * width > 3e7;
}

static const kb_param params[] = {
    {.name = "tokens", .value = 128, .min = 1, .max = 1 << 16, .help = "rows of X, of each SIP"},
    {.name = "width",
     .value = 12288,
     .min = 1,
     .max = 1 << 16,
     .help = "columns of X and of each W"},
};

const kb_bench_spec bench_qkv_gemm_multi_pe = {
    .name = "qkv_gemm_multi_pe",
    .summary = "QKV projection as wide as GPT-3's, columns over all PEs of each SIP",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_large,
};
