/*
 * ccl_common.h: the numbers, expected results and table of the benches of collectives, with the
 * columns of nccl-tests.
 */
#ifndef KB_BENCHES_CCL_COMMON_H
#define KB_BENCHES_CCL_COMMON_H

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of parameters, indexed by kb_dtype or kb_reduce_op; "default" is the last. */
extern const char *const bench_dtypes[], *const bench_ops[], *const bench_ops_or_default[];

/* The common parameters; the last arguments are names, value and help of the operation. */
#define CCL_SWEEP_PARAMS(min_bytes, max_bytes, ...)                                                \
    {.name = "min_bytes",                                                                          \
     .value = (min_bytes),                                                                         \
     .min = 0,                                                                                     \
     .max = INT64_C(1) << 40,                                                                      \
     .help = "the smallest size, in bytes"},                                                       \
        {.name = "max_bytes",                                                                      \
         .value = (max_bytes),                                                                     \
         .min = 0,                                                                                 \
         .max = INT64_C(1) << 40,                                                                  \
         .help = "the largest size, in bytes"},                                                    \
        {.name = "factor", .value = 4, .min = 2, .max = 1024, .help = "from size to size"},        \
        {.name = "dtype", .names = bench_dtypes, .help = "of the elements"},                       \
        {.name = "op", __VA_ARGS__},                                                               \
        {.name = "root", .value = 0, .min = 0, .max = 1 << 16, .help = "where there is one"},      \
    {                                                                                              \
        .name = "warmup", .value = 1, .min = 0, .max = 100,                                        \
        .help = "calls before the one that is timed; the first call of all installs queues"        \
    }

/* One line of the table. */
typedef struct bench_row {
    uint64_t size, count; /* in bytes, and elements */
    kb_dtype dtype;
    const char *op, *root; /* "none" if there is none */
    kb_time time;
    bool checked;
    uint64_t wrong; /* elements */
    kb_collective_stats stats;
} bench_row;

/* The requested sizes of a sweep. Sizes are rounded down to whole elements, at least one for each
 * rank or shard. An error if there is no size from min_bytes to max_bytes. */
typedef struct bench_sizes {
    uint64_t first, last, factor;
} bench_sizes;

KB_MUST_USE kb_error *bench_get_sizes(const kb_bench *bench, bench_sizes *sizes);

/* The time of a collective: all ranks call at one instant, with nothing else pending, and the time
 * ends when the call of the last rank is done. `kernbench ccl tune` measures the same. Every worker
 * of the process group calls bench_time(), and each gets the same time. */
typedef kb_error *bench_call_fn(void *arg, uint32_t rank);
KB_MUST_USE kb_error *bench_time(kb_context *ctx, bench_call_fn *call, void *arg, uint32_t rank,
                                 kb_time *time);

/* The meaning of size, the number of ranks, and the column headings. */
void bench_print_head(kb_bench *bench, const char *size_label, uint32_t ranks);

/* A line of the table, and its values as metrics. */
void bench_print_row(kb_bench *bench, const bench_row *row);

/* The values of the largest size, as metrics without a size in their names: sweeps compare these.
 */
void bench_add_largest(kb_bench *bench, const bench_row *row);

/* The random numbers of a rank; to be freed with free(). NULL if there is no memory. */
double *bench_numbers(uint64_t seed, kb_dtype dtype, uint64_t count);

/* Writes numbers to a tensor, or reads them, untimed. */
KB_MUST_USE kb_error *bench_fill(kb_context *ctx, kb_tensor tensor, kb_dtype dtype,
                                 const double *numbers, uint64_t count);
KB_MUST_USE kb_error *bench_read(kb_context *ctx, kb_tensor tensor, kb_dtype dtype, double *numbers,
                                 uint64_t count);

/* Reduces two numbers in double precision; an average is a sum until it is divided. */
double bench_combine(kb_reduce_op op, double a, double b);

/* The tolerance of a result over this number of ranks, relative to its magnitude. */
double bench_tolerance(kb_dtype dtype, uint32_t ranks);

#endif
