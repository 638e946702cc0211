/*
 * topk.c: the indices of the k largest elements along an axis, the largest first.
 *
 * The result's own bytes are a heap of indices whose root ranks lowest: an element that ranks
 * higher replaces the root. In the end the heap is sorted. So it takes no memory, whatever k is.
 * Elements are in a strict order (by number, then by index), so the result does not depend on how
 * it is found.
 */
#include <math.h>

#include "data_private.h"

/* One line of the input, and of the result. */
typedef struct line {
    kb_dtype dtype;
    const unsigned char *numbers;
    size_t step; /* bytes from one number to the next */
    int32_t *out;
    size_t out_step; /* in indices */
} line;

static double number_at(const line *l, int32_t index)
{
    return mem_number_get(l->dtype, l->numbers + (size_t)index * l->step);
}

/* Whether number a at index i comes before number b at index j. */
static inline bool ranks_before(double a, int32_t i, double b, int32_t j)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && (!isnan(b) || i < j);
    return a > b || (a == b && i < j);
}

static bool slot_ranks_before(const line *l, size_t a, size_t b)
{
    int32_t i = l->out[a * l->out_step], j = l->out[b * l->out_step];
    return ranks_before(number_at(l, i), i, number_at(l, j), j);
}

static void swap(const line *l, size_t a, size_t b)
{
    int32_t was = l->out[a * l->out_step];
    l->out[a * l->out_step] = l->out[b * l->out_step];
    l->out[b * l->out_step] = was;
}

/* Makes a heap again of the first `count` slots, of which `slot` may rank too high. */
static void sift_down(const line *l, size_t slot, size_t count)
{
    for (size_t child; (child = 2 * slot + 1) < count; slot = child) {
        if (child + 1 < count && slot_ranks_before(l, child, child + 1))
            child++;
        if (!slot_ranks_before(l, slot, child))
            return;
        swap(l, slot, child);
    }
}

static void select_line(const line *l, uint64_t length, size_t k)
{
    if (k == 0)
        return;
    for (size_t i = 0; i < k; i++)
        l->out[i * l->out_step] = (int32_t)i;
    for (size_t slot = k / 2; slot-- > 0;)
        sift_down(l, slot, k);
    double lowest = number_at(l, l->out[0]);
    for (uint64_t i = k; i < length; i++) {
        int32_t index = (int32_t)i;
        if (!ranks_before(number_at(l, index), index, lowest, l->out[0]))
            continue;
        l->out[0] = index;
        sift_down(l, 0, k);
        lowest = number_at(l, l->out[0]);
    }
    for (size_t left = k - 1; left > 0; left--) {
        swap(l, 0, left);
        sift_down(l, 0, left);
    }
}

static void select_stripe(const data_stripe *s)
{
    const data_value *value = s->value, *input = value->inputs[0];
    const size_t size = kb_dtype_bytes(input->dtype);
    const uint64_t k = value->shape.dims[value->axis];
    uint64_t outer = s->first_result / s->inner, column = s->first_result % s->inner;
    for (size_t i = 0; i < s->columns; i++) {
        line l = {
            .dtype = input->dtype,
            .numbers = input->bytes + (s->first + i) * size,
            .step = (size_t)s->inner * size,
            .out = (int32_t *)(void *)value->bytes + outer * k * s->inner + column + i,
            .out_step = (size_t)s->inner,
        };
        select_line(&l, s->length, (size_t)k);
    }
}

static void topk(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    KB_DEBUG_ASSERT(value->dtype == KB_I32 &&
                    value->shape.dims[value->axis] <= value->inputs[0]->shape.dims[value->axis]);
    data_for_each_stripe(value, part, DATA_IN_F32, select_stripe);
}

static uint64_t cost(const data_value *value)
{
    return 6 * value->inputs[0]->elements + 100 * value->elements;
}

const data_kernel data_topk_kernel = {
    .parts = data_stripe_parts, .run = topk, .cost = cost, .along_axis = true};
