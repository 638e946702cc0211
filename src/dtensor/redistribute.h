/*
 * redistribute.h: a tensor with other placements. Dimensions of the mesh change one after the
 * other; the plan says in which order, and what that costs.
 */
#ifndef KB_DTENSOR_REDISTRIBUTE_H
#define KB_DTENSOR_REDISTRIBUTE_H

#include "frame.h"

/* The dimension of the mesh gets this placement. */
typedef struct dt_step {
    uint32_t dim;
    kb_placement to;
} dt_step;

/* Bytes that a rank sends to others, and those that it moves by itself. The same on all ranks. */
typedef struct dt_cost {
    double sent, moved;
} dt_cost;

bool dt_costs_less(dt_cost a, dt_cost b);

enum { DT_MAX_STEPS = 3 };

typedef struct dt_plan {
    uint32_t count;
    dt_step steps[DT_MAX_STEPS];
    dt_cost cost;
} dt_plan;

/* The cheapest way from some placements to others. */
dt_plan dt_plan_steps(const dt_mesh *mesh, const kb_shape *shape, kb_dtype dtype,
                      kb_placements from, kb_placements to);

/* Changes the placements of the value, whose local tensors become others if one changes. */
KB_MUST_USE kb_error *dt_redistribute(dt_frame *frame, dt_value *value, kb_placements to);

/* What leaves every x as it is: op(x, identity) = x. For floating point of sums it is -0, as
 * 0 would make 0 of -0. */
double dt_identity(kb_reduce_op op, kb_dtype dtype);

/* Gives each rank along a dimension of the mesh its part of what coordinate 0 has: used to
 * distribute a tensor. `value` is replicated along the dimension, at least by its shape. */
KB_MUST_USE kb_error *dt_scatter(dt_frame *frame, dt_value *value, uint32_t dim, uint32_t axis);
KB_MUST_USE kb_error *dt_broadcast(dt_frame *frame, dt_value *value, uint32_t dim);

#endif
