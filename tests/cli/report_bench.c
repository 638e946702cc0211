/* report_bench.c: names that would be markup, and one PE that works much longer: for report.sh. */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#define HOSTILE "</script><img src=x onerror=alert(1)>"

KB_KERNEL(uneven, tl_ptr x, int64_t n)
{
    int64_t pe = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_ptr own = x + pe * n * 4;
    for (int64_t i = 0; i < (pe == 1 ? 60 : 2); i++)
        TL_SCOPE {
            tl_store(own, tl_exp(tl_load(own, tl_shape(n), TL_F32)));
        }
}

static kb_error *run_hostile(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    static const kb_policy split = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const int64_t n = 256;
    kb_machine machine = kb_context_machine(ctx);
    uint64_t pes = (uint64_t)machine.cubes * machine.pes;
    const kb_tensor_spec spec = {.name = HOSTILE,
                                 .dtype = KB_F32,
                                 .shape = KB_SHAPE((uint64_t)n * pes),
                                 .policy = &split,
                                 .access = KB_UNTIMED};
    kb_tensor x;
    KB_TRY(kb_full(ctx, &spec, 0, &x));
    return kb_launch(ctx, HOSTILE "&amp;\"'\xff", &uneven, x, n);
}
static const kb_bench_spec hostile = {
    .name = "hostile", .summary = "names that would be markup", .run = run_hostile};

KB_EXPORT_BENCHES(&hostile);
