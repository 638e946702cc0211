/*
 * test_mmu_model.c: random use of the MMUs, compared with a model that keeps mappings as they were
 * given and looks through all of them each time.
 *
 * Checks M6.
 */
#include "mmu_check.h"
#include "support/seed.h"

enum { SPACE = 400, MOST = 24, MAX_EXTENTS = 6, MAX_COPIES = 8, MAX_PES = 160 };

/* Of the model: as given, and looked through from the start. */
typedef struct model_mapping {
    mem_mapping_id id; /* 0: not there */
    char name[16];
    uint64_t va, bytes;
    mem_extent extents[MAX_EXTENTS];
    size_t extent_count;
    kb_location copies[MAX_EXTENTS * MAX_COPIES];
    size_t copy_count;
    bool installed[MAX_PES];
} model_mapping;

typedef struct model {
    uint32_t cubes, pes;
    uint64_t base;
    model_mapping mappings[MOST];
} model;

static uint64_t pick(kb_rng *rng, uint64_t low, uint64_t high)
{
    return low + kb_rng_below(rng, high - low + 1);
}

/* Copies at distinct PEs, in order. */
static size_t random_copies(kb_rng *rng, const model *world, kb_location *copies)
{
    size_t count = 0, most = pick(rng, 1, MAX_COPIES);
    uint64_t total = (uint64_t)world->cubes * world->pes, at = kb_rng_below(rng, total);
    do {
        kb_location copy = hbm((uint32_t)(at / world->pes), (uint32_t)(at % world->pes),
                               kb_rng_below(rng, 1 << 20));
        copy.memory = kb_rng_below(rng, 2) ? KB_HBM : KB_TCM;
        copies[count++] = copy;
        at += pick(rng, 1, kb_rng_below(rng, 2) ? 2 : total);
    } while (at < total && count < most);
    return count;
}

static void random_mapping(kb_rng *rng, const model *world, model_mapping *fresh)
{
    memset(fresh, 0, sizeof *fresh);
    snprintf(fresh->name, sizeof fresh->name, "t%u", (unsigned)kb_rng_below(rng, 1000));
    fresh->bytes = kb_rng_below(rng, 40);
    fresh->va = world->base + kb_rng_below(rng, SPACE - fresh->bytes);
    for (uint64_t at = kb_rng_below(rng, 3); fresh->extent_count < MAX_EXTENTS;) {
        uint64_t bytes = pick(rng, 1, 12);
        if (at >= fresh->bytes || bytes > fresh->bytes - at)
            break;
        size_t copies = random_copies(rng, world, fresh->copies + fresh->copy_count);
        fresh->extents[fresh->extent_count++] = (mem_extent){at, bytes, fresh->copy_count, copies};
        fresh->copy_count += copies;
        at += bytes + (kb_rng_below(rng, 4) == 0 ? kb_rng_below(rng, 4) : 0);
    }
}

/* Whether a mapping has the address; an empty one counts as if it had one. */
static bool takes_up(const model_mapping *map, uint64_t va)
{
    return va >= map->va && va < map->va + (map->bytes > 0 ? map->bytes : 1);
}

static bool model_overlaps(const model *world, const model_mapping *fresh)
{
    for (uint64_t va = world->base; va < world->base + SPACE + 1; va++)
        for (size_t i = 0; i < MOST; i++)
            if (world->mappings[i].id && takes_up(fresh, va) && takes_up(&world->mappings[i], va))
                return true;
    return false;
}

static const kb_location *model_choose(const model *world, const model_mapping *map,
                                       const mem_extent *extent, uint32_t cube, uint32_t pe)
{
    const kb_location *in_cube[MAX_COPIES];
    size_t in_cube_count = 0;
    const kb_location *copies = map->copies + extent->first_copy;
    for (size_t i = 0; i < extent->copy_count; i++) {
        if (copies[i].pe.cube == cube && copies[i].pe.pe == pe)
            return &copies[i];
        if (copies[i].pe.cube == cube)
            in_cube[in_cube_count++] = &copies[i];
    }
    if (in_cube_count > 0)
        return in_cube[pe % in_cube_count];
    return &copies[(cube * world->pes + pe) % extent->copy_count];
}

static bool model_translate(const model *world, uint32_t cube, uint32_t pe, uint64_t va,
                            kb_location *location, uint64_t *bytes)
{
    for (size_t i = 0; i < MOST; i++) {
        const model_mapping *map = &world->mappings[i];
        if (!map->id || !map->installed[cube * world->pes + pe])
            continue;
        for (size_t j = 0; j < map->extent_count; j++) {
            const mem_extent *extent = &map->extents[j];
            uint64_t start = map->va + extent->offset;
            if (va < start || va >= start + extent->bytes)
                continue;
            *location = *model_choose(world, map, extent, cube, pe);
            location->offset += va - start;
            *bytes = start + extent->bytes - va;
            return true;
        }
    }
    return false;
}

/* Whether `a` is to be named rather than `b` for an address that translates to nothing. */
static bool nearer(const model_mapping *a, const model_mapping *b, uint64_t va)
{
    uint64_t a_end = a->va + a->bytes, b_end = b->va + b->bytes;
    bool a_below = a_end <= va, b_below = b_end <= va;
    uint64_t a_far = a_below ? va - a_end : va < a->va ? a->va - va : 0;
    uint64_t b_far = b_below ? va - b_end : va < b->va ? b->va - va : 0;
    if (a_far != b_far)
        return a_far < b_far;
    if (a_far == 0 && a_below != b_below) /* of two that touch, the one that has the address */
        return b_below;
    /* The one below; if both are, one is empty and stands at the end of the other. */
    return a_below && b_below ? a->va > b->va : a_below;
}

static void model_fault(const model *world, uint32_t cube, uint32_t pe, uint64_t va, char *text,
                        size_t room)
{
    const model_mapping *near = NULL;
    for (size_t i = 0; i < MOST; i++)
        if (world->mappings[i].id && (!near || nearer(&world->mappings[i], near, va)))
            near = &world->mappings[i];
    int used = snprintf(text, room, "k on sip1.cube%u.pe%u: address 0x%llx is not mapped: ", cube,
                        pe, (unsigned long long)va);
    text += used;
    room -= (size_t)used;
    if (!near) {
        snprintf(text, room, "no tensor is mapped");
        return;
    }
    unsigned long long start = near->va, end = near->va + near->bytes;
    unsigned long long far = va < start ? start - va : va - end;
    if (va >= start && va < end)
        snprintf(text, room, "it lies in tensor '%s' (0x%llx to 0x%llx), which %s", near->name,
                 start, end,
                 near->installed[cube * world->pes + pe]
                     ? "has no memory at this address"
                     : "is not mapped in this PE (yet, or no longer)");
    else if (far == 0)
        snprintf(text, room, "it is just past the end of tensor '%s' (0x%llx to 0x%llx)",
                 near->name, start, end);
    else
        snprintf(text, room, "it is 0x%llx bytes %s of tensor '%s' (0x%llx to 0x%llx)", far,
                 va > start ? "past the end" : "before the start", near->name, start, end);
}

static void compare_at(const mem_mmu *mmu, const model *world, uint32_t cube, uint32_t pe,
                       uint64_t va, bool with_fault)
{
    kb_location want;
    uint64_t want_bytes;
    if (model_translate(world, cube, pe, va, &want, &want_bytes)) {
        expect_at(mmu, cube, pe, va, want, want_bytes);
        return;
    }
    expect_nothing_at(mmu, cube, pe, va);
    if (with_fault) {
        char text[300];
        model_fault(world, cube, pe, va, text, sizeof text);
        expect_error(mem_mmu_fault(mmu, "k", cube, pe, va), KB_ERR_FAULT, text);
    }
}

static void compare_all(const mem_mmu *mmu, const model *world, kb_rng *rng)
{
    for (uint64_t va = world->base - 2; va < world->base + SPACE + 42; va++) {
        mem_mapping_id starts = 0;
        for (size_t i = 0; i < MOST; i++)
            if (world->mappings[i].id && world->mappings[i].va == va)
                starts = world->mappings[i].id;
        assert_int_equal(mem_mmu_find(mmu, va), starts);
        compare_at(mmu, world, (uint32_t)kb_rng_below(rng, world->cubes),
                   (uint32_t)kb_rng_below(rng, world->pes), va, kb_rng_below(rng, 4) == 0);
    }
    for (size_t i = 0; i < MOST; i++) {
        uint32_t count = 0;
        if (!world->mappings[i].id)
            continue;
        for (size_t pe = 0; pe < MAX_PES; pe++)
            count += world->mappings[i].installed[pe];
        assert_int_equal(mem_mmu_installed(mmu, world->mappings[i].id), count);
    }
}

static void random_add(mem_mmu *mmu, model *world, model_mapping *into, kb_rng *rng)
{
    model_mapping fresh;
    random_mapping(rng, world, &fresh);
    bool refused = model_overlaps(world, &fresh);
    kb_error *err = mem_mmu_add(mmu,
                                &(mem_mapping_spec){.name = fresh.name,
                                                    .va = fresh.va,
                                                    .bytes = fresh.bytes,
                                                    .extents = fresh.extents,
                                                    .extent_count = fresh.extent_count,
                                                    .copies = fresh.copies,
                                                    .copy_count = fresh.copy_count},
                                &fresh.id);
    assert_int_equal(kb_error_code(err), refused ? KB_ERR_INPUT : KB_OK);
    kb_error_free(err);
    if (refused)
        return;
    for (size_t i = 0; i < MOST; i++)
        assert_int_not_equal(world->mappings[i].id, fresh.id);
    assert_in_range(fresh.id, 1, MOST); /* ids are used again */
    *into = fresh;
}

static void random_step(mem_mmu *mmu, model *world, kb_rng *rng)
{
    model_mapping *map = &world->mappings[kb_rng_below(rng, MOST)];
    if (!map->id) {
        random_add(mmu, world, map, rng);
        return;
    }
    if (kb_rng_below(rng, 12) == 0) {
        mem_mmu_drop(mmu, map->id);
        map->id = 0;
        return;
    }
    bool on = kb_rng_below(rng, 3) > 0, all = kb_rng_below(rng, 4) == 0;
    uint32_t one = (uint32_t)kb_rng_below(rng, world->cubes * world->pes);
    for (uint32_t i = 0; i < world->cubes * world->pes; i++) {
        if (!all && i != one)
            continue;
        (on ? mem_mmu_install : mem_mmu_uninstall)(mmu, map->id, i / world->pes, i % world->pes);
        map->installed[i] = on;
    }
}

static void random_use_matches_a_model(void **state)
{
    (void)state;
    const uint64_t seeds = RUNNING_ON_VALGRIND ? 2 : 40;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        model *world = kb_alloc_zeroed(1, sizeof *world);
        assert_non_null(world);
        world->cubes = (uint32_t)pick(&rng, 1, 10);
        world->pes = (uint32_t)pick(&rng, 1, 16);
        world->base = seed % 2 ? MEM_VA_BASE : UINT64_MAX - 2 * SPACE;
        mem_mmu *mmu = make(world->cubes, world->pes);
        for (int step = 0; step < 1500; step++) {
            random_step(mmu, world, &rng);
            if (step % 50 == 0)
                compare_all(mmu, world, &rng);
        }
        mem_mmu_destroy(mmu);
        free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use_matches_a_model),
    };
    return cmocka_run_group_tests_name("mmu-model", tests, NULL, NULL);
}
