/*
 * mappers.c: the mappers that ship. A mapper selects the participants and their order in subgroups.
 *
 * The order in a subgroup is the order of a ring through it, so it decides which hops are short.
 * `lanes` distributes its subgroups evenly over the rings around the SIPs (rings.h). PEs of one
 * column of cubes share the route to the IO chiplet; they use the same ring if possible, because
 * packets that wait for one link between SIPs block those for another link behind them.
 */
#include <stdlib.h>

#include "plan.h"
#include "rings.h"

/* ---- Mappers ----------------------------------------------------------------------------- */

static kb_error *map_ranks(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    for (uint32_t rank = 0; rank < scope->world; rank++)
        KB_TRY(kb_ccl_add_participant(participants, 0, rank, scope->ranks[rank]));
    return NULL;
}

/* The first `pes` PEs of each cube of the ranks' SIPs. */
static kb_error *map_cubes(const kb_ccl_scope *scope, uint32_t pes,
                           kb_ccl_participants *participants)
{
    for (uint32_t rank = 0; rank < scope->world; rank++)
        for (uint32_t cube = 0; cube < scope->machine.cubes; cube++)
            for (uint32_t pe = 0; pe < pes; pe++)
                KB_TRY(kb_ccl_add_participant(participants, 0, rank,
                                              (kb_pe){scope->ranks[rank].sip, cube, pe}));
    return NULL;
}

static kb_error *map_all_pes(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    return scope->rank_is_pe ? map_ranks(scope, participants)
                             : map_cubes(scope, scope->machine.pes, participants);
}

static kb_error *map_cube_leaders(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    if (scope->rank_is_pe)
        return kb_error_new(KB_ERR_INPUT, "mapper cube_leaders takes PE 0 of every cube of a rank, "
                                          "but here a rank is a PE: it needs rank: sip");
    return map_cubes(scope, 1, participants);
}

/* The ring that a lane uses. Columns of cubes are distributed evenly over the rings if their number
 * allows it. Otherwise every column uses all rings, with the same share of each. */
static uint32_t ring_of_lane(const kb_machine *m, kb_pe pe, uint32_t rings)
{
    uint32_t row = pe.cube / m->cube_w, column = pe.cube % m->cube_w;
    if (m->cube_w % rings == 0)
        return column % rings;
    if (rings == 2 * m->cube_w)
        return column + pe.pe % 2 * m->cube_w;
    return ((column * m->cube_h + row) * m->pes + pe.pe) % rings;
}

static kb_error *map_lane(const kb_ccl_scope *scope, const ccl_rings *rings, uint32_t lane,
                          kb_ccl_participants *participants)
{
    kb_pe pe = {.cube = lane / scope->machine.pes, .pe = lane % scope->machine.pes};
    const uint32_t *ring = ccl_ring(rings, ring_of_lane(&scope->machine, pe, rings->count));
    for (uint32_t index = 0; index < scope->world; index++) {
        pe.sip = scope->ranks[ring[index]].sip;
        KB_TRY(kb_ccl_add_participant(participants, lane, ring[index], pe));
    }
    return NULL;
}

static kb_error *map_lanes(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    if (scope->rank_is_pe)
        return map_ranks(scope, participants);
    ccl_rings rings;
    KB_TRY(ccl_rings_init(&rings, scope));
    kb_error *err = NULL;
    for (uint32_t lane = 0; lane < scope->machine.cubes * scope->machine.pes && !err; lane++)
        err = map_lane(scope, &rings, lane, participants);
    ccl_rings_fini(&rings);
    return err;
}

static kb_error *map_pe_ring(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    if (!scope->rank_is_pe)
        return kb_error_new(KB_ERR_INPUT, "mapper pe_ring is for ranks that are PEs: it needs "
                                          "rank: pe");
    uint32_t *ranks = kb_alloc_array(scope->world, sizeof *ranks);
    if (!ranks)
        return kb_error_nomem();
    kb_error *err = ccl_pe_ring(scope, ranks);
    for (uint32_t i = 0; i < scope->world && !err; i++)
        err = kb_ccl_add_participant(participants, 0, ranks[i], scope->ranks[ranks[i]]);
    free(ranks);
    return err;
}

static const kb_ccl_mapper leader_only = {
    .name = "leader_only",
    .summary = "one PE per rank: PE 0 of cube 0 of its SIP, or the rank itself",
    .map = map_ranks,
    .validator = "single_shard_per_rank",
};

static const kb_ccl_mapper all_pes = {
    .name = "all_pes",
    .summary = "all PEs of the ranks' SIPs in one group",
    .map = map_all_pes,
    .validator = "multi_pe_sip_local",
};

static const kb_ccl_mapper cube_leaders = {
    .name = "cube_leaders",
    .summary = "PE 0 of every cube of the ranks' SIPs in one group",
    .map = map_cube_leaders,
    .validator = "shard_per_cube",
};

static const kb_ccl_mapper lanes = {
    .name = "lanes",
    .summary = "all PEs; each forms a group with the same PE of the other ranks",
    .map = map_lanes,
};

static const kb_ccl_mapper pe_ring = {
    .name = "pe_ring",
    .summary = "ranks that are PEs in one group, ordered so that few flows share a link",
    .map = map_pe_ring,
};

const kb_ccl_mapper *const ccl_mappers[] = {&leader_only, &all_pes, &cube_leaders,
                                            &lanes,       &pe_ring, NULL};
