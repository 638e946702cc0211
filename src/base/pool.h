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

#include <kernbench/kernbench.h>

#include "base/check.h"

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

/*
 * Takes no memory yet, so it cannot fail. Objects are aligned like malloc's, and to a cache line
 * of 64 bytes if their size is a multiple of that.
 */
void kb_pool_init(kb_pool *pool, size_t object_size);
void kb_pool_fini(kb_pool *pool); /* with all objects, live or not */

/* An object with indeterminate content, or 0 if there is no memory. */
KB_MUST_USE uint32_t kb_pool_take(kb_pool *pool);
void kb_pool_give(kb_pool *pool, uint32_t index);

/* Makes the next `count` takes succeed, whatever happens to memory. False if it cannot. */
KB_MUST_USE bool kb_pool_reserve(kb_pool *pool, uint32_t count);

static inline uint32_t kb_pool_live(const kb_pool *pool)
{
    return pool->live;
}

static inline void *kb_pool_at(const kb_pool *pool, uint32_t index)
{
    KB_DEBUG_ASSERT(index != 0 && index < pool->used);
    return pool->chunks[index >> KB_POOL_SHIFT] + (index & (KB_POOL_CHUNK - 1)) * pool->stride;
}

#endif
