/*
 * step_pool.h: block allocator for route steps and reservations. Private to net.
 *
 * A block is a power of two of 32-bit words. Blocks are identified by the number of their first
 * word and never move. Freed blocks of the same size are reused first.
 */
#ifndef KB_NET_STEP_POOL_H
#define KB_NET_STEP_POOL_H

#include <stdint.h>

#include "base/base.h"

enum {
    STEP_POOL_CHUNK_SHIFT = 16, /* words of a chunk, and of the largest block */
    STEP_POOL_MIN_SHIFT = 3,
};

typedef struct step_pool {
    uint32_t **chunks;
    size_t chunk_count, chunk_capacity;
    uint32_t used; /* words of the newest chunk */
    uint32_t
        free_head[STEP_POOL_CHUNK_SHIFT + 1]; /* by size; a free block begins with the next one */
} step_pool;

void step_pool_init(step_pool *pool);
void step_pool_fini(step_pool *pool);

/* Returns the number of the first of at least `words` words, or 0 if out of memory.
 * step_pool_free() needs *size. */
KB_MUST_USE uint32_t step_pool_alloc(step_pool *pool, uint32_t words, uint8_t *size);
void step_pool_free(step_pool *pool, uint32_t first, uint8_t size);

static inline uint32_t *step_pool_at(const step_pool *pool, uint32_t word)
{
    return &pool->chunks[word >> STEP_POOL_CHUNK_SHIFT][word & ((1u << STEP_POOL_CHUNK_SHIFT) - 1)];
}

static inline size_t step_pool_bytes(const step_pool *pool)
{
    return pool->chunk_count * sizeof(uint32_t) << STEP_POOL_CHUNK_SHIFT;
}

#endif
