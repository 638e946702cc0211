/* embedded.c: runs commands for another program, with a bench of that program. */
#include "embedded.h"

#include "cli.h"

/* One command runs at a time. */
static struct {
    const kb_bench_spec *spec; /* NULL: none */
    uint64_t stack_bytes;
} given;

const kb_bench_spec *embedded_bench(void)
{
    return given.spec;
}

uint64_t embedded_stack_bytes(uint64_t chosen, uint64_t by_default)
{
    return given.spec && chosen == by_default ? given.stack_bytes : chosen;
}

kb_code cli_dispatch_bench(int argc, char **argv, const kb_bench_spec *spec, uint64_t stack_bytes)
{
    given.spec = spec;
    given.stack_bytes = stack_bytes;
    kb_code code = cli_dispatch(argc, argv);
    given.spec = NULL;
    return code;
}
