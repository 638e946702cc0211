/* trace_slice.h: title and arguments of the slice of an operation. Private to obs. */
#ifndef KB_OBS_TRACE_SLICE_H
#define KB_OBS_TRACE_SLICE_H

#include <stdbool.h>
#include <stdio.h>

#include <kernbench/kernbench.h>

/* Whether the operation is waiting for a message or a credit; a whole kernel. */
bool obs_is_wait(const kb_op *op);
bool obs_is_kernel(const kb_op *op);

/* Writes the title: "load x", "gemm a, b to c", "waiting for message from E". False if out of
 * memory: then it is incomplete. */
KB_MUST_USE bool obs_put_title(FILE *file, const kb_op *op);

/* Writes the member "args" of the slice, with a comma before it. */
void obs_put_args(FILE *file, const kb_op *op);

#endif
