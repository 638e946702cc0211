/*
 * extent.c: a bump allocator for each extent, and a table of extents.
 *
 * Invariant: an extent in the table has a live block at least. What a block leaves behind is not
 * used again before all others of its extent are gone too: pools give back all their blocks at
 * once, and those of a model together.
 */
#include "base/extent.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/sanitize.h"
#include "base/vec.h"

/* Linux 6.1: makes a huge page of what there is at once. Older kernels refuse, and do it later. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { HUGE_PAGE = 2 << 20, LINE = 64 };

/* How many of the youngest extents are looked at for room: older ones have little. */
enum { LOOKED_AT = 8 };

typedef struct extent {
    char *base; /* aligned to huge pages */
    size_t size, used;
    size_t live; /* blocks */
    bool huge;
} extent;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static KB_VEC(extent) extents;

/* One with room, which may be a new one; NULL if there is no memory. */
static extent *find_room(size_t bytes, bool huge)
{
    size_t count = extents.count;
    for (size_t i = count; i > 0 && i + LOOKED_AT > count; i--) {
        extent *e = &extents.items[i - 1];
        if (e->huge == huge && e->size - e->used >= bytes)
            return e;
    }
    extent fresh = {.huge = huge};
    if (!kb_size_add(bytes, HUGE_PAGE - 1, &fresh.size) || !kb_vec_reserve(&extents, 1))
        return NULL;
    fresh.size &= ~((size_t)HUGE_PAGE - 1);
    fresh.base = huge ? kb_alloc_large(1, fresh.size) : kb_alloc_aligned(HUGE_PAGE, 1, fresh.size);
    if (!fresh.base)
        return NULL;
    extents.items[extents.count] = fresh;
    return &extents.items[extents.count++];
}

/* The youngest first: what was made last is mostly given back first. */
static extent *extent_of(const void *block)
{
    size_t i = extents.count;
    do {
        KB_ASSERT(i > 0); /* the block is of an extent */
        i--;
    } while ((uintptr_t)block - (uintptr_t)extents.items[i].base >= extents.items[i].size);
    return &extents.items[i];
}

void *kb_extent_alloc(size_t bytes, bool huge)
{
    size_t rounded;
    if (!kb_size_add(bytes, LINE - 1, &rounded))
        return NULL;
    rounded &= ~((size_t)LINE - 1);
    pthread_mutex_lock(&lock);
    extent *e = find_room(rounded, huge);
    char *block = NULL;
    if (e) {
        block = e->base + e->used;
        e->used += rounded;
        e->live++;
    } else if (extents.count == 0) {
        kb_vec_fini(&extents);
    }
    pthread_mutex_unlock(&lock);
    return block;
}

void kb_extent_free(void *block)
{
    pthread_mutex_lock(&lock);
    extent *e = extent_of(block);
    if (--e->live == 0) {
        kb_unpoison(e->base, e->size);
        free(e->base);
        *e = extents.items[--extents.count];
        if (extents.count == 0)
            kb_vec_fini(&extents);
    }
    pthread_mutex_unlock(&lock);
}

void kb_extent_make_huge(void *block)
{
    pthread_mutex_lock(&lock);
    extent *e = extent_of(block);
    if (!e->huge) {
        e->huge = true; /* what follows are wishes: it does no harm if they are not granted */
        (void)madvise(e->base, e->size, MADV_HUGEPAGE);
        (void)madvise(e->base, e->size, MADV_COLLAPSE);
    }
    pthread_mutex_unlock(&lock);
}
