/*
 * tp_ranks.h: a machine with some ranks, a worker on each, and matrices in double precision, for
 * the tests of layers.
 */
#ifndef TESTS_TP_RANKS_H
#define TESTS_TP_RANKS_H

#include <kernbench/tp.h>

#include "tp_machines.h"

/* A worker's device, process group and model parallelism. */
static inline kb_error *join_ranks(kb_context *ctx, uint32_t rank, uint32_t size)
{
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    return kb_tp_initialize_model_parallel(ctx, size);
}

/* out (m, n) = x (m, k) * w (k, n) + b */
static inline void multiply(const double *x, const double *w, const double *b, double *out,
                            uint64_t m, uint64_t k, uint64_t n)
{
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = b ? b[j] : 0;
            for (uint64_t l = 0; l < k; l++)
                sum += x[i * k + l] * w[l * n + j];
            out[i * n + j] = sum;
        }
}

/* Small integers; free() them. */
static inline double *integers(uint64_t seed, uint64_t count)
{
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = small_integer(seed, i);
    return numbers;
}

static inline kb_tensor make_host_tensor(kb_context *ctx, kb_dtype dtype, kb_shape shape,
                                         const double *numbers)
{
    size_t count = count_elements(&shape);
    void *data = convert_numbers(dtype, numbers, count);
    kb_tensor t;
    const kb_tensor_spec spec = {.dtype = dtype, .shape = shape};
    expect_ok(kb_from_host(ctx, &spec, data, count * kb_dtype_bytes(dtype), &t));
    free(data);
    return t;
}

/* Compares with columns [column, column + columns) of `expected`, which has `all` of them. */
static inline void expect_columns(kb_context *ctx, kb_tensor t, const double *expected,
                                  uint64_t rows, uint64_t all, uint64_t column, uint64_t columns)
{
    kb_dtype dtype;
    expect_ok(kb_tensor_dtype(ctx, t, &dtype));
    float *found = read_tensor(ctx, t, rows * columns);
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < columns; j++) {
            float wide = (float)expected[i * all + column + j], rounded;
            unsigned char bytes[4];
            kb_convert(dtype, bytes, KB_F32, &wide, 1);
            kb_convert(KB_F32, &rounded, dtype, bytes, 1);
            if (found[i * columns + j] != rounded)
                fail_msg("element (%llu, %llu) is %g, expected %g", (unsigned long long)i,
                         (unsigned long long)j, (double)found[i * columns + j], (double)rounded);
        }
    free(found);
}

#endif
