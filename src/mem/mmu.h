/*
 * mmu.h: virtual addresses, as the MMUs of the PEs of one SIP translate them.
 *
 * A mapping is a range of virtual addresses that belongs together, mostly a tensor. It is cut into
 * extents, and each extent has one or more copies in the memories of the SIP. A PE sees its own
 * copy if it has one, else one in its cube, else any; so one table serves all PEs, and what each
 * PE's MMU has of its own is which mappings are installed in it.
 */
#ifndef KB_MEM_MMU_H
#define KB_MEM_MMU_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

#define MEM_VA_PAGE_BYTES ((uint64_t)4096)
#define MEM_VA_BASE ((uint64_t)0x100000000)
#define MEM_VA_BYTES ((uint64_t)1 << 48) /* 256 TiB a context */

typedef struct mem_mmu mem_mmu;

KB_MUST_USE kb_error *mem_mmu_create(uint32_t sip, uint32_t cubes, uint32_t pes, mem_mmu **mmu);
void mem_mmu_destroy(mem_mmu *mmu);

typedef struct mem_extent {
    uint64_t offset, bytes; /* in the mapping; bytes is not 0 */
    size_t first_copy, copy_count;
} mem_extent;

/* What a mapping is made from; copied. */
typedef struct mem_mapping_spec {
    const char *name; /* of the tensor, for messages about faults; NULL: it is none */
    uint64_t va, bytes;
    const mem_extent *extents; /* by offset, no overlap; what none covers is unmapped */
    size_t extent_count;
    const kb_location *copies; /* those of an extent by (sip, cube, pe) */
    size_t copy_count;
    bool has_dtype; /* it holds elements of: */
    kb_dtype dtype;
    bool is_index; /* it has contents in every run */
} mem_mapping_spec;

/* 0 is no mapping. */
typedef uint32_t mem_mapping_id;

/*
 * Adds a mapping, installed nowhere. Refused with KB_ERR_INPUT if it overlaps one that is still
 * there. The id is good until the mapping is dropped, and may name another one after that.
 */
KB_MUST_USE kb_error *mem_mmu_add(mem_mmu *mmu, const mem_mapping_spec *spec, mem_mapping_id *id);

/* In the MMU of one PE. Installing twice is harmless; so is removing what is not installed. */
void mem_mmu_install(mem_mmu *mmu, mem_mapping_id id, uint32_t cube, uint32_t pe);
void mem_mmu_uninstall(mem_mmu *mmu, mem_mapping_id id, uint32_t cube, uint32_t pe);

/* Forgets the mapping, wherever it is installed. */
void mem_mmu_drop(mem_mmu *mmu, mem_mapping_id id);

/* The mapping that starts at the address, or 0. */
mem_mapping_id mem_mmu_find(const mem_mmu *mmu, uint64_t va);

/* How many PEs have it installed. */
uint32_t mem_mmu_installed(const mem_mmu *mmu, mem_mapping_id id);

/*
 * Where the PE finds the address, and how many bytes from there on are contiguous in that memory.
 * False if its MMU has no mapping for it.
 */
bool mem_mmu_translate(const mem_mmu *mmu, uint32_t cube, uint32_t pe, uint64_t va,
                       kb_location *location, uint64_t *bytes);

/* The mapping that an address belongs to. */
typedef struct mem_mapped {
    const char *name; /* NULL: no tensor; good until the mapping is dropped */
    uint64_t va, end;
    bool has_dtype;
    kb_dtype dtype;
    bool is_index;
} mem_mapped;

/* Grows whenever a translation may become another. */
uint64_t mem_mmu_changes(const mem_mmu *mmu);

/* False if no mapping has the address. Installed or not. */
bool mem_mmu_get_mapped(const mem_mmu *mmu, uint64_t va, mem_mapped *mapped);

/* Appends "tensor 'x' (f16, 0x100000000 to 0x100000200)". */
void mem_mapped_print(const mem_mapped *mapped, kb_text *text);

/*
 * The tensor, or the range that is none, that has a copy at a physical location, and the virtual
 * address of that byte: the inverse of translation, by looking at all mappings. False if there is
 * none.
 */
bool mem_mmu_find_owner(const mem_mmu *mmu, const kb_location *location, mem_mapped *owner,
                        uint64_t *va);

/*
 * What is said of an address that could not be translated: who did it (a kernel), the PE, the
 * address, the nearest mapping and how far away it is, and if there is one at the address that is
 * not installed in this PE, that.
 */
KB_MUST_USE kb_error *mem_mmu_fault(const mem_mmu *mmu, const char *who, uint32_t cube, uint32_t pe,
                                    uint64_t va);

#endif
