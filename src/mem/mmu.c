/*
 * mmu.c: the MMUs of the PEs of one SIP, as one table of mappings and a set of PEs for each.
 *
 * Mappings never overlap, so that one list sorted by address serves both translation and the search
 * for the nearest tensor. Not modelled: page tables, and how many mappings an MMU can hold.
 */
#include "mmu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "nearest.h"
#include "rect.h"

typedef struct mapping {
    mem_extent *extents;
    size_t extent_count;
    uint64_t first_bytes; /* of the first extent */
    kb_location *copies;
    uint64_t *installed; /* a bit for each PE, cube by cube */
    uint32_t installed_count;
    char *name; /* NULL: it is no tensor */
    bool has_dtype, is_index;
    kb_dtype dtype;
} mapping;

/* Where a mapping is, apart from it: a search looks at these alone. */
typedef struct range {
    uint64_t va, end;
    mem_mapping_id id;
} range;

/* What an id names. */
typedef struct slot {
    mapping *mapping; /* NULL: the id is free */
    uint64_t va;
    mem_mapping_id next_free;
} slot;

struct mem_mmu {
    uint32_t sip, cubes, pes;
    KB_VEC(slot) slots; /* id - 1 is the index */
    mem_mapping_id free_head;
    KB_VEC(range) ranges; /* by va */
    uint64_t changes;     /* so far */
};

kb_error *mem_mmu_create(uint32_t sip, uint32_t cubes, uint32_t pes, mem_mmu **mmu)
{
    KB_ASSERT((uint64_t)cubes * pes <= UINT32_MAX); /* PEs are counted in 32 bits */
    *mmu = kb_alloc_zeroed(1, sizeof **mmu);
    if (!*mmu)
        return kb_error_nomem();
    (*mmu)->sip = sip;
    (*mmu)->cubes = cubes;
    (*mmu)->pes = pes;
    return NULL;
}

static void mapping_destroy(mapping *map)
{
    if (!map)
        return;
    free(map->installed);
    free(map->copies);
    free(map->extents);
    free(map->name);
    free(map);
}

void mem_mmu_destroy(mem_mmu *mmu)
{
    if (!mmu)
        return;
    for (size_t i = 0; i < mmu->slots.count; i++)
        mapping_destroy(mmu->slots.items[i].mapping);
    kb_vec_fini(&mmu->slots);
    kb_vec_fini(&mmu->ranges);
    free(mmu);
}

static const slot *slot_of(const mem_mmu *mmu, mem_mapping_id id)
{
    KB_ASSERT(id != 0 && id <= mmu->slots.count && mmu->slots.items[id - 1].mapping);
    return &mmu->slots.items[id - 1];
}

static mapping *mapping_of(const mem_mmu *mmu, mem_mapping_id id)
{
    return slot_of(mmu, id)->mapping;
}

/* How many mappings start at the address or before it. */
static size_t ranges_up_to(const mem_mmu *mmu, uint64_t va)
{
    size_t low = 0, high = mmu->ranges.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mmu->ranges.items[middle].va <= va)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The mapping that has the address, or NULL. */
static const range *range_with(const mem_mmu *mmu, uint64_t va)
{
    size_t after = ranges_up_to(mmu, va);
    if (after == 0 || va >= mmu->ranges.items[after - 1].end)
        return NULL;
    return &mmu->ranges.items[after - 1];
}

/* ---- Adding and dropping ----------------------------------------------------------------- */

void mem_mapped_print(const mem_mapped *mapped, kb_text *text)
{
    if (mapped->name)
        kb_text_printf(text, "tensor '%s' (", mapped->name);
    else
        kb_text_puts(text, "a mapping without a tensor (");
    if (mapped->has_dtype)
        kb_text_printf(text, "%s, ", kb_dtype_name(mapped->dtype));
    kb_text_printf(text, "0x%" PRIx64 " to 0x%" PRIx64 ")", mapped->va, mapped->end);
}

static mem_mapped describe(const mem_mmu *mmu, const range *at)
{
    const mapping *map = mapping_of(mmu, at->id);
    return (mem_mapped){.name = map->name,
                        .va = at->va,
                        .end = at->end,
                        .has_dtype = map->has_dtype,
                        .dtype = map->dtype,
                        .is_index = map->is_index};
}

static void print_range(const mem_mmu *mmu, const range *at, kb_text *text)
{
    mem_mapped mapped = describe(mmu, at);
    mem_mapped_print(&mapped, text);
}

/* Takes the text over. */
static kb_error *error_of(kb_code code, kb_text *text)
{
    char *message = kb_text_take(text);
    kb_error *err = message ? kb_error_new(code, "%s", message) : kb_error_nomem();
    free(message);
    return err;
}

static bool before(kb_pe a, kb_pe b)
{
    if (a.sip != b.sip)
        return a.sip < b.sip;
    return a.cube != b.cube ? a.cube < b.cube : a.pe < b.pe;
}

static bool copies_fit(const mem_mapping_spec *spec, const mem_extent *extent)
{
    if (extent->copy_count == 0 || extent->first_copy > spec->copy_count ||
        extent->copy_count > spec->copy_count - extent->first_copy)
        return false;
    const kb_location *copies = spec->copies + extent->first_copy;
    for (size_t i = 0; i < extent->copy_count; i++)
        if (copies[i].memory == KB_VIRTUAL || (i > 0 && before(copies[i].pe, copies[i - 1].pe)))
            return false;
    return true;
}

/* Extents and copies come from the project's own code: wrong ones are a bug. */
static kb_error *check_extents(const mem_mapping_spec *spec)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < spec->extent_count; i++) {
        const mem_extent *extent = &spec->extents[i];
        if (extent->bytes == 0 || extent->offset < covered || extent->offset > spec->bytes ||
            extent->bytes > spec->bytes - extent->offset || !copies_fit(spec, extent))
            return kb_error_new(KB_ERR_BUG, "extent %zu of the mapping at 0x%" PRIx64 " is wrong",
                                i, spec->va);
        covered = extent->offset + extent->bytes;
    }
    return NULL;
}

/*
 * Where in the list the mapping belongs. An empty one has its first address for itself too: no
 * other may start there or reach over it, so that each is found by where it starts.
 */
static kb_error *find_gap(const mem_mmu *mmu, const mem_mapping_spec *spec, size_t *at)
{
    *at = ranges_up_to(mmu, spec->va);
    uint64_t end;
    if (__builtin_add_overflow(spec->va, spec->bytes, &end))
        return kb_error_new(KB_ERR_INPUT,
                            "sip%" PRIu32 ": 0x%" PRIx64 " bytes at the virtual address 0x%" PRIx64
                            " exceed the 64-bit address space",
                            mmu->sip, spec->bytes, spec->va);
    const range *other = NULL;
    if (*at > 0) {
        const range *below = &mmu->ranges.items[*at - 1];
        if (below->va == spec->va || below->end > spec->va)
            other = below;
    }
    if (!other && *at < mmu->ranges.count && mmu->ranges.items[*at].va < end)
        other = &mmu->ranges.items[*at];
    if (!other)
        return NULL;
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "sip%" PRIu32 ": ", mmu->sip);
    mem_mapped_print(&(mem_mapped){.name = spec->name,
                                   .va = spec->va,
                                   .end = end,
                                   .has_dtype = spec->has_dtype,
                                   .dtype = spec->dtype},
                     &text);
    kb_text_puts(&text, " cannot be mapped: it overlaps ");
    print_range(mmu, other, &text);
    kb_text_puts(&text, ", which is still mapped");
    return error_of(KB_ERR_INPUT, &text);
}

static void *copy_array(const void *items, size_t count, size_t size)
{
    void *copy = kb_alloc_array(count, size);
    if (copy && count > 0)
        memcpy(copy, items, count * size);
    return copy;
}

static mapping *mapping_create(const mem_mmu *mmu, const mem_mapping_spec *spec)
{
    mapping *map = kb_alloc_zeroed(1, sizeof *map);
    if (!map)
        return NULL;
    size_t pe_count = (size_t)mmu->cubes * mmu->pes;
    map->extent_count = spec->extent_count;
    map->first_bytes = spec->extent_count > 0 ? spec->extents[0].bytes : 0;
    map->has_dtype = spec->has_dtype;
    map->dtype = spec->dtype;
    map->is_index = spec->is_index;
    map->name = spec->name ? copy_array(spec->name, strlen(spec->name) + 1, 1) : NULL;
    map->extents = copy_array(spec->extents, spec->extent_count, sizeof *map->extents);
    map->copies = copy_array(spec->copies, spec->copy_count, sizeof *map->copies);
    map->installed = kb_alloc_zeroed((pe_count + 63) / 64, sizeof *map->installed);
    if ((spec->name && !map->name) || !map->extents || !map->copies || !map->installed) {
        mapping_destroy(map);
        return NULL;
    }
    return map;
}

/* The id given back last, or a new one; room for that has been made. */
static mem_mapping_id take_id(mem_mmu *mmu, slot content)
{
    mem_mapping_id id = mmu->free_head;
    if (id == 0)
        id = (mem_mapping_id)++mmu->slots.count;
    else
        mmu->free_head = mmu->slots.items[id - 1].next_free;
    mmu->slots.items[id - 1] = content;
    return id;
}

kb_error *mem_mmu_add(mem_mmu *mmu, const mem_mapping_spec *spec, mem_mapping_id *id)
{
    mmu->changes++;
    *id = 0;
    KB_TRY(check_extents(spec));
    size_t at;
    KB_TRY(find_gap(mmu, spec, &at));
    if (mmu->ranges.count == UINT32_MAX || !kb_vec_reserve(&mmu->slots, 1) ||
        !kb_vec_reserve(&mmu->ranges, 1))
        return kb_error_nomem();
    mapping *map = mapping_create(mmu, spec);
    if (!map)
        return kb_error_nomem();

    *id = take_id(mmu, (slot){.mapping = map, .va = spec->va});
    range *here = mmu->ranges.items + at;
    memmove(here + 1, here, (mmu->ranges.count - at) * sizeof *here);
    *here = (range){.va = spec->va, .end = spec->va + spec->bytes, .id = *id};
    mmu->ranges.count++;
    return NULL;
}

void mem_mmu_drop(mem_mmu *mmu, mem_mapping_id id)
{
    mmu->changes++;
    size_t at = ranges_up_to(mmu, slot_of(mmu, id)->va) - 1;
    range *here = mmu->ranges.items + at;
    KB_ASSERT(here->id == id);
    memmove(here, here + 1, (--mmu->ranges.count - at) * sizeof *here);
    mapping_destroy(mapping_of(mmu, id));
    mmu->slots.items[id - 1] = (slot){.next_free = mmu->free_head};
    mmu->free_head = id;
}

mem_mapping_id mem_mmu_find(const mem_mmu *mmu, uint64_t va)
{
    size_t after = ranges_up_to(mmu, va);
    if (after == 0 || mmu->ranges.items[after - 1].va != va)
        return 0;
    return mmu->ranges.items[after - 1].id;
}

/* ---- Installing -------------------------------------------------------------------------- */

/* The word that has the PE's bit, and the bit. */
static uint64_t *bit_of(const mem_mmu *mmu, const mapping *map, uint32_t cube, uint32_t pe,
                        uint64_t *bit)
{
    KB_ASSERT(cube < mmu->cubes && pe < mmu->pes);
    size_t index = (size_t)cube * mmu->pes + pe;
    *bit = (uint64_t)1 << index % 64;
    return &map->installed[index / 64];
}

static bool is_installed(const mem_mmu *mmu, const mapping *map, uint32_t cube, uint32_t pe)
{
    uint64_t bit;
    return *bit_of(mmu, map, cube, pe, &bit) & bit;
}

void mem_mmu_install(mem_mmu *mmu, mem_mapping_id id, uint32_t cube, uint32_t pe)
{
    mmu->changes++;
    mapping *map = mapping_of(mmu, id);
    uint64_t bit, *word = bit_of(mmu, map, cube, pe, &bit);
    map->installed_count += !(*word & bit);
    *word |= bit;
}

void mem_mmu_uninstall(mem_mmu *mmu, mem_mapping_id id, uint32_t cube, uint32_t pe)
{
    mmu->changes++;
    mapping *map = mapping_of(mmu, id);
    uint64_t bit, *word = bit_of(mmu, map, cube, pe, &bit);
    map->installed_count -= (*word & bit) != 0;
    *word &= ~bit;
}

uint32_t mem_mmu_installed(const mem_mmu *mmu, mem_mapping_id id)
{
    return mapping_of(mmu, id)->installed_count;
}

/* ---- Translating ------------------------------------------------------------------------- */

/*
 * The extent that has the offset, or NULL. Looked at first is the one that has it if all are like
 * the first one: mostly they are, up to the last.
 */
static const mem_extent *extent_at(const mapping *map, uint64_t offset)
{
    size_t low = 0, high = map->extent_count, middle = 0;
    if (high > 0 && offset / map->first_bytes < high)
        middle = (size_t)(offset / map->first_bytes);
    for (; low < high; middle = low + (high - low) / 2) {
        const mem_extent *extent = &map->extents[middle];
        if (offset < extent->offset)
            high = middle;
        else if (offset - extent->offset >= extent->bytes)
            low = middle + 1;
        else
            return extent;
    }
    return NULL;
}

static kb_pe pe_of_copy(const void *self, size_t index)
{
    const kb_location *copies = self;
    return copies[index].pe;
}

static const kb_location *choose_copy(const mem_mmu *mmu, const mapping *map,
                                      const mem_extent *extent, uint32_t cube, uint32_t pe)
{
    const kb_location *copies = map->copies + extent->first_copy;
    if (extent->copy_count == 1)
        return copies;
    const mem_copies all = {pe_of_copy, copies, extent->copy_count};
    return &copies[mem_nearest_copy(&all, (kb_pe){mmu->sip, cube, pe}, mmu->pes)];
}

bool mem_mmu_translate(const mem_mmu *mmu, uint32_t cube, uint32_t pe, uint64_t va,
                       kb_location *location, uint64_t *bytes)
{
    const range *here = range_with(mmu, va);
    if (!here)
        return false;
    const mapping *map = mapping_of(mmu, here->id);
    if (!is_installed(mmu, map, cube, pe))
        return false;
    uint64_t offset = va - here->va;
    const mem_extent *extent = extent_at(map, offset);
    if (!extent)
        return false;
    *location = *choose_copy(mmu, map, extent, cube, pe);
    location->offset += offset - extent->offset;
    *bytes = extent->bytes - (offset - extent->offset);
    return true;
}

uint64_t mem_mmu_changes(const mem_mmu *mmu)
{
    return mmu->changes;
}

bool mem_mmu_get_mapped(const mem_mmu *mmu, uint64_t va, mem_mapped *mapped)
{
    const range *here = range_with(mmu, va);
    if (!here)
        return false;
    *mapped = describe(mmu, here);
    return true;
}

static bool extent_has(const mapping *map, const mem_extent *extent, const kb_location *location,
                       uint64_t *offset)
{
    for (size_t i = 0; i < extent->copy_count; i++) {
        const kb_location *copy = &map->copies[extent->first_copy + i];
        if (mem_same_memory(copy, location) && location->offset >= copy->offset &&
            location->offset - copy->offset < extent->bytes) {
            *offset = extent->offset + (location->offset - copy->offset);
            return true;
        }
    }
    return false;
}

static bool mapping_has(const mapping *map, const kb_location *location, uint64_t *offset)
{
    for (size_t i = 0; i < map->extent_count; i++)
        if (extent_has(map, &map->extents[i], location, offset))
            return true;
    return false;
}

bool mem_mmu_find_owner(const mem_mmu *mmu, const kb_location *location, mem_mapped *owner,
                        uint64_t *va)
{
    bool found = false;
    for (size_t i = 0; i < mmu->ranges.count && !(found && owner->name); i++) {
        const range *here = &mmu->ranges.items[i];
        uint64_t offset;
        if (!mapping_has(mapping_of(mmu, here->id), location, &offset))
            continue;
        *owner = describe(mmu, here);
        *va = here->va + offset;
        found = true;
    }
    return found;
}

/* ---- Faults ------------------------------------------------------------------------------ */

/* The mapping whose end or start is nearest to an address in none; of equals the lower one. */
static const range *nearest_range(const mem_mmu *mmu, uint64_t va)
{
    size_t after = ranges_up_to(mmu, va);
    const range *items = mmu->ranges.items;
    if (after == 0)
        return &items[0];
    if (after == mmu->ranges.count || va - items[after - 1].end <= items[after].va - va)
        return &items[after - 1];
    return &items[after];
}

static void say_nearest(const mem_mmu *mmu, uint64_t va, kb_text *text)
{
    const range *near = nearest_range(mmu, va);
    if (va == near->end)
        kb_text_puts(text, "it is just past the end of ");
    else if (va > near->end)
        kb_text_printf(text, "it is 0x%" PRIx64 " bytes past the end of ", va - near->end);
    else
        kb_text_printf(text, "it is 0x%" PRIx64 " bytes before the start of ", near->va - va);
    print_range(mmu, near, text);
}

kb_error *mem_mmu_fault(const mem_mmu *mmu, const char *who, uint32_t cube, uint32_t pe,
                        uint64_t va)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "%s on %s: address 0x%" PRIx64 " is not mapped: ", who,
                   topo_pe_name((kb_pe){mmu->sip, cube, pe}).text, va);
    const range *here = range_with(mmu, va);
    if (here) {
        const mapping *map = mapping_of(mmu, here->id);
        bool installed = is_installed(mmu, map, cube, pe);
        kb_text_puts(&text, "it lies in ");
        print_range(mmu, here, &text);
        kb_text_puts(&text, installed ? ", which has no memory at this address"
                                      : ", which is not mapped in this PE (yet, or no longer)");
    } else if (mmu->ranges.count > 0) {
        say_nearest(mmu, va, &text);
    } else {
        kb_text_puts(&text, "no tensor is mapped");
    }
    return error_of(KB_ERR_FAULT, &text);
}
