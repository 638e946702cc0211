/*
 * bench.h: programs that the command line runs, with parameters, metrics and verification.
 */
#ifndef KERNBENCH_BENCH_H
#define KERNBENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Benches ----------------------------------------------------------------------------- */

/*
 * A bench is a program that the command line runs. A file with this in it is compiled and run by
 * "kernbench run --bench ./mine.c" (docs/tutorial.md); those that ship are made the same way:
 *
 *     static const kb_param params[] = {
 *         {.name = "n", .value = 256, .min = 1, .max = 1 << 20, .help = "elements"}};
 *
 *     static kb_error *run(kb_bench *bench)
 *     {
 *         kb_context *ctx = kb_bench_context(bench);
 *         int64_t n = kb_bench_param(bench, "n");
 *         ...
 *         return kb_bench_verify(bench, y, expected, 1e-3, 1e-3);
 *     }
 *
 *     static const kb_bench_spec mine = {
 *         .name = "mine",
 *         .summary = "what it does",
 *         .params = params,
 *         .param_count = 1,
 *         .run = run,
 *     };
 *
 *     KB_EXPORT_BENCHES(&mine);
 */
typedef struct kb_bench kb_bench;

/* What can be given with --param: a whole number (4096, or 4KiB), or one of several names. */
typedef struct kb_param {
    const char *name;
    int64_t value; /* unless it is given; of names the index */
    int64_t min, max;
    const char *help;
    const char *const *names; /* the last one is NULL; min and max are then not looked at. NULL: it
                                 is a number */
} kb_param;

typedef struct kb_bench_spec {
    const char *name;
    const char *summary; /* one line */
    const kb_param *params;
    size_t param_count;
    kb_error *(*run)(kb_bench *bench);
    /* NULL, or whether it is too large for data with these parameters: it then runs timing-only,
     * unless it is to be verified, and the run says so. There is no context yet. */
    bool (*is_timing_only)(const kb_bench *bench);
} kb_bench_spec;

/* What a file with benches ends with. */
#define KB_EXPORT_BENCHES(...)                                                                     \
    KB_API extern const char kb_exported_interface[];                                              \
    const char kb_exported_interface[] = KB_INTERFACE;                                             \
    KB_API extern const kb_bench_spec *const kb_exported_benches[];                                \
    const kb_bench_spec *const kb_exported_benches[] = {__VA_ARGS__, NULL}

/* Which headers a file was compiled with: those of another interface are refused. */
#define KB_INTERFACE "0.2"

KB_API kb_context *kb_bench_context(const kb_bench *bench);

/* The SIPs that it may use, all or the one of --device: their count, and the number of one. */
KB_API uint32_t kb_bench_device_count(const kb_bench *bench);
KB_API uint32_t kb_bench_device(const kb_bench *bench, uint32_t index);

/* A parameter's value, of names the index. One that the bench does not have is a bug of the bench:
 * the run ends. */
KB_API int64_t kb_bench_param(const kb_bench *bench, const char *name);

/* Whether results are to be verified: then there is data. */
KB_API bool kb_bench_verifies(const kb_bench *bench);

/* A line of its own in the output. */
KB_API void kb_bench_print(kb_bench *bench, const char *format, ...) KB_PRINTF(2, 3);

/* A metric: in the summary and among the `metrics` of --json. Metrics named "a.x" and
 * "a.y" are the members x and y of an object `a` there. */
KB_API void kb_bench_metric(kb_bench *bench, const char *name, double value, const char *unit);

/* The same for --json alone: a metric that the bench prints itself. */
KB_API void kb_bench_detail(kb_bench *bench, const char *name, double value, const char *unit);

/*
 * Waits for the caller's work, as every look at contents does, and then compares a tensor with what
 * it should be, row by row, if results are to be verified: each element may be off by absolute +
 * relative * |expected|; where NaN is expected, anything is right. The error has the first element
 * that is further off. Comparing takes no simulated time. Of a replicated tensor one copy is
 * compared. If nothing is to be verified, `expected` may be NULL.
 */
KB_API KB_MUST_USE kb_error *kb_bench_verify(kb_bench *bench, kb_tensor tensor,
                                             const double *expected, double relative,
                                             double absolute);

/* For a bench that compares results by itself: they were right. (If they are not, it returns an
 * error of KB_ERR_CHECK.) */
KB_API void kb_bench_confirm(kb_bench *bench);

/* Numbers to fill tensors with: the same for the same seed, everywhere; from -1 to 1, in types of
 * whole numbers -1, 0 or 1. */
KB_API void kb_bench_random(uint64_t seed, kb_dtype dtype, void *data, size_t count);

#ifdef __cplusplus
}
#endif

#endif
