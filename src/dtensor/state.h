/*
 * state.h: what distributed tensors keep in a context. Private to dtensor.
 *
 *     state.c         the tables of meshes and DTensors
 *     mesh.c          device meshes and their groups
 *     placement.c     placements: checks, local shapes, text
 *     frame.c         what a call makes and frees: local tensors, launches, collectives
 *     kernels.c       kernels for what is local: copies, element-wise operations, reductions
 *     local.c         copies and element-wise operations on local tensors, by those kernels
 *     redistribute.c  from placements to placements
 *     create.c        distribute_tensor, from_local, to_local, full_tensor
 *     rules.c         the table of rules for operations
 *     propagate.c     which rule an operation uses, and at which cost
 *     ops.c           the operations
 *
 * The caller *drives* positions of a mesh: a worker its own, the program outside workers all of
 * them. Arrays of local tensors have one entry for each position that the caller drives.
 */
#ifndef KB_DTENSOR_STATE_H
#define KB_DTENSOR_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/dtensor.h>
#include <kernbench/tl.h>

#include "base/base.h"
#include "rt/rt.h"

/* ---- Objects ---- */

typedef struct dt_mesh {
    uint64_t id;
    uint32_t caller; /* rank of the worker that made it, or RT_DRIVER */
    uint32_t ndim;
    uint32_t shape[KB_MESH_DIMS];
    char names[KB_MESH_DIMS][KB_MESH_NAME_BYTES];
    uint32_t size;
    uint32_t *ranks;                /* by position: rank in the process group */
    uint32_t *devices;              /* by position */
    kb_group *groups[KB_MESH_DIMS]; /* along each dimension, by the coordinate in the other one */
    uint32_t first;                 /* position that the caller drives, */
    uint32_t driven;                /* and how many: 0 if the caller is not in the mesh */
    kb_tensor *grids;               /* by driven position: see frame.h, dt_launch() */
    struct dt_mesh *parent;         /* of a sub-mesh */
    uint32_t users;                 /* DTensors and sub-meshes of it */
} dt_mesh;

typedef struct dt_tensor {
    uint64_t id;
    char name[KB_MESH_NAME_BYTES];
    dt_mesh *mesh;
    kb_shape shape; /* of the whole */
    kb_dtype dtype;
    kb_placements placements;
    kb_tensor *locals; /* by driven position */
    bool owns_locals;
    kb_dtensor_report report;
} dt_tensor;

typedef struct dt_state {
    kb_context *ctx;
    uint64_t last_id;       /* of meshes and DTensors: none is used twice */
    KB_VEC(void *) meshes;  /* dt_mesh, by id */
    KB_VEC(void *) tensors; /* dt_tensor, by id */
} dt_state;

/* ---- state.c ---- */

/* Made at the first call that needs it. */
KB_MUST_USE kb_error *dt_get_state(kb_context *ctx, dt_state **state);

KB_MUST_USE kb_error *dt_add_mesh(dt_state *state, dt_mesh *mesh);
void dt_remove_mesh(dt_state *state, dt_mesh *mesh); /* and frees it */
void dt_free_mesh(dt_mesh *mesh);                    /* one that was not added */

KB_MUST_USE kb_error *dt_add_tensor(dt_state *state, dt_tensor *tensor);
void dt_remove_tensor(dt_state *state, dt_tensor *tensor); /* and frees it */

/* What a handle is looked up for. */
typedef enum dt_use { DT_TO_USE, DT_TO_FREE } dt_use;

/* By handle. The caller has to be the one that made it; or, to free it, outside workers. A member
 * is in the mesh. */
KB_MUST_USE kb_error *dt_find_mesh(kb_context *ctx, const char *function, kb_device_mesh handle,
                                   dt_use use, dt_mesh **mesh);
KB_MUST_USE kb_error *dt_find_member(kb_context *ctx, const char *function, kb_device_mesh handle,
                                     dt_mesh **mesh);
KB_MUST_USE kb_error *dt_find_tensor_to(kb_context *ctx, const char *function, kb_dtensor handle,
                                        dt_use use, dt_tensor **tensor);
KB_MUST_USE kb_error *dt_find_tensor(kb_context *ctx, const char *function, kb_dtensor handle,
                                     dt_tensor **tensor); /* to use it */

/* ---- mesh.c ---- */

/* The coordinate of a position along a dimension of the mesh. */
uint32_t dt_coordinate(const dt_mesh *mesh, uint32_t position, uint32_t dim);

/* The position with another coordinate along a dimension. */
uint32_t dt_position(const dt_mesh *mesh, uint32_t position, uint32_t dim, uint32_t coordinate);

/* The group along a dimension that a position is in. */
kb_group dt_group(const dt_mesh *mesh, uint32_t position, uint32_t dim);

/* The device to go back to after tensors were made on another one: the current one, or, for a
 * worker that has set none, its own. The second goes back, and hands the error on. */
uint32_t dt_device_before(kb_context *ctx, uint32_t own);
KB_MUST_USE kb_error *dt_restore_device(kb_context *ctx, uint32_t device, kb_error *err);

/* ---- placement.c ---- */

static inline bool dt_is_replicate(kb_placement p)
{
    return p.kind == KB_PLACEMENT_REPLICATE;
}

static inline bool dt_is_partial(kb_placement p)
{
    return p.kind == KB_PLACEMENT_PARTIAL;
}

static inline bool dt_is_shard(kb_placement p)
{
    return p.kind == KB_PLACEMENT_SHARD;
}

/* Shard of this dimension. */
static inline bool dt_shards(kb_placement p, uint32_t dim)
{
    return dt_is_shard(p) && (uint32_t)p.dim == dim;
}

bool dt_same_placement(kb_placement a, kb_placement b);
bool dt_same_placements(kb_placements a, kb_placements b);

/* Whether a reduction along one dimension of a mesh may come before or after one along another. */
bool dt_ops_commute(kb_placements placements);

/* Whether they make sense for a tensor on the mesh. Dimensions become non-negative. */
KB_MUST_USE kb_error *dt_check_placements(const dt_mesh *mesh, uint32_t rank, kb_dtype dtype,
                                          kb_placements *placements);

/* Part `index` of n elements that `parts` ranks share: each has ceil(n / parts) while some are
 * left. */
uint64_t dt_chunk(uint64_t n, uint32_t parts);
uint64_t dt_chunk_begin(uint64_t n, uint32_t parts, uint32_t index);
uint64_t dt_chunk_size(uint64_t n, uint32_t parts, uint32_t index);

/* The part of the whole that a position has: from where (may be NULL), and its shape. */
kb_shape dt_local_shape(const dt_mesh *mesh, uint32_t position, const kb_shape *shape,
                        kb_placements placements, uint64_t begin[KB_MAX_DIMS]);

uint64_t dt_elements(const kb_shape *shape);

/* Elements of the dimensions before `dim`, and behind it. */
uint64_t dt_outer(const kb_shape *shape, uint32_t dim);
uint64_t dt_inner(const kb_shape *shape, uint32_t dim);

/* A negative dimension counts from the end. */
KB_MUST_USE kb_error *dt_check_dim(int dim, uint32_t rank, uint32_t *out);

#endif
