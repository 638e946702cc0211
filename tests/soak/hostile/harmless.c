/* harmless.c: a bench that does nothing wrong, for files of odd names. */
#include <kernbench/kernbench.h>

static kb_error *run(kb_bench *bench)
{
    kb_bench_print(bench, "plain");
    return NULL;
}

static const kb_bench_spec plain = {.name = "plain", .summary = "does nothing", .run = run};

KB_EXPORT_BENCHES(&plain);
