/* embedded.h: the commands as a part of another program. */
#ifndef KB_CLI_EMBEDDED_H
#define KB_CLI_EMBEDDED_H

#include <kernbench/kernbench.h>

/* The bench that `run` runs, and the stacks of its kernels; NULL: the one that --bench names. */
typedef struct embedded_bench {
    const kb_bench_spec *spec;
    uint64_t stack_bytes;
} embedded_bench;

extern embedded_bench embedded_bench_given;

#endif
