/*
 * pool.c: objects of one size in chunks, with a free list threaded through the free ones.
 *
 * Invariants: an index below `used` is live or on the free list, never both, and live + length of
 * the free list + 1 = used. A free object holds the index of the next free one in its first four
 * bytes; under AddressSanitizer it is poisoned, as is a gap behind each object. Behind the objects
 * of a chunk lies a bit for each: whether it is live, kept up only where asserts are on.
 */
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/extent.h"
#include "base/sanitize.h"

enum { cache_line = 64, link_size = sizeof(uint32_t) };

#ifdef NDEBUG
enum { live_bytes = 0 };
#else
enum { live_bytes = KB_POOL_CHUNK / 8 };
#endif

void kb_pool_init(kb_pool *pool, size_t object_size)
{
    KB_ASSERT(object_size > 0 && object_size <= SIZE_MAX / KB_POOL_CHUNK / 2);
    if (object_size < link_size)
        object_size = link_size;
    /* No more lines than need be: small ones never straddle two, larger ones begin with one. */
    size_t stride = _Alignof(max_align_t);
    while (stride < object_size && stride < cache_line)
        stride *= 2;
    if (object_size > cache_line)
        stride = (object_size + cache_line - 1) & ~((size_t)cache_line - 1);
    *pool = (kb_pool){.stride = stride + KB_REDZONE, .size = object_size, .used = 1};
}

void kb_pool_fini(kb_pool *pool)
{
    for (size_t i = pool->chunk_count; i-- > 0;) { /* the youngest is found soonest */
        kb_poison(pool->chunks[i], pool->stride * KB_POOL_CHUNK); /* its extent may stay */
        kb_extent_free(pool->chunks[i]);
    }
    free(pool->chunks);
    kb_pool_init(pool, pool->size);
}

static bool add_chunk(kb_pool *pool)
{
    if (pool->chunk_count == pool->chunk_capacity) {
        char **grown =
            kb_grow_array(pool->chunks, pool->chunk_count, 1, sizeof *grown, &pool->chunk_capacity);
        if (!grown)
            return false;
        pool->chunks = grown;
    }
    size_t objects_size = pool->stride * KB_POOL_CHUNK;
    char *chunk = kb_extent_alloc(objects_size + live_bytes, pool->chunk_count > 0);
    if (!chunk)
        return false;
    if (pool->chunk_count == 1)
        kb_extent_make_huge(pool->chunks[0]);
    memset(chunk + objects_size, 0, live_bytes);
    kb_poison(chunk, objects_size);
    pool->chunks[pool->chunk_count++] = chunk;
    return true;
}

/* The fresh indices there is memory for. The last index of all is left alone: `used` must fit. */
static uint64_t fresh_room(const kb_pool *pool)
{
    uint64_t limit = (uint64_t)pool->chunk_count * KB_POOL_CHUNK;
    if (limit > UINT32_MAX)
        limit = UINT32_MAX;
    return limit > pool->used ? limit - pool->used : 0;
}

bool kb_pool_grow(kb_pool *pool, uint32_t count)
{
    uint64_t free_listed = pool->used - 1 - pool->live;
    while (free_listed + fresh_room(pool) < count) {
        uint64_t before = fresh_room(pool);
        if (!add_chunk(pool))
            return false;
        if (fresh_room(pool) == before)
            return false; /* out of indices */
    }
    return true;
}

uint32_t kb_pool_take_fresh(kb_pool *pool)
{
    if (!kb_pool_reserve(pool, 1))
        return 0;
    uint32_t index = pool->used++;
    kb_unpoison(kb_pool_at(pool, index), pool->size);
    pool->live++;
    kb_pool_note(pool, index, true);
    return index;
}

#ifndef NDEBUG

static bool is_live(const kb_pool *pool, uint32_t index)
{
    const char *bits = pool->chunks[index >> KB_POOL_SHIFT] + pool->stride * KB_POOL_CHUNK;
    uint32_t slot = index & (KB_POOL_CHUNK - 1);
    return ((unsigned char)bits[slot / 8] >> (slot % 8)) & 1;
}

void kb_pool_note(kb_pool *pool, uint32_t index, bool live)
{
    KB_ASSERT(index != 0 && index < pool->used);
    if (!live)
        KB_ASSERT(is_live(pool, index)); /* given twice? */
    char *bits = pool->chunks[index >> KB_POOL_SHIFT] + pool->stride * KB_POOL_CHUNK;
    uint32_t slot = index & (KB_POOL_CHUNK - 1);
    bits[slot / 8] = (char)(bits[slot / 8] ^ (1 << (slot % 8)));
}

#endif
