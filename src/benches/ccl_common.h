/*
 * ccl_common.h: what the benches of collectives share: the numbers that ranks begin with, what
 * should come of them, and the table of sizes and times, with the columns of nccl-tests.
 */
#ifndef KB_BENCHES_CCL_COMMON_H
#define KB_BENCHES_CCL_COMMON_H

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of parameters, whose index is the kb_dtype or kb_reduce_op; "default" comes behind. */
extern const char *const bench_dtypes[], *const bench_ops[], *const bench_ops_or_default[];

/* Parameters that all of them have; last come names, value and help of the operation. */
#define CCL_SWEEP_PARAMS(least, most, ...)                                                         \
    {.name = "min_bytes",                                                                          \
     .value = (least),                                                                             \
     .min = 0,                                                                                     \
     .max = INT64_C(1) << 40,                                                                      \
     .help = "the smallest size, in bytes"},                                                       \
        {.name = "max_bytes",                                                                      \
         .value = (most),                                                                          \
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
    const char *op, *root; /* "none" where there is none */
    kb_time time;
    bool checked;
    uint64_t wrong; /* elements */
    kb_collective_stats stats;
} bench_row;

/* The sizes of a sweep, as they are asked for: what is run has whole elements, and at least one for
 * each rank or shard. An error if there is none from min_bytes to max_bytes. */
typedef struct bench_sizes {
    uint64_t first, last, factor;
} bench_sizes;

KB_MUST_USE kb_error *bench_get_sizes(const kb_bench *bench, bench_sizes *sizes);

/*
 * The one way in which a collective is timed: all ranks call at one instant, with nothing else
 * under way, and the time ends when the call of the last rank is done. `kernbench ccl tune`
 * measures the same. Every worker of the process group calls this, and each gets the same time.
 */
typedef kb_error *bench_call_fn(void *arg, uint32_t rank);
KB_MUST_USE kb_error *bench_time(kb_context *ctx, bench_call_fn *call, void *arg, uint32_t rank,
                                 kb_time *time);

/* What size means for the collective, how many ranks there are, and the heads of the columns. */
void bench_print_head(kb_bench *bench, const char *size_means, uint32_t ranks);

/* A line, and its figures among the metrics. */
void bench_print_row(kb_bench *bench, const bench_row *row);

/* The numbers of a rank: the same for the same seed. free() them; NULL if there is no memory. */
double *bench_numbers(uint64_t seed, kb_dtype dtype, uint64_t count);

/* Writes numbers into a tensor untimed, and reads them. */
KB_MUST_USE kb_error *bench_fill(kb_context *ctx, kb_tensor tensor, kb_dtype dtype,
                                 const double *numbers, uint64_t count);
KB_MUST_USE kb_error *bench_read(kb_context *ctx, kb_tensor tensor, kb_dtype dtype, double *numbers,
                                 uint64_t count);

/* What `op` makes of two numbers, in double precision; an average is a sum until it is divided. */
double bench_combine(kb_reduce_op op, double a, double b);

/* By how much a result of so many numbers may be off, for each unit of their magnitude. */
double bench_tolerance(kb_dtype dtype, uint32_t ranks);

#endif
