/*
 * reduce.c: sums, maxima, minima and softmax along an axis.
 *
 * A stripe (stripes.c) is folded into one accumulator a column. Sums in f32 are accumulated in
 * double and rounded once, which is better than any order of adding in f32. If there is one column,
 * it is dealt out to some lanes, which are folded in the end; always the same ones, so the result
 * is always the same.
 */
#include <math.h>

#include "data_private.h"

enum { LANES = 32 };

/* ---- Folding ----------------------------------------------------------------------------- */

/* Number i is folded into accumulator i modulo width. */
typedef void fold_fn(void *accumulators, const void *numbers, size_t count, size_t width);

#define FOLD(name, ACC, T, expression)                                                             \
    static void name(void *accumulators, const void *numbers, size_t count, size_t width)          \
    {                                                                                              \
        __typeof__(ACC) *restrict acc = accumulators;                                              \
        const __typeof__(T) *restrict xs = numbers;                                                \
        for (size_t done = 0; done < count; done += width) {                                       \
            size_t now = count - done < width ? count - done : width;                              \
            for (size_t i = 0; i < now; i++) {                                                     \
                ACC a = acc[i], x = (ACC)xs[done + i];                                             \
                acc[i] = (ACC)(expression);                                                        \
            }                                                                                      \
        }                                                                                          \
    }

FOLD(sum_f32, double, float, a + x)
FOLD(sum_sums, double, double, a + x)
FOLD(max_f32, float, float, a > x || a != a ? a : x)
FOLD(min_f32, float, float, a < x || a != a ? a : x)
FOLD(sum_i32, uint32_t, int32_t, a + x)
FOLD(max_i32, int32_t, int32_t, a > x ? a : x)
FOLD(min_i32, int32_t, int32_t, a < x ? a : x)

typedef union accumulators {
    double f64[DATA_BLOCK];
    float f32[DATA_BLOCK];
    int32_t i32[DATA_BLOCK];
} accumulators;

typedef struct fold {
    fold_fn *numbers, *lanes;
    size_t size;         /* of an accumulator */
    double empty;        /* what nothing folds to */
    kb_dtype empty_type; /* of an accumulator, unless it is a double */
} fold;

static const fold folds_f32[] = {
    [DATA_SUM] = {sum_f32, sum_sums, sizeof(double), 0, KB_F32},
    [DATA_MAX] = {max_f32, max_f32, sizeof(float), -HUGE_VAL, KB_F32},
    [DATA_MIN] = {min_f32, min_f32, sizeof(float), HUGE_VAL, KB_F32},
};
static const fold folds_i32[] = {
    [DATA_SUM] = {sum_i32, sum_i32, sizeof(int32_t), 0, KB_I32},
    [DATA_MAX] = {max_i32, max_i32, sizeof(int32_t), INT32_MIN, KB_I32},
    [DATA_MIN] = {min_i32, min_i32, sizeof(int32_t), INT32_MAX, KB_I32},
};

static void accumulators_init(accumulators *acc, const fold *f, size_t count)
{
    if (f->size == sizeof(double))
        for (size_t i = 0; i < count; i++)
            acc->f64[i] = f->empty;
    else
        data_fill(f->empty_type, acc, f->empty, count);
}

/* One accumulator a column. */
static void fold_stripe(const data_stripe *s, const fold *f, accumulators *acc)
{
    data_number block[DATA_BLOCK];
    accumulators lanes;
    bool uses_lanes = s->inner == 1;
    size_t width = uses_lanes ? LANES : s->columns;
    accumulators *into = uses_lanes ? &lanes : acc;
    accumulators_init(into, f, width);
    for (uint64_t row = 0; row < s->length;) {
        size_t rows = data_stripe_rows(s, row);
        const void *numbers = data_stripe_get(s, row, rows, block);
        f->numbers(into, numbers, rows * s->columns, width);
        row += rows;
    }
    if (uses_lanes) {
        accumulators_init(acc, f, 1);
        f->lanes(acc, &lanes, LANES, 1);
    }
}

static void reduce_stripe(const data_stripe *s)
{
    const data_value *value = s->value;
    const fold *f = s->class == DATA_IN_F32 ? &folds_f32[value->op] : &folds_i32[value->op];
    accumulators acc;
    fold_stripe(s, f, &acc);
    void *result = value->bytes + s->first_result * kb_dtype_bytes(value->dtype);
    if (value->op != DATA_SUM) { /* of nothing, they are as far out as the dtype goes */
        kb_convert(value->dtype, result, data_dtype_of_class(s->class), &acc, s->columns);
        return;
    }
    float sums[DATA_BLOCK];
    for (size_t i = 0; s->class == DATA_IN_F32 && i < s->columns; i++)
        sums[i] = (float)acc.f64[i];
    const void *numbers = s->class == DATA_IN_F32 ? (const void *)sums : acc.i32;
    data_store_numbers(value->dtype, result, s->class, numbers, s->columns);
}

static void reduce(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    bool in_i32 = mem_is_integer(value->inputs[0]->dtype);
    data_for_each_stripe(value, part, in_i32 ? DATA_IN_I32 : DATA_IN_F32, reduce_stripe);
}

static uint64_t cost_of_reducing(const data_value *value)
{
    return 2 * value->inputs[0]->elements;
}

const data_kernel data_reduce_kernel = {
    .parts = data_stripe_parts, .run = reduce, .cost = cost_of_reducing, .along_axis = true};

/* ---- Softmax ----------------------------------------------------------------------------- */

/* The numbers of some rows as exp(x - greatest). */
static void get_exponentials(const data_stripe *s, uint64_t row, size_t rows, const float *greatest,
                             float *into)
{
    const float *numbers = data_stripe_get(s, row, rows, (data_number *)into);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < s->columns; j++)
            into[i * s->columns + j] = expf(numbers[i * s->columns + j] - greatest[j]);
}

/* They are computed twice, which takes no memory: a column may be of any length. */
static void softmax_stripe(const data_stripe *s)
{
    accumulators greatest, sums;
    float block[DATA_BLOCK];
    const data_value *value = s->value;
    const size_t columns = s->columns, size = kb_dtype_bytes(value->dtype);
    fold_stripe(s, &folds_f32[DATA_MAX], &greatest);
    accumulators_init(&sums, &folds_f32[DATA_SUM], columns);
    for (uint64_t row = 0, rows; row < s->length; row += rows) {
        rows = data_stripe_rows(s, row);
        get_exponentials(s, row, rows, greatest.f32, block);
        sum_f32(&sums, block, rows * columns, columns);
    }
    for (uint64_t row = 0, rows; row < s->length; row += rows) {
        rows = data_stripe_rows(s, row);
        get_exponentials(s, row, rows, greatest.f32, block);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < columns; j++)
                block[i * columns + j] = (float)((double)block[i * columns + j] / sums.f64[j]);
        data_store_numbers(value->dtype, value->bytes + (s->first + row * s->inner) * size,
                           DATA_IN_F32, block, rows * columns);
    }
}

static void softmax(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    data_for_each_stripe(value, part, DATA_IN_F32, softmax_stripe);
}

static uint64_t cost_of_softmax(const data_value *value)
{
    return 15 * value->elements;
}

const data_kernel data_softmax_kernel = {
    .parts = data_stripe_parts, .run = softmax, .cost = cost_of_softmax, .along_axis = true};
