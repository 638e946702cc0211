/*
 * lower_bound.h: the time that a collective takes at least, whatever the algorithm, on a machine:
 * what has to leave each participant at the bandwidth that it has, and what has to be added at the
 * rate of its vector engines. docs/decisions/0013-collectives.md has the reasons.
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
    kb_memory memory; /* where the tensors are */
    kb_dtype dtype;
    uint64_t size; /* bytes of one participant's buffer, as nccl-tests count */
} ccl_bound_query;

typedef struct ccl_bound {
    kb_time time;   /* the larger of: */
    kb_time moving; /* bytes at the bandwidth out of a participant */
    kb_time adding; /* elements at the rate of its vector engines */
    double gbs;     /* that bandwidth */
} ccl_bound;

KB_MUST_USE kb_error *ccl_bound_of(const ccl_bound_query *query, ccl_bound *bound);

/* Bus bandwidth is size / time times this: 2(n-1)/n for all_reduce, and so on. */
double ccl_bus_factor(kb_collective_kind kind, uint32_t world);

#endif
