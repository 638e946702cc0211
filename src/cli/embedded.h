/* embedded.h: the commands as a part of another program, which may have a bench of its own. */
#ifndef KB_CLI_EMBEDDED_H
#define KB_CLI_EMBEDDED_H

#include <kernbench/kernbench.h>

/* The bench of the program, NULL if there is none. */
const kb_bench_spec *embedded_bench(void);

/* The stacks of its kernels, unless the command line says something else than the default. */
uint64_t embedded_stack_bytes(uint64_t chosen, uint64_t by_default);

#endif
