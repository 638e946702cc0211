/*
 * address.c: physical addresses, to bits and back.
 *
 * Encoding and decoding are inverse: what one accepts the other gives back unchanged, and each
 * refuses what the other could not make. Whether a machine has what an address names is not known
 * here.
 */
#include "address.h"

#include <inttypes.h>

enum {
    SUB_BITS = 29,
    EXT_BIT = 29,
    PE_SHIFT = 30,
    UNIT_SHIFT = 34,
    HBM_BIT = 37,
    CUBE_SHIFT = 38,
    SIP_SHIFT = 43,
    RACK_SHIFT = 47,
};

enum { UNITS = 8, PE_UNITS = 3 }; /* codes of a unit, and those that mean something */

/* The reasons are in docs/decisions/0008-memory.md. */
const mem_range mem_ranges[MEM_COMPONENTS] = {
    [MEM_TCM] = {"tcm", 0x00000000, (uint64_t)256 << 20},
    [MEM_IPCQ] = {"ipcq", 0x10000000, (uint64_t)128 << 20},
    [MEM_SCRATCHPAD] = {"scratchpad", 0x18000000, (uint64_t)64 << 20},
    [MEM_REGISTERS] = {"registers", 0x1C000000, (uint64_t)1 << 20},
    [MEM_STATUS] = {"status", 0x1D000000, (uint64_t)64 << 10},
    [MEM_RESERVED] = {"reserved", 0x1E000000, (uint64_t)16 << 20},
};

static const char *const unit_names[] = {
    [MEM_UNIT_PE] = "pe",
    [MEM_UNIT_M_CPU] = "m_cpu",
    [MEM_UNIT_SRAM] = "sram",
    [MEM_UNIT_HBM] = "hbm",
};

/* ---- Encoding ---------------------------------------------------------------------------- */

static kb_error *check_field(const char *name, uint32_t value, uint32_t count)
{
    if (value < count)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s %" PRIu32 " has no physical address: the maximum is %" PRIu32 "; "
                        "physical addresses cover %d SIPs of %d cubes of %d PEs",
                        name, value, count - 1, MEM_PA_SIPS, MEM_PA_CUBES, MEM_PA_PES);
}

static kb_error *check_offset(const char *where, uint64_t offset, uint64_t bytes)
{
    if (offset < bytes)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "offset 0x%" PRIx64 " in %s has no physical address: the size is 0x%" PRIx64
                        " bytes",
                        offset, where, bytes);
}

static kb_error *check_no_pe(const mem_pa *pa)
{
    const char *unit = unit_names[pa->unit];
    if (pa->pe != 0)
        return kb_error_new(KB_ERR_INPUT, "invalid pe %" PRIu32 ": expected 0 for %s", pa->pe,
                            unit);
    if (pa->component != 0)
        return kb_error_new(KB_ERR_INPUT, "invalid component %d: expected 0 for %s",
                            (int)pa->component, unit);
    return NULL;
}

static kb_error *encode_local(const mem_pa *pa, uint64_t *local)
{
    const char *unit = unit_names[pa->unit];
    if (pa->unit == MEM_UNIT_PE) {
        KB_TRY(check_field("pe", pa->pe, MEM_PA_PES));
        if ((unsigned)pa->component >= MEM_COMPONENTS)
            return kb_error_new(KB_ERR_INPUT, "invalid component %d: the maximum is %d",
                                (int)pa->component, MEM_COMPONENTS - 1);
        const mem_range *range = &mem_ranges[pa->component];
        KB_TRY(check_offset(range->name, pa->offset, range->bytes));
        *local = (uint64_t)pa->pe << PE_SHIFT | (range->base + pa->offset);
        return NULL;
    }
    KB_TRY(check_no_pe(pa));
    if (pa->unit == MEM_UNIT_HBM) {
        KB_TRY(check_offset(unit, pa->offset, MEM_PA_HBM_BYTES));
        *local = (uint64_t)1 << HBM_BIT | pa->offset;
        return NULL;
    }
    KB_TRY(check_offset(unit, pa->offset, MEM_PA_UNIT_BYTES));
    *local = (uint64_t)pa->unit << UNIT_SHIFT | pa->offset;
    return NULL;
}

kb_error *mem_pa_encode(const mem_pa *pa, uint64_t *bits)
{
    KB_TRY(check_field("rack", pa->rack, MEM_PA_RACKS));
    KB_TRY(check_field("sip", pa->sip, MEM_PA_SIPS));
    KB_TRY(check_field("cube", pa->cube, MEM_PA_CUBES));
    if ((unsigned)pa->unit > MEM_UNIT_HBM)
        return kb_error_new(KB_ERR_INPUT, "invalid unit %d: the maximum is %d", (int)pa->unit,
                            MEM_UNIT_HBM);
    uint64_t local = 0;
    KB_TRY(encode_local(pa, &local));
    *bits = (uint64_t)pa->rack << RACK_SHIFT | (uint64_t)pa->sip << SIP_SHIFT |
            (uint64_t)pa->cube << CUBE_SHIFT | local;
    return NULL;
}

/* ---- Decoding ---------------------------------------------------------------------------- */

#define NO_ADDRESS "invalid physical address 0x%" PRIx64 ": "

static kb_error *decode_component(uint64_t bits, uint64_t sub, mem_pa *pa)
{
    for (unsigned c = 0; c < MEM_COMPONENTS; c++) {
        const mem_range *range = &mem_ranges[c];
        if (sub >= range->base && sub - range->base < range->bytes) {
            pa->component = (mem_component)c;
            pa->offset = sub - range->base;
            return NULL;
        }
    }
    return kb_error_new(KB_ERR_FAULT, NO_ADDRESS "a PE has nothing at sub-offset 0x%" PRIx64, bits,
                        sub);
}

static kb_error *decode_unit(uint64_t bits, mem_pa *pa)
{
    unsigned unit = bits >> UNIT_SHIFT & (UNITS - 1);
    uint32_t pe = bits >> PE_SHIFT & (MEM_PA_PES - 1);
    uint64_t sub = bits & (((uint64_t)1 << SUB_BITS) - 1);
    if (unit >= PE_UNITS)
        return kb_error_new(KB_ERR_FAULT,
                            NO_ADDRESS "unknown unit %u: expected 0 (PE), 1 (M CPU) or 2 (SRAM)",
                            bits, unit);
    if (bits >> EXT_BIT & 1)
        return kb_error_new(KB_ERR_FAULT, NO_ADDRESS "the ext bit is 1: expected 0", bits);
    pa->unit = (mem_unit)unit;
    if (pa->unit == MEM_UNIT_PE) {
        pa->pe = pe;
        return decode_component(bits, sub, pa);
    }
    if (pe != 0)
        return kb_error_new(KB_ERR_FAULT, NO_ADDRESS "invalid pe %" PRIu32 ": expected 0 for %s",
                            bits, pe, unit_names[unit]);
    pa->offset = sub;
    return NULL;
}

kb_error *mem_pa_decode(uint64_t bits, mem_pa *pa)
{
    if (bits >> MEM_PA_BITS != 0)
        return kb_error_new(KB_ERR_FAULT, NO_ADDRESS "more than %d bits", bits, MEM_PA_BITS);
    mem_pa decoded = {
        .rack = bits >> RACK_SHIFT & (MEM_PA_RACKS - 1),
        .sip = bits >> SIP_SHIFT & (MEM_PA_SIPS - 1),
        .cube = bits >> CUBE_SHIFT & (MEM_PA_CUBES - 1),
    };
    if (bits >> HBM_BIT & 1) {
        decoded.unit = MEM_UNIT_HBM;
        decoded.offset = bits & (MEM_PA_HBM_BYTES - 1);
    } else {
        KB_TRY(decode_unit(bits, &decoded));
    }
    *pa = decoded;
    return NULL;
}

/* ---- Constructors ------------------------------------------------------------------------ */

mem_pa mem_pa_hbm(uint32_t sip, uint32_t cube, uint64_t offset)
{
    return (mem_pa){.sip = sip, .cube = cube, .unit = MEM_UNIT_HBM, .offset = offset};
}

mem_pa mem_pa_sram(uint32_t sip, uint32_t cube, uint64_t offset)
{
    return (mem_pa){.sip = sip, .cube = cube, .unit = MEM_UNIT_SRAM, .offset = offset};
}

mem_pa mem_pa_tcm(uint32_t sip, uint32_t cube, uint32_t pe, uint64_t offset)
{
    return mem_pa_of_pe(sip, cube, pe, MEM_TCM, offset);
}

mem_pa mem_pa_of_pe(uint32_t sip, uint32_t cube, uint32_t pe, mem_component component,
                    uint64_t offset)
{
    return (mem_pa){.sip = sip,
                    .cube = cube,
                    .unit = MEM_UNIT_PE,
                    .pe = pe,
                    .component = component,
                    .offset = offset};
}

kb_error *mem_pa_pe_hbm(uint32_t sip, uint32_t cube, uint32_t pe, uint64_t offset,
                        uint64_t slice_bytes, mem_pa *pa)
{
    KB_TRY(check_field("pe", pe, MEM_PA_PES));
    KB_TRY(check_offset("a slice of hbm", offset, slice_bytes));
    uint64_t in_cube;
    if (__builtin_mul_overflow(slice_bytes, pe, &in_cube) ||
        __builtin_add_overflow(in_cube, offset, &in_cube))
        in_cube = UINT64_MAX; /* too far in any case */
    KB_TRY(check_offset("hbm", in_cube, MEM_PA_HBM_BYTES));
    *pa = mem_pa_hbm(sip, cube, in_cube);
    return NULL;
}

/* ---- Printing ---------------------------------------------------------------------------- */

void mem_pa_print(const mem_pa *pa, kb_text *text)
{
    if (pa->rack != 0)
        kb_text_printf(text, "rack%" PRIu32 ".", pa->rack);
    kb_text_printf(text, "sip%" PRIu32 ".cube%" PRIu32 ".", pa->sip, pa->cube);
    const char *name = (unsigned)pa->unit <= MEM_UNIT_HBM ? unit_names[pa->unit] : "?";
    if (pa->unit == MEM_UNIT_PE) {
        kb_text_printf(text, "pe%" PRIu32 ".", pa->pe);
        name = (unsigned)pa->component < MEM_COMPONENTS ? mem_ranges[pa->component].name : "?";
    }
    kb_text_printf(text, "%s+0x%" PRIx64, name, pa->offset);
}
