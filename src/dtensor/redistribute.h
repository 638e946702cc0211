/*
 * redistribute.h: changes the placements of a tensor. Dimensions of the mesh change one after the
 * other; dt_choose_steps() chooses the order and estimates the cost.
 */
#ifndef KB_DTENSOR_REDISTRIBUTE_H
#define KB_DTENSOR_REDISTRIBUTE_H

#include "frame.h"

/* A dimension of the mesh gets this placement. */
typedef struct dt_step {
    uint32_t dim;
    kb_placement to;
} dt_step;

/* Bytes that a rank sends to others, and bytes that it moves locally. Equal on all ranks. */
typedef struct dt_cost {
    double sent, moved;
} dt_cost;

bool dt_costs_less(dt_cost a, dt_cost b);

enum { DT_MAX_STEPS = 3 };

typedef struct dt_steps {
    uint32_t count;
    dt_step steps[DT_MAX_STEPS];
    dt_cost cost;
} dt_steps;

/* The cheapest steps between two placements. */
dt_steps dt_choose_steps(const dt_mesh *mesh, const kb_shape *shape, kb_dtype dtype,
                         kb_placements from, kb_placements to);

/* Changes the placements of the value. If a placement changes, it has new local tensors. */
KB_MUST_USE kb_error *dt_redistribute(dt_frame *frame, dt_value *value, kb_placements to);

/* The identity of the operation: op(x, identity) = x. For floating-point sums it is -0, because 0
 * would make 0 of -0. */
double dt_identity(kb_reduce_op op, kb_dtype dtype);

/* Gives each rank along a dimension of the mesh its part of the tensor of coordinate 0, to
 * distribute a tensor. `value` has the shape of a tensor that is replicated along the dimension. */
KB_MUST_USE kb_error *dt_scatter(dt_frame *frame, dt_value *value, uint32_t dim, uint32_t axis);
KB_MUST_USE kb_error *dt_broadcast(dt_frame *frame, dt_value *value, uint32_t dim);

#endif
