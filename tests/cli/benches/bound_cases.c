/* bound_cases.c: benches that are bound by something known, for bounds.sh. */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

static kb_error *make(kb_bench *bench, const char *name, kb_shape shape, const kb_policy *policy,
                      kb_tensor *x)
{
    const kb_tensor_spec spec = {
        .name = name, .dtype = KB_F16, .shape = shape, .policy = policy, .access = KB_UNTIMED};
    return kb_full(kb_bench_context(bench), &spec, 1, x);
}

static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};

/* ---- A composite of weights that are near and activations that are far ---- */

enum { M = 128, K = 512, N = 64 };

/* Each PE has its own weights, and reads the activations of the PE `shift` cubes further on. */
KB_KERNEL(near_far_kernel, tl_ptr x, tl_ptr w, tl_ptr y, int64_t shift)
{
    int64_t pes = tl_num_programs(0), cubes = tl_num_programs(1);
    int64_t me = tl_program_id(1) * pes + tl_program_id(0);
    int64_t other = (tl_program_id(1) + shift) % cubes * pes + tl_program_id(0);
    tl_tensor a = tl_ref(x + other * M * K * 2, tl_shape(M, K), TL_F16);
    tl_tensor b = tl_ref(w + me * K * N * 2, tl_shape(K, N), TL_F16);
    tl_composite(TL_GEMM, a, b, tl_ref(y + me * M * N * 2, tl_shape(M, N), TL_F16));
}

static kb_error *run_near_far(kb_bench *bench)
{
    kb_machine machine = kb_context_machine(kb_bench_context(bench));
    uint64_t pes = (uint64_t)machine.cubes * machine.pes;
    kb_tensor x, w, y;
    KB_TRY(make(bench, "x", KB_SHAPE(pes * M, K), &by_rows, &x));
    KB_TRY(make(bench, "w", KB_SHAPE(pes * K, N), &by_rows, &w));
    KB_TRY(make(bench, "y", KB_SHAPE(pes * M, N), &by_rows, &y));
    return kb_launch(kb_bench_context(bench), "near_far", &near_far_kernel, x, w, y,
                     kb_bench_param(bench, "shift"));
}

static const kb_param near_far_params[] = {
    {.name = "shift", .value = 1, .min = 0, .max = 1 << 20, .help = "cubes"},
};
static const kb_bench_spec near_far = {.name = "near_far",
                                       .summary = "near weights, far activations",
                                       .params = near_far_params,
                                       .param_count = 1,
                                       .run = run_near_far};

/* ---- Scores of experts: reads what is far, computes a little ---- */

KB_KERNEL(gating_kernel, tl_ptr x, tl_ptr y, int64_t n)
{
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_tensor scores = tl_load(x, tl_shape(8, n), TL_F16); /* at PE 0 of cube 0, for all */
    tl_store(y + me * 8 * n * 2, tl_softmax(scores, 1));
}

static kb_error *run_gating(kb_bench *bench)
{
    kb_machine machine = kb_context_machine(kb_bench_context(bench));
    uint64_t pes = (uint64_t)machine.cubes * machine.pes, n = 64;
    kb_tensor x, y;
    KB_TRY(make(bench, "x", KB_SHAPE(8, n), NULL, &x));
    KB_TRY(make(bench, "y", KB_SHAPE(pes * 8, n), &by_rows, &y));
    return kb_launch(kb_bench_context(bench), "gating", &gating_kernel, x, y, n);
}
static const kb_bench_spec gating = {
    .name = "gating", .summary = "softmax of far scores", .run = run_gating};

/* ---- One PE: vectors, memory, chains of products ---- */

KB_KERNEL(vector_kernel, tl_ptr x, tl_ptr y, int64_t n, int64_t blocks)
{
    for (int64_t i = 0; i < blocks; i++) {
        TL_SCOPE {
            tl_tensor v = tl_load(x + i * n * 2, tl_shape(n), TL_F16);
            tl_store(y + i * n * 2, tl_tanh(tl_exp(v)));
        }
    }
}

static kb_error *run_vector(kb_bench *bench)
{
    kb_tensor x, y;
    uint64_t n = 8192, blocks = 16;
    KB_TRY(make(bench, "x", KB_SHAPE(n * blocks), NULL, &x));
    KB_TRY(make(bench, "y", KB_SHAPE(n * blocks), NULL, &y));
    return kb_launch(kb_bench_context(bench), "vector", &vector_kernel, x, y, n, blocks);
}
static const kb_bench_spec vector = {
    .name = "vector", .summary = "functions of elements", .run = run_vector};

KB_KERNEL(copy_kernel, tl_ptr x, tl_ptr y, int64_t n, int64_t blocks)
{
    for (int64_t i = 0; i < blocks; i++) {
        TL_SCOPE {
            tl_store(y + i * n * 2, tl_load(x + i * n * 2, tl_shape(n), TL_F16));
        }
    }
}

static kb_error *run_copy(kb_bench *bench)
{
    kb_tensor x, y;
    uint64_t n = 1 << 16, blocks = 16;
    KB_TRY(make(bench, "x", KB_SHAPE(n * blocks), NULL, &x));
    KB_TRY(make(bench, "y", KB_SHAPE(n * blocks), NULL, &y));
    return kb_launch(kb_bench_context(bench), "copy", &copy_kernel, x, y, n, blocks);
}
static const kb_bench_spec copy = {.name = "copy", .summary = "of HBM", .run = run_copy};

enum { CHAINS = 4 };

/* Chains of products of 64 x 64 that take turns. */
KB_KERNEL(chain_kernel, tl_ptr x, tl_ptr y, int64_t chains, int64_t length)
{
    tl_tensor a = tl_load(x, tl_shape(64, 64), TL_F16), acc[CHAINS];
    for (int64_t c = 0; c < chains; c++)
        acc[c] = tl_dot(a, a, .out_f32 = true);
    for (int64_t i = 1; i < length; i++)
        for (int64_t c = 0; c < chains; c++)
            acc[c] = tl_dot(a, a, .acc = acc[c]);
    for (int64_t c = 0; c < chains; c++)
        tl_store(y + c * 64 * 64 * 2, tl_cast(acc[c], TL_F16));
}

static kb_error *run_chain(kb_bench *bench)
{
    kb_tensor x, y;
    KB_TRY(make(bench, "x", KB_SHAPE(64, 64), NULL, &x));
    KB_TRY(make(bench, "y", KB_SHAPE(CHAINS * 64, 64), NULL, &y));
    return kb_launch(kb_bench_context(bench), "chain", &chain_kernel, x, y,
                     kb_bench_param(bench, "chains"), 400 / kb_bench_param(bench, "chains"));
}
static const kb_param chain_params[] = {
    {.name = "chains", .value = 1, .min = 1, .max = CHAINS, .help = "that take turns"},
};
static const kb_bench_spec chain = {.name = "chain",
                                    .summary = "products that need each other",
                                    .params = chain_params,
                                    .param_count = 1,
                                    .run = run_chain};

/* ---- One PE has most of the work ---- */

KB_KERNEL(straggler_kernel, tl_ptr x, int64_t n)
{
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_tensor v = tl_load(x + me * n * 2, tl_shape(n), TL_F16);
    for (int i = 0; i < (me == 3 ? 64 : 1); i++)
        v = tl_exp(v);
    tl_store(x + me * n * 2, v);
}

static kb_error *run_straggler(kb_bench *bench)
{
    kb_machine machine = kb_context_machine(kb_bench_context(bench));
    uint64_t pes = (uint64_t)machine.cubes * machine.pes, n = 4096;
    kb_tensor x;
    KB_TRY(make(bench, "x", KB_SHAPE(pes, n), &by_rows, &x));
    return kb_launch(kb_bench_context(bench), "straggler", &straggler_kernel, x, n);
}
static const kb_bench_spec straggler = {
    .name = "straggler", .summary = "one PE has more to do", .run = run_straggler};

/* ---- Many launches ---- */

KB_KERNEL(nap_kernel, tl_ptr x, int64_t n)
{
    tl_store(x, tl_exp(tl_load(x, tl_shape(n), TL_F16)));
}

static kb_error *run_launches(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, "x", KB_SHAPE(4096), NULL, &x));
    for (int64_t i = 0; i < 36; i++)
        KB_TRY(kb_launch(kb_bench_context(bench), i % 3 == 0 ? "long" : "short", &nap_kernel, x,
                         i % 3 == 0 ? 4096 : 64 * (1 + i % 2)));
    return NULL;
}
static const kb_bench_spec launches = {
    .name = "launches", .summary = "36 of two names", .run = run_launches};

KB_EXPORT_BENCHES(&near_far, &gating, &vector, &copy, &chain, &straggler, &launches);
