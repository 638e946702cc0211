/*
 * redistribute.c: changes the placement of one dimension of a mesh, by the collective that
 * corresponds to the pair of placements.
 *
 * A step uses the *view* of the tensor: its shape if the dimension were replicated, equal for all
 * ranks of a group along the dimension. Collectives need consecutive blocks of equal size. If parts
 * have different sizes, or are not blocks of the view's elements, they are packed into a staging
 * tensor of blocks before the collective, or unpacked after it. The padding of a smaller part in
 * its block is not written, and results computed from it are never read.
 */
#include "redistribute.h"

#include <math.h>

#include "local.h"

/* ---- Blocks ---- */

/* Axis `axis` of a tensor split into one part for each rank: part r is in block r. */
typedef struct cut {
    uint32_t axis;
    uint64_t n;     /* elements along the axis */
    uint64_t chunk; /* elements of a full part */
    uint32_t ranks;
} cut;

static cut make_cut(const kb_shape *view, uint32_t axis, uint32_t ranks)
{
    uint64_t n = view->dims[axis];
    return (cut){.axis = axis, .n = n, .chunk = dt_chunk(n, ranks), .ranks = ranks};
}

static bool is_even(const cut *c)
{
    return c->n % c->ranks == 0;
}

/* Whether part r of the tensor is block r of its elements. */
static bool is_blocks(const cut *c, const kb_shape *view)
{
    return is_even(c) && dt_outer(view, c->axis) == 1;
}

/* A copy between a tensor and a staging tensor of blocks. */
typedef struct packing {
    bool packs;      /* into blocks; else from blocks */
    kb_shape tensor; /* shape of the tensor */
    kb_shape block;  /* of a block, at least as large as a part along each axis */
    cut parts;       /* of the tensor */
    kb_tensor whole, blocks;
} packing;

/* `count` parts from `first`, each with `size` elements along the axis. */
static kb_error *move_parts(dt_frame *frame, const dt_value *value, uint32_t driven,
                            const packing *p, uint64_t first, uint64_t count, uint64_t size)
{
    uint64_t of_tensor[KB_MAX_DIMS], of_block[KB_MAX_DIMS], step = dt_elements(&p->block);
    dt_row_major_strides(&p->tensor, of_tensor);
    dt_row_major_strides(&p->block, of_block);
    uint64_t part = p->parts.chunk * of_tensor[p->parts.axis];
    dt_operand whole = {.tensor = p->whole, .first = first * part, .strides = {part}};
    dt_operand blocks = {.tensor = p->blocks, .first = first * step, .strides = {step}};
    dt_loop loop = {
        .name = p->packs ? "dtensor pack" : "dtensor unpack",
        .op = DT_MAP_COPY,
        .inputs = 1,
        .dtype = value->dtype,
        .axes = p->tensor.rank + 1,
        .sizes = {count},
    };
    for (uint32_t axis = 0; axis < p->tensor.rank; axis++) {
        loop.sizes[axis + 1] = axis == p->parts.axis ? size : p->tensor.dims[axis];
        whole.strides[axis + 1] = of_tensor[axis];
        blocks.strides[axis + 1] = of_block[axis];
    }
    loop.out = p->packs ? blocks : whole;
    loop.a = p->packs ? whole : blocks;
    return dt_run_loop(frame, value->mesh, driven, &loop);
}

/* Full parts in one launch, and the smaller last one, if any, in another. */
static kb_error *move_all_parts(dt_frame *frame, const dt_value *value, uint32_t driven,
                                const packing *p)
{
    uint64_t full = p->parts.chunk == 0 ? 0 : p->parts.n / p->parts.chunk;
    uint64_t rest = p->parts.n - full * p->parts.chunk;
    KB_TRY(move_parts(frame, value, driven, p, 0, full, p->parts.chunk));
    if (rest == 0)
        return NULL;
    return move_parts(frame, value, driven, p, full, 1, rest);
}

/* ---- A step ---- */

typedef struct change {
    dt_frame *frame;
    const dt_mesh *mesh;
    uint32_t dim;    /* of the mesh */
    dt_value before; /* with the old placement along the dimension */
    dt_value after;  /* with the new placement */
    uint32_t ranks;  /* along the dimension */
} change;

/* The view of a driven position. */
static kb_shape view_of(const change *c, uint32_t driven)
{
    kb_placements view = c->before.placements;
    view.items[c->dim] = KB_REPLICATE_PLACEMENT;
    return dt_local_shape(c->mesh, c->mesh->first + driven, &c->before.shape, view, NULL);
}

static kb_shape shape_of(const change *c, const dt_value *value, uint32_t driven)
{
    return dt_local_shape(c->mesh, c->mesh->first + driven, &value->shape, value->placements, NULL);
}

/* A tensor of `count` blocks of the shape, for a driven position. */
static kb_error *new_staging(const change *c, uint32_t driven, const kb_shape *block,
                             uint64_t count, kb_tensor *tensor)
{
    kb_shape shape = KB_SHAPE(count * dt_elements(block));
    return dt_new_tensor(c->frame, c->mesh->devices[c->mesh->first + driven], "blocks",
                         c->before.dtype, &shape, tensor);
}

/* The shape of the block of a part of the cut. */
static kb_shape block_of(const kb_shape *shape, const cut *parts)
{
    kb_shape block = *shape;
    block.dims[parts->axis] = parts->chunk;
    return block;
}

/* Copies between the first part of a larger shape and a smaller shape, along one axis. */
static kb_error *copy_corner(const change *c, uint32_t driven, kb_tensor to, const kb_shape *to_as,
                             kb_tensor from, const kb_shape *from_as, const kb_shape *part)
{
    dt_loop loop = {.name = "dtensor copy",
                    .op = DT_MAP_COPY,
                    .inputs = 1,
                    .dtype = c->before.dtype,
                    .axes = part->rank,
                    .out = {.tensor = to},
                    .a = {.tensor = from}};
    dt_row_major_strides(to_as, loop.out.strides);
    dt_row_major_strides(from_as, loop.a.strides);
    for (uint32_t axis = 0; axis < part->rank; axis++)
        loop.sizes[axis] = part->dims[axis];
    return dt_run_loop(c->frame, c->mesh, driven, &loop);
}

static kb_error *call(const change *c, kb_collective_kind kind, kb_reduce_op op,
                      const kb_tensor *inputs, const kb_tensor *outputs)
{
    const dt_collective collective = {
        .mesh = c->mesh,
        .dim = c->dim,
        .kind = kind,
        .op = op,
        .inputs = inputs,
        .outputs = outputs,
    };
    KB_TRY(dt_wait(c->frame)); /* for the inputs */
    return dt_call(c->frame, &collective);
}

static bool is_empty(const dt_value *value)
{
    return dt_elements(&value->shape) == 0;
}

/* Inputs and outputs of a collective. */
static kb_error *new_arrays(const change *c, kb_tensor **inputs, kb_tensor **outputs)
{
    KB_TRY(dt_new_array(c->frame, c->mesh, inputs));
    return dt_new_array(c->frame, c->mesh, outputs);
}

/* ---- From Shard ---- */

/* Shard to Replicate. */
static kb_error *gather(change *c)
{
    uint32_t axis = (uint32_t)c->before.placements.items[c->dim].dim;
    kb_tensor *inputs, *outputs;
    KB_TRY(new_arrays(c, &inputs, &outputs));
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        kb_shape view = view_of(c, i), own = shape_of(c, &c->before, i);
        cut parts = make_cut(&view, axis, c->ranks);
        kb_shape block = block_of(&view, &parts);
        inputs[i] = c->before.locals[i];
        outputs[i] = c->after.locals[i];
        if (!is_even(&parts)) {
            KB_TRY(new_staging(c, i, &block, 1, &inputs[i]));
            KB_TRY(copy_corner(c, i, inputs[i], &block, c->before.locals[i], &own, &own));
        }
        if (!is_blocks(&parts, &view))
            KB_TRY(new_staging(c, i, &block, c->ranks, &outputs[i]));
    }
    KB_TRY(call(c, KB_ALL_GATHER, KB_SUM, inputs, outputs));
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        if (outputs[i].id == c->after.locals[i].id)
            continue;
        packing p = {.tensor = view_of(c, i), .whole = c->after.locals[i], .blocks = outputs[i]};
        p.parts = make_cut(&p.tensor, axis, c->ranks);
        p.block = block_of(&p.tensor, &p.parts);
        KB_TRY(move_all_parts(c->frame, &c->before, i, &p));
    }
    return dt_wait(c->frame);
}

/* Shard of axis i to Shard of axis j. A rank splits its part along j; the block for each rank is
 * (.., chunk of i, .., chunk of j, ..). Received blocks are concatenated along i. */
typedef struct exchange {
    cut old, fresh; /* of the view: axes i and j */
    kb_shape block;
    packing in, out; /* the tensors are those before and after */
} exchange;

static exchange make_exchange(const change *c, uint32_t driven)
{
    kb_shape view = view_of(c, driven);
    exchange x = {
        .old = make_cut(&view, (uint32_t)c->before.placements.items[c->dim].dim, c->ranks),
        .fresh = make_cut(&view, (uint32_t)c->after.placements.items[c->dim].dim, c->ranks),
    };
    x.block = block_of(&view, &x.old);
    x.block = block_of(&x.block, &x.fresh);
    x.in = (packing){.packs = true,
                     .tensor = shape_of(c, &c->before, driven),
                     .block = x.block,
                     .parts = x.fresh,
                     .whole = c->before.locals[driven]};
    x.out = (packing){.tensor = shape_of(c, &c->after, driven),
                      .block = x.block,
                      .parts = x.old,
                      .whole = c->after.locals[driven]};
    return x;
}

static kb_error *exchange_parts(change *c)
{
    kb_tensor *inputs, *outputs;
    KB_TRY(new_arrays(c, &inputs, &outputs));
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        exchange x = make_exchange(c, i);
        inputs[i] = c->before.locals[i];
        outputs[i] = c->after.locals[i];
        bool even = is_even(&x.old) && is_even(&x.fresh);
        if (!even || !is_blocks(&x.fresh, &x.in.tensor)) {
            KB_TRY(new_staging(c, i, &x.block, c->ranks, &inputs[i]));
            x.in.blocks = inputs[i];
            KB_TRY(move_all_parts(c->frame, &c->before, i, &x.in));
        }
        if (!even || !is_blocks(&x.old, &x.out.tensor))
            KB_TRY(new_staging(c, i, &x.block, c->ranks, &outputs[i]));
    }
    KB_TRY(call(c, KB_ALL_TO_ALL, KB_SUM, inputs, outputs));
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        if (outputs[i].id == c->after.locals[i].id)
            continue;
        exchange x = make_exchange(c, i);
        x.out.blocks = outputs[i];
        KB_TRY(move_all_parts(c->frame, &c->before, i, &x.out));
    }
    return dt_wait(c->frame);
}

/* ---- From Partial ---- */

/* Partial to Replicate: in place, in tensors of the call. */
static kb_error *reduce_all(change *c)
{
    kb_reduce_op op = c->before.placements.items[c->dim].op;
    for (uint32_t i = 0; i < c->mesh->driven && !c->before.temporary; i++) {
        kb_shape shape = shape_of(c, &c->before, i);
        KB_TRY(dt_copy(c->frame, c->mesh, i, c->after.locals[i], c->before.locals[i],
                       c->before.dtype, dt_elements(&shape)));
    }
    return call(c, KB_ALL_REDUCE, op, c->after.locals, c->after.locals);
}

/* Packs blocks of the view along the axis for a collective, and unpacks the rank's own block. */
static kb_error *scatter_blocks(change *c, uint32_t axis, kb_collective_kind kind, kb_reduce_op op)
{
    kb_tensor *inputs, *outputs;
    KB_TRY(new_arrays(c, &inputs, &outputs));
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        packing p = {.packs = true, .tensor = view_of(c, i), .whole = c->before.locals[i]};
        p.parts = make_cut(&p.tensor, axis, c->ranks);
        p.block = block_of(&p.tensor, &p.parts);
        inputs[i] = c->before.locals[i];
        outputs[i] = c->after.locals[i];
        if (!is_even(&p.parts))
            KB_TRY(new_staging(c, i, &p.block, 1, &outputs[i]));
        bool sends = kind != KB_SCATTER || dt_coordinate(c->mesh, c->mesh->first + i, c->dim) == 0;
        if (!sends || is_blocks(&p.parts, &p.tensor))
            continue;
        KB_TRY(new_staging(c, i, &p.block, c->ranks, &inputs[i]));
        p.blocks = inputs[i];
        KB_TRY(move_all_parts(c->frame, &c->before, i, &p));
    }
    KB_TRY(call(c, kind, op, inputs, outputs));
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        kb_shape view = view_of(c, i), own = shape_of(c, &c->after, i);
        cut parts = make_cut(&view, axis, c->ranks);
        kb_shape block = block_of(&view, &parts);
        if (outputs[i].id != c->after.locals[i].id)
            KB_TRY(copy_corner(c, i, c->after.locals[i], &own, outputs[i], &block, &own));
    }
    return dt_wait(c->frame);
}

/* Partial to Shard. */
static kb_error *reduce_scatter(change *c)
{
    return scatter_blocks(c, (uint32_t)c->after.placements.items[c->dim].dim, KB_REDUCE_SCATTER,
                          c->before.placements.items[c->dim].op);
}

/* ---- From Replicate ---- */

/* Replicate to Shard. */
static kb_error *slice(change *c)
{
    uint32_t axis = (uint32_t)c->after.placements.items[c->dim].dim;
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        kb_shape view = view_of(c, i), own = shape_of(c, &c->after, i);
        uint32_t index = dt_coordinate(c->mesh, c->mesh->first + i, c->dim);
        dt_loop loop = {.name = "dtensor slice",
                        .op = DT_MAP_COPY,
                        .inputs = 1,
                        .dtype = c->before.dtype,
                        .axes = own.rank,
                        .out = {.tensor = c->after.locals[i]},
                        .a = {.tensor = c->before.locals[i]}};
        dt_row_major_strides(&own, loop.out.strides);
        dt_row_major_strides(&view, loop.a.strides);
        loop.a.first = dt_chunk_begin(view.dims[axis], c->ranks, index) * loop.a.strides[axis];
        for (uint32_t k = 0; k < own.rank; k++)
            loop.sizes[k] = own.dims[k];
        KB_TRY(dt_run_loop(c->frame, c->mesh, i, &loop));
    }
    return dt_wait(c->frame);
}

double dt_identity(kb_reduce_op op, kb_dtype dtype)
{
    bool whole = mem_is_integer(dtype);
    double low = mem_integer_min(dtype), high = mem_integer_max(dtype);
    switch (op) {
    case KB_MAX:
        return whole ? low : -HUGE_VAL;
    case KB_MIN:
        return whole ? high : HUGE_VAL;
    case KB_PROD:
        return 1;
    default:
        return whole ? 0 : -0.0;
    }
}

/* Replicate to Partial: for a sum or product one rank keeps the tensor, and the others have the
 * identity; for all other reductions equal tensors give the same result. */
static kb_error *split_terms(change *c)
{
    kb_reduce_op op = c->after.placements.items[c->dim].op;
    for (uint32_t i = 0; i < c->mesh->driven; i++) {
        uint32_t position = c->mesh->first + i;
        kb_shape shape = shape_of(c, &c->before, i);
        bool keeps =
            dt_coordinate(c->mesh, position, c->dim) == 0 || (op != KB_SUM && op != KB_PROD);
        if (!keeps)
            KB_TRY(dt_new_filled(c->frame, c->mesh->devices[position], c->before.name,
                                 c->before.dtype, &shape, dt_identity(op, c->before.dtype),
                                 &c->after.locals[i]));
        else if (!c->before.temporary)
            KB_TRY(dt_copy(c->frame, c->mesh, i, c->after.locals[i], c->before.locals[i],
                           c->before.dtype, dt_elements(&shape)));
    }
    return dt_wait(c->frame);
}

/* ---- Steps ---- */

/* Whether the local tensors keep their shapes, so that those of a temporary value can be reused. */
static bool keeps_shape(kb_placement from, kb_placement to)
{
    return !dt_is_shard(from) && !dt_is_shard(to);
}

static kb_error *run_change(change *c)
{
    kb_placement from = c->before.placements.items[c->dim];
    kb_placement to = c->after.placements.items[c->dim];
    if (dt_is_shard(from))
        return dt_is_shard(to) ? exchange_parts(c) : gather(c);
    if (dt_is_partial(from))
        return dt_is_shard(to) ? reduce_scatter(c) : reduce_all(c);
    return dt_is_shard(to) ? slice(c) : split_terms(c);
}

/* One collective or local operation. */
static kb_error *change_placement(dt_frame *frame, dt_value *value, dt_step step)
{
    change c = {
        .frame = frame,
        .mesh = value->mesh,
        .dim = step.dim,
        .before = *value,
        .after = *value,
        .ranks = value->mesh->shape[step.dim],
    };
    kb_placement from = value->placements.items[step.dim];
    c.after.placements.items[step.dim] = step.to;
    if (c.ranks == 1) { /* only the placement changes */
        *value = c.after;
        return NULL;
    }
    KB_TRY(dt_make_row_major(frame, &c.before));
    if (c.before.temporary && keeps_shape(from, step.to)) {
        KB_TRY(dt_new_array(frame, c.mesh, &c.after.locals));
        for (uint32_t i = 0; i < c.mesh->driven; i++)
            c.after.locals[i] = c.before.locals[i];
    } else {
        KB_TRY(dt_new_locals(frame, &c.after));
    }
    if (!is_empty(value))
        KB_TRY(run_change(&c));
    *value = c.after;
    return NULL;
}

/* Shard, or Partial of one operation, becomes Partial of another through Replicate. */
static kb_error *run_step(dt_frame *frame, dt_value *value, dt_step step)
{
    kb_placement from = value->placements.items[step.dim];
    if (dt_is_partial(step.to) && !dt_is_replicate(from))
        KB_TRY(change_placement(frame, value, (dt_step){step.dim, KB_REPLICATE_PLACEMENT}));
    return change_placement(frame, value, step);
}

kb_error *dt_redistribute(dt_frame *frame, dt_value *value, kb_placements to)
{
    dt_steps plan =
        dt_choose_steps(value->mesh, &value->shape, value->dtype, value->placements, to);
    for (uint32_t i = 0; i < plan.count; i++)
        KB_TRY(run_step(frame, value, plan.steps[i]));
    return NULL;
}

/* ---- Distribution ---- */

kb_error *dt_scatter(dt_frame *frame, dt_value *value, uint32_t dim, uint32_t axis)
{
    change c = {
        .frame = frame,
        .mesh = value->mesh,
        .dim = dim,
        .before = *value,
        .after = *value,
        .ranks = value->mesh->shape[dim],
    };
    c.after.placements.items[dim] = KB_SHARD((int)axis);
    if (c.ranks > 1) {
        KB_TRY(dt_make_row_major(frame, &c.before));
        KB_TRY(dt_new_locals(frame, &c.after));
        if (!is_empty(value))
            KB_TRY(scatter_blocks(&c, axis, KB_SCATTER, KB_SUM));
    }
    *value = c.after;
    return NULL;
}

kb_error *dt_broadcast(dt_frame *frame, dt_value *value, uint32_t dim)
{
    const dt_collective collective = {
        .mesh = value->mesh,
        .dim = dim,
        .kind = KB_BROADCAST,
        .inputs = value->locals,
        .outputs = value->locals,
    };
    KB_ASSERT(value->temporary); /* it is overwritten */
    if (value->mesh->shape[dim] == 1 || is_empty(value))
        return NULL;
    return dt_call(frame, &collective);
}
