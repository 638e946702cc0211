/*
 * rearrange.c: operations that compute nothing: they fill, count up, or put elements elsewhere, in
 * an order that the shapes alone say.
 */
#include <string.h>

#include "data_private.h"

/* ---- One element after the other --------------------------------------------------------- */

enum { PIECE = 1 << 16 };

static uint64_t pieces(const data_value *value)
{
    return KB_DIV_UP(value->elements, PIECE);
}

static uint64_t cost_of_copying(const data_value *value)
{
    return value->elements;
}

typedef struct piece {
    uint64_t first, count;
    unsigned char *bytes;
} piece;

static piece piece_of(const data_value *value, uint64_t part)
{
    uint64_t first = part * PIECE;
    return (piece){first, kb_min(value->elements - first, PIECE),
                   value->bytes + first * kb_dtype_bytes(value->dtype)};
}

static void fill(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    piece p = piece_of(value, part);
    data_fill(value->dtype, p.bytes, value->number, p.count);
}

static void count_up(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    piece p = piece_of(value, part);
    size_t size = kb_dtype_bytes(value->dtype);
    for (uint64_t i = 0; i < p.count; i++)
        mem_number_set(value->dtype, p.bytes + i * size,
                       (double)(value->first + (int64_t)(p.first + i)));
}

static void copy(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    piece p = piece_of(value, part);
    size_t size = kb_dtype_bytes(value->dtype);
    uint64_t from = (uint64_t)value->first + p.first;
    memcpy(p.bytes, value->inputs[0]->bytes + from * size, p.count * size);
}

const data_kernel data_full_kernel = {.parts = pieces, .run = fill, .cost = cost_of_copying};
const data_kernel data_arange_kernel = {.parts = pieces, .run = count_up, .cost = cost_of_copying};
const data_kernel data_reshape_kernel = {
    .parts = pieces, .run = copy, .cost = cost_of_copying, .moves = true};

/* ---- Slicing and joining along an axis --------------------------------------------------- */

/* A piece of the result is made of runs that are neighbours in an input too. */
static void slice(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    piece p = piece_of(value, part);
    const data_value *input = value->inputs[0];
    const size_t size = kb_dtype_bytes(value->dtype);
    data_axis from = data_axis_of(&input->shape, value->axis);
    uint64_t run = value->shape.dims[value->axis] * from.inner;
    for (uint64_t done = 0, count; done < p.count; done += count) {
        uint64_t outer = (p.first + done) / run, within = (p.first + done) % run;
        uint64_t at = (outer * from.length + (uint64_t)value->first) * from.inner + within;
        count = kb_min(p.count - done, run - within);
        memcpy(p.bytes + done * size, input->bytes + at * size, count * size);
    }
}

static void concat(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    piece p = piece_of(value, part);
    const size_t size = kb_dtype_bytes(value->dtype);
    data_axis to = data_axis_of(&value->shape, value->axis);
    for (uint64_t done = 0, count; done < p.count; done += count) {
        uint64_t outer = (p.first + done) / (to.length * to.inner);
        uint64_t within = (p.first + done) % (to.length * to.inner), run;
        uint32_t i = 0;
        while (within >= (run = value->inputs[i]->shape.dims[value->axis] * to.inner)) {
            within -= run;
            i++;
        }
        count = kb_min(p.count - done, run - within);
        memcpy(p.bytes + done * size, value->inputs[i]->bytes + (outer * run + within) * size,
               count * size);
    }
}

const data_kernel data_slice_kernel = {
    .parts = pieces, .run = slice, .cost = cost_of_copying, .along_axis = true, .moves = true};
const data_kernel data_concat_kernel = {
    .parts = pieces, .run = concat, .cost = cost_of_copying, .along_axis = true, .moves = true};

/* ---- Transposing ------------------------------------------------------------------------- */

/* Squares of TILE by TILE, of which both sides fit in the cache; a part is BAND rows of results. */
enum { TILE = 32, BAND = 256 };

static uint64_t bands_of_matrix(const data_value *value)
{
    return KB_DIV_UP(value->shape.dims[value->shape.rank - 2], BAND);
}

static uint64_t bands(const data_value *value)
{
    uint64_t rows = value->shape.dims[value->shape.rank - 2];
    uint64_t columns = value->shape.dims[value->shape.rank - 1];
    return value->elements ? value->elements / (rows * columns) * bands_of_matrix(value) : 0;
}

#define TRANSPOSE(name, T)                                                                         \
    static void name(__typeof__(T) *to, size_t to_stride, const __typeof__(T) *from,               \
                     size_t from_stride, size_t rows, size_t columns)                              \
    {                                                                                              \
        for (size_t i = 0; i < rows; i++)                                                          \
            for (size_t j = 0; j < columns; j++)                                                   \
                to[i * to_stride + j] = from[j * from_stride + i];                                 \
    }

TRANSPOSE(transpose_1, uint8_t)
TRANSPOSE(transpose_2, uint16_t)
TRANSPOSE(transpose_4, uint32_t)

static void transpose(const data_value *value, uint64_t part, data_scratch *scratch)
{
    (void)scratch;
    const size_t size = kb_dtype_bytes(value->dtype);
    const uint64_t rows = value->shape.dims[value->shape.rank - 2];
    const uint64_t columns = value->shape.dims[value->shape.rank - 1];
    uint64_t matrix = part / bands_of_matrix(value), band = part % bands_of_matrix(value);
    unsigned char *to = value->bytes + matrix * rows * columns * size;
    const unsigned char *from = value->inputs[0]->bytes + matrix * rows * columns * size;
    uint64_t end = kb_min(rows, (band + 1) * BAND);
    for (uint64_t i = band * BAND; i < end; i += TILE)
        for (uint64_t j = 0; j < columns; j += TILE) {
            void *there = to + (i * columns + j) * size;
            const void *here = from + (j * rows + i) * size;
            size_t height = kb_min(end - i, TILE), width = kb_min(columns - j, TILE);
            if (size == sizeof(uint8_t))
                transpose_1(there, columns, here, rows, height, width);
            else if (size == sizeof(uint16_t))
                transpose_2(there, columns, here, rows, height, width);
            else
                transpose_4(there, columns, here, rows, height, width);
        }
}

const data_kernel data_transpose_kernel = {
    .parts = bands, .run = transpose, .cost = cost_of_copying, .moves = true};
