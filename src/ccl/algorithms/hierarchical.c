/*
 * hierarchical.c: reduces level by level: over the PEs of a cube to PE 0, over the cubes of a SIP
 * to cube 0, over the SIPs to the first; then broadcasts the result down the same levels. A level
 * of one participant does nothing.
 *
 * Each level is a ring. The reduction uses both directions: of n participants those up to n/2 send
 * down, the others send up and around, so it takes n/2 steps instead of n-1. The broadcast is a
 * chain.
 */
#include "algorithms.h"

/* A ring as a line, cut at the side opposite to participant 0. */
static ccl_line towards_first(ccl_line ring)
{
    int64_t upper = (ring.participants - 1) / 2; /* participants that send up and around */
    ring.index = (ring.index + upper) % ring.participants;
    ring.root = upper;
    return ring;
}

KB_KERNEL(hierarchical, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int pes,
          int cubes, int sip, int sips, int64_t tile)
{
    int64_t pe = tl_program_id(0), cube = tl_program_id(1);
    const ccl_line levels[] = {
        {.index = pe, .participants = pes, .up = "E", .down = "W"},
        {.index = cube, .participants = cubes, .up = "N", .down = "S"},
        {.index = sip, .participants = sips, .up = "global_E", .down = "global_W"},
    };
    /* PE 0 represents its cube, and PE 0 of cube 0 its SIP. */
    int depth = pe > 0 ? 1 : cube > 0 ? 2 : 3;

    for (int64_t begin = 0; begin < count; begin += tile)
        TL_SCOPE {
            ccl_tile t = {.at = ccl_at(mine, begin, dtype),
                          .shape = tl_shape(kb_min(tile, count - begin)),
                          .dtype = dtype,
                          .op = op};
            tl_tensor sum = tl_load(t.at, t.shape, dtype);
            for (int level = 0; level < depth; level++)
                ccl_reduce_along(tl, &t, &sum, towards_first(levels[level]));
            if (depth == 3 && sip == 0)
                sum = ccl_finish(tl, op, sum, (int64_t)pes * cubes * sips);
            for (int level = depth - 1; level >= 0; level--)
                ccl_broadcast_along(tl, &t, &sum, levels[level]);
            tl_store(t.at, sum);
        }
}

static kb_error *hierarchical_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                        kb_ccl_arguments *args)
{
    const kb_ccl_scope *scope = call->scope;
    uint64_t expected = (uint64_t)scope->world * scope->machine.cubes * scope->machine.pes;
    if (scope->rank_is_pe || target->subgroup_size != expected)
        return kb_error_new(KB_ERR_INPUT,
                            "hierarchical needs all PEs of all ranks in one group: mapper: "
                            "all_pes and rank: sip");
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, scope->machine.pes);
    kb_ccl_add_integer(args, scope->machine.cubes);
    kb_ccl_add_integer(args, target->rank);
    kb_ccl_add_integer(args, scope->world);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 8));
    return NULL;
}

const kb_ccl_algorithm ccl_hierarchical_algorithm = {
    .name = "hierarchical",
    .summary = "reduces over PEs, then cubes, then SIPs, and broadcasts back; reduces all "
               "shards",
    .kernel = &hierarchical,
    .arguments = hierarchical_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .topologies = ccl_level_topologies,
    .mapper = "all_pes",
    .reduce_shards = true,
    .same_bits = true,
};
