/*
 * stripes.c: an input along an axis, in pieces that threads take.
 *
 * The input is seen as (outer, length, inner), where length is that of the axis. A stripe is one of
 * the outer ones and up to a block of the inner ones: columns that are worked on side by side, row
 * by row along the axis. Parts are whole stripes, so what is computed along a column is computed by
 * one thread, in order.
 */
#include "data_private.h"

enum { PIECE = 32 * DATA_BLOCK };

data_axis data_axis_of(const kb_shape *shape, uint32_t axis)
{
    data_axis view = {.outer = 1, .length = shape->dims[axis], .inner = 1};
    for (uint32_t i = 0; i < shape->rank; i++)
        if (i != axis)
            *(i < axis ? &view.outer : &view.inner) *= shape->dims[i];
    return view;
}

typedef struct cut {
    data_axis is;
    uint64_t width;   /* of stripes, but for the last of a row */
    uint64_t stripes; /* of each of the outer ones */
    uint64_t in_part; /* stripes */
} cut;

static cut cut_of(const data_value *value)
{
    cut c = {.is = data_axis_of(&value->inputs[0]->shape, value->axis)};
    c.width = kb_min(c.is.inner, DATA_BLOCK);
    c.stripes = c.width ? KB_DIV_UP(c.is.inner, c.width) : 0;
    uint64_t elements = c.is.length * c.width;
    c.in_part = elements < PIECE ? PIECE / (elements ? elements : 1) : 1;
    return c;
}

uint64_t data_stripe_parts(const data_value *value)
{
    cut c = cut_of(value);
    return KB_DIV_UP(c.is.outer * c.stripes, c.in_part);
}

void data_for_each_stripe(const data_value *value, uint64_t part, data_class class,
                          data_stripe_fn *fn)
{
    cut c = cut_of(value);
    uint64_t all = c.is.outer * c.stripes;
    for (uint64_t i = part * c.in_part; i < kb_min(all, (part + 1) * c.in_part); i++) {
        uint64_t outer = i / c.stripes, column = i % c.stripes * c.width;
        fn(&(data_stripe){
            .value = value,
            .class = class,
            .length = c.is.length,
            .inner = c.is.inner,
            .first = outer * c.is.length * c.is.inner + column,
            .first_result = outer * c.is.inner + column,
            .columns = (size_t)kb_min(c.is.inner - column, c.width),
        });
    }
}

size_t data_stripe_rows(const data_stripe *s, uint64_t row)
{
    size_t fit = s->columns == s->inner ? DATA_BLOCK / s->columns : 1;
    return (size_t)kb_min(s->length - row, fit);
}

const void *data_stripe_get(const data_stripe *s, uint64_t row, size_t rows, data_number *into)
{
    const data_value *input = s->value->inputs[0];
    uint64_t at = s->first + row * s->inner;
    const unsigned char *from = input->bytes + at * kb_dtype_bytes(input->dtype);
    kb_dtype dtype = data_dtype_of_class(s->class);
    if (input->dtype == dtype)
        return from;
    kb_convert(dtype, into, input->dtype, from, rows * s->columns);
    return into;
}
