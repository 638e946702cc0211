/* describe.h: what a trace says of an operation, as JSON. Private to obs. */
#ifndef KB_OBS_DESCRIBE_H
#define KB_OBS_DESCRIBE_H

#include <stdbool.h>
#include <stdio.h>

#include <kernbench/kernbench.h>

/* Waiting for a message or a credit, which is no work (kb_unit); a kernel as a whole. */
bool obs_is_wait(const kb_op *op);
bool obs_is_kernel(const kb_op *op);

/* What its slice is called: "load x", "gemm a, b to c", "waiting for message from E". False if
 * there is no memory; something was written all the same. */
KB_MUST_USE bool obs_put_title(FILE *file, const kb_op *op);

/* The member "args" of its slice, with a comma before it. */
void obs_put_args(FILE *file, const kb_op *op);

#endif
