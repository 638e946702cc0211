/*
 * pool.h: objects of one size, named by 32-bit indices.
 *
 * Index 0 is never given out, so it can mean "none". Objects never move. The one given back last
 * is taken first, while it is still in the cache. Not for sharing by threads.
 */
#ifndef KB_BASE_POOL_H
#define KB_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kernbench/kernbench.h>

#include "base/check.h"
#include "base/sanitize.h"

enum { KB_POOL_SHIFT = 10, KB_POOL_CHUNK = 1 << KB_POOL_SHIFT };

typedef struct kb_pool {
    char **chunks;      /* KB_POOL_CHUNK objects each; index i is in chunks[i >> KB_POOL_SHIFT] */
    size_t stride;      /* bytes from one object to the next */
    size_t size;        /* bytes the user may use of it */
    uint32_t used;      /* indices ever given out, and index 0: those from here on are fresh */
    uint32_t free_head; /* the index given back last, 0 if none */
    uint32_t live;
    size_t chunk_count;
    size_t chunk_capacity;
} kb_pool;

/* The stride of a pool, where the compiler knows the size of its objects. */
#define KB_POOL_STRIDE(size)                                                                       \
    (((size) <= 16 ? 16 : (size) <= 32 ? 32 : ((size) + 63) / 64 * 64) + KB_REDZONE)

/*
 * Takes no memory yet, so it cannot fail. Objects are aligned like malloc's, and to a cache line
 * of 64 bytes if their size is a multiple of that.
 */
void kb_pool_init(kb_pool *pool, size_t object_size);
void kb_pool_fini(kb_pool *pool); /* with all objects, live or not */

/* The parts that are not worth inlining: getting memory, and an object that was never used. */
KB_MUST_USE bool kb_pool_grow(kb_pool *pool, uint32_t count);
KB_MUST_USE uint32_t kb_pool_take_fresh(kb_pool *pool);

/* Where asserts are on: that an object, which was not, is live from now on; or the reverse. */
#ifdef NDEBUG
static inline void kb_pool_note(kb_pool *pool, uint32_t index, bool live)
{
    (void)pool, (void)index, (void)live;
}
#else
void kb_pool_note(kb_pool *pool, uint32_t index, bool live);
#endif

static inline uint32_t kb_pool_live(const kb_pool *pool)
{
    return pool->live;
}

static inline void *kb_pool_at(const kb_pool *pool, uint32_t index)
{
    KB_DEBUG_ASSERT(index != 0 && index < pool->used);
    return pool->chunks[index >> KB_POOL_SHIFT] + (index & (KB_POOL_CHUNK - 1)) * pool->stride;
}

/* An object with indeterminate content, or 0 if there is no memory. */
static inline KB_MUST_USE uint32_t kb_pool_take(kb_pool *pool)
{
    uint32_t index = pool->free_head;
    if (KB_UNLIKELY(index == 0))
        return kb_pool_take_fresh(pool);
    void *object = kb_pool_at(pool, index);
    kb_unpoison(object, pool->size);
    memcpy(&pool->free_head, object, sizeof pool->free_head);
    pool->live++;
    kb_pool_note(pool, index, true);
    return index;
}

static inline void kb_pool_give(kb_pool *pool, uint32_t index)
{
    kb_pool_note(pool, index, false);
    void *object = kb_pool_at(pool, index);
    memcpy(object, &pool->free_head, sizeof pool->free_head);
    kb_poison(object, pool->stride);
    pool->free_head = index;
    pool->live--;
}

/* Makes the next `count` takes succeed, whatever happens to memory. False if it cannot. */
static inline KB_MUST_USE bool kb_pool_reserve(kb_pool *pool, uint32_t count)
{
    uint32_t free_listed = pool->used - 1 - pool->live;
    return KB_LIKELY(free_listed >= count) || kb_pool_grow(pool, count);
}

#endif
