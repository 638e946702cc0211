/* test_rings.c: rings around SIPs follow links and use them evenly; rings of PEs have each PE once.
 */
#include "plans.h"

#include "sip_grid.h"

#include "ccl/graph/rings.h"

static bool are_joined(const kb_ccl_scope *scope, uint32_t a, uint32_t b)
{
    return ccl_sip_neighbour(scope, a, 1, 0) == b || ccl_sip_neighbour(scope, a, -1, 0) == b ||
           ccl_sip_neighbour(scope, a, 0, 1) == b || ccl_sip_neighbour(scope, a, 0, -1) == b;
}

/* Every rank is in every ring once; `uses` counts steps from SIP to SIP. Returns how many steps are
 * not along a link. */
static uint32_t count_steps(const grid *g, const ccl_rings *rings,
                            uint32_t uses[MAX_SIPS][MAX_SIPS])
{
    uint32_t world = g->scope.world, jumps = 0;
    for (uint32_t i = 0; i < rings->count; i++) {
        const uint32_t *ring = ccl_ring(rings, i);
        uint64_t seen = 0;
        for (uint32_t k = 0; k < world; k++) {
            uint32_t a = ring[k], b = ring[(k + 1) % world];
            assert_true(a < world && (seen >> a & 1) == 0);
            seen |= UINT64_C(1) << a;
            uses[a][b]++;
            jumps += world > 1 && !are_joined(&g->scope, a, b);
        }
    }
    return jumps;
}

/* So many rings, and every link is in `share` of them, each way. */
static void expect_even(kb_sip_pattern pattern, uint32_t w, uint32_t h, uint32_t count,
                        uint32_t share)
{
    grid g;
    grid_init(&g, pattern, w, h);
    ccl_rings rings;
    uint32_t uses[MAX_SIPS][MAX_SIPS] = {0};
    expect_ok(ccl_rings_init(&rings, &g.scope));
    assert_int_equal(rings.count, count);
    assert_int_equal(count_steps(&g, &rings, uses), 0);
    for (uint32_t a = 0; a < w * h; a++)
        for (uint32_t b = 0; b < w * h; b++)
            assert_int_equal(uses[a][b], a != b && are_joined(&g.scope, a, b) ? share : 0);
    ccl_rings_fini(&rings);
}

static void test_tori_split(void **state)
{
    (void)state;
    for (uint32_t w = 3; w <= 5; w++)
        for (uint32_t h = 3; w * h <= 16; h++)
            expect_even(KB_SIPS_TORUS, w, h, 4, 1);
    expect_even(KB_SIPS_RING, 5, 1, 2, 1);
    expect_even(KB_SIPS_TORUS, 2, 2, 2, 1);
    expect_even(KB_SIPS_MESH, 2, 2, 2, 1);
}

/* SIPs with three links: rings use two each, so of three cycles each link is in two. Of a row of
 * four, it takes six: those that go around once leave out one link of a row each, and two zigzag.
 */
static void test_three_links(void **state)
{
    (void)state;
    expect_even(KB_SIPS_TORUS, 3, 2, 6, 2);
    expect_even(KB_SIPS_TORUS, 2, 3, 6, 2);
    expect_even(KB_SIPS_TORUS, 4, 2, 12, 4);
    expect_even(KB_SIPS_TORUS, 2, 4, 12, 4);
}

/* One cycle, both ways around, if there is one; else one step alone is no link. */
static void test_what_does_not_split(void **state)
{
    (void)state;
    for (uint32_t w = 1; w <= 8; w++) {
        for (uint32_t h = 1; h <= 8; h++) {
            grid g;
            grid_init(&g, KB_SIPS_MESH, w, h);
            ccl_rings rings;
            uint32_t uses[MAX_SIPS][MAX_SIPS] = {0};
            expect_ok(ccl_rings_init(&rings, &g.scope));
            bool has_cycle = w > 1 && h > 1 && w * h % 2 == 0 && w * h <= 16;
            uint32_t jumps = count_steps(&g, &rings, uses);
            assert_int_equal(rings.count, 2);
            assert_true(has_cycle ? jumps == 0 : jumps <= 2);
            ccl_rings_fini(&rings);
        }
    }
}

static void test_groups(void **state)
{
    (void)state;
    grid g;
    grid_init(&g, KB_SIPS_TORUS, 4, 4);
    static const uint32_t some[] = {5, 9, 6, 10}; /* a square: 5 6 above 9 10 */
    g.scope.world = 4;
    for (uint32_t rank = 0; rank < 4; rank++)
        g.ranks[rank].sip = some[rank];
    ccl_rings rings;
    expect_ok(ccl_rings_init(&rings, &g.scope));
    assert_int_equal(rings.count, 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(are_joined(&g.scope, some[ccl_ring(&rings, 1)[i]],
                               some[ccl_ring(&rings, 1)[(i + 1) % 4]]));
    ccl_rings_fini(&rings);
    /* through a switch there is nothing to choose */
    g.scope.sip_links = false;
    expect_ok(ccl_rings_init(&rings, &g.scope));
    assert_int_equal(rings.count, 1);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(ccl_ring(&rings, 0)[i], i);
    ccl_rings_fini(&rings);
}

/* A torus has four rings, for which four columns of cubes are enough. */
static void test_columns(void **state)
{
    (void)state;
    grid g;
    grid_init(&g, KB_SIPS_TORUS, 3, 3);
    g.scope.machine.cube_w = 4;
    assert_true(ccl_columns_go_one_way(&g.scope));
    g.scope.machine.cube_w = 2;
    assert_false(ccl_columns_go_one_way(&g.scope));
    grid_init(&g, KB_SIPS_TORUS, 4, 2);
    g.scope.machine.cube_w = 4;
    assert_false(ccl_columns_go_one_way(&g.scope));
    grid_init(&g, KB_SIPS_RING, 4, 1);
    g.scope.machine.cube_w = 4;
    assert_true(ccl_columns_go_one_way(&g.scope));
}

/* ---- Lanes ------------------------------------------------------------------------------- */

/* Each of four columns of cubes has a way out of each SIP of its own. */
static void test_lanes_by_column(void **state)
{
    (void)state;
    topo_machine *machine =
        machine_of("system: { sips: { w: 3, h: 3, topology: torus_2d, "
                   "link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 } } }\n"
                   "sip: { cube_mesh: { w: 4, h: 2 } }\n"
                   "cube:\n  noc: { k: 1 }\n  pe_layout: { pe_per_router: 2 }\n");
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("lanes");
    ccl_plan plan;
    expect_ok(plan_all(&entry, machine, &plan));
    assert_int_equal(kb_ccl_subgroup_count(&plan.participants), 16);
    uint32_t next[4][9];
    for (uint32_t lane = 0; lane < 16; lane++) {
        uint32_t count, column = lane / 2 % 4;
        const kb_ccl_participant *m = kb_ccl_subgroup(&plan.participants, lane, &count);
        for (uint32_t i = 0; i < 9; i++) {
            uint32_t to = m[(i + 1) % 9].pe.sip, *known = &next[column][m[i].pe.sip];
            assert_int_equal(m[i].rank, m[i].pe.sip);
            if (lane < 8 && lane % 2 == 0)
                *known = to;
            assert_int_equal(*known, to);
        }
    }
    for (uint32_t sip = 0; sip < 9; sip++)
        for (uint32_t a = 0; a < 4; a++)
            for (uint32_t b = 0; b < a; b++)
                assert_int_not_equal(next[a][sip], next[b][sip]);
    ccl_plan_fini(&plan);
    topo_machine_destroy(machine);
}

/* ---- Rings of PEs ------------------------------------------------------------------------ */

/* The most flows that a link has, both ways around the ring; every rank is in it once. */
static uint32_t most_flows(const topo_machine *machine, const ccl_plan *plan)
{
    uint32_t world = plan->scope.world, count, most = 0;
    const kb_ccl_participant *ring = kb_ccl_subgroup(&plan->participants, 0, &count);
    size_t links = topo_machine_graph(machine)->links.count;
    uint32_t *flows = calloc(links, sizeof *flows), *seen = calloc(world, sizeof *seen);
    uint32_t *steps = calloc(topo_machine_shape(machine)->max_steps, sizeof *steps);
    assert_true(flows && seen && steps);
    assert_int_equal(count, world);
    for (uint32_t i = 0; i < 2 * world; i++) {
        kb_pe a = ring[i % world].pe, b = ring[(i + (i < world ? 1 : world - 1)) % world].pe;
        uint32_t from = topo_node_at(machine, TOPO_PE_DMA, a.sip, a.cube, a.pe);
        uint32_t to = topo_node_at(machine, TOPO_PE_DMA, b.sip, b.cube, b.pe);
        assert_int_equal(seen[ring[i % world].rank]++, i / world);
        uint32_t length = from == to ? 0 : topo_route(machine, from, to, true, steps);
        for (uint32_t k = 0; k < length; k++) {
            uint32_t *link = &flows[topo_step_link(steps[k])];
            most = ++*link > most ? *link : most;
        }
    }
    free(flows);
    free(seen);
    free(steps);
    return most;
}

static uint32_t most_flows_on(const char *description, uint32_t world)
{
    topo_machine *machine = machine_of(description);
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("pe_ring");
    entry.rank_is_pe = true;
    entry.world_size = world;
    ccl_plan plan;
    expect_ok(plan_all(&entry, machine, &plan));
    uint32_t most = most_flows(machine, &plan);
    ccl_plan_fini(&plan);
    topo_machine_destroy(machine);
    return most;
}

#define PES(w, h) "system: { sips: { count: 1 } }\nsip: { cube_mesh: { w: " #w ", h: " #h " } }\n"
#define NOC(w, h, n)                                                                               \
    "cube: { noc: { w: " #w ", h: " #h " }, pe_layout: { pe_per_router: " #n " } }\n"

/* A PE alone has a flow out each way, so two on its link are the least that is possible. */
static void test_pe_rings_share_little(void **state)
{
    (void)state;
    assert_int_equal(most_flows_on(PES(4, 4), 0), 2);
    assert_int_equal(most_flows_on(PES(2, 2), 0), 2);
    assert_int_equal(most_flows_on(PES(3, 3), 0), 2); /* odd: one cube has two stops */
    assert_int_equal(most_flows_on(PES(5, 3), 0), 2);
}

static void test_pe_rings_have_all(void **state)
{
    (void)state;
    static const char *const machines[] = {
        PES(1, 1) NOC(1, 1, 1), PES(3, 3) NOC(1, 1, 1), PES(1, 5) NOC(1, 1, 3),
        PES(3, 1) NOC(3, 3, 1), PES(3, 3) NOC(2, 3, 1), PES(5, 3) NOC(1, 1, 1),
        PES(3, 5) NOC(2, 1, 1), PES(2, 3) NOC(3, 2, 2), PES(3, 3),
    };
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        most_flows_on(machines[i], 0);
    for (uint32_t world = 1; world <= 20; world++) /* not all PEs of cubes, not all cubes */
        most_flows_on(PES(3, 1), world);
}

static void test_pe_ring_of_sips(void **state)
{
    (void)state;
    most_flows_on("system: { sips: { count: 3 } }\nsip: { cube_mesh: { w: 2, h: 2 } }\n", 0);
    topo_machine *machine = machine_of(PES(1, 1));
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("pe_ring");
    ccl_plan plan;
    expect_error(plan_all(&entry, machine, &plan), KB_ERR_INPUT,
                 "algorithm 'mine': mapper pe_ring is for ranks that are PEs: it needs rank: pe");
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tori_split),
        cmocka_unit_test(test_three_links),
        cmocka_unit_test(test_what_does_not_split),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_lanes_by_column),
        cmocka_unit_test(test_pe_rings_share_little),
        cmocka_unit_test(test_pe_rings_have_all),
        cmocka_unit_test(test_pe_ring_of_sips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
