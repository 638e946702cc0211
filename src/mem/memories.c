/*
 * memories.c: the memories of a machine: their records, blocks and contents. Rings and physical
 * addresses are in receive_rings.c.
 *
 * A PE's record and a cube's are made when something is first taken from or written to them. All
 * blocks of a memory, rings among them, come from one allocator, so they never overlap.
 */
#include "memories_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Records ----------------------------------------------------------------------------- */

uint64_t mem_capacity_of(const mem_memories *memories, kb_memory memory)
{
    const topo_shape *shape = memories->shape;
    switch (memory) {
    case KB_HBM:
        return shape->slice_bytes;
    case KB_TCM:
        return shape->tcm_bytes - shape->tcm_reserved_bytes;
    case KB_SRAM:
        return shape->sram_bytes;
    case KB_VIRTUAL:
        break;
    }
    return 0;
}

static void region_init(mem_region *memory, uint64_t bytes)
{
    mem_allocator_init(&memory->space, 0, bytes, MEM_FIRST_FIT);
}

static void region_fini(mem_region *memory)
{
    kb_vec_fini(&memory->rings);
    mem_contents_fini(&memory->contents);
    mem_allocator_fini(&memory->space);
}

static __attribute__((noinline)) mem_pe_record *make_pe(mem_memories *memories)
{
    uint32_t index = kb_pool_take(&memories->pe_records);
    if (index == 0)
        return NULL;
    mem_pe_record *record = kb_pool_at(&memories->pe_records, index);
    uint64_t tcm = mem_capacity_of(memories, KB_TCM);
    *record = (mem_pe_record){0};
    region_init(&record->hbm, mem_capacity_of(memories, KB_HBM));
    region_init(&record->tcm, tcm);
    mem_allocator_init(&record->ring_space, 0, kb_min(tcm, mem_ranges[MEM_IPCQ].bytes),
                       MEM_FIRST_FIT);
    return record;
}

mem_pe_record *mem_need_pe(mem_memories *memories, kb_pe pe)
{
    mem_pe_record **record = &memories->pes[topo_pe_index(memories->shape, pe)];
    if (KB_UNLIKELY(!*record))
        *record = make_pe(memories);
    return *record;
}

static mem_cube_record *need_cube(mem_memories *memories, kb_pe pe)
{
    mem_cube_record **record = &memories->cubes[topo_cube_index(memories->shape, pe)];
    if (!*record && (*record = kb_alloc_zeroed(1, sizeof **record)))
        region_init(&(*record)->sram, mem_capacity_of(memories, KB_SRAM));
    return *record;
}

mem_region *mem_need_region(mem_memories *memories, kb_pe pe, kb_memory memory)
{
    if (memory == KB_SRAM) {
        mem_cube_record *cube = need_cube(memories, pe);
        return cube ? &cube->sram : NULL;
    }
    mem_pe_record *record = mem_need_pe(memories, pe);
    if (!record)
        return NULL;
    return memory == KB_HBM ? &record->hbm : &record->tcm;
}

mem_region *mem_find_region(const mem_memories *memories, kb_pe pe, kb_memory memory)
{
    if (memory == KB_SRAM) {
        mem_cube_record *cube = memories->cubes[topo_cube_index(memories->shape, pe)];
        return cube ? &cube->sram : NULL;
    }
    mem_pe_record *record = memories->pes[topo_pe_index(memories->shape, pe)];
    if (!record)
        return NULL;
    return memory == KB_HBM ? &record->hbm : &record->tcm;
}

static size_t cube_count(const mem_memories *memories)
{
    return (size_t)memories->shape->sips * memories->shape->cubes;
}

kb_error *mem_memories_create(const topo_machine *machine, uint32_t only_sip,
                              mem_memories **memories)
{
    const topo_shape *shape = topo_machine_shape(machine);
    *memories = NULL;
    if (only_sip != TOPO_NONE && only_sip >= shape->sips)
        return kb_error_new(KB_ERR_INPUT,
                            "no such device: sip %" PRIu32 "; the machine has %" PRIu32
                            " SIP%s, numbered from 0",
                            only_sip, shape->sips, kb_plural(shape->sips));
    mem_memories *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->machine = machine;
    made->shape = shape;
    made->only_sip = only_sip;
    kb_pool_init(&made->pe_records, sizeof(mem_pe_record));
    made->pes = kb_alloc_zeroed(shape->pe_count, sizeof *made->pes);
    made->cubes = kb_alloc_zeroed(cube_count(made), sizeof *made->cubes);
    if (!made->pes || !made->cubes) {
        mem_memories_destroy(made);
        return kb_error_nomem();
    }
    *memories = made;
    return NULL;
}

static void fini_pe(mem_pe_record *record)
{
    if (!record)
        return;
    kb_vec_fini(&record->ring_places);
    mem_allocator_fini(&record->ring_space);
    region_fini(&record->tcm);
    region_fini(&record->hbm);
}

static void destroy_cube(mem_cube_record *record)
{
    if (!record)
        return;
    region_fini(&record->sram);
    free(record);
}

void mem_memories_destroy(mem_memories *memories)
{
    if (!memories)
        return;
    for (size_t i = 0; memories->cubes && i < cube_count(memories); i++)
        destroy_cube(memories->cubes[i]);
    for (size_t i = 0; memories->pes && i < memories->shape->pe_count; i++)
        fini_pe(memories->pes[i]);
    kb_pool_fini(&memories->pe_records);
    free(memories->cubes);
    free(memories->pes);
    free(memories);
}

/* ---- Names ------------------------------------------------------------------------------- */

static const char *memory_name(kb_memory memory)
{
    switch (memory) {
    case KB_HBM:
        return "hbm";
    case KB_TCM:
        return "tcm";
    case KB_SRAM:
        return "sram";
    case KB_VIRTUAL:
        return "virtual";
    }
    return "?";
}

mem_name mem_name_of_pe(kb_pe pe, const char *what)
{
    mem_name n;
    (void)snprintf(n.text, sizeof n.text, "%s.%s", topo_pe_name(pe).text, what);
    return n;
}

mem_name mem_name_of_memory(kb_pe pe, kb_memory memory)
{
    mem_name n;
    const char *what = memory_name(memory);
    if (memory == KB_SRAM)
        (void)snprintf(n.text, sizeof n.text, "%s.%s", topo_cube_name(pe).text, what);
    else if (memory == KB_VIRTUAL)
        (void)snprintf(n.text, sizeof n.text, "%s", what);
    else
        n = mem_name_of_pe(pe, what);
    return n;
}

mem_name mem_name_of_location(const kb_location *location)
{
    mem_name n = mem_name_of_memory(location->pe, location->memory);
    size_t length = strlen(n.text);
    (void)snprintf(n.text + length, sizeof n.text - length, "+0x%" PRIx64, location->offset);
    return n;
}

void mem_location_print(const kb_location *location, kb_text *text)
{
    kb_text_puts(text, mem_name_of_location(location).text);
}

/* ---- Checks ------------------------------------------------------------------------------ */

static kb_error *does_not_exist(const char *what, uint32_t number, uint32_t count, const char *of)
{
    return kb_error_new(KB_ERR_INPUT,
                        "%s%" PRIu32 " does not exist: %s has %" PRIu32 ", "
                        "numbered from 0",
                        what, number, of, count);
}

static inline bool is_location(const mem_memories *memories, kb_pe pe, kb_memory memory)
{
    const topo_shape *shape = memories->shape;
    return (unsigned)memory < KB_VIRTUAL && pe.sip < shape->sips && pe.cube < shape->cubes &&
           (memory == KB_SRAM || pe.pe < shape->pes);
}

/* The error for a location that does not exist. */
static kb_error *no_location(const mem_memories *memories, kb_pe pe, kb_memory memory)
{
    const topo_shape *shape = memories->shape;
    if (memory == KB_VIRTUAL)
        return kb_error_new(KB_ERR_INPUT,
                            "expected a physical memory, found KB_VIRTUAL: translate the "
                            "address first");
    if ((unsigned)memory > KB_VIRTUAL)
        return kb_error_new(KB_ERR_INPUT, "invalid memory %d: expected hbm, tcm or sram",
                            (int)memory);
    if (pe.sip >= shape->sips)
        return does_not_exist("sip", pe.sip, shape->sips, "the machine");
    if (pe.cube >= shape->cubes)
        return does_not_exist("cube", pe.cube, shape->cubes, "a SIP");
    return does_not_exist("pe", pe.pe, shape->pes, "a cube");
}

kb_error *mem_memories_check(const mem_memories *memories, const kb_location *location,
                             uint64_t bytes)
{
    if (KB_UNLIKELY(!is_location(memories, location->pe, location->memory)))
        return no_location(memories, location->pe, location->memory);
    uint64_t capacity = mem_capacity_of(memories, location->memory);
    if (bytes <= capacity && location->offset <= capacity - bytes)
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "out of bounds: %" PRIu64
                        " byte%s at %s; the capacity of the memory is %" PRIu64,
                        bytes, kb_plural(bytes), mem_name_of_location(location).text, capacity);
}

/* Whether memory may be taken there. */
static inline bool may_take(const mem_memories *memories, kb_pe pe, kb_memory memory,
                            uint64_t bytes, uint64_t align)
{
    bool aligned = align != 0 && (align & (align - 1)) == 0;
    bool allowed = memories->only_sip == TOPO_NONE || memories->only_sip == pe.sip;
    return is_location(memories, pe, memory) && bytes > 0 && aligned && allowed;
}

/* Why it may not. */
static kb_error *cannot_take(const mem_memories *memories, kb_pe pe, kb_memory memory,
                             uint64_t bytes, uint64_t align)
{
    if (!is_location(memories, pe, memory))
        return no_location(memories, pe, memory);
    mem_name where = mem_name_of_memory(pe, memory);
    if (bytes == 0)
        return kb_error_new(KB_ERR_INPUT, "invalid size of 0 bytes in %s: expected at least 1",
                            where.text);
    if (align == 0 || (align & (align - 1)) != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid alignment %" PRIu64 " in %s: expected a power of two", align,
                            where.text);
    return kb_error_new(KB_ERR_INPUT, "cannot allocate in %s: the run is limited to sip %" PRIu32,
                        where.text, memories->only_sip);
}

kb_error *mem_check_request(const mem_memories *memories, kb_pe pe, kb_memory memory,
                            uint64_t bytes, uint64_t align)
{
    return may_take(memories, pe, memory, bytes, align)
               ? NULL
               : cannot_take(memories, pe, memory, bytes, align);
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static size_t gap_count(const mem_allocator *space)
{
    return space->free.items ? space->free.count : space->bytes > 0;
}

static kb_error *exhausted(const mem_allocator *space, const char *where, uint64_t bytes,
                           uint64_t align)
{
    char at[48] = "", gaps[80] = "";
    uint64_t largest = mem_allocator_largest(space);
    size_t count = gap_count(space);
    if (bytes <= largest)
        (void)snprintf(at, sizeof at, " aligned to %" PRIu64, align);
    if (count > 1)
        (void)snprintf(gaps, sizeof gaps, " in %zu blocks, the largest %" PRIu64, count, largest);
    return kb_error_new(KB_ERR_FAULT,
                        "out of memory in %s: %" PRIu64 " byte%s requested%s, %" PRIu64 " free%s "
                        "(capacity %" PRIu64 ")",
                        where, bytes, kb_plural(bytes), at, space->free_bytes - space->held, gaps,
                        space->bytes);
}

kb_error *mem_not_taken(mem_taken taken, const mem_allocator *space, mem_name where, uint64_t bytes,
                        uint64_t align)
{
    return taken == MEM_EXHAUSTED ? exhausted(space, where.text, bytes, align) : kb_error_nomem();
}

kb_error *mem_memories_alloc(mem_memories *memories, kb_pe pe, kb_memory memory, uint64_t bytes,
                             uint64_t align, uint64_t *offset)
{
    if (KB_UNLIKELY(!may_take(memories, pe, memory, bytes, align)))
        return cannot_take(memories, pe, memory, bytes, align);
    mem_region *there = mem_need_region(memories, pe, memory);
    if (!there)
        return kb_error_nomem();
    mem_taken taken = mem_allocator_take(&there->space, bytes, align, offset);
    if (KB_LIKELY(taken == MEM_TAKEN)) {
        mem_report_use(memories, pe, memory, there);
        return NULL;
    }
    return mem_not_taken(taken, &there->space, mem_name_of_memory(pe, memory), bytes, align);
}

static void give_found(mem_region *there, const mem_span *block)
{
    if (there->contents.page_count > 0)
        mem_contents_discard(&there->contents, block->start, block->bytes);
    mem_allocator_give_block(&there->space, block);
}

void mem_give_block(mem_region *there, uint64_t start)
{
    const mem_span *block = mem_allocator_find(&there->space, start);
    KB_ASSERT(block && block->start == start);
    give_found(there, block);
}

static kb_error *cannot_free(const kb_location *location, const mem_span *block, bool is_ring)
{
    mem_name where = mem_name_of_location(location);
    if (!block)
        return kb_error_new(KB_ERR_FAULT, "cannot free %s: nothing is allocated there", where.text);
    if (is_ring)
        return kb_error_new(KB_ERR_FAULT,
                            "cannot free %s: it belongs to a receive ring: release the ring "
                            "instead",
                            where.text);
    return kb_error_new(KB_ERR_FAULT,
                        "cannot free %s: it is inside a block of %" PRIu64
                        " bytes that starts at 0x%" PRIx64,
                        where.text, block->bytes, block->start);
}

kb_error *mem_memories_free(mem_memories *memories, kb_pe pe, kb_memory memory, uint64_t offset)
{
    if (KB_UNLIKELY(!is_location(memories, pe, memory)))
        return no_location(memories, pe, memory);
    mem_region *there = mem_find_region(memories, pe, memory);
    const mem_span *block = there ? mem_allocator_find(&there->space, offset) : NULL;
    bool is_ring =
        block && block->start <= there->rings_up_to && mem_find_pair(&there->rings, block->start);
    if (!block || is_ring || block->start != offset)
        return cannot_free(&(kb_location){memory, pe, offset}, block, is_ring);
    give_found(there, block);
    mem_report_use(memories, pe, memory, there);
    return NULL;
}

void mem_memories_watch_tcm(mem_memories *memories, mem_tcm_fn *fn, void *self)
{
    memories->on_tcm = fn;
    memories->on_tcm_self = self;
}

mem_allocator *mem_memories_tcm(mem_memories *memories, kb_pe pe)
{
    mem_pe_record *record = mem_need_pe(memories, pe);
    return record ? &record->tcm.space : NULL;
}

void mem_memories_report_tcm(const mem_memories *memories, kb_pe pe)
{
    const mem_region *there = mem_find_region(memories, pe, KB_TCM);
    if (there)
        mem_report_use(memories, pe, KB_TCM, there);
}

bool mem_memories_is_tcm_watched(const mem_memories *memories)
{
    return memories->on_tcm != NULL;
}

kb_error *mem_memories_tcm_exhausted(const mem_memories *memories, kb_pe pe, uint64_t bytes)
{
    const mem_region *there = mem_find_region(memories, pe, KB_TCM);
    KB_ASSERT(there);
    return kb_error_new(KB_ERR_FAULT,
                        "out of memory in %s: %" PRIu64 " byte%s requested, %" PRIu64
                        " free (capacity %" PRIu64 ")",
                        mem_name_of_memory(pe, KB_TCM).text, bytes, kb_plural(bytes),
                        there->space.free_bytes - there->space.held, there->space.bytes);
}

mem_stats mem_memories_get_stats(const mem_memories *memories, kb_pe pe, kb_memory memory)
{
    uint64_t capacity = mem_capacity_of(memories, memory);
    const mem_region *there = mem_find_region(memories, pe, memory);
    if (!there)
        return (mem_stats){.capacity = capacity, .free = capacity, .largest = capacity};
    return (mem_stats){
        .capacity = capacity,
        .free = there->space.free_bytes - there->space.held,
        .largest = mem_allocator_largest(&there->space),
        .blocks = there->space.used.count,
    };
}

/* ---- Nodes ------------------------------------------------------------------------------- */

uint32_t mem_memories_node(const mem_memories *memories, const kb_location *location)
{
    kb_pe pe = location->pe;
    switch (location->memory) {
    case KB_HBM:
        return topo_node_at(memories->machine, TOPO_HBM_CTRL, pe.sip, pe.cube, pe.pe);
    case KB_TCM:
        return topo_node_at(memories->machine, TOPO_PE_DMA, pe.sip, pe.cube, pe.pe);
    case KB_SRAM:
        return topo_node_at(memories->machine, TOPO_SRAM, pe.sip, pe.cube, 0);
    case KB_VIRTUAL:
        break;
    }
    return TOPO_NONE;
}

/* ---- Contents ---------------------------------------------------------------------------- */

kb_error *mem_memories_write(mem_memories *memories, const kb_location *location, const void *data,
                             uint64_t bytes)
{
    mem_region *there = mem_need_region(memories, location->pe, location->memory);
    if (!there)
        return kb_error_nomem();
    return mem_contents_write(&there->contents, location->offset, data, bytes);
}

void mem_memories_read(const mem_memories *memories, const kb_location *location, void *into,
                       uint64_t bytes)
{
    static const mem_contents nothing;
    const mem_region *there = mem_find_region(memories, location->pe, location->memory);
    mem_contents_read(there ? &there->contents : &nothing, location->offset, into, bytes);
}

kb_error *mem_memories_fill(mem_memories *memories, const kb_location *location, uint64_t bytes,
                            const void *pattern, size_t size)
{
    mem_region *there = mem_need_region(memories, location->pe, location->memory);
    if (!there)
        return kb_error_nomem();
    return mem_contents_fill(&there->contents, location->offset, bytes, pattern, size);
}

kb_error *mem_memories_copy(mem_memories *memories, const kb_location *to, const kb_location *from,
                            uint64_t bytes)
{
    static const mem_contents nothing;
    mem_region *target = mem_need_region(memories, to->pe, to->memory);
    if (!target)
        return kb_error_nomem();
    const mem_region *source = mem_find_region(memories, from->pe, from->memory);
    return mem_contents_copy(&target->contents, to->offset, source ? &source->contents : &nothing,
                             from->offset, bytes);
}

size_t mem_memories_content_bytes(const mem_memories *memories)
{
    size_t bytes = 0;
    for (size_t i = 0; i < memories->shape->pe_count; i++)
        if (memories->pes[i])
            bytes += mem_contents_bytes(&memories->pes[i]->hbm.contents) +
                     mem_contents_bytes(&memories->pes[i]->tcm.contents);
    for (size_t i = 0; i < cube_count(memories); i++)
        if (memories->cubes[i])
            bytes += mem_contents_bytes(&memories->cubes[i]->sram.contents);
    return bytes;
}
