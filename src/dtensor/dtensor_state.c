/*
 * dtensor_state.c: the meshes and DTensors of a context, found by their handles. Ids increase, so
 * both tables are sorted. Objects that are left when the context is destroyed are reported in debug
 * mode; their local tensors are freed with the context.
 */
#include "dtensor_state.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- End ---- */

void dt_free_mesh(dt_mesh *mesh)
{
    if (!mesh)
        return;
    free(mesh->ranks);
    free(mesh->devices);
    for (uint32_t dim = 0; dim < KB_MESH_DIMS; dim++)
        free(mesh->groups[dim]);
    free(mesh->grids);
    free(mesh);
}

static void free_tensor(dt_tensor *tensor)
{
    free(tensor->locals);
    free(tensor);
}

static void state_fini(void *self)
{
    dt_state *state = self;
    for (size_t i = 0; i < state->tensors.count; i++) {
        const dt_tensor *tensor = state->tensors.items[i];
        rt_debug_warn(state->ctx, "context destroyed: DTensor '%s' was not freed", tensor->name);
        free_tensor(state->tensors.items[i]);
    }
    for (size_t i = 0; i < state->meshes.count; i++) {
        const dt_mesh *mesh = state->meshes.items[i];
        rt_debug_warn(state->ctx,
                      "context destroyed: a device mesh of %" PRIu32 " rank%s was not freed",
                      mesh->size, kb_plural(mesh->size));
        dt_free_mesh(state->meshes.items[i]);
    }
    kb_vec_fini(&state->tensors);
    kb_vec_fini(&state->meshes);
    free(state);
}

static const rt_hooks hooks = {.fini = state_fini};

kb_error *dt_get_state(kb_context *ctx, dt_state **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_DTENSOR);
    if (*out)
        return NULL;
    dt_state *state = kb_alloc_zeroed(1, sizeof *state);
    if (!state)
        return kb_error_nomem();
    state->ctx = ctx;
    rt_set_layer(ctx, RT_LAYER_DTENSOR, &hooks, state);
    *out = state;
    return NULL;
}

/* ---- Tables ---- */

kb_error *dt_add_mesh(dt_state *state, dt_mesh *mesh)
{
    if (!kb_vec_push(&state->meshes, mesh))
        return kb_error_nomem();
    mesh->id = rt_make_handle(state->ctx, ++state->last_id);
    if (mesh->parent)
        mesh->parent->users++;
    return NULL;
}

kb_error *dt_add_tensor(dt_state *state, dt_tensor *tensor)
{
    if (!kb_vec_push(&state->tensors, tensor))
        return kb_error_nomem();
    tensor->id = rt_make_handle(state->ctx, ++state->last_id);
    tensor->mesh->users++;
    return NULL;
}

/* The index of the object with this id, or the count. Every object begins with its id. */
static size_t find(void *const *items, size_t count, uint64_t id)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (*(const uint64_t *)items[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && *(const uint64_t *)items[low] == id ? low : count;
}

static void remove_at(void **items, size_t *count, size_t index)
{
    for (size_t i = index; i + 1 < *count; i++)
        items[i] = items[i + 1];
    --*count;
}

void dt_remove_mesh(dt_state *state, dt_mesh *mesh)
{
    size_t at = find(state->meshes.items, state->meshes.count, mesh->id);
    KB_ASSERT(at < state->meshes.count);
    remove_at(state->meshes.items, &state->meshes.count, at);
    if (mesh->parent)
        mesh->parent->users--;
    dt_free_mesh(mesh);
}

void dt_remove_tensor(dt_state *state, dt_tensor *tensor)
{
    size_t at = find(state->tensors.items, state->tensors.count, tensor->id);
    KB_ASSERT(at < state->tensors.count);
    remove_at(state->tensors.items, &state->tensors.count, at);
    tensor->mesh->users--;
    free_tensor(tensor);
}

/* ---- Handles ---- */

/* Objects of workers that have ended can be freed outside workers. */
static kb_error *check_caller(kb_context *ctx, const char *function, const char *what,
                              uint32_t owner, dt_use use)
{
    uint32_t caller = rt_caller_rank(ctx);
    if (caller == owner || (use == DT_TO_FREE && caller == RT_DRIVER))
        return NULL;
    if (owner == RT_DRIVER)
        return kb_error_new(KB_ERR_FAULT,
                            "%s: the %s was made outside workers, but is used by the worker of "
                            "rank %" PRIu32 ": each worker makes its own",
                            function, what, caller);
    if (caller == RT_DRIVER)
        return kb_error_new(KB_ERR_FAULT,
                            "%s: the %s was made by the worker of rank %" PRIu32
                            ", but is used outside workers",
                            function, what, owner);
    return kb_error_new(KB_ERR_FAULT,
                        "%s: the %s was made by rank %" PRIu32 ", but is used by rank %" PRIu32
                        ": each worker makes its own",
                        function, what, owner, caller);
}

kb_error *dt_find_mesh(kb_context *ctx, const char *function, kb_device_mesh handle, dt_use use,
                       dt_mesh **mesh)
{
    const dt_state *state = rt_get_layer(ctx, RT_LAYER_DTENSOR);
    *mesh = NULL;
    size_t count = state ? state->meshes.count : 0;
    size_t at = count == 0 ? 0 : find(state->meshes.items, count, handle.id);
    if (at >= count)
        return rt_bad_handle(ctx, function, "device mesh", "freed", handle.id);
    dt_mesh *found = state->meshes.items[at];
    KB_TRY(check_caller(ctx, function, "device mesh", found->caller, use));
    *mesh = found;
    return NULL;
}

kb_error *dt_find_own_mesh(kb_context *ctx, const char *function, kb_device_mesh handle,
                           dt_mesh **mesh)
{
    KB_TRY(dt_find_mesh(ctx, function, handle, DT_TO_USE, mesh));
    if ((*mesh)->driven > 0)
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "%s: rank %" PRIu32 " is not in the device mesh", function,
                        rt_caller_rank(ctx));
}

kb_error *dt_find_tensor_to(kb_context *ctx, const char *function, kb_dtensor handle, dt_use use,
                            dt_tensor **tensor)
{
    const dt_state *state = rt_get_layer(ctx, RT_LAYER_DTENSOR);
    *tensor = NULL;
    size_t count = state ? state->tensors.count : 0;
    size_t at = count == 0 ? 0 : find(state->tensors.items, count, handle.id);
    if (at >= count)
        return rt_bad_handle(ctx, function, "DTensor", "freed", handle.id);
    dt_tensor *found = state->tensors.items[at];
    KB_TRY(check_caller(ctx, function, "DTensor", found->mesh->caller, use));
    *tensor = found;
    return NULL;
}

kb_error *dt_find_tensor(kb_context *ctx, const char *function, kb_dtensor handle,
                         dt_tensor **tensor)
{
    return dt_find_tensor_to(ctx, function, handle, DT_TO_USE, tensor);
}
