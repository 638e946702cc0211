/*
 * common.c: matrices, references and metrics for benches. The reference is simple, and independent
 * of how kernels divide their work.
 */
#include "common.h"

#include <math.h>
#include <stdlib.h>

static kb_error *no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

/* ---- Matrices ---- */

kb_error *matrix_empty(kb_bench *bench, const matrix_spec *spec, matrix *m)
{
    const kb_tensor_spec tensor = {.name = spec->name,
                                   .dtype = spec->dtype,
                                   .shape = KB_SHAPE(spec->rows, spec->columns),
                                   .policy = spec->policy,
                                   .access = KB_UNTIMED};
    *m = (matrix){.rows = spec->rows, .columns = spec->columns, .dtype = spec->dtype};
    return kb_empty(kb_bench_context(bench), &tensor, &m->tensor);
}

/* Fills with numbers that are rounded to the dtype, as kernels see them. */
static kb_error *fill(kb_bench *bench, matrix *m, uint64_t seed, void *elements, float *floats)
{
    size_t count = (size_t)(m->rows * m->columns);
    kb_bench_random(seed, m->dtype, elements, count);
    KB_TRY(kb_tensor_set_slice(kb_bench_context(bench), m->tensor, KB_UNTIMED, NULL, elements,
                               count * kb_dtype_bytes(m->dtype)));
    if (!kb_bench_verifies(bench))
        return NULL;
    m->numbers = malloc(count * sizeof *m->numbers);
    if (!m->numbers)
        return no_memory();
    kb_convert(KB_F32, floats, m->dtype, elements, count);
    for (size_t i = 0; i < count; i++)
        m->numbers[i] = (double)floats[i];
    return NULL;
}

kb_error *matrix_random(kb_bench *bench, const matrix_spec *spec, uint64_t seed, matrix *m)
{
    KB_TRY(matrix_empty(bench, spec, m));
    if (kb_context_is_timing_only(kb_bench_context(bench)))
        return NULL;
    size_t count = (size_t)(m->rows * m->columns);
    void *elements = malloc(count * kb_dtype_bytes(m->dtype));
    float *floats = malloc(count * sizeof *floats);
    kb_error *err = elements && floats ? fill(bench, m, seed, elements, floats) : no_memory();
    free(elements);
    free(floats);
    return err;
}

void matrix_fini(matrix *m)
{
    free(m->numbers);
    m->numbers = NULL;
}

/* ---- Reference ---- */

static double product_at(const matrix *a, const matrix *b, uint64_t row, uint64_t column)
{
    double sum = 0;
    for (uint64_t i = 0; i < a->columns; i++)
        sum += a->numbers[row * a->columns + i] * b->numbers[i * b->columns + column];
    return sum;
}

/* The whole product, row by row of b for locality. */
static void whole_product(const matrix *a, const matrix *b, double *c)
{
    for (uint64_t row = 0; row < a->rows; row++) {
        double *sums = c + row * b->columns;
        for (uint64_t column = 0; column < b->columns; column++)
            sums[column] = 0;
        for (uint64_t i = 0; i < a->columns; i++) {
            double factor = a->numbers[row * a->columns + i];
            for (uint64_t column = 0; column < b->columns; column++)
                sums[column] += factor * b->numbers[i * b->columns + column];
        }
    }
}

/* Some elements, evenly spaced, and the corners; the others are not compared. */
static void sampled_product(const matrix *a, const matrix *b, double *c)
{
    enum { SAMPLES = 4099 }; /* a prime, so that samples are in many columns */
    uint64_t count = a->rows * b->columns;
    for (uint64_t i = 0; i < count; i++)
        c[i] = (double)NAN;
    for (uint64_t i = 0; i <= SAMPLES; i++) {
        uint64_t at = (uint64_t)((double)(count - 1) * ((double)i / SAMPLES));
        c[at] = product_at(a, b, at / b->columns, at % b->columns);
    }
}

typedef struct tolerance {
    double relative, absolute;
} tolerance;

/* Sums are made in f32 and rounded once: to the 11 bits of f16, or the 8 of bf16. The error of a
 * sum is about 2^-24 for each of the k products, which are at max_products 1. Integers are exact.
 */
static tolerance tolerance_of(kb_dtype dtype, uint64_t k)
{
    switch (dtype) {
    case KB_F16:
        return (tolerance){1e-3, 2e-3};
    case KB_BF16:
        return (tolerance){4e-3, 2e-3};
    case KB_I8:
    case KB_I32:
        return (tolerance){0, 0};
    default:
        return (tolerance){1e-6, 1e-6 * (double)k};
    }
}

kb_error *matrix_verify_product(kb_bench *bench, const matrix *c, const matrix *a, const matrix *b)
{
    static const double max_products = 1e9; /* computed in about a second */
    if (!kb_bench_verifies(bench))
        return kb_bench_verify(bench, c->tensor, NULL, 0, 0);
    double *expected = malloc((size_t)(c->rows * c->columns) * sizeof *expected);
    if (!expected)
        return no_memory();
    if ((double)c->rows * (double)c->columns * (double)a->columns <= max_products)
        whole_product(a, b, expected);
    else
        sampled_product(a, b, expected);
    tolerance t = tolerance_of(c->dtype, a->columns);
    kb_error *err = kb_bench_verify(bench, c->tensor, expected, t.relative, t.absolute);
    free(expected);
    return err;
}

/* ---- Launches ---- */

kb_error *wait_for_launch(kb_bench *bench, kb_request launch, kb_time kernels_before,
                          launch_time *time)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_completion completion;
    *time = (launch_time){0};
    KB_TRY(kb_request_wait(ctx, launch, &completion));
    time->total = completion.ended - completion.issued;
    time->kernels = kb_context_kernel_time(ctx) - kernels_before;
    return kb_request_free(ctx, launch);
}

void report_tflops(kb_bench *bench, double flops, const launch_time *time)
{
    kb_bench_metric(bench, "tflops", kb_to_tflops(flops, time->kernels),
                    "TFLOP/s while the kernel runs");
}
