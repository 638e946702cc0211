/*
 * slab.h: objects of one size, named by their addresses.
 *
 * For what is taken and given back so often that finding an object by its index (pool.h) would
 * count. The one given back last is taken first. Not for sharing by threads.
 */
#ifndef KB_BASE_SLAB_H
#define KB_BASE_SLAB_H

#include "base/pool.h"

typedef struct kb_slab {
    void *free;   /* the one given back last; each has the address of the next one */
    kb_pool pool; /* where they come from; nothing goes back there */
} kb_slab;

/* Takes no memory yet. The size must be that of a pointer or more. */
static inline void kb_slab_init(kb_slab *slab, size_t object_size)
{
    KB_ASSERT(object_size >= sizeof(void *));
    slab->free = NULL;
    kb_pool_init(&slab->pool, object_size);
}

/* With all objects. */
static inline void kb_slab_fini(kb_slab *slab)
{
    slab->free = NULL;
    kb_pool_fini(&slab->pool);
}

/* An object with indeterminate content, or NULL if there is no memory. */
static inline KB_MUST_USE void *kb_slab_take(kb_slab *slab)
{
    void *object = slab->free;
    if (KB_UNLIKELY(!object)) {
        uint32_t index = kb_pool_take(&slab->pool);
        return index == 0 ? NULL : kb_pool_at(&slab->pool, index);
    }
    kb_unpoison(object, slab->pool.size);
    memcpy(&slab->free, object, sizeof slab->free);
    return object;
}

static inline void kb_slab_give(kb_slab *slab, void *object)
{
    memcpy(object, &slab->free, sizeof slab->free);
    kb_poison(object, slab->pool.size);
    slab->free = object;
}

#endif
