/*
 * suite_kernels.c: what running kernels costs, on the default machine.
 *
 * qkv: three products of 128 x 12288 x 12288 (a projection of GPT-3's width), the matrices by
 * columns over the 128 PEs of a SIP, timing only: the whole run, hops of the fabric a second, and
 * what it takes for each of the commands to units. op: a vector operation of one PE. launch: a
 * kernel that does nothing, for each of 128 PEs. product: 1024 x 1024 x 1024 in f16 with data, by
 * one PE, in operations a second.
 *
 * Instructions are counted of two cases, for each command to a unit. composite: a product of width
 * 3,072 over the 128 PEs of a SIP, in its tiles. shared: each PE reads blocks of 64 KiB from its
 * own slice of HBM, and 256 bytes from that of its neighbour after each, so memories serve two
 * readers.
 */
#include "suite.h"

#include <kernbench/tl.h>

#include "rt/rt.h"

enum { WIDTH = 12288, TOKENS = 128, SIDE = 1024, OPS = 20000 };

KB_KERNEL(project, tl_ptr x, tl_ptr w, tl_ptr y, int64_t tokens, int64_t width)
{
    int64_t cubes = tl_num_programs(1), pes = tl_num_programs(0);
    int64_t cube_columns = tl_part_size(width, cubes, tl_program_id(1));
    int64_t first = tl_part_begin(width, cubes, tl_program_id(1)) +
                    tl_part_begin(cube_columns, pes, tl_program_id(0));
    int64_t mine = tl_part_size(cube_columns, pes, tl_program_id(0));
    tl_composite(TL_GEMM, tl_ref(x, tl_shape(tokens, width), TL_F16),
                 tl_ref(w + first * width * 2, tl_shape(width, mine), TL_F16),
                 tl_ref(y + first * tokens * 2, tl_shape(tokens, mine), TL_F16));
}

KB_KERNEL(add_often, tl_ptr x, int64_t times)
{
    tl_tensor sum = tl_load(x, tl_shape(64), TL_F16);
    for (int64_t i = 0; i < times; i++)
        tl_assign(&sum, tl_add(sum, 1));
    tl_store(x, sum);
}

enum { BLOCK = 32 << 10, FEW = 128 }; /* elements of f16 */

KB_KERNEL(share, tl_ptr x, int64_t times)
{
    int64_t pes = tl_num_programs(0), own = tl_program_id(1) * pes + tl_program_id(0);
    int64_t other = tl_program_id(1) * pes + (tl_program_id(0) + 1) % pes;
    for (int64_t i = 0; i < times; i++) {
        tl_tensor block = tl_load(x + own * BLOCK * 2, tl_shape(BLOCK), TL_F16);
        tl_tensor few = tl_load(x + other * BLOCK * 2, tl_shape(FEW), TL_F16);
        tl_assign(&few, tl_add(few, 1));
        tl_assign(&block, tl_add(block, 1));
    }
}

KB_KERNEL(nothing, tl_ptr x)
{
    (void)x;
}

static kb_error *make(kb_context *ctx, uint64_t rows, uint64_t columns, const kb_policy *policy,
                      kb_tensor *tensor)
{
    kb_tensor_spec spec = {
        .shape = KB_SHAPE(rows, columns), .policy = policy, .access = KB_UNTIMED};
    return kb_empty(ctx, &spec, tensor);
}

static const kb_policy everywhere = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};

typedef struct cost {
    double ns;
    uint64_t hops, commands;
} cost;

static uint64_t count_commands(kb_context *ctx)
{
    size_t count;
    uint64_t commands = 0;
    const kb_op_sum *sums = kb_oplog_sums(rt_get_stats(ctx).log, &count);
    for (size_t i = 0; i < count; i++)
        commands += sums[i].count;
    return commands;
}

static kb_error *qkv(kb_context *ctx, cost *c)
{
    kb_tensor x, w, y;
    double start = bench_clock_ns();
    KB_TRY(make(ctx, TOKENS, WIDTH, &everywhere, &x));
    for (int i = 0; i < 3; i++) {
        KB_TRY(make(ctx, WIDTH, WIDTH, &by_columns, &w));
        KB_TRY(make(ctx, TOKENS, WIDTH, &by_columns, &y));
        KB_TRY(kb_launch(ctx, "project", &project, x, w, y, TOKENS, WIDTH));
    }
    c->ns = bench_clock_ns() - start;
    c->hops = net_get_stats(rt_get_stats(ctx).fabric).hops;
    c->commands = count_commands(ctx);
    return NULL;
}

static kb_error *ops(kb_context *ctx, cost *c)
{
    kb_tensor x;
    KB_TRY(make(ctx, 1, 64, NULL, &x));
    double start = bench_clock_ns();
    KB_TRY(kb_launch(ctx, NULL, &add_often, x, OPS));
    c->ns = (bench_clock_ns() - start) / OPS;
    return NULL;
}

static kb_error *launches(kb_context *ctx, cost *c)
{
    enum { times = 20 };
    kb_tensor x;
    KB_TRY(make(ctx, 1, WIDTH, &by_columns, &x));
    double start = bench_clock_ns();
    for (int i = 0; i < times; i++)
        KB_TRY(kb_launch(ctx, NULL, &nothing, x));
    kb_machine machine = kb_context_machine(ctx);
    c->ns = (bench_clock_ns() - start) / (times * (double)machine.cubes * machine.pes);
    return NULL;
}

static kb_error *product(kb_context *ctx, cost *c)
{
    kb_tensor a, b, y;
    double number, start = bench_clock_ns();
    KB_TRY(make(ctx, SIDE, SIDE, NULL, &a));
    KB_TRY(make(ctx, SIDE, SIDE, NULL, &b));
    KB_TRY(make(ctx, SIDE, SIDE, NULL, &y));
    KB_TRY(kb_launch(ctx, NULL, &project, a, b, y, SIDE, SIDE));
    KB_TRY(kb_tensor_get(ctx, y, KB_UNTIMED, &KB_INDEX(1, 1), &number));
    c->ns = bench_clock_ns() - start;
    return NULL;
}

typedef kb_error *case_fn(kb_context *ctx, cost *c);

/* The best of several runs, each in a context of its own. */
static kb_error *best_of(const bench *b, case_fn *fn, kb_context_options options, cost *best)
{
    *best = (cost){0};
    for (unsigned round = 0; round < b->rounds; round++) {
        kb_context *ctx;
        cost c = {0};
        KB_TRY(kb_context_create(&options, &ctx));
        kb_error *err = fn(ctx, &c);
        kb_context_destroy(ctx);
        KB_TRY(err);
        if (best->ns == 0 || c.ns < best->ns)
            *best = c;
    }
    return NULL;
}

static kb_error *measure(bench *b)
{
    const kb_context_options timing = {.timing_only = true}, data = {.threads = 1};
    cost c;
    if (bench_wants(b, "kernels.qkv")) {
        bench_progress(b, "kernels.qkv");
        KB_TRY(best_of(b, qkv, timing, &c));
        bench_report(b, c.ns / 1e9, "s", "kernels.qkv.s");
        bench_report(b, (double)c.hops * 1e9 / c.ns, "hops/s", "kernels.qkv_hops.per_s");
        bench_report(b, c.ns / (double)c.commands, "ns/command", "kernels.qkv_command.ns");
    }
    if (bench_wants(b, "kernels.op")) {
        KB_TRY(best_of(b, ops, timing, &c));
        bench_report(b, c.ns, "ns/op", "kernels.op.ns");
    }
    if (bench_wants(b, "kernels.launch")) {
        KB_TRY(best_of(b, launches, timing, &c));
        bench_report(b, c.ns, "ns/PE", "kernels.launch.ns");
    }
    if (bench_wants(b, "kernels.product")) {
        KB_TRY(best_of(b, product, data, &c));
        bench_report(b, 2.0 * SIDE * SIDE * SIDE * 1e9 / c.ns, "flop/s", "kernels.product.flops");
    }
    return NULL;
}

static kb_error *run(bench *b)
{
    return bench_wants(b, "kernels") ? measure(b) : NULL;
}

static kb_error *run_products(kb_context *ctx, uint64_t width, uint64_t times)
{
    kb_tensor x, w, y;
    KB_TRY(make(ctx, TOKENS, width, &everywhere, &x));
    KB_TRY(make(ctx, width, width, &by_columns, &w));
    KB_TRY(make(ctx, TOKENS, width, &by_columns, &y));
    for (uint64_t i = 0; i < times; i++)
        KB_TRY(kb_launch(ctx, "project", &project, x, w, y, TOKENS, width));
    return NULL;
}

static kb_error *run_shared(kb_context *ctx, uint64_t times)
{
    kb_tensor x;
    kb_machine machine = kb_context_machine(ctx);
    KB_TRY(make(ctx, 1, (uint64_t)machine.cubes * machine.pes * BLOCK, &by_columns, &x));
    return kb_launch(ctx, "share", &share, x, times);
}

/* A product of that width, so many times; or with width 0 so many blocks. */
static kb_error *count(uint32_t width, uint64_t times, uint64_t *done)
{
    kb_context *ctx;
    KB_TRY(kb_context_create(&(kb_context_options){.timing_only = true}, &ctx));
    kb_error *err = width > 0 ? run_products(ctx, width, times) : run_shared(ctx, times);
    *done = count_commands(ctx);
    kb_context_destroy(ctx);
    return err;
}

static const bench_work works[] = {
    {"kernels.composite", count, 3072, 1, 3},
    {"kernels.shared", count, 0, 4, 12},
    {0},
};

const bench_suite bench_kernels = {
    .title = "Kernels: commands, launches, products on the default machine",
    .run = run,
    .works = works,
};
