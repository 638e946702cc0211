/* test_set.c: rings in memories, directions by name, and what is installed where. Checks Q3. */
#include "ipcq_rig.h"

/* ---- Rings ------------------------------------------------------------------------------- */

#define MIB ((uint64_t)1 << 20)

/* With this, all rings are said to be where the first one is. */
static bool lies;
static kb_location really[8];
static size_t lie_count;

kb_error *__real_mem_memories_reserve_ring(mem_memories *memories, kb_pe at, kb_memory memory,
                                           uint64_t bytes, uint64_t align, kb_location *ring);
kb_error *__wrap_mem_memories_reserve_ring(mem_memories *memories, kb_pe at, kb_memory memory,
                                           uint64_t bytes, uint64_t align, kb_location *ring);
kb_error *__real_mem_memories_release_ring(mem_memories *memories, const kb_location *ring);
kb_error *__wrap_mem_memories_release_ring(mem_memories *memories, const kb_location *ring);

kb_error *__wrap_mem_memories_reserve_ring(mem_memories *memories, kb_pe at, kb_memory memory,
                                           uint64_t bytes, uint64_t align, kb_location *ring)
{
    KB_TRY(__real_mem_memories_reserve_ring(memories, at, memory, bytes, align, ring));
    if (lies) {
        really[lie_count++] = *ring;
        *ring = really[0];
    }
    return NULL;
}

kb_error *__wrap_mem_memories_release_ring(mem_memories *memories, const kb_location *ring)
{
    return __real_mem_memories_release_ring(memories, lies ? &really[--lie_count] : ring);
}

static uint64_t free_bytes(const rig *r, uint32_t n, kb_memory memory)
{
    return mem_memories_get_stats(r->memories, pe(n), memory).free;
}

static void expect_slot(const rig *r, kb_location slot, kb_memory memory, uint32_t n,
                        uint64_t offset, const mem_pa *parts)
{
    uint64_t pa, bits;
    expect_ok(mem_location_to_pa(r->memories, &slot, &pa));
    expect_ok(mem_pa_encode(parts, &bits));
    assert_int_equal(pa, bits);
    assert_int_equal(slot.memory, memory);
    assert_int_equal(slot.pe.pe, n);
    assert_int_equal(slot.offset, offset);
}

static void rings_in_tcm_and_hbm_are_one_by_one(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    for (int m = KB_HBM; m <= KB_TCM; m++) {
        kb_memory memory = (kb_memory)m;
        ipcq_settings settings = {memory, false, 3, 100, 16}; /* 300 bytes: 320 of memory */
        rig r;
        expect_ok(rig_try(&r, one_router(2), false));
        uint64_t before = free_bytes(&r, 1, memory);
        expect_ok(try_set(&r, edges, 4, &settings, &r.set));
        for (uint32_t n = 0; n < 2; n++)
            assert_int_equal(free_bytes(&r, n, memory), before - (uint64_t)2 * 320);
        assert_int_equal(
            free_bytes(&r, 0, memory == KB_TCM ? KB_HBM : KB_TCM),
            mem_memories_get_stats(r.memories, pe(0), memory == KB_TCM ? KB_HBM : KB_TCM).capacity);
        /* E of pe0 goes to W of pe1, whose ring is the second there. */
        ipcq_end *east = end_of(&r, 0, "E");
        uint64_t slice = topo_machine_shape(r.machine)->slice_bytes;
        for (uint64_t slot = 0; slot < 3; slot++) {
            mem_pa tcm = mem_pa_of_pe(0, 0, 1, MEM_IPCQ, 320 + 100 * slot);
            mem_pa hbm = mem_pa_hbm(0, 0, slice + 320 + 100 * slot);
            expect_slot(&r, take_slot(east), memory, 1, 320 + 100 * slot,
                        memory == KB_TCM ? &tcm : &hbm);
        }
        ipcq_set_destroy(r.set);
        assert_int_equal(free_bytes(&r, 1, memory), before);
        rig_fini(&r);
    }
}

/* One reservation for all PEs and directions of the cube. */
static void rings_in_sram_are_one_block_a_cube(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "E", 1),
                               edge(1, "W", 0),
                               edge(1, "E", 2),
                               edge(2, "W", 1),
                               {{0, 1, 0}, "up", {0, 0, 0}},
                               {{0, 0, 0}, "down", {0, 1, 0}}};
    ipcq_settings settings = {KB_SRAM, false, 4, 4096, 16};
    rig r;
    expect_ok(rig_try(&r, default_machine(), false));
    expect_ok(try_set(&r, edges, 6, &settings, &r.set));
    mem_stats stats = mem_memories_get_stats(r.memories, pe(0), KB_SRAM);
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.free, 32 * MIB - (uint64_t)5 * 4 * 4096);
    stats = mem_memories_get_stats(r.memories, (kb_pe){0, 1, 0}, KB_SRAM);
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.free, 32 * MIB - (uint64_t)4 * 4096);
    /* Rings follow each other by PE and direction: E of pe0, down of pe0, W of pe1, E of pe1, .. */
    const struct {
        uint32_t n;
        const char *direction;
        uint64_t ring;
    } sends[] = {{1, "W", 0}, {0, "E", 2}, {2, "W", 3}, {1, "E", 4}};
    for (size_t i = 0; i < 4; i++) {
        kb_location slot = take_slot(end_of(&r, sends[i].n, sends[i].direction));
        mem_pa pa = mem_pa_sram(0, 0, sends[i].ring * 4 * 4096);
        expect_slot(&r, slot, KB_SRAM, 0, sends[i].ring * 4 * 4096, &pa);
    }
    /* What arrives finds its PE, though the address has none. */
    expect_ok(install_all(r.set));
    ipcq_end *out = ipcq_find(r.set, (kb_pe){0, 1, 0}, "up");
    send(&r, out, 17);
    taker t = taker_of(&r, 0, end_of(&r, 0, "down"));
    post(&t);
    assert_int_equal(t.bytes, 17);
    assert_int_equal(t.sender.cube, 1);
    ipcq_set_destroy(r.set);
    assert_int_equal(mem_memories_get_stats(r.memories, pe(0), KB_SRAM).free, 32 * MIB);
    rig_fini(&r);
}

static void a_set_that_does_not_fit_leaves_nothing(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r;
    expect_ok(rig_try(&r, one_router(2), false));
    ipcq_settings large = {KB_TCM, false, 1, 7 * MIB, 16};
    expect_error(try_set(&r, edges, 4, &large, &r.set), KB_ERR_FAULT,
                 "receive ring of sip0.cube0.pe0, direction W: out of memory in "
                 "sip0.cube0.pe0.tcm: 7340032 bytes requested, 5242880 free (capacity 12582912)");
    large = (ipcq_settings){KB_SRAM, false, 2, 9 * MIB, 16};
    expect_error(try_set(&r, edges, 4, &large, &r.set), KB_ERR_FAULT,
                 "4 receive rings of sip0.cube0: out of memory in sip0.cube0.sram: 75497472 "
                 "bytes requested, 33554432 free (capacity 33554432)");
    large = (ipcq_settings){KB_SRAM, false, 1, (uint64_t)1 << 62, 16};
    expect_error(try_set(&r, edges, 4, &large, &r.set), KB_ERR_INPUT,
                 "4 receive rings of sip0.cube0: more bytes than there are addresses");
    assert_int_equal(free_bytes(&r, 0, KB_TCM), 12 * MIB);
    assert_int_equal(free_bytes(&r, 0, KB_SRAM), 32 * MIB);
    rig_fini(&r);
}

/* Physical addresses name 16 PEs of a cube: rings of the 17th have none, and work all the same. */
static void machines_beyond_addresses_have_queues(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(16, "E", 0), edge(0, "W", 16), edge(15, "x", 16),
                               edge(16, "y", 15)};
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        ipcq_settings settings = {(kb_memory)m, false, 4, 4096, 16};
        rig r = RIG(17, edges, &settings);
        send(&r, end_of(&r, 0, "W"), 30);
        send(&r, end_of(&r, 15, "x"), 40);
        taker from_0 = taker_of(&r, 16, end_of(&r, 16, "E"));
        taker from_15 = taker_of(&r, 16, end_of(&r, 16, "y"));
        post(&from_15);
        post(&from_0);
        assert_int_equal(from_0.bytes, 30);
        assert_int_equal(from_0.sender.pe, 0);
        assert_int_equal(from_15.bytes, 40);
        assert_int_equal(from_15.sender.pe, 15);
        go_to(&r, KB_US);
        for (int i = 0; i < 4; i++)
            send(&r, end_of(&r, 0, "W"), 1);
        assert_false(has_credit(&r, end_of(&r, 0, "W")));
        /* Their addresses are told by what they mean; asking for a physical one is an error. */
        static const char *const names[] = {
            "sip0.cube0.hbm+0x1800004000", "sip0.cube0.pe16.ipcq+0x4000", "sip0.cube0.sram+0xc000"};
        kb_location slot = take_slot(end_of(&r, 15, "x"));
        uint64_t pa, slot_bytes = 4096; /* it is the second slot */
        slot.offset -= slot_bytes;
        kb_text text = KB_TEXT_INIT;
        mem_address_print(r.memories, &slot, &text);
        expect_text(&text, names[m]);
        expect_error(mem_location_to_pa(r.memories, &slot, &pa), KB_ERR_INPUT,
                     "the machine is too large for physical addresses: it has 1 SIPs of 1 cubes of "
                     "17 PEs, physical addresses name 16 SIPs of 32 cubes of 16 PEs");
        rig_fini(&r);
    }
}

static void pes_that_are_not_there_are_named(void **state)
{
    (void)state;
    rig r;
    expect_ok(rig_try(&r, one_router(2), false));
    const kb_pe absent[] = {{0, 0, 2}, {0, 1, 0}, {1, 0, 0}};
    const char *const names[] = {"sip0.cube0.pe2", "sip0.cube1.pe0", "sip1.cube0.pe0"};
    for (int i = 0; i < 3; i++) {
        ipcq_edge out = {pe(0), "E", absent[i]};
        char message[128];
        snprintf(message, sizeof message,
                 "direction E is of %s, which the machine does not have: it has 1 SIPs of 1 cubes "
                 "of 2 PEs",
                 names[i]);
        expect_error(try_set(&r, &out, 1, &mostly, &r.set), KB_ERR_INPUT, message);
    }
    rig_fini(&r);
}

static void rings_that_overlap_are_found(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r;
    expect_ok(rig_try(&r, one_router(2), false));
    lies = true;
    expect_error(try_set(&r, edges, 2, &mostly, &r.set), KB_ERR_BUG,
                 "receive rings overlap: of sip0.cube0.pe1, direction E, at 0x50000000 "
                 "(sip0.cube0.pe1.ipcq+0x0) and of sip0.cube0.pe1, direction W, at 0x50000000 "
                 "(sip0.cube0.pe1.ipcq+0x0)");
    assert_int_equal(free_bytes(&r, 1, KB_TCM), 12 * MIB);
    /* And with those of another set. */
    ipcq_set *second;
    expect_ok(try_set(&r, edges, 1, &mostly, &r.set));
    kb_error *err = try_set(&r, edges, 1, &mostly, &second);
    assert_int_equal(kb_error_code(err), KB_ERR_BUG);
    kb_error_free(err);
    ipcq_set_destroy(r.set);
    lies = false;
    assert_int_equal(lie_count, 0);
    rig_fini(&r);
}

/* ---- Directions -------------------------------------------------------------------------- */

static void directions_are_found_by_name(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(1, "parent", 0), edge(1, "a", 2), edge(1, "E", 0),
                               edge(0, "W", 1), edge(2, "b", 1)};
    rig r = RIG(4, edges, &mostly);
    const char *const names[] = {"parent", "a", "E"};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(ipcq_direction(end_of(&r, 1, names[i])), names[i]);
    assert_null(ipcq_find(r.set, pe(1), "W"));
    assert_null(ipcq_find(r.set, pe(1), ""));
    assert_null(ipcq_find(r.set, pe(1), "parents"));
    assert_null(ipcq_find(r.set, pe(3), "E"));
    assert_null(ipcq_find(r.set, (kb_pe){9, 9, 9}, "E"));
    kb_text text = KB_TEXT_INIT;
    ipcq_list_directions(r.set, pe(1), &text);
    expect_text(&text, "parent, a, E");
    ipcq_list_directions(r.set, pe(3), &text);
    expect_text(&text, "");
    assert_true(ipcq_can_send(end_of(&r, 1, "E")) && ipcq_can_receive(end_of(&r, 1, "E")));
    assert_true(ipcq_can_send(end_of(&r, 1, "parent")));
    assert_false(ipcq_can_receive(end_of(&r, 1, "parent")));
    assert_false(ipcq_can_send(end_of(&r, 0, "parent")));
    assert_true(ipcq_can_receive(end_of(&r, 0, "parent")));
    rig_fini(&r);
}

/* ---- Installing -------------------------------------------------------------------------- */

static void members_are_told_of_their_ends(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(3, "W", 0), edge(0, "E", 3), edge(0, "x", 2), edge(2, "y", 0)};
    rig r;
    expect_ok(rig_try(&r, one_router(4), false));
    expect_ok(try_set(&r, edges, 4, &mostly, &r.set));
    size_t count;
    const ipcq_member *members = ipcq_set_members(r.set, &count);
    const uint32_t numbers[] = {0, 2, 3};
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(members[i].pe.pe, numbers[i]);
        assert_int_equal(members[i].bytes, i == 0 ? 16 + 2 * 32 : 16 + 32);
        assert_false(members[i].installed);
    }
    expect_ok(ipcq_install(r.set, pe(2)));
    assert_true(!members[0].installed && members[1].installed && !members[2].installed);
    assert_int_equal(ipcq_set_settings(r.set)->slot_bytes, 4096);
    rig_fini(&r);
}

static void a_pe_is_installed_once_until_it_is_removed(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    for (int mock = 0; mock < 2; mock++) {
        rig r;
        ipcq_settings settings = mostly;
        settings.n_slots = mock ? 0 : 4;
        expect_ok(rig_try(&r, one_router(3), false));
        expect_ok(try_set(&r, edges, 4, &settings, &r.set));
        expect_error(ipcq_remove(r.set, pe(1)), KB_ERR_FAULT,
                     "cannot remove queues at sip0.cube0.pe1: they are not installed");
        expect_ok(ipcq_install(r.set, pe(1)));
        expect_error(ipcq_install(r.set, pe(1)), KB_ERR_FAULT,
                     "cannot install queues at sip0.cube0.pe1: they are already installed");
        expect_ok(ipcq_remove(r.set, pe(1)));
        expect_ok(ipcq_install(r.set, pe(1)));
        expect_error(ipcq_install(r.set, pe(2)), KB_ERR_INPUT,
                     "cannot install queues at sip0.cube0.pe2: the plan has none there");
        rig_fini(&r);
    }
}

/* Two sets of the same plan, installed in any order, have nothing to do with each other. */
static void sets_share_a_pe(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        ipcq_settings settings = mostly;
        settings.buffer = (kb_memory)m;
        rig r = RIG(2, edges, &settings);
        ipcq_set *second;
        expect_ok(try_set(&r, edges, 4, &settings, &second));
        expect_ok(ipcq_install(second, pe(1)));
        expect_ok(ipcq_install(second, pe(0)));
        ipcq_end *a = end_of(&r, 0, "E"), *b = ipcq_find(second, pe(0), "E");
        for (int i = 0; i < 4; i++) {
            send(&r, a, 10);
            send(&r, b, 20);
        }
        assert_false(has_credit(&r, a) || has_credit(&r, b));
        taker first = taker_of(&r, 1, end_of(&r, 1, "W"));
        taker other = taker_of(&r, 1, ipcq_find(second, pe(1), "W"));
        post(&first);
        post_in(second, &other);
        assert_int_equal(first.bytes, 10);
        assert_int_equal(other.bytes, 20);
        /* When the first goes, the other one stays. */
        ipcq_set_destroy(r.set);
        post_in(second, &other);
        assert_int_equal(other.bytes, 40);
        rig_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_in_tcm_and_hbm_are_one_by_one),
        cmocka_unit_test(rings_in_sram_are_one_block_a_cube),
        cmocka_unit_test(a_set_that_does_not_fit_leaves_nothing),
        cmocka_unit_test(machines_beyond_addresses_have_queues),
        cmocka_unit_test(pes_that_are_not_there_are_named),
        cmocka_unit_test(rings_that_overlap_are_found),
        cmocka_unit_test(directions_are_found_by_name),
        cmocka_unit_test(members_are_told_of_their_ends),
        cmocka_unit_test(a_pe_is_installed_once_until_it_is_removed),
        cmocka_unit_test(sets_share_a_pe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
