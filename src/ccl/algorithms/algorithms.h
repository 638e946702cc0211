/*
 * algorithms.h: what the collectives that ship share. Private to ccl.
 *
 *     basic.c                 hello_send, ring, mesh, tree: the simplest there are
 *     hierarchical.c          over the PEs of a cube, the cubes of a SIP, the SIPs
 *     intercube.c             over the mesh of cubes and the pattern of SIPs
 *     ring_rsag.c             rings that move no byte more than they have to
 *     ring_rooted.c           from one, or to one, along a ring
 *     pairwise.c              everybody with everybody
 *     tree_allreduce.c         many trees that share the links of SIPs
 *     tree_streams.c          such trees, with a PE for each step of each
 *
 * A kernel works on its PE's part in tiles, each of which goes in one slot of a queue and whose
 * values are freed when it is done: so parts may be larger than the TCM. All members of a circle
 * have equally many elements, and therefore the same tiles; if there are none nothing is sent.
 */
#ifndef KB_CCL_ALGORITHMS_H
#define KB_CCL_ALGORITHMS_H

#include <stdio.h>

#include <kernbench/ccl.h>

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

/* A piece of what a PE has, and what is to become of it. */
typedef struct ccl_tile {
    tl_ptr at;
    tl_dims shape;
    kb_dtype dtype;
    kb_reduce_op op;
} ccl_tile;

static inline int64_t ccl_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where an element is in memory. */
static inline tl_ptr ccl_at(tl_ptr base, int64_t element, kb_dtype dtype)
{
    return base + element * (int64_t)kb_dtype_bytes(dtype);
}

/* Two values become one. An average is a sum until ccl_finish(). */
tl_tensor ccl_combine(tl_context *tl, kb_reduce_op op, tl_tensor a, tl_tensor b);

/* When all `count` values are in it. */
tl_tensor ccl_finish(tl_context *tl, kb_reduce_op op, tl_tensor sum, int64_t count);

/*
 * Members in a circle, each with a value: everybody gets them all, by sending on what it receives,
 * and adds them up, each beginning with its own.
 */
void ccl_ring_exchange(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, int64_t members,
                       const char *to, const char *from);

/* Members in a line. `up` leads to the next place, `down` to the one before. */
typedef struct ccl_line {
    int64_t place, members, root;
    const char *up, *down;
} ccl_line;

/* Sums flow from both ends of the line to its root; elsewhere `sum` is of no use afterwards. And
 * what the root has flows to both ends. */
void ccl_reduce_along(tl_context *tl, const ccl_tile *tile, tl_tensor *sum, ccl_line line);
void ccl_broadcast_along(tl_context *tl, const ccl_tile *tile, tl_tensor *value, ccl_line line);

/* The rank at a place of the circle: see ccl_order_of_ranks(). */
static inline int64_t ccl_rank_at(int64_t order, int64_t place)
{
    return order == 0 ? place : (int64_t)((uint64_t)order >> (4 * place) & 15);
}

/* A direction that is made up: "r7", "up0", "down0_3". */
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

/*
 * Elements of a tile: as many as a slot holds, or fewer if the entry has a chunk_size that is
 * smaller. So many tiles that a kernel holds at a time are at most half of its TCM.
 */
int64_t ccl_tile_elements(const kb_ccl_call *call, int64_t tiles_held);

/* Address, elements, dtype and operation: how most kernels' parameters begin. */
void ccl_add_common(const kb_ccl_call *call, const kb_ccl_part *part, kb_ccl_arguments *args);

/*
 * Which rank is at which place of the circle, four bits each; 0 if ranks are in order. Others are
 * possible in circles of up to 16 alone: as many SIPs as addresses can name.
 */
KB_MUST_USE kb_error *ccl_order_of_ranks(const kb_ccl_call *call, const kb_ccl_part *part,
                                         int64_t *order);

/* Where the call's root is in the circle. */
int64_t ccl_root_index(const kb_ccl_call *call, const kb_ccl_part *part);

/* Topologies that ship, by the directions that kernels use. */
extern const char *const ccl_ring_topologies[];
extern const char *const ccl_mesh_topologies[];
extern const char *const ccl_tree_topologies[];
extern const char *const ccl_level_topologies[];
extern const char *const ccl_pair_topologies[];

#endif
