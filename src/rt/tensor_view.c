/*
 * tensor_view.c: tensors as collectives see them: what they are, where their elements are, and
 * whether two lie alike.
 */
#include "runtime.h"

kb_error *rt_view_tensor(kb_context *ctx, kb_tensor handle, rt_tensor_view *view)
{
    const rt_tensor *tensor = rt_table_get(&ctx->tensors, handle.id);
    *view = (rt_tensor_view){0};
    if (!tensor)
        return rt_bad_handle(ctx, "", "tensor", "freed", handle.id);
    const mem_placement *placement = &tensor->placement;
    ctx->seen_shards.count = 0;
    if (!kb_vec_reserve(&ctx->seen_shards, placement->shards.count))
        return kb_error_nomem();
    for (size_t i = 0; i < placement->shards.count; i++)
        ctx->seen_shards.items[ctx->seen_shards.count++] = rt_describe_shard(tensor, i);
    *view = (rt_tensor_view){
        .name = tensor->name,
        .shape = tensor->shape,
        .dtype = tensor->dtype,
        .sip = tensor->sip,
        .memory = tensor->memory,
        .va = tensor->va,
        .elements = tensor->bytes / kb_dtype_bytes(tensor->dtype),
        .bytes = tensor->bytes,
        .on_host = tensor->on_host,
        .replicated = placement->copies > 1,
        .is_index = tensor->is_index,
        .policy = tensor->policy,
        .shards = ctx->seen_shards.items,
        .shard_count = ctx->seen_shards.count,
    };
    return NULL;
}

static bool same_box(const mem_box *a, const mem_box *b)
{
    for (uint32_t axis = 0; axis < a->rank && a->rank == b->rank; axis++)
        if (a->start[axis] != b->start[axis] || a->size[axis] != b->size[axis])
            return false;
    return a->rank == b->rank;
}

bool rt_same_layout(kb_context *ctx, kb_tensor a_handle, kb_tensor b_handle)
{
    const rt_tensor *a = rt_table_get(&ctx->tensors, a_handle.id);
    const rt_tensor *b = rt_table_get(&ctx->tensors, b_handle.id);
    if (!a || !b || a->on_host || b->on_host)
        return false;
    if (a->placement.shards.count != b->placement.shards.count)
        return false;
    for (size_t i = 0; i < a->placement.shards.count; i++) {
        const mem_shard *x = &a->placement.shards.items[i], *y = &b->placement.shards.items[i];
        bool same = x->cube == y->cube && x->pe == y->pe && x->nbytes == y->nbytes &&
                    x->offset_bytes == y->offset_bytes && same_box(&x->box, &y->box);
        if (!same)
            return false;
    }
    return true;
}

/* Boxes have two axes at least; an axis between stays whole. */
rt_shard_box rt_get_shard_box(kb_context *ctx, kb_tensor handle, size_t shard)
{
    const rt_tensor *tensor = rt_table_get(&ctx->tensors, handle.id);
    KB_ASSERT(tensor && shard < tensor->placement.shards.count);
    const mem_box *box = &tensor->placement.shards.items[shard].box;
    uint32_t last = box->rank - 1;
    uint64_t between = 1;
    for (uint32_t axis = 1; axis < last; axis++)
        between *= box->size[axis];
    rt_shard_box seen = {
        .row = box->start[0],
        .rows = box->size[0],
        .column = box->start[last],
        .columns = box->size[last],
    };
    if (between == 1)
        return seen;
    bool whole = box->size[last] == tensor->placement.shape.dims[last];
    seen.column = 0;
    seen.columns = whole ? between * box->size[last] : 0;
    return seen;
}

kb_error *rt_wait_for_tensor(kb_context *ctx, kb_tensor tensor)
{
    KB_TRY(rt_wait_for_transfers(rt_caller_of(ctx)));
    return rt_wait_for_mapping(ctx, tensor);
}
