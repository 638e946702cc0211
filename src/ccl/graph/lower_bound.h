/*
 * lower_bound.h: the minimum time of a collective on a machine, for any algorithm: the bytes that
 * must leave each participant at its bandwidth, and the additions at the rate of its vector
 * engines. docs/decisions/0013-collectives.md has the reasons.
 */
#ifndef KB_CCL_LOWER_BOUND_H
#define KB_CCL_LOWER_BOUND_H

#include <kernbench/ccl.h>

#include "topo/topo.h"

typedef struct ccl_bound_query {
    const topo_machine *machine;
    kb_collective_kind kind;
    const kb_pe *ranks; /* by rank: the PE, or PE 0 of cube 0 of its SIP */
    uint32_t world;
    bool rank_is_pe;
    kb_memory memory; /* of the tensors */
    kb_dtype dtype;
    uint64_t size; /* bytes of one participant's buffer, as nccl-tests count */
} ccl_bound_query;

typedef struct ccl_bound {
    kb_time time;   /* the maximum of: */
    kb_time moving; /* bytes at the outgoing bandwidth of a participant */
    kb_time adding; /* elements at the rate of its vector engines */
    double gbs;     /* outgoing bandwidth of a participant, on average */
} ccl_bound;

KB_MUST_USE kb_error *ccl_bound_of(const ccl_bound_query *query, ccl_bound *bound);

/* Bus bandwidth is size / time * factor: 2(n-1)/n for all_reduce, and so on. */
double ccl_bus_factor(kb_collective_kind kind, uint32_t world);

#endif
