/* ccl_common.c: numbers and tables for the benches of collectives. */
#include "ccl_common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const bench_dtypes[] = {"f16", "bf16", "f32", NULL};
const char *const bench_ops[] = {"sum", "max", "min", "prod", "avg", NULL};
const char *const bench_ops_or_default[] = {"sum", "max", "min", "prod", "avg", "default", NULL};

/* ---- Time -------------------------------------------------------------------------------- */

/* Barriers take no time, and all ranks leave a barrier at the same instant: the second one ends
 * when the last rank is done. */
kb_error *bench_time(kb_context *ctx, bench_call_fn *call, void *arg, uint32_t rank, kb_time *time)
{
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    kb_time began = kb_context_now(ctx);
    KB_TRY(call(arg, rank));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    *time = kb_context_now(ctx) - began;
    return NULL;
}

/* ---- The table --------------------------------------------------------------------------- */

kb_error *bench_get_sizes(const kb_bench *bench, bench_sizes *sizes)
{
    uint64_t first = (uint64_t)kb_bench_param(bench, "min_bytes");
    *sizes = (bench_sizes){.first = first > 0 ? first : 1,
                           .last = (uint64_t)kb_bench_param(bench, "max_bytes"),
                           .factor = (uint64_t)kb_bench_param(bench, "factor")};
    if (sizes->first <= sizes->last)
        return NULL;
    if (sizes->last == 0)
        return kb_error_new(KB_ERR_INPUT, "min_bytes needs max_bytes");
    return kb_error_new(KB_ERR_INPUT, "max_bytes=%" PRIu64 " is less than min_bytes=%" PRIu64,
                        sizes->last, sizes->first);
}

void bench_print_head(kb_bench *bench, const char *size_label, uint32_t ranks)
{
    kb_bench_print(bench, "%u rank%s; size: %s; time: from the call until the last rank is done",
                   ranks, ranks == 1 ? "" : "s", size_label);
    kb_bench_print(bench, "algbw: size / time; busbw: algbw * the bus factor of nccl-tests; wrong: "
                          "elements that differ from a reference");
    kb_bench_print(bench,
                   "bound: lower bound of any algorithm on this machine, from bandwidths and "
                   "vector rate; reached: bound / time");
    kb_bench_print(bench, "%12s %12s %5s %5s %5s %12s %8s %8s %7s %12s %7s  %s", "size", "count",
                   "type", "redop", "root", "time", "algbw", "busbw", "wrong", "bound", "reached",
                   "algorithm");
    kb_bench_print(bench, "%12s %12s %5s %5s %5s %12s %8s %8s %7s %12s %7s", "(B)", "(elements)",
                   "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(%)");
}

/* The values of the table as metrics, by size. Without a comparison there is no `wrong`. */
static void add_metrics(kb_bench *bench, const bench_row *row, double us, double algbw)
{
    const struct {
        const char *name;
        double value;
        const char *unit;
    } all[] = {
        {"time", us, "us"},
        {"algbw", algbw, "GB/s"},
        {"busbw", algbw * row->stats.bus_factor, "GB/s"},
        {"bound", kb_to_ns(row->stats.lower_bound) / 1000, "us"},
        {"wrong", (double)row->wrong, "elements"},
    };
    size_t count = sizeof all / sizeof all[0] - (row->checked ? 0 : 1);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%" PRIu64, all[i].name, row->size);
        kb_bench_detail(bench, name, all[i].value, all[i].unit);
    }
}

static double row_us(const bench_row *row)
{
    return kb_to_ns(row->time) / 1000;
}

static double row_algbw(const bench_row *row)
{
    return row->time > 0 ? (double)row->size / row_us(row) / 1000 : 0;
}

void bench_add_largest(kb_bench *bench, const bench_row *row)
{
    kb_bench_detail(bench, "time_us", row_us(row), "us");
    kb_bench_detail(bench, "algbw_gbs", row_algbw(row), "GB/s");
    kb_bench_detail(bench, "busbw_gbs", row_algbw(row) * row->stats.bus_factor, "GB/s");
    kb_bench_detail(bench, "bound_us", kb_to_ns(row->stats.lower_bound) / 1000, "us");
}

/* A number with two decimals, or three significant digits if it is too small for those. */
typedef struct figure {
    char text[24];
} figure;

static figure print_figure(double value)
{
    figure f;
    bool is_small = value > 0 && value < 0.1;
    snprintf(f.text, sizeof f.text, is_small ? "%.3g" : "%.2f", value);
    return f;
}

void bench_print_row(kb_bench *bench, const bench_row *row)
{
    double us = row_us(row), bound = kb_to_ns(row->stats.lower_bound) / 1000;
    double algbw = row_algbw(row);
    char wrong[24] = "n/a";
    if (row->checked)
        snprintf(wrong, sizeof wrong, "%" PRIu64, row->wrong);
    kb_bench_print(bench, "%12" PRIu64 " %12" PRIu64 " %5s %5s %5s %12s %8s %8s %7s %12s %7.1f  %s",
                   row->size, row->count, kb_dtype_name(row->dtype), row->op, row->root,
                   print_figure(us).text, print_figure(algbw).text,
                   print_figure(algbw * row->stats.bus_factor).text, wrong,
                   print_figure(bound).text, us > 0 ? 100 * bound / us : 0, row->stats.algorithm);
    add_metrics(bench, row, us, algbw);
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static bool to_doubles(kb_dtype dtype, const void *data, double *numbers, uint64_t count)
{
    float *floats = malloc((count > 0 ? count : 1) * sizeof *floats);
    if (!floats)
        return false;
    kb_convert(KB_F32, floats, dtype, data, count);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = (double)floats[i];
    free(floats);
    return true;
}

double *bench_numbers(uint64_t seed, kb_dtype dtype, uint64_t count)
{
    uint64_t room = count > 0 ? count : 1;
    void *data = malloc(room * kb_dtype_bytes(dtype));
    double *numbers = malloc(room * sizeof *numbers);
    if (data && numbers) {
        kb_bench_random(seed, dtype, data, count);
        if (to_doubles(dtype, data, numbers, count)) {
            free(data);
            return numbers;
        }
    }
    free(data);
    free(numbers);
    return NULL;
}

static kb_error *no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

kb_error *bench_fill(kb_context *ctx, kb_tensor tensor, kb_dtype dtype, const double *numbers,
                     uint64_t count)
{
    size_t bytes = count * kb_dtype_bytes(dtype);
    float *floats = malloc((count > 0 ? count : 1) * sizeof *floats);
    void *data = malloc(bytes > 0 ? bytes : 1);
    kb_error *err = NULL;
    if (!floats || !data) {
        err = no_memory();
    } else {
        for (uint64_t i = 0; i < count; i++)
            floats[i] = (float)numbers[i];
        kb_convert(dtype, data, KB_F32, floats, count);
        err = kb_tensor_set_slice(ctx, tensor, KB_UNTIMED, NULL, data, bytes);
    }
    free(floats);
    free(data);
    return err;
}

kb_error *bench_read(kb_context *ctx, kb_tensor tensor, kb_dtype dtype, double *numbers,
                     uint64_t count)
{
    size_t bytes = count * kb_dtype_bytes(dtype);
    void *data = malloc(bytes > 0 ? bytes : 1);
    if (!data)
        return no_memory();
    kb_error *err = kb_tensor_to_host(ctx, tensor, KB_UNTIMED, data, bytes);
    if (!err && !to_doubles(dtype, data, numbers, count))
        err = no_memory();
    free(data);
    return err;
}

double bench_combine(kb_reduce_op op, double a, double b)
{
    switch (op) {
    case KB_MAX:
        return fmax(a, b);
    case KB_MIN:
        return fmin(a, b);
    case KB_PROD:
        return a * b;
    case KB_SUM:
    case KB_AVG:
    case KB_REDUCE_OPS:
        break;
    }
    return a + b;
}

double bench_tolerance(kb_dtype dtype, uint32_t ranks)
{
    /* The error of each operation is up to half a unit in the last place, of either sign: the sum
     * grows as the square root of their number. */
    double unit = dtype == KB_F16 ? 0x1p-10 : dtype == KB_BF16 ? 0x1p-7 : 0x1p-23;
    return unit * (1 + sqrt((double)ranks));
}
