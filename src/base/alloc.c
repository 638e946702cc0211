/* alloc.c: allocation with sizes that cannot overflow. */
#include "base/alloc.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"

/* The bytes to ask for, or false on overflow. Never zero: malloc(0) may return NULL. */
static bool array_bytes(size_t count, size_t size, size_t *bytes)
{
    if (!kb_size_mul(count, size, bytes))
        return false;
    if (*bytes == 0)
        *bytes = 1;
    return true;
}

void *kb_alloc_array(size_t count, size_t size)
{
    size_t bytes;
    return array_bytes(count, size, &bytes) ? malloc(bytes) : NULL;
}

void *kb_alloc_zeroed(size_t count, size_t size)
{
    size_t bytes;
    return array_bytes(count, size, &bytes) ? calloc(1, bytes) : NULL;
}

void *kb_alloc_aligned(size_t align, size_t count, size_t size)
{
    KB_ASSERT(align % sizeof(void *) == 0 && (align & (align - 1)) == 0 && align != 0);
    size_t bytes;
    /* aligned_alloc wants a multiple of the alignment. */
    if (!array_bytes(count, size, &bytes) || !kb_size_add(bytes, align - 1, &bytes))
        return NULL;
    return aligned_alloc(align, bytes & ~(align - 1));
}

void *kb_alloc_large(size_t count, size_t size)
{
    const size_t line = 64, huge = (size_t)2 << 20;
    size_t bytes;
    if (!array_bytes(count, size, &bytes))
        return NULL;
    size_t filled = bytes & ~(huge - 1); /* the rest takes memory as it is touched */
    void *block = kb_alloc_aligned(filled ? huge : line, bytes, 1);
#ifdef MADV_HUGEPAGE
    if (block && filled)
        (void)madvise(block, filled, MADV_HUGEPAGE); /* a wish: no harm if it is not granted */
#endif
    return block;
}

void *kb_realloc_array(void *old, size_t count, size_t size)
{
    size_t bytes;
    return array_bytes(count, size, &bytes) ? realloc(old, bytes) : NULL;
}

void *kb_grow_array(void *items, size_t count, size_t extra, size_t size, size_t *capacity)
{
    enum { first_capacity = 8 };
    size_t wanted;
    if (!kb_size_add(count, extra, &wanted))
        return NULL;
    size_t grown = *capacity + *capacity / 2;
    if (grown < first_capacity)
        grown = first_capacity;
    if (grown < wanted)
        grown = wanted;
    void *moved = kb_realloc_array(items, grown, size);
    if (moved)
        *capacity = grown;
    return moved;
}
