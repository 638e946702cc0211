/*
 * test_fused_time.c: kernel times of the products of a 70B model on the default machine, in bf16,
 * and their bounds.
 *
 *     matrix   m * k * n / (64 * 64 products a cycle * 128 PEs) ns
 *     memory   k * n * 2 bytes / (204.8 bytes/ns * 128 PEs)
 *     link     m * n * 2 bytes / (64 bytes/ns; a fast one: 900), for sums over two ranks
 *
 * Each case states the time that it may take. KB_TP_PRINT=1 prints all; KB_TP_LONG=1 adds those
 * with 2048 rows.
 */
#include "tp_ranks.h"

#include "tp/matmul.h"

typedef struct timed {
    const char *name;
    uint64_t m, k, n;
    double max_ns;
    uint32_t ranks, chunks;
    bool norm, gated, residual, x_by_cube, out_by_cube, fast_link;
    kb_time time; /* of the slowest rank */
} timed;

static kb_tensor make_matrix(kb_context *ctx, uint64_t rows, uint64_t width, bool is_by_cube)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    static const kb_policy by_cube = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    uint64_t copies = is_by_cube ? kb_context_machine(ctx).cubes : 1;
    return make_tensor(ctx, "matrix", KB_BF16, KB_SHAPE(rows * copies, width),
                       is_by_cube ? &by_cube : &columns, NULL);
}

static kb_error *run_rank(kb_context *ctx, uint32_t rank, void *arg)
{
    timed *t = arg;
    static const kb_policy gains = {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE};
    kb_policy pw, px, po;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (t->ranks > 1)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    /* One layout serves all numbers of rows. */
    tp_best_layout(ctx, 64, t->k, t->n, KB_BF16, t->gated, &pw, &px, &po);
    tp_matmul_spec spec = {
        .x = make_matrix(ctx, t->m, t->k, t->x_by_cube),
        .w = make_tensor(ctx, "w", KB_BF16, KB_SHAPE(t->k, t->n), &pw, NULL),
        .out = make_matrix(ctx, t->m, t->gated ? t->n / 2 : t->n, t->out_by_cube),
        .gated = t->gated,
        .x_by_cube = t->x_by_cube,
        .out_by_cube = t->out_by_cube,
        .rank = rank,
        .ranks = t->ranks,
        .chunks = t->chunks,
        .sum_dtype = KB_BF16,
    };
    if (t->norm)
        spec.norm_gain = make_tensor(ctx, "gain", KB_BF16, KB_SHAPE(t->k), &gains, NULL);
    if (t->residual)
        spec.residual = spec.out;
    for (int pass = 0; pass < 2; pass++) { /* the first one installs queues */
        kb_request request;
        kb_launch_result result;
        size_t count;
        spec.request = &request;
        if (t->ranks > 1)
            KB_TRY(kb_distributed_barrier(ctx, NULL));
        KB_TRY(tp_matmul(ctx, &spec));
        KB_TRY(kb_request_wait(ctx, request, NULL));
        KB_TRY(kb_launch_results(ctx, request, &result, 1, &count));
        KB_TRY(kb_request_free(ctx, request));
        if (pass == 1 && result.pe_exec > t->time)
            t->time = result.pe_exec;
    }
    return NULL;
}

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

static double bound_ns(const timed *t)
{
    double m = (double)t->m, k = (double)t->k, n = (double)t->n;
    double bound = max_of(m * k * n / (4096 * 128), k * n * 2 / (204.8 * 128));
    return t->ranks > 1 ? max_of(bound, m * n * 2 / (t->fast_link ? 900 : 64)) : bound;
}

static void time_case(timed *t)
{
    kb_context *ctx;
    const char *const fast_link[] = {"system.sips.link.bw_gbs=900",
                                     "system.sips.link.length_mm=200",
                                     "system.sips.link.overhead_ns=20"};
    const kb_context_options options = {
        .timing_only = true, .settings = fast_link, .setting_count = t->fast_link ? 3 : 0};
    expect_ok(kb_context_create(&options, &ctx));
    expect_ok(kb_spawn(ctx, run_rank, t, t->ranks));
    kb_context_destroy(ctx);
    if (getenv("KB_TP_PRINT"))
        printf("%-34s (%llu, %llu) * (%llu, %llu)%s: %.1f ns, bound %.1f, max %.1f\n", t->name,
               (unsigned long long)t->m, (unsigned long long)t->k, (unsigned long long)t->k,
               (unsigned long long)t->n, t->ranks > 1 ? " on 2 ranks" : "", kb_to_ns(t->time),
               bound_ns(t), t->max_ns);
}

static void check_cases(timed *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        time_case(&cases[i]);
        double ns = kb_to_ns(cases[i].time);
        assert_true(ns > bound_ns(&cases[i]));
        assert_true(ns <= cases[i].max_ns);
    }
}

#define ALONE(rows) .m = (rows), .ranks = 1
#define SUM(rows) .m = (rows), .ranks = 2, .chunks = 8
#define BY_CUBE .x_by_cube = true
#define FAST .fast_link = true, .out_by_cube = true
#define UP .k = 8192, .n = 14336
#define QKV .k = 8192, .n = 5120, .norm = true
#define GATE_UP .k = 8192, .n = 28672, .norm = true, .gated = true
#define OUT .k = 4096, .n = 8192, .residual = true
#define DOWN .k = 14336, .n = 8192, .residual = true

static void times_are_near_the_bounds(void **unused)
{
    (void)unused;
    timed cases[] = {
        {"up", ALONE(1), UP, .max_ns = 9800},
        {"qkv", ALONE(1), QKV, .max_ns = 4000},
        {"gate and up", ALONE(1), GATE_UP, .max_ns = 18650},
        {"out", SUM(1), OUT, .max_ns = 4000},
        {"down", SUM(1), DOWN, .max_ns = 10000},
        {"up", ALONE(64), UP, .max_ns = 16500},
        {"qkv", ALONE(64), QKV, BY_CUBE, .max_ns = 6600},
        {"gate and up", ALONE(64), GATE_UP, BY_CUBE, .out_by_cube = true, .max_ns = 31500},
        {"out", SUM(64), OUT, BY_CUBE, .max_ns = 18500},
        {"down", SUM(64), DOWN, BY_CUBE, .max_ns = 20000},
        {"out, stored by cube", SUM(64), OUT, BY_CUBE, FAST, .max_ns = 9100},
        {"down, stored by cube", SUM(64), DOWN, BY_CUBE, FAST, .max_ns = 17600},
        {"qkv", ALONE(512), QKV, BY_CUBE, .max_ns = 44000},
        {"down", SUM(512), DOWN, BY_CUBE, .max_ns = 143000},
    };
    check_cases(cases, sizeof cases / sizeof cases[0]);
}

/* These take minutes to simulate. */
static void long_prompts_are_near_the_bounds(void **unused)
{
    (void)unused;
    timed cases[] = {
        {"qkv", ALONE(2048), QKV, BY_CUBE, .max_ns = 1.04 * 163840},
        {"qkv, x not by cube", ALONE(2048), QKV, .max_ns = 600000},
        {"out", ALONE(2048), OUT, BY_CUBE, .max_ns = 1.04 * 131072},
        {"gate and up", ALONE(2048), GATE_UP, BY_CUBE, .max_ns = 1.04 * 917504},
        {"gate and up", ALONE(2048), GATE_UP, BY_CUBE, .out_by_cube = true,
         .max_ns = 1.04 * 917504},
        {"down", ALONE(2048), DOWN, BY_CUBE, .max_ns = 1.04 * 458752},
        {"out", SUM(2048), OUT, BY_CUBE, .out_by_cube = true, .max_ns = 524288 + 40000},
        {"down", SUM(2048), DOWN, BY_CUBE, .out_by_cube = true, .max_ns = 524288 + 60000},
    };
    if (!getenv("KB_TP_LONG"))
        skip();
    check_cases(cases, sizeof cases / sizeof cases[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_near_the_bounds),
                                       cmocka_unit_test(long_prompts_are_near_the_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
