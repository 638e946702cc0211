/*
 * memories.h: all memories of a machine, found by (sip, cube, pe): who has what in them, and what
 * is in them. A memory costs 8 bytes until it is used.
 *
 * A PE has its slice of the HBM, its TCM without the part that its scheduler keeps, and the region
 * of its receive rings; a cube has its SRAM. A ring in TCM has an address in the ring region, and
 * takes as much from the TCM.
 *
 * Locations are structural coordinates and work on machines of any size. Only mem_location_to_pa()
 * and mem_location_from_pa() are limited to machines within the physical address format.
 */
#ifndef KB_MEM_MEMORIES_H
#define KB_MEM_MEMORIES_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "address.h"
#include "allocator.h"
#include "contents.h"
#include "topo/topo.h"

typedef struct mem_memories mem_memories;

/* The machine must stay. `only_sip`: memory is to be had on that SIP alone; TOPO_NONE for no limit.
 */
KB_MUST_USE kb_error *mem_memories_create(const topo_machine *machine, uint32_t only_sip,
                                          mem_memories **memories);
void mem_memories_destroy(mem_memories *memories);

/*
 * A part of a memory of the PE (KB_HBM, KB_TCM) or its cube (KB_SRAM). Refused with what was asked,
 * what is free, and where; KB_ERR_FAULT when there is not enough, KB_ERR_INPUT when the PE or the
 * memory does not exist.
 */
KB_MUST_USE kb_error *mem_memories_alloc(mem_memories *memories, kb_pe pe, kb_memory memory,
                                         uint64_t bytes, uint64_t align, uint64_t *offset);

/* Its contents are gone. An error if no block starts there. */
KB_MUST_USE kb_error *mem_memories_free(mem_memories *memories, kb_pe pe, kb_memory memory,
                                        uint64_t offset);

/*
 * Reserves a receive ring in any memory; `ring` is its first byte. Its address says `ipcq` if the
 * memory is TCM. In SRAM the reservation belongs to the whole cube, and the PE of `ring` is 0.
 */
KB_MUST_USE kb_error *mem_memories_reserve_ring(mem_memories *memories, kb_pe pe, kb_memory memory,
                                                uint64_t bytes, uint64_t align, kb_location *ring);
KB_MUST_USE kb_error *mem_memories_release_ring(mem_memories *memories, const kb_location *ring);

/* Calls `fn` with the bytes in use of a PE's TCM whenever they change; NULL for none. */
typedef void mem_tcm_fn(void *self, kb_pe pe, uint64_t used);
void mem_memories_watch_tcm(mem_memories *memories, mem_tcm_fn *fn, void *self);

bool mem_memories_is_tcm_watched(const mem_memories *memories);

/*
 * The space of a PE's TCM, for values of kernels: these have no addresses and fit if their bytes
 * fit (mem_allocator_hold()). A change of what is held is to be reported. NULL for want of host
 * memory.
 */
mem_allocator *mem_memories_tcm(mem_memories *memories, kb_pe pe);
void mem_memories_report_tcm(const mem_memories *memories, kb_pe pe);

/* The error of a value that does not fit into a TCM that was used. */
KB_MUST_USE kb_error *mem_memories_tcm_exhausted(const mem_memories *memories, kb_pe pe,
                                                 uint64_t bytes);

typedef struct mem_stats {
    uint64_t capacity, free, largest;
    size_t blocks;
} mem_stats;

/* Of an existing PE's memory. */
mem_stats mem_memories_get_stats(const mem_memories *memories, kb_pe pe, kb_memory memory);

/* Checks that the bytes are all inside an existing memory; KB_VIRTUAL is refused. */
KB_MUST_USE kb_error *mem_memories_check(const mem_memories *memories, const kb_location *location,
                                         uint64_t bytes);

/* Contents of a location that was checked. What was never written reads as 0. */
KB_MUST_USE kb_error *mem_memories_write(mem_memories *memories, const kb_location *location,
                                         const void *data, uint64_t bytes);
void mem_memories_read(const mem_memories *memories, const kb_location *location, void *into,
                       uint64_t bytes);
KB_MUST_USE kb_error *mem_memories_fill(mem_memories *memories, const kb_location *location,
                                        uint64_t bytes, const void *pattern, size_t size);

/* The same bytes from one location to another, which may be in one memory but must not overlap. */
KB_MUST_USE kb_error *mem_memories_copy(mem_memories *memories, const kb_location *to,
                                        const kb_location *from, uint64_t bytes);

/* Host memory in use for contents. */
size_t mem_memories_content_bytes(const mem_memories *memories);

/* The node of the machine where transfers to or from the location end. */
uint32_t mem_memories_node(const mem_memories *memories, const kb_location *location);

/* KB_ERR_INPUT on machines larger than the physical address format. */
KB_MUST_USE kb_error *mem_location_to_pa(const mem_memories *memories, const kb_location *location,
                                         uint64_t *pa);
KB_MUST_USE kb_error *mem_location_from_pa(const mem_memories *memories, uint64_t pa,
                                           kb_location *location);

/* Appends "sip1.cube0.pe3.hbm+0x1234", also on machines that are too large for addresses. */
void mem_location_print(const kb_location *location, kb_text *text);

/*
 * Appends the physical address and its meaning, "0x50000280 (sip0.cube0.pe1.ipcq+0x280)"; on
 * machines larger than the format the meaning alone, "sip40.cube0.pe1.ipcq+0x280".
 */
void mem_address_print(const mem_memories *memories, const kb_location *location, kb_text *text);

/* The index of the memory that a physical location lies in: equal for one memory only. */
static inline uint64_t mem_memory_index(const topo_shape *shape, const kb_location *at)
{
    uint64_t cube = topo_cube_index(shape, at->pe);
    uint64_t pe = cube * shape->pes + (at->memory == KB_SRAM ? 0 : at->pe.pe);
    return pe * KB_VIRTUAL + (uint64_t)at->memory;
}

#endif
