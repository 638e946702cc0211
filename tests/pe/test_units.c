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
    memcpy(last.after, (pe_op[PE_MAX_AFTER]){r.diary[done].op, first, second, first, second},
           sizeof last.after);
    size_t c = issue(&r, last);
    run_all(&r);
    expect_times(&r, c, 50 * KB_NS, 60 * KB_NS);
    unit_rig_fini(&r);
}

/* ---- Queues ------------------------------------------------------------------------------ */

typedef struct watcher {
    unit_rig *r;
    size_t woken;
    kb_time at[64];
} watcher;

static void watch(kb_co *co, void *arg)
{
    watcher *w = arg;
    for (;;) {
        kb_wait(co, pe_units_progress(w->r->units, (kb_pe){0, 0, 0}));
        w->at[w->woken++] = kb_sim_now(w->r->sim);
    }
}

/*
 * Three commands of 10 ns with tails of 25, in a queue of two. The first begins at once, so there
 * is room until both others wait. The second begins at 10: room again, which wakes. Ends wake: 35,
 * 45, 55.
 */
static void a_full_queue_has_no_room(void **state)
{
    (void)state;
    const kb_pe pe = {0, 0, 0};
    unit_rig r;
    unit_rig_make(&r, machine_with("cube.pe_cpu.queue_depth=2", NULL, NULL, NULL));
    watcher w = {.r = &r};
    kb_co_options options = {.name = "watcher", .source_id = KB_SOURCE_ID_MAX, .daemon = true};
    expect_ok(kb_co_spawn(r.sim, &options, watch, &w, NULL));
    expect_ok(kb_sim_run(r.sim, 0));
    assert_true(pe_units_has_room(r.units, (kb_pe){0, 0, 1}, KB_UNIT_GEMM));
    for (int i = 0; i < 3; i++) {
        assert_true(pe_units_has_room(r.units, pe, KB_UNIT_GEMM));
        (void)issue(&r, gemm(10, 25, 0, 0));
    }
    assert_false(pe_units_has_room(r.units, pe, KB_UNIT_GEMM));
    assert_true(pe_units_has_room(r.units, pe, KB_UNIT_MATH));
    pe_command inner = gemm(1, 0, 0, 0);
    inner.internal = true;
    (void)issue(&r, inner); /* takes no room of the program's */
    expect_ok(kb_sim_run(r.sim, 10 * KB_NS));
    assert_true(pe_units_has_room(r.units, pe, KB_UNIT_GEMM));
    run_all(&r);
    static const kb_time expected[] = {10, 31, 35, 45, 55};
    assert_int_equal(w.woken, 5);
    for (size_t i = 0; i < w.woken; i++)
        assert_int_equal(w.at[i], expected[i] * KB_NS);
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

/* Three that wait for the same go on in the order of issue, whatever their units are: each has the
 * TCM for 10 ns. */
static void those_who_wait_go_on_in_order(void **state)
{
    (void)state;
    mem_rect rect = bytes_at(KB_TCM, 0, 0, 0, 0, 5120);
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
        for (size_t i = 1; i <= 3; i++)
            expect_times(&r, first + i, 10 * KB_NS, (kb_time)(i + 1) * 10 * KB_NS);
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

/* Runs all, and says how long results drained, and how long of it a product waited for them. */
static void expect_drain(unit_rig *r, kb_time drain, kb_time needed)
{
    kb_time_sum causes[KB_CAUSES] = {0};
    run_all(r);
    kb_oplog_kernel_end(r->log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_MATRIX_DRAIN], drain);
    assert_int_equal(kb_oplog_timeline(r->log).needed_drain, needed);
    unit_rig_fini(r);
}

static void make_with_kernel(unit_rig *r)
{
    unit_rig_make(r, default_machine());
    kb_oplog_kernel_begin(r->log, 0, 0);
}

/* Each of the three occupies the engine for 5 and drains for 20. In a chain two wait for the drain
 * of the one before; the drain of the last one is waited for by none, or by a vector operation. If
 * they need nothing of each other, only the last drain shows. */
static void products_that_need_each_other_drain_in_between(void **state)
{
    (void)state;
    unit_rig r;
    make_with_kernel(&r);
    size_t a = issue(&r, gemm(5, 20, 0, 0));
    size_t b = issue(&r, after(gemm(5, 20, 0, 0), &r, a));
    size_t c = issue(&r, after(gemm(5, 20, 0, 0), &r, b));
    (void)issue(&r, after(math(7, 0, 0), &r, c));
    expect_drain(&r, 60 * KB_NS, 40 * KB_NS);
    make_with_kernel(&r);
    for (int i = 0; i < 3; i++)
        (void)issue(&r, gemm(5, 20, 0, 0));
    expect_drain(&r, 20 * KB_NS, 0);
}

/*
 * A load of 4 KiB takes 110.1425 ns. A product takes 5 + 20 meanwhile. One after it alone counts
 * from when it is issued, at 12: 13 of the drain. One that comes after the load too waits for that,
 * so nothing of the drain counts. A product of 100 + 20 before one that needs the load and it: from
 * 110.1425 on it waits for the drain alone, until 120.
 */
static void a_drain_counts_if_the_next_product_waits_for_nothing_else(void **state)
{
    (void)state;
    unit_rig r;
    make_with_kernel(&r);
    (void)read_slice(&r, 0, 4096);
    size_t a = issue(&r, gemm(5, 20, 0, 0));
    expect_ok(kb_sim_run(r.sim, 12 * KB_NS));
    (void)issue(&r, after(gemm(1, 0, 0, 0), &r, a));
    expect_drain(&r, 13 * KB_NS, 13 * KB_NS);
    for (int i = 0; i < 2; i++) {
        make_with_kernel(&r);
        size_t load = read_slice(&r, 0, 4096);
        size_t first = issue(&r, gemm(i == 0 ? 5 : 100, 20, 0, 0));
        pe_command next = after(gemm(1, 0, 0, 0), &r, first);
        next.after[0] = r.diary[load].op;
        (void)issue(&r, next);
        kb_time drain = i == 0 ? 0 : 120 * KB_NS - 110142500;
        expect_drain(&r, drain, drain);
    }
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
        cmocka_unit_test(names_are_not_used_again),
        cmocka_unit_test(ends_may_issue_commands),
        cmocka_unit_test(who_waits_goes_first),
        cmocka_unit_test(those_who_wait_go_on_in_order),
        cmocka_unit_test(engines_are_logged),
        cmocka_unit_test(products_that_need_each_other_drain_in_between),
        cmocka_unit_test(a_drain_counts_if_the_next_product_waits_for_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
