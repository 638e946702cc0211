/*
 * head_tl.c: the kernel at the head of tl.h, on a tensor of ones that is split row-wise over cubes
 * and column-wise over PEs, 256 columns each. Every element becomes 0.5, on any machine.
 *
 * run: on-machines kernbench run --bench ./head_tl.c --verify-data
 */
#include <kernbench/kernbench.h>

#include "verify_all.h"

/* @EXAMPLE@ */

static kb_error *run(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_machine machine = kb_context_machine(ctx);
    const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    const kb_tensor_spec spec = {.name = "x",
                                 .dtype = KB_F16,
                                 .shape = KB_SHAPE(machine.cubes, machine.pes * 256),
                                 .policy = &policy};
    kb_tensor x;
    KB_TRY(kb_full(ctx, &spec, 1, &x));
    KB_TRY(kb_launch(ctx, "scale", &scale, x, 256, 0.5));
    return verify_all(bench, x, 0.5);
}

static const kb_bench_spec bench = {.name = "head_tl", .summary = "halves ones", .run = run};
KB_EXPORT_BENCHES(&bench);
