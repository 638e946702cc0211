/*
 * blas.h: the BLAS that multiplies matrices, OpenBLAS. It is loaded when it is first needed, as its
 * constructors allocate memory and start threads.
 */
#ifndef KB_DATA_BLAS_H
#define KB_DATA_BLAS_H

#include "base/base.h"

/*
 * To be called before data_blas_multiply_add(), with the number of threads that will call it. Loads
 * the BLAS if necessary. If there is memory for fewer threads, *threads becomes 1. If this returns
 * no error, data_blas_end() is to follow.
 */
KB_MUST_USE kb_error *data_blas_begin(unsigned *threads);
void data_blas_end(unsigned threads);

/* A row-major matrix: `stride` elements from row to row. */
typedef struct data_blas_matrix {
    const float *numbers;
    size_t stride;
} data_blas_matrix;

/* c += a * b: (m, k) times (k, n). No size or stride is above INT_MAX. */
void data_blas_multiply_add(data_blas_matrix a, data_blas_matrix b, float *c, size_t m, size_t n,
                            size_t k);

#endif
