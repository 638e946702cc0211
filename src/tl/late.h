/*
 * late.h: accesses of a kernel that wait for values which were received asynchronously, found by
 * the bytes that they touch. A later access of the same kernel to these bytes has to wait for them,
 * and so comes after what they wait for.
 */
#ifndef KB_TL_LATE_H
#define KB_TL_LATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "message_order.h"

/* Rows of bytes in a memory. */
typedef struct tl_bytes {
    uint64_t memory; /* its number */
    uint64_t offset, bytes, rows, stride;
} tl_bytes;

static inline uint64_t tl_bytes_end(const tl_bytes *b)
{
    return b->offset + (b->rows - 1) * b->stride + b->bytes;
}

typedef struct tl_late_entry {
    tl_bytes at;
    tl_point after; /* what it waits for */
    uint32_t seen;  /* by the search of that number */
    bool writes;
    bool in_queue; /* a store: it comes after all stores before it */
} tl_late_entry;

typedef struct tl_late_link {
    uint64_t page; /* number */
    uint32_t entry;
    uint32_t next; /* number + 1 */
} tl_late_link;

/* All zeros has none. */
typedef struct tl_late {
    KB_VEC(tl_late_entry) entries;
    KB_VEC(tl_late_link) links; /* an entry for each page that it touches, */
    uint32_t *heads;            /* by page */
    size_t size;                /* of heads: a power of two */
    KB_VEC(uint32_t) large;     /* entries of too many pages for links */
    uint32_t searches;
} tl_late;

void tl_late_fini(tl_late *late);

/* False if there is no memory. */
KB_MUST_USE bool tl_late_add(tl_late *late, const tl_late_entry *entry);

/* Called for entries that touch the bytes, if one of both writes; of stores only for the last. */
typedef void tl_late_fn(void *self, const tl_late_entry *entry);
void tl_late_find(tl_late *late, const tl_bytes *at, bool writes, tl_late_fn *found, void *self);

/* Forgets those whose points were acquired, now and then. */
void tl_late_clean(tl_late *late, const tl_order *order);

#endif
