/*
 * kernels.h: kernels for operations within a device. All PEs run, each with an equal part. Tensors
 * are addressed by offsets and strides in elements, so they must be row-major.
 */
#ifndef KB_DTENSOR_KERNELS_H
#define KB_DTENSOR_KERNELS_H

#include <kernbench/tl.h>

/*
 * Element by element: out[i] = op(a[i], b[i]) for all indices i of some axes, along which each of
 * the three has a stride, 0 where it is repeated. DT_MAP_COPY moves elements of any dtype.
 */
enum { DT_MAP_FEW_AXES = 3, DT_MAP_AXES = 8 };

typedef enum dt_map_op {
    DT_MAP_COPY = TL_OPS_, /* below: tl_op */
    DT_MAP_RELU,
} dt_map_op;

/* Parameters: these, and then for each axis its size and the strides of out, a and b. */
typedef enum dt_map_param {
    DT_MAP_GRID,
    DT_MAP_OUT,
    DT_MAP_A,
    DT_MAP_B, /* 0 if the operation has one input */
    DT_MAP_OP,
    DT_MAP_INPUTS,
    DT_MAP_IN_DTYPE,
    DT_MAP_PES, /* of a cube, */
    DT_MAP_ALL_PES,
    DT_MAP_TILE, /* elements of each tensor in the TCM at a time */
    DT_MAP_OUT_FIRST,
    DT_MAP_A_FIRST,
    DT_MAP_B_FIRST,
    DT_MAP_FIXED
} dt_map_param;

extern const kb_kernel dt_map_few_kernel; /* of DT_MAP_FEW_AXES axes */
extern const kb_kernel dt_map_kernel;     /* of DT_MAP_AXES axes */

/*
 * Reduces the middle axis of (outer, length, inner), cut into `segments` parts of their own:
 * out (outer, segments, inner). Sums are made in f32, or i32 for integers, multiplied by `scale`
 * unless it is 1, and rounded once.
 */
extern const kb_kernel *const dt_reduce_kernel;

#endif
