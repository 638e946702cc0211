/*
 * receive_rings.c: receive rings, and physical addresses of what is in a machine.
 *
 * A ring in TCM is a block of the TCM and another of the same size in the ring region, which has no
 * bytes of its own: it is where the ring's address comes from. Each byte has one physical address:
 * those of rings in TCM are in the ring region alone.
 */
#include "memories_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Lists of rings ---------------------------------------------------------------------- */

/* Where the key is, or would go. */
static size_t place_of(const mem_pair_list *list, uint64_t key)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->items[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

mem_pair *mem_find_pair(const mem_pair_list *list, uint64_t key)
{
    size_t at = place_of(list, key);
    return at < list->count && list->items[at].key == key ? &list->items[at] : NULL;
}

/* There must be room. */
static void insert_pair(mem_pair_list *list, uint64_t key, uint64_t value)
{
    KB_ASSERT(list->count < list->capacity);
    size_t at = place_of(list, key);
    memmove(&list->items[at + 1], &list->items[at], (list->count - at) * sizeof *list->items);
    list->items[at] = (mem_pair){key, value};
    list->count++;
}

static void remove_pair(mem_pair_list *list, uint64_t key)
{
    size_t at = place_of(list, key);
    list->count--;
    memmove(&list->items[at], &list->items[at + 1], (list->count - at) * sizeof *list->items);
}

/* ---- Addresses --------------------------------------------------------------------------- */

static kb_error *check_addresses(const mem_memories *memories)
{
    const topo_shape *shape = memories->shape;
    if (shape->sips > MEM_PA_SIPS || shape->cubes > MEM_PA_CUBES || shape->pes > MEM_PA_PES)
        return kb_error_new(
            KB_ERR_INPUT,
            "the machine is too large for physical addresses: it has %" PRIu32 " SIPs of %" PRIu32
            " cubes of %" PRIu32 " PEs, physical addresses name %d SIPs of %d cubes of %d PEs",
            shape->sips, shape->cubes, shape->pes, MEM_PA_SIPS, MEM_PA_CUBES, MEM_PA_PES);
    bool hbm = shape->hbm_bytes > MEM_PA_HBM_BYTES;
    if (hbm || shape->sram_bytes > MEM_PA_UNIT_BYTES)
        return kb_error_new(KB_ERR_INPUT,
                            "the machine is too large for physical addresses: a cube has %" PRIu64
                            " bytes of %s, physical addresses reach %" PRIu64,
                            hbm ? shape->hbm_bytes : shape->sram_bytes, hbm ? "HBM" : "SRAM",
                            hbm ? MEM_PA_HBM_BYTES : MEM_PA_UNIT_BYTES);
    return NULL;
}

static mem_name name_of_address(const mem_pa *pa)
{
    mem_name n;
    kb_text text = KB_TEXT_INIT;
    mem_pa_print(pa, &text);
    (void)snprintf(n.text, sizeof n.text, "%s", kb_text_peek(&text));
    kb_text_fini(&text);
    return n;
}

/* The start of the ring that the offset in a PE's TCM is in, or NULL. */
static const mem_pair *find_ring(const mem_memories *memories, kb_pe pe, uint64_t offset)
{
    const mem_region *tcm = mem_find_region(memories, pe, KB_TCM);
    const mem_span *block = tcm ? mem_allocator_find(&tcm->space, offset) : NULL;
    return block ? mem_find_pair(&tcm->rings, block->start) : NULL;
}

/* The fields that the location's address has, or would have if the format were wide enough. The
 * location must be inside its memory. */
static mem_pa to_parts(const mem_memories *memories, const kb_location *location)
{
    kb_pe pe = location->pe;
    if (location->memory == KB_SRAM)
        return mem_pa_sram(pe.sip, pe.cube, location->offset);
    if (location->memory == KB_HBM)
        return mem_pa_hbm(pe.sip, pe.cube, pe.pe * memories->shape->slice_bytes + location->offset);
    const mem_pair *ring = find_ring(memories, pe, location->offset);
    if (ring)
        return mem_pa_of_pe(pe.sip, pe.cube, pe.pe, MEM_IPCQ,
                            ring->value + (location->offset - ring->key));
    return mem_pa_tcm(pe.sip, pe.cube, pe.pe, location->offset);
}

kb_error *mem_location_to_pa(const mem_memories *memories, const kb_location *location,
                             uint64_t *pa)
{
    KB_TRY(check_addresses(memories));
    KB_TRY(mem_memories_check(memories, location, 1));
    mem_pa parts = to_parts(memories, location);
    return mem_pa_encode(&parts, pa);
}

void mem_address_print(const mem_memories *memories, const kb_location *location, kb_text *text)
{
    kb_error *err = mem_memories_check(memories, location, 1);
    if (err) {
        kb_error_free(err);
        mem_location_print(location, text);
        return;
    }
    mem_pa parts = to_parts(memories, location);
    uint64_t pa;
    err = mem_location_to_pa(memories, location, &pa);
    if (!err)
        kb_text_printf(text, "0x%" PRIx64 " (", pa);
    mem_pa_print(&parts, text);
    if (!err)
        kb_text_puts(text, ")");
    kb_error_free(err);
}

/* The location of what is in the ring region. */
static kb_error *find_in_ring(const mem_memories *memories, const mem_pa *parts,
                              kb_location *location)
{
    const mem_pe_record *record = memories->pes[topo_pe_index(memories->shape, location->pe)];
    const mem_span *block = record ? mem_allocator_find(&record->ring_space, parts->offset) : NULL;
    if (!block)
        return kb_error_new(KB_ERR_FAULT, "no receive ring is at %s", name_of_address(parts).text);
    uint64_t start = mem_find_pair(&record->ring_places, block->start)->value;
    location->offset = start + (parts->offset - block->start);
    return NULL;
}

/* What the parts name, if the machine has it. False if that is no memory. */
static bool to_location(const mem_memories *memories, const mem_pa *parts, kb_location *location)
{
    uint64_t slice = memories->shape->slice_bytes;
    *location = (kb_location){.pe = {.sip = parts->sip, .cube = parts->cube, .pe = parts->pe},
                              .offset = parts->offset};
    switch (parts->unit) {
    case MEM_UNIT_HBM:
        location->memory = KB_HBM;
        if (slice > 0 && parts->offset / slice < MEM_PA_PES)
            location->pe.pe = (uint32_t)(parts->offset / slice);
        location->offset -= location->pe.pe * slice;
        return true;
    case MEM_UNIT_SRAM:
        location->memory = KB_SRAM;
        return true;
    case MEM_UNIT_PE:
        location->memory = KB_TCM;
        return parts->component == MEM_TCM || parts->component == MEM_IPCQ;
    case MEM_UNIT_M_CPU:
        break;
    }
    return false;
}

static bool is_inside(const mem_memories *memories, const mem_pa *parts,
                      const kb_location *location)
{
    const topo_shape *shape = memories->shape;
    return parts->rack == 0 && topo_has_pe(shape, location->pe) &&
           location->offset < mem_capacity_of(memories, location->memory);
}

kb_error *mem_location_from_pa(const mem_memories *memories, uint64_t pa, kb_location *location)
{
    const topo_shape *shape = memories->shape;
    mem_pa parts;
    kb_location found;
    KB_TRY(check_addresses(memories));
    KB_TRY(mem_pa_decode(pa, &parts));
    if (!to_location(memories, &parts, &found))
        return kb_error_new(KB_ERR_FAULT, "0x%" PRIx64 " is no address of a memory, it is %s", pa,
                            name_of_address(&parts).text);
    if (!is_inside(memories, &parts, &found))
        return kb_error_new(KB_ERR_FAULT,
                            "%s is not in the machine: it has %" PRIu32 " SIPs of %" PRIu32
                            " cubes of %" PRIu32 " PEs, with %" PRIu64 " bytes of HBM and %" PRIu64
                            " of TCM a PE and %" PRIu64 " of SRAM a cube",
                            name_of_address(&parts).text, shape->sips, shape->cubes, shape->pes,
                            mem_capacity_of(memories, KB_HBM), mem_capacity_of(memories, KB_TCM),
                            mem_capacity_of(memories, KB_SRAM));
    if (parts.unit == MEM_UNIT_PE && parts.component == MEM_IPCQ)
        KB_TRY(find_in_ring(memories, &parts, &found));
    else if (found.memory == KB_TCM && find_ring(memories, found.pe, found.offset))
        return kb_error_new(KB_ERR_FAULT,
                            "%s belongs to a receive ring, which has an address in ipcq",
                            name_of_address(&parts).text);
    *location = found;
    return NULL;
}

/* ---- Rings ------------------------------------------------------------------------------- */

static kb_error *reserve(mem_memories *memories, kb_pe pe, kb_memory memory, uint64_t bytes,
                         uint64_t align, uint64_t *start)
{
    mem_region *there = mem_need_region(memories, pe, memory);
    if (!there || !kb_vec_reserve(&there->rings, 1))
        return kb_error_nomem();
    mem_taken taken = mem_allocator_take(&there->space, bytes, align, start);
    if (taken != MEM_TAKEN)
        return mem_not_taken(taken, &there->space, mem_name_of_memory(pe, memory), bytes, align);
    insert_pair(&there->rings, *start, 0);
    if (*start > there->rings_up_to)
        there->rings_up_to = *start;
    mem_report_use(memories, pe, memory, there);
    return NULL;
}

/* In the TCM and in the ring region, or in neither. */
static kb_error *reserve_tcm(mem_memories *memories, kb_pe pe, uint64_t bytes, uint64_t align,
                             uint64_t *start)
{
    mem_pe_record *record = mem_need_pe(memories, pe);
    if (!record || !kb_vec_reserve(&record->ring_places, 1))
        return kb_error_nomem();
    KB_TRY(reserve(memories, pe, KB_TCM, bytes, align, start));
    uint64_t address;
    mem_taken taken = mem_allocator_take(&record->ring_space, bytes, align, &address);
    if (taken != MEM_TAKEN) {
        remove_pair(&record->tcm.rings, *start);
        mem_give_block(&record->tcm, *start);
        mem_report_use(memories, pe, KB_TCM, &record->tcm);
        return mem_not_taken(taken, &record->ring_space, mem_name_of_pe(pe, "ipcq"), bytes, align);
    }
    mem_find_pair(&record->tcm.rings, *start)->value = address;
    insert_pair(&record->ring_places, address, *start);
    return NULL;
}

static void release(mem_memories *memories, const kb_location *ring)
{
    mem_region *there = mem_find_region(memories, ring->pe, ring->memory);
    if (ring->memory == KB_TCM) {
        mem_pe_record *record = memories->pes[topo_pe_index(memories->shape, ring->pe)];
        uint64_t address = mem_find_pair(&there->rings, ring->offset)->value;
        bool given = mem_allocator_give(&record->ring_space, address);
        KB_ASSERT(given);
        remove_pair(&record->ring_places, address);
    }
    remove_pair(&there->rings, ring->offset);
    mem_give_block(there, ring->offset);
    mem_report_use(memories, ring->pe, ring->memory, there);
}

kb_error *mem_memories_reserve_ring(mem_memories *memories, kb_pe pe, kb_memory memory,
                                    uint64_t bytes, uint64_t align, kb_location *ring)
{
    KB_TRY(mem_check_request(memories, pe, memory, bytes, align));
    kb_location made = {.memory = memory, .pe = pe};
    if (memory == KB_SRAM)
        made.pe.pe = 0;
    if (memory == KB_TCM)
        KB_TRY(reserve_tcm(memories, pe, bytes, align, &made.offset));
    else
        KB_TRY(reserve(memories, pe, memory, bytes, align, &made.offset));
    *ring = made;
    return NULL;
}

kb_error *mem_memories_release_ring(mem_memories *memories, const kb_location *ring)
{
    KB_TRY(mem_memories_check(memories, ring, 1));
    const mem_region *there = mem_find_region(memories, ring->pe, ring->memory);
    if (!there || !mem_find_pair(&there->rings, ring->offset))
        return kb_error_new(KB_ERR_FAULT, "cannot release %s: no receive ring starts there",
                            mem_name_of_location(ring).text);
    release(memories, ring);
    return NULL;
}
