/*
 * test_memories.c: the memories of machines: blocks, contents, physical addresses. Rings are in
 * test_receive_rings.c.
 */
#include "mem/places.h"
#include "support/seed.h"

/* ---- What there is ----------------------------------------------------------------------- */

static void capacities_come_from_the_machine(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    mem_memories *memories = memories_of(machine);
    static const uint64_t expected[] = {
        [KB_HBM] = 6 * GIB, [KB_TCM] = 12 * MIB, [KB_SRAM] = 32 * MIB};
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        mem_stats stats = mem_memories_get_stats(memories, pe_at(1, 15, 7), (kb_memory)m);
        assert_int_equal(stats.capacity, expected[m]);
        assert_int_equal(stats.free, expected[m]);
        assert_int_equal(stats.largest, expected[m]);
        assert_int_equal(stats.blocks, 0);
    }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);

    machine = machine_of(SMALL_MACHINE);
    memories = memories_of(machine);
    expect_figures(memories, pe_at(2, 1, 2), KB_HBM, 2 * MIB, 2 * MIB, 0);
    expect_figures(memories, pe_at(2, 1, 2), KB_TCM, 1280 * KIB, 1280 * KIB, 0);
    expect_figures(memories, pe_at(2, 1, 2), KB_SRAM, 64 * KIB, 64 * KIB, 0);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
    mem_memories_destroy(NULL);
}

/* 8 bytes a PE and a cube, and the record of the machine itself. */
static void a_memory_takes_no_space_until_it_is_used(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    size_t before = failing_alloc_live();
    mem_memories *memories = memories_of(machine);
    assert_int_equal(failing_alloc_live(), before + 3);
    kb_location somewhere = at(KB_HBM, 1, 3, 5, 12345);
    char byte = 1;
    mem_memories_read(memories, &somewhere, &byte, 1);
    assert_int_equal(byte, 0);
    (void)mem_memories_get_stats(memories, somewhere.pe, KB_TCM);
    assert_int_equal(failing_alloc_live(), before + 3);
    assert_int_equal(mem_memories_content_bytes(memories), 0);
    mem_memories_destroy(memories);
    assert_int_equal(failing_alloc_live(), before);
    topo_machine_destroy(machine);
}

static void every_pe_and_cube_has_memories_of_its_own(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    for (uint32_t sip = 0; sip < 3; sip++)
        for (uint32_t cube = 0; cube < 2; cube++)
            for (uint32_t pe = 0; pe < 3; pe++) {
                kb_pe here = pe_at(sip, cube, pe);
                assert_int_equal(must_alloc(memories, here, KB_HBM, 2 * MIB, 1), 0);
                assert_int_equal(must_alloc(memories, here, KB_TCM, 1280 * KIB, 1), 0);
                /* The SRAM is one for all PEs of the cube. */
                assert_int_equal(must_alloc(memories, here, KB_SRAM, 16 * KIB, 1), pe * 16 * KIB);
                for (int m = KB_HBM; m <= KB_SRAM; m++) {
                    kb_location l = at((kb_memory)m, sip, cube, pe, m == KB_SRAM ? pe : 0);
                    char tag = (char)(1 + (((int)sip * 2 + (int)cube) * 3 + (int)pe) * 3 + m);
                    expect_ok(mem_memories_write(memories, &l, &tag, 1));
                }
            }
    for (uint32_t sip = 0; sip < 3; sip++)
        for (uint32_t cube = 0; cube < 2; cube++)
            for (uint32_t pe = 0; pe < 3; pe++)
                for (int m = KB_HBM; m <= KB_SRAM; m++) {
                    /* Whichever PE of the cube asks for the SRAM. */
                    uint32_t asks = m == KB_SRAM ? 77 : pe;
                    kb_location l = at((kb_memory)m, sip, cube, asks, m == KB_SRAM ? pe : 0);
                    char tag = 0;
                    mem_memories_read(memories, &l, &tag, 1);
                    assert_int_equal(tag, 1 + (((int)sip * 2 + (int)cube) * 3 + (int)pe) * 3 + m);
                }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static void exhaustion_says_how_much_was_asked_and_is_free_and_where(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(0, 3, 5);
    uint64_t offset = 7;
    expect_error(mem_memories_alloc(memories, pe, KB_TCM, 12 * MIB + 1, 1, &offset), KB_ERR_FAULT,
                 "out of memory in sip0.cube3.pe5.tcm: 12582913 bytes requested, 12582912 free "
                 "(capacity 12582912)");
    expect_error(mem_memories_alloc(memories, pe, KB_SRAM, UINT64_MAX, 1, &offset), KB_ERR_FAULT,
                 "out of memory in sip0.cube3.sram: 18446744073709551615 bytes requested, "
                 "33554432 free (capacity 33554432)");
    /* All of the slice but two parts of 2 KiB. */
    uint64_t first = must_alloc(memories, pe, KB_HBM, 2 * KIB, 1);
    (void)must_alloc(memories, pe, KB_HBM, 4 * KIB, 1);
    uint64_t second = must_alloc(memories, pe, KB_HBM, 2 * KIB, 1);
    (void)must_alloc(memories, pe, KB_HBM, 6 * GIB - 8 * KIB, 1);
    expect_error(mem_memories_alloc(memories, pe, KB_HBM, 1, 1, &offset), KB_ERR_FAULT,
                 "out of memory in sip0.cube3.pe5.hbm: 1 byte requested, 0 free (capacity "
                 "6442450944)");
    expect_ok(mem_memories_free(memories, pe, KB_HBM, first));
    expect_ok(mem_memories_free(memories, pe, KB_HBM, second));
    expect_error(mem_memories_alloc(memories, pe, KB_HBM, 8 * MIB, 64, &offset), KB_ERR_FAULT,
                 "out of memory in sip0.cube3.pe5.hbm: 8388608 bytes requested, 4096 free in 2 "
                 "blocks, the largest 2048 (capacity 6442450944)");
    assert_int_equal(must_alloc(memories, pe, KB_HBM, 1, 1), 0);
    expect_error(mem_memories_alloc(memories, pe, KB_HBM, 2 * KIB, 4 * KIB, &offset), KB_ERR_FAULT,
                 "out of memory in sip0.cube3.pe5.hbm: 2048 bytes requested aligned to 4096, "
                 "4095 free in 2 blocks, the largest 2048 (capacity 6442450944)");
    assert_int_equal(offset, 7);
    expect_figures(memories, pe, KB_HBM, 4 * KIB - 1, 2 * KIB, 3);
    expect_figures(memories, pe_at(0, 3, 4), KB_HBM, 6 * GIB, 6 * GIB, 0); /* a neighbour's */
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* Each memory in small blocks until nothing is left; freed, it can be had in one piece. */
static void every_memory_can_be_used_up_and_used_again(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(2, 1, 2);
    for (int round = 0; round < 2; round++)
        for (int m = KB_HBM; m <= KB_SRAM; m++) {
            kb_memory memory = (kb_memory)m;
            uint64_t capacity = mem_memories_get_stats(memories, pe, memory).capacity;
            uint64_t bytes = 4 * KIB, offset = 0;
            for (uint64_t i = 0; i < capacity / bytes; i++)
                assert_int_equal(must_alloc(memories, pe, memory, bytes, bytes), i * bytes);
            kb_error *err = mem_memories_alloc(memories, pe, memory, 1, 1, &offset);
            assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
            kb_error_free(err);
            expect_figures(memories, pe, memory, 0, 0, capacity / bytes);
            for (uint64_t i = 0; i < capacity / bytes; i++)
                expect_ok(mem_memories_free(memories, pe, memory, i * bytes));
            assert_int_equal(must_alloc(memories, pe, memory, capacity, 1), 0);
            expect_ok(mem_memories_free(memories, pe, memory, 0));
        }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void blocks_start_at_multiples_of_the_alignment(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(0, 0, 0);
    assert_int_equal(must_alloc(memories, pe, KB_HBM, 1, 1), 0);
    for (uint64_t align = 2; align <= GIB; align *= 2)
        assert_int_equal(must_alloc(memories, pe, KB_HBM, 1, align) % align, 0);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void what_does_not_exist_is_refused(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    static const struct {
        kb_pe pe;
        kb_memory memory;
        const char *message;
    } wrong[] = {
        {{3, 0, 0}, KB_HBM, "sip3 does not exist: the machine has 3, numbered from 0"},
        {{0, 2, 0}, KB_TCM, "cube2 does not exist: a SIP has 2, numbered from 0"},
        {{0, 0, 3}, KB_TCM, "pe3 does not exist: a cube has 3, numbered from 0"},
        {{0, 0, UINT32_MAX},
         KB_HBM,
         "pe4294967295 does not exist: a cube has 3, numbered from "
         "0"},
        {{0, 2, 0}, KB_SRAM, "cube2 does not exist: a SIP has 2, numbered from 0"},
        {{0, 0, 0},
         KB_VIRTUAL,
         "expected a physical memory, found KB_VIRTUAL: translate the "
         "address first"},
        {{0, 0, 0}, (kb_memory)4, "invalid memory 4: expected hbm, tcm or sram"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kb_pe pe = wrong[i].pe;
        kb_memory memory = wrong[i].memory;
        const char *message = wrong[i].message;
        kb_location location = {memory, pe, 0};
        uint64_t result = 0;
        expect_error(mem_memories_alloc(memories, pe, memory, 1, 1, &result), KB_ERR_INPUT,
                     message);
        expect_error(mem_memories_reserve_ring(memories, pe, memory, 1, 1, &location), KB_ERR_INPUT,
                     message);
        expect_error(mem_memories_free(memories, pe, memory, 0), KB_ERR_INPUT, message);
        expect_error(mem_memories_check(memories, &location, 0), KB_ERR_INPUT, message);
        expect_error(mem_location_to_pa(memories, &location, &result), KB_ERR_INPUT, message);
    }
    uint64_t result = 0;
    expect_error(mem_memories_alloc(memories, pe_at(0, 0, 0), KB_HBM, 0, 1, &result), KB_ERR_INPUT,
                 "invalid size of 0 bytes in sip0.cube0.pe0.hbm: expected at least 1");
    expect_error(mem_memories_alloc(memories, pe_at(1, 1, 1), KB_TCM, 1, 0, &result), KB_ERR_INPUT,
                 "invalid alignment 0 in sip1.cube1.pe1.tcm: expected a power of two");
    expect_error(mem_memories_alloc(memories, pe_at(1, 1, 1), KB_SRAM, 1, 24, &result),
                 KB_ERR_INPUT,
                 "invalid alignment 24 in sip1.cube1.sram: expected a power of "
                 "two");
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void a_run_can_be_limited_to_one_sip(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories;
    expect_ok(mem_memories_create(machine, 1, &memories));
    for (int m = KB_HBM; m <= KB_SRAM; m++)
        (void)must_alloc(memories, pe_at(1, 0, 0), (kb_memory)m, 1, 1);
    uint64_t result = 0;
    expect_error(mem_memories_alloc(memories, pe_at(0, 1, 2), KB_HBM, 1, 1, &result), KB_ERR_INPUT,
                 "cannot allocate in sip0.cube1.pe2.hbm: the run is limited to sip 1");
    expect_error(mem_memories_alloc(memories, pe_at(2, 1, 2), KB_SRAM, 1, 1, &result), KB_ERR_INPUT,
                 "cannot allocate in sip2.cube1.sram: the run is limited to sip 1");
    kb_location ring;
    expect_error(mem_memories_reserve_ring(memories, pe_at(2, 1, 2), KB_TCM, 1, 1, &ring),
                 KB_ERR_INPUT,
                 "cannot allocate in sip2.cube1.pe2.tcm: the run is limited to sip 1");
    mem_memories_destroy(memories);
    expect_error(mem_memories_create(machine, 3, &memories), KB_ERR_INPUT,
                 "no such device: sip 3; the machine has 3 SIPs, numbered from 0");
    assert_null(memories);
    topo_machine_destroy(machine);
}

static void freeing_what_is_not_allocated_is_an_error(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_pe pe = pe_at(1, 0, 2);
    expect_error(mem_memories_free(memories, pe, KB_HBM, 0), KB_ERR_FAULT,
                 "cannot free sip1.cube0.pe2.hbm+0x0: nothing is allocated there");
    assert_int_equal(must_alloc(memories, pe, KB_HBM, 256, 1), 0);
    assert_int_equal(must_alloc(memories, pe, KB_HBM, 256, 1), 256);
    expect_error(mem_memories_free(memories, pe, KB_HBM, 0x1FF), KB_ERR_FAULT,
                 "cannot free sip1.cube0.pe2.hbm+0x1ff: it is inside a block of 256 bytes that "
                 "starts at 0x100");
    expect_error(mem_memories_free(memories, pe, KB_HBM, UINT64_MAX), KB_ERR_FAULT,
                 "cannot free sip1.cube0.pe2.hbm+0xffffffffffffffff: nothing is allocated there");
    expect_ok(mem_memories_free(memories, pe, KB_HBM, 256));
    expect_error(mem_memories_free(memories, pe, KB_HBM, 256), KB_ERR_FAULT,
                 "cannot free sip1.cube0.pe2.hbm+0x100: nothing is allocated there");
    /* Another memory, another PE, another cube. */
    expect_error(mem_memories_free(memories, pe, KB_TCM, 0), KB_ERR_FAULT,
                 "cannot free sip1.cube0.pe2.tcm+0x0: nothing is allocated there");
    expect_error(mem_memories_free(memories, pe_at(1, 0, 1), KB_HBM, 0), KB_ERR_FAULT,
                 "cannot free sip1.cube0.pe1.hbm+0x0: nothing is allocated there");
    expect_error(mem_memories_free(memories, pe, KB_SRAM, 0), KB_ERR_FAULT,
                 "cannot free sip1.cube0.sram+0x0: nothing is allocated there");
    expect_figures(memories, pe, KB_HBM, 2 * MIB - 256, 2 * MIB - 256, 1);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* ---- Contents ---------------------------------------------------------------------------- */

static void bytes_outside_a_memory_are_refused(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_location l = at(KB_TCM, 2, 1, 0, 0);
    expect_ok(mem_memories_check(memories, &l, 0));
    expect_ok(mem_memories_check(memories, &l, 1280 * KIB));
    expect_error(mem_memories_check(memories, &l, 1280 * KIB + 1), KB_ERR_FAULT,
                 "out of bounds: 1310721 bytes at sip2.cube1.pe0.tcm+0x0; the capacity of the "
                 "memory is 1310720");
    l.offset = 1280 * KIB - 1;
    expect_ok(mem_memories_check(memories, &l, 1));
    expect_error(mem_memories_check(memories, &l, 2), KB_ERR_FAULT,
                 "out of bounds: 2 bytes at sip2.cube1.pe0.tcm+0x13ffff; the capacity of the "
                 "memory is 1310720");
    expect_error(mem_memories_check(memories, &l, UINT64_MAX), KB_ERR_FAULT,
                 "out of bounds: 18446744073709551615 bytes at sip2.cube1.pe0.tcm+0x13ffff; "
                 "the capacity of the memory is 1310720");
    l.offset = 1280 * KIB;
    expect_ok(mem_memories_check(memories, &l, 0));
    l = at(KB_SRAM, 0, 0, 99, UINT64_MAX); /* any PE */
    expect_error(mem_memories_check(memories, &l, 1), KB_ERR_FAULT,
                 "out of bounds: 1 byte at sip0.cube0.sram+0xffffffffffffffff; the capacity of "
                 "the memory is 65536");
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void contents_are_written_filled_copied_and_read(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    char back[9] = "........";
    kb_location hbm = at(KB_HBM, 0, 0, 0, 4093), tcm = at(KB_TCM, 2, 1, 2, 5000);
    kb_location sram = at(KB_SRAM, 1, 1, 0, 60000), unused = at(KB_HBM, 1, 1, 1, 0);
    expect_ok(mem_memories_write(memories, &hbm, "12345678", 8));
    expect_ok(mem_memories_copy(memories, &tcm, &hbm, 8));
    mem_memories_read(memories, &tcm, back, 8);
    assert_string_equal(back, "12345678");
    expect_ok(mem_memories_fill(memories, &sram, 8, "ab", 2));
    mem_memories_read(memories, &sram, back, 8);
    assert_string_equal(back, "abababab");
    sram.pe.pe = 2; /* the same SRAM */
    kb_location later = sram;
    later.offset += 5;
    expect_ok(mem_memories_copy(memories, &later, &sram, 5)); /* within one memory */
    later.offset = sram.offset + 2;
    mem_memories_read(memories, &later, back, 8);
    assert_string_equal(back, "abaababa");
    /* A memory that was never used reads as zeros. */
    expect_ok(mem_memories_copy(memories, &tcm, &unused, 4));
    mem_memories_read(memories, &tcm, back, 8);
    assert_memory_equal(back,
                        "\0\0\0\0"
                        "5678",
                        8);
    assert_true(mem_memories_content_bytes(memories) >= (size_t)4 * MEM_PAGE_BYTES);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void contents_of_freed_blocks_are_gone(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        kb_memory memory = (kb_memory)m;
        kb_pe pe = pe_at(1, 1, 1);
        uint64_t before = must_alloc(memories, pe, memory, 100, 1);
        uint64_t offset = must_alloc(memories, pe, memory, 20000, 1);
        uint64_t behind = must_alloc(memories, pe, memory, 100, 1);
        uint64_t starts[] = {before, offset, behind}, sizes[] = {100, 20000, 100};
        for (size_t i = 0; i < 3; i++)
            expect_ok(mem_memories_fill(memories, &(kb_location){memory, pe, starts[i]}, sizes[i],
                                        "\xAA", 1));
        expect_ok(mem_memories_free(memories, pe, memory, offset));
        unsigned char bytes[20200];
        mem_memories_read(memories, &(kb_location){memory, pe, before}, bytes, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], i < 100 || i >= 20100 ? 0xAA : 0);
        expect_ok(mem_memories_free(memories, pe, memory, before));
        expect_ok(mem_memories_free(memories, pe, memory, behind));
    }
    /* Each was the end of a page that the next block began: those are zeros, and stay. */
    assert_true(mem_memories_content_bytes(memories) <= 6 * (size_t)MEM_PAGE_BYTES + 3 * 16 * 16);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* Whole pages: everything goes back, however long it lasts. */
static void allocating_and_freeing_for_a_long_time_does_not_grow(void **state)
{
    (void)state;
    enum { LIVE = 30 };
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(21));
    kb_location live[LIVE];
    size_t count = 0, high_blocks = 0;
    const uint64_t steps = cases(60000);
    for (uint64_t i = 0; i < steps; i++) {
        if (count == LIVE || (count > 0 && kb_rng_below(&rng, 2))) {
            size_t which = kb_rng_below(&rng, count);
            expect_ok(mem_memories_free(memories, live[which].pe, live[which].memory,
                                        live[which].offset));
            live[which] = live[--count];
        } else {
            kb_location l = at((kb_memory)kb_rng_below(&rng, 3), between(&rng, 0, 2),
                               between(&rng, 0, 1), between(&rng, 0, 2), 0);
            uint64_t bytes = (1 + kb_rng_below(&rng, 5)) * MEM_PAGE_BYTES;
            kb_error *err =
                mem_memories_alloc(memories, l.pe, l.memory, bytes, MEM_PAGE_BYTES, &l.offset);
            if (err) { /* the SRAM is small */
                assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
                kb_error_free(err);
                continue;
            }
            expect_ok(mem_memories_fill(memories, &l, bytes, "x", 1));
            live[count++] = l;
        }
        if (i < steps / 4 && failing_alloc_live() > high_blocks)
            high_blocks = failing_alloc_live();
        /* All that lives, five pages each, and tables of at most 256 slots. */
        assert_true(mem_memories_content_bytes(memories) <=
                    LIVE * (size_t)5 * MEM_PAGE_BYTES + (size_t)42 * 16 * 256);
    }
    while (count > 0) {
        count--;
        expect_ok(
            mem_memories_free(memories, live[count].pe, live[count].memory, live[count].offset));
    }
    assert_int_equal(mem_memories_content_bytes(memories), 0);
    assert_true(failing_alloc_live() <= high_blocks);
    for (uint32_t pe = 0; pe < 3; pe++) {
        expect_figures(memories, pe_at(2, 1, pe), KB_HBM, 2 * MIB, 2 * MIB, 0);
        expect_figures(memories, pe_at(2, 1, pe), KB_TCM, 1280 * KIB, 1280 * KIB, 0);
    }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* ---- Nodes and names --------------------------------------------------------------------- */

static void transfers_end_at_the_node_that_serves_the_memory(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    static const struct {
        kb_memory memory;
        const char *node;
    } expected[] = {{KB_HBM, "sip2.cube1.hbm_ctrl2"},
                    {KB_TCM, "sip2.cube1.pe2.pe_dma"},
                    {KB_SRAM, "sip2.cube1.sram"}};
    for (size_t i = 0; i < 3; i++) {
        kb_location l = at(expected[i].memory, 2, 1, 2, 10);
        kb_text text = KB_TEXT_INIT;
        topo_node_name(machine, mem_memories_node(memories, &l), &text);
        assert_string_equal(kb_text_peek(&text), expected[i].node);
        kb_text_fini(&text);
        /* By way of its address too: routes begin with coordinates. */
        uint64_t pa = 0;
        kb_location decoded;
        expect_ok(mem_location_to_pa(memories, &l, &pa));
        expect_ok(mem_location_from_pa(memories, pa, &decoded));
        assert_int_equal(mem_memories_node(memories, &decoded), mem_memories_node(memories, &l));
    }
    kb_location none = at(KB_VIRTUAL, 0, 0, 0, 0);
    assert_int_equal(mem_memories_node(memories, &none), TOPO_NONE);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void a_location_prints_as_what_it_means(void **state)
{
    (void)state;
    static const struct {
        kb_location location;
        const char *name;
    } names[] = {
        {{KB_HBM, {1, 0, 3}, 0x1234}, "sip1.cube0.pe3.hbm+0x1234"},
        {{KB_TCM, {400, 33, 17}, 0}, "sip400.cube33.pe17.tcm+0x0"},
        {{KB_SRAM, {0, 2, 7}, 0x40}, "sip0.cube2.sram+0x40"},
        {{KB_VIRTUAL, {0, 0, 0}, 0x100000000}, "virtual+0x100000000"},
        {{KB_HBM, {UINT32_MAX, UINT32_MAX, UINT32_MAX}, UINT64_MAX},
         "sip4294967295.cube4294967295.pe4294967295.hbm+0xffffffffffffffff"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        kb_text text = KB_TEXT_INIT;
        mem_location_print(&names[i].location, &text);
        assert_string_equal(kb_text_peek(&text), names[i].name);
        kb_text_fini(&text);
    }
}

/* ---- Physical addresses ------------------------------------------------------------------ */

static void expect_pa(const mem_memories *memories, kb_location location, uint64_t expected)
{
    uint64_t pa = 0;
    expect_ok(mem_location_to_pa(memories, &location, &pa));
    assert_int_equal(pa, expected);
    kb_location back = {0};
    expect_ok(mem_location_from_pa(memories, pa, &back));
    if (location.memory == KB_SRAM)
        location.pe.pe = 0; /* an address of SRAM names no PE */
    expect_location(&back, location);
}

/* A slice of 6 GiB is 0x1_8000_0000 bytes: that of PE 3 begins at 0x4_8000_0000. */
static void locations_have_physical_addresses(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    mem_memories *memories = memories_of(machine);
    expect_pa(memories, at(KB_HBM, 0, 0, 0, 0), 0x2000000000);
    expect_pa(memories, at(KB_HBM, 1, 2, 3, 0x10), 0x8A480000010);
    expect_pa(memories, at(KB_HBM, 0, 0, 7, 6 * GIB - 1), 0x2BFFFFFFFF);
    expect_pa(memories, at(KB_TCM, 1, 0, 3, 0x1234), 0x800C0001234);
    expect_pa(memories, at(KB_TCM, 0, 0, 0, 12 * MIB - 1), 0xBFFFFF);
    expect_pa(memories, at(KB_SRAM, 0, 15, 6, 32 * MIB - 1), 0x3C801FFFFFF);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static void addresses_of_nothing_in_the_machine_are_refused(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
#define HAS                                                                                        \
    " is not in the machine: it has 3 SIPs of 2 cubes of 3 PEs, with 2097152 bytes of HBM and "    \
    "1310720 of TCM a PE and 65536 of SRAM a cube"
    static const struct {
        mem_pa pa;
        const char *message;
    } wrong[] = {
        {{1, 0, 0, MEM_UNIT_HBM, 0, 0, 0}, "rack1.sip0.cube0.hbm+0x0" HAS},
        {{0, 3, 0, MEM_UNIT_HBM, 0, 0, 0}, "sip3.cube0.hbm+0x0" HAS},
        {{0, 0, 2, MEM_UNIT_SRAM, 0, 0, 0}, "sip0.cube2.sram+0x0" HAS},
        {{0, 0, 0, MEM_UNIT_PE, 3, MEM_TCM, 0}, "sip0.cube0.pe3.tcm+0x0" HAS},
        {{0, 0, 0, MEM_UNIT_PE, 3, MEM_IPCQ, 0}, "sip0.cube0.pe3.ipcq+0x0" HAS},
        {{0, 2, 1, MEM_UNIT_HBM, 0, 0, 6 * MIB}, "sip2.cube1.hbm+0x600000" HAS},
        {{0, 2, 1, MEM_UNIT_HBM, 0, 0, 128 * GIB - 1}, "sip2.cube1.hbm+0x1fffffffff" HAS},
        {{0, 2, 1, MEM_UNIT_PE, 2, MEM_TCM, 1280 * KIB}, "sip2.cube1.pe2.tcm+0x140000" HAS},
        {{0, 2, 1, MEM_UNIT_SRAM, 0, 0, 64 * KIB}, "sip2.cube1.sram+0x10000" HAS},
        {{0, 2, 1, MEM_UNIT_PE, 2, MEM_IPCQ, 0}, "no receive ring is at sip2.cube1.pe2.ipcq+0x0"},
        {{0, 0, 0, MEM_UNIT_M_CPU, 0, 0, 0},
         "0x400000000 is no address of a memory, it is sip0.cube0.m_cpu+0x0"},
        {{0, 0, 0, MEM_UNIT_PE, 0, MEM_REGISTERS, 4},
         "0x1c000004 is no address of a memory, it is sip0.cube0.pe0.registers+0x4"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t pa = 0;
        kb_location l;
        expect_ok(mem_pa_encode(&wrong[i].pa, &pa));
        expect_error(mem_location_from_pa(memories, pa, &l), KB_ERR_FAULT, wrong[i].message);
    }
    kb_location l = at(KB_HBM, 0, 0, 0, 2 * MIB);
    uint64_t pa = 0;
    expect_error(mem_location_to_pa(memories, &l, &pa), KB_ERR_FAULT,
                 "out of bounds: 1 byte at sip0.cube0.pe0.hbm+0x200000; the capacity of the "
                 "memory is 2097152");
    expect_error(mem_location_from_pa(memories, 0x20000000, &l), KB_ERR_FAULT,
                 "invalid physical address 0x20000000: the ext bit is 1: expected 0");
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

static kb_location draw_location(kb_rng *rng, const mem_memories *memories, const topo_shape *shape)
{
    kb_location l = at((kb_memory)kb_rng_below(rng, 3), between(rng, 0, shape->sips - 1),
                       between(rng, 0, shape->cubes - 1), between(rng, 0, shape->pes - 1), 0);
    uint64_t capacity = mem_memories_get_stats(memories, l.pe, l.memory).capacity;
    l.offset = kb_rng_below(rng, 4) == 0 ? capacity - 1 : kb_rng_below(rng, capacity);
    if (l.memory == KB_SRAM)
        l.pe.pe = 0;
    return l;
}

/* The last one is as large as addresses go. */
static const char *const shapes[] = {
    "system: { sips: { count: 2 } }\n",
    SMALL_MACHINE,
    SINGLE_MACHINE,
    "system: { sips: { count: 16 } }\n"
    "sip: { cube_mesh: { w: 8, h: 4 } }\n"
    "cube:\n"
    "  pe_layout: { pe_per_corner: 4, corners: [NW, NE, SW, SE] }\n"
    "  hbm_gib: 128\n"
    "  sram: { capacity_mib: 512 }\n"
    "  pe_tcm: { capacity_mib: 256, reserved_mib: 0 }\n",
};

static void locations_and_addresses_are_inverse(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(61));
    size_t count = RUNNING_ON_VALGRIND ? 3 : 4;
    for (size_t s = 0; s < count; s++) {
        topo_machine *machine = machine_of(shapes[s]);
        mem_memories *memories = memories_of(machine);
        for (uint64_t i = 0; i < cases(20000); i++) {
            kb_location l = draw_location(&rng, memories, topo_machine_shape(machine)), back;
            uint64_t pa = 0;
            expect_ok(mem_location_to_pa(memories, &l, &pa));
            expect_ok(mem_location_from_pa(memories, pa, &back));
            expect_location(&back, l);
        }
        mem_memories_destroy(memories);
        topo_machine_destroy(machine);
    }
}

static void machines_larger_than_addresses_do_all_but_addresses(void **state)
{
    (void)state;
#define TOO_LARGE "the machine is too large for physical addresses: "
#define NAMES " PEs, physical addresses name 16 SIPs of 32 cubes of 16 PEs"
    static const struct {
        const char *text, *message;
        kb_pe last;
    } large[] = {
        {"system: { sips: { count: 17 } }\n"
         "sip: { cube_mesh: { w: 1, h: 1 } }\n",
         TOO_LARGE "it has 17 SIPs of 1 cubes of 8" NAMES,
         {16, 0, 7}},
        {"sip: { cube_mesh: { w: 11, h: 3 } }\n",
         TOO_LARGE "it has 2 SIPs of 33 cubes of 8" NAMES,
         {1, 32, 7}},
        {"sip: { cube_mesh: { w: 1, h: 1 } }\n"
         "cube: { pe_layout: { pe_per_corner: 17, corners: [NW] } }\n",
         TOO_LARGE "it has 2 SIPs of 1 cubes of 17" NAMES,
         {1, 0, 16}},
        {"sip: { cube_mesh: { w: 1, h: 1 } }\n"
         "cube: { hbm_gib: 136 }\n",
         TOO_LARGE "a cube has 146028888064 bytes of HBM, physical addresses reach 137438953472",
         {1, 0, 7}},
        {"sip: { cube_mesh: { w: 1, h: 1 } }\n"
         "cube: { sram: { capacity_mib: 513 } }\n",
         TOO_LARGE "a cube has 537919488 bytes of SRAM, physical addresses reach 536870912",
         {1, 0, 7}},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        topo_machine *machine = machine_of(large[i].text);
        mem_memories *memories = memories_of(machine);
        for (int m = KB_HBM; m <= KB_SRAM; m++) {
            kb_location l = {(kb_memory)m, large[i].last, 0};
            char byte = 0;
            uint64_t pa = 0;
            l.offset = must_alloc(memories, l.pe, l.memory, 100, 64);
            expect_ok(mem_memories_check(memories, &l, 100));
            expect_ok(mem_memories_write(memories, &l, "x", 1));
            mem_memories_read(memories, &l, &byte, 1);
            assert_int_equal(byte, 'x');
            assert_true(mem_memories_node(memories, &l) != TOPO_NONE);
            expect_error(mem_location_to_pa(memories, &l, &pa), KB_ERR_INPUT, large[i].message);
            expect_error(mem_location_from_pa(memories, 0, &l), KB_ERR_INPUT, large[i].message);
            kb_location ring = must_reserve(memories, l.pe, l.memory, 64, 1);
            assert_int_equal(ring.offset, l.offset + 100);
            expect_error(mem_location_to_pa(memories, &ring, &pa), KB_ERR_INPUT, large[i].message);
            expect_ok(mem_memories_release_ring(memories, &ring));
            expect_ok(mem_memories_free(memories, l.pe, l.memory, l.offset));
        }
        mem_memories_destroy(memories);
        topo_machine_destroy(machine);
    }
}

/* ---- Without host memory ----------------------------------------------------------------- */

static topo_machine *small;
static size_t failures;

/* Whether to try again: it failed for want of memory, which is back now. */
static bool again(kb_error *err)
{
    if (!err)
        return false;
    failures++;
    expect_error(err, KB_ERR_HOST, "out of memory");
    failing_alloc_disarm();
    return true;
}

static void use_with_failures(void)
{
    mem_memories *memories = NULL;
    while (again(mem_memories_create(small, TOPO_NONE, &memories)))
        assert_null(memories);
    for (uint32_t i = 0; i < 12; i++)
        for (int m = KB_HBM; m <= KB_SRAM; m++) {
            kb_location l = at((kb_memory)m, 1, 0, i % 2, 0), other = at(KB_HBM, 2, 1, 0, i * 64);
            while (again(mem_memories_alloc(memories, l.pe, l.memory, 200, 64, &l.offset)))
                ;
            /* Two PEs share the SRAM; the others have their own. */
            assert_int_equal(l.offset, 256 * (m == KB_SRAM ? i : i / 2));
            while (again(mem_memories_write(memories, &l, "abcdefgh", 8)))
                ;
            while (again(mem_memories_fill(memories, &l, 4, "z", 1)))
                ;
            while (again(mem_memories_copy(memories, &other, &l, 8)))
                ;
            char back[9] = "";
            mem_memories_read(memories, &other, back, 8);
            assert_string_equal(back, "zzzzefgh");
            assert_int_equal(mem_memories_get_stats(memories, l.pe, l.memory).blocks,
                             m == KB_SRAM ? i + 1 : i / 2 + 1);
        }
    mem_memories_destroy(memories);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    small = machine_of(SMALL_MACHINE);
    size_t before = failing_alloc_live();
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        long n = 0;
        do {
            failures = 0;
            failing_alloc_arm(++n, (failing_alloc_mode)mode);
            use_with_failures();
            failing_alloc_disarm();
            assert_int_equal(failing_alloc_live(), before);
        } while (failures > 0);
        assert_true(n > 10);
    }
    topo_machine_destroy(small);
}

static void errors_need_little_memory(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    (void)must_alloc(memories, pe_at(0, 0, 0), KB_HBM, 1, 1);
    for (long n = 1; n < 6; n++) {
        uint64_t offset = 0;
        failing_alloc_arm(n, FAIL_ONWARDS);
        kb_error *err =
            mem_memories_alloc(memories, pe_at(0, 0, 0), KB_HBM, UINT64_MAX, 1, &offset);
        kb_error *other = mem_memories_free(memories, pe_at(0, 0, 0), KB_HBM, 1);
        kb_location l;
        kb_error *third = mem_location_from_pa(memories, 0x1C000004, &l);
        failing_alloc_disarm();
        assert_non_null(err);
        assert_non_null(other);
        assert_non_null(third);
        kb_error_free(err);
        kb_error_free(other);
        kb_error_free(third);
    }
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacities_come_from_the_machine),
        cmocka_unit_test(a_memory_takes_no_space_until_it_is_used),
        cmocka_unit_test(every_pe_and_cube_has_memories_of_its_own),
        cmocka_unit_test(exhaustion_says_how_much_was_asked_and_is_free_and_where),
        cmocka_unit_test(every_memory_can_be_used_up_and_used_again),
        cmocka_unit_test(blocks_start_at_multiples_of_the_alignment),
        cmocka_unit_test(what_does_not_exist_is_refused),
        cmocka_unit_test(a_run_can_be_limited_to_one_sip),
        cmocka_unit_test(freeing_what_is_not_allocated_is_an_error),
        cmocka_unit_test(bytes_outside_a_memory_are_refused),
        cmocka_unit_test(contents_are_written_filled_copied_and_read),
        cmocka_unit_test(contents_of_freed_blocks_are_gone),
        cmocka_unit_test(allocating_and_freeing_for_a_long_time_does_not_grow),
        cmocka_unit_test(transfers_end_at_the_node_that_serves_the_memory),
        cmocka_unit_test(a_location_prints_as_what_it_means),
        cmocka_unit_test(locations_have_physical_addresses),
        cmocka_unit_test(addresses_of_nothing_in_the_machine_are_refused),
        cmocka_unit_test(locations_and_addresses_are_inverse),
        cmocka_unit_test(machines_larger_than_addresses_do_all_but_addresses),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(errors_need_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
