/* local.c: launches for loops over elements. See local.h. */
#include "local.h"

/* ---- Loops ---- */

void dt_row_major_strides(const kb_shape *shape, uint64_t strides[KB_MAX_DIMS])
{
    uint64_t stride = 1;
    for (uint32_t axis = shape->rank; axis-- > 0;) {
        strides[axis] = stride;
        stride *= shape->dims[axis];
    }
}

static void move_axis(dt_loop *loop, uint32_t to, uint32_t from)
{
    loop->sizes[to] = loop->sizes[from];
    loop->out.strides[to] = loop->out.strides[from];
    loop->a.strides[to] = loop->a.strides[from];
    loop->b.strides[to] = loop->b.strides[from];
}

/* Whether a step of the outer axis equals the extent of the inner one. */
static bool follows(const dt_operand *side, uint32_t outer, uint32_t inner, uint64_t size)
{
    return side->strides[outer] == side->strides[inner] * size;
}

/* Drops axes of size 1, and merges two axes along which every tensor has even strides. */
static dt_loop merge_axes(const dt_loop *loop)
{
    dt_loop merged = *loop;
    merged.axes = 0;
    for (uint32_t axis = 0; axis < loop->axes; axis++) {
        if (loop->sizes[axis] == 1)
            continue;
        uint32_t last = merged.axes;
        move_axis(&merged, last, axis);
        merged.axes++;
        uint64_t size = merged.sizes[last];
        bool even = last > 0 && follows(&merged.out, last - 1, last, size) &&
                    follows(&merged.a, last - 1, last, size) &&
                    (loop->inputs < 2 || follows(&merged.b, last - 1, last, size));
        if (even) {
            size *= merged.sizes[last - 1];
            move_axis(&merged, last - 1, last);
            merged.sizes[last - 1] = size;
            merged.axes--;
        }
    }
    return merged;
}

/*
 * Per tensor of a kernel. Several tiles are in the TCM at a time, because loads are issued ahead.
 */
static int64_t tile_elements(const kb_machine *machine)
{
    enum { VALUES = 16, MOST = 1 << 14 };
    uint64_t room = machine->tcm_bytes / (VALUES * sizeof(float));
    return room < 1 ? 1 : room < MOST ? (int64_t)room : MOST;
}

kb_error *dt_run_loop(dt_frame *frame, const dt_mesh *mesh, uint32_t driven, const dt_loop *loop)
{
    for (uint32_t axis = 0; axis < loop->axes; axis++)
        if (loop->sizes[axis] == 0)
            return NULL;
    kb_machine machine = kb_context_machine(frame->ctx);
    dt_loop merged = merge_axes(loop);
    bool few = merged.axes <= DT_MAP_FEW_AXES;
    uint32_t axes = few ? DT_MAP_FEW_AXES : DT_MAP_AXES;
    KB_ASSERT(merged.axes <= axes);
    kb_arg args[DT_MAP_FIXED + 4 * DT_MAP_AXES] = {
        [DT_MAP_GRID] = kb_arg_tensor(mesh->grids[driven]),
        [DT_MAP_OUT] = kb_arg_tensor(loop->out.tensor),
        [DT_MAP_A] = kb_arg_tensor(loop->a.tensor),
        [DT_MAP_B] = loop->inputs == 2 ? kb_arg_tensor(loop->b.tensor) : kb_arg_integer(0),
        [DT_MAP_OP] = kb_arg_integer(loop->op),
        [DT_MAP_INPUTS] = kb_arg_integer(loop->inputs),
        [DT_MAP_IN_DTYPE] = kb_arg_integer(loop->dtype),
        [DT_MAP_PES] = kb_arg_unsigned(machine.pes),
        [DT_MAP_ALL_PES] = kb_arg_unsigned((uint64_t)machine.cubes * machine.pes),
        [DT_MAP_TILE] = kb_arg_integer(tile_elements(&machine)),
        [DT_MAP_OUT_FIRST] = kb_arg_unsigned(loop->out.first),
        [DT_MAP_A_FIRST] = kb_arg_unsigned(loop->a.first),
        [DT_MAP_B_FIRST] = kb_arg_unsigned(loop->b.first),
    };
    uint32_t missing = axes - merged.axes; /* axes of size 1, in front */
    for (uint32_t i = 0; i < axes; i++) {
        kb_arg *at = &args[DT_MAP_FIXED + 4 * i];
        bool there = i >= missing;
        uint32_t axis = there ? i - missing : 0;
        at[0] = kb_arg_unsigned(there ? merged.sizes[axis] : 1);
        at[1] = kb_arg_unsigned(there ? merged.out.strides[axis] : 0);
        at[2] = kb_arg_unsigned(there ? merged.a.strides[axis] : 0);
        at[3] = kb_arg_unsigned(there ? merged.b.strides[axis] : 0);
    }
    return dt_launch(frame, loop->name, few ? &dt_map_few_kernel : &dt_map_kernel, args,
                     DT_MAP_FIXED + 4 * axes);
}

kb_error *dt_copy(dt_frame *frame, const dt_mesh *mesh, uint32_t driven, kb_tensor to,
                  kb_tensor from, kb_dtype dtype, uint64_t elements)
{
    dt_loop loop = {
        .name = "dtensor copy",
        .op = DT_MAP_COPY,
        .inputs = 1,
        .dtype = dtype,
        .axes = 1,
        .sizes = {elements},
        .out = {.tensor = to, .strides = {1}},
        .a = {.tensor = from, .strides = {1}},
    };
    return dt_run_loop(frame, mesh, driven, &loop);
}

/* ---- Reductions ---- */

/* The dtype of sums. */
static kb_dtype sum_dtype(const dt_reduction *r)
{
    if (r->op != TL_SUM_)
        return r->dtype;
    return mem_sum_dtype(r->dtype);
}

static kb_error *launch_reduction(dt_frame *frame, const dt_mesh *mesh, uint32_t driven,
                                  const dt_reduction *r, uint64_t segments)
{
    kb_machine machine = kb_context_machine(frame->ctx);
    const kb_arg args[] = {
        kb_arg_tensor(mesh->grids[driven]),
        kb_arg_tensor(r->out),
        kb_arg_tensor(r->in),
        kb_arg_integer(r->op),
        kb_arg_integer(r->dtype),
        kb_arg_integer(sum_dtype(r)),
        kb_arg_integer(r->out_dtype),
        kb_arg_unsigned(machine.pes),
        kb_arg_unsigned((uint64_t)machine.cubes * machine.pes),
        kb_arg_integer(tile_elements(&machine)),
        kb_arg_unsigned(r->outer),
        kb_arg_unsigned(r->length),
        kb_arg_unsigned(r->inner),
        kb_arg_unsigned(segments),
        kb_arg_real(r->scale),
    };
    return dt_launch(frame, r->name, dt_reduce_kernel, args, sizeof args / sizeof *args);
}

/*
 * With fewer results than PEs, each result is reduced from several partial ones of different PEs.
 */
static uint64_t segments_for(const kb_machine *machine, const dt_reduction *r)
{
    uint64_t pes = (uint64_t)machine->cubes * machine->pes, results = r->outer * r->inner;
    uint64_t segments = results < pes ? pes / results : 1;
    return segments < r->length ? segments : r->length;
}

kb_error *dt_reduce(dt_frame *frame, const dt_mesh *mesh, uint32_t driven,
                    const dt_reduction *reduction)
{
    dt_reduction last = *reduction;
    kb_machine machine = kb_context_machine(frame->ctx);
    uint64_t segments = segments_for(&machine, reduction);
    if (segments > 1) {
        dt_reduction first = *reduction;
        kb_shape shape = KB_SHAPE(reduction->outer * segments * reduction->inner);
        first.out_dtype = sum_dtype(reduction);
        first.scale = 1;
        KB_TRY(dt_new_tensor(frame, mesh->devices[mesh->first + driven], "terms", first.out_dtype,
                             &shape, &first.out));
        KB_TRY(launch_reduction(frame, mesh, driven, &first, segments));
        KB_TRY(dt_wait(frame));
        last.in = first.out;
        last.dtype = first.out_dtype;
        last.length = segments;
    }
    return launch_reduction(frame, mesh, driven, &last, 1);
}
