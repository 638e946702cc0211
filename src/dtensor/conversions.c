/*
 * conversions.c: distribute_tensor, from_local, to_local, full_tensor and redistribute, queries,
 * and the end of DTensors.
 *
 * Invariant: a DTensor owns the local tensors that calls have made for it; those given to
 * from_local stay the caller's.
 */
#include "conversions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local.h"
#include "mem/mem.h"
#include "redistribute.h"

/* ---- Values ---- */

kb_error *dt_read(dt_frame *frame, const dt_tensor *tensor, dt_value *value)
{
    *value = (dt_value){
        .mesh = tensor->mesh,
        .name = tensor->name,
        .shape = tensor->shape,
        .dtype = tensor->dtype,
        .placements = tensor->placements,
        .locals = tensor->locals,
    };
    for (uint32_t i = 0; i < tensor->mesh->driven; i++) {
        kb_shape shape;
        kb_error *err = kb_tensor_shape(frame->ctx, tensor->locals[i], &shape);
        if (err)
            return kb_error_wrap(err, "local tensor of DTensor '%s'", tensor->name);
    }
    return NULL;
}

/* Makes local tensors that a DTensor can own. */
static kb_error *own_locals(dt_frame *frame, dt_value *value)
{
    if (value->temporary)
        return NULL;
    dt_value copy = *value;
    KB_TRY(dt_make_row_major(frame, value));
    KB_TRY(dt_new_locals(frame, &copy));
    for (uint32_t i = 0; i < value->mesh->driven; i++) {
        kb_shape shape = dt_local_shape(value->mesh, value->mesh->first + i, &value->shape,
                                        value->placements, NULL);
        KB_TRY(dt_copy(frame, value->mesh, i, copy.locals[i], value->locals[i], value->dtype,
                       dt_elements(&shape)));
    }
    KB_TRY(dt_wait(frame));
    *value = copy;
    return NULL;
}

/* A DTensor with these local tensors. */
static kb_error *add_tensor(kb_context *ctx, const dt_value *value, bool owns,
                            const kb_dtensor_report *report, kb_dtensor *handle)
{
    dt_state *state = rt_get_layer(ctx, RT_LAYER_DTENSOR);
    dt_tensor *tensor = kb_alloc_zeroed(1, sizeof *tensor);
    kb_tensor *locals = kb_alloc_array(value->mesh->driven, sizeof *locals);
    if (!tensor || !locals) {
        free(tensor);
        free(locals);
        return kb_error_nomem();
    }
    memcpy(locals, value->locals, value->mesh->driven * sizeof *locals);
    *tensor = (dt_tensor){
        .mesh = value->mesh,
        .shape = value->shape,
        .dtype = value->dtype,
        .placements = value->placements,
        .locals = locals,
        .owns_locals = owns,
        .report = report ? *report : (kb_dtensor_report){0},
    };
    snprintf(tensor->name, sizeof tensor->name, "%s", value->name);
    kb_error *err = dt_add_tensor(state, tensor);
    if (err) {
        free(locals);
        free(tensor);
        return err;
    }
    *handle = (kb_dtensor){tensor->id};
    return NULL;
}

kb_error *dt_finish(dt_frame *frame, dt_value *value, const kb_dtensor_report *report,
                    kb_dtensor *handle)
{
    KB_TRY(own_locals(frame, value));
    KB_TRY(add_tensor(frame->ctx, value, true, report, handle));
    for (uint32_t i = 0; i < value->mesh->driven; i++)
        dt_keep(frame, value->locals[i]);
    return NULL;
}

/* ---- distribute_tensor ---- */

/* Copies the part of a position from the host. */
static kb_error *send_part(dt_frame *frame, kb_tensor tensor, const dt_value *value,
                           uint32_t driven)
{
    kb_context *ctx = frame->ctx;
    uint64_t begin[KB_MAX_DIMS];
    kb_tensor part;
    kb_shape shape = dt_local_shape(value->mesh, value->mesh->first + driven, &value->shape,
                                    value->placements, begin);
    kb_slice slice = {.rank = shape.rank};
    for (uint32_t axis = 0; axis < shape.rank; axis++)
        slice.ranges[axis] = (kb_span){begin[axis], begin[axis] + shape.dims[axis]};
    size_t bytes = dt_elements(&shape) * kb_dtype_bytes(value->dtype);
    if (bytes == 0)
        return NULL;
    void *data = kb_arena_alloc(&frame->arena, bytes, sizeof(double));
    if (!data || !kb_vec_reserve(&frame->tensors, 1))
        return kb_error_nomem();
    KB_TRY(kb_tensor_get_slice(ctx, tensor, KB_UNTIMED, &slice, data, bytes));
    const kb_tensor_spec spec = {.name = value->name, .dtype = value->dtype, .shape = shape};
    KB_TRY(kb_from_host(ctx, &spec, data, bytes, &part));
    frame->tensors.items[frame->tensors.count++] = part;
    return kb_tensor_copy(ctx, value->locals[driven], part, KB_TIMED);
}

static kb_error *distribute_from_host(dt_frame *frame, kb_tensor tensor, dt_value *value)
{
    KB_TRY(dt_new_locals(frame, value));
    for (uint32_t i = 0; i < value->mesh->driven; i++)
        KB_TRY(send_part(frame, tensor, value, i));
    return kb_synchronize(frame->ctx);
}

/* Sends the tensor of the mesh's first rank to all ranks, one dimension after the other. */
static kb_error *distribute_from_device(dt_frame *frame, kb_tensor tensor, dt_value *value)
{
    kb_placements to = value->placements;
    const dt_mesh *mesh = value->mesh;
    uint32_t device;
    if (mesh->caller == RT_DRIVER)
        return kb_error_new(KB_ERR_INPUT,
                            "tensor '%s' is on a device: outside workers, distribute one of the "
                            "host",
                            value->name);
    KB_TRY(kb_tensor_device(frame->ctx, tensor, &device));
    if (device != mesh->devices[mesh->first])
        return kb_error_new(
            KB_ERR_FAULT, "tensor '%s' is on sip%" PRIu32 ", but rank %" PRIu32 " has sip%" PRIu32,
            value->name, device, mesh->caller, mesh->devices[mesh->first]);
    for (uint32_t dim = 0; dim < mesh->ndim; dim++)
        value->placements.items[dim] = KB_REPLICATE_PLACEMENT;
    value->locals = &tensor;
    KB_TRY(own_locals(frame, value));
    for (uint32_t dim = 0; dim < mesh->ndim; dim++) {
        if (dt_is_shard(to.items[dim]))
            KB_TRY(dt_scatter(frame, value, dim, (uint32_t)to.items[dim].dim));
        else
            KB_TRY(dt_broadcast(frame, value, dim));
    }
    return NULL;
}

static kb_error *distribute(dt_frame *frame, kb_tensor tensor, dt_mesh *mesh,
                            kb_placements placements, kb_dtensor *handle)
{
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(frame->ctx, tensor, &view));
    KB_TRY(dt_check_placements(mesh, view.shape.rank, view.dtype, &placements));
    for (uint32_t dim = 0; dim < mesh->ndim; dim++)
        if (dt_is_partial(placements.items[dim]))
            return kb_error_new(KB_ERR_INPUT,
                                "tensor '%s': a tensor can be distributed as Shard "
                                "and Replicate, not as Partial",
                                view.name);
    const char *name = kb_arena_strdup(&frame->arena, view.name);
    if (!name)
        return kb_error_nomem();
    dt_value value = {.mesh = mesh,
                      .name = name,
                      .shape = view.shape,
                      .dtype = view.dtype,
                      .placements = placements};
    KB_TRY(view.on_host ? distribute_from_host(frame, tensor, &value)
                        : distribute_from_device(frame, tensor, &value));
    return dt_finish(frame, &value, NULL, handle);
}

kb_error *kb_distribute_tensor(kb_context *ctx, kb_tensor tensor, kb_device_mesh mesh_handle,
                               kb_placements placements, kb_dtensor *dtensor)
{
    static const char function[] = "kb_distribute_tensor";
    dt_mesh *mesh;
    dt_frame frame;
    *dtensor = (kb_dtensor){0};
    KB_TRY(dt_find_own_mesh(ctx, function, mesh_handle, &mesh));
    KB_TRY(dt_frame_begin(&frame, ctx, function));
    return dt_frame_end(&frame, distribute(&frame, tensor, mesh, placements, dtensor));
}

/* ---- from_local ---- */

/* The shape of the whole, if all ranks have parts of this size. */
static kb_shape infer_shape(const dt_mesh *mesh, const kb_shape *local, kb_placements placements)
{
    kb_shape shape = *local;
    for (uint32_t dim = 0; dim < placements.count; dim++)
        if (dt_is_shard(placements.items[dim]))
            shape.dims[placements.items[dim].dim] *= mesh->shape[dim];
    return shape;
}

/* Checks device, dtype and shape of the local tensor of a driven position. */
static kb_error *check_local(kb_context *ctx, const dt_value *value, uint32_t driven)
{
    const dt_mesh *mesh = value->mesh;
    uint32_t position = mesh->first + driven;
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(ctx, value->locals[driven], &view));
    if (view.on_host)
        return kb_error_new(KB_ERR_FAULT, "tensor '%s' is on the host: copy it to a device first",
                            view.name);
    if (view.sip != mesh->devices[position])
        return kb_error_new(
            KB_ERR_FAULT, "tensor '%s' is on sip%" PRIu32 ", but rank %" PRIu32 " has sip%" PRIu32,
            view.name, view.sip, mesh->ranks[position], mesh->devices[position]);
    if (view.dtype != value->dtype)
        return kb_error_new(KB_ERR_FAULT, "tensor '%s' is %s, but that of the first rank is %s",
                            view.name, kb_dtype_name(view.dtype), kb_dtype_name(value->dtype));
    kb_shape expected = dt_local_shape(mesh, position, &value->shape, value->placements, NULL);
    if (mem_shape_equal(&view.shape, &expected))
        return NULL;
    kb_text found = KB_TEXT_INIT, needed = KB_TEXT_INIT;
    char placements[KB_PLACEMENTS_BYTES];
    mem_shape_print(&view.shape, &found);
    mem_shape_print(&expected, &needed);
    kb_placements_print(value->placements, placements);
    kb_error *err = kb_error_new(
        KB_ERR_FAULT,
        "tensor '%s' has the shape %s, but with placements %s rank %" PRIu32 " has %s", view.name,
        kb_text_peek(&found), placements, mesh->ranks[position], kb_text_peek(&needed));
    kb_text_fini(&found);
    kb_text_fini(&needed);
    return err;
}

kb_error *kb_dtensor_from_locals(kb_context *ctx, const kb_tensor *locals, size_t count,
                                 kb_device_mesh mesh_handle, kb_placements placements,
                                 const kb_shape *shape, kb_dtensor *dtensor)
{
    static const char function[] = "kb_dtensor_from_local";
    dt_mesh *mesh;
    rt_tensor_view view;
    *dtensor = (kb_dtensor){0};
    KB_TRY(dt_find_own_mesh(ctx, function, mesh_handle, &mesh));
    if (!locals)
        return kb_error_new(KB_ERR_INPUT, "%s: locals is NULL", function);
    if (count != mesh->driven)
        return kb_error_new(
            KB_ERR_INPUT, "%s: %zu tensor%s given, but the caller drives %" PRIu32 " rank%s",
            function, count, kb_plural(count), mesh->driven, kb_plural(mesh->driven));
    kb_error *err = rt_view_tensor(ctx, locals[0], &view);
    if (!err && shape && shape->rank != view.shape.rank)
        err = kb_error_new(KB_ERR_INPUT,
                           "the shape of the whole has %" PRIu32
                           " dimensions, but tensor '%s' has %" PRIu32,
                           shape->rank, view.name, view.shape.rank);
    if (!err)
        err = dt_check_placements(mesh, view.shape.rank, view.dtype, &placements);
    if (err)
        return kb_error_wrap(err, "%s", function);
    char name[KB_MESH_NAME_BYTES];
    snprintf(name, sizeof name, "%s", view.name);
    dt_value value = {.mesh = mesh,
                      .name = name,
                      .shape = shape ? *shape : infer_shape(mesh, &view.shape, placements),
                      .dtype = view.dtype,
                      .placements = placements};
    value.locals = kb_alloc_array(count, sizeof *value.locals);
    if (!value.locals)
        return kb_error_nomem();
    memcpy(value.locals, locals, count * sizeof *locals);
    for (uint32_t i = 0; i < mesh->driven && !err; i++)
        err = check_local(ctx, &value, i);
    if (!err)
        err = add_tensor(ctx, &value, false, NULL, dtensor);
    free(value.locals);
    return err ? kb_error_wrap(err, "%s", function) : NULL;
}

kb_error *kb_dtensor_from_local(kb_context *ctx, kb_tensor local, kb_device_mesh mesh,
                                kb_placements placements, const kb_shape *shape,
                                kb_dtensor *dtensor)
{
    return kb_dtensor_from_locals(ctx, &local, 1, mesh, placements, shape, dtensor);
}

/* ---- to_local, full_tensor, redistribute ---- */

kb_error *kb_dtensor_to_local(kb_context *ctx, kb_dtensor handle, kb_tensor *local)
{
    static const char function[] = "kb_dtensor_to_local";
    dt_tensor *tensor;
    *local = (kb_tensor){0};
    KB_TRY(dt_find_tensor(ctx, function, handle, &tensor));
    if (tensor->mesh->caller == RT_DRIVER)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: outside workers a DTensor has a local tensor for each rank: use "
                            "kb_dtensor_local_of()",
                            function);
    *local = tensor->locals[0];
    return NULL;
}

kb_error *kb_dtensor_local_of(kb_context *ctx, kb_dtensor handle, uint32_t rank, kb_tensor *local)
{
    static const char function[] = "kb_dtensor_local_of";
    dt_tensor *tensor;
    *local = (kb_tensor){0};
    KB_TRY(dt_find_tensor(ctx, function, handle, &tensor));
    const dt_mesh *mesh = tensor->mesh;
    for (uint32_t i = 0; i < mesh->driven; i++) {
        if (mesh->ranks[mesh->first + i] == rank) {
            *local = tensor->locals[i];
            return NULL;
        }
    }
    return kb_error_new(KB_ERR_INPUT, "%s: the caller has no local tensor of rank %" PRIu32,
                        function, rank);
}

static kb_error *make_full(dt_frame *frame, const dt_tensor *tensor, kb_tensor *full)
{
    dt_value value;
    kb_placements to = tensor->placements;
    for (uint32_t dim = 0; dim < to.count; dim++)
        to.items[dim] = KB_REPLICATE_PLACEMENT;
    KB_TRY(dt_read(frame, tensor, &value));
    KB_TRY(dt_redistribute(frame, &value, to));
    KB_TRY(own_locals(frame, &value));
    dt_keep(frame, value.locals[0]);
    *full = value.locals[0];
    return NULL;
}

kb_error *kb_dtensor_full_tensor(kb_context *ctx, kb_dtensor handle, kb_tensor *full)
{
    static const char function[] = "kb_dtensor_full_tensor";
    dt_tensor *tensor;
    dt_frame frame;
    *full = (kb_tensor){0};
    KB_TRY(dt_find_tensor(ctx, function, handle, &tensor));
    KB_TRY(dt_frame_begin(&frame, ctx, function));
    return dt_frame_end(&frame, make_full(&frame, tensor, full));
}

static kb_error *redistribute(dt_frame *frame, const dt_tensor *tensor, kb_placements placements,
                              kb_dtensor *result)
{
    dt_value value;
    KB_TRY(dt_check_placements(tensor->mesh, tensor->shape.rank, tensor->dtype, &placements));
    KB_TRY(dt_read(frame, tensor, &value));
    KB_TRY(dt_redistribute(frame, &value, placements));
    return dt_finish(frame, &value, NULL, result);
}

kb_error *kb_dtensor_redistribute(kb_context *ctx, kb_dtensor handle, kb_placements placements,
                                  kb_dtensor *result)
{
    static const char function[] = "kb_dtensor_redistribute";
    dt_tensor *tensor;
    dt_frame frame;
    *result = (kb_dtensor){0};
    KB_TRY(dt_find_tensor(ctx, function, handle, &tensor));
    KB_TRY(dt_frame_begin(&frame, ctx, function));
    return dt_frame_end(&frame, redistribute(&frame, tensor, placements, result));
}

/* ---- End and queries ---- */

kb_error *kb_dtensor_free(kb_context *ctx, kb_dtensor handle)
{
    static const char function[] = "kb_dtensor_free";
    dt_tensor *tensor;
    kb_error *err = NULL;
    KB_TRY(dt_find_tensor_to(ctx, function, handle, DT_TO_FREE, &tensor));
    for (uint32_t i = 0; i < tensor->mesh->driven && tensor->owns_locals; i++) {
        kb_error *failed = kb_tensor_free(ctx, tensor->locals[i]);
        if (err)
            kb_error_free(failed);
        else
            err = failed;
    }
    if (err)
        err = kb_error_wrap(err, "%s: local tensor of DTensor '%s'", function, tensor->name);
    dt_remove_tensor(rt_get_layer(ctx, RT_LAYER_DTENSOR), tensor);
    return err;
}

kb_error *kb_dtensor_shape(kb_context *ctx, kb_dtensor handle, kb_shape *shape)
{
    dt_tensor *tensor;
    KB_TRY(dt_find_tensor(ctx, "kb_dtensor_shape", handle, &tensor));
    *shape = tensor->shape;
    return NULL;
}

kb_error *kb_dtensor_dtype(kb_context *ctx, kb_dtensor handle, kb_dtype *dtype)
{
    dt_tensor *tensor;
    KB_TRY(dt_find_tensor(ctx, "kb_dtensor_dtype", handle, &tensor));
    *dtype = tensor->dtype;
    return NULL;
}

kb_error *kb_dtensor_mesh(kb_context *ctx, kb_dtensor handle, kb_device_mesh *mesh)
{
    dt_tensor *tensor;
    KB_TRY(dt_find_tensor(ctx, "kb_dtensor_mesh", handle, &tensor));
    *mesh = (kb_device_mesh){tensor->mesh->id};
    return NULL;
}

kb_error *kb_dtensor_placements(kb_context *ctx, kb_dtensor handle, kb_placements *placements)
{
    dt_tensor *tensor;
    KB_TRY(dt_find_tensor(ctx, "kb_dtensor_placements", handle, &tensor));
    *placements = tensor->placements;
    return NULL;
}

kb_error *kb_dtensor_get_report(kb_context *ctx, kb_dtensor handle, kb_dtensor_report *report)
{
    dt_tensor *tensor;
    KB_TRY(dt_find_tensor(ctx, "kb_dtensor_get_report", handle, &tensor));
    *report = tensor->report;
    return NULL;
}
