/*
 * blocks.c: blocks of elements on their way to be computed with, and back.
 *
 * An input is seen from the result: an axis that is repeated has a stride of 0. Inputs are packed,
 * so along the last axis that is left after joining, elements are neighbours or all the same.
 */
#include <string.h>

#include "data_private.h"

/* ---- Views ------------------------------------------------------------------------------- */

/* Adds an outermost axis; joined with the outermost one if it can be. */
static void add_axis(data_view *view, uint64_t dim, uint64_t stride)
{
    if (dim == 1)
        return;
    uint32_t outermost = view->rank > 0 ? view->rank - 1 : 0;
    if (view->rank > 0 && stride == view->strides[outermost] * view->dims[outermost]) {
        view->dims[outermost] *= dim;
        return;
    }
    view->dims[view->rank] = dim;
    view->strides[view->rank++] = stride;
}

void data_view_init(data_view *view, const data_value *input, const kb_shape *result)
{
    view->input = input;
    view->rank = 0;
    uint32_t lacking = result->rank - input->shape.rank;
    uint64_t stride = 1;
    for (uint32_t axis = result->rank; axis-- > 0;) {
        uint64_t dim = axis < lacking ? 1 : input->shape.dims[axis - lacking];
        add_axis(view, result->dims[axis], dim == 1 ? 0 : stride);
        stride *= dim;
    }
    view->is_whole = view->rank == 0 || (view->rank == 1 && view->strides[0] == 1);
}

/* `count` times the same element. */
static void repeat(unsigned char *to, const unsigned char *element, size_t size, size_t count)
{
    uint32_t four;
    uint16_t two;
    switch (size) {
    case sizeof four:
        memcpy(&four, element, size);
        for (size_t i = 0; i < count; i++)
            memcpy(to + i * sizeof four, &four, sizeof four);
        break;
    case sizeof two:
        memcpy(&two, element, size);
        for (size_t i = 0; i < count; i++)
            memcpy(to + i * sizeof two, &two, sizeof two);
        break;
    default:
        KB_ASSERT(size == 1);
        memset(to, *element, count);
    }
}

/* Elements as they are, into a packed array. */
static void gather(const data_view *view, uint64_t at, size_t count, unsigned char *to)
{
    const size_t size = kb_dtype_bytes(view->input->dtype);
    uint64_t index[KB_MAX_DIMS] = {0}, offset = 0;
    for (uint32_t axis = 0; axis < view->rank; axis++) { /* the innermost comes first */
        index[axis] = at % view->dims[axis];
        at /= view->dims[axis];
        offset += index[axis] * view->strides[axis];
    }
    while (count > 0) {
        size_t run = (size_t)kb_min(view->dims[0] - index[0], count);
        const unsigned char *from = view->input->bytes + offset * size;
        if (view->strides[0] == 1)
            memcpy(to, from, run * size);
        else
            repeat(to, from, size, run);
        to += run * size;
        count -= run;
        index[0] += run;
        offset += run * view->strides[0];
        for (uint32_t axis = 0; axis + 1 < view->rank && index[axis] == view->dims[axis]; axis++) {
            offset += view->strides[axis + 1] - view->dims[axis] * view->strides[axis];
            index[axis] = 0;
            index[axis + 1]++;
        }
    }
}

const void *data_view_get(const data_view *view, uint64_t at, size_t count, kb_dtype dtype,
                          void *into)
{
    KB_DEBUG_ASSERT(count <= DATA_BLOCK);
    kb_dtype own = view->input->dtype;
    const unsigned char *whole = view->input->bytes + at * kb_dtype_bytes(own);
    if (view->is_whole && own == dtype)
        return whole;
    if (view->is_whole) {
        kb_convert(dtype, into, own, whole, count);
    } else if (own == dtype) {
        gather(view, at, count, into);
    } else {
        unsigned char gathered[DATA_BLOCK * sizeof(data_number)];
        gather(view, at, count, gathered);
        kb_convert(dtype, into, own, gathered, count);
    }
    return into;
}

/* ---- Results ----------------------------------------------------------------------------- */

void data_store_numbers(kb_dtype dtype, void *to, data_class class, const void *from, size_t count)
{
    if (class == DATA_IN_I32 && mem_is_integer(dtype))
        mem_wrap_integers(dtype, to, from, count);
    else
        kb_convert(dtype, to, data_dtype_of_class(class), from, count);
}

void data_fill(kb_dtype dtype, void *to, double number, size_t count)
{
    unsigned char element[sizeof(data_number)];
    mem_number_set(dtype, element, number);
    repeat(to, element, kb_dtype_bytes(dtype), count);
}
