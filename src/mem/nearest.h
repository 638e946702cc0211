/*
 * nearest.h: which copy of something a PE uses: its own; else one in its cube; else any. PEs that
 * have to share are spread over what there is by their numbers.
 */
#ifndef KB_MEM_NEAREST_H
#define KB_MEM_NEAREST_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/* Copies by (sip, cube, pe); `pe_of` says where each is. */
typedef struct mem_copies {
    kb_pe (*pe_of)(const void *self, size_t index);
    const void *self;
    size_t count; /* at least 1 */
} mem_copies;

/* Its index. `pes` is how many a cube has. */
size_t mem_nearest_copy(const mem_copies *copies, kb_pe pe, uint32_t pes);

#endif
