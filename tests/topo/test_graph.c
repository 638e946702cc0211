/* test_graph.c: building graphs by hand. */
#include "support/expect.h"

#include "topo/topo.h"

/* a > b > c, b > a, and c is a memory. */
static topo_graph small_graph(void)
{
    topo_graph graph = {0};
    uint32_t a = topo_graph_add_node(&graph, (topo_node){.overhead_fs = 5 * KB_NS});
    uint32_t b = topo_graph_add_node(&graph, (topo_node){.overhead_fs = 1 * KB_NS});
    uint32_t c = topo_graph_add_node(&graph, (topo_node){.overhead_fs = 76 * KB_NS});
    assert_int_equal(topo_graph_add_link(&graph, b, c, 64 * TOPO_GBS, 0), 0);
    assert_int_equal(topo_graph_add_link(&graph, a, b, 256 * TOPO_GBS, 25 * KB_PS), 1);
    assert_int_equal(topo_graph_add_link(&graph, b, a, 256 * TOPO_GBS, 25 * KB_PS), 2);
    topo_graph_add_service(&graph, c, 200 * TOPO_GBS);
    expect_ok(topo_graph_finish(&graph));
    return graph;
}

static void links_are_listed_by_the_node_they_leave(void **state)
{
    (void)state;
    topo_graph graph = small_graph();
    assert_int_equal(graph.nodes.count, 3);
    assert_int_equal(graph.links.count, 4);
    static const uint32_t first_out[] = {0, 1, 3, 4}, out[] = {1, 0, 2, 3};
    assert_memory_equal(graph.first_out, first_out, sizeof first_out);
    assert_memory_equal(graph.out, out, sizeof out);
    topo_graph_fini(&graph);
    topo_graph_fini(&graph); /* empty again, which is fine */
}

static void equal_bandwidths_share_an_entry(void **state)
{
    (void)state;
    topo_graph graph = small_graph();
    assert_int_equal(graph.rates.count, 3);
    assert_true(topo_link_rate(&graph, 0) == 64 * TOPO_GBS);
    assert_true(topo_link_rate(&graph, 1) == 256 * TOPO_GBS);
    assert_int_equal(graph.links.items[1].rate, graph.links.items[2].rate);
    assert_true(topo_link_rate(&graph, 3) == 200 * TOPO_GBS);
    topo_graph_fini(&graph);
}

static void a_memory_charges_its_latency_behind_its_service_link(void **state)
{
    (void)state;
    topo_graph graph = small_graph();
    assert_int_equal(graph.nodes.items[2].service, 3);
    assert_int_equal(graph.nodes.items[0].service, TOPO_NONE);
    assert_int_equal(graph.links.items[3].from, 2);
    assert_int_equal(graph.links.items[3].to, 2);
    assert_int_equal(topo_link_overhead(&graph, 0), 0);
    assert_int_equal(topo_link_overhead(&graph, 1), 1 * KB_NS);
    assert_int_equal(topo_link_overhead(&graph, 2), 5 * KB_NS);
    assert_int_equal(topo_link_overhead(&graph, 3), 76 * KB_NS);
    assert_int_equal(topo_source_overhead(&graph, 0), 5 * KB_NS);
    assert_int_equal(topo_source_overhead(&graph, 2), 0);
    topo_graph_fini(&graph);
}

static void an_empty_graph_is_a_graph(void **state)
{
    (void)state;
    topo_graph graph = {0};
    expect_ok(topo_graph_finish(&graph));
    assert_int_equal(graph.first_out[0], 0);
    topo_graph_fini(&graph);
}

static void steps_keep_link_and_phase(void **state)
{
    (void)state;
    for (int phase = TOPO_BEFORE; phase <= TOPO_WRAPPED; phase++) {
        uint32_t step = topo_step(TOPO_MAX_LINKS - 1, (topo_phase)phase);
        assert_int_equal(topo_step_link(step), TOPO_MAX_LINKS - 1);
        assert_int_equal(topo_step_phase(step), phase);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_listed_by_the_node_they_leave),
        cmocka_unit_test(equal_bandwidths_share_an_entry),
        cmocka_unit_test(a_memory_charges_its_latency_behind_its_service_link),
        cmocka_unit_test(an_empty_graph_is_a_graph),
        cmocka_unit_test(steps_keep_link_and_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
