/*
 * contents.h: what is in a memory. Sparse: pages that were never written are 0 and take no space.
 *
 * Offsets and sizes are those of a memory: nothing reaches beyond 2^64. Calls that fail, which is
 * for want of host memory alone, leave all bytes as they were.
 */
#ifndef KB_MEM_CONTENTS_H
#define KB_MEM_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

enum { MEM_PAGE_BYTES = 4096 };

typedef struct mem_page_slot {
    uint64_t number;      /* of the page */
    unsigned char *bytes; /* NULL: the slot is free */
} mem_page_slot;

/* All zeros is a memory full of zeros. */
typedef struct mem_contents {
    mem_page_slot *slots; /* a hash table with open addressing, by page number */
    size_t slot_count;    /* a power of two, or 0 */
    size_t page_count;
} mem_contents;

void mem_contents_fini(mem_contents *contents);

KB_MUST_USE kb_error *mem_contents_write(mem_contents *contents, uint64_t offset, const void *data,
                                         uint64_t bytes);
void mem_contents_read(const mem_contents *contents, uint64_t offset, void *into, uint64_t bytes);

/* Writes a pattern of `size` bytes (a power of two up to 8) again and again; of a pattern of
 * zeros nothing is kept but what part-filled pages need. `bytes` is a multiple of size. */
KB_MUST_USE kb_error *mem_contents_fill(mem_contents *contents, uint64_t offset, uint64_t bytes,
                                        const void *pattern, size_t size);

/* The bytes become those of another range, in the same contents or others; the two must not
 * overlap. What was never written there takes no space here either. */
KB_MUST_USE kb_error *mem_contents_copy(mem_contents *to, uint64_t to_offset,
                                        const mem_contents *from, uint64_t from_offset,
                                        uint64_t bytes);

/* The bytes are 0 again; pages that are wholly inside go back to the host. Cannot fail. */
void mem_contents_discard(mem_contents *contents, uint64_t offset, uint64_t bytes);

/* Host memory in use. */
size_t mem_contents_bytes(const mem_contents *contents);

#endif
