/*
 * test_topologies.c: the connections of topologies: small subgroups connection by connection,
 * worked out by hand, and properties of subgroups of any size.
 */
#include "plans.h"

enum { MAX = 64 };

/* Circles of PEs that are all different, each rank a PE. */
typedef struct group {
    kb_ccl_scope scope;
    ccl_entry entry;
    kb_pe ranks[MAX];
    kb_ccl_participants participants;
    kb_ccl_graph graph;
} group;

static void init(group *g, uint32_t count)
{
    *g = (group){.entry = an_entry()};
    kb_arena_init(&g->graph.names);
    g->scope = (kb_ccl_scope){
        .machine = {.sips = MAX, .cubes = 1, .cube_w = 1, .cube_h = 1, .pes = 1},
        .sip_w = MAX,
        .sip_h = 1,
        .world = count,
        .ranks = g->ranks,
        .entry = "mine",
        .settings = &g->entry,
    };
    for (uint32_t i = 0; i < count; i++) {
        g->ranks[i] = (kb_pe){.sip = i};
        expect_ok(kb_ccl_add_participant(&g->participants, 0, i, g->ranks[i]));
    }
}

static void fini(group *g)
{
    ccl_participants_fini(&g->participants);
    ccl_graph_fini(&g->graph);
    kb_vec_fini(&g->entry.settings);
}

static void set_sides(group *g, int64_t w, int64_t h)
{
    assert_true(kb_vec_push(&g->entry.settings, ((ccl_setting){"w", w})));
    assert_true(kb_vec_push(&g->entry.settings, ((ccl_setting){"h", h})));
}

/* "0 E 1, 1 W 0": edges by the SIPs of their PEs. */
static void expect_edges(group *g, const char *topology, const char *edges)
{
    kb_text text = KB_TEXT_INIT;
    expect_ok(topology_of(topology)->connect(&g->scope, &g->participants, &g->graph));
    for (size_t i = 0; i < g->graph.edges.count; i++) {
        const ipcq_edge *edge = &g->graph.edges.items[i];
        kb_text_printf(&text, "%s%u %s %u", i > 0 ? ", " : "", edge->from.sip, edge->direction,
                       edge->to.sip);
    }
    assert_string_equal(kb_text_peek(&text), edges);
    kb_text_fini(&text);
}

static void expect_edges_of(uint32_t count, const char *topology, const char *edges)
{
    group g;
    init(&g, count);
    expect_edges(&g, topology, edges);
    fini(&g);
}

static void expect_refused(uint32_t count, int64_t w, int64_t h, const char *message)
{
    group g;
    init(&g, count);
    if (w > 0)
        set_sides(&g, w, h);
    expect_error(topology_of("mesh_2d")->connect(&g.scope, &g.participants, &g.graph), KB_ERR_INPUT,
                 message);
    fini(&g);
}

/* ---- By hand ----------------------------------------------------------------------------- */

static void test_one_has_no_edges(void **state)
{
    (void)state;
    for (const kb_ccl_topology *const *topology = ccl_topologies; *topology; topology++)
        expect_edges_of(1, (*topology)->name, "");
}

static void test_ring(void **state)
{
    (void)state;
    expect_edges_of(2, "ring_1d", "0 E 1, 0 W 1, 1 E 0, 1 W 0");
    expect_edges_of(3, "ring_1d", "0 E 1, 0 W 2, 1 E 2, 1 W 0, 2 E 0, 2 W 1");
}

static void test_one_way_ring(void **state)
{
    (void)state;
    expect_edges_of(2, "ring_1d_unidir", "0 E 1, 1 E 0");
    expect_edges_of(3, "ring_1d_unidir", "0 E 1, 1 E 2, 2 E 0");
}

/*
 * 0 1     In rows of two, E and W lead to the same participant, and so do N and S.
 * 2 3
 */
static void test_torus_of_four(void **state)
{
    (void)state;
    static const char edges[] = "0 S 2, 0 N 2, 0 E 1, 0 W 1, 1 S 3, 1 N 3, 1 E 0, 1 W 0, "
                                "2 S 0, 2 N 0, 2 E 3, 2 W 3, 3 S 1, 3 N 1, 3 E 2, 3 W 2";
    expect_edges_of(4, "mesh_2d", edges);
    expect_edges_of(4, "torus_2d", edges);
}

/*
 * 0 1 2
 * 3 4 5
 */
static void test_torus_with_sides(void **state)
{
    (void)state;
    group g;
    init(&g, 6);
    set_sides(&g, 3, 2);
    expect_edges(&g, "mesh_2d",
                 "0 S 3, 0 N 3, 0 E 1, 0 W 2, 1 S 4, 1 N 4, 1 E 2, 1 W 0, "
                 "2 S 5, 2 N 5, 2 E 0, 2 W 1, 3 S 0, 3 N 0, 3 E 4, 3 W 5, "
                 "4 S 1, 4 N 1, 4 E 5, 4 W 3, 5 S 2, 5 N 2, 5 E 3, 5 W 4");
    fini(&g);
}

/* A side of one has nowhere to go. */
static void test_torus_of_one_column(void **state)
{
    (void)state;
    group g;
    init(&g, 3);
    set_sides(&g, 1, 3);
    expect_edges(&g, "torus_2d", "0 S 1, 0 N 2, 1 S 2, 1 N 0, 2 S 0, 2 N 1");
    fini(&g);
}

static void test_mesh_ends_at_its_edges(void **state)
{
    (void)state;
    expect_edges_of(4, "mesh_2d_no_wrap", "0 S 2, 0 E 1, 1 S 3, 1 W 0, 2 N 0, 2 E 3, 3 N 1, 3 W 2");
    group g;
    init(&g, 3);
    set_sides(&g, 3, 1);
    expect_edges(&g, "mesh_2d_no_wrap", "0 E 1, 1 E 2, 1 W 0, 2 W 1");
    fini(&g);
}

static void test_sides_that_do_not_fit(void **state)
{
    (void)state;
    expect_refused(6, 0, 0, "6 participants are not a square: set w and h in the entry");
    expect_refused(6, 2, 2, "expected w * h participants, 2 * 2, found 6");
    expect_refused(6, 65536, 65536, "expected w * h participants, 65536 * 65536, found 6");
}

/*
 *     0
 *   1   2
 *  3 4 5
 */
static void test_tree(void **state)
{
    (void)state;
    expect_edges_of(2, "tree_binary", "0 child_left 1, 1 parent 0");
    expect_edges_of(6, "tree_binary",
                    "0 child_left 1, 0 child_right 2, 1 parent 0, 1 child_left 3, "
                    "1 child_right 4, 2 parent 0, 2 child_left 5, 3 parent 1, 4 parent 1, "
                    "5 parent 2");
}

static void test_pairs(void **state)
{
    (void)state;
    expect_edges_of(3, "pairs", "0 r1 1, 0 r2 2, 1 r0 0, 1 r2 2, 2 r0 0, 2 r1 1");
}

/* 3 SIPs of 2 cubes of 2 PEs: "sip.cube.pe". */
static void test_three_levels(void **state)
{
    (void)state;
    group g;
    init(&g, 0);
    uint32_t rank = 0;
    for (uint32_t sip = 0; sip < 3; sip++)
        for (uint32_t cube = 0; cube < 2; cube++)
            for (uint32_t pe = 0; pe < 2; pe++)
                expect_ok(
                    kb_ccl_add_participant(&g.participants, 0, rank++, (kb_pe){sip, cube, pe}));
    expect_ok(topology_of("hierarchical_3level")->connect(&g.scope, &g.participants, &g.graph));
    kb_text text = KB_TEXT_INIT;
    for (size_t i = 0; i < g.graph.edges.count; i++) {
        const ipcq_edge *e = &g.graph.edges.items[i];
        if (e->from.sip == 0)
            kb_text_printf(&text, "%u.%u %s %u.%u.%u\n", e->from.cube, e->from.pe, e->direction,
                           e->to.sip, e->to.cube, e->to.pe);
    }
    assert_string_equal(kb_text_peek(&text), "0.0 E 0.0.1\n0.0 W 0.0.1\n0.1 E 0.0.0\n0.1 W 0.0.0\n"
                                             "1.0 E 0.1.1\n1.0 W 0.1.1\n1.1 E 0.1.0\n1.1 W 0.1.0\n"
                                             "0.0 N 0.1.0\n0.0 S 0.1.0\n1.0 N 0.0.0\n1.0 S 0.0.0\n"
                                             "0.0 global_E 1.0.0\n0.0 global_W 2.0.0\n");
    /* in all: E W at 12 PEs, N S at 6 leaders of cubes, global_* at 3 of SIPs */
    assert_int_equal(g.graph.edges.count, 2 * (12 + 6 + 3));
    kb_text_fini(&text);
    fini(&g);
}

static void test_along_the_sips(void **state)
{
    (void)state;
    group g;
    init(&g, 6);
    g.scope.machine.sips = 6;
    g.scope.sips = KB_SIPS_TORUS;
    g.scope.sip_w = 3;
    g.scope.sip_h = 2;
    kb_ccl_scope torus = g.scope;
    expect_edges(&g, "sip_links",
                 "0 global_N 3, 0 global_S 3, 0 global_E 1, 0 global_W 2, "
                 "1 global_N 4, 1 global_S 4, 1 global_E 2, 1 global_W 0, "
                 "2 global_N 5, 2 global_S 5, 2 global_E 0, 2 global_W 1, "
                 "3 global_N 0, 3 global_S 0, 3 global_E 4, 3 global_W 5, "
                 "4 global_N 1, 4 global_S 1, 4 global_E 5, 4 global_W 3, "
                 "5 global_N 2, 5 global_S 2, 5 global_E 3, 5 global_W 4");
    g.graph.edges.count = 0;
    g.scope.sips = KB_SIPS_MESH;
    expect_edges(&g, "sip_links",
                 "0 global_S 3, 0 global_E 1, 1 global_S 4, 1 global_E 2, 1 global_W 0, "
                 "2 global_S 5, 2 global_W 1, 3 global_N 0, 3 global_E 4, "
                 "4 global_N 1, 4 global_E 5, 4 global_W 3, 5 global_N 2, 5 global_W 4");
    g.graph.edges.count = 0;
    g.scope = torus;
    g.scope.sips = KB_SIPS_RING;
    g.scope.sip_w = 6;
    g.scope.sip_h = 1;
    expect_edges(&g, "sip_links",
                 "0 global_E 1, 0 global_W 5, 1 global_E 2, 1 global_W 0, "
                 "2 global_E 3, 2 global_W 1, 3 global_E 4, 3 global_W 2, "
                 "4 global_E 5, 4 global_W 3, 5 global_E 0, 5 global_W 4");
    fini(&g);
}

/* Of SIPs that are not in the subgroup there is no edge to them, and another subgroup is another.
 */
static void test_along_some_sips(void **state)
{
    (void)state;
    group g;
    init(&g, 0);
    g.scope.machine.sips = 4;
    g.scope.machine.pes = 2;
    g.scope.sip_w = 4;
    for (uint32_t sip = 0; sip < 3; sip++)
        expect_ok(kb_ccl_add_participant(&g.participants, 0, sip, (kb_pe){sip, 0, 0}));
    expect_ok(kb_ccl_add_participant(&g.participants, 1, 3, (kb_pe){3, 0, 0}));
    expect_edges(&g, "sip_links", "0 global_E 1, 1 global_E 2, 1 global_W 0, 2 global_W 1");
    fini(&g);
}

static void test_subgroups_are_joined_apart(void **state)
{
    (void)state;
    group g;
    init(&g, 2);
    for (uint32_t i = 2; i < 4; i++)
        expect_ok(kb_ccl_add_participant(&g.participants, 1, i, (kb_pe){.sip = i}));
    expect_edges(&g, "ring_1d_unidir", "0 E 1, 1 E 0, 2 E 3, 3 E 2");
    assert_int_equal(kb_ccl_subgroup_count(&g.participants), 2);
    uint32_t count;
    assert_int_equal(kb_ccl_subgroup(&g.participants, 1, &count)[1].rank, 3);
    assert_int_equal(count, 2);
    assert_null(kb_ccl_subgroup(&g.participants, 2, &count));
    assert_int_equal(count, 0);
    expect_error(kb_ccl_add_participant(&g.participants, 3, 0, (kb_pe){0}), KB_ERR_INPUT,
                 "invalid group 3: groups are numbered from 0 without gaps, and there are 2 so "
                 "far");
    expect_error(kb_ccl_connect(&g.graph, (kb_pe){1, 2, 3}, "", (kb_pe){0}), KB_ERR_INPUT,
                 "a direction of sip1.cube2.pe3 has no name");
    fini(&g);
}

/* ---- Any size ---------------------------------------------------------------------------- */

static size_t find_root(size_t *above, size_t i)
{
    while (above[i] != i)
        i = above[i] = above[above[i]];
    return i;
}

/* Whether edges lead from everywhere to everywhere, if they are taken both ways. */
static bool is_connected(const kb_ccl_graph *graph, uint32_t count)
{
    size_t above[MAX], parts = count;
    for (size_t i = 0; i < count; i++)
        above[i] = i;
    for (size_t i = 0; i < graph->edges.count; i++) {
        size_t a = find_root(above, graph->edges.items[i].from.sip);
        size_t b = find_root(above, graph->edges.items[i].to.sip);
        parts -= a != b;
        above[a] = b;
    }
    return parts == 1;
}

/* What is sent arrives at an end that sends back, and that is the opposite if there is one. */
static void expect_two_way(const ipcq_plan *plan)
{
    static const char *const opposites[][2] = {
        {"E", "W"}, {"N", "S"}, {"global_E", "global_W"}, {"global_N", "global_S"}};
    for (size_t i = 0; i < plan->ends.count; i++) {
        const ipcq_plan_end *end = &plan->ends.items[i];
        assert_true(end->to < plan->ends.count);
        assert_int_equal(end->to, end->from);
        assert_int_equal(plan->ends.items[end->to].to, i);
        for (size_t k = 0; k < 4; k++)
            if (strcmp(end->direction, opposites[k][0]) == 0)
                assert_string_equal(plan->ends.items[end->to].direction, opposites[k][1]);
    }
}

static void expect_sound(const char *topology, uint32_t count, int64_t w, int64_t h)
{
    group g;
    init(&g, count);
    if (w > 0)
        set_sides(&g, w, h);
    expect_ok(topology_of(topology)->connect(&g.scope, &g.participants, &g.graph));
    assert_true(is_connected(&g.graph, count));
    ipcq_plan plan;
    ipcq_settings settings = {.buffer = KB_TCM, .n_slots = 4, .slot_bytes = 64, .credit_bytes = 16};
    expect_ok(ipcq_plan_init(&plan, g.graph.edges.items, g.graph.edges.count, &settings));
    if (strcmp(topology, "ring_1d_unidir") != 0)
        expect_two_way(&plan);
    ipcq_plan_fini(&plan);
    fini(&g);
}

static void test_sizes(void **state)
{
    (void)state;
    static const char *const lines[] = {"ring_1d", "ring_1d_unidir", "tree_binary",
                                        "hierarchical_3level", "pairs"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (uint32_t count = 1; count <= 40; count++)
            expect_sound(lines[i], count, 0, 0);
    for (uint32_t w = 1; w <= 7; w++) {
        for (uint32_t h = 1; h <= 7; h++) {
            expect_sound("mesh_2d", w * h, w, h);
            expect_sound("mesh_2d_no_wrap", w * h, w, h);
        }
    }
    expect_sound("sip_links", MAX, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_has_no_edges),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_one_way_ring),
        cmocka_unit_test(test_torus_of_four),
        cmocka_unit_test(test_torus_with_sides),
        cmocka_unit_test(test_torus_of_one_column),
        cmocka_unit_test(test_mesh_ends_at_its_edges),
        cmocka_unit_test(test_sides_that_do_not_fit),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_three_levels),
        cmocka_unit_test(test_along_the_sips),
        cmocka_unit_test(test_along_some_sips),
        cmocka_unit_test(test_subgroups_are_joined_apart),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
