/*
 * trees.h: spanning trees of the graph of SIPs that share its links evenly. A pipelined reduction
 * up a tree and broadcast down again uses each link of the tree once each way; with trees chosen so
 * that no link is in many more of them than others, all links are busy all the time, which is the
 * best that any algorithm can do. On a whole mesh trees are combs, which are not deep and share the
 * links evenly; else each is a minimum spanning tree by how often links were used by those before
 * (greedy tree packing). The first so many of a packing are the packing of so many.
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

/* So many trees over the ranks of the scope, along direct links of the SIPs; if there are none (a
 * switch) along the ring of the ranks. An error if the links do not join the ranks. */
KB_MUST_USE kb_error *ccl_trees_init(ccl_trees *trees, const kb_ccl_scope *scope, uint32_t count);
void ccl_trees_fini(ccl_trees *trees);

/* The links that trees can use. */
typedef struct ccl_tree_links {
    uint32_t count;
    uint32_t most; /* of one rank */
} ccl_tree_links;

KB_MUST_USE kb_error *ccl_count_tree_links(const kb_ccl_scope *scope, ccl_tree_links *links);

#endif
