/*
 * algorithms.c: the table of shipped collectives, and what their kernels share.
 *
 * Invariant: the order of additions follows from indices in subgroups, lines and trees, never from
 * the order of arrival. So the bits of a result do not depend on times.
 */
#include "algorithms.h"

#include <inttypes.h>

#include "base/base.h"
#include "ccl/config/registry.h"

const kb_ccl_algorithm *const ccl_algorithms[] = {
    &ccl_hello_send_algorithm,
    &ccl_ring_algorithm,
    &ccl_mesh_algorithm,
    &ccl_tree_algorithm,
    &ccl_hierarchical_algorithm,
    &ccl_intercube_algorithm,
    &ccl_ring_rsag_algorithm,
    &ccl_trees_algorithm,
    &ccl_streams_algorithm,
    &ccl_one_shot_algorithm,
    &ccl_ring_all_gather_algorithm,
    &ccl_ring_reduce_scatter_algorithm,
    &ccl_ring_broadcast_algorithm,
    &ccl_ring_reduce_algorithm,
    &ccl_pairs_gather_algorithm,
    &ccl_pairs_scatter_algorithm,
    &ccl_pairs_all_to_all_algorithm,
    &ccl_pairs_send_algorithm,
    NULL,
};

const char *const ccl_ring_topologies[] = {"ring_1d", "ring_1d_unidir", NULL};
const char *const ccl_mesh_topologies[] = {"mesh_2d", "torus_2d", NULL};
const char *const ccl_tree_topologies[] = {"tree_binary", NULL};
const char *const ccl_level_topologies[] = {"hierarchical_3level", NULL};
const char *const ccl_pair_topologies[] = {"pairs", NULL};

/* ---- In kernels -------------------------------------------------------------------------- */

tl_tensor ccl_combine(tl_context *tl, kb_reduce_op op, tl_tensor a, tl_tensor b)
{
    switch (op) {
    case KB_MAX:
        return tl_maximum(a, b);
    case KB_MIN:
        return tl_minimum(a, b);
    case KB_PROD:
        return tl_mul(a, b);
    case KB_SUM:
    case KB_AVG:
    case KB_REDUCE_OPS:
        break;
    }
    return tl_add(a, b);
}

tl_tensor ccl_finish(tl_context *tl, kb_reduce_op op, tl_tensor sum, int64_t count)
{
    return op == KB_AVG && count > 1 ? tl_div(sum, count) : sum;
}

void ccl_ring_exchange(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, int64_t participants,
                       const char *to, const char *from)
{
    if (participants == 1)
        return;
    tl_send(to, *sum);
    for (int64_t step = 1; step < participants; step++)
        TL_SCOPE {
            tl_tensor arrived = tl_recv(from, tile->shape, tile->dtype);
            if (step + 1 < participants)
                tl_send(to, arrived);
            tl_assign(sum, ccl_combine(tl, tile->op, *sum, arrived));
        }
}

static void add_from(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, const char *from)
{
    TL_SCOPE {
        tl_tensor arrived = tl_recv(from, tile->shape, tile->dtype);
        tl_assign(sum, ccl_combine(tl, tile->op, *sum, arrived));
    }
}

void ccl_reduce_along(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, ccl_line line)
{
    if (line.index <= line.root && line.index > 0)
        add_from(tl, tile, sum, line.down);
    if (line.index >= line.root && line.index + 1 < line.participants)
        add_from(tl, tile, sum, line.up);
    if (line.index != line.root)
        tl_send(line.index < line.root ? line.up : line.down, *sum);
}

void ccl_broadcast_along(tl_context *tl, const ccl_tile *tile, tl_tensor *value, ccl_line line)
{
    if (line.index != line.root)
        tl_assign(value,
                  tl_recv(line.index < line.root ? line.up : line.down, tile->shape, tile->dtype));
    if (line.index <= line.root && line.index > 0)
        tl_send(line.down, *value);
    if (line.index >= line.root && line.index + 1 < line.participants)
        tl_send(line.up, *value);
}

/* ---- For arguments ----------------------------------------------------------------------- */

/* Arguments beyond the maximum are only counted; the caller refuses them. */
static void add_argument(kb_ccl_arguments *args, tl_arg argument)
{
    if (args->count < KB_CCL_MAX_ARGUMENTS)
        args->items[args->count] = argument;
    args->count++;
}

void kb_ccl_add_address(kb_ccl_arguments *args, uint64_t address)
{
    add_argument(args, (tl_arg)address);
}

void kb_ccl_add_integer(kb_ccl_arguments *args, int64_t number)
{
    add_argument(args, (tl_arg)number);
}

int64_t ccl_tile_elements(const kb_ccl_call *call, int64_t tiles_held)
{
    int64_t size = (int64_t)kb_dtype_bytes(call->dtype);
    int64_t slot = (int64_t)call->slot_bytes / size;
    int64_t tcm = (int64_t)call->scope->machine.tcm_bytes / (2 * tiles_held * size);
    int64_t max = slot < tcm ? slot : tcm;
    int64_t wanted = kb_ccl_setting(call->scope, "chunk_size", max);
    int64_t tile = wanted < max ? wanted : max;
    return tile < 1 ? 1 : tile;
}

void ccl_add_common(const kb_ccl_call *call, const kb_ccl_target *target, kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, call->op);
}

static bool in_order(const kb_ccl_target *target)
{
    for (uint32_t index = 0; target->ranks && index < target->subgroup_size; index++)
        if (target->ranks[index] != index)
            return false;
    return true;
}

kb_error *ccl_order_of_ranks(const kb_ccl_call *call, const kb_ccl_target *target, int64_t *order)
{
    *order = 0;
    if (in_order(target))
        return NULL;
    if (target->subgroup_size > 16)
        return kb_error_new(KB_ERR_INPUT,
                            "%s needs groups in rank order if they have more than 16 participants, "
                            "here %" PRIu32,
                            kb_collective_name(call->kind), target->subgroup_size);
    uint64_t packed = 0;
    for (uint32_t index = 0; index < target->subgroup_size; index++)
        packed |= (uint64_t)target->ranks[index] << (4 * index);
    *order = (int64_t)packed;
    return NULL;
}

int64_t ccl_root_index(const kb_ccl_call *call, const kb_ccl_target *target)
{
    uint32_t index = 0;
    if (!target->ranks)
        return call->root;
    while (index + 1 < target->subgroup_size && target->ranks[index] != call->root)
        index++;
    return index;
}
