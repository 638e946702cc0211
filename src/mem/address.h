/*
 * address.h: physical addresses of 51 bits, and what they mean.
 *
 *     [50:47] rack   [46:43] sip   [42:38] cube   [37:0] local offset
 *     local offset, bit 37 = 1: HBM of the cube, 128 GiB
 *                   bit 37 = 0: [36:34] unit  [33:30] pe  [29] ext  [28:0] sub-offset
 *
 * The sub-offset of a PE is cut into ranges, one for each component (mem_ranges). All other code
 * works with decoded coordinates.
 *
 *     mem_pa pa = mem_pa_tcm(1, 0, 3, 0x1234);
 *     uint64_t bits;
 *     KB_TRY(mem_pa_encode(&pa, &bits));
 *     KB_TRY(mem_pa_decode(bits, &pa));
 *     mem_pa_print(&pa, &text);            // sip1.cube0.pe3.tcm+0x1234
 */
#ifndef KB_MEM_ADDRESS_H
#define KB_MEM_ADDRESS_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

enum {
    MEM_PA_BITS = 51,
    MEM_PA_RACKS = 16,
    MEM_PA_SIPS = 16,
    MEM_PA_CUBES = 32,
    MEM_PA_PES = 16,
};

#define MEM_PA_HBM_BYTES ((uint64_t)1 << 37)  /* of a cube */
#define MEM_PA_UNIT_BYTES ((uint64_t)1 << 29) /* of a PE, the M CPU or the SRAM */

typedef enum mem_unit { MEM_UNIT_PE, MEM_UNIT_M_CPU, MEM_UNIT_SRAM, MEM_UNIT_HBM } mem_unit;

/* What a PE has in its resource window. */
typedef enum mem_component {
    MEM_TCM,
    MEM_IPCQ, /* receive rings that live in TCM */
    MEM_SCRATCHPAD,
    MEM_REGISTERS,
    MEM_STATUS,
    MEM_RESERVED,
    MEM_COMPONENTS
} mem_component;

typedef struct mem_range {
    const char *name;
    uint64_t base, bytes;
} mem_range;

/* By mem_component: in order of base, aligned to 4 KiB, without overlap; gaps are invalid. */
extern const mem_range mem_ranges[MEM_COMPONENTS];

typedef struct mem_pa {
    uint32_t rack, sip, cube;
    mem_unit unit;
    uint32_t pe;             /* 0 unless the unit is a PE */
    mem_component component; /* 0 unless the unit is a PE */
    uint64_t offset;         /* in the component, the HBM of the cube, the SRAM or the M CPU */
} mem_pa;

/* Both refuse what is out of range, saying which field and how far it goes. */
KB_MUST_USE kb_error *mem_pa_encode(const mem_pa *pa, uint64_t *bits);
KB_MUST_USE kb_error *mem_pa_decode(uint64_t bits, mem_pa *pa);

/* Of rack 0. Fields are looked at when it is encoded. */
mem_pa mem_pa_hbm(uint32_t sip, uint32_t cube, uint64_t offset);
mem_pa mem_pa_sram(uint32_t sip, uint32_t cube, uint64_t offset);
mem_pa mem_pa_tcm(uint32_t sip, uint32_t cube, uint32_t pe, uint64_t offset);
mem_pa mem_pa_of_pe(uint32_t sip, uint32_t cube, uint32_t pe, mem_component component,
                    uint64_t offset);

/* An offset in a PE's slice of the HBM, which must be inside it. */
KB_MUST_USE kb_error *mem_pa_pe_hbm(uint32_t sip, uint32_t cube, uint32_t pe, uint64_t offset,
                                    uint64_t slice_bytes, mem_pa *pa);

/*
 * "sip1.cube0.pe3.ipcq+0x1234", "sip0.cube2.hbm+0x0", "sip0.cube2.sram+0x40"; with "rack2." before
 * it unless the rack is 0.
 */
void mem_pa_print(const mem_pa *pa, kb_text *text);

#endif
