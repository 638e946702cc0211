/*
 * test_composite.c: whole matrix products: what they take by hand, what they move, in which order
 * they are done, and what waits for them. Figures are those of the default machine: see test_dma.c.
 */
#include "composite_rig.h"

static const kb_pe pe0 = {0, 0, 0};

/* ---- By hand ----------------------------------------------------------------------------- */

/*
 * One element of two bytes each. Loading both operands: 90 ns, .08 of wire, .0625 for the request,
 * and 4 / 204.8 = .019532 for the bytes; a cycle, and 190 until the result is out of the array;
 * storing 2 bytes: 83 ns, .04 of wire, .009766.
 */
static void one_element(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    plain_product p;
    plain_make(&p, 1, 1, 1, 2);
    kb_time load = 90 * KB_NS + 80 * KB_PS + 62500 + 19532;
    assert_int_equal(time_product(&r, &p.is), load + 191 * KB_NS + 83 * KB_NS + 40 * KB_PS + 9766);
    composite_rig_fini(&r);
}

/* What the array did, from the log. */
typedef struct array_diary {
    kb_time first, last; /* begin and end */
    kb_time stored;
} array_diary;

static void watch_array(void *self, const kb_op *op)
{
    array_diary *d = self;
    if (op->unit == KB_UNIT_GEMM && (d->first < 0 || op->start < d->first))
        d->first = op->start;
    if (op->unit == KB_UNIT_GEMM && op->end > d->last)
        d->last = op->end;
    if (op->unit == KB_UNIT_DMA_WRITE && op->end > d->stored)
        d->stored = op->end;
}

/* With both operands in the TCM. The array begins at once and never waits. */
static void expect_array_time(const char *setting, kb_time time)
{
    composite_rig r;
    composite_rig_make(&r, machine_with(setting, NULL, NULL, NULL));
    array_diary d = {.first = -1};
    kb_oplog_watch(r.has.log, watch_array, &d);
    plain_product p;
    plain_make(&p, 128, 256, 192, 2);
    p.is.a.rect_count = p.is.b.rect_count = 0;
    kb_time took = time_product(&r, &p.is);
    assert_int_equal(d.first, 0);
    assert_int_equal(d.last, time);
    assert_int_equal(d.stored, took);
    composite_rig_fini(&r);
}

/*
 * 128 x 256 x 192 is 4 x 3 folds of 128 rows: 1536 cycles and once 190; or, if the array fills for
 * each fold, 12 * (128 + 190) - 1 = 3815. However it is cut.
 */
static void operands_in_the_tcm(void **state)
{
    (void)state;
    expect_array_time(NULL, 1726 * KB_NS);
    expect_array_time("cube.pe_gemm.fill=per_fold", 3815 * KB_NS);
}

/* a half in the own slice and half in the next one, b in the SRAM, c in the own slice. */
static void operands_in_several_memories(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    enum { m = 256, k = 512, n = 256, row = k * 2 };
    mem_rect a[] = {matrix_at(0, m, k / 2, 2), matrix_at(0, m, k / 2, 2)};
    a[1].at.pe.pe = 1;
    a[1].column = row / 2;
    mem_rect b = matrix_at(0, k, n, 2), c = matrix_at(1 << 30, m, n, 2);
    b.at.memory = KB_SRAM;
    pe_product product = {.m = m,
                          .k = k,
                          .n = n,
                          .a = {.rects = a, .rect_count = 2, .element_bytes = 2},
                          .b = {.rects = &b, .rect_count = 1, .element_bytes = 2},
                          .c = {.rects = &c, .rect_count = 1, .element_bytes = 2}};
    /* 8 * 4 folds of 256 rows and 190; of the slice it is 128 + 128 KiB that count. */
    assert_true(time_product(&r, &product) >= (8 * 4 * 256 + 190) * KB_NS);

    static const struct {
        topo_kind kind;
        uint32_t index;
        uint64_t bytes;
    } expected[] = {{TOPO_HBM_CTRL, 0, (128 + 128) << 10}, /* half of a, and c */
                    {TOPO_HBM_CTRL, 1, 128 << 10},
                    {TOPO_SRAM, 0, 256 << 10}};
    for (int i = 0; i < 3; i++) {
        uint32_t node = topo_node_at(r.has.machine, expected[i].kind, 0, 0, expected[i].index);
        uint32_t service = topo_machine_graph(r.has.machine)->nodes.items[node].service;
        assert_int_equal(net_link_get(r.has.fabric, service).bytes, expected[i].bytes);
    }
    composite_rig_fini(&r);
}

/* ---- The log ----------------------------------------------------------------------------- */

typedef struct totals {
    uint64_t products, loaded, stored, steps_flops;
    kb_op product;
} totals;

static void add_to_totals(void *self, const kb_op *op)
{
    totals *t = self;
    assert_string_equal(op->label, "y");
    assert_int_equal(op->launch, 7);
    assert_int_equal(op->line, 42);
    switch (op->unit) {
    case KB_UNIT_SCHEDULER:
        assert_string_equal(op->name, "gemm");
        t->products++;
        t->product = *op;
        break;
    case KB_UNIT_DMA_READ:
        assert_string_equal(op->name, "load");
        t->loaded += op->bytes;
        break;
    case KB_UNIT_DMA_WRITE:
        assert_string_equal(op->name, "store");
        t->stored += op->bytes;
        break;
    default:
        assert_int_equal(op->unit, KB_UNIT_GEMM);
        assert_string_equal(op->name, "gemm");
        t->steps_flops += op->flops;
    }
}

static void the_log_has_the_whole_and_its_parts(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    totals t = {0};
    kb_oplog_watch(r.has.log, add_to_totals, &t);
    plain_product p;
    plain_make(&p, 300, 500, 200, 2);
    p.is.op = (kb_op){.label = "y", .launch = 7, .file = "k.c", .line = 42, .result = 9};
    expect_ok(kb_sim_run(r.has.sim, 5 * KB_NS));
    kb_time took = time_product(&r, &p.is);
    assert_int_equal(t.products, 1);
    assert_int_equal(t.product.start, 5 * KB_NS);
    assert_int_equal(t.product.end, 5 * KB_NS + took);
    assert_int_equal(t.product.result, 9);
    assert_int_equal(t.product.flops, 2 * 300 * 500 * 200);
    assert_int_equal(t.product.bytes, 2 * (300 * 500 + 500 * 200 + 300 * 200));
    assert_int_equal(t.steps_flops, t.product.flops);
    assert_int_equal(t.loaded, 2 * (300 * 500 + 500 * 200));
    assert_int_equal(t.stored, 2 * 300 * 200);
    composite_rig_fini(&r);
}

/* ---- Order ------------------------------------------------------------------------------- */

/* The second one begins to load while the first one is stored, so both take less than twice one. */
static void products_follow_each_other(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    plain_product p, q;
    plain_make(&p, 128, 512, 128, 2);
    plain_make(&q, 128, 512, 128, 2);
    q.c.at.offset = (uint64_t)3 << 30;
    kb_time alone = time_product(&r, &p.is);
    size_t first = issue_product(&r, p.is), second = issue_product(&r, q.is);
    assert_int_equal(pe_composites_under_way(r.composites, pe0), 2);
    run_all(&r.has);
    const entry *d = r.has.diary;
    assert_int_equal(d[first].begun, alone);
    assert_true(d[second].begun > d[first].begun && d[second].begun < d[first].ended);
    assert_true(d[second].ended > d[first].ended);
    /* Without what is left between them: two products of 8 * 2 * 128 cycles. */
    kb_time work = 4096 * KB_NS, both = d[second].ended - d[first].begun;
    assert_true(both >= work + 190 * KB_NS);
    assert_true(both < 2 * alone - 300 * KB_NS);
    composite_rig_fini(&r);
}

/* c of the first one is a of the second. The third has nothing to do with them, but keeps its
 * place. */
static void a_product_waits_for_its_operands(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    plain_product p, q, s;
    plain_make(&p, 64, 64, 64, 2);
    plain_make(&q, 64, 64, 64, 2);
    plain_make(&s, 64, 64, 64, 2);
    q.a = p.c;
    q.c.at.offset = (uint64_t)3 << 30;
    s.a.at.offset = s.b.at.offset = (uint64_t)4 << 30;
    s.c.at.offset = (uint64_t)5 << 30;
    size_t first = issue_product(&r, p.is), second = issue_product(&r, q.is);
    size_t third = issue_product(&r, s.is);
    run_all(&r.has);
    const entry *d = r.has.diary;
    assert_int_equal(d[second].begun, d[first].ended);
    assert_true(d[third].begun >= d[second].begun && d[third].begun < d[second].ended);
    composite_rig_fini(&r);
}

static void kernels_commands_and_products_wait_for_each_other(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    plain_product p;
    plain_make(&p, 64, 128, 64, 2);
    size_t before = write_slice(&r.has, 128, 64); /* a row of a */
    pe_ready there = {.at = KB_FOREVER};
    p.is.inputs[0] = &there;
    size_t product = issue_product(&r, p.is);
    size_t elsewhere = read_slice(&r.has, (uint64_t)5 << 30, 64);
    size_t reads_result = read_slice(&r.has, p.c.at.offset, 64);
    size_t changes_b = write_slice(&r.has, p.b.at.offset, 64);
    size_t after = issue(
        &r.has,
        (pe_command){.unit = KB_UNIT_MATH, .time = KB_NS, .after = {r.has.diary[product].op}});
    expect_ok(kb_sim_run(r.has.sim, 650 * KB_NS));
    there.at = 700 * KB_NS; /* which is known now */
    pe_units_poll(r.has.units, (kb_pe){0, 0, 0});
    run_all(&r.has);
    const entry *d = r.has.diary;
    assert_true(d[before].ended < 700 * KB_NS);
    assert_int_equal(d[product].begun, 700 * KB_NS);
    assert_int_equal(d[elsewhere].begun, 0);
    assert_int_equal(d[reads_result].begun, d[product].ended);
    assert_int_equal(d[changes_b].begun, d[product].ended);
    assert_int_equal(d[after].begun, d[product].ended);
    composite_rig_fini(&r);
}

/* Two PEs at once, from their own slices: as fast as one. */
static void pes_do_not_disturb_each_other(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    plain_product p, q;
    plain_make(&p, 64, 512, 64, 2);
    kb_time alone = time_product(&r, &p.is);
    plain_make(&q, 64, 512, 64, 2);
    q.a.at.pe.pe = q.b.at.pe.pe = q.c.at.pe.pe = 1;
    size_t first = issue_product(&r, p.is);
    pe_op op;
    expect_ok(pe_composites_issue(r.composites, (kb_pe){0, 0, 1}, &q.is, &op));
    assert_int_equal(pe_composites_under_way(r.composites, (kb_pe){0, 0, 1}), 1);
    run_all(&r.has);
    assert_int_equal(r.has.diary[first].ended - r.has.diary[first].begun, alone);
    assert_true(pe_units_is_done(r.has.units, op));
    composite_rig_fini(&r);
}

static void elision_changes_nothing(void **state)
{
    (void)state;
    static const uint64_t shapes[][3] = {{100, 200, 300}, {7, 1000, 65}, {200, 64, 64}};
    for (int i = 0; i < 3; i++) {
        kb_time times[2];
        for (int plain = 0; plain < 2; plain++) {
            composite_rig r;
            expect_ok(composite_rig_try(&r, default_machine(), plain));
            plain_product p;
            plain_make(&p, shapes[i][0], shapes[i][1], shapes[i][2], 2);
            times[plain] = time_product(&r, &p.is);
            composite_rig_fini(&r);
        }
        assert_int_equal(times[0], times[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_element),
        cmocka_unit_test(operands_in_the_tcm),
        cmocka_unit_test(operands_in_several_memories),
        cmocka_unit_test(the_log_has_the_whole_and_its_parts),
        cmocka_unit_test(products_follow_each_other),
        cmocka_unit_test(a_product_waits_for_its_operands),
        cmocka_unit_test(kernels_commands_and_products_wait_for_each_other),
        cmocka_unit_test(pes_do_not_disturb_each_other),
        cmocka_unit_test(elision_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
