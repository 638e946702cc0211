/*
 * test_dma_sharing.c: copies of the host and commands of kernels on one PE, by hand. They share the
 * channels of the DMA's engines and the bandwidth of the TCM. Reading 4 KiB of the own slice takes
 * 110.1425 ns, of which 90 are overhead, .08 wire and 20.0625 drain; writing them takes 103.04, of
 * which 83 are overhead and .04 wire (test_dma.c has the parts). The TCM passes 512 bytes a ns each
 * way.
 *
 * Checks K10.
 */
#include "pe_rig.h"

#define READ_4K ((kb_time)110142500)
#define WRITE_4K (103040 * KB_PS)

static const kb_pe pe0 = {0, 0, 0};

/* A command of a kernel. -1: not yet. */
typedef struct command_times {
    rig *r;
    kb_time begun, ended;
} command_times;

static kb_error *note_begun(void *self, uint64_t arg)
{
    command_times *times = self;
    (void)arg;
    times->begun = kb_sim_now(times->r->sim);
    return NULL;
}

static void note_ended(void *self, uint64_t arg)
{
    command_times *times = self;
    (void)arg;
    times->ended = kb_sim_now(times->r->sim);
}

static void issue(rig *r, pe_command command, command_times *times)
{
    *times = (command_times){.r = r, .begun = -1, .ended = -1};
    command.begun = note_begun;
    command.ended = note_ended;
    command.self = times;
    command.op.name = "test";
    pe_op op;
    expect_ok(pe_units_issue(r->units, pe0, &command, &op));
}

/* Reads or writes so many bytes of the own slice. */
static void issue_dma(rig *r, kb_unit unit, uint64_t bytes, command_times *times)
{
    mem_rect rect = {.at = place(KB_HBM, 0, 0, 0, 0), .rows = 1, .bytes = bytes};
    issue(r, (pe_command){.unit = unit, .rects = &rect, .rect_count = 1}, times);
}

static void start(rig *r, const pe_move *moves, size_t count, outcome *o)
{
    *o = (outcome){.r = r};
    expect_ok(pe_dma_start(r->dma, pe0, "test", moves, count, on_outcome, o, 5));
}

static pe_move load_of(uint64_t bytes)
{
    return (pe_move){
        .from = place(KB_HBM, 0, 0, 0, 1 << 20), .to = place(KB_TCM, 0, 0, 0, 0), .bytes = bytes};
}

static pe_move store_of(uint64_t bytes)
{
    return (pe_move){
        .from = place(KB_TCM, 0, 0, 0, 0), .to = place(KB_HBM, 0, 0, 0, 1 << 20), .bytes = bytes};
}

static void run(const rig *r)
{
    expect_ok(kb_sim_run(r->sim, KB_FOREVER));
}

static void expect_receipt(const outcome *o, kb_time overhead, kb_time wire, kb_time drain,
                           kb_time queueing)
{
    assert_int_equal(o->done, 1);
    assert_null(o->err);
    assert_int_equal(o->completion.overhead, overhead);
    assert_int_equal(o->completion.wire, wire);
    assert_int_equal(o->completion.drain, drain);
    assert_int_equal(o->completion.queueing, queueing);
}

/* ---- Channels ---------------------------------------------------------------------------- */

/* With one channel the copy begins when the load has ended, and all that it waits is queueing. So
 * with stores, which do not wait for loads. */
static void a_copy_waits_for_the_channel_of_a_kernel(void **state)
{
    (void)state;
    rig r = rig_make(machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL), false);
    command_times load;
    outcome o;
    pe_move copy = load_of(4096);
    issue_dma(&r, KB_UNIT_DMA_READ, 4096, &load);
    start(&r, &copy, 1, &o);
    run(&r);
    assert_int_equal(load.ended, READ_4K);
    assert_int_equal(o.completion.ended, 2 * READ_4K);
    expect_receipt(&o, 90 * KB_NS, 80 * KB_PS, 20062500, READ_4K);
    rig_fini(&r);

    r = rig_make(machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL), false);
    command_times store;
    copy = store_of(4096);
    issue_dma(&r, KB_UNIT_DMA_WRITE, 4096, &store);
    start(&r, &copy, 1, &o);
    run(&r);
    expect_receipt(&o, 83 * KB_NS, 40 * KB_PS, 20 * KB_NS, WRITE_4K);
    rig_fini(&r);
}

/* And the other way round. The kernel is charged for the memory that it waits for, from when its
 * load could begin if there were a channel; the copy itself is no operation of the PE. */
static void a_kernel_waits_for_the_channel_of_a_copy(void **state)
{
    (void)state;
    rig r = rig_make(machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL), false);
    command_times load;
    outcome o;
    pe_move copy = load_of(4096);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_begin(r.log, 0, 0);
    start(&r, &copy, 1, &o);
    expect_ok(kb_sim_run(r.sim, 10 * KB_NS));
    issue_dma(&r, KB_UNIT_DMA_READ, 4096, &load);
    run(&r);
    expect_receipt(&o, 90 * KB_NS, 80 * KB_PS, 20062500, 0);
    assert_int_equal(load.begun, READ_4K);
    assert_int_equal(load.ended, 2 * READ_4K);
    kb_oplog_kernel_end(r.log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_ISSUE], 10 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_LOCAL_MEMORY], 2 * READ_4K - 10 * KB_NS);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_DMA_READ), READ_4K);
    size_t names;
    const kb_op_sum *sum = kb_oplog_sums(r.log, &names);
    assert_int_equal(names, 1);
    assert_int_equal(sum->count, 1);
    rig_fini(&r);
}

/* A kernel that does not use the DMA meanwhile is not charged for a copy. */
static void a_copy_is_no_cause_of_a_kernel(void **state)
{
    (void)state;
    rig r = rig_make(default_machine(), false);
    outcome o;
    pe_move copies[] = {load_of(4096),
                        store_of(4096),
                        {.to = place(KB_TCM, 0, 0, 0, 0), .bytes = 4096, .fill = true}};
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_begin(r.log, 0, 0);
    start(&r, copies, 3, &o);
    run(&r);
    kb_time end = kb_sim_now(r.sim);
    assert_int_equal(o.done, 1);
    kb_oplog_kernel_end(r.log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_ISSUE], end);
    rig_fini(&r);
}

/*
 * Four loads have the four channels. A copy from the TCM of PE 1, which comes over the NOC and
 * meets none of them, begins when the first of them ends, and takes 22 + 16.0625.
 */
static void a_copy_waits_for_the_first_of_four_channels(void **state)
{
    (void)state;
    rig r = rig_make(default_machine(), false);
    command_times loads[4];
    outcome o;
    for (uint64_t i = 0; i < 4; i++)
        issue_dma(&r, KB_UNIT_DMA_READ, 4096 * (i + 1), &loads[i]);
    pe_move copy = load_of(4096);
    copy.from = place(KB_TCM, 0, 0, 1, 0);
    start(&r, &copy, 1, &o);
    run(&r);
    kb_time first = KB_FOREVER;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(loads[i].begun, 0);
        first = loads[i].ended < first ? loads[i].ended : first;
    }
    assert_true(first >= READ_4K);
    assert_int_equal(o.completion.ended, first + 38062500);
    expect_receipt(&o, 22 * KB_NS, 0, 16062500, first);
    rig_fini(&r);
}

/*
 * Of a kernel's load and a copy that wait for one channel, the one issued first begins first; of
 * both at one time, the copy.
 */
static void the_one_issued_first_begins_first(void **state)
{
    (void)state;
    for (int copy_first = 0; copy_first < 2; copy_first++) {
        rig r = rig_make(machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL), false);
        command_times first, load;
        outcome o;
        pe_move copy = load_of(4096);
        issue_dma(&r, KB_UNIT_DMA_READ, 4096, &first);
        if (!copy_first) {
            issue_dma(&r, KB_UNIT_DMA_READ, 4096, &load);
            expect_ok(kb_sim_run(r.sim, KB_NS));
        }
        start(&r, &copy, 1, &o);
        if (copy_first)
            issue_dma(&r, KB_UNIT_DMA_READ, 4096, &load);
        run(&r);
        assert_int_equal(load.begun, copy_first ? 2 * READ_4K : READ_4K);
        assert_int_equal(o.completion.ended, copy_first ? 2 * READ_4K : 3 * READ_4K);
        rig_fini(&r);
    }

    rig r = rig_make(machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL), false);
    command_times first, load;
    outcome o;
    pe_move copy = load_of(4096);
    issue_dma(&r, KB_UNIT_DMA_READ, 4096, &first);
    issue_dma(&r, KB_UNIT_DMA_READ, 4096, &load);
    start(&r, &copy, 1, &o); /* at the same time */
    run(&r);
    assert_int_equal(load.begun, 2 * READ_4K);
    rig_fini(&r);
}

/* A command of a kernel that waits for something else does not hold up a copy. */
static void a_copy_passes_commands_that_wait(void **state)
{
    (void)state;
    rig r = rig_make(machine_with("cube.pe_dma.channels=1", NULL, NULL, NULL), false);
    command_times load, inner;
    outcome o;
    pe_ready never = {.at = KB_FOREVER};
    mem_rect rect = {.at = place(KB_HBM, 0, 0, 0, 0), .rows = 1, .bytes = 64};
    pe_command waits = {
        .unit = KB_UNIT_DMA_READ, .rects = &rect, .rect_count = 1, .inputs = {&never}};
    issue(&r, waits, &load);
    waits.internal = true;
    issue(&r, waits, &inner);
    pe_move copy = load_of(4096);
    start(&r, &copy, 1, &o);
    run(&r);
    assert_int_equal(load.begun, -1);
    assert_int_equal(inner.begun, -1);
    expect_receipt(&o, 90 * KB_NS, 80 * KB_PS, 20062500, 0);
    never.at = kb_sim_now(r.sim);
    pe_units_poll(r.units, pe0);
    run(&r);
    assert_true(load.ended > 0 && inner.ended > 0);
    rig_fini(&r);
}

/*
 * Two pieces of 4 KiB from the TCM of PE 1 to the own slice. Reading one takes 22 + 16.0625 over
 * the NOC, writing it 78 + .04 + 20 over the crossbar. With one channel they are read one after the
 * other, by 38.0625 and 76.125, and written one after the other, by 136.1025 and 234.1425.
 *
 * The overhead of the second is 22 + 78 and its wire .04; all four transfers drain in
 * 2 * (16.0625 + 20) = 72.125, and the rest is queueing: 61.9775.
 */
static void pieces_of_a_copy_wait_for_a_channel(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 2; channels++) {
        rig r = rig_make(
            machine_with(channels == 1 ? "cube.pe_dma.channels=1" : "cube.pe_dma.channels=2", NULL,
                         NULL, NULL),
            false);
        outcome o;
        pe_move moves[2];
        for (uint64_t i = 0; i < 2; i++)
            moves[i] = (pe_move){.from = place(KB_TCM, 0, 0, 1, i * 4096),
                                 .to = place(KB_HBM, 0, 0, 0, i * 4096),
                                 .bytes = 4096};
        start(&r, moves, 2, &o);
        run(&r);
        if (channels == 1)
            expect_receipt(&o, 100 * KB_NS, 40 * KB_PS, 72125000, 61977500);
        else /* two channels are enough */
            assert_int_equal(o.completion.queueing, 0);
        rig_fini(&r);
    }
}

/* ---- The TCM ----------------------------------------------------------------------------- */

/*
 * A copy of 1 MiB into the TCM takes 90.1425 + 5120 ns, and 2048 ns of the TCM. Fifty operations of
 * 100 ns that write all the time leave it 210.1425 ns: it ends 1837.8575 late, which is queueing.
 * The operations run as if they were alone. What a store reads from the TCM goes the other way.
 */
static void copies_pass_the_tcm_when_engines_do_not(void **state)
{
    (void)state;
    for (int stores = 0; stores < 2; stores++) {
        rig r = rig_make(machine_with("cube.pe_cpu.queue_depth=64", NULL, NULL, NULL), false);
        command_times math[50];
        outcome o;
        pe_move copy = stores ? store_of(1 << 20) : load_of(1 << 20);
        start(&r, &copy, 1, &o);
        for (size_t i = 0; i < 50; i++)
            issue(&r, (pe_command){.unit = KB_UNIT_MATH, .time = 100 * KB_NS, .tcm_writes = 51200},
                  &math[i]);
        run(&r);
        for (size_t i = 0; i < 50; i++)
            assert_int_equal(math[i].ended, (kb_time)(i + 1) * 100 * KB_NS);
        if (stores)
            expect_receipt(&o, 83 * KB_NS, 40 * KB_PS, 5120 * KB_NS, 0);
        else
            expect_receipt(&o, 90 * KB_NS, 80 * KB_PS, 5120062500, 1837857500);
        rig_fini(&r);
    }
}

/*
 * 5120 bytes inside the TCM take 10 ns. An engine that writes there for 15 comes first: the copy
 * has read them by 10 and written them by 25. A fill has nothing to read.
 */
static void copies_inside_the_tcm_give_way_to_engines(void **state)
{
    (void)state;
    for (int fill = 0; fill < 2; fill++) {
        rig r = rig_make(default_machine(), false);
        command_times math;
        outcome o;
        pe_move copy = {.from = place(KB_TCM, 0, 0, 0, 0),
                        .to = place(KB_TCM, 0, 0, 0, 8192),
                        .bytes = 5120,
                        .fill = fill};
        start(&r, &copy, 1, &o);
        issue(&r, (pe_command){.unit = KB_UNIT_MATH, .tcm_writes = 7680}, &math);
        run(&r);
        assert_int_equal(math.ended, 15 * KB_NS);
        expect_receipt(&o, 0, 0, 10 * KB_NS, 15 * KB_NS);
        rig_fini(&r);
    }
}

/* What a DMA makes up is not read from the TCM: a fill of 1 MiB ends at 83.04 + 5120 while engines
 * read the TCM all the time. */
static void fills_read_nothing_from_the_tcm(void **state)
{
    (void)state;
    rig r = rig_make(default_machine(), false);
    command_times math;
    outcome o;
    pe_move fill = store_of(1 << 20);
    fill.fill = true;
    issue(&r, (pe_command){.unit = KB_UNIT_MATH, .tcm_reads = 6000 * 512}, &math);
    start(&r, &fill, 1, &o);
    run(&r);
    assert_int_equal(math.ended, 6000 * KB_NS);
    expect_receipt(&o, 83 * KB_NS, 40 * KB_PS, 5120 * KB_NS, 0);
    rig_fini(&r);
}

/* With a TCM of 128 GB/s 1 MiB takes 8192 ns of it, more than the 5210 of the fabric. That limits
 * the copy, and nothing delays it: it is drain. */
static void a_slow_tcm_limits_copies(void **state)
{
    (void)state;
    rig r = rig_make(machine_with("cube.pe_tcm.bw_gbs=128", NULL, NULL, NULL), false);
    outcome o;
    pe_move copy = load_of(1 << 20);
    start(&r, &copy, 1, &o);
    run(&r);
    assert_int_equal(o.completion.ended, 8192 * KB_NS);
    assert_int_equal(o.completion.queueing, 0);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_waits_for_the_channel_of_a_kernel),
        cmocka_unit_test(a_kernel_waits_for_the_channel_of_a_copy),
        cmocka_unit_test(a_copy_is_no_cause_of_a_kernel),
        cmocka_unit_test(a_copy_waits_for_the_first_of_four_channels),
        cmocka_unit_test(the_one_issued_first_begins_first),
        cmocka_unit_test(a_copy_passes_commands_that_wait),
        cmocka_unit_test(pieces_of_a_copy_wait_for_a_channel),
        cmocka_unit_test(copies_pass_the_tcm_when_engines_do_not),
        cmocka_unit_test(copies_inside_the_tcm_give_way_to_engines),
        cmocka_unit_test(fills_read_nothing_from_the_tcm),
        cmocka_unit_test(a_slow_tcm_limits_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
