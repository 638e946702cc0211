/*
 * test_composite_failures.c: products that cannot be, runs that fail or are left in the middle, and
 * no memory.
 */
#include "composite_rig.h"
#include "support/failing_alloc.h"

static const char small_machine[] =
    "system: { sips: { count: 1 } }\n"
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"
    "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 2 }, hbm_gib: 12 }\n";

static const kb_pe pe0 = {0, 0, 0};

/* A tile takes at least 64 * 64 * 2 bytes of b, 128 of a and 256 for sums. */
static void too_little_tcm_is_a_fault(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, machine_with("cube.pe_tcm.reserved_mib=0.0078125", NULL, NULL, NULL));
    plain_product p;
    plain_make(&p, 64, 64, 64, 2);
    pe_op op;
    expect_error(pe_composites_issue(r.composites, pe0, &p.is, &op), KB_ERR_FAULT,
                 "matrix product 64 x 64 x 64 needs tiles of at least 8576 bytes, but the "
                 "scheduler has 8192 bytes of TCM: raise cube.pe_tcm.reserved_mib");
    assert_int_equal(op, 0);
    assert_int_equal(pe_composites_under_way(r.composites, pe0), 0);
    assert_int_equal(pe_units_under_way(r.has.units, pe0), 0);

    p.is.b.rect_count = 0; /* without b it is enough */
    assert_true(time_product(&r, &p.is) > 0);
    composite_rig_fini(&r);
}

static kb_error *refuse(void *self, uint64_t arg)
{
    (void)self;
    return kb_error_new(KB_ERR_INPUT, "refused %d", (int)arg);
}

static void an_error_at_the_beginning_fails_the_run(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, machine_of(small_machine));
    plain_product p;
    plain_make(&p, 64, 64, 64, 2);
    p.is.begun = refuse;
    p.is.arg = 5;
    pe_op op;
    expect_ok(pe_composites_issue(r.composites, pe0, &p.is, &op));
    expect_error(kb_sim_run(r.has.sim, KB_FOREVER), KB_ERR_INPUT, "refused 5");
    composite_rig_fini(&r);
}

static void runs_can_be_abandoned(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    for (kb_time until = 0; until < 12 * KB_US; until += 300 * KB_NS) {
        composite_rig r;
        composite_rig_make(&r, machine_of(small_machine));
        plain_product p, q;
        plain_make(&p, 128, 512, 256, 2);
        plain_make(&q, 128, 512, 256, 2);
        q.a = p.c;
        (void)issue_product(&r, p.is);
        (void)issue_product(&r, p.is);
        (void)issue_product(&r, q.is);
        expect_ok(kb_sim_run(r.has.sim, until));
        composite_rig_fini(&r);
        assert_int_equal(failing_alloc_live(), before);
    }
}

/* ---- No memory --------------------------------------------------------------------------- */

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

static void count_end(void *self, uint64_t arg)
{
    (void)arg;
    ++*(int *)self;
}

/* Two products, the second of which reads what the first makes; operands in several pieces. */
static void all_of_it(void)
{
    composite_rig r;
    int ended = 0;
    plain_product p;
    plain_make(&p, 200, 300, 150, 2);
    mem_rect pieces[] = {matrix_at(0, 200, 100, 2), matrix_at(1 << 20, 200, 150, 2),
                         matrix_at(2 << 20, 200, 50, 2)};
    pieces[1].column = 200;
    pieces[2].column = 500;
    p.is.a = (pe_matrix){.rects = pieces, .rect_count = 3, .element_bytes = 2};
    p.is.ended = count_end;
    p.is.self = &ended;
    pe_op op;
    if (went_well(composite_rig_try(&r, shared_machine, false)) &&
        went_well(pe_composites_issue(r.composites, pe0, &p.is, &op)) &&
        went_well(pe_composites_issue(r.composites, pe0, &p.is, &op)) &&
        went_well(kb_sim_run(r.has.sim, KB_FOREVER))) {
        assert_int_equal(ended, 2);
        successes_seen++;
    }
    composite_rig_drop(&r);
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

/* Once it has done its first products it needs nothing more for others like them. */
static void memory_is_used_again(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, machine_of(small_machine));
    plain_product p;
    plain_make(&p, 100, 300, 100, 2);
    size_t blocks = 0;
    for (int i = 0; i < 20; i++) {
        (void)time_product(&r, &p.is);
        if (i == 0)
            blocks = failing_alloc_live();
    }
    assert_int_equal(failing_alloc_live(), blocks);
    composite_rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_tcm_is_a_fault),
        cmocka_unit_test(an_error_at_the_beginning_fails_the_run),
        cmocka_unit_test(runs_can_be_abandoned),
        cmocka_unit_test(without_memory_it_fails_cleanly),
        cmocka_unit_test(memory_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
