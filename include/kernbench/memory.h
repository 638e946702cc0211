/*
 * memory.h: memories of the machine: locations, physical addresses, and allocation without tensors.
 */
#ifndef KERNBENCH_MEMORY_H
#define KERNBENCH_MEMORY_H

#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Where things are -------------------------------------------------------------------- */

typedef struct kb_pe {
    uint32_t sip;
    uint32_t cube; /* of the SIP */
    uint32_t pe;   /* of the cube */
} kb_pe;

typedef enum kb_memory {
    KB_HBM,    /* the PE's slice */
    KB_TCM,    /* the PE's own memory */
    KB_SRAM,   /* of the cube; the PE does not matter */
    KB_VIRTUAL /* an address that a PE's MMU translates; the PE does not matter */
} kb_memory;

typedef struct kb_location {
    kb_memory memory;
    kb_pe pe;
    uint64_t offset; /* in that memory; the address itself if it is virtual */
} kb_location;

/*
 * Physical addresses have 51 bits and name 16 SIPs of 32 cubes of 16 PEs; what is beyond is an
 * error. The format is in docs/decisions/0008-memory.md.
 */
KB_API KB_MUST_USE kb_error *kb_location_to_pa(const kb_context *ctx, kb_location location,
                                               uint64_t *pa);
KB_API KB_MUST_USE kb_error *kb_location_from_pa(const kb_context *ctx, uint64_t pa,
                                                 kb_location *location);

/* The ranges of the address space: memories, and what a PE has in its resource window. */
typedef enum kb_pa_range {
    KB_PA_HBM,  /* of a cube: all slices, one behind the other */
    KB_PA_SRAM, /* of a cube */
    KB_PA_M_CPU,
    KB_PA_TCM, /* of a PE, as the following */
    KB_PA_IPCQ,
    KB_PA_SCRATCHPAD,
    KB_PA_REGISTERS,
    KB_PA_STATUS,
    KB_PA_RESERVED,
    KB_PA_RANGES
} kb_pa_range;

/* What a physical address means. */
typedef struct kb_pa_fields {
    kb_pa_range range;
    uint32_t rack, sip, cube;
    uint32_t pe;     /* 0 unless the range is that of a PE */
    uint64_t offset; /* in the range */
} kb_pa_fields;

/* Inverse to each other; both refuse what is out of range, and say which field it is. */
KB_API KB_MUST_USE kb_error *kb_pa_encode(const kb_pa_fields *fields, uint64_t *pa);
KB_API KB_MUST_USE kb_error *kb_pa_decode(uint64_t pa, kb_pa_fields *fields);

/* An offset in the PE's slice of the HBM, of which each PE of the cube has `slice_bytes`. */
KB_API KB_MUST_USE kb_error *kb_pa_of_slice(kb_pe pe, uint64_t offset, uint64_t slice_bytes,
                                            uint64_t *pa);

enum { KB_NAME_BYTES = 96 };

/* "sip1.cube0.pe3.ipcq+0x1234" */
KB_API KB_MUST_USE kb_error *kb_pa_name(uint64_t pa, char name[KB_NAME_BYTES]);

/* ---- Memory of one's own ----------------------------------------------------------------- */

/* For requests that are not about tensors. `align` is a power of two. */
KB_API KB_MUST_USE kb_error *kb_memory_alloc(kb_context *ctx, kb_pe pe, kb_memory memory,
                                             uint64_t bytes, uint64_t align, kb_location *location);
KB_API KB_MUST_USE kb_error *kb_memory_free(kb_context *ctx, kb_location location);

/* A range of virtual addresses, in whole pages of 4 KiB. It is mapped nowhere. */
KB_API KB_MUST_USE kb_error *kb_va_alloc(kb_context *ctx, uint64_t bytes, uint64_t *va);
KB_API KB_MUST_USE kb_error *kb_va_free(kb_context *ctx, uint64_t va);

#ifdef __cplusplus
}
#endif

#endif
