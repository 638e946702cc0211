/*
 * dtensor_state.h: the state of distributed tensors in a context. Private to dtensor.
 *
 *     dtensor_state.c the tables of meshes and DTensors
 *     mesh.c          device meshes and their groups
 *     placements.c    placements: checks, local shapes, text
 *     frame.c         temporary objects of a call: local tensors, launches, collectives
 *     kernels.c       kernels within a device: copies, element-wise operations, reductions
 *     local.c         copies and element-wise operations on local tensors, by those kernels
 *     redistribute.c  changes of placements
 *     steps.c         the order of these changes
 *     conversions.c   distribute_tensor, from_local, to_local, full_tensor
 *     rules.c         the table of rules for operations
 *     propagate.c     the choice of rules for an operation, by cost
 *     ops.c           the operations
 *
 * The caller *drives* positions of a mesh: a worker its own, the program outside workers all of
 * them. Arrays of local tensors have one entry for each driven position.
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
    uint32_t first;                 /* the first driven position */
    uint32_t driven;                /* their number; 0: the caller is not in the mesh */
    kb_tensor *grids;               /* by driven position: see frame.h, dt_launch() */
    struct dt_mesh *parent;         /* of a sub-mesh */
    uint32_t users;                 /* number of its DTensors and sub-meshes */
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
    uint64_t last_id;       /* of meshes and DTensors; ids are not reused */
    KB_VEC(void *) meshes;  /* dt_mesh, by id */
    KB_VEC(void *) tensors; /* dt_tensor, by id */
} dt_state;

/* ---- dtensor_state.c ---- */

/* Creates the state at the first call. */
KB_MUST_USE kb_error *dt_get_state(kb_context *ctx, dt_state **state);

KB_MUST_USE kb_error *dt_add_mesh(dt_state *state, dt_mesh *mesh);
void dt_remove_mesh(dt_state *state, dt_mesh *mesh); /* and frees the mesh */
void dt_free_mesh(dt_mesh *mesh);                    /* of a mesh that was not added */

KB_MUST_USE kb_error *dt_add_tensor(dt_state *state, dt_tensor *tensor);
void dt_remove_tensor(dt_state *state, dt_tensor *tensor); /* and frees the DTensor */

/* The purpose of looking up a handle. */
typedef enum dt_use { DT_TO_USE, DT_TO_FREE } dt_use;

/* By handle. The caller must be the one that made the object; to free it, the program outside
 * workers may too. dt_find_own_mesh() also requires that the caller's rank is in the mesh. */
KB_MUST_USE kb_error *dt_find_mesh(kb_context *ctx, const char *function, kb_device_mesh handle,
                                   dt_use use, dt_mesh **mesh);
KB_MUST_USE kb_error *dt_find_own_mesh(kb_context *ctx, const char *function, kb_device_mesh handle,
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

/* The current device, to be restored after tensors were made on another one; for a worker that has
 * set none, its own. dt_restore_device() restores it and returns the error. */
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

/* Whether the reductions along the dimensions of a mesh can be done in any order. */
bool dt_ops_commute(kb_placements placements);

/* Checks placements for a tensor on the mesh, and makes dimensions non-negative. */
KB_MUST_USE kb_error *dt_check_placements(const dt_mesh *mesh, uint32_t rank, kb_dtype dtype,
                                          kb_placements *placements);

/* Part `index` of n elements that `parts` ranks share: each has ceil(n / parts) while some are
 * left. */
uint64_t dt_chunk(uint64_t n, uint32_t parts);
uint64_t dt_chunk_begin(uint64_t n, uint32_t parts, uint32_t index);

/* The part of a position: its begin (may be NULL) and its shape. */
kb_shape dt_local_shape(const dt_mesh *mesh, uint32_t position, const kb_shape *shape,
                        kb_placements placements, uint64_t begin[KB_MAX_DIMS]);

uint64_t dt_elements(const kb_shape *shape);

/* The number of elements of the dimensions before `dim`, and after it. */
uint64_t dt_outer(const kb_shape *shape, uint32_t dim);
uint64_t dt_inner(const kb_shape *shape, uint32_t dim);

/* A negative dimension counts from the end. */
KB_MUST_USE kb_error *dt_check_dim(int dim, uint32_t rank, uint32_t *out);

#endif
