/*
 * local.h: copies, element-wise operations and reductions of local tensors, each for one driven
 * position of a mesh, by the kernels of kernels.h. All tensors are row-major (dt_make_row_major()).
 * The work is complete after dt_wait().
 */
#ifndef KB_DTENSOR_LOCAL_H
#define KB_DTENSOR_LOCAL_H

#include "frame.h"
#include "kernels.h"

/* Axes of a loop before merging: a block number, and those of a tensor. */
enum { DT_LOOP_AXES = KB_MAX_DIMS + 1 };

/* One of the tensors of a loop: element i0, i1, .. is at first + i0 * strides[0] + .. */
typedef struct dt_operand {
    kb_tensor tensor;
    uint64_t first;
    uint64_t strides[DT_LOOP_AXES];
} dt_operand;

/* out = op(a) or op(a, b) for all indices. */
typedef struct dt_loop {
    const char *name; /* of the launch, for reports */
    int op;           /* tl_op or dt_map_op */
    int inputs;       /* 1 or 2 */
    kb_dtype dtype;   /* of the inputs */
    uint32_t axes;
    uint64_t sizes[DT_LOOP_AXES];
    dt_operand out, a, b;
} dt_loop;

/* Does nothing if there are no elements. */
KB_MUST_USE kb_error *dt_run_loop(dt_frame *frame, const dt_mesh *mesh, uint32_t driven,
                                  const dt_loop *loop);

/* The strides of a row-major tensor of this shape. */
void dt_row_major_strides(const kb_shape *shape, uint64_t strides[KB_MAX_DIMS]);

/* Copies all elements; both tensors must have the same number. */
KB_MUST_USE kb_error *dt_copy(dt_frame *frame, const dt_mesh *mesh, uint32_t driven, kb_tensor to,
                              kb_tensor from, kb_dtype dtype, uint64_t elements);

/* Reduces (outer, length, inner) to (outer, inner). The input is not empty. */
typedef struct dt_reduction {
    const char *name;
    kb_tensor out, in;
    tl_op op; /* TL_SUM_, TL_MAX_ or TL_MIN_ */
    kb_dtype dtype, out_dtype;
    uint64_t outer, length, inner;
    double scale;
} dt_reduction;

KB_MUST_USE kb_error *dt_reduce(dt_frame *frame, const dt_mesh *mesh, uint32_t driven,
                                const dt_reduction *reduction);

#endif
