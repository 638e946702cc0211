/* places.h: machines of several shapes, and short ways to name what is in them. */
#ifndef TESTS_MEM_PLACES_H
#define TESTS_MEM_PLACES_H

#include "mem/cases.h"
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "topo/random_machines.h"

#include "mem/mem.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Three SIPs of two cubes of three PEs: 2 MiB of HBM and 1.25 of TCM each, and 64 KiB of SRAM. */
#define SMALL_MACHINE                                                                              \
    "system: { sips: { count: 3 } }\n"                                                             \
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"                                                         \
    "cube:\n"                                                                                      \
    "  pe_layout: { pe_per_corner: 1, corners: [NW, SE, NE] }\n"                                   \
    "  hbm_gib: 0.005859375\n"                                                                     \
    "  sram: { capacity_mib: 0.0625 }\n"                                                           \
    "  pe_tcm: { capacity_mib: 1.5, reserved_mib: 0.25 }\n"

/* One of everything: 6 MiB of HBM, and a TCM of which nothing is kept back. */
#define SINGLE_MACHINE                                                                             \
    "system: { sips: { count: 1 } }\n"                                                             \
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"                                                         \
    "cube:\n"                                                                                      \
    "  pe_layout: { pe_per_corner: 1, corners: [NW] }\n"                                           \
    "  hbm_gib: 0.005859375\n"                                                                     \
    "  sram: { capacity_mib: 0.0625 }\n"                                                           \
    "  pe_tcm: { capacity_mib: 1, reserved_mib: 0 }\n"

static inline kb_pe pe_at(uint32_t sip, uint32_t cube, uint32_t pe)
{
    return (kb_pe){sip, cube, pe};
}

static inline kb_location at(kb_memory memory, uint32_t sip, uint32_t cube, uint32_t pe,
                             uint64_t offset)
{
    return (kb_location){memory, {sip, cube, pe}, offset};
}

static inline mem_memories *memories_of(const topo_machine *machine)
{
    mem_memories *memories;
    expect_ok(mem_memories_create(machine, TOPO_NONE, &memories));
    return memories;
}

static inline uint64_t must_alloc(mem_memories *memories, kb_pe pe, kb_memory memory,
                                  uint64_t bytes, uint64_t align)
{
    uint64_t offset = UINT64_MAX;
    expect_ok(mem_memories_alloc(memories, pe, memory, bytes, align, &offset));
    return offset;
}

static inline kb_location must_reserve(mem_memories *memories, kb_pe pe, kb_memory memory,
                                       uint64_t bytes, uint64_t align)
{
    kb_location ring = {.memory = KB_VIRTUAL};
    expect_ok(mem_memories_reserve_ring(memories, pe, memory, bytes, align, &ring));
    return ring;
}

static inline uint64_t pa_of(const mem_memories *memories, kb_location location)
{
    uint64_t pa = UINT64_MAX;
    expect_ok(mem_location_to_pa(memories, &location, &pa));
    return pa;
}

static inline void expect_location(const kb_location *found, kb_location expected)
{
    assert_int_equal(found->memory, expected.memory);
    assert_int_equal(found->pe.sip, expected.pe.sip);
    assert_int_equal(found->pe.cube, expected.pe.cube);
    assert_int_equal(found->pe.pe, expected.pe.pe);
    assert_int_equal(found->offset, expected.offset);
}

/* What the physical address of a location is called. */
static inline void expect_named(const mem_memories *memories, kb_location location,
                                const char *expected)
{
    mem_pa parts;
    kb_text text = KB_TEXT_INIT;
    expect_ok(mem_pa_decode(pa_of(memories, location), &parts));
    mem_pa_print(&parts, &text);
    assert_string_equal(kb_text_peek(&text), expected);
    kb_text_fini(&text);
}

static inline void expect_figures(const mem_memories *memories, kb_pe pe, kb_memory memory,
                                  uint64_t free_bytes, uint64_t largest, size_t blocks)
{
    mem_stats stats = mem_memories_get_stats(memories, pe, memory);
    assert_int_equal(stats.free, free_bytes);
    assert_int_equal(stats.largest, largest);
    assert_int_equal(stats.blocks, blocks);
}

#endif
