/*
 * ring_rooted.c: broadcast and reduce along a ring that is cut at the root:
 *
 *     broadcast   root > root+1 > .. > root-1
 *     reduce      root+1 > root+2 > .. > root
 *
 * Pipelined by tiles: all links of the chain are busy once the first tile has passed.
 */
#include "algorithms.h"

/* ---- Broadcast --------------------------------------------------------------------------- */

KB_KERNEL(ring_broadcast, tl_ptr mine, int64_t count, kb_dtype dtype, int participants,
          int distance, int64_t tile)
{
    const char *behind = tl_can_recv("W") ? "W" : "E";
    for (int64_t begin = 0; begin < count && participants > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(kb_min(tile, count - begin));
            tl_tensor value =
                distance == 0 ? tl_load(at, shape, dtype) : tl_recv_async(behind, shape, dtype);
            if (distance + 1 < participants)
                tl_send("E", value);
            if (distance > 0)
                tl_store(at, value);
        }
}

/* The number of steps from the root to the participant. */
static int64_t distance_of(const kb_ccl_call *call, const kb_ccl_target *target)
{
    int64_t participants = target->subgroup_size;
    return (target->index - ccl_root_index(call, target) + participants) % participants;
}

static kb_error *ring_broadcast_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                          kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, distance_of(call, target));
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_ring_broadcast_algorithm = {
    .name = "ring_broadcast",
    .summary = "broadcast from the root along a ring, pipelined by tiles",
    .kernel = &ring_broadcast,
    .arguments = ring_broadcast_arguments,
    .collectives = 1 << KB_BROADCAST,
    .topologies = ccl_ring_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

/* ---- Reduce ------------------------------------------------------------------------------ */

/* `distance`: steps to the root: 0 for the root, participants - 1 for the first of the chain. */
KB_KERNEL(ring_reduce, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op,
          int participants, int distance, int64_t tile)
{
    const char *behind = tl_can_recv("W") ? "W" : "E";
    for (int64_t begin = 0; begin < count && participants > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(kb_min(tile, count - begin));
            tl_tensor sum = tl_load(at, shape, dtype);
            if (distance + 1 < participants)
                sum = ccl_combine(tl, op, tl_recv_async(behind, shape, dtype), sum);
            if (distance > 0)
                tl_send("E", sum);
            else
                tl_store(at, ccl_finish(tl, op, sum, participants));
        }
}

static kb_error *ring_reduce_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                       kb_ccl_arguments *args)
{
    int64_t participants = target->subgroup_size;
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, participants);
    kb_ccl_add_integer(args, (participants - distance_of(call, target)) % participants);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_ring_reduce_algorithm = {
    .name = "ring_reduce",
    .summary = "reduction along a ring to the root, pipelined by tiles",
    .kernel = &ring_reduce,
    .arguments = ring_reduce_arguments,
    .collectives = 1 << KB_REDUCE,
    .topologies = ccl_ring_topologies,
    .mapper = "lanes",
    .same_bits = true,
};
