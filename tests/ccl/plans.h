/* plans.h: machines, groups of PEs, and connections as text, for the tests of plans. */
#ifndef TESTS_CCL_PLANS_H
#define TESTS_CCL_PLANS_H

#include "support/expect.h"

#include <stdarg.h>

#include "ccl/ccl.h"
#include "topo/random_machines.h"

/* A topology, mapper or validator that ships. */
static inline ccl_registry shipped(void)
{
    ccl_registry registry;
    expect_ok(ccl_registry_init(&registry, NULL, 0));
    return registry;
}

static inline const kb_ccl_topology *topology_of(const char *name)
{
    ccl_registry registry = shipped();
    const kb_ccl_topology *topology = ccl_find_topology(&registry, name);
    assert_non_null(topology);
    return topology;
}

static inline const kb_ccl_mapper *mapper_of(const char *name)
{
    ccl_registry registry = shipped();
    const kb_ccl_mapper *mapper = ccl_find_mapper(&registry, name);
    assert_non_null(mapper);
    return mapper;
}

/* An entry that joins its participants in a ring; tests change what they are about. */
static inline ccl_entry an_entry(void)
{
    static const kb_ccl_algorithm nothing = {.name = "nothing"};
    return (ccl_entry){
        .name = "mine",
        .algorithm = &nothing,
        .topology = topology_of("ring_1d"),
        .mapper = mapper_of("leader_only"),
        .buffer = KB_TCM,
        .n_slots = 4,
        .slot_bytes = 4096,
        .vc_chunk_bytes = 256,
        .credit_bytes = 16,
    };
}

/* Ranks 0, 1, .. on SIPs 0, 1, .. */
static inline kb_error *plan_all(const ccl_entry *entry, const topo_machine *machine,
                                 ccl_plan *plan)
{
    uint32_t sips[64], world = ccl_plan_world(entry, machine, TOPO_NONE);
    for (uint32_t i = 0; i < 64; i++)
        sips[i] = i;
    return ccl_plan_make(entry, machine, entry->rank_is_pe ? NULL : sips, world, plan);
}

#endif
