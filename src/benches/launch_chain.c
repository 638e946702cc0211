/*
 * launch_chain.c: the cost of launching kernels that depend on each other. Every PE adds 1 to the
 * block that a PE of the next cube wrote in the previous launch. The order is kept by the host,
 * which waits for each launch, by a stream, or by a graph.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include <stdlib.h>

#include "benches.h"

enum { BLOCK = 64, HOST = 0, STREAM, GRAPH };

KB_KERNEL(add_to_next, tl_ptr to, tl_ptr from)
{
    int64_t pes = tl_num_programs(0), cubes = tl_num_programs(1);
    int64_t me = tl_program_id(1) * pes + tl_program_id(0);
    int64_t other = (tl_program_id(1) + 1) % cubes * pes + tl_program_id(0);
    tl_tensor block = tl_load(from + other * BLOCK * 4, tl_shape(BLOCK), TL_F32);
    tl_store(to + me * BLOCK * 4, tl_add(block, 1));
}

typedef struct chain {
    kb_context *ctx;
    kb_tensor x[2]; /* read and written alternately */
    int64_t launches;
    kb_time took;
} chain;

static kb_error *launch_at_host(const chain *c)
{
    for (int64_t i = 0; i < c->launches; i++)
        KB_TRY(kb_launch(c->ctx, NULL, &add_to_next, c->x[(i + 1) % 2], c->x[i % 2]));
    return NULL;
}

static kb_error *launch_in_stream(const chain *c)
{
    for (int64_t i = 0; i < c->launches; i++) {
        kb_request request;
        KB_TRY(
            kb_launch_async(c->ctx, &request, NULL, &add_to_next, c->x[(i + 1) % 2], c->x[i % 2]));
        KB_TRY(kb_request_free(c->ctx, request));
    }
    return kb_synchronize(c->ctx);
}

static kb_error *launch_graph(chain *c)
{
    kb_graph graph;
    KB_TRY(kb_graph_begin(c->ctx, "chain", &graph));
    KB_TRY(launch_at_host(c)); /* recorded, not run */
    KB_TRY(kb_graph_end(c->ctx, graph));
    kb_time began = kb_context_now(c->ctx);
    KB_TRY(kb_graph_launch(c->ctx, graph, NULL));
    c->took = kb_context_now(c->ctx) - began;
    return kb_graph_free(c->ctx, graph);
}

static kb_error *make(kb_context *ctx, const char *name, uint64_t elements, kb_tensor *x)
{
    static const kb_policy by_blocks = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    return kb_zeros(ctx,
                    &(kb_tensor_spec){.name = name,
                                      .dtype = KB_F32,
                                      .shape = KB_SHAPE(elements),
                                      .policy = &by_blocks,
                                      .access = KB_UNTIMED},
                    x);
}

static kb_error *verify(kb_bench *bench, const chain *c, uint64_t elements)
{
    double *expected = malloc(elements * sizeof *expected);
    if (!expected)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    for (uint64_t i = 0; i < elements; i++)
        expected[i] = (double)c->launches;
    kb_error *err = kb_bench_verify(bench, c->x[c->launches % 2], expected, 0, 0);
    free(expected);
    return err;
}

static kb_error *run(kb_bench *bench)
{
    static const char *const where[] = {"the host waits for each", "in a stream", "in a graph"};
    kb_context *ctx = kb_bench_context(bench);
    kb_machine machine = kb_context_machine(ctx);
    uint64_t pes = (uint64_t)machine.cubes * machine.pes, elements = pes * BLOCK;
    int64_t order = kb_bench_param(bench, "order");
    chain c = {.ctx = ctx, .launches = kb_bench_param(bench, "launches")};
    KB_TRY(make(ctx, "x", elements, &c.x[0]));
    KB_TRY(make(ctx, "y", elements, &c.x[1]));
    kb_bench_print(bench, "%lld dependent launches over %llu PEs of one SIP: %s",
                   (long long)c.launches, (unsigned long long)pes, where[order]);
    kb_time began = kb_context_now(ctx), kernels = kb_context_kernel_time(ctx);
    KB_TRY(order == HOST     ? launch_at_host(&c)
           : order == STREAM ? launch_in_stream(&c)
                             : launch_graph(&c));
    if (order != GRAPH) /* a graph is recorded first */
        c.took = kb_context_now(ctx) - began;
    kernels = kb_context_kernel_time(ctx) - kernels;
    double launches = (double)(c.launches > 0 ? c.launches : 1);
    kb_bench_metric(bench, "kernel_time", kb_to_ns(kernels) / launches, "ns a launch");
    kb_bench_metric(bench, "launch_cost", kb_to_ns(c.took - kernels) / launches,
                    "ns a launch, beyond its kernels");
    return verify(bench, &c, elements);
}

static const char *const orders[] = {"host", "stream", "graph", NULL};

static const kb_param params[] = {
    {.name = "launches",
     .value = 36,
     .min = 0,
     .max = 1 << 16,
     .help = "that depend on each other"},
    {.name = "order", .value = GRAPH, .help = "where the order is kept", .names = orders},
};

const kb_bench_spec bench_launch_chain = {
    .name = "launch_chain",
    .summary = "kernels that depend on each other, launched by the host, a stream or a graph",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
