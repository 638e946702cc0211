/* paths.c: blocks of words out of large chunks; see paths.h. */
#include "paths.h"

#include <stdlib.h>
#include <string.h>

void paths_init(paths *store)
{
    *store = (paths){0};
}

void paths_fini(paths *store)
{
    for (size_t i = 0; i < store->chunk_count; i++)
        free(store->chunks[i]);
    free(store->chunks);
    paths_init(store);
}

static bool add_chunk(paths *store)
{
    enum { MOST = 1 << (32 - PATHS_CHUNK_SHIFT) };
    if (store->chunk_count == MOST)
        return false;
    if (store->chunk_count == store->chunk_capacity) {
        uint32_t **grown = kb_grow_array(store->chunks, store->chunk_count, 1, sizeof *grown,
                                         &store->chunk_capacity);
        if (!grown)
            return false;
        store->chunks = grown;
    }
    uint32_t *chunk = kb_alloc_aligned(64, (size_t)1 << PATHS_CHUNK_SHIFT, sizeof *chunk);
    if (!chunk)
        return false;
    store->used = store->chunk_count == 0 ? 1u << PATHS_LEAST_SHIFT : 0; /* word 0 means none */
    store->chunks[store->chunk_count++] = chunk;
    return true;
}

uint32_t paths_take(paths *store, uint32_t words, uint8_t *size)
{
    uint8_t shift = PATHS_LEAST_SHIFT;
    while (shift < PATHS_CHUNK_SHIFT && (1u << shift) < words)
        shift++;
    if ((1u << shift) < words)
        return 0;
    *size = shift;
    uint32_t first = store->free_head[shift];
    if (first != 0) {
        store->free_head[shift] = *paths_at(store, first);
        return first;
    }
    uint32_t block = 1u << shift;
    while (store->chunk_count == 0 || store->used + block > 1u << PATHS_CHUNK_SHIFT)
        if (!add_chunk(store))
            return 0;
    first = (uint32_t)(store->chunk_count - 1) << PATHS_CHUNK_SHIFT | store->used;
    store->used += block;
    return first;
}

void paths_give(paths *store, uint32_t first, uint8_t size)
{
    *paths_at(store, first) = store->free_head[size];
    store->free_head[size] = first;
}
