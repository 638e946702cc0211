/*
 * ring_rooted.c: from one to all, or from all to one, along a ring that is cut open at the root:
 *
 *     broadcast   root > root+1 > .. > root-1
 *     reduce      root+1 > root+2 > .. > root
 *
 * Tile follows tile, so that all links of the chain are busy after the first one has come through.
 */
#include "algorithms.h"

/* ---- Broadcast --------------------------------------------------------------------------- */

KB_KERNEL(ring_broadcast, tl_ptr mine, int64_t count, kb_dtype dtype, int members, int distance,
          int64_t tile)
{
    const char *behind = tl_can_recv("W") ? "W" : "E";
    for (int64_t begin = 0; begin < count && members > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(ccl_min(tile, count - begin));
            tl_tensor value =
                distance == 0 ? tl_load(at, shape, dtype) : tl_recv_async(behind, shape, dtype);
            if (distance + 1 < members)
                tl_send("E", value);
            if (distance > 0)
                tl_store(at, value);
        }
}

/* How many steps behind the root a member is. */
static int64_t distance_of(const kb_ccl_call *call, const kb_ccl_part *part)
{
    int64_t members = part->circle_size;
    return (part->place - ccl_root_index(call, part) + members) % members;
}

static kb_error *ring_broadcast_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                          kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, part->output);
    kb_ccl_add_integer(args, (int64_t)part->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, part->circle_size);
    kb_ccl_add_integer(args, distance_of(call, part));
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

/* `distance` is to the root: 0 for itself, members - 1 for the first of the chain. */
KB_KERNEL(ring_reduce, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int members,
          int distance, int64_t tile)
{
    const char *behind = tl_can_recv("W") ? "W" : "E";
    for (int64_t begin = 0; begin < count && members > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(ccl_min(tile, count - begin));
            tl_tensor sum = tl_load(at, shape, dtype);
            if (distance + 1 < members)
                sum = ccl_combine(tl, op, tl_recv_async(behind, shape, dtype), sum);
            if (distance > 0)
                tl_send("E", sum);
            else
                tl_store(at, ccl_finish(tl, op, sum, members));
        }
}

static kb_error *ring_reduce_arguments(const kb_ccl_call *call, const kb_ccl_part *part,
                                       kb_ccl_arguments *args)
{
    int64_t members = part->circle_size;
    ccl_add_common(call, part, args);
    kb_ccl_add_integer(args, members);
    kb_ccl_add_integer(args, (members - distance_of(call, part)) % members);
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
