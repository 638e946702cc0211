/*
 * frame.c: temporary tensors, launches and collectives of a call.
 *
 * Local tensors that DTensors make are laid out row-major: their addresses are in the order of
 * their elements, row by row, and all PEs have a part if there are enough elements. So kernels can
 * address them without knowing the layout.
 */
#include "frame.h"

#include <stdlib.h>
#include <string.h>

/* ---- Frames ---- */

static void release(dt_frame *frame)
{
    for (size_t i = 0; i < frame->requests.count; i++)
        kb_error_free(kb_request_free(frame->ctx, frame->requests.items[i]));
    for (size_t i = 0; i < frame->tensors.count; i++)
        kb_error_free(kb_tensor_free(frame->ctx, frame->tensors.items[i]));
    kb_vec_fini(&frame->requests);
    kb_vec_fini(&frame->tensors);
    kb_arena_fini(&frame->arena);
}

static void unwind(void *arg)
{
    release(arg);
}

kb_error *dt_frame_begin(dt_frame *frame, kb_context *ctx, const char *function)
{
    if (rt_is_recording(ctx))
        return kb_error_new(KB_ERR_FAULT,
                            "%s: a graph is being recorded, which cannot contain operations of "
                            "DTensors: call kb_graph_end() first",
                            function);
    *frame = (dt_frame){.ctx = ctx, .function = function};
    kb_arena_init(&frame->arena);
    kb_co *worker = kb_context_worker(ctx);
    if (worker)
        kb_co_push_cleanup(worker, &frame->cleanup, unwind, frame);
    return NULL;
}

kb_error *dt_frame_end(dt_frame *frame, kb_error *err)
{
    if (frame->requests.count > 0) { /* after an error: waits for pending requests */
        kb_error *other = dt_wait(frame);
        kb_error_free(err ? other : NULL);
        err = err ? err : other;
    }
    kb_co *worker = kb_context_worker(frame->ctx);
    if (worker)
        kb_co_pop_cleanup(worker, true);
    else
        release(frame);
    return err ? kb_error_wrap(err, "%s", frame->function) : NULL;
}

void dt_keep(dt_frame *frame, kb_tensor tensor)
{
    for (size_t i = 0; i < frame->tensors.count; i++) {
        if (frame->tensors.items[i].id == tensor.id) {
            frame->tensors.items[i] = frame->tensors.items[--frame->tensors.count];
            return;
        }
    }
    KB_ASSERT(false); /* not a tensor of the frame */
}

/* ---- Local tensors ---- */

/* Rows over all PEs. A single row is split into columns. A matrix with fewer rows than PEs is split
 * into tiles of one row, at most one for each PE, so that each row is on several PEs. */
static kb_policy row_major_policy(const kb_machine *machine, const kb_shape *shape)
{
    uint64_t pes = (uint64_t)machine->cubes * machine->pes;
    uint64_t rows = shape->rank < 2 ? 1 : dt_outer(shape, shape->rank - 1);
    if (rows == 1)
        return (kb_policy){.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    uint64_t columns = shape->dims[shape->rank - 1];
    if (shape->rank == 2 && columns > 0 && rows > 0 && pes / rows > 1)
        return (kb_policy){.tiling = KB_TILED_COLUMN_MAJOR,
                           .tile_rows = 1,
                           .tile_columns = dt_chunk(columns, (uint32_t)(pes / rows))};
    return (kb_policy){.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
}

static kb_error *create(dt_frame *frame, uint32_t device, const kb_tensor_spec *spec,
                        const double *value, kb_tensor *tensor)
{
    kb_context *ctx = frame->ctx;
    *tensor = (kb_tensor){0};
    if (!kb_vec_reserve(&frame->tensors, 1))
        return kb_error_nomem();
    uint32_t before = dt_device_before(ctx, device);
    KB_TRY(kb_ahbm_set_device(ctx, device));
    kb_error *err = value ? kb_full(ctx, spec, *value, tensor) : kb_empty(ctx, spec, tensor);
    if (!err)
        frame->tensors.items[frame->tensors.count++] = *tensor;
    return dt_restore_device(ctx, before, err);
}

static kb_error *new_tensor(dt_frame *frame, uint32_t device, const char *name, kb_dtype dtype,
                            const kb_shape *shape, const double *value, kb_tensor *tensor)
{
    kb_machine machine = kb_context_machine(frame->ctx);
    kb_policy policy = row_major_policy(&machine, shape);
    kb_tensor_spec spec = {.name = name, .dtype = dtype, .shape = *shape, .policy = &policy};
    return create(frame, device, &spec, value, tensor);
}

kb_error *dt_new_tensor(dt_frame *frame, uint32_t device, const char *name, kb_dtype dtype,
                        const kb_shape *shape, kb_tensor *tensor)
{
    return new_tensor(frame, device, name, dtype, shape, NULL, tensor);
}

kb_error *dt_new_filled(dt_frame *frame, uint32_t device, const char *name, kb_dtype dtype,
                        const kb_shape *shape, double value, kb_tensor *tensor)
{
    return new_tensor(frame, device, name, dtype, shape, &value, tensor);
}

kb_error *dt_new_array(dt_frame *frame, const dt_mesh *mesh, kb_tensor **locals)
{
    *locals =
        kb_arena_alloc_zeroed(&frame->arena, mesh->driven * sizeof **locals, _Alignof(kb_tensor));
    return *locals ? NULL : kb_error_nomem();
}

kb_error *dt_new_locals(dt_frame *frame, dt_value *value)
{
    const dt_mesh *mesh = value->mesh;
    KB_TRY(dt_new_array(frame, mesh, &value->locals));
    value->temporary = true;
    for (uint32_t i = 0; i < mesh->driven; i++) {
        uint32_t position = mesh->first + i;
        kb_shape shape = dt_local_shape(mesh, position, &value->shape, value->placements, NULL);
        KB_TRY(dt_new_tensor(frame, mesh->devices[position], value->name, value->dtype, &shape,
                             &value->locals[i]));
    }
    return NULL;
}

/* ---- Layouts ---- */

static kb_error *is_row_major(kb_context *ctx, kb_tensor tensor, bool *is)
{
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(ctx, tensor, &view));
    uint64_t rows = view.shape.rank < 2 ? 1 : view.shape.dims[0];
    uint64_t columns = rows == 0 ? 0 : view.elements / rows;
    uint64_t each = kb_dtype_bytes(view.dtype);
    *is = true;
    for (size_t i = 0; i < view.shard_count && *is; i++) {
        if (view.shards[i].nbytes == 0)
            continue;
        rt_shard_box box = rt_get_shard_box(ctx, tensor, i);
        bool one_block = box.columns > 0 && (box.rows == 1 || box.columns == columns);
        *is = one_block && view.shards[i].offset_bytes == (box.row * columns + box.column) * each;
    }
    return NULL;
}

kb_error *dt_make_row_major(dt_frame *frame, dt_value *value)
{
    const dt_mesh *mesh = value->mesh;
    kb_tensor *locals;
    KB_TRY(dt_new_array(frame, mesh, &locals));
    for (uint32_t i = 0; i < mesh->driven; i++) {
        uint32_t position = mesh->first + i;
        bool is;
        locals[i] = value->locals[i];
        KB_TRY(is_row_major(frame->ctx, locals[i], &is));
        if (is)
            continue;
        kb_shape shape = dt_local_shape(mesh, position, &value->shape, value->placements, NULL);
        KB_TRY(dt_new_tensor(frame, mesh->devices[position], value->name, value->dtype, &shape,
                             &locals[i]));
        KB_TRY(kb_tensor_copy(frame->ctx, locals[i], value->locals[i], KB_TIMED));
    }
    value->locals = locals;
    return NULL;
}

/* ---- Work ---- */

kb_error *dt_request_room(dt_frame *frame, kb_request *request, kb_request **where)
{
    *where = NULL;
    if (kb_context_worker(frame->ctx))
        return NULL;
    *where = request;
    return kb_vec_reserve(&frame->requests, 1) ? NULL : kb_error_nomem();
}

void dt_add_request(dt_frame *frame, kb_request request)
{
    if (!kb_context_worker(frame->ctx))
        frame->requests.items[frame->requests.count++] = request;
}

kb_error *dt_wait(dt_frame *frame)
{
    kb_error *err = NULL;
    while (frame->requests.count > 0) {
        kb_request request = frame->requests.items[--frame->requests.count];
        kb_error *failed = rt_wait_and_free(frame->ctx, request);
        if (err)
            kb_error_free(failed);
        else
            err = failed;
    }
    return err;
}

kb_error *dt_launch(dt_frame *frame, const char *name, const kb_kernel *kernel, const kb_arg *args,
                    size_t count)
{
    kb_request request;
    kb_launch_options options = {.name = name};
    KB_TRY(dt_request_room(frame, &request, &options.request));
    KB_TRY(kb_launch_args(frame->ctx, &options, kernel, args, count));
    dt_add_request(frame, request);
    return NULL;
}

/* For the group of the position: its tensors, in the order of coordinates. */
static kb_error *call_group(dt_frame *frame, const dt_collective *call, uint32_t position,
                            kb_tensor *inputs, kb_tensor *outputs)
{
    const dt_mesh *mesh = call->mesh;
    size_t count = mesh->caller == RT_DRIVER ? mesh->shape[call->dim] : 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t member =
            mesh->caller == RT_DRIVER ? dt_position(mesh, position, call->dim, i) : position;
        inputs[i] = call->inputs[member - mesh->first];
        outputs[i] = call->outputs[member - mesh->first];
    }
    kb_request request;
    kb_collective what = {
        .kind = call->kind,
        .inputs = inputs,
        .outputs = outputs,
        .count = count,
        .op = call->op,
        .root = call->root,
        .options = {.group = dt_group(mesh, position, call->dim), .algorithm = "auto"},
    };
    KB_TRY(dt_request_room(frame, &request, &what.options.work));
    KB_TRY(kb_distributed_call(frame->ctx, &what));
    dt_add_request(frame, request);
    return NULL;
}

kb_error *dt_call(dt_frame *frame, const dt_collective *call)
{
    const dt_mesh *mesh = call->mesh;
    size_t room = mesh->shape[call->dim];
    kb_tensor *inputs =
        kb_arena_alloc_array(&frame->arena, room, sizeof *inputs, _Alignof(kb_tensor));
    kb_tensor *outputs =
        kb_arena_alloc_array(&frame->arena, room, sizeof *outputs, _Alignof(kb_tensor));
    if (!inputs || !outputs)
        return kb_error_nomem();
    bool all = mesh->caller == RT_DRIVER;
    for (uint32_t i = 0; i < mesh->driven; i++) {
        uint32_t position = mesh->first + i;
        if (!all || dt_coordinate(mesh, position, call->dim) == 0)
            KB_TRY(call_group(frame, call, position, inputs, outputs));
    }
    return dt_wait(frame);
}
