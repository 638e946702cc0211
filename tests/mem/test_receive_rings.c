/*
 * test_receive_rings.c: receive rings in all memories, and that they and other blocks never
 * overlap.
 *
 * Checks M3.
 */
#include "mem/places.h"
#include "support/seed.h"

/* ---- By hand ----------------------------------------------------------------------------- */

static void a_ring_in_tcm_is_called_ipcq_and_counts_against_the_tcm(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(1, 0, 3);
    assert_int_equal(must_alloc(memories, pe, KB_TCM, 1000, 1), 0);
    kb_location first_ring = must_reserve(memories, pe, KB_TCM, 0x2000, 4096);
    kb_location second_ring = must_reserve(memories, pe, KB_TCM, 0x100, 64);
    expect_named(memories, first_ring, "sip1.cube0.pe3.ipcq+0x0");
    expect_named(memories, second_ring, "sip1.cube0.pe3.ipcq+0x2000");
    uint64_t first = pa_of(memories, first_ring), second = pa_of(memories, second_ring);
    expect_figures(memories, pe, KB_TCM, 12 * MIB - 1000 - 0x2100, 12 * MIB - 0x3000, 3);
    /* It is where the allocator of the TCM put it: behind the block, at a multiple of 4096. */
    kb_location l;
    expect_location(&first_ring, at(KB_TCM, 1, 0, 3, 0x1000));
    expect_ok(mem_location_from_pa(memories, first, &l));
    expect_location(&l, at(KB_TCM, 1, 0, 3, 0x1000));
    expect_ok(mem_location_from_pa(memories, first + 0x1FFF, &l));
    expect_location(&l, at(KB_TCM, 1, 0, 3, 0x2FFF));
    expect_ok(mem_location_from_pa(memories, second, &l));
    expect_location(&l, at(KB_TCM, 1, 0, 3, 0x400)); /* in the gap before the first ring */
    uint64_t pa = 0;
    l.offset = 0x1234;
    expect_ok(mem_location_to_pa(memories, &l, &pa));
    assert_int_equal(pa, first + 0x234);
    /* Nothing else names these bytes. */
    mem_pa same = mem_pa_tcm(1, 0, 3, 0x1234);
    expect_ok(mem_pa_encode(&same, &pa));
    expect_error(mem_location_from_pa(memories, pa, &l), KB_ERR_FAULT,
                 "sip1.cube0.pe3.tcm+0x1234 belongs to a receive ring, which has an address in "
                 "ipcq");
    expect_error(mem_location_from_pa(memories, first + 0x2100, &l), KB_ERR_FAULT,
                 "no receive ring is at sip1.cube0.pe3.ipcq+0x2100");
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void a_ring_in_hbm_or_sram_is_called_after_that_memory(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    mem_memories *memories = memories_of(machine);
    kb_location hbm = must_reserve(memories, pe_at(1, 2, 3), KB_HBM, 4096, 64);
    kb_location sram = must_reserve(memories, pe_at(1, 2, 3), KB_SRAM, 4096, 64);
    expect_location(&hbm, at(KB_HBM, 1, 2, 3, 0));
    expect_location(&sram, at(KB_SRAM, 1, 2, 0, 0));
    expect_named(memories, hbm, "sip1.cube2.hbm+0x480000000"); /* 3 * 6 GiB */
    expect_named(memories, sram, "sip1.cube2.sram+0x0");
    expect_figures(memories, pe_at(1, 2, 3), KB_HBM, 6 * GIB - 4096, 6 * GIB - 4096, 1);
    expect_figures(memories, pe_at(1, 2, 3), KB_TCM, 12 * MIB, 12 * MIB, 0);
    /* Of the SRAM it is a part that no PE of the cube gets again, and others have their own. */
    for (uint32_t pe = 0; pe < 8; pe++)
        expect_figures(memories, pe_at(1, 2, pe), KB_SRAM, 32 * MIB - 4096, 32 * MIB - 4096, 1);
    expect_figures(memories, pe_at(1, 3, 3), KB_SRAM, 32 * MIB, 32 * MIB, 0);
    assert_int_equal(must_alloc(memories, pe_at(1, 2, 0), KB_SRAM, 1, 1), 4096);
    expect_ok(mem_memories_release_ring(memories, &hbm));
    expect_ok(mem_memories_release_ring(memories, &sram));
    expect_figures(memories, pe_at(1, 2, 3), KB_HBM, 6 * GIB, 6 * GIB, 0);
    expect_figures(memories, pe_at(1, 2, 3), KB_SRAM, 32 * MIB - 1, 32 * MIB - 4097, 1);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void a_released_ring_is_free_again_and_empty(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    for (int round = 0; round < 3; round++)
        for (int m = KB_HBM; m <= KB_SRAM; m++) {
            kb_pe pe = pe_at(2, 1, 2);
            uint64_t capacity = mem_memories_get_stats(memories, pe, (kb_memory)m).capacity;
            kb_location l = must_reserve(memories, pe, (kb_memory)m, capacity, 1);
            uint64_t byte = 0;
            mem_memories_read(memories, &l, &byte, 1);
            assert_int_equal(byte, 0); /* nothing of the ring before */
            expect_ok(mem_memories_fill(memories, &l, capacity, "x", 1));
            expect_figures(memories, pe, (kb_memory)m, 0, 0, 1);
            expect_ok(mem_memories_release_ring(memories, &l));
            expect_figures(memories, pe, (kb_memory)m, capacity, capacity, 0);
            assert_int_equal(mem_memories_content_bytes(memories), 0);
        }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void rings_and_blocks_are_given_back_as_what_they_are(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
#define NO_RING ": no receive ring starts there"
    static const char *const no_ring[] = {"cannot release sip0.cube0.pe1.hbm+0x40" NO_RING,
                                          "cannot release sip0.cube0.pe1.tcm+0x40" NO_RING,
                                          "cannot release sip0.cube0.sram+0x40" NO_RING};
    static const char *const is_ring[] = {
        "cannot free sip0.cube0.pe1.hbm+0x0: it belongs to a receive ring: release the ring "
        "instead",
        "cannot free sip0.cube0.pe1.tcm+0x0: it belongs to a receive ring: release the ring "
        "instead",
        "cannot free sip0.cube0.sram+0x0: it belongs to a receive ring: release the ring "
        "instead"};
    static const char *const inside[] = {"cannot release sip0.cube0.pe1.hbm+0x1" NO_RING,
                                         "cannot release sip0.cube0.pe1.tcm+0x1" NO_RING,
                                         "cannot release sip0.cube0.sram+0x1" NO_RING};
    static const char *const twice[] = {"cannot release sip0.cube0.pe1.hbm+0x0" NO_RING,
                                        "cannot release sip0.cube0.pe1.tcm+0x0" NO_RING,
                                        "cannot release sip0.cube0.sram+0x0" NO_RING};
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        kb_pe pe = pe_at(0, 0, 1);
        kb_memory memory = (kb_memory)m;
        kb_location ring = must_reserve(memories, pe, memory, 64, 64), within = ring;
        kb_location l = {memory, pe, must_alloc(memories, pe, memory, 64, 64)};
        expect_error(mem_memories_release_ring(memories, &l), KB_ERR_FAULT, no_ring[m]);
        expect_error(mem_memories_free(memories, pe, memory, 0), KB_ERR_FAULT, is_ring[m]);
        within.offset++;
        expect_error(mem_memories_release_ring(memories, &within), KB_ERR_FAULT, inside[m]);
        assert_int_equal(mem_memories_get_stats(memories, pe, memory).blocks, 2);
        expect_ok(mem_memories_release_ring(memories, &ring));
        expect_error(mem_memories_release_ring(memories, &ring), KB_ERR_FAULT, twice[m]);
        expect_ok(mem_memories_free(memories, pe, memory, l.offset));
        assert_int_equal(mem_memories_get_stats(memories, pe, memory).blocks, 0);
    }
    kb_location none = at(KB_HBM, 3, 0, 0, 0);
    expect_error(mem_memories_release_ring(memories, &none), KB_ERR_INPUT,
                 "sip3 does not exist: the machine has 3, numbered from 0");
    none = at(KB_HBM, 0, 0, 0, 0);
    expect_error(mem_memories_release_ring(memories, &none), KB_ERR_FAULT,
                 "cannot release sip0.cube0.pe0.hbm+0x0" NO_RING);
#undef NO_RING
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void rings_run_out_of_memory_as_blocks_do(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    static const char *const messages[] = {
        "out of memory in sip0.cube1.pe2.hbm: 1000 bytes requested, 999 free (capacity 2097152)",
        "out of memory in sip0.cube1.pe2.tcm: 1000 bytes requested, 999 free (capacity 1310720)",
        "out of memory in sip0.cube1.sram: 1000 bytes requested, 999 free (capacity 65536)"};
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        kb_pe pe = pe_at(0, 1, 2);
        uint64_t capacity = mem_memories_get_stats(memories, pe, (kb_memory)m).capacity;
        kb_location ring;
        (void)must_alloc(memories, pe, (kb_memory)m, capacity - 999, 1);
        expect_error(mem_memories_reserve_ring(memories, pe, (kb_memory)m, 1000, 1, &ring),
                     KB_ERR_FAULT, messages[m]);
        expect_figures(memories, pe, (kb_memory)m, 999, 999, 1);
        ring = must_reserve(memories, pe, (kb_memory)m, 999, 1);
        expect_figures(memories, pe, (kb_memory)m, 0, 0, 2);
        expect_ok(mem_memories_release_ring(memories, &ring));
    }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* The TCM may be twice as large as the region where rings have their addresses. */
static void the_ring_region_can_run_out_before_the_tcm(void **state)
{
    (void)state;
    topo_machine *machine =
        machine_with("cube.pe_tcm.capacity_mib=256", "cube.pe_tcm.reserved_mib=1", NULL, NULL);
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(0, 0, 0);
    kb_location ring = must_reserve(memories, pe, KB_TCM, 128 * MIB - 10, 1), none;
    expect_error(mem_memories_reserve_ring(memories, pe, KB_TCM, 11, 1, &none), KB_ERR_FAULT,
                 "out of memory in sip0.cube0.pe0.ipcq: 11 bytes requested, 10 free (capacity "
                 "134217728)");
    /* All or nothing: what is allocated there next is no ring. */
    expect_figures(memories, pe, KB_TCM, 127 * MIB + 10, 127 * MIB + 10, 1);
    assert_int_equal(must_alloc(memories, pe, KB_TCM, 11, 1), 128 * MIB - 10);
    expect_ok(mem_memories_free(memories, pe, KB_TCM, 128 * MIB - 10));
    expect_named(memories, must_reserve(memories, pe, KB_TCM, 10, 1),
                 "sip0.cube0.pe0.ipcq+0x7fffff6");
    assert_int_equal(must_alloc(memories, pe, KB_TCM, 127 * MIB, 1), 128 * MIB);
    expect_ok(mem_memories_release_ring(memories, &ring));
    expect_named(memories, must_reserve(memories, pe, KB_TCM, 1, 1), "sip0.cube0.pe0.ipcq+0x0");
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/*
 * With 1 MiB of TCM: a ring of half of it, a block behind that up to the last byte, and a ring of
 * this byte, which follows the other one in the ring region. Without the first two, the TCM is free
 * in one part and the region in two.
 */
static void the_ring_region_is_as_large_as_the_tcm_and_has_parts_of_its_own(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SINGLE_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(0, 0, 0);
    kb_location half = must_reserve(memories, pe, KB_TCM, 512 * KIB, 1), none;
    uint64_t block = must_alloc(memories, pe, KB_TCM, 512 * KIB - 1, 1);
    expect_named(memories, must_reserve(memories, pe, KB_TCM, 1, 1), "sip0.cube0.pe0.ipcq+0x80000");
    expect_ok(mem_memories_release_ring(memories, &half));
    expect_ok(mem_memories_free(memories, pe, KB_TCM, block));
    expect_figures(memories, pe, KB_TCM, MIB - 1, MIB - 1, 1);
    expect_error(mem_memories_reserve_ring(memories, pe, KB_TCM, 600 * KIB, 1, &none), KB_ERR_FAULT,
                 "out of memory in sip0.cube0.pe0.ipcq: 614400 bytes requested, 1048575 free in 2 "
                 "blocks, the largest 524288 (capacity 1048576)");
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* ---- By chance --------------------------------------------------------------------------- */

typedef struct block {
    kb_location location;
    uint64_t bytes, pa;
    bool ring;
    unsigned char tag; /* all its bytes have this value */
} block;

typedef struct story {
    const topo_shape *shape;
    mem_memories *memories;
    kb_rng rng;
    KB_VEC(block) blocks;
    uint64_t refused;
    unsigned last_tag;
} story;

static bool same_memory(const kb_location *a, const kb_location *b)
{
    return a->memory == b->memory && a->pe.sip == b->pe.sip && a->pe.cube == b->pe.cube &&
           (a->memory == KB_SRAM || a->pe.pe == b->pe.pe);
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* In memory, and by their addresses. */
static void expect_apart(const story *s, const block *fresh)
{
    for (size_t i = 0; i < s->blocks.count; i++) {
        const block *b = &s->blocks.items[i];
        if (same_memory(&b->location, &fresh->location) &&
            overlap(b->location.offset, b->bytes, fresh->location.offset, fresh->bytes))
            fail_msg("blocks overlap");
        if (overlap(b->pa, b->bytes, fresh->pa, fresh->bytes))
            fail_msg("addresses overlap");
    }
}

static void expect_tag(const story *s, const block *b)
{
    static unsigned char bytes[64 * KIB];
    mem_memories_read(s->memories, &b->location, bytes, b->bytes);
    for (uint64_t i = 0; i < b->bytes; i++)
        if (bytes[i] != b->tag)
            fail_msg("byte %d is %d, expected %d", (int)i, bytes[i], b->tag);
}

static uint64_t free_in_model(const story *s, const kb_location *l)
{
    uint64_t left = mem_memories_get_stats(s->memories, l->pe, l->memory).capacity;
    for (size_t i = 0; i < s->blocks.count; i++)
        if (same_memory(&s->blocks.items[i].location, l))
            left -= s->blocks.items[i].bytes;
    return left;
}

static void take(story *s)
{
    kb_rng *rng = &s->rng;
    block b = {.ring = kb_rng_below(rng, 2) == 0,
               .bytes = 1 + kb_rng_below(rng, (uint64_t)1 << kb_rng_below(rng, 17))};
    b.location = at((kb_memory)kb_rng_below(rng, 3), between(rng, 0, s->shape->sips - 1),
                    between(rng, 0, s->shape->cubes - 1), between(rng, 0, s->shape->pes - 1), 0);
    uint64_t align = (uint64_t)1 << kb_rng_below(rng, 13);
    kb_location *l = &b.location;
    kb_error *err =
        b.ring ? mem_memories_reserve_ring(s->memories, l->pe, l->memory, b.bytes, align, l)
               : mem_memories_alloc(s->memories, l->pe, l->memory, b.bytes, align, &l->offset);
    if (err) {
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        kb_error_free(err);
        s->refused++;
        assert_int_equal(mem_memories_get_stats(s->memories, l->pe, l->memory).free,
                         free_in_model(s, l));
        return;
    }
    mem_pa parts;
    b.pa = pa_of(s->memories, *l);
    expect_ok(mem_pa_decode(b.pa, &parts));
    assert_int_equal(parts.unit == MEM_UNIT_PE && parts.component == MEM_IPCQ,
                     b.ring && l->memory == KB_TCM);
    kb_location back;
    expect_ok(mem_location_from_pa(s->memories, b.pa, &back));
    if (b.ring)
        expect_location(&back, *l);
    assert_int_equal(l->offset % align, 0);
    expect_ok(mem_memories_check(s->memories, l, b.bytes));
    expect_apart(s, &b);
    b.tag = (unsigned char)(1 + s->last_tag++ % 255);
    expect_ok(mem_memories_fill(s->memories, l, b.bytes, &b.tag, 1));
    assert_true(kb_vec_push(&s->blocks, b));
    assert_int_equal(mem_memories_get_stats(s->memories, l->pe, l->memory).free,
                     free_in_model(s, l));
}

static void give(story *s, size_t which)
{
    block b = s->blocks.items[which];
    expect_tag(s, &b);
    kb_location l = b.location;
    if (b.ring)
        expect_ok(mem_memories_release_ring(s->memories, &l));
    else
        expect_ok(mem_memories_free(s->memories, l.pe, l.memory, l.offset));
    s->blocks.items[which] = s->blocks.items[--s->blocks.count];
    assert_int_equal(mem_memories_get_stats(s->memories, l.pe, l.memory).free,
                     free_in_model(s, &l));
}

static void tell(const char *text, uint64_t seed, uint64_t steps)
{
    topo_machine *machine = machine_of(text);
    story s = {.shape = topo_machine_shape(machine), .memories = memories_of(machine)};
    kb_rng_init(&s.rng, test_seed(seed));
    size_t live = failing_alloc_live();
    for (uint64_t i = 0; i < steps; i++) {
        /* Fuller and emptier by turns. */
        bool filling = i / 200 % 2 == 0;
        if (s.blocks.count == 0 || kb_rng_below(&s.rng, 10) < (filling ? 8u : 2u))
            take(&s);
        else
            give(&s, kb_rng_below(&s.rng, s.blocks.count));
    }
    for (size_t i = 0; i < s.blocks.count; i++)
        expect_tag(&s, &s.blocks.items[i]);
    while (s.blocks.count > 0)
        give(&s, kb_rng_below(&s.rng, s.blocks.count));
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        mem_stats f = mem_memories_get_stats(s.memories, pe_at(0, 0, 0), (kb_memory)m);
        assert_int_equal(f.free, f.capacity);
        assert_int_equal(f.largest, f.capacity);
    }
    kb_vec_fini(&s.blocks);
    mem_memories_destroy(s.memories);
    assert_true(failing_alloc_live() < live);
    topo_machine_destroy(machine);
}

static void rings_and_blocks_never_overlap(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        SMALL_MACHINE,
        SINGLE_MACHINE,
        /* Slices of 1.5 MiB, and most of the TCM kept back. */
        "system: { sips: { count: 1 } }\n"
        "sip: { cube_mesh: { w: 1, h: 3 } }\n"
        "cube:\n"
        "  pe_layout: { pe_per_corner: 1, corners: [NW, SE, NE, SW] }\n"
        "  hbm_gib: 0.005859375\n"
        "  sram: { capacity_mib: 0.03125 }\n"
        "  pe_tcm: { capacity_mib: 1, reserved_mib: 0.875 }\n",
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint64_t seed = 0; seed < 3; seed++)
            tell(shapes[i], 100 * i + seed, cases(3000));
}

static void rings_for_a_long_time_do_not_grow(void **state)
{
    (void)state;
    enum { LIVE = 12 };
    topo_machine *machine = machine_of(SINGLE_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    kb_location rings[LIVE];
    for (size_t i = 0; i < LIVE; i++)
        rings[i] = must_reserve(memories, pe_at(0, 0, 0), (kb_memory)(i % 3), 1024, 64);
    size_t live = failing_alloc_live();
    failing_alloc_arm(1, FAIL_ONWARDS); /* nothing needs more than it has */
    for (uint64_t i = 0; i < cases(50000); i++) {
        size_t which = kb_rng_below(&rng, LIVE);
        kb_error *err = mem_memories_release_ring(memories, &rings[which]);
        if (!err)
            err = mem_memories_reserve_ring(memories, pe_at(0, 0, 0), (kb_memory)(which % 3),
                                            1 + kb_rng_below(&rng, 4096), 64, &rings[which]);
        if (err)
            fail_msg("step %d: %s", (int)i, kb_error_message(err));
    }
    assert_false(failing_alloc_disarm());
    assert_int_equal(failing_alloc_live(), live);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* ---- Without host memory ----------------------------------------------------------------- */

static topo_machine *single;
static size_t failures;

static void reserve_with_failures(void)
{
    mem_memories *memories = NULL;
    kb_location rings[3][12];
    kb_pe pe = pe_at(0, 0, 0);
    kb_error *err = mem_memories_create(single, TOPO_NONE, &memories);
    if (err) {
        failures++;
        kb_error_free(err);
        return;
    }
    for (size_t i = 0; i < 12; i++)
        for (int m = KB_HBM; m <= KB_SRAM; m++) {
            kb_memory memory = (kb_memory)m;
            uint64_t capacity = mem_memories_get_stats(memories, pe, memory).capacity;
            while (
                (err = mem_memories_reserve_ring(memories, pe, memory, 100, 128, &rings[m][i]))) {
                failures++;
                expect_error(err, KB_ERR_HOST, "out of memory");
                mem_stats f = mem_memories_get_stats(memories, pe, memory);
                assert_int_equal(f.free, capacity - 100 * i); /* nothing was taken */
                assert_int_equal(f.blocks, i);
                failing_alloc_disarm();
            }
            assert_int_equal(rings[m][i].offset, 128 * i);
        }
    failing_alloc_disarm();
    /* In the ring region too, a reservation that failed left nothing. */
    expect_named(memories, rings[KB_TCM][11], "sip0.cube0.pe0.ipcq+0x580");
    for (size_t i = 0; i < 12; i++)
        for (int m = KB_HBM; m <= KB_SRAM; m++)
            expect_ok(mem_memories_release_ring(memories, &rings[m][i]));
    /* No place is taken for a ring that failed. */
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        for (size_t i = 0; i < 12; i++)
            assert_int_equal(must_alloc(memories, pe, (kb_memory)m, 128, 1), 128 * i);
        for (size_t i = 0; i < 12; i++)
            expect_ok(mem_memories_free(memories, pe, (kb_memory)m, 128 * i));
    }
    mem_memories_destroy(memories);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    single = machine_of(SINGLE_MACHINE);
    size_t before = failing_alloc_live();
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        long n = 0;
        do {
            failures = 0;
            failing_alloc_arm(++n, (failing_alloc_mode)mode);
            reserve_with_failures();
            failing_alloc_disarm();
            assert_int_equal(failing_alloc_live(), before);
        } while (failures > 0);
        assert_true(n > 12);
    }
    topo_machine_destroy(single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_in_tcm_is_called_ipcq_and_counts_against_the_tcm),
        cmocka_unit_test(a_ring_in_hbm_or_sram_is_called_after_that_memory),
        cmocka_unit_test(a_released_ring_is_free_again_and_empty),
        cmocka_unit_test(rings_and_blocks_are_given_back_as_what_they_are),
        cmocka_unit_test(rings_run_out_of_memory_as_blocks_do),
        cmocka_unit_test(the_ring_region_can_run_out_before_the_tcm),
        cmocka_unit_test(the_ring_region_is_as_large_as_the_tcm_and_has_parts_of_its_own),
        cmocka_unit_test(rings_and_blocks_never_overlap),
        cmocka_unit_test(rings_for_a_long_time_do_not_grow),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
