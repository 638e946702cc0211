/*
 * trees.h: spanning trees of the graph of SIPs that use its links evenly. A pipelined reduction up
 * a tree and broadcast down again uses each link of the tree once in each direction. If all links
 * are in equally many trees, all links are busy all the time, which is optimal. On a whole mesh
 * trees are combs, which are shallow and use the links evenly; on other graphs each is a minimum
 * spanning tree weighted by the use of links in earlier trees (greedy tree packing). The first k
 * trees of a packing are the packing of k trees.
 */
#ifndef KB_CCL_TREES_H
#define KB_CCL_TREES_H

#include <kernbench/ccl.h>

#include "base/base.h"

typedef struct ccl_tree {
    uint32_t root;
    uint32_t *parent; /* by rank; the root's is itself */
} ccl_tree;

typedef struct ccl_trees {
    KB_VEC(ccl_tree) items;
} ccl_trees;

/* Makes `count` trees over the ranks of the scope, along direct links of the SIPs; without those (a
 * switch) along the ring of the ranks. An error if the links do not connect all ranks. */
KB_MUST_USE kb_error *ccl_trees_init(ccl_trees *trees, const kb_ccl_scope *scope, uint32_t count);
void ccl_trees_fini(ccl_trees *trees);

/* The links available to trees. */
typedef struct ccl_tree_links {
    uint32_t count;
    uint32_t max_of_rank; /* the maximum over ranks */
} ccl_tree_links;

KB_MUST_USE kb_error *ccl_count_tree_links(const kb_ccl_scope *scope, ccl_tree_links *links);

#endif
