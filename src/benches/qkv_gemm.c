/*
 * qkv_gemm.c: Q = X * Wq, K = X * Wk and V = X * Wv on one PE, with tiles that the kernel loads,
 * multiplies and stores itself. It issues the loads of the next tiles before the products of
 * earlier ones, so that the units overlap.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "benches.h"
#include "common.h"

enum { TILE_M = 64, TILE_N = 128, TILE_K = 256 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One tile of out = x (tokens, width) * w (width, width): `rows` x `columns` from (m, n) on. */
static void project_tile(tl_context *tl, tl_ptr x, tl_ptr w, tl_ptr out, int64_t width, int64_t m,
                         int64_t rows, int64_t n, int64_t columns)
{
    TL_SCOPE {
        tl_tensor sum = tl_zeros(tl_shape(rows, columns), TL_F32);
        for (int64_t k = 0; k < width; k += TILE_K) {
            int64_t depth = smaller(TILE_K, width - k);
            TL_SCOPE {
                tl_tensor a = tl_load(x + (m * width + k) * 2, tl_shape(rows, depth), TL_F16,
                                      .strides = tl_strides(width, 1));
                tl_tensor b = tl_load(w + (k * width + n) * 2, tl_shape(depth, columns), TL_F16,
                                      .strides = tl_strides(width, 1));
                sum = tl_dot(a, b, .acc = sum);
            }
        }
        tl_store(out + (m * width + n) * 2, tl_cast(sum, TL_F16), .strides = tl_strides(width, 1));
    }
}

KB_KERNEL(qkv, tl_ptr x, tl_ptr wq, tl_ptr wk, tl_ptr wv, tl_ptr q, tl_ptr k, tl_ptr v,
          int64_t tokens, int64_t width)
{
    const tl_ptr weights[] = {wq, wk, wv}, results[] = {q, k, v};
    for (int i = 0; i < 3; i++)
        for (int64_t m = 0; m < tokens; m += TILE_M)
            for (int64_t n = 0; n < width; n += TILE_N)
                project_tile(tl, x, weights[i], results[i], width, m, smaller(TILE_M, tokens - m),
                             n, smaller(TILE_N, width - n));
}

enum { X, WQ, WK, WV, Q, K, V, MATRICES };

static kb_error *make(kb_bench *bench, uint64_t tokens, uint64_t width, matrix *m)
{
    static const char *const names[] = {"x", "wq", "wk", "wv", "q", "k", "v"};
    KB_TRY(matrix_random(bench, &(matrix_spec){names[X], tokens, width, KB_F16, NULL}, X, &m[X]));
    for (int i = WQ; i <= WV; i++)
        KB_TRY(matrix_random(bench, &(matrix_spec){names[i], width, width, KB_F16, NULL},
                             (uint64_t)i, &m[i]));
    for (int i = Q; i <= V; i++)
        KB_TRY(matrix_empty(bench, &(matrix_spec){names[i], tokens, width, KB_F16, NULL}, &m[i]));
    return NULL;
}

static kb_error *project(kb_bench *bench, matrix *m)
{
    kb_context *ctx = kb_bench_context(bench);
    int64_t tokens = kb_bench_param(bench, "tokens"), width = kb_bench_param(bench, "width");
    KB_TRY(make(bench, (uint64_t)tokens, (uint64_t)width, m));
    kb_bench_print(bench,
                   "Q, K, V (%lld, %lld) = X * Wq, Wk, Wv, f16, on one PE; X and the "
                   "weights are in its HBM from the start",
                   (long long)tokens, (long long)width);

    kb_request launch;
    launch_time time;
    kb_time before = kb_context_kernel_time(ctx);
    KB_TRY(kb_launch_async(ctx, &launch, "qkv", &qkv, m[X].tensor, m[WQ].tensor, m[WK].tensor,
                           m[WV].tensor, m[Q].tensor, m[K].tensor, m[V].tensor, tokens, width));
    KB_TRY(wait_for_launch(bench, launch, before, &time));
    double flops = 6.0 * (double)tokens * (double)width * (double)width;
    report_tflops(bench, flops, &time);
    for (int i = 0; i < 3; i++)
        KB_TRY(matrix_verify_product(bench, &m[Q + i], &m[X], &m[WQ + i]));
    return NULL;
}

static kb_error *run(kb_bench *bench)
{
    matrix m[MATRICES] = {0};
    kb_error *err = project(bench, m);
    for (int i = 0; i < MATRICES; i++)
        matrix_fini(&m[i]);
    return err;
}

static const kb_param params[] = {
    {.name = "tokens", .value = 64, .min = 1, .max = 1 << 16, .help = "rows of X"},
    {.name = "width", .value = 768, .min = 1, .max = 1 << 14, .help = "columns of X and of each W"},
};

const kb_bench_spec bench_qkv_gemm = {
    .name = "qkv_gemm",
    .summary = "QKV projection on one PE, with tiles that the kernel loads itself",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
