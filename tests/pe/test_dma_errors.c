/* test_dma_errors.c: faults and bugs, calls from inside calls, leaving early, and no memory. */
#include "pe_rig.h"
#include "support/failing_alloc.h"

static const char small_machine[] =
    "system: { sips: { count: 1 } }\n"
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"
    "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 2 }, hbm_gib: 2 }\n";

enum { MOVED = 300000 }; /* bytes: several pieces */
static const uint64_t slice_bytes = (uint64_t)1 << 30;

/* ---- Faults ------------------------------------------------------------------------------ */

/* The first move is fine, the second is not: neither happens. */
static void expect_fault(rig *r, const pe_move *wrong, kb_code code, const char *message)
{
    static const unsigned char seven[16] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
    static const unsigned char zeros[16];
    unsigned char got[16];
    kb_location from = place(KB_HBM, 0, 0, 0, 0), to = place(KB_HBM, 0, 0, 1, 0);
    expect_ok(mem_memories_write(r->memories, &from, seven, 16));
    pe_move moves[] = {{.from = from, .to = to, .bytes = 16}, *wrong};
    outcome o = {.r = r};
    expect_ok(pe_dma_start(r->dma, (kb_pe){0, 0, 1}, "kernel k", moves, 2, on_outcome, &o, 5));
    assert_int_equal(o.done, 1); /* at once */
    expect_error(o.err, code, message);
    assert_int_equal(kb_sim_get_stats(r->sim).pending, 0);
    assert_int_equal(net_get_stats(r->fabric).live, 0);
    mem_memories_read(r->memories, &to, got, 16);
    assert_memory_equal(got, zeros, 16);
}

static void faults_name_who_did_it_and_move_nothing(void **state)
{
    (void)state;
    rig r = rig_make(machine_of(small_machine), false);
    kb_location good = place(KB_HBM, 0, 0, 0, 0);
    kb_location high = place(KB_HBM, 0, 0, 0, slice_bytes - 15);
    kb_location tcm = place(KB_TCM, 0, 0, 1, 12 << 20);
    kb_location beyond = place(KB_HBM, 0, 0, 0, UINT64_MAX - 3);
    kb_location nowhere = place(KB_SRAM, 0, 1, 0, 0);
    kb_location virtual = place(KB_VIRTUAL, 0, 0, 0, 0x100000ff0);
    expect_fault(&r, &(pe_move){.from = high, .to = good, .bytes = 16}, KB_ERR_FAULT,
                 "kernel k on sip0.cube0.pe1: out of bounds: 16 bytes at "
                 "sip0.cube0.pe0.hbm+0x3ffffff1; the capacity of the memory is 1073741824");
    expect_fault(&r, &(pe_move){.from = good, .to = tcm, .bytes = 1}, KB_ERR_FAULT,
                 "kernel k on sip0.cube0.pe1: out of bounds: 1 byte at "
                 "sip0.cube0.pe1.tcm+0xc00000; the capacity of the memory is 12582912");
    expect_fault(&r, &(pe_move){.from = good, .to = beyond, .bytes = 8}, KB_ERR_FAULT,
                 "kernel k on sip0.cube0.pe1: out of bounds: 8 bytes at "
                 "sip0.cube0.pe0.hbm+0xfffffffffffffffc; the capacity of the memory is "
                 "1073741824");
    expect_fault(&r, &(pe_move){.from = good, .to = good, .bytes = UINT64_MAX, .fill = true},
                 KB_ERR_FAULT,
                 "kernel k on sip0.cube0.pe1: out of bounds: 18446744073709551615 bytes at "
                 "sip0.cube0.pe0.hbm+0x0; the capacity of the memory is 1073741824");
    expect_fault(&r, &(pe_move){.from = nowhere, .to = good, .bytes = 8}, KB_ERR_INPUT,
                 "kernel k on sip0.cube0.pe1: cube1 does not exist: a SIP has 1, numbered from "
                 "0");
    expect_fault(&r, &(pe_move){.from = virtual, .to = good, .bytes = 8}, KB_ERR_FAULT,
                 "kernel k on sip0.cube0.pe1: address 0x100000ff0 is not mapped: no tensor is "
                 "mapped");

    /* Mapped up to 0x101000, so it is the 17th byte that is not. */
    mem_extent extent = {.bytes = 4096, .copy_count = 1};
    mem_mapping_spec spec = {.name = "t",
                             .va = 0x100000000,
                             .bytes = 4096,
                             .extents = &extent,
                             .extent_count = 1,
                             .copies = &good,
                             .copy_count = 1};
    mem_mapping_id id;
    expect_ok(mem_mmu_add(r.mmus[0], &spec, &id));
    mem_mmu_install(r.mmus[0], id, 0, 1);
    kb_error *fault = mem_mmu_fault(r.mmus[0], "kernel k", 0, 1, 0x100001000);
    expect_fault(&r, &(pe_move){.from = good, .to = virtual, .bytes = 17}, KB_ERR_FAULT,
                 kb_error_message(fault));
    kb_error_free(fault);
    rig_fini(&r);
}

/* A mapping may say anything; what it says is checked as well. */
static void what_is_mapped_outside_a_memory_is_a_fault(void **state)
{
    (void)state;
    rig r = rig_make(machine_of(small_machine), false);
    mem_extent extent = {.bytes = 4096, .copy_count = 1};
    kb_location copy = place(KB_HBM, 0, 0, 0, slice_bytes - 4095);
    mem_mapping_spec spec = {.name = "t",
                             .va = 0x100000000,
                             .bytes = 4096,
                             .extents = &extent,
                             .extent_count = 1,
                             .copies = &copy,
                             .copy_count = 1};
    mem_mapping_id id;
    expect_ok(mem_mmu_add(r.mmus[0], &spec, &id));
    mem_mmu_install(r.mmus[0], id, 0, 1);
    expect_fault(
        &r, &(pe_move){.to = place(KB_VIRTUAL, 0, 0, 0, 0x100000000), .bytes = 4096, .fill = true},
        KB_ERR_FAULT,
        "kernel k on sip0.cube0.pe1: out of bounds: 4096 bytes at "
        "sip0.cube0.pe0.hbm+0x3ffff001; the capacity of the memory is 1073741824");
    rig_fini(&r);
}

/* Where nothing is read it does not matter where that is. */
static void a_fill_reads_nowhere(void **state)
{
    (void)state;
    rig r = rig_make(machine_of(small_machine), false);
    static const kb_location nowhere[] = {{KB_VIRTUAL, {9, 9, 9}, 0}, {KB_HBM, {9, 9, 9}, 0}};
    for (int i = 0; i < 2; i++) {
        outcome o = {.r = &r};
        pe_move move = {
            .from = nowhere[i], .to = place(KB_HBM, 0, 0, 0, 0), .bytes = 64, .fill = true};
        expect_ok(pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "k", &move, 1, on_outcome, &o, 5));
        expect_ok(kb_sim_run(r.sim, KB_FOREVER));
        assert_int_equal(o.done, 1);
        expect_ok(o.err);
    }
    rig_fini(&r);
}

static void bugs_are_returned(void **state)
{
    (void)state;
    rig r = rig_make(machine_of(small_machine), false);
    outcome o = {.r = &r};
    pe_move move = {.from = place(KB_HBM, 0, 0, 0, 0), .to = place(KB_TCM, 0, 0, 0, 0)};
    expect_error(pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "k", &move, 1, on_outcome, &o, 5),
                 KB_ERR_BUG, "DMA transfer of 0 bytes");
    move.bytes = 1;
    expect_error(pe_dma_start(r.dma, (kb_pe){0, 0, 2}, "k", &move, 1, on_outcome, &o, 5),
                 KB_ERR_BUG, "no such DMA: sip0.cube0.pe2");
    expect_error(pe_dma_start(r.dma, (kb_pe){0, 1, 0}, "k", &move, 1, on_outcome, &o, 5),
                 KB_ERR_BUG, "no such DMA: sip0.cube1.pe0");
    expect_error(pe_dma_start(r.dma, (kb_pe){1, 0, 0}, "k", &move, 1, on_outcome, &o, 5),
                 KB_ERR_BUG, "no such DMA: sip1.cube0.pe0");
    assert_int_equal(o.done, 0);
    rig_fini(&r);
}

/* ---- Calls from inside calls ------------------------------------------------------------- */

typedef struct relay {
    rig *r;
    int calls;
} relay;

static void start_next(relay *y);

static void on_relay(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    relay *y = self;
    (void)arg;
    (void)completion;
    assert_null(err);
    if (++y->calls < 30)
        start_next(y);
}

/* Some have no moves and end at once, so that they start others before they return. */
static void start_next(relay *y)
{
    pe_move moves[2] = {
        {.from = place(KB_TCM, 0, 0, 0, 0), .to = place(KB_TCM, 0, 0, 0, 1 << 20), .bytes = MOVED},
        {.from = place(KB_HBM, 0, 0, 0, 0), .to = place(KB_HBM, 0, 0, 1, 0), .bytes = MOVED}};
    expect_ok(pe_dma_start(y->r->dma, (kb_pe){0, 0, 0}, "k", moves, y->calls % 3 < 2 ? 0 : 2,
                           on_relay, y, 0));
}

static void one_may_start_when_another_is_done(void **state)
{
    (void)state;
    rig r = rig_make(machine_of(small_machine), false);
    relay y = {.r = &r};
    start_next(&y);
    assert_int_equal(y.calls, 2);
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    assert_int_equal(y.calls, 30);
    rig_fini(&r);
}

/* ---- Leaving early, no memory ------------------------------------------------------------ */

static const pe_move all_kinds[] = {
    {.from = {KB_HBM, {0, 0, 0}, 0}, .to = {KB_HBM, {0, 0, 1}, 0}, .bytes = MOVED},
    {.from = {KB_HBM, {0, 0, 1}, MOVED}, .to = {KB_TCM, {0, 0, 0}, 0}, .bytes = MOVED},
    {.from = {KB_TCM, {0, 0, 0}, MOVED}, .to = {KB_SRAM, {0, 0, 0}, 0}, .bytes = MOVED},
    {.to = {KB_HBM, {0, 0, 0}, MOVED}, .bytes = MOVED, .fill = true},
    {.from = {KB_TCM, {0, 0, 0}, 0}, .to = {KB_TCM, {0, 0, 0}, MOVED}, .bytes = MOVED},
    {.to = {KB_TCM, {0, 0, 0}, 2 * MOVED}, .bytes = MOVED, .fill = true},
};
enum { KINDS = sizeof all_kinds / sizeof *all_kinds };

static void a_dma_at_work_can_be_destroyed(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    for (kb_time until = 0; until < 6 * KB_US; until += KB_US / 2) {
        rig r = rig_make(machine_of(small_machine), false);
        outcome o = {.r = &r};
        expect_ok(pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "k", all_kinds, KINDS, on_outcome, &o, 5));
        expect_ok(kb_sim_run(r.sim, until));
        rig_fini(&r);
        assert_int_equal(failing_alloc_live(), before);
    }
}

static topo_machine *shared_machine;
static int failures_seen, successes_seen;

static bool went_well(kb_error *err)
{
    if (!err)
        return true;
    failures_seen++;
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    return false;
}

/* The second call overlaps with itself. */
static bool start_all(rig *r, outcome *o)
{
    static const pe_move shift = {
        .from = {KB_HBM, {0, 0, 0}, 0}, .to = {KB_HBM, {0, 0, 0}, 99}, .bytes = 3 * MOVED};
    return went_well(
               pe_dma_start(r->dma, (kb_pe){0, 0, 0}, "k", all_kinds, KINDS, on_outcome, o, 5)) &&
           went_well(pe_dma_start(r->dma, (kb_pe){0, 0, 1}, "k", &shift, 1, on_outcome, o, 5));
}

static void all_of_it(void)
{
    rig r;
    outcome o = {.r = &r};
    static unsigned char data[3 * MOVED];
    kb_location at = place(KB_HBM, 0, 0, 0, 0);
    if (went_well(rig_try(&r, shared_machine, false)) &&
        went_well(mem_memories_write(r.memories, &at, data, sizeof data)) && start_all(&r, &o) &&
        went_well(kb_sim_run(r.sim, KB_FOREVER))) {
        assert_int_equal(o.done, 2);
        successes_seen++;
    }
    rig_drop(&r);
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    shared_machine = machine_of(small_machine);
    failing_alloc_try_all(all_of_it);
    assert_true(failures_seen > 50);
    assert_true(successes_seen >= 2);
    topo_machine_destroy(shared_machine);
}

/* The linker puts this in the place of pe_units_issue(). */
kb_error *__real_pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op);
kb_error *__wrap_pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op);

static int commands, refused;

kb_error *__wrap_pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op)
{
    if (++commands == refused)
        return kb_error_nomem();
    return __real_pe_units_issue(units, pe, command, op);
}

/*
 * Of what is issued while it starts, an error is returned: nobody is told of what is under way, and
 * it ends. After that the run fails.
 */
static void without_memory_on_the_way_it_ends(void **state)
{
    (void)state;
    refused = 0;
    int at_start = 0, all = 0;
    for (bool done = false; !done; refused++) {
        rig r = rig_make(machine_of(small_machine), false);
        outcome o = {.r = &r};
        commands = 0;
        kb_error *err =
            pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "k", all_kinds, KINDS, on_outcome, &o, 5);
        if (refused == 0)
            at_start = commands;
        bool refused_here = refused > 0 && refused <= at_start;
        assert_int_equal(kb_error_code(err), refused_here ? KB_ERR_HOST : KB_OK);
        kb_error_free(err);
        err = kb_sim_run(r.sim, KB_FOREVER);
        if (refused == 0)
            all = commands;
        bool refused_later = refused > at_start && refused <= all;
        assert_int_equal(kb_error_code(err), refused_later ? KB_ERR_HOST : KB_OK);
        kb_error_free(err);
        assert_int_equal(o.done, !refused_here && !refused_later);
        if (refused_here)
            assert_int_equal(commands, refused); /* what was read is not written any more */
        if (!refused_later) {
            assert_int_equal(net_get_stats(r.fabric).live, 0);
            assert_int_equal(pe_units_under_way(r.units, (kb_pe){0, 0, 0}), 0);
        }
        done = refused > all;
        rig_fini(&r);
    }
    /* 300000 bytes that are read and written go in pieces of 16, 32, 48 and three times 64 KiB, and
     * the rest: 7, each two commands, of which five are issued: 224 KiB of 256. Inside the TCM
     * there are two commands, else one. */
    assert_int_equal(at_start, 5 + 1 + 1 + 1 + 2 + 1);
    assert_int_equal(all, 14 + 1 + 1 + 1 + 2 + 1);
    refused = 0;
}

/* As many calls as it can have at a time, and more, one after the other; refused or not. */
static void memory_is_used_again(void **state)
{
    (void)state;
    rig r = rig_make(machine_of(small_machine), false);
    outcome o = {.r = &r};
    static const pe_move moves[] = {
        {.from = {KB_HBM, {0, 0, 0}, 0}, .to = {KB_HBM, {0, 0, 1}, 0}, .bytes = 1},
        {.from = {KB_TCM, {0, 0, 0}, 0}, .to = {KB_HBM, {0, 0, 1}, 1}, .bytes = 1}};
    size_t blocks = 0;
    for (int i = 0; i < 6 * KB_POOL_CHUNK; i++) {
        commands = 0;
        refused = i % 3; /* none, the first, the second */
        kb_error_free(pe_dma_start(r.dma, (kb_pe){0, 0, 0}, "k", moves, 2, on_outcome, &o, 5));
        expect_ok(kb_sim_run(r.sim, KB_FOREVER));
        if (i == 0)
            blocks = failing_alloc_live();
    }
    refused = 0;
    assert_int_equal(o.done, 2 * KB_POOL_CHUNK);
    assert_int_equal(failing_alloc_live(), blocks);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_name_who_did_it_and_move_nothing),
        cmocka_unit_test(what_is_mapped_outside_a_memory_is_a_fault),
        cmocka_unit_test(a_fill_reads_nowhere),
        cmocka_unit_test(bugs_are_returned),
        cmocka_unit_test(one_may_start_when_another_is_done),
        cmocka_unit_test(a_dma_at_work_can_be_destroyed),
        cmocka_unit_test(without_memory_it_fails_cleanly),
        cmocka_unit_test(without_memory_on_the_way_it_ends),
        cmocka_unit_test(memory_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
