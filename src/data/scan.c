/*
 * scan.c: operations along an axis that look at its elements in order: where the largest or the
 * smallest is, and running sums.
 *
 * A running sum is kept in double and rounded for each element, to f32 and then to the dtype, as a
 * sum is. Columns of a stripe are independent of each other, so threads change nothing.
 */
#include <string.h>

#include "data_private.h"

/* ---- Where the largest is ---------------------------------------------------------------- */

/* Looks at some rows from `row` on: `best` and `index` have a number for each column. */
typedef void better_fn(void *best, int32_t *index, const void *numbers, uint64_t row, size_t rows,
                       size_t columns);

#define BETTER(name, T, condition)                                                                 \
    static void name(void *best, int32_t *index, const void *numbers, uint64_t row, size_t rows,   \
                     size_t columns)                                                               \
    {                                                                                              \
        __typeof__(T) *as = best;                                                                  \
        const __typeof__(T) *xs = numbers;                                                         \
        for (size_t i = 0; i < rows; i++)                                                          \
            for (size_t j = 0; j < columns; j++) {                                                 \
                T a = as[j], x = xs[i * columns + j];                                              \
                if (row + i > 0 && !(condition))                                                   \
                    continue;                                                                      \
                as[j] = x;                                                                         \
                index[j] = (int32_t)(row + i);                                                     \
            }                                                                                      \
    }

/* The first NaN stays. */
BETTER(larger_f32, float, x > a || (x != x && a == a))
BETTER(smaller_f32, float, x < a || (x != x && a == a))
BETTER(larger_i32, int32_t, x > a)
BETTER(smaller_i32, int32_t, x < a)

static void find_in_stripe(const data_stripe *s)
{
    static better_fn *const fns[2][2] = {{larger_f32, smaller_f32}, {larger_i32, smaller_i32}};
    const data_value *value = s->value;
    better_fn *look = fns[s->class == DATA_IN_I32][value->op == DATA_ARGMIN];
    data_number best[DATA_BLOCK], block[DATA_BLOCK];
    int32_t *index = (int32_t *)(void *)value->bytes + s->first_result;
    memset(index, 0, s->columns * sizeof *index); /* of nothing */
    for (uint64_t row = 0, rows; row < s->length; row += rows) {
        rows = data_stripe_rows(s, row);
        look(best, index, data_stripe_get(s, row, rows, block), row, rows, s->columns);
    }
}

static data_class class_of(const data_value *value)
{
    return mem_is_integer(value->inputs[0]->dtype) ? DATA_IN_I32 : DATA_IN_F32;
}

static void find(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    KB_DEBUG_ASSERT(value->dtype == KB_I32);
    data_for_each_stripe(value, part, class_of(value), find_in_stripe);
}

static uint64_t cost(const data_value *value)
{
    return 2 * value->inputs[0]->elements;
}

const data_kernel data_argmax_kernel = {
    .parts = data_stripe_parts, .run = find, .cost = cost, .along_axis = true};

/* ---- Running sums ------------------------------------------------------------------------ */

typedef union sums {
    double f64[DATA_BLOCK];
    uint32_t u32[DATA_BLOCK]; /* modulo 2^32 */
} sums;

static void add_f32(sums *so_far, const float *numbers, size_t rows, size_t columns, float *out)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[i * columns + j] = (float)(so_far->f64[j] += (double)numbers[i * columns + j]);
}

static void add_i32(sums *so_far, const int32_t *numbers, size_t rows, size_t columns, int32_t *out)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[i * columns + j] = (int32_t)(so_far->u32[j] += (uint32_t)numbers[i * columns + j]);
}

static void sum_stripe(const data_stripe *s)
{
    const data_value *value = s->value;
    const size_t size = kb_dtype_bytes(value->dtype);
    data_number block[DATA_BLOCK], out[DATA_BLOCK];
    sums so_far;
    memset(&so_far, 0, sizeof so_far);
    for (uint64_t row = 0, rows; row < s->length; row += rows) {
        rows = data_stripe_rows(s, row);
        const void *numbers = data_stripe_get(s, row, rows, block);
        if (s->class == DATA_IN_F32)
            add_f32(&so_far, numbers, rows, s->columns, &out->f32);
        else
            add_i32(&so_far, numbers, rows, s->columns, &out->i32);
        data_store_numbers(value->dtype, value->bytes + (s->first + row * s->inner) * size,
                           s->class, out, rows * s->columns);
    }
}

static void cumsum(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    data_for_each_stripe(value, part, class_of(value), sum_stripe);
}

const data_kernel data_cumsum_kernel = {
    .parts = data_stripe_parts, .run = cumsum, .cost = cost, .along_axis = true};
