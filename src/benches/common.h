/*
 * common.h: random matrices, reference products, launch times and throughput metrics for benches.
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
    const kb_policy *policy; /* NULL: on PE 0 of cube 0 */
} matrix_spec;

/* A matrix on the current device, laid out by the policy and filled with random numbers, untimed.
 * matrix_fini() frees the numbers; the tensor is freed with its context. */
KB_MUST_USE kb_error *matrix_random(kb_bench *bench, const matrix_spec *spec, uint64_t seed,
                                    matrix *m);

/* The same without contents, for results. */
KB_MUST_USE kb_error *matrix_empty(kb_bench *bench, const matrix_spec *spec, matrix *m);
void matrix_fini(matrix *m);

/* If results are to be verified: compares c with a * b in double precision, or a sample of its
 * elements if that would take long. The tolerance follows from the dtype of c; integers must be
 * equal. */
KB_MUST_USE kb_error *matrix_verify_product(kb_bench *bench, const matrix *c, const matrix *a,
                                            const matrix *b);

/*
 * The time of a launch that begins with nothing else pending. `total` is from the call of
 * kb_launch_async() until the launch is complete; `kernels` is the part of it in which at least one
 * kernel ran, as in the roofline of the run. wait_for_launch() waits for the launch and frees it.
 */
typedef struct launch_time {
    kb_time total, kernels;
} launch_time;
KB_MUST_USE kb_error *wait_for_launch(kb_bench *bench, kb_request launch, kb_time kernels_before,
                                      launch_time *time);

/* The metric `tflops`: floating-point operations divided by the time in which kernels ran. */
void report_tflops(kb_bench *bench, double flops, const launch_time *time);

#endif
