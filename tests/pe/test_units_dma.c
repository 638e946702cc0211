/*
 * test_units_dma.c: DMA commands, by hand. On the default machine reading 4 KiB of the own slice
 * takes 110.1425 ns and writing them 103.04 (test_dma.c has the parts); the TCM passes 512 bytes a
 * ns each way.
 */
#include "units_rig.h"

#define READ_4K ((kb_time)110142500)
#define WRITE_4K (103040 * KB_PS)

static kb_time foresee(unit_rig *r, const mem_rect *rect, bool read)
{
    net_route_buffer routes;
    expect_ok(net_route_buffer_init(&routes, r->machine));
    net_order order =
        net_make_order(&routes, topo_node_at(r->machine, TOPO_PE_DMA, 0, 0, 0),
                       mem_memories_node(r->memories, &rect->at), mem_rect_bytes(rect), read);
    kb_time time = net_predict(r->fabric, &order).ended;
    net_route_buffer_fini(&routes);
    return time;
}

static void a_lone_transfer_takes_what_the_fabric_takes(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t a = read_slice(&r, 0, 4096);
    run_all(&r);
    size_t b = write_slice(&r, 0, 4096);
    run_all(&r);
    expect_times(&r, a, 0, READ_4K);
    expect_times(&r, b, READ_4K, READ_4K + WRITE_4K);
    unit_rig_fini(&r);
}

/* Rectangles of one memory go together, whatever is between them in the list. Those of cube 1 come
 * over the NOC, and hold up nothing of the own slice. */
static void there_is_one_transfer_for_each_memory(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rects[] = {
        bytes_at(KB_HBM, 0, 0, 0, 0, 1024),      bytes_at(KB_HBM, 0, 1, 0, 512, 1000),
        bytes_at(KB_HBM, 0, 0, 0, 1 << 20, 512), bytes_at(KB_HBM, 0, 0, 0, 0, 0),
        bytes_at(KB_HBM, 0, 1, 0, 4096, 24),     bytes_at(KB_HBM, 0, 0, 0, 8192, 512),
    };
    rects[2].rows = 5; /* 2560 */
    rects[2].stride = 4096;
    mem_rect far = bytes_at(KB_HBM, 0, 1, 0, 0, 1024);
    pe_command command = {.unit = KB_UNIT_DMA_READ, .rects = rects, .rect_count = 6};
    size_t a = issue(&r, command);
    memset(rects, 0xff, sizeof rects); /* they were copied */
    run_all(&r);
    kb_time alone = foresee(&r, &far, true);
    assert_true(alone > READ_4K);
    expect_times(&r, a, 0, alone);
    assert_int_equal(net_get_stats(r.fabric).transfers, 2);
    unit_rig_fini(&r);
}

/* The TCM of PE 1: 11 + 16 ns to write; the request before reading it takes 11.0625 more. */
static void the_tcm_of_another_pe_is_reached_by_the_noc(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rect = bytes_at(KB_TCM, 0, 0, 1, 0, 4096);
    size_t a = issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = &rect, .rect_count = 1});
    run_all(&r);
    size_t b = issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = &rect, .rect_count = 1});
    run_all(&r);
    expect_times(&r, a, 0, 27 * KB_NS);
    expect_times(&r, b, 27 * KB_NS, 65062500);
    unit_rig_fini(&r);
}

/* Bytes within the own TCM are read there and written there: 5120 in 10 ns. The second command
 * stands behind the first at the TCM; an engine behind both. */
static void the_own_tcm_takes_its_bandwidth(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rects[] = {bytes_at(KB_TCM, 0, 0, 0, 0, 5120), bytes_at(KB_TCM, 0, 0, 0, 9999, 2560)};
    size_t a = issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = rects, .rect_count = 1});
    size_t b =
        issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = rects + 1, .rect_count = 1});
    size_t c = issue(&r, (pe_command){.unit = KB_UNIT_MATH, .tcm_reads = 512});
    size_t d = issue(&r, (pe_command){.unit = KB_UNIT_GEMM, .tcm_writes = 512});
    run_all(&r);
    expect_times(&r, a, 0, 10 * KB_NS);
    expect_times(&r, b, 0, 15 * KB_NS);
    expect_times(&r, c, 0, 16 * KB_NS);
    expect_times(&r, d, 0, 16 * KB_NS);
    assert_int_equal(net_get_stats(r.fabric).transfers, 0);
    unit_rig_fini(&r);
}

/* ---- The TCM while something streams ----------------------------------------------------- */

/*
 * A load of 1 MiB takes 90.1425 + 5120 ns, and 2048 ns of the TCM. Fifty operations of 100 ns that
 * write all the time run meanwhile as if they were alone: that leaves the load only 210.1425 ns of
 * the TCM, so it ends 1837.8575 late.
 */
static void loads_pass_the_tcm_when_engines_do_not(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        unit_rig r;
        unit_rig_make(&r, machine_with("cube.pe_cpu.queue_depth=64", NULL, NULL, NULL));
        size_t load = read_slice(&r, 0, 1 << 20), first = r.entries;
        for (size_t i = 0; i < 50; i++)
            (void)issue(&r, (pe_command){.unit = KB_UNIT_MATH,
                                         .time = 100 * KB_NS,
                                         .tcm_writes = busy ? 51200 : 25600});
        run_all(&r);
        for (size_t i = 0; i < 50; i++)
            assert_int_equal(r.diary[first + i].ended, (kb_time)(i + 1) * 100 * KB_NS);
        kb_time alone = 5210142500, late = 1837857500;
        expect_times(&r, load, 0, busy ? alone + late : alone);
        unit_rig_fini(&r);
    }
}

/*
 * Something writes to the TCM for 105 ns. 4 KiB that come after 110.1425 find 5.1425 ns of the TCM
 * for the 8 that they need, so they would be there at 113. But engines come first: one that writes
 * from 111 to 112 is not delayed, and the load ends at 114.
 */
static void what_did_not_pass_goes_on(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t m = issue(&r, (pe_command){.unit = KB_UNIT_MATH, .tcm_writes = 53760});
    size_t load = read_slice(&r, 0, 4096);
    expect_ok(kb_sim_run(r.sim, 111 * KB_NS));
    size_t g = issue(&r, (pe_command){.unit = KB_UNIT_GEMM, .tcm_writes = 512});
    run_all(&r);
    expect_times(&r, m, 0, 105 * KB_NS);
    expect_times(&r, load, 0, 114 * KB_NS);
    expect_times(&r, g, 111 * KB_NS, 112 * KB_NS);
    unit_rig_fini(&r);
}

/*
 * The TCM is busy from 2600 to 5600 ns, but before that the load of 1 MiB had more than the 2048 ns
 * that it needs. A load that came and went in between has taken 8 of them, and changes nothing.
 */
static void time_is_kept_for_the_oldest_stream(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t load = read_slice(&r, 0, 1 << 20);
    expect_ok(kb_sim_run(r.sim, 2500 * KB_NS));
    mem_rect rect = bytes_at(KB_TCM, 0, 0, 1, 0, 4096);
    size_t brief =
        issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = &rect, .rect_count = 1});
    expect_ok(kb_sim_run(r.sim, 2600 * KB_NS));
    (void)issue(&r, (pe_command){.unit = KB_UNIT_MATH, .tcm_writes = 3000 * 512});
    run_all(&r);
    assert_int_equal(r.diary[brief].ended, 2538062500);
    assert_int_equal(r.diary[load].ended, 5210142500);
    unit_rig_fini(&r);
}

/* With a TCM of 128 GB/s 1 MiB takes 8192 ns of it, more than the 5210 of the fabric; two of them,
 * one after the other or at a time, 16384. Stores and loads have a direction each. */
static void a_slow_tcm_limits_loads(void **state)
{
    (void)state;
    static const char *const channels[] = {"cube.pe_dma.channels=1", "cube.pe_dma.channels=4"};
    for (int i = 0; i < 2; i++) {
        unit_rig r;
        unit_rig_make(&r, machine_with("cube.pe_tcm.bw_gbs=128", channels[i], NULL, NULL));
        size_t a = read_slice(&r, 0, 1 << 20);
        run_all(&r);
        assert_int_equal(r.diary[a].ended, 8192 * KB_NS);
        unit_rig_fini(&r);
        unit_rig_make(&r, machine_with("cube.pe_tcm.bw_gbs=128", channels[i], NULL, NULL));
        mem_rect from = bytes_at(KB_TCM, 0, 0, 1, 0, 1 << 20);
        mem_rect to = bytes_at(KB_TCM, 0, 0, 1, 1 << 20, 1 << 20);
        (void)read_slice(&r, 0, 1 << 20);
        (void)issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = &from, .rect_count = 1});
        size_t store =
            issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = &to, .rect_count = 1});
        run_all(&r);
        expect_times(&r, store, 0, 8192 * KB_NS);
        assert_int_equal(kb_sim_now(r.sim), 16384 * KB_NS);
        unit_rig_fini(&r);
    }
}

/* ---- Channels ---------------------------------------------------------------------------- */

/* One at a time: twice the time of one. Reads and writes do not wait for each other. */
static void a_channel_carries_one_command(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL));
    mem_rect far = bytes_at(KB_TCM, 0, 0, 1, 0, 4096);
    size_t a = read_slice(&r, 0, 4096), b = read_slice(&r, 4096, 4096);
    size_t c = issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = &far, .rect_count = 1});
    run_all(&r);
    expect_times(&r, a, 0, READ_4K);
    expect_times(&r, b, READ_4K, 2 * READ_4K);
    expect_times(&r, c, 0, 27 * KB_NS);
    unit_rig_fini(&r);
}

/* The fifth of five begins when one of the four before it has ended. */
static void there_are_four_channels(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    for (uint64_t i = 0; i < 5; i++)
        (void)read_slice(&r, i * 65536, 4096 * (i + 1));
    run_all(&r);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(r.diary[i].begun, 0);
    kb_time first_end = KB_FOREVER;
    for (size_t i = 0; i < 4; i++)
        first_end = r.diary[i].ended < first_end ? r.diary[i].ended : first_end;
    assert_int_equal(r.diary[4].begun, first_end);
    unit_rig_fini(&r);
}

/* ---- The same bytes ---------------------------------------------------------------------- */

static void expect_second(kb_unit first, kb_unit second, uint64_t offset, kb_time begun)
{
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rect;
    (void)issue(&r, slice_command(first, &rect, 0, 4096));
    size_t b = issue(&r, slice_command(second, &rect, offset, 4096));
    run_all(&r);
    assert_int_equal(r.diary[b].begun, begun);
    if (begun > 0)
        assert_int_equal(r.diary[b].ended,
                         begun + (second == KB_UNIT_DMA_READ ? READ_4K : WRITE_4K));
    unit_rig_fini(&r);
}

static void commands_with_the_same_bytes_keep_their_order(void **state)
{
    (void)state;
    const kb_unit reads = KB_UNIT_DMA_READ, writes = KB_UNIT_DMA_WRITE;
    expect_second(writes, reads, 0, WRITE_4K);
    expect_second(reads, writes, 0, READ_4K);
    expect_second(writes, writes, 0, WRITE_4K);
    expect_second(writes, reads, 4095, WRITE_4K); /* one byte is enough */
    expect_second(reads, reads, 0, 0);
    expect_second(writes, reads, 4096, 0);
    expect_second(reads, writes, 4096, 0);
    expect_second(writes, writes, 4096, 0);
}

/* Of another memory at the same offset, and of other PEs, no command waits. */
static void only_the_same_memory_and_the_same_pe_count(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect own = bytes_at(KB_HBM, 0, 0, 0, 0, 4096), other = bytes_at(KB_HBM, 0, 0, 1, 0, 4096);
    mem_rect both[] = {bytes_at(KB_SRAM, 0, 0, 0, 0, 64), bytes_at(KB_HBM, 0, 0, 0, 4000, 64),
                       bytes_at(KB_SRAM, 0, 0, 0, 4096, 64)};
    pe_command command = {.unit = KB_UNIT_DMA_WRITE, .rects = &own, .rect_count = 1};
    size_t a = issue(&r, command);
    command = (pe_command){.unit = KB_UNIT_DMA_READ, .rects = &other, .rect_count = 1};
    size_t b = issue(&r, command);
    command.rects = &own;
    size_t c = issue_at(&r, (kb_pe){0, 0, 1}, command);
    command.rects = both; /* in more memories, one of them the same */
    command.rect_count = 3;
    size_t d = issue(&r, command);
    run_all(&r);
    assert_int_equal(r.diary[b].begun, 0);
    assert_int_equal(r.diary[c].begun, 0);
    assert_int_equal(r.diary[d].begun, r.diary[a].ended);
    unit_rig_fini(&r);
}

/* Which of its rectangles is first in the list, or in memory, does not matter. */
static void all_rectangles_count(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        unit_rig r;
        unit_rig_make(&r, default_machine());
        mem_rect rects[] = {bytes_at(KB_HBM, 0, 0, 0, 8192, 64),
                            bytes_at(KB_HBM, 0, 0, 0, 4096, 64),
                            bytes_at(KB_HBM, 0, 0, 0, 12288, 64)};
        size_t a =
            issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = rects, .rect_count = 3});
        size_t b = read_slice(&r, 4096 * (i + 1), 8), c = write_slice(&r, 4096 * (i + 1) + 64, 8);
        run_all(&r);
        assert_int_equal(r.diary[b].begun, r.diary[a].ended);
        assert_int_equal(r.diary[c].begun, 0);
        unit_rig_fini(&r);
    }
}

/* One that waits holds up those behind it in its unit, not in others. */
static void a_command_that_waits_blocks_its_unit(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t a = write_slice(&r, 0, 4096), b = read_slice(&r, 0, 4096), c = read_slice(&r, 9000, 8);
    size_t d = write_slice(&r, 9100, 8);
    run_all(&r);
    assert_int_equal(r.diary[b].begun, r.diary[a].ended);
    assert_int_equal(r.diary[c].begun, r.diary[a].ended);
    assert_int_equal(r.diary[d].begun, 0);
    unit_rig_fini(&r);
}

/* ---- The log ----------------------------------------------------------------------------- */

typedef struct records {
    size_t count;
    kb_op ops[8];
} records;

static void keep(void *self, const kb_op *op)
{
    records *kept = self;
    kept->ops[kept->count++] = *op;
}

/*
 * A kernel reads 4 KiB of its slice and 4 KiB of cube 1 at once, and later both with one command:
 * while both are outstanding each has half of the time, then what is left of the far ones. So it is
 * 110.1425 / 2 for the near ones, both times.
 */
static void dmas_are_logged(void **state)
{
    (void)state;
    unit_rig r;
    records kept = {0};
    unit_rig_make(&r, default_machine());
    kb_oplog_watch(r.log, keep, &kept);
    mem_rect rects[] = {bytes_at(KB_HBM, 0, 0, 0, 0, 4096), bytes_at(KB_HBM, 0, 1, 0, 0, 4096)};
    pe_command command = {.unit = KB_UNIT_DMA_READ, .rect_count = 1, .op = {.bytes = 99}};
    kb_time alone = foresee(&r, &rects[1], true);
    kb_oplog_kernel_begin(r.log, 0, 0);
    command.rects = rects;
    (void)issue(&r, command);
    command.rects = rects + 1;
    (void)issue(&r, command);
    run_all(&r);
    command.rects = rects;
    command.rect_count = 2;
    (void)issue(&r, command);
    run_all(&r);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_LOCAL_MEMORY], 2 * (READ_4K / 2));
    assert_int_equal(causes[KB_CAUSE_OTHER_CUBES], 2 * (alone - READ_4K / 2));
    assert_int_equal(kb_oplog_timeline(r.log).bytes[KB_CAUSE_OTHER_CUBES], 2 * 4096);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_DMA_READ), 2 * alone);
    assert_int_equal(kept.count, 3);
    assert_true(kept.ops[0].bytes == 4096 && kept.ops[0].end == READ_4K);
    assert_true(kept.ops[1].bytes == 4096 && kept.ops[1].end == alone);
    assert_true(kept.ops[2].bytes == 8192 && kept.ops[2].start == alone);
    assert_true(kept.ops[2].unit == KB_UNIT_DMA_READ);
    unit_rig_fini(&r);
}

/*
 * One command that reads 1 KiB of its slice, and 3 KiB of another SIP, in two places: these come
 * back as one transfer. Near bytes have a quarter of the time until they are there.
 */
static void a_command_waits_for_each_memory_by_itself(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rects[] = {bytes_at(KB_HBM, 0, 0, 0, 0, 1024), bytes_at(KB_HBM, 1, 3, 0, 0, 1024),
                        bytes_at(KB_HBM, 1, 3, 0, 8192, 2048)};
    mem_rect far = bytes_at(KB_HBM, 1, 3, 0, 0, 3072);
    kb_time near_end = foresee(&r, &rects[0], true), far_end = foresee(&r, &far, true);
    kb_oplog_kernel_begin(r.log, 0, 0);
    size_t a = issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = rects, .rect_count = 3});
    run_all(&r);
    expect_times(&r, a, 0, far_end);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_LOCAL_MEMORY], near_end / 4);
    assert_int_equal(causes[KB_CAUSE_OTHER_SIPS], far_end - near_end / 4);
    unit_rig_fini(&r);
}

/*
 * 27 ns to the TCM of another PE of the cube; 10 ns of the own TCM for 5120 bytes. Then a load as
 * in loads_pass_the_tcm_when_engines_do_not: the engine works for 5000, the bytes are there
 * 210.1425 later, and have passed the TCM another 1837.8575 later.
 */
static void the_tcm_is_waited_for_too(void **state)
{
    (void)state;
    unit_rig r;
    kb_time_sum causes[KB_CAUSES] = {0};
    unit_rig_make(&r, machine_with("cube.pe_cpu.queue_depth=64", NULL, NULL, NULL));
    mem_rect other = bytes_at(KB_TCM, 0, 0, 1, 0, 4096), own = bytes_at(KB_TCM, 0, 0, 0, 0, 5120);
    kb_oplog_kernel_begin(r.log, 0, 0);
    (void)issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = &other, .rect_count = 1});
    run_all(&r);
    (void)issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = &own, .rect_count = 1});
    run_all(&r);
    (void)read_slice(&r, 0, 1 << 20);
    for (size_t i = 0; i < 50; i++)
        (void)issue(&r,
                    (pe_command){.unit = KB_UNIT_MATH, .time = 100 * KB_NS, .tcm_writes = 51200});
    run_all(&r);
    kb_oplog_kernel_end(r.log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_CUBE_PES], 27 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_VECTOR], 5000 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_LOCAL_MEMORY], 210142500);
    assert_int_equal(causes[KB_CAUSE_TCM], 10 * KB_NS + 1837857500);
    unit_rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_transfer_takes_what_the_fabric_takes),
        cmocka_unit_test(there_is_one_transfer_for_each_memory),
        cmocka_unit_test(the_tcm_of_another_pe_is_reached_by_the_noc),
        cmocka_unit_test(the_own_tcm_takes_its_bandwidth),
        cmocka_unit_test(loads_pass_the_tcm_when_engines_do_not),
        cmocka_unit_test(what_did_not_pass_goes_on),
        cmocka_unit_test(time_is_kept_for_the_oldest_stream),
        cmocka_unit_test(a_slow_tcm_limits_loads),
        cmocka_unit_test(a_channel_carries_one_command),
        cmocka_unit_test(there_are_four_channels),
        cmocka_unit_test(commands_with_the_same_bytes_keep_their_order),
        cmocka_unit_test(only_the_same_memory_and_the_same_pe_count),
        cmocka_unit_test(all_rectangles_count),
        cmocka_unit_test(a_command_that_waits_blocks_its_unit),
        cmocka_unit_test(dmas_are_logged),
        cmocka_unit_test(a_command_waits_for_each_memory_by_itself),
        cmocka_unit_test(the_tcm_is_waited_for_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
