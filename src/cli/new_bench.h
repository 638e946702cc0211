/* new_bench.h: data/new-bench.c as text; made by CMake. */
#ifndef KB_CLI_NEW_BENCH_H
#define KB_CLI_NEW_BENCH_H

extern const char new_bench_text[];

#endif
