/*
 * placements.c: placements, and the part of a tensor that a position of a mesh has.
 *
 * Parts follow torch.chunk(): of n elements that w ranks share, each has ceil(n / w) as long as
 * there are some left. Dimensions of the mesh apply from left to right: if both shard the same
 * dimension of the tensor, the second divides the part of the first.
 */
#include "dtensor_state.h"

#include <inttypes.h>
#include <stdio.h>

bool dt_same_placement(kb_placement a, kb_placement b)
{
    if (a.kind != b.kind)
        return false;
    return dt_is_shard(a) ? a.dim == b.dim : !dt_is_partial(a) || a.op == b.op;
}

bool dt_same_placements(kb_placements a, kb_placements b)
{
    bool same = a.count == b.count;
    for (uint32_t i = 0; i < a.count && same; i++)
        same = dt_same_placement(a.items[i], b.items[i]);
    return same;
}

/* ---- Text ---- */

static void print_one(kb_placement p, char *text, size_t room)
{
    if (dt_is_shard(p))
        snprintf(text, room, "Shard(%d)", p.dim);
    else if (dt_is_partial(p))
        snprintf(text, room, "Partial(%s)", kb_reduce_op_name(p.op));
    else
        snprintf(text, room, "Replicate");
}

void kb_placements_print(kb_placements placements, char text[KB_PLACEMENTS_BYTES])
{
    char items[KB_MESH_DIMS][24] = {"", ""};
    uint32_t count = placements.count < KB_MESH_DIMS ? placements.count : KB_MESH_DIMS;
    for (uint32_t i = 0; i < count; i++)
        print_one(placements.items[i], items[i], sizeof items[i]);
    snprintf(text, KB_PLACEMENTS_BYTES, "(%s%s%s)", items[0], count > 1 ? ", " : "", items[1]);
}

/* ---- Checks ---- */

kb_error *dt_check_dim(int dim, uint32_t rank, uint32_t *out)
{
    int64_t absolute = dim < 0 ? (int64_t)dim + rank : dim;
    *out = 0;
    if (absolute < 0 || absolute >= rank)
        return kb_error_new(KB_ERR_INPUT,
                            "dimension %d is out of range: the tensor has %" PRIu32 " dimension%s",
                            dim, rank, kb_plural(rank));
    *out = (uint32_t)absolute;
    return NULL;
}

static kb_error *check_partial(kb_placement p, kb_dtype dtype)
{
    if ((unsigned)p.op >= KB_REDUCE_OPS)
        return kb_error_new(KB_ERR_INPUT, "Partial with an invalid reduce operation %d", (int)p.op);
    if (mem_is_storage(dtype))
        return kb_error_new(KB_ERR_INPUT, "Partial of a tensor of %s, which is for storage only",
                            kb_dtype_name(dtype));
    if (p.op == KB_AVG && mem_is_integer(dtype))
        return kb_error_new(KB_ERR_INPUT,
                            "Partial(avg) of a tensor of %s: an average is not a whole number",
                            kb_dtype_name(dtype));
    return NULL;
}

bool dt_ops_commute(kb_placements placements)
{
    const kb_placement *p = placements.items;
    if (placements.count < 2 || !dt_is_partial(p[0]) || !dt_is_partial(p[1]) || p[0].op == p[1].op)
        return true;
    bool linear[2];
    for (int i = 0; i < 2; i++)
        linear[i] = p[i].op == KB_SUM || p[i].op == KB_AVG;
    return linear[0] && linear[1];
}

kb_error *dt_check_placements(const dt_mesh *mesh, uint32_t rank, kb_dtype dtype,
                              kb_placements *placements)
{
    if (placements->count != mesh->ndim)
        return kb_error_new(KB_ERR_INPUT,
                            "%" PRIu32 " placement%s for a device mesh of %" PRIu32
                            " dimension%s: expected one for each",
                            placements->count, kb_plural(placements->count), mesh->ndim,
                            kb_plural(mesh->ndim));
    for (uint32_t i = 0; i < placements->count; i++) {
        kb_placement *p = &placements->items[i];
        if ((unsigned)p->kind > KB_PLACEMENT_PARTIAL)
            return kb_error_new(KB_ERR_INPUT, "invalid placement %d", (int)p->kind);
        if (dt_is_partial(*p))
            KB_TRY(check_partial(*p, dtype));
        if (dt_is_shard(*p)) {
            uint32_t dim;
            kb_error *err = dt_check_dim(p->dim, rank, &dim);
            if (err)
                return kb_error_wrap(err, "Shard(%d)", p->dim);
            p->dim = (int)dim;
        }
    }
    if (dt_ops_commute(*placements))
        return NULL;
    char text[KB_PLACEMENTS_BYTES];
    kb_placements_print(*placements, text);
    return kb_error_new(KB_ERR_INPUT,
                        "placements %s: the result depends on which reduction is first; use the "
                        "same operation for both, or sum and avg",
                        text);
}

/* ---- Parts ---- */

uint64_t dt_chunk(uint64_t n, uint32_t parts)
{
    return n / parts + (n % parts > 0);
}

uint64_t dt_chunk_begin(uint64_t n, uint32_t parts, uint32_t index)
{
    uint64_t begin = dt_chunk(n, parts) * index;
    return begin < n ? begin : n;
}

static uint64_t chunk_size(uint64_t n, uint32_t parts, uint32_t index)
{
    return dt_chunk_begin(n, parts, index + 1) - dt_chunk_begin(n, parts, index);
}

kb_shape dt_local_shape(const dt_mesh *mesh, uint32_t position, const kb_shape *shape,
                        kb_placements placements, uint64_t begin[KB_MAX_DIMS])
{
    kb_shape local = *shape;
    for (uint32_t axis = 0; begin && axis < KB_MAX_DIMS; axis++)
        begin[axis] = 0;
    for (uint32_t dim = 0; dim < placements.count; dim++) {
        if (!dt_is_shard(placements.items[dim]))
            continue;
        uint32_t axis = (uint32_t)placements.items[dim].dim;
        uint32_t parts = mesh->shape[dim], index = dt_coordinate(mesh, position, dim);
        uint64_t n = local.dims[axis];
        if (begin)
            begin[axis] += dt_chunk_begin(n, parts, index);
        local.dims[axis] = chunk_size(n, parts, index);
    }
    return local;
}

/* ---- Shapes ---- */

uint64_t dt_elements(const kb_shape *shape)
{
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        elements *= shape->dims[axis];
    return elements;
}

uint64_t dt_outer(const kb_shape *shape, uint32_t dim)
{
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < dim; axis++)
        elements *= shape->dims[axis];
    return elements;
}

uint64_t dt_inner(const kb_shape *shape, uint32_t dim)
{
    uint64_t elements = 1;
    for (uint32_t axis = dim + 1; axis < shape->rank; axis++)
        elements *= shape->dims[axis];
    return elements;
}
