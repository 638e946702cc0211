/*
 * rings.h: the rings of lanes around the SIPs of a group. Each step is one direct link where
 * possible. The rings together use all links evenly where possible.
 */
#ifndef KB_CCL_RINGS_H
#define KB_CCL_RINGS_H

#include <kernbench/ccl.h>

#include "base/base.h"

typedef struct ccl_rings {
    uint32_t count, world;
    uint32_t *ranks; /* ring after ring, each in the order of its steps */
} ccl_rings;

/* Without direct links there is one ring, in the order of the ranks. */
KB_MUST_USE kb_error *ccl_rings_init(ccl_rings *rings, const kb_ccl_scope *scope);
void ccl_rings_fini(ccl_rings *rings);

static inline const uint32_t *ccl_ring(const ccl_rings *rings, uint32_t ring)
{
    return &rings->ranks[(size_t)ring * rings->world];
}

/* Whether columns of cubes can be distributed evenly over the rings, so that all lanes of a column
 * use one ring and need only one direction of it. An estimate without a search for rings: it
 * affects speed alone. */
bool ccl_columns_go_one_way(const kb_ccl_scope *scope);

/* For ranks that are PEs: an order of the ranks in which neighbours are near and the flows between
 * them, in both directions, share few links. */
KB_MUST_USE kb_error *ccl_pe_ring(const kb_ccl_scope *scope, uint32_t *ranks);

#endif
