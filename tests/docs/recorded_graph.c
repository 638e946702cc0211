/* recorded_graph.c: the graph of docs/streams.md, around the calls that are shown there. */
#include <stdio.h>
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

KB_KERNEL(scale, tl_ptr x, float factor)
{
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_store(x + 4 * me, tl_mul(tl_load(x + 4 * me, tl_shape(1), TL_F32), factor));
}

static kb_error *calls(kb_context *ctx, kb_tensor x, kb_graph *graph)
{
    kb_graph step;
    /* @CALLS@ */
    *graph = step;
    return NULL;
}

static kb_error *run(kb_context *ctx)
{
    kb_machine machine = kb_context_machine(ctx);
    const kb_policy by_pes = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F32,
                           .shape = KB_SHAPE((uint64_t)machine.cubes * machine.pes),
                           .policy = &by_pes};
    kb_tensor x;
    kb_graph graph;
    double value;
    KB_TRY(kb_full(ctx, &spec, 1024, &x));
    KB_TRY(calls(ctx, x, &graph));
    KB_TRY(kb_tensor_get(ctx, x, KB_TIMED, &KB_INDEX(machine.pes), &value));
    printf("%g\n", value);
    return kb_graph_free(ctx, graph);
}

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = run(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
