/*
 * rings.h: the ways on which lanes go around the SIPs of a group. Each step is one direct link
 * where the links allow it, and different rings use different links: together they use all that
 * they can.
 */
#ifndef KB_CCL_RINGS_H
#define KB_CCL_RINGS_H

#include <kernbench/ccl.h>

#include "base/base.h"

typedef struct ccl_rings {
    uint32_t count, world;
    uint32_t *ranks; /* ring after ring, in the order of its steps */
} ccl_rings;

/* If there are no direct links there is one ring, in the order of the ranks. */
KB_MUST_USE kb_error *ccl_rings_init(ccl_rings *rings, const kb_ccl_scope *scope);
void ccl_rings_fini(ccl_rings *rings);

static inline const uint32_t *ccl_ring(const ccl_rings *rings, uint32_t ring)
{
    return &rings->ranks[(size_t)ring * rings->world];
}

/* Whether the rings come out even, so that all lanes of a column of cubes follow the same one and
 * need not go both ways around. A guess, without searching for rings: for speed alone. */
bool ccl_columns_go_one_way(const kb_ccl_scope *scope);

/* Where each rank is a PE: the ranks in an order in which neighbours are near and their flows, both
 * ways around, share few links. */
KB_MUST_USE kb_error *ccl_pe_ring(const kb_ccl_scope *scope, uint32_t *ranks);

#endif
