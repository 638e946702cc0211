/*
 * common.h: what benches share: random matrices, the product that they should give, how long a
 * launch took, and the metric of how fast it was.
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
    kb_dtype dtype;
    double *numbers; /* row by row; NULL unless results are to be verified */
} matrix;

typedef struct matrix_spec {
    const char *name;
    uint64_t rows, columns;
    kb_dtype dtype;          /* 0 is f16 */
    const kb_policy *policy; /* NULL: all of it at PE 0 of cube 0 */
} matrix_spec;

/*
 * A matrix on the current device, laid out by the policy and filled with random numbers, all
 * untimed. matrix_fini() frees the numbers; the tensor is left to its context.
 */
KB_MUST_USE kb_error *matrix_random(kb_bench *bench, const matrix_spec *spec, uint64_t seed,
                                    matrix *m);

/* The same without contents, for results. */
KB_MUST_USE kb_error *matrix_empty(kb_bench *bench, const matrix_spec *spec, matrix *m);
void matrix_fini(matrix *m);

/*
 * Compares c with a * b, which is made here in double precision, if results are to be verified: all
 * of it, or a sample of the elements if that would take long. The tolerance follows from the dtype
 * of c; integers have to be equal.
 */
KB_MUST_USE kb_error *matrix_verify_product(kb_bench *bench, const matrix *c, const matrix *a,
                                            const matrix *b);

/*
 * Runs a launch that begins with nothing else under way: waits for it and frees it. `total` is from
 * the call of kb_launch_async() until the launch is complete; `kernels` is the part of it in which
 * at least one kernel ran, as in the roofline of the run.
 */
typedef struct launch_time {
    kb_time total, kernels;
} launch_time;
KB_MUST_USE kb_error *wait_for_launch(kb_bench *bench, kb_request launch, kb_time kernels_before,
                                      launch_time *time);

/* The metric `tflops`: floating-point operations in the time that kernels ran. */
void report_tflops(kb_bench *bench, double flops, const launch_time *time);

#endif
