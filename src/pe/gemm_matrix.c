/*
 * gemm_matrix.c: blocks of a matrix that is in memory in rectangles.
 *
 * Rectangles are sorted along the axis that they are cut along, so that those of a block follow
 * each other: the first is found by how far they reach, the last by where they begin. A matrix that
 * is cut along both is looked at as a whole for the rows or columns of a block.
 */
#include "gemm_matrix.h"

#include <stdlib.h>

/* Bytes or rows, from .. to - 1. */
typedef struct span {
    uint64_t from, to;
} span;

static span along(const mem_rect *rect, bool by_columns)
{
    return by_columns ? (span){rect->column, rect->column + rect->bytes}
                      : (span){rect->row, rect->row + rect->rows};
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_row(const void *a, const void *b)
{
    const mem_rect *x = a, *y = b;
    int order = compare(x->row, y->row);
    return order ? order : compare(x->column, y->column);
}

static int by_column(const void *a, const void *b)
{
    const mem_rect *x = a, *y = b;
    int order = compare(x->column, y->column);
    return order ? order : compare(x->row, y->row);
}

kb_error *gemm_matrix_init(gemm_matrix *matrix, const pe_matrix *from, uint64_t rows,
                           uint64_t columns)
{
    *matrix = (gemm_matrix){.element_bytes = from->element_bytes};
    if (from->rect_count == 0)
        return NULL;
    matrix->rects = kb_alloc_array(from->rect_count, sizeof *matrix->rects);
    matrix->reach = kb_alloc_array(from->rect_count, sizeof *matrix->reach);
    if (!matrix->rects || !matrix->reach)
        return kb_error_nomem();
    uint64_t all_rows = 0, all_bytes = 0;
    for (size_t i = 0; i < from->rect_count; i++) {
        const mem_rect *rect = &from->rects[i];
        if (mem_rect_bytes(rect) == 0)
            continue;
        matrix->rects[matrix->count++] = *rect;
        all_rows += rect->rows;
        all_bytes += rect->bytes;
    }
    /* How many there are at a place of the axis, on average: the fewer the better. */
    matrix->by_columns = all_bytes / (columns * from->element_bytes) < all_rows / rows;
    qsort(matrix->rects, matrix->count, sizeof *matrix->rects,
          matrix->by_columns ? by_column : by_row);
    uint64_t reach = 0;
    for (size_t i = 0; i < matrix->count; i++) {
        uint64_t end = along(&matrix->rects[i], matrix->by_columns).to;
        reach = end > reach ? end : reach;
        matrix->reach[i] = reach;
    }
    return NULL;
}

void gemm_matrix_fini(gemm_matrix *matrix)
{
    free(matrix->rects);
    free(matrix->reach);
    *matrix = (gemm_matrix){0};
}

/* The first rectangle that reaches beyond `at`. */
static size_t first_beyond(const gemm_matrix *matrix, uint64_t at)
{
    size_t low = 0, high = matrix->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (matrix->reach[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static span overlap(span a, span b)
{
    return (span){a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
}

kb_error *gemm_matrix_cut(const gemm_matrix *matrix, gemm_range rows, gemm_range columns,
                          gemm_rects *rects)
{
    const span row_span = {rows.first, rows.first + rows.count};
    const span byte_span = {columns.first * matrix->element_bytes,
                            (columns.first + columns.count) * matrix->element_bytes};
    const span block = matrix->by_columns ? byte_span : row_span;
    for (size_t i = first_beyond(matrix, block.from); i < matrix->count; i++) {
        mem_rect r = matrix->rects[i];
        if (along(&r, matrix->by_columns).from >= block.to)
            break;
        span row = overlap(along(&r, false), row_span);
        span column = overlap(along(&r, true), byte_span);
        if (row.from >= row.to || column.from >= column.to)
            continue;
        /* With one row the stride means nothing, but then it is not used either. */
        r.at.offset +=
            column.from - r.column + (row.from > r.row ? r.stride * (row.from - r.row) : 0);
        r.row = row.from;
        r.rows = row.to - row.from;
        r.column = column.from;
        r.bytes = column.to - column.from;
        if (!kb_vec_push(rects, r))
            return kb_error_nomem();
    }
    return NULL;
}
