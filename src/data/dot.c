/*
 * dot.c: products of matrices, tile by tile, with a BLAS.
 *
 * A part is one tile of the result. The factors come in blocks of some depth, converted to f32
 * unless they are, and the BLAS adds the products to the tile; it is rounded to the result's dtype
 * in the end. Tiles and depth are always the same, and the BLAS uses one thread, so that sums are
 * always added up in the same order. Integers: the same in i32, modulo 2^32.
 */
#include <limits.h>
#include <string.h>

#include "blas.h"
#include "data_private.h"

/* Rows and columns of a matrix. */
typedef struct area {
    uint64_t row, column;
    size_t rows, columns;
} area;

static unsigned char *first_of(const data_value *matrix, const area *where)
{
    uint64_t first = where->row * matrix->shape.dims[1] + where->column;
    return matrix->bytes + first * kb_dtype_bytes(matrix->dtype);
}

/* Numbers to compute with. */
typedef struct block {
    const data_number *numbers;
    size_t stride; /* from row to row */
} block;

/*
 * Converted, row by row, or all at once if there is nothing between the rows. A row has `width`
 * numbers in `into`: zeros follow those of the matrix.
 */
static void load(const data_value *matrix, const area *where, data_class class, size_t width,
                 data_number *into)
{
    const unsigned char *from = first_of(matrix, where);
    uint64_t stride = matrix->shape.dims[1];
    size_t gap = width - where->columns;
    size_t runs = where->columns == stride && gap == 0 ? 1 : where->rows;
    size_t count = where->rows * where->columns / runs;
    for (size_t i = 0; i < runs; i++, from += stride * kb_dtype_bytes(matrix->dtype)) {
        kb_convert(data_dtype_of_class(class), into + i * width, matrix->dtype, from, count);
        memset(into + i * width + count, 0, gap * sizeof *into);
    }
}

static void save(const data_value *matrix, const area *where, data_class class, size_t width,
                 const data_number *numbers)
{
    unsigned char *to = first_of(matrix, where);
    uint64_t stride = matrix->shape.dims[1];
    size_t runs = where->columns == stride && where->columns == width ? 1 : where->rows;
    size_t count = where->rows * where->columns / runs;
    for (size_t i = 0; i < runs; i++, to += stride * kb_dtype_bytes(matrix->dtype))
        data_store_numbers(matrix->dtype, to, class, numbers + i * width, count);
}

/*
 * Where they are, if they need no conversion or zeros and the BLAS can count that far; or in
 * `into`.
 */
static block get_block(const data_value *matrix, const area *where, data_class class, size_t width,
                       data_number *into)
{
    uint64_t stride = matrix->shape.dims[1];
    if (matrix->dtype == data_dtype_of_class(class) && stride <= INT_MAX && width == where->columns)
        return (block){(const void *)first_of(matrix, where), (size_t)stride};
    load(matrix, where, class, width, into);
    return (block){into, width};
}

/*
 * The number of columns that a tile of the result is computed with. The kernels of OpenBLAS for
 * small matrices on CPUs with AVX-512 allocate memory for the last 1 to 8 columns after a multiple
 * of 16, and crash if there is none. Zeros in up to 15 more columns avoid that.
 */
static size_t width_of(size_t columns, data_class class)
{
    enum { LANES = 16, MAX_ALLOCATED = 8 };
    _Static_assert(DATA_TILE_COLUMNS % LANES == 0, "a wider tile fits into the scratch memory");
    size_t last = columns % LANES;
    bool allocates = class == DATA_IN_F32 && last >= 1 && last <= MAX_ALLOCATED;
    return allocates ? columns - last + LANES : columns;
}

/* c += a * b: (m, k) times (k, n). */
static void multiply_f32(const block *a, const block *b, data_number *c, size_t m, size_t n,
                         size_t k)
{
    data_blas_multiply_add((data_blas_matrix){&a->numbers->f32, a->stride},
                           (data_blas_matrix){&b->numbers->f32, b->stride}, &c->f32, m, n, k);
}

static void multiply_i32(const block *a, const block *b, data_number *c, size_t m, size_t n,
                         size_t k)
{
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++) {
            uint32_t x = (uint32_t)a->numbers[i * a->stride + l].i32;
            const data_number *ys = b->numbers + l * b->stride;
            data_number *restrict sums = c + i * n;
            for (size_t j = 0; j < n; j++)
                sums[j].i32 = (int32_t)((uint32_t)sums[j].i32 + x * (uint32_t)ys[j].i32);
        }
}

static data_class class_of(const data_value *value)
{
    bool in_i32 = true;
    for (uint32_t i = 0; i < value->input_count; i++)
        in_i32 = in_i32 && mem_is_integer(value->inputs[i]->dtype);
    return in_i32 ? DATA_IN_I32 : DATA_IN_F32;
}

static void run(const data_value *value, uint64_t part, data_scratch *scratch)
{
    const data_value *a = value->inputs[0], *b = value->inputs[1];
    const data_class class = class_of(value);
    const uint64_t depth = a->shape.dims[1];
    const uint64_t across = KB_DIV_UP(value->shape.dims[1], DATA_TILE_COLUMNS);
    area tile = {part / across * DATA_TILE_ROWS, part % across * DATA_TILE_COLUMNS, 0, 0};
    tile.rows = kb_min(value->shape.dims[0] - tile.row, DATA_TILE_ROWS);
    tile.columns = kb_min(value->shape.dims[1] - tile.column, DATA_TILE_COLUMNS);
    const size_t width = width_of(tile.columns, class);

    if (value->input_count > 2)
        load(value->inputs[2], &tile, class, width, scratch->c);
    else
        memset(scratch->c, 0, tile.rows * width * sizeof *scratch->c);
    for (uint64_t at = 0; at < depth; at += DATA_TILE_DEPTH) {
        size_t k = kb_min(depth - at, DATA_TILE_DEPTH);
        const area left = {tile.row, at, tile.rows, k}, right = {at, tile.column, k, tile.columns};
        block rows = get_block(a, &left, class, k, scratch->a);
        block columns = get_block(b, &right, class, width, scratch->b);
        if (class == DATA_IN_F32)
            multiply_f32(&rows, &columns, scratch->c, tile.rows, width, k);
        else
            multiply_i32(&rows, &columns, scratch->c, tile.rows, width, k);
    }
    save(value, &tile, class, width, scratch->c);
}

static uint64_t parts(const data_value *value)
{
    return KB_DIV_UP(value->shape.dims[0], DATA_TILE_ROWS) *
           KB_DIV_UP(value->shape.dims[1], DATA_TILE_COLUMNS);
}

static uint64_t cost(const data_value *value)
{
    const uint64_t depth = value->inputs[0]->shape.dims[1];
    return value->elements * (4 + depth / (class_of(value) == DATA_IN_F32 ? 25 : 2));
}

const data_kernel data_dot_kernel = {
    .parts = parts, .run = run, .cost = cost, .needs_scratch = true, .needs_blas = true};
