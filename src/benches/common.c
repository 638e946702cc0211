/*
 * common.c: what benches share. The reference is as plain as can be, and knows nothing of how
 * kernels cut their work.
 */
#include "common.h"

#include <math.h>
#include <stdlib.h>

static kb_error *no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

/* ---- Matrices ---- */

kb_error *matrix_empty(kb_bench *bench, const char *name, uint64_t rows, uint64_t columns,
                       const kb_policy *policy, matrix *m)
{
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = KB_F16,
                                 .shape = KB_SHAPE(rows, columns),
                                 .policy = policy,
                                 .door = KB_BACKDOOR};
    *m = (matrix){.rows = rows, .columns = columns};
    return kb_empty(kb_bench_context(bench), &spec, &m->tensor);
}

/* What f16 makes of the numbers is what kernels see. */
static kb_error *fill(kb_bench *bench, matrix *m, uint64_t seed, uint16_t *halves, float *floats)
{
    size_t count = (size_t)(m->rows * m->columns);
    kb_bench_random(seed, KB_F16, halves, count);
    KB_TRY(kb_tensor_set_slice(kb_bench_context(bench), m->tensor, KB_BACKDOOR, NULL, halves,
                               count * sizeof *halves));
    if (!kb_bench_verifies(bench))
        return NULL;
    m->numbers = malloc(count * sizeof *m->numbers);
    if (!m->numbers)
        return no_memory();
    kb_convert(KB_F32, floats, KB_F16, halves, count);
    for (size_t i = 0; i < count; i++)
        m->numbers[i] = (double)floats[i];
    return NULL;
}

kb_error *matrix_random(kb_bench *bench, const char *name, uint64_t rows, uint64_t columns,
                        const kb_policy *policy, uint64_t seed, matrix *m)
{
    KB_TRY(matrix_empty(bench, name, rows, columns, policy, m));
    if (kb_context_is_timing_only(kb_bench_context(bench)))
        return NULL;
    size_t count = (size_t)(rows * columns);
    uint16_t *halves = malloc(count * sizeof *halves);
    float *floats = malloc(count * sizeof *floats);
    kb_error *err = halves && floats ? fill(bench, m, seed, halves, floats) : no_memory();
    free(halves);
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

/* All of it, in an order that memory likes: row by row of b. */
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

/* Some elements, spread evenly over all, and the corners; the others are not compared. */
static void sampled_product(const matrix *a, const matrix *b, double *c)
{
    enum { SAMPLES = 4099 }; /* a prime: they do not all fall into a few columns */
    uint64_t count = a->rows * b->columns;
    for (uint64_t i = 0; i < count; i++)
        c[i] = (double)NAN;
    for (uint64_t i = 0; i <= SAMPLES; i++) {
        uint64_t at = (uint64_t)((double)(count - 1) * ((double)i / SAMPLES));
        c[at] = product_at(a, b, at / b->columns, at % b->columns);
    }
}

kb_error *matrix_verify_product(kb_bench *bench, const matrix *c, const matrix *a, const matrix *b)
{
    static const double most = 1e9; /* products that are made in about a second */
    if (!kb_bench_verifies(bench))
        return kb_bench_verify(bench, c->tensor, NULL, 0, 0);
    double *expected = malloc((size_t)(c->rows * c->columns) * sizeof *expected);
    if (!expected)
        return no_memory();
    if ((double)c->rows * (double)c->columns * (double)a->columns <= most)
        whole_product(a, b, expected);
    else
        sampled_product(a, b, expected);
    /* Sums are made in f32 and rounded once, to the 11 bits of f16. */
    kb_error *err = kb_bench_verify(bench, c->tensor, expected, 1e-3, 2e-3);
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
