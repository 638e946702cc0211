/*
 * paths.h: where transfers keep their ways. Words are named by 32-bit numbers and never move.
 *
 * Blocks of words have sizes that are powers of two; those given back are used again first.
 */
#ifndef KB_NET_PATHS_H
#define KB_NET_PATHS_H

#include <stdint.h>

#include "base/base.h"

enum {
    PATHS_CHUNK_SHIFT = 16, /* words of a chunk, and of the largest block */
    PATHS_LEAST_SHIFT = 3,
};

typedef struct paths {
    uint32_t **chunks;
    size_t chunk_count, chunk_capacity;
    uint32_t used;                             /* words of the newest chunk */
    uint32_t free_head[PATHS_CHUNK_SHIFT + 1]; /* by size; a free block begins with the next one */
} paths;

void paths_init(paths *store);
void paths_fini(paths *store);

/* The first of at least `words` words, or 0 if there is no memory. *size is for giving it back. */
KB_MUST_USE uint32_t paths_take(paths *store, uint32_t words, uint8_t *size);
void paths_give(paths *store, uint32_t first, uint8_t size);

static inline uint32_t *paths_at(const paths *store, uint32_t word)
{
    return &store->chunks[word >> PATHS_CHUNK_SHIFT][word & ((1u << PATHS_CHUNK_SHIFT) - 1)];
}

static inline size_t paths_bytes(const paths *store)
{
    return store->chunk_count * sizeof(uint32_t) << PATHS_CHUNK_SHIFT;
}

#endif
