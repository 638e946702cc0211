/*
 * scale.c: around the kernel and the host's lines of the README. A tensor of ones, halved, is 0.5
 * in every element.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "verify_all.h"

/* @KERNEL@ */

static kb_error *run(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_tensor x;
    /* @HOST@ */
    return verify_all(bench, x, 0.5);
}

static const kb_bench_spec bench = {.name = "scale", .summary = "halves ones", .run = run};
KB_EXPORT_BENCHES(&bench);
