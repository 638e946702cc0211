/* sip_grid.h: scopes of SIPs with direct links, for the tests of rings and trees. */
#ifndef TESTS_CCL_GRID_H
#define TESTS_CCL_GRID_H

#include "support/expect.h"

#include <kernbench/ccl.h>

enum { MAX_SIPS = 144 };

/* A grid of SIPs with direct links, all of which take part. */
typedef struct grid {
    kb_ccl_scope scope;
    kb_pe ranks[MAX_SIPS];
} grid;

static inline void grid_init(grid *g, kb_sip_pattern pattern, uint32_t w, uint32_t h)
{
    assert_true(w * h <= MAX_SIPS);
    *g = (grid){.scope = {.machine = {.sips = w * h},
                          .sips = pattern,
                          .sip_w = w,
                          .sip_h = h,
                          .sip_links = true,
                          .world = w * h,
                          .entry = "mine"}};
    g->scope.ranks = g->ranks;
    for (uint32_t i = 0; i < w * h; i++)
        g->ranks[i] = (kb_pe){.sip = i};
}

#endif
