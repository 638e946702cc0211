/*
 * allocator.h: who has which part of a range of addresses. It keeps books; the memory itself is
 * elsewhere.
 *
 *     mem_allocator slice;
 *     mem_allocator_init(&slice, 0, 6 * GIB, MEM_FIRST_FIT);
 *     uint64_t at;
 *     if (mem_allocator_take(&slice, 4096, 64, &at) == MEM_TAKEN) ...
 *     mem_allocator_give(&slice, at);
 *     mem_allocator_fini(&slice);
 *
 * Blocks never overlap; free neighbours are one. An allocator that was never used has no memory.
 */
#ifndef KB_MEM_ALLOCATOR_H
#define KB_MEM_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef enum mem_fit {
    MEM_FIRST_FIT, /* the lowest gap: keeps together what is used */
    MEM_NEXT_FIT   /* behind the last one, from the start again at the end: what was given back is
                      taken again as late as possible */
} mem_fit;

typedef struct mem_span {
    uint64_t start, bytes;
} mem_span;

typedef struct mem_allocator {
    KB_VEC(mem_span) used; /* by start */
    KB_VEC(mem_span) free; /* by start; none touches another. Valid once something was taken */
    uint64_t free_bytes;
    uint64_t held; /* of these: promised to what needs no address; see mem_allocator_hold() */
    uint64_t next; /* MEM_NEXT_FIT: where to begin looking */
    mem_fit fit;
    uint64_t base, bytes;
} mem_allocator;

typedef enum mem_taken { MEM_TAKEN, MEM_EXHAUSTED, MEM_NO_HOST_MEMORY } mem_taken;

/* base + bytes must not overflow. */
void mem_allocator_init(mem_allocator *allocator, uint64_t base, uint64_t bytes, mem_fit fit);
void mem_allocator_fini(mem_allocator *allocator);

/* A block of at least 1 byte, at a multiple of `align`, which is a power of two. */
KB_MUST_USE mem_taken mem_allocator_take(mem_allocator *allocator, uint64_t bytes, uint64_t align,
                                         uint64_t *start);

/* Keeps this number of bytes free, wherever they are. False if there are not enough. */
static inline bool mem_allocator_hold(mem_allocator *allocator, uint64_t bytes)
{
    bool fits = bytes <= allocator->free_bytes - allocator->held;
    allocator->held += fits ? bytes : 0;
    return fits;
}

static inline void mem_allocator_release(mem_allocator *allocator, uint64_t bytes)
{
    KB_DEBUG_ASSERT(bytes <= allocator->held);
    allocator->held -= bytes;
}

/* False if no block starts there. Never needs memory of the host. */
bool mem_allocator_give(mem_allocator *allocator, uint64_t start);

/* The same for a block that was found. */
void mem_allocator_give_block(mem_allocator *allocator, const mem_span *found);

/* The block that has the address, or NULL. Good until a block is taken or given back. */
const mem_span *mem_allocator_find(const mem_allocator *allocator, uint64_t address);

/* The largest block that could be had with alignment 1. */
uint64_t mem_allocator_largest(const mem_allocator *allocator);

#endif
