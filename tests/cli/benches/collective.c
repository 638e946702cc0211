/*
 * collective.c: for ccl.sh: a bench, and collectives of its own, in one file. Each participant of a
 * ring gets what the one before it has. COLLECTIVE_NAME may be defined otherwise.
 */
#include <kernbench/ccl.h>

#ifndef COLLECTIVE_NAME
#define COLLECTIVE_NAME "pass_on"
#endif

KB_KERNEL(pass_on, tl_ptr mine, int64_t count, int dtype)
{
    tl_send("ahead", tl_load(mine, tl_shape(count), (kb_dtype)dtype));
    tl_store(mine, tl_recv("ahead", tl_shape(count), (kb_dtype)dtype));
}

static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    return NULL;
}

static const kb_ccl_algorithm algorithm = {
    .name = COLLECTIVE_NAME,
    .summary = "everybody gets what the one before has",
    .kernel = &pass_on,
    .arguments = arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

static kb_error *connect(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                         kb_ccl_graph *graph)
{
    uint32_t count;
    const kb_ccl_participant *m = kb_ccl_subgroup(participants, 0, &count);
    uint32_t step = (uint32_t)kb_ccl_setting(scope, "kernel_step", 1);
    for (uint32_t i = 0; i < count; i++)
        KB_TRY(kb_ccl_connect(graph, m[i].pe, "ahead", m[(i + step) % count].pe));
    return NULL;
}

static const kb_ccl_topology topology = {.name = COLLECTIVE_NAME "_ring", .connect = connect};

static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&algorithm),
                                     .topologies = KB_CCL_LIST(&topology)};
KB_EXPORT_CCL(&plugin);

#ifndef COLLECTIVES_ALONE
/* The ranks' PEs have 1, 2, 3, 4; afterwards each has what the one before had. */
static kb_error *rotate(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    static const float before[] = {1, 2, 3, 4};
    static const double after[] = {4, 1, 2, 3};
    const kb_policy policy = {
        .cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE, .num_cubes = 1, .num_pes = 4};
    const kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(1, 4), .policy = &policy};
    const kb_collective_options options = {.algorithm = "mine"};
    kb_tensor host, x;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_from_host(ctx, &spec, before, sizeof before, &host));
    KB_TRY(kb_empty(ctx, &spec, &x));
    KB_TRY(kb_tensor_copy(ctx, x, host, KB_TIMED));
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, &options));
    KB_TRY(kb_bench_verify(bench, x, after, 0, 0));
    return kb_distributed_destroy_process_group(ctx);
}

static const kb_bench_spec rotate_bench = {
    .name = "rotate", .summary = "numbers go round", .run = rotate};
KB_EXPORT_BENCHES(&rotate_bench);
#endif
