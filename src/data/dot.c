/*
 * dot.c: products of matrices, tile by tile, with a BLAS.
 *
 * A part is one tile of the result. The factors come in blocks of some depth, converted to f32
 * unless they are, and the BLAS adds the products to the tile; it is rounded to the result's dtype
 * in the end. Tiles and depth are always the same, and the BLAS uses one thread, so that sums are
 * always added up in the same order. Integers: the same in i32, modulo 2^32.
 */
#include <cblas.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

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

/* Converted, row by row, or all at once if there is nothing between the rows. */
static void load(const data_value *matrix, const area *where, data_class class, data_number *into)
{
    const unsigned char *from = first_of(matrix, where);
    uint64_t stride = matrix->shape.dims[1];
    size_t runs = where->columns == stride ? 1 : where->rows;
    size_t count = where->rows * where->columns / runs;
    for (size_t i = 0; i < runs; i++, from += stride * kb_dtype_bytes(matrix->dtype))
        kb_convert(data_dtype_of_class(class), into + i * count, matrix->dtype, from, count);
}

static void save(const data_value *matrix, const area *where, data_class class,
                 const data_number *numbers)
{
    unsigned char *to = first_of(matrix, where);
    uint64_t stride = matrix->shape.dims[1];
    size_t runs = where->columns == stride ? 1 : where->rows;
    size_t count = where->rows * where->columns / runs;
    for (size_t i = 0; i < runs; i++, to += stride * kb_dtype_bytes(matrix->dtype))
        data_store_numbers(matrix->dtype, to, class, numbers + i * count, count);
}

/* Where they are, if they need no conversion and the BLAS can count that far; or in `into`. */
static block get_block(const data_value *matrix, const area *where, data_class class,
                       data_number *into)
{
    uint64_t stride = matrix->shape.dims[1];
    if (matrix->dtype == data_dtype_of_class(class) && stride <= INT_MAX)
        return (block){(const void *)first_of(matrix, where), (size_t)stride};
    load(matrix, where, class, into);
    return (block){into, where->columns};
}

/* A BLAS without threads of its own has buffers that only one may use at a time. */
static pthread_mutex_t blas_lock = PTHREAD_MUTEX_INITIALIZER;
static bool blas_needs_lock;

static void init_blas(void)
{
    blas_needs_lock = openblas_get_parallel() == OPENBLAS_SEQUENTIAL;
    if (!blas_needs_lock)
        openblas_set_num_threads(1);
}

void data_dot_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, init_blas);
}

/* c += a * b: (m, k) times (k, n). */
static void multiply_f32(const block *a, const block *b, data_number *c, size_t m, size_t n,
                         size_t k)
{
    if (blas_needs_lock)
        (void)pthread_mutex_lock(&blas_lock);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1,
                &a->numbers->f32, (blasint)a->stride, &b->numbers->f32, (blasint)b->stride, 1,
                &c->f32, (blasint)n);
    if (blas_needs_lock)
        (void)pthread_mutex_unlock(&blas_lock);
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
        in_i32 = in_i32 && data_is_integer(value->inputs[i]->dtype);
    return in_i32 ? DATA_IN_I32 : DATA_IN_F32;
}

static void run(const data_value *value, uint64_t part, data_scratch *scratch)
{
    const data_value *a = value->inputs[0], *b = value->inputs[1];
    const data_class class = class_of(value);
    const uint64_t depth = a->shape.dims[1];
    const uint64_t across = data_pieces(value->shape.dims[1], DATA_TILE_COLUMNS);
    area tile = {part / across * DATA_TILE_ROWS, part % across * DATA_TILE_COLUMNS, 0, 0};
    tile.rows = data_least(value->shape.dims[0] - tile.row, DATA_TILE_ROWS);
    tile.columns = data_least(value->shape.dims[1] - tile.column, DATA_TILE_COLUMNS);

    if (value->input_count > 2)
        load(value->inputs[2], &tile, class, scratch->c);
    else
        memset(scratch->c, 0, tile.rows * tile.columns * sizeof *scratch->c);
    for (uint64_t at = 0; at < depth; at += DATA_TILE_DEPTH) {
        size_t k = data_least(depth - at, DATA_TILE_DEPTH);
        block left = get_block(a, &(area){tile.row, at, tile.rows, k}, class, scratch->a);
        block right = get_block(b, &(area){at, tile.column, k, tile.columns}, class, scratch->b);
        if (class == DATA_IN_F32)
            multiply_f32(&left, &right, scratch->c, tile.rows, tile.columns, k);
        else
            multiply_i32(&left, &right, scratch->c, tile.rows, tile.columns, k);
    }
    save(value, &tile, class, scratch->c);
}

static uint64_t parts(const data_value *value)
{
    return data_pieces(value->shape.dims[0], DATA_TILE_ROWS) *
           data_pieces(value->shape.dims[1], DATA_TILE_COLUMNS);
}

static uint64_t cost(const data_value *value)
{
    const uint64_t depth = value->inputs[0]->shape.dims[1];
    return value->elements * (4 + depth / (class_of(value) == DATA_IN_F32 ? 25 : 2));
}

const data_kernel data_dot_kernel = {
    .parts = parts, .run = run, .cost = cost, .needs_scratch = true};
