/* memories_private.h: what memories.c and receive_rings.c know of memories. */
#ifndef KB_MEM_MEMORIES_PRIVATE_H
#define KB_MEM_MEMORIES_PRIVATE_H

#include "memories.h"

/* A list of these is sorted by key, and has a key once. */
typedef struct mem_pair {
    uint64_t key, value;
} mem_pair;
typedef KB_VEC(mem_pair) mem_pair_list;

typedef struct mem_region {
    mem_allocator space;
    mem_contents contents;
    uint64_t rings_up_to; /* no ring starts behind this offset */
    mem_pair_list rings;  /* where each starts, and in TCM where it starts in the ring region */
} mem_region;

/* Begins with what kernels use most. */
typedef struct mem_pe_record {
    mem_region tcm, hbm;
    mem_allocator ring_space;
    mem_pair_list ring_places; /* where each starts in the ring region, and in the TCM */
} mem_pe_record;

typedef struct mem_cube_record {
    mem_region sram;
} mem_cube_record;

struct mem_memories {
    const topo_machine *machine;
    const topo_shape *shape;
    uint32_t only_sip;
    mem_pe_record **pes;     /* NULL until used */
    mem_cube_record **cubes; /* NULL until used */
    kb_pool pe_records;      /* side by side: runs look at all of them again and again */
    mem_tcm_fn *on_tcm;      /* NULL: changes of the TCM in use are not reported */
    void *on_tcm_self;
};

/* Errors are told with names of a fixed size: when memory is short they should not need more. */
typedef struct mem_name {
    char text[KB_NAME_BYTES];
} mem_name;

mem_name mem_name_of_pe(kb_pe pe, const char *what); /* "sip0.cube1.pe2.what" */
mem_name mem_name_of_memory(kb_pe pe, kb_memory memory);
mem_name mem_name_of_location(const kb_location *location);

/* Whether memory may be taken there. */
KB_MUST_USE kb_error *mem_check_request(const mem_memories *memories, kb_pe pe, kb_memory memory,
                                        uint64_t bytes, uint64_t align);

/* For all that follow the location must exist. */

uint64_t mem_capacity_of(const mem_memories *memories, kb_memory memory);

/* NULL if there is no host memory. */
mem_pe_record *mem_need_pe(mem_memories *memories, kb_pe pe);
mem_region *mem_need_region(mem_memories *memories, kb_pe pe, kb_memory memory);

/* NULL if it was never used. */
mem_region *mem_find_region(const mem_memories *memories, kb_pe pe, kb_memory memory);

/* The error for a block that could not be taken. */
KB_MUST_USE kb_error *mem_not_taken(mem_taken taken, const mem_allocator *space, mem_name where,
                                    uint64_t bytes, uint64_t align);

/* Gives a block back, with its contents. It must exist. */
void mem_give_block(mem_region *there, uint64_t start);

/* What is in use of the PE's memory has changed. */
static inline void mem_report_use(const mem_memories *memories, kb_pe pe, kb_memory memory,
                                  const mem_region *there)
{
    if (KB_UNLIKELY(memories->on_tcm != NULL) && memory == KB_TCM)
        memories->on_tcm(memories->on_tcm_self, pe,
                         there->space.bytes - there->space.free_bytes + there->space.held);
}

/* NULL if the key is not in the list. */
mem_pair *mem_find_pair(const mem_pair_list *list, uint64_t key);

#endif
