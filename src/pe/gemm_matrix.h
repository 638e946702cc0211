/*
 * gemm_matrix.h: a matrix that is in memory in rectangles, and the rectangles of a block of it.
 */
#ifndef KB_PE_GEMM_MATRIX_H
#define KB_PE_GEMM_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "composite.h"

typedef struct gemm_matrix {
    mem_rect *rects; /* in the order of where they begin, by rows or by columns; none is empty */
    uint64_t *reach; /* the farthest end of those up to each of them, along the same axis */
    size_t count;
    bool by_columns;
    uint32_t element_bytes;
} gemm_matrix;

/* Copies the rectangles. After an error it still has to be given to fini. */
KB_MUST_USE kb_error *gemm_matrix_init(gemm_matrix *matrix, const pe_matrix *from, uint64_t rows,
                                       uint64_t columns);
void gemm_matrix_fini(gemm_matrix *matrix);

typedef KB_VEC(mem_rect) gemm_rects;

/* Of rows, of columns, of k. */
typedef struct gemm_range {
    uint64_t first, count;
} gemm_range;

/* Appends the rectangles of a block: rows and columns stay those of the whole matrix. */
KB_MUST_USE kb_error *gemm_matrix_cut(const gemm_matrix *matrix, gemm_range rows,
                                      gemm_range columns, gemm_rects *rects);

#endif
