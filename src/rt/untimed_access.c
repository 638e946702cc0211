/*
 * untimed_access.c: contents at addresses, in no time: for tools that look at a machine by the
 * addresses that its kernels use.
 */
#include "rt.h"
#include "runtime.h"

#include <inttypes.h>

/* The tensor of a device whose virtual addresses these are; NULL if there is none. */
static const rt_tensor *tensor_at(const kb_context *ctx, uint64_t va)
{
    for (uint64_t id = rt_table_next(&ctx->tensors, 0); id; id = rt_table_next(&ctx->tensors, id)) {
        const rt_tensor *tensor = rt_table_get(&ctx->tensors, id);
        if (!tensor->on_host && va >= tensor->va && va - tensor->va < tensor->bytes)
            return tensor;
    }
    return NULL;
}

/* What the shard has of the bytes; all copies of a byte are written, the first one is read last. */
static kb_error *access_shard(kb_context *ctx, const rt_tensor *tensor, size_t index,
                              uint64_t offset, unsigned char *data, uint64_t bytes, bool write)
{
    const mem_shard *shard = &tensor->placement.shards.items[index];
    uint64_t begin = offset > shard->offset_bytes ? offset : shard->offset_bytes;
    uint64_t shard_end = shard->offset_bytes + shard->nbytes, end = offset + bytes;
    end = end < shard_end ? end : shard_end;
    if (begin >= end)
        return NULL;
    kb_location at;
    KB_TRY(kb_tensor_shard_location(ctx, (kb_tensor){tensor->id}, index, &at));
    at.offset += begin - shard->offset_bytes;
    if (write)
        return mem_memories_write(ctx->memories, &at, data + (begin - offset), end - begin);
    mem_memories_read(ctx->memories, &at, data + (begin - offset), end - begin);
    return NULL;
}

static kb_error *access_tensor(kb_context *ctx, const rt_tensor *tensor, uint64_t va,
                               unsigned char *data, uint64_t bytes, bool write)
{
    uint64_t offset = va - tensor->va;
    if (bytes > tensor->bytes - offset)
        return kb_error_new(KB_ERR_INPUT,
                            "%" PRIu64 " bytes at 0x%" PRIx64 " go beyond tensor '%s', which ends "
                            "at 0x%" PRIx64,
                            bytes, va, tensor->name, tensor->va + tensor->bytes);
    for (size_t i = tensor->placement.shards.count; i-- > 0;)
        KB_TRY(access_shard(ctx, tensor, i, offset, data, bytes, write));
    return NULL;
}

kb_error *rt_access_address(kb_context *ctx, uint64_t address, void *data, size_t bytes, bool write)
{
    KB_TRY(data_settle(ctx->store));
    if (write && ctx->timing_only)
        return NULL;
    const rt_tensor *tensor = tensor_at(ctx, address);
    if (tensor)
        return access_tensor(ctx, tensor, address, data, bytes, write);
    kb_location at;
    KB_TRY(mem_location_from_pa(ctx->memories, address, &at));
    KB_TRY(mem_memories_check(ctx->memories, &at, bytes));
    if (write)
        return mem_memories_write(ctx->memories, &at, data, bytes);
    mem_memories_read(ctx->memories, &at, data, bytes);
    return NULL;
}
