/*
 * steps.c: chooses the order in which the dimensions of a mesh change their placements, by cost.
 *
 * A dimension can change by itself, with two exceptions. First: the other one comes after it and
 * shards the same dimension of the tensor, before or after the change. The second dimension of the
 * mesh divides the part of the first, so parts of the first would not be blocks. Second: it would
 * become Partial while the other one is Partial of an operation that does not commute with its own.
 * Then the second dimension is changed first, or temporarily replicated. Costs are those of ring
 * algorithms, computed from global sizes, so that all ranks choose alike.
 */
#include "redistribute.h"

bool dt_costs_less(dt_cost a, dt_cost b)
{
    return a.sent < b.sent || (a.sent == b.sent && a.moved < b.moved);
}

/* The maximum bytes of a rank with these placements. */
static double local_bytes(const dt_mesh *mesh, const kb_shape *shape, kb_dtype dtype,
                          kb_placements placements)
{
    kb_shape local = dt_local_shape(mesh, 0, shape, placements, NULL);
    return (double)dt_elements(&local) * (double)kb_dtype_bytes(dtype);
}

/* `bytes`: of a rank if the dimension were replicated. */
static dt_cost step_cost(kb_placement from, kb_placement to, double bytes, double ranks)
{
    double share = bytes * (ranks - 1) / ranks;
    if (ranks == 1 || dt_same_placement(from, to))
        return (dt_cost){0};
    if (dt_is_replicate(from))
        return (dt_cost){.moved = dt_is_shard(to) ? bytes / ranks : bytes};
    if (dt_is_shard(from))
        return (dt_cost){.sent = dt_is_shard(to) ? share / ranks : share, .moved = bytes};
    return (dt_cost){.sent = dt_is_shard(to) ? share : 2 * share, .moved = bytes};
}

static bool is_blocked(kb_placement from, kb_placement to, kb_placement other)
{
    return dt_is_shard(other) &&
           (dt_shards(from, (uint32_t)other.dim) || dt_shards(to, (uint32_t)other.dim));
}

/* Appends a step and its cost; false if it cannot be done in this state. */
static bool add_step(const dt_mesh *mesh, const kb_shape *shape, kb_dtype dtype,
                     kb_placements *state, dt_step step, dt_steps *plan)
{
    kb_placement now = state->items[step.dim];
    if (dt_same_placement(now, step.to))
        return true;
    bool first_of_two = state->count == 2 && step.dim == 0;
    if (first_of_two && is_blocked(now, step.to, state->items[1]))
        return false;
    kb_placements view = *state, next = *state;
    next.items[step.dim] = step.to;
    if (!dt_ops_commute(next))
        return false;
    view.items[step.dim] = KB_REPLICATE_PLACEMENT;
    dt_cost cost =
        step_cost(now, step.to, local_bytes(mesh, shape, dtype, view), mesh->shape[step.dim]);
    plan->steps[plan->count++] = step;
    plan->cost.sent += cost.sent;
    plan->cost.moved += cost.moved;
    *state = next;
    return true;
}

dt_steps dt_choose_steps(const dt_mesh *mesh, const kb_shape *shape, kb_dtype dtype,
                         kb_placements from, kb_placements to)
{
    const dt_step candidates[][DT_MAX_STEPS] = {
        {{0, to.items[0]}, {1, to.items[1]}, {1, to.items[1]}},
        {{1, to.items[1]}, {0, to.items[0]}, {1, to.items[1]}},
        {{1, KB_REPLICATE_PLACEMENT}, {0, to.items[0]}, {1, to.items[1]}},
    };
    dt_steps best = {0};
    bool found = false;
    if (from.count == 1) {
        add_step(mesh, shape, dtype, &from, candidates[0][0], &best);
        return best;
    }
    for (size_t which = 0; which < sizeof candidates / sizeof *candidates; which++) {
        dt_steps plan = {0};
        kb_placements state = from;
        bool possible = true;
        for (int i = 0; i < DT_MAX_STEPS && possible; i++)
            possible = add_step(mesh, shape, dtype, &state, candidates[which][i], &plan);
        if (possible && (!found || dt_costs_less(plan.cost, best.cost))) {
            best = plan;
            found = true;
        }
    }
    KB_ASSERT(found); /* replicating the second dimension temporarily is always possible */
    return best;
}
