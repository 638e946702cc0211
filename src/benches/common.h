/*
 * common.h: what benches share: random matrices, the product that they should give, and how long a
 * launch took.
 */
#ifndef KB_BENCHES_COMMON_H
#define KB_BENCHES_COMMON_H

#include <kernbench/kernbench.h>

#include <stddef.h>
#include <stdint.h>

/* A matrix of a device, and its numbers. */
typedef struct matrix {
    kb_tensor tensor;
    uint64_t rows, columns;
    double *numbers; /* row by row; NULL unless results are to be verified */
} matrix;

/*
 * An f16 matrix on the current device, laid out by the policy and filled with random numbers, all
 * through the backdoor. matrix_fini() frees the numbers; the tensor is left to its context.
 */
KB_MUST_USE kb_error *matrix_random(kb_bench *bench, const char *name, uint64_t rows,
                                    uint64_t columns, const kb_policy *policy, uint64_t seed,
                                    matrix *m);

/* The same without contents, for results. */
KB_MUST_USE kb_error *matrix_empty(kb_bench *bench, const char *name, uint64_t rows,
                                   uint64_t columns, const kb_policy *policy, matrix *m);
void matrix_fini(matrix *m);

/*
 * Compares c with a * b, which is made here in double precision, if results are to be verified: all
 * of it, or a sample of the elements if that would take long.
 */
KB_MUST_USE kb_error *matrix_verify_product(kb_bench *bench, const matrix *c, const matrix *a,
                                            const matrix *b);

/* Waits for a launch, and frees it. Of the devices the longest total and PE execution time. */
typedef struct launch_time {
    kb_time total, pe_exec;
} launch_time;
KB_MUST_USE kb_error *wait_for_launch(kb_bench *bench, kb_request launch, launch_time *time);

#endif
