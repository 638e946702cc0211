/*
 * algorithms.h: what the shipped collectives share. Private to ccl.
 *
 *     basic.c             hello_send, ring, mesh, tree: simple examples
 *     hierarchical.c      over the PEs of a cube, the cubes of a SIP, the SIPs
 *     intercube.c         over the mesh of cubes and the pattern of SIPs
 *     ring_rsag.c         bandwidth-optimal rings: reduce-scatter, all-gather, all-reduce
 *     ring_rooted.c       broadcast and reduce along a ring
 *     pairwise.c          all participants exchange messages directly
 *     tree_allreduce.c    several spanning trees that share the links of SIPs
 *     tree_streams.c      such trees, with a PE for each link of each tree
 *
 * A kernel works on its PE's part in tiles. A tile fits a slot of a queue, and its values are freed
 * when it is done, so parts may be larger than the TCM. Invariant: all participants of a subgroup
 * have equally many elements, and therefore the same tiles; without elements nothing is sent.
 */
#ifndef KB_CCL_ALGORITHMS_H
#define KB_CCL_ALGORITHMS_H

#include <stdio.h>

#include <kernbench/ccl.h>

#include "base/base.h"

extern const kb_ccl_algorithm ccl_hello_send_algorithm;
extern const kb_ccl_algorithm ccl_ring_algorithm;
extern const kb_ccl_algorithm ccl_mesh_algorithm;
extern const kb_ccl_algorithm ccl_tree_algorithm;
extern const kb_ccl_algorithm ccl_hierarchical_algorithm;
extern const kb_ccl_algorithm ccl_intercube_algorithm;
extern const kb_ccl_algorithm ccl_ring_rsag_algorithm;
extern const kb_ccl_algorithm ccl_ring_all_gather_algorithm;
extern const kb_ccl_algorithm ccl_ring_reduce_scatter_algorithm;
extern const kb_ccl_algorithm ccl_ring_broadcast_algorithm;
extern const kb_ccl_algorithm ccl_ring_reduce_algorithm;
extern const kb_ccl_algorithm ccl_one_shot_algorithm;
extern const kb_ccl_algorithm ccl_pairs_gather_algorithm;
extern const kb_ccl_algorithm ccl_pairs_scatter_algorithm;
extern const kb_ccl_algorithm ccl_pairs_all_to_all_algorithm;
extern const kb_ccl_algorithm ccl_pairs_send_algorithm;
extern const kb_ccl_algorithm ccl_trees_algorithm;
extern const kb_ccl_algorithm ccl_streams_algorithm;

/* ---- In kernels -------------------------------------------------------------------------- */

/* A tile of a PE's part, with its dtype and reduction. */
typedef struct ccl_tile {
    tl_ptr at;
    tl_dims shape;
    kb_dtype dtype;
    kb_reduce_op op;
} ccl_tile;

/* The address of an element. */
static inline tl_ptr ccl_at(tl_ptr base, int64_t element, kb_dtype dtype)
{
    return base + element * (int64_t)kb_dtype_bytes(dtype);
}

/* Combines two values. An average is a sum until ccl_finish(). */
tl_tensor ccl_combine(tl_context *tl, kb_reduce_op op, tl_tensor a, tl_tensor b);

/* Called once all `count` values are combined. */
tl_tensor ccl_finish(tl_context *tl, kb_reduce_op op, tl_tensor sum, int64_t count);

/* All participants of a ring get all values by forwarding what they receive. Each adds them up,
 * beginning with its own. */
void ccl_ring_exchange(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, int64_t participants,
                       const char *to, const char *from);

/* A participant in a line. `up` leads to the next index, `down` to the previous one. */
typedef struct ccl_line {
    int64_t index, participants, root;
    const char *up, *down;
} ccl_line;

/* Sums flow from both ends of the line to its root; elsewhere `sum` is undefined afterwards. A
 * broadcast flows from the root to both ends. */
void ccl_reduce_along(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, ccl_line line);
void ccl_broadcast_along(tl_context *tl, const ccl_tile *tile, tl_tensor *value, ccl_line line);

/* The rank at an index of the subgroup; `order` is of ccl_order_of_ranks(). */
static inline int64_t ccl_rank_at(int64_t order, int64_t index)
{
    return order == 0 ? index : (int64_t)((uint64_t)order >> (4 * index) & 15);
}

/* The name of a direction with numbers: "r7", "up0", "down0_3". */
typedef struct ccl_label {
    char text[32];
} ccl_label;

static inline ccl_label ccl_label_of(const char *prefix, int64_t number)
{
    ccl_label label;
    snprintf(label.text, sizeof label.text, "%s%lld", prefix, (long long)number);
    return label;
}

static inline ccl_label ccl_label_of_two(const char *prefix, int64_t first, int64_t second)
{
    ccl_label label;
    snprintf(label.text, sizeof label.text, "%s%lld_%lld", prefix, (long long)first,
             (long long)second);
    return label;
}

/* ---- For arguments ----------------------------------------------------------------------- */

/* The elements of a tile: as many as fit a slot, or `chunk_size` of the entry if that is less.
 * `tiles_held` tiles, which a kernel holds at a time, use at most half of its TCM. */
int64_t ccl_tile_elements(const kb_ccl_call *call, int64_t tiles_held);

/* Address, elements, dtype and operation: the first parameters of most kernels. */
void ccl_add_common(const kb_ccl_call *call, const kb_ccl_target *target, kb_ccl_arguments *args);

/* The ranks by index of the subgroup, four bits each; 0 if they are in order. Other orders need a
 * subgroup of at most 16, which is the number of SIPs that addresses can name. */
KB_MUST_USE kb_error *ccl_order_of_ranks(const kb_ccl_call *call, const kb_ccl_target *target,
                                         int64_t *order);

/* The index of the call's root in the subgroup. */
int64_t ccl_root_index(const kb_ccl_call *call, const kb_ccl_target *target);

/* Shipped topologies, by the directions that kernels use. */
extern const char *const ccl_ring_topologies[];
extern const char *const ccl_mesh_topologies[];
extern const char *const ccl_tree_topologies[];
extern const char *const ccl_level_topologies[];
extern const char *const ccl_pair_topologies[];

#endif
