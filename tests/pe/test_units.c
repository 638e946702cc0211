/*
 * test_units.c: engines and the TCM, by hand. The TCM of the default machine passes 512 bytes a ns
 * each way, so 51,200 take 100 ns.
 */
#include "units_rig.h"

static pe_command math(int64_t ns, uint64_t reads, uint64_t writes)
{
    return (pe_command){
        .unit = KB_UNIT_MATH, .time = ns * KB_NS, .tcm_reads = reads, .tcm_writes = writes};
}

static pe_command gemm(int64_t ns, int64_t tail_ns, uint64_t reads, uint64_t writes)
{
    return (pe_command){.unit = KB_UNIT_GEMM,
                        .time = ns * KB_NS,
                        .tail = tail_ns * KB_NS,
                        .tcm_reads = reads,
                        .tcm_writes = writes};
}

static pe_command after(pe_command command, const unit_rig *r, size_t number)
{
    command.after[2] = r->diary[number].op;
    return command;
}

/* Its time is known and its bytes pass meanwhile. It is begun at once. */
static void a_lone_command_takes_its_time(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    expect_ok(kb_sim_run(r.sim, 3 * KB_NS));
    assert_int_equal(pe_units_under_way(r.units, (kb_pe){0, 0, 0}), 0);
    size_t m = issue(&r, math(68, 16384, 8192)); /* 32 and 16 ns of the TCM */
    assert_int_equal(r.diary[m].begun, 3 * KB_NS);
    assert_false(pe_units_is_done(r.units, r.diary[m].op));
    assert_int_equal(pe_units_under_way(r.units, (kb_pe){0, 0, 0}), 1);
    assert_int_equal(pe_units_under_way(r.units, (kb_pe){0, 0, 1}), 0);
    run_all(&r);
    expect_times(&r, m, 3 * KB_NS, 71 * KB_NS);
    assert_int_equal(pe_units_under_way(r.units, (kb_pe){0, 0, 0}), 0);
    assert_true(pe_units_is_done(r.units, 0));
    unit_rig_fini(&r);
}

/* What takes no time is done before issuing it returns. */
static void nothing_takes_no_time(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t m = issue(&r, math(0, 0, 0)), g = issue(&r, gemm(0, 0, 0, 0));
    size_t d = issue(&r, (pe_command){.unit = KB_UNIT_DMA_READ});
    expect_times(&r, m, 0, 0);
    expect_times(&r, g, 0, 0);
    expect_times(&r, d, 0, 0);
    assert_int_equal(kb_sim_get_stats(r.sim).pending, 0);
    unit_rig_fini(&r);
}

/* 51,200 bytes take 100 ns, each way at the same time: an engine of 10 ns takes 100. */
static void the_tcm_may_take_longer_than_the_engine(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t a = issue(&r, math(10, 51200, 25600)), b = issue(&r, math(10, 25600, 51200));
    run_all(&r);
    expect_times(&r, a, 0, 100 * KB_NS);
    expect_times(&r, b, 100 * KB_NS, 200 * KB_NS); /* the engine was occupied so long */
    unit_rig_fini(&r);
}

/*
 * All at 0. The matrix engine's reads stand behind those of the vector engine: 100 + 50; its writes
 * have the TCM for themselves.
 */
static void units_share_the_tcm(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t m = issue(&r, math(10, 51200, 0)), g = issue(&r, gemm(20, 0, 25600, 51200));
    size_t other = issue_at(&r, (kb_pe){0, 0, 1}, math(10, 51200, 0));
    run_all(&r);
    expect_times(&r, m, 0, 100 * KB_NS);
    expect_times(&r, g, 0, 150 * KB_NS);
    expect_times(&r, other, 0, 100 * KB_NS); /* another PE has another TCM */
    unit_rig_fini(&r);
}

/*
 * The engine is free after 64 ns and the result there after 254. The second command begins at 64;
 * the third comes after the result of the first, and the fourth behind the third, although it waits
 * for nothing else.
 */
static void the_tail_of_one_overlaps_the_next(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t a = issue(&r, gemm(64, 190, 0, 0)), b = issue(&r, gemm(64, 190, 0, 0));
    size_t c = issue(&r, after(gemm(64, 0, 0, 0), &r, a)), d = issue(&r, gemm(1, 0, 0, 0));
    run_all(&r);
    expect_times(&r, a, 0, 254 * KB_NS);
    expect_times(&r, b, 64 * KB_NS, 318 * KB_NS);
    expect_times(&r, c, 254 * KB_NS, 318 * KB_NS);
    expect_times(&r, d, 318 * KB_NS, 319 * KB_NS);
    unit_rig_fini(&r);
}

/* Bytes that pass in the tail cost nothing more; but the engine is occupied until they are through.
 */
static void the_tail_hides_the_tcm(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t a = issue(&r, gemm(50, 100, 51200, 0)), b = issue(&r, gemm(50, 20, 51200, 0));
    run_all(&r);
    expect_times(&r, a, 0, 150 * KB_NS);           /* 50 + 100; occupied to 100 */
    expect_times(&r, b, 100 * KB_NS, 200 * KB_NS); /* 170, but bytes to 200 */
    unit_rig_fini(&r);
}

/* Units overlap, each in its own order: the vector engine's first waits for the matrix engine, and
 * its second with it. */
static void each_unit_keeps_its_order(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t g = issue(&r, gemm(30, 0, 0, 0)), a = issue(&r, after(math(10, 0, 0), &r, g));
    size_t b = issue(&r, math(10, 0, 0)), h = issue(&r, gemm(30, 0, 0, 0));
    run_all(&r);
    expect_times(&r, g, 0, 30 * KB_NS);
    expect_times(&r, a, 30 * KB_NS, 40 * KB_NS);
    expect_times(&r, b, 40 * KB_NS, 50 * KB_NS);
    expect_times(&r, h, 30 * KB_NS, 60 * KB_NS);
    unit_rig_fini(&r);
}

/* One may come after several, after some twice, after what is done, and after those of other PEs.
 */
static void a_command_comes_after_all_it_names(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t done = issue(&r, math(0, 0, 0)), a = issue(&r, gemm(30, 0, 0, 0));
    size_t b = issue_at(&r, (kb_pe){1, 2, 3}, math(50, 0, 0));
    pe_op first = r.diary[a].op, second = r.diary[b].op;
    pe_command last = math(10, 0, 0);
    memcpy(last.after, (pe_op[PE_MAX_INPUTS]){r.diary[done].op, first, second, first, second},
           sizeof last.after);
    size_t c = issue(&r, last);
    run_all(&r);
    expect_times(&r, c, 50 * KB_NS, 60 * KB_NS);
    unit_rig_fini(&r);
}

/* ---- Queues ------------------------------------------------------------------------------ */

enum { PROGRAM = 5 };

/* Issues commands to one unit as soon as there is room, and notes its clock each time. */
typedef struct program {
    unit_rig *r;
    pe_command command;
    kb_time issued[PROGRAM];
    size_t first; /* page in the diary */
} program;

static void issue_program(kb_co *co, void *arg)
{
    program *p = arg;
    pe_cpu *cpu = pe_units_cpu(p->r->units, (kb_pe){0, 0, 0});
    pe_cpu_begin(cpu, co);
    p->first = p->r->entries;
    for (size_t i = 0; i < PROGRAM; i++) {
        pe_cpu_await_room(cpu, p->command.unit);
        p->issued[i] = cpu->clock;
        pe_command command = p->command;
        command.issued = cpu->clock;
        size_t number = issue(p->r, command);
        assert_int_equal(number, p->first + i);
    }
    pe_cpu_end(cpu);
}

/*
 * Commands of 10 ns with tails of 25, in a queue of two. The first begins at once, so there is room
 * until two others wait. The next one is issued when the second begins, at 10 ns, and then every 10
 * ns. Others that are internal take no room of the program's: they stand behind what was issued
 * before them, and occupy the engine for 1 ns at 30, before the fourth, which then begins at 31.
 */
static void a_full_queue_has_no_room(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, machine_with("cube.pe_cpu.queue_depth=2", NULL, NULL, NULL));
    program p = {.r = &r, .command = gemm(10, 25, 0, 0)};
    expect_ok(kb_co_spawn(r.sim, NULL, issue_program, &p, NULL));
    expect_ok(kb_sim_run(r.sim, 5 * KB_NS));
    assert_int_equal(r.entries, 3); /* no room for the fourth */
    pe_command inner = gemm(1, 0, 0, 0);
    inner.internal = true;
    r.entries = PROGRAM; /* the program's come first in the diary */
    size_t within = issue(&r, inner);
    r.entries = 3;
    expect_ok(kb_sim_run(r.sim, 10 * KB_NS));
    assert_int_equal(r.entries, 4);
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    static const kb_time issued[PROGRAM] = {0, 0, 0, 10, 20}, begun[PROGRAM] = {0, 10, 20, 31, 41};
    for (size_t i = 0; i < PROGRAM; i++) {
        assert_int_equal(p.issued[i], issued[i] * KB_NS);
        expect_times(&r, i, begun[i] * KB_NS, (begun[i] + 35) * KB_NS);
    }
    expect_times(&r, within, 30 * KB_NS, 31 * KB_NS);
    unit_rig_fini(&r);
}

/* The queues of the DMA: one channel, and room for two that wait. A load takes 110.1425 ns. */
static void a_full_queue_of_the_dma_has_no_room(void **state)
{
    (void)state;
    const kb_time load = 110142500;
    unit_rig r;
    unit_rig_make(&r,
                  machine_with("cube.pe_cpu.queue_depth=2", "cube.pe_dma.channels=1", NULL, NULL));
    mem_rect rect;
    program p = {.r = &r, .command = slice_command(KB_UNIT_DMA_READ, &rect, 0, 4096)};
    expect_ok(kb_co_spawn(r.sim, NULL, issue_program, &p, NULL));
    run_all(&r);
    const kb_time issued[PROGRAM] = {0, 0, 0, load, 2 * load};
    for (size_t i = 0; i < PROGRAM; i++) {
        assert_int_equal(p.issued[i], issued[i]);
        expect_times(&r, i, (kb_time)i * load, (kb_time)(i + 1) * load);
    }
    unit_rig_fini(&r);
}

typedef struct watcher {
    unit_rig *r;
    size_t woken;
    kb_time at[64];
} watcher;

static void watch(kb_co *co, void *arg)
{
    watcher *w = arg;
    pe_cpu *cpu = pe_units_cpu(w->r->units, (kb_pe){0, 0, 0});
    pe_cpu_begin(cpu, co);
    for (;;) {
        pe_cpu_await_progress(cpu, 70 * KB_NS);
        assert_int_equal(cpu->clock, kb_sim_now(w->r->sim));
        w->at[w->woken++] = kb_sim_now(w->r->sim);
        if (w->at[w->woken - 1] >= 70 * KB_NS)
            kb_co_sleep(co, KB_US);
    }
}

/* Ends wake, at 35, 45 and 55 ns; and so does the deadline. */
static void ends_are_progress(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    watcher w = {.r = &r};
    kb_co_options options = {.name = "watcher", .source_id = KB_SOURCE_ID_MAX, .daemon = true};
    expect_ok(kb_co_spawn(r.sim, &options, watch, &w, NULL));
    expect_ok(kb_sim_run(r.sim, 0));
    for (int i = 0; i < 3; i++)
        (void)issue(&r, gemm(10, 25, 0, 0));
    expect_ok(kb_sim_run(r.sim, 100 * KB_NS));
    static const kb_time expected[] = {35, 45, 55, 70};
    for (size_t i = 0; i < 4; i++) {
        size_t k = 0;
        while (k < w.woken && w.at[k] != expected[i] * KB_NS)
            k++;
        assert_true(k < w.woken);
    }
    unit_rig_fini(&r);
}

/* Those that others issue in between keep their place behind it; the end of a name is for ever. */
static void names_are_not_used_again(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t a = issue(&r, math(10, 0, 0));
    run_all(&r);
    for (int i = 0; i < 100; i++) {
        size_t b = issue(&r, math(10, 0, 0));
        assert_true(r.diary[a].op != r.diary[b].op);
        assert_true(pe_units_is_done(r.units, r.diary[a].op));
        assert_false(pe_units_is_done(r.units, r.diary[b].op));
        run_all(&r);
    }
    unit_rig_fini(&r);
}

/* ---- Callbacks --------------------------------------------------------------------------- */

typedef struct chain {
    unit_rig *r;
    int left;
    size_t depth, deepest;
} chain;

static void issue_next(void *self, uint64_t arg);

static void issue_link(chain *c, uint64_t ns)
{
    pe_op op;
    pe_command command = math((int64_t)ns, 0, 0);
    command.ended = issue_next;
    command.self = c;
    command.op.name = "link";
    expect_ok(pe_units_issue(c->r->units, (kb_pe){0, 0, 0}, &command, &op));
}

static void issue_next(void *self, uint64_t arg)
{
    chain *c = self;
    (void)arg;
    c->depth++;
    c->deepest = c->depth > c->deepest ? c->depth : c->deepest;
    if (--c->left > 0)
        issue_link(c, c->left % 1000 == 0);
    c->depth--;
}

/* A chain of commands, each issued by the end of the one before, needs no stack. */
static void ends_may_issue_commands(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    chain c = {.r = &r, .left = 5000};
    issue_link(&c, 1);
    run_all(&r);
    assert_int_equal(c.left, 0);
    assert_int_equal(c.deepest, 1);
    assert_int_equal(kb_sim_now(r.sim), 5 * KB_NS); /* the first, and every thousandth */
    unit_rig_fini(&r);
}

static void issue_reader(void *self, uint64_t arg)
{
    (void)arg;
    mem_rect rect = bytes_at(KB_TCM, 0, 0, 0, 0, 5120);
    (void)issue(self, (pe_command){.unit = KB_UNIT_DMA_READ, .rects = &rect, .rect_count = 1});
}

/* Both want the TCM at 15 ns, for 10: the one that waited for the end has it before the one that
 * the end issues. */
static void who_waits_goes_first(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    pe_op op;
    pe_command first = gemm(15, 0, 0, 0);
    first.ended = issue_reader;
    first.self = &r;
    first.op.name = "first";
    expect_ok(pe_units_issue(r.units, (kb_pe){0, 0, 0}, &first, &op));
    pe_command second = math(0, 5120, 0);
    second.after[0] = op;
    size_t waits = issue(&r, second);
    run_all(&r);
    expect_times(&r, waits, 15 * KB_NS, 25 * KB_NS);
    expect_times(&r, waits + 1, 15 * KB_NS, 35 * KB_NS);
    unit_rig_fini(&r);
}

/* Three that wait for the same go on at one time, each has the TCM for 10 ns: the two engines one
 * after the other, in the order of issue; the DMA before them if it was issued first, else behind
 * them. */
static void those_who_wait_go_on_in_order(void **state)
{
    (void)state;
    mem_rect rect = bytes_at(KB_TCM, 0, 0, 0, 0, 5120);
    static const kb_time ends[3][3] = {{20, 30, 40}, {20, 40, 30}, {20, 30, 40}};
    for (size_t shift = 0; shift < 3; shift++) {
        unit_rig r;
        unit_rig_make(&r, default_machine());
        size_t first =
            issue(&r, (pe_command){.unit = KB_UNIT_DMA_WRITE, .rects = &rect, .rect_count = 1});
        pe_command commands[] = {math(0, 5120, 0),
                                 gemm(0, 0, 5120, 0),
                                 {.unit = KB_UNIT_DMA_READ, .rects = &rect, .rect_count = 1}};
        for (size_t i = 0; i < 3; i++)
            (void)issue(&r, after(commands[(i + shift) % 3], &r, first));
        run_all(&r);
        for (size_t i = 0; i < 3; i++)
            expect_times(&r, first + 1 + i, 10 * KB_NS, ends[shift][i] * KB_NS);
        unit_rig_fini(&r);
    }
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
 * A kernel of 100 ns: one engine works from 0 to 20, the other from 10 to 35, as the tail of its
 * first command is over when its second is: 10 alone and 5 of the 10 that both work, 15 alone and
 * 5. The rest is idle. The matrix engine is busy from 10 to 35 although its two commands take 25 +
 * 15.
 */
static void engines_are_logged(void **state)
{
    (void)state;
    unit_rig r;
    records kept = {0};
    unit_rig_make(&r, default_machine());
    const kb_pe pe = {1, 3, 5};
    kb_oplog_watch(r.log, keep, &kept);
    uint64_t number = pe_units_number(r.units, pe);
    assert_int_equal(number, (1 * 16 + 3) * 8 + 5);
    kb_oplog_kernel_begin(r.log, number, 0);
    pe_command add = math(20, 0, 0), dot = gemm(15, 10, 0, 0), other = gemm(10, 0, 0, 0);
    add.op = (kb_op){.name = "add", .label = "l", .flops = 7, .launch = 3, .file = "f", .line = 9};
    dot.op = (kb_op){.name = "dot", .label = "m", .result = 4, .operands = {5, 6}, .bytes = 3};
    other.op.name = "other";
    (void)issue_at(&r, pe, add);
    expect_ok(kb_sim_run(r.sim, 10 * KB_NS));
    (void)issue_at(&r, pe, dot);
    (void)issue_at(&r, pe, other);
    expect_ok(kb_sim_run(r.sim, 100 * KB_NS));
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, number, causes);
    assert_int_equal(causes[KB_CAUSE_VECTOR], 15 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_MATRIX], 20 * KB_NS);
    assert_int_equal(causes[KB_CAUSE_ISSUE], 65 * KB_NS);
    assert_int_equal(kb_oplog_busy(r.log, number, KB_UNIT_GEMM), 25 * KB_NS);
    assert_int_equal(kb_oplog_busy(r.log, number, KB_UNIT_MATH), 20 * KB_NS);
    assert_int_equal(kept.count, 3);
    const kb_op *a = &kept.ops[0], *d = &kept.ops[1];
    assert_string_equal(a->name, "add");
    assert_string_equal(a->label, "l");
    assert_true(a->unit == KB_UNIT_MATH && a->flops == 7 && a->launch == 3 && a->line == 9);
    assert_true(a->start == 0 && a->end == 20 * KB_NS);
    assert_true(a->pe.sip == 1 && a->pe.cube == 3 && a->pe.pe == 5);
    assert_string_equal(d->name, "dot");
    assert_true(d->start == 10 * KB_NS && d->end == 35 * KB_NS && d->result == 4);
    assert_true(d->operands[0] == 5 && d->operands[1] == 6 && d->bytes == 3);
    unit_rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_command_takes_its_time),
        cmocka_unit_test(nothing_takes_no_time),
        cmocka_unit_test(the_tcm_may_take_longer_than_the_engine),
        cmocka_unit_test(units_share_the_tcm),
        cmocka_unit_test(the_tail_of_one_overlaps_the_next),
        cmocka_unit_test(the_tail_hides_the_tcm),
        cmocka_unit_test(each_unit_keeps_its_order),
        cmocka_unit_test(a_command_comes_after_all_it_names),
        cmocka_unit_test(a_full_queue_has_no_room),
        cmocka_unit_test(a_full_queue_of_the_dma_has_no_room),
        cmocka_unit_test(ends_are_progress),
        cmocka_unit_test(names_are_not_used_again),
        cmocka_unit_test(ends_may_issue_commands),
        cmocka_unit_test(who_waits_goes_first),
        cmocka_unit_test(those_who_wait_go_on_in_order),
        cmocka_unit_test(engines_are_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
