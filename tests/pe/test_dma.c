/*
 * test_dma.c: what the DMAs of PEs take, by hand. Figures are those of the default machine, in ns:
 * pe_dma 5, crossbar 2, router 1, slice 76, 0.02 for each link of the crossbar; 256 GB/s for links,
 * 204.8 for a slice, and 512 for each direction of the TCM.
 */
#include "pe_rig.h"

/* By PE 0 of cube 0; all moves at once. */
static outcome run(rig *r, const pe_move *moves, size_t count)
{
    outcome o = {.r = r};
    expect_ok(pe_dma_start(r->dma, (kb_pe){0, 0, 0}, "test", moves, count, on_outcome, &o, 5));
    expect_ok(kb_sim_run(r->sim, KB_FOREVER));
    assert_int_equal(o.done, 1);
    assert_null(o.err);
    return o;
}

static void expect_move(kb_location from, kb_location to, uint64_t bytes, bool fill,
                        kb_time overhead, kb_time wire, kb_time drain, kb_time queueing)
{
    rig r = rig_make(default_machine(), false);
    expect_ok(kb_sim_run(r.sim, 3 * KB_NS));
    outcome o = run(&r, &(pe_move){.from = from, .to = to, .bytes = bytes, .fill = fill}, 1);
    assert_int_equal(o.completion.issued, 3 * KB_NS);
    assert_int_equal(o.completion.overhead, overhead);
    assert_int_equal(o.completion.wire, wire);
    assert_int_equal(o.completion.drain, drain);
    assert_int_equal(o.completion.queueing, queueing);
    rig_fini(&r);
}

/*
 * 4 KiB of the own slice. The request passes 5 + 2 ns, .04 of wire, and 16 bytes drain in .0625;
 * the data passes 76 + 2 + 5, .04, and drains in 4096 / 204.8 = 20. So reading takes
 * 90 + .08 + 20.0625.
 *
 * Writing passes 5 + 2 + 76, .04 and 20; but what was read before is at the DMA already: 2 + 76.
 *
 * To fill 4 KiB of the TCM takes 4096 / 512 = 8.
 */
static void four_kib_of_the_own_slice(void **state)
{
    (void)state;
    kb_location slice = place(KB_HBM, 0, 0, 0, 0), far = place(KB_HBM, 0, 0, 0, 1 << 20);
    kb_location tcm = place(KB_TCM, 0, 0, 0, 64);
    expect_move(slice, tcm, 4096, false, 90 * KB_NS, 80 * KB_PS, 20062500, 0);
    expect_move(tcm, slice, 4096, false, 83 * KB_NS, 40 * KB_PS, 20 * KB_NS, 0);
    expect_move(slice, far, 4096, false, 168 * KB_NS, 120 * KB_PS, 40062500, 0);
    expect_move(slice, far, 4096, true, 83 * KB_NS, 40 * KB_PS, 20 * KB_NS, 0);
    expect_move(slice, tcm, 4096, true, 0, 0, 8 * KB_NS, 0);
}

/*
 * The TCM of PE 1, at the same router: 5 + 1 + 5 ns, no wire, 4096 / 256 = 16 to write. To read it
 * a request of .0625 goes there first: 11, and the other DMA sends what was asked for: 11.
 */
static void four_kib_of_another_tcm(void **state)
{
    (void)state;
    kb_location own = place(KB_TCM, 0, 0, 0, 0), other = place(KB_TCM, 0, 0, 1, 0);
    expect_move(own, other, 4096, false, 11 * KB_NS, 0, 16 * KB_NS, 0);
    expect_move(other, own, 4096, false, 22 * KB_NS, 0, 16062500, 0);
}

/* Only the own TCM is at hand: that of a PE of the same number elsewhere is far away. */
static void the_tcm_of_another_cube_or_sip_is_not_the_own_one(void **state)
{
    (void)state;
    static const kb_pe others[] = {{0, 1, 0}, {1, 0, 0}, {0, 0, 1}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        rig r = rig_make(default_machine(), false);
        kb_location other = place(KB_TCM, others[i].sip, others[i].cube, others[i].pe, 0);
        net_route_buffer routes;
        expect_ok(net_route_buffer_init(&routes, r.machine));
        net_order order = net_make_order(&routes, topo_node_at(r.machine, TOPO_PE_DMA, 0, 0, 0),
                                         mem_memories_node(r.memories, &other), 4096, false);
        kb_time alone = net_predict(r.fabric, &order).ended;
        pe_move move = {.from = place(KB_TCM, 0, 0, 0, 0), .to = other, .bytes = 4096};
        assert_int_equal(run(&r, &move, 1).completion.ended, alone);
        net_route_buffer_fini(&routes);
        rig_fini(&r);
    }
}

/* It is read and written there at a time: 512 bytes take 1 ns. Contents are there at once. */
static void the_own_tcm_takes_its_bandwidth(void **state)
{
    (void)state;
    rig r = rig_make(default_machine(), false);
    outcome o = {.r = &r};
    static const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    unsigned char got[8];
    kb_location from = place(KB_TCM, 0, 0, 0, 0), to = place(KB_TCM, 0, 0, 0, 1000);
    expect_ok(mem_memories_write(r.memories, &from, bytes, 8));
    pe_move move = {.from = from, .to = to, .bytes = 512};
    expect_ok(pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "test", &move, 1, on_outcome, &o, 5));
    mem_memories_read(r.memories, &to, got, 8);
    assert_memory_equal(got, bytes, 8);
    assert_int_equal(o.done, 0);
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    assert_int_equal(o.done, 1);
    assert_int_equal(o.completion.ended, KB_NS);
    assert_int_equal(o.completion.drain, KB_NS);
    rig_fini(&r);
}

static void nothing_is_done_at_once(void **state)
{
    (void)state;
    rig r = rig_make(default_machine(), false);
    outcome o = {.r = &r};
    expect_ok(pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "test", NULL, 0, on_outcome, &o, 5));
    assert_int_equal(o.done, 1); /* before any event */
    assert_int_equal(kb_sim_get_stats(r.sim).pending, 0);
    rig_fini(&r);
}

/*
 * 100 and then 4096 bytes are written from the TCM to two slices. They leave over one port: the
 * second starts 100 / 256 = .390625 ns after the first. It ends last, so its overhead and wire are
 * told of: 83 + .04 + 20 + .390625. It waited for bytes of the same call, which is drain.
 */
static void the_last_piece_is_told_of(void **state)
{
    (void)state;
    rig r = rig_make(default_machine(), false);
    pe_move moves[] = {
        {.from = place(KB_TCM, 0, 0, 0, 0), .to = place(KB_HBM, 0, 0, 1, 0), .bytes = 100},
        {.from = place(KB_TCM, 0, 0, 0, 0), .to = place(KB_HBM, 0, 0, 0, 0), .bytes = 4096}};
    outcome o = run(&r, moves, 2);
    assert_int_equal(o.completion.ended, 103430625);
    assert_int_equal(o.completion.queueing, 0);
    assert_int_equal(o.completion.drain, 20390625);
    rig_fini(&r);
}

/*
 * 1 MiB from one slice to another of the cube. Each moves at most 204.8 GB/s, so either way takes
 * 1048576 / 204.8 = 5120 ns and its latency, 90 and 78: one after the other 10408. Overlapped, no
 * more than what is read ahead, 256 KiB, is left to be written when the last byte has been read:
 * 1280 ns and the latencies.
 *
 * Within one slice it is the slice that limits it: 10240 ns and, at the ends, the latencies.
 */
static void reading_and_writing_overlap(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    rig r = rig_make(default_machine(), false);
    pe_move move = {
        .from = place(KB_HBM, 0, 0, 0, 0), .to = place(KB_HBM, 0, 0, 1, 0), .bytes = BYTES};
    outcome o = run(&r, &move, 1);
    assert_true(o.completion.ended > 5120 * KB_NS);
    assert_true(o.completion.ended < (5120 + 1280 + 90 + 78) * KB_NS);
    rig_fini(&r);

    r = rig_make(default_machine(), false);
    move.to = place(KB_HBM, 0, 0, 0, BYTES);
    o = run(&r, &move, 1);
    assert_true(o.completion.ended > 10240 * KB_NS);
    assert_true(o.completion.ended < (10240 + 90 + 78) * KB_NS);
    rig_fini(&r);

    /* Into or out of the TCM it is one way: 5120 ns and the latency of it. */
    r = rig_make(default_machine(), false);
    move.to = place(KB_TCM, 0, 0, 0, 0);
    o = run(&r, &move, 1);
    assert_int_equal(o.completion.ended, 5120 * KB_NS + 90 * KB_NS + 80 * KB_PS + 62500);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_kib_of_the_own_slice),
        cmocka_unit_test(four_kib_of_another_tcm),
        cmocka_unit_test(the_tcm_of_another_cube_or_sip_is_not_the_own_one),
        cmocka_unit_test(the_own_tcm_takes_its_bandwidth),
        cmocka_unit_test(nothing_is_done_at_once),
        cmocka_unit_test(the_last_piece_is_told_of),
        cmocka_unit_test(reading_and_writing_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
