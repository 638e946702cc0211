/* test_units_failures.c: runs that fail or are left, and no memory. */
#include "support/failing_alloc.h"
#include "units_rig.h"

static const char small_machine[] =
    "system: { sips: { count: 1 } }\n"
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"
    "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 2 }, hbm_gib: 2 }\n";

static const kb_pe pe0 = {0, 0, 0};

static kb_error *refuse(void *self, uint64_t arg)
{
    (void)self;
    return kb_error_new(KB_ERR_FAULT, "refused %d", (int)arg);
}

static void never(void *self, uint64_t arg)
{
    (void)self;
    (void)arg;
    fail();
}

/* The error of the first that refuses is the run's; what would follow does not begin. */
static void a_beginning_that_fails_fails_the_run(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        unit_rig r;
        unit_rig_make(&r, machine_of(small_machine));
        size_t before = issue(&r, (pe_command){.unit = KB_UNIT_MATH, .time = 10 * KB_NS});
        pe_op op, op_of_span;
        pe_command bad = {.unit = KB_UNIT_DMA_READ, .begun = refuse, .arg = 1, .op.name = "bad"};
        if (later)
            bad.after[0] = r.diary[before].op;
        expect_ok(pe_units_issue(r.units, pe0, &bad, &op));
        pe_command next = {.unit = KB_UNIT_GEMM, .after = {op}};
        size_t after = issue(&r, next);
        const pe_ready then = {.at = 10 * KB_NS}; /* when the first one ends */
        pe_span span = {.inputs = {&then}, .ready = never, .self = &r};
        expect_ok(pe_units_open(r.units, pe0, &span, &op_of_span));
        expect_error(kb_sim_run(r.sim, KB_FOREVER), KB_ERR_FAULT, "refused 1");
        assert_false(pe_units_is_done(r.units, op));
        assert_int_equal(r.diary[after].begun, -1);
        (void)issue(&r, (pe_command){.unit = KB_UNIT_MATH});
        unit_rig_fini(&r);
    }
}

/* ---- Programs of every kind -------------------------------------------------------------- */

static void close_now(void *self, uint64_t arg)
{
    unit_rig *r = self;
    pe_units_close(r->units, r->diary[arg].op);
}

/* Commands of all units, of few rectangles and many, that wait for each other, and spans. */
static kb_error *issue_some(unit_rig *r)
{
    enum { RECTS = 9 };
    static const pe_ready soon = {.at = 12 * KB_NS};
    mem_rect rects[RECTS];
    for (uint64_t i = 0; i < RECTS; i++)
        rects[i] = bytes_at(i % 2 ? KB_SRAM : KB_HBM, 0, 0, i % 3 == 0, 4096 * i, 1000);
    pe_op last = 0, op;
    for (uint64_t i = 0; i < 24; i++) {
        pe_command command = {.unit = (kb_unit)(KB_UNIT_DMA_READ + i % 4),
                              .time = 10 * KB_NS,
                              .tcm_reads = 4000,
                              .tcm_writes = 4000,
                              .internal = i % 7 == 3,
                              .after = {i % 3 == 0 ? last : 0},
                              .op = {.name = "x"}};
        if (command.unit == KB_UNIT_DMA_READ || command.unit == KB_UNIT_DMA_WRITE) {
            command.rects = rects + i % 3;
            command.rect_count = i % 8 < 4 ? RECTS - i % 3 : 1;
            command.time = 0;
        }
        KB_TRY(pe_units_issue(r->units, (kb_pe){0, 0, i % 5 == 0}, &command, &op));
        last = op;
        if (i % 6 != 5)
            continue;
        pe_span span = {.reads = rects,
                        .read_count = 4,
                        .writes = rects + 4,
                        .write_count = 3,
                        .inputs = {&soon},
                        .ready = close_now,
                        .self = r,
                        .arg = i};
        KB_TRY(pe_units_open(r->units, pe0, &span, &r->diary[i].op));
    }
    return NULL;
}

static topo_machine *machine; /* made while memory is there */

static void run_some(void)
{
    unit_rig r;
    kb_error *err = unit_rig_try(&r, machine, false);
    if (!err)
        err = issue_some(&r);
    if (!err)
        err = kb_sim_run(r.sim, KB_FOREVER);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    else
        assert_int_equal(pe_units_under_way(r.units, pe0), 0);
    kb_error_free(err);
    unit_rig_drop(&r);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    machine = machine_of(small_machine);
    failing_alloc_try_all(run_some);
    topo_machine_destroy(machine);
}

/* A command that could not be issued leaves nothing behind: the others run as if it had never been.
 */
static void what_was_not_issued_leaves_nothing(void **state)
{
    (void)state;
    mem_rect rects[5];
    for (uint64_t i = 0; i < 5; i++)
        rects[i] = bytes_at(KB_HBM, 0, 0, 0, 100 * i, 10);
    pe_command many = {
        .unit = KB_UNIT_DMA_READ, .rects = rects, .rect_count = 5, .op = {.name = "x"}};
    for (long n = 1;; n++) {
        unit_rig r;
        unit_rig_make(&r, machine_of(small_machine));
        size_t write = write_slice(&r, 0, 4096);
        pe_op op;
        failing_alloc_arm(n, FAIL_ONCE);
        kb_error *err = pe_units_issue(r.units, pe0, &many, &op);
        bool failed = failing_alloc_disarm();
        assert_int_equal(failed, err != NULL);
        assert_int_equal(pe_units_under_way(r.units, pe0), failed ? 1 : 2);
        assert_int_equal(op == 0, failed);
        kb_error_free(err);
        size_t read = read_slice(&r, 0, 10);
        run_all(&r);
        assert_int_equal(r.diary[read].begun, r.diary[write].ended);
        unit_rig_fini(&r);
        if (!failed)
            break;
    }
}

/* Wherever a run is left, all goes away without it. */
static void a_run_may_be_left_at_any_time(void **state)
{
    (void)state;
    for (kb_time until = 0; until < 400 * KB_NS; until += 37 * KB_NS) {
        unit_rig r;
        unit_rig_make(&r, machine_of(small_machine));
        expect_ok(issue_some(&r));
        expect_ok(kb_sim_run(r.sim, until));
        unit_rig_fini(&r);
    }
}

/* ---- A fabric that refuses --------------------------------------------------------------- */

static int refuse_after = -1; /* submissions */

kb_error *__real_net_submit(net *n, const net_order *order);
kb_error *__wrap_net_submit(net *n, const net_order *order);

kb_error *__wrap_net_submit(net *n, const net_order *order)
{
    return refuse_after >= 0 && refuse_after-- == 0 ? kb_error_new(KB_ERR_BUG, "no way")
                                                    : __real_net_submit(n, order);
}

static void a_fabric_that_refuses_fails_the_run(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        unit_rig r;
        unit_rig_make(&r, machine_of(small_machine));
        refuse_after = i;
        expect_ok(issue_some(&r));
        expect_error(kb_sim_run(r.sim, KB_FOREVER), KB_ERR_BUG, "no way");
        refuse_after = -1;
        unit_rig_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beginning_that_fails_fails_the_run),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(what_was_not_issued_leaves_nothing),
        cmocka_unit_test(a_run_may_be_left_at_any_time),
        cmocka_unit_test(a_fabric_that_refuses_fails_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
