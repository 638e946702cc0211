/* step_pool.c: a block allocator that divides large chunks of words; see step_pool.h. */
#include "step_pool.h"

#include <stdlib.h>
#include <string.h>

void step_pool_init(step_pool *pool)
{
    *pool = (step_pool){0};
}

void step_pool_fini(step_pool *pool)
{
    for (size_t i = 0; i < pool->chunk_count; i++)
        free(pool->chunks[i]);
    free(pool->chunks);
    step_pool_init(pool);
}

static bool add_chunk(step_pool *pool)
{
    enum { MAX_CHUNKS = 1 << (32 - STEP_POOL_CHUNK_SHIFT) };
    if (pool->chunk_count == MAX_CHUNKS)
        return false;
    if (pool->chunk_count == pool->chunk_capacity) {
        uint32_t **grown =
            kb_grow_array(pool->chunks, pool->chunk_count, 1, sizeof *grown, &pool->chunk_capacity);
        if (!grown)
            return false;
        pool->chunks = grown;
    }
    uint32_t *chunk = kb_alloc_aligned(64, (size_t)1 << STEP_POOL_CHUNK_SHIFT, sizeof *chunk);
    if (!chunk)
        return false;
    pool->used = pool->chunk_count == 0 ? 1u << STEP_POOL_MIN_SHIFT : 0; /* word 0 means none */
    pool->chunks[pool->chunk_count++] = chunk;
    return true;
}

uint32_t step_pool_alloc(step_pool *pool, uint32_t words, uint8_t *size)
{
    uint8_t shift = STEP_POOL_MIN_SHIFT;
    while (shift < STEP_POOL_CHUNK_SHIFT && (1u << shift) < words)
        shift++;
    if ((1u << shift) < words)
        return 0;
    *size = shift;
    uint32_t first = pool->free_head[shift];
    if (first != 0) {
        pool->free_head[shift] = *step_pool_at(pool, first);
        return first;
    }
    uint32_t block = 1u << shift;
    while (pool->chunk_count == 0 || pool->used + block > 1u << STEP_POOL_CHUNK_SHIFT)
        if (!add_chunk(pool))
            return 0;
    first = (uint32_t)(pool->chunk_count - 1) << STEP_POOL_CHUNK_SHIFT | pool->used;
    pool->used += block;
    return first;
}

void step_pool_free(step_pool *pool, uint32_t first, uint8_t size)
{
    *step_pool_at(pool, first) = pool->free_head[size];
    pool->free_head[size] = first;
}
