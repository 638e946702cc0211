/*
 * mesh.c: device meshes. Positions are numbered row by row: position p of a mesh of shape (h, w)
 * has the coordinates (p / w, p % w). Along each dimension there is a group for every coordinate in
 * the other one; the rank in the group is the coordinate along the dimension.
 */
#include "dtensor_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ccl/ccl.h"

/* ---- Coordinates ---- */

/* The distance of positions whose coordinates differ by one along the dimension. */
static uint32_t step_of(const dt_mesh *mesh, uint32_t dim)
{
    return dim + 1 < mesh->ndim ? mesh->shape[1] : 1;
}

uint32_t dt_coordinate(const dt_mesh *mesh, uint32_t position, uint32_t dim)
{
    return position / step_of(mesh, dim) % mesh->shape[dim];
}

uint32_t dt_position(const dt_mesh *mesh, uint32_t position, uint32_t dim, uint32_t coordinate)
{
    uint32_t step = step_of(mesh, dim);
    return position - dt_coordinate(mesh, position, dim) * step + coordinate * step;
}

static uint32_t group_index(const dt_mesh *mesh, uint32_t position, uint32_t dim)
{
    return mesh->ndim == 1 ? 0 : dt_coordinate(mesh, position, 1 - dim);
}

kb_group dt_group(const dt_mesh *mesh, uint32_t position, uint32_t dim)
{
    return mesh->groups[dim][group_index(mesh, position, dim)];
}

/* ---- Devices ---- */

uint32_t dt_device_before(kb_context *ctx, uint32_t own)
{
    bool known = kb_ahbm_device_is_set(ctx) || rt_caller_rank(ctx) == RT_DRIVER;
    return known ? kb_ahbm_current_device(ctx) : own;
}

kb_error *dt_restore_device(kb_context *ctx, uint32_t device, kb_error *err)
{
    kb_error *back = kb_ahbm_set_device(ctx, device);
    if (err)
        kb_error_free(back);
    return err ? err : back;
}

/* ---- Creation ---- */

static kb_error *check_names(const dt_mesh *mesh)
{
    if (mesh->ndim == 2 && strcmp(mesh->names[0], mesh->names[1]) == 0)
        return kb_error_new(KB_ERR_INPUT, "both dimensions have the name '%s'", mesh->names[0]);
    return NULL;
}

static kb_error *name_dims(const kb_device_mesh_spec *spec, dt_mesh *mesh)
{
    static const char *const defaults[KB_MESH_DIMS] = {"dim0", "dim1"};
    for (uint32_t dim = 0; dim < mesh->ndim && dim < KB_MESH_DIMS; dim++) {
        const char *name = spec->mesh_dim_names[dim] ? spec->mesh_dim_names[dim] : defaults[dim];
        int length = snprintf(mesh->names[dim], KB_MESH_NAME_BYTES, "%s", name);
        if (length <= 0 || length >= KB_MESH_NAME_BYTES)
            return kb_error_new(KB_ERR_INPUT,
                                "the name of dimension %" PRIu32 " has %d bytes: expected 1 to %d",
                                dim, length, KB_MESH_NAME_BYTES - 1);
    }
    return check_names(mesh);
}

static kb_error *check_shape(const kb_device_mesh_spec *spec, uint32_t world, dt_mesh *mesh)
{
    if (spec->ndim < 1 || spec->ndim > KB_MESH_DIMS)
        return kb_error_new(KB_ERR_INPUT, "%" PRIu32 " dimensions: expected 1 or %d", spec->ndim,
                            KB_MESH_DIMS);
    mesh->ndim = spec->ndim;
    uint64_t size = 1;
    for (uint32_t dim = 0; dim < spec->ndim; dim++) {
        bool all = spec->ndim == 1 && spec->shape[0] == 0 && !spec->ranks;
        mesh->shape[dim] = all ? world : spec->shape[dim];
        if (mesh->shape[dim] == 0)
            return kb_error_new(KB_ERR_INPUT, "no ranks along dimension %" PRIu32, dim);
        size *= mesh->shape[dim];
    }
    if (size > world || (!spec->ranks && size != world))
        return kb_error_new(KB_ERR_INPUT,
                            "the mesh has %" PRIu64 " rank%s, but the world size is %" PRIu32, size,
                            kb_plural(size), world);
    mesh->size = (uint32_t)size;
    return name_dims(spec, mesh);
}

static kb_error *check_ranks(const dt_mesh *mesh, uint32_t world)
{
    for (uint32_t i = 0; i < mesh->size; i++) {
        if (mesh->ranks[i] >= world)
            return kb_error_new(KB_ERR_INPUT,
                                "no such rank %" PRIu32 ": the world size is %" PRIu32,
                                mesh->ranks[i], world);
        for (uint32_t k = 0; k < i; k++)
            if (mesh->ranks[k] == mesh->ranks[i])
                return kb_error_new(KB_ERR_INPUT, "rank %" PRIu32 " is named twice",
                                    mesh->ranks[i]);
    }
    return NULL;
}

/* Allocates the arrays of the mesh. */
static kb_error *allocate(dt_mesh *mesh)
{
    mesh->ranks = kb_alloc_array(mesh->size, sizeof *mesh->ranks);
    mesh->devices = kb_alloc_array(mesh->size, sizeof *mesh->devices);
    mesh->grids = kb_alloc_zeroed(mesh->size, sizeof *mesh->grids);
    bool made = mesh->ranks && mesh->devices && mesh->grids;
    for (uint32_t dim = 0; dim < mesh->ndim && made; dim++) {
        mesh->groups[dim] =
            kb_alloc_zeroed(mesh->size / mesh->shape[dim], sizeof *mesh->groups[dim]);
        made = mesh->groups[dim] != NULL;
    }
    return made ? NULL : kb_error_nomem();
}

static kb_error *find_devices(kb_context *ctx, const char *function, dt_mesh *mesh)
{
    mesh->caller = rt_caller_rank(ctx);
    mesh->driven = mesh->caller == RT_DRIVER ? mesh->size : 0;
    for (uint32_t i = 0; i < mesh->size; i++) {
        KB_TRY(ccl_get_rank_device(ctx, function, mesh->ranks[i], &mesh->devices[i]));
        if (mesh->ranks[i] == mesh->caller) {
            mesh->first = i;
            mesh->driven = 1;
        }
    }
    return NULL;
}

/* Whether the dimension's only group is all ranks, in order. */
static bool is_world(const dt_mesh *mesh, uint32_t world)
{
    if (mesh->size != world || mesh->ndim != 1)
        return false;
    for (uint32_t i = 0; i < world; i++)
        if (mesh->ranks[i] != i)
            return false;
    return true;
}

static kb_error *make_groups(kb_context *ctx, dt_mesh *mesh, uint32_t world)
{
    if (is_world(mesh, world))
        return NULL; /* the group of all ranks, which has the handle 0 */
    uint32_t *ranks = kb_alloc_array(mesh->size, sizeof *ranks);
    if (!ranks)
        return kb_error_nomem();
    kb_error *err = NULL;
    for (uint32_t dim = 0; dim < mesh->ndim; dim++) {
        for (uint32_t position = 0; position < mesh->size && !err; position++) {
            if (dt_coordinate(mesh, position, dim) != 0)
                continue;
            for (uint32_t i = 0; i < mesh->shape[dim]; i++)
                ranks[i] = mesh->ranks[dt_position(mesh, position, dim, i)];
            err = kb_distributed_new_group(ctx, ranks, mesh->shape[dim],
                                           &mesh->groups[dim][group_index(mesh, position, dim)]);
        }
    }
    free(ranks);
    return err;
}

static kb_error *make_grids(kb_context *ctx, dt_mesh *mesh)
{
    static const kb_policy everywhere = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    const kb_tensor_spec spec = {
        .name = "grid", .dtype = KB_I8, .shape = KB_SHAPE(1), .policy = &everywhere};
    uint32_t before = dt_device_before(ctx, mesh->devices[mesh->first]);
    kb_error *err = NULL;
    for (uint32_t i = 0; i < mesh->driven && !err; i++) {
        err = kb_ahbm_set_device(ctx, mesh->devices[mesh->first + i]);
        if (!err)
            err = kb_empty(ctx, &spec, &mesh->grids[i]);
    }
    return dt_restore_device(ctx, before, err);
}

static void free_grids(kb_context *ctx, dt_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->driven; i++)
        if (mesh->grids[i].id != 0)
            kb_error_free(kb_tensor_free(ctx, mesh->grids[i]));
}

static kb_error *fill(kb_context *ctx, const char *function, const kb_device_mesh_spec *spec,
                      uint32_t world, dt_mesh *mesh)
{
    kb_error *err = check_shape(spec, world, mesh);
    if (err)
        return kb_error_wrap(err, "%s", function);
    KB_TRY(allocate(mesh));
    for (uint32_t i = 0; i < mesh->size; i++)
        mesh->ranks[i] = spec->ranks ? spec->ranks[i] : i;
    err = check_ranks(mesh, world);
    if (err)
        return kb_error_wrap(err, "%s", function);
    return find_devices(ctx, function, mesh);
}

/* Takes over the mesh, also after an error. */
static kb_error *add(kb_context *ctx, dt_mesh *mesh, kb_device_mesh *handle)
{
    dt_state *state;
    kb_error *err = dt_get_state(ctx, &state);
    if (!err && mesh->driven > 0)
        err = make_grids(ctx, mesh);
    if (!err)
        err = dt_add_mesh(state, mesh);
    if (err) {
        free_grids(ctx, mesh);
        dt_free_mesh(mesh);
        return err;
    }
    *handle = (kb_device_mesh){mesh->id};
    return NULL;
}

kb_error *kb_init_device_mesh(kb_context *ctx, const kb_device_mesh_spec *spec,
                              kb_device_mesh *handle)
{
    static const char function[] = "kb_init_device_mesh";
    uint32_t world = 0;
    *handle = (kb_device_mesh){0};
    if (!spec)
        return kb_error_new(KB_ERR_INPUT, "%s: spec is NULL", function);
    kb_error *err = kb_distributed_get_world_size(ctx, &world);
    if (err)
        return kb_error_wrap(err, "%s", function);
    dt_mesh *mesh = kb_alloc_zeroed(1, sizeof *mesh);
    if (!mesh)
        return kb_error_nomem();
    err = fill(ctx, function, spec, world, mesh);
    if (!err)
        err = make_groups(ctx, mesh, world);
    if (err) {
        dt_free_mesh(mesh);
        return err;
    }
    return add(ctx, mesh, handle);
}

kb_error *kb_device_mesh_free(kb_context *ctx, kb_device_mesh handle)
{
    static const char function[] = "kb_device_mesh_free";
    dt_mesh *mesh;
    KB_TRY(dt_find_mesh(ctx, function, handle, DT_TO_FREE, &mesh));
    if (mesh->users > 0)
        return kb_error_new(KB_ERR_FAULT,
                            "%s: the mesh is in use: free its DTensors and sub-meshes (%" PRIu32
                            ") first",
                            function, mesh->users);
    free_grids(ctx, mesh);
    dt_remove_mesh(rt_get_layer(ctx, RT_LAYER_DTENSOR), mesh);
    return NULL;
}

/* ---- Queries ---- */

kb_error *kb_device_mesh_shape(kb_context *ctx, kb_device_mesh handle, uint32_t *ndim,
                               uint32_t shape[KB_MESH_DIMS])
{
    dt_mesh *mesh;
    KB_TRY(dt_find_mesh(ctx, "kb_device_mesh_shape", handle, DT_TO_USE, &mesh));
    *ndim = mesh->ndim;
    for (uint32_t dim = 0; dim < KB_MESH_DIMS; dim++)
        shape[dim] = dim < mesh->ndim ? mesh->shape[dim] : 1;
    return NULL;
}

/* The mesh, if the caller is a worker whose rank is in it. */
static kb_error *find_own(kb_context *ctx, const char *function, kb_device_mesh handle,
                          dt_mesh **mesh)
{
    KB_TRY(dt_find_own_mesh(ctx, function, handle, mesh));
    if ((*mesh)->caller != RT_DRIVER)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: only workers can call it: outside workers the program drives all "
                        "ranks of the mesh",
                        function);
}

static kb_error *find_dim(const char *function, const dt_mesh *mesh, const char *name,
                          uint32_t *out)
{
    *out = 0;
    for (uint32_t dim = 0; name && dim < mesh->ndim; dim++) {
        if (strcmp(mesh->names[dim], name) == 0) {
            *out = dim;
            return NULL;
        }
    }
    if (mesh->ndim == 1)
        return kb_error_new(KB_ERR_INPUT, "%s: the mesh has no dimension '%s': expected '%s'",
                            function, name ? name : "", mesh->names[0]);
    return kb_error_new(KB_ERR_INPUT, "%s: the mesh has no dimension '%s': expected '%s' or '%s'",
                        function, name ? name : "", mesh->names[0], mesh->names[1]);
}

kb_error *kb_device_mesh_get_coordinate(kb_context *ctx, kb_device_mesh handle,
                                        uint32_t coordinate[KB_MESH_DIMS])
{
    dt_mesh *mesh;
    KB_TRY(find_own(ctx, "kb_device_mesh_get_coordinate", handle, &mesh));
    for (uint32_t dim = 0; dim < KB_MESH_DIMS; dim++)
        coordinate[dim] = dim < mesh->ndim ? dt_coordinate(mesh, mesh->first, dim) : 0;
    return NULL;
}

kb_error *kb_device_mesh_get_local_rank(kb_context *ctx, kb_device_mesh handle,
                                        const char *mesh_dim_name, uint32_t *rank)
{
    static const char function[] = "kb_device_mesh_get_local_rank";
    dt_mesh *mesh;
    uint32_t dim;
    KB_TRY(find_own(ctx, function, handle, &mesh));
    KB_TRY(find_dim(function, mesh, mesh_dim_name, &dim));
    *rank = dt_coordinate(mesh, mesh->first, dim);
    return NULL;
}

kb_error *kb_device_mesh_get_group(kb_context *ctx, kb_device_mesh handle,
                                   const char *mesh_dim_name, kb_group *group)
{
    static const char function[] = "kb_device_mesh_get_group";
    dt_mesh *mesh;
    uint32_t dim;
    KB_TRY(find_own(ctx, function, handle, &mesh));
    KB_TRY(find_dim(function, mesh, mesh_dim_name, &dim));
    *group = dt_group(mesh, mesh->first, dim);
    return NULL;
}

/* The ranks along a dimension of the parent, on the caller's coordinates. */
static kb_error *fill_submesh(dt_mesh *parent, uint32_t dim, dt_mesh *mesh)
{
    mesh->ndim = 1;
    mesh->shape[0] = mesh->size = parent->shape[dim];
    memcpy(mesh->names[0], parent->names[dim], KB_MESH_NAME_BYTES);
    KB_TRY(allocate(mesh));
    for (uint32_t i = 0; i < mesh->size; i++) {
        uint32_t position = dt_position(parent, parent->first, dim, i);
        mesh->ranks[i] = parent->ranks[position];
        mesh->devices[i] = parent->devices[position];
    }
    mesh->groups[0][0] = dt_group(parent, parent->first, dim);
    mesh->caller = parent->caller;
    mesh->first = dt_coordinate(parent, parent->first, dim);
    mesh->driven = 1;
    mesh->parent = parent;
    return NULL;
}

kb_error *kb_device_mesh_get_submesh(kb_context *ctx, kb_device_mesh handle,
                                     const char *mesh_dim_name, kb_device_mesh *submesh)
{
    static const char function[] = "kb_device_mesh_get_submesh";
    dt_mesh *parent;
    uint32_t dim;
    *submesh = (kb_device_mesh){0};
    KB_TRY(find_own(ctx, function, handle, &parent));
    KB_TRY(find_dim(function, parent, mesh_dim_name, &dim));
    dt_mesh *mesh = kb_alloc_zeroed(1, sizeof *mesh);
    if (!mesh)
        return kb_error_nomem();
    kb_error *err = fill_submesh(parent, dim, mesh);
    if (err) {
        dt_free_mesh(mesh);
        return err;
    }
    return add(ctx, mesh, submesh);
}
