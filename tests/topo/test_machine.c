/* test_machine.c: what is in a compiled machine: numbering, names, figures, positions. Checks T4.
 */

#include "random_machines.h"

#include "support/seed.h"
#include "topo/description.h"
#include "topo/layout.h"
#include "topo/machine_private.h"

static const char *name_of(const topo_machine *machine, uint32_t node)
{
    static char name[128];
    kb_text text = KB_TEXT_INIT;
    assert_int_not_equal(node, TOPO_NONE);
    topo_node_name(machine, node, &text);
    snprintf(name, sizeof name, "%s", kb_text_peek(&text));
    kb_text_fini(&text);
    return name;
}

static void expect_name(const topo_machine *m, topo_kind kind, uint32_t sip, uint32_t cube,
                        uint32_t index, const char *name)
{
    assert_string_equal(name_of(m, topo_node_at(m, kind, sip, cube, index)), name);
}

static void nodes_have_names(void **state)
{
    (void)state;
    topo_machine *m =
        machine_with("system.sips.count=3", "system.sips.link.bw_gbs=1",
                     "system.sips.link.length_mm=1", "system.sips.link.overhead_ns=1");
    expect_name(m, TOPO_HOST, 0, 0, 0, "host");
    expect_name(m, TOPO_SWITCH, 0, 0, 0, "switch");
    expect_name(m, TOPO_PCIE_EP, 0, 0, 0, "sip0.io.pcie_ep");
    expect_name(m, TOPO_IO_CPU, 1, 0, 0, "sip1.io.io_cpu");
    expect_name(m, TOPO_IO_NOC, 1, 0, 0, "sip1.io.io_noc");
    expect_name(m, TOPO_IO_UCIE, 0, 0, 2, "sip0.io.ucie2");
    expect_name(m, TOPO_SIP_PORT, 0, 0, TOPO_EAST, "sip0.io.sip_e");
    expect_name(m, TOPO_SIP_PORT, 2, 0, TOPO_WEST, "sip2.io.sip_w");
    expect_name(m, TOPO_ROUTER, 0, 5, 9, "sip0.cube5.noc.x1y2");
    expect_name(m, TOPO_UCIE, 0, 5, TOPO_NORTH, "sip0.cube5.ucie_n");
    expect_name(m, TOPO_UCIE, 0, 5, TOPO_SOUTH, "sip0.cube5.ucie_s");
    expect_name(m, TOPO_XBAR, 0, 5, 0, "sip0.cube5.xbar");
    expect_name(m, TOPO_HBM_CTRL, 0, 5, 3, "sip0.cube5.hbm_ctrl3");
    expect_name(m, TOPO_SRAM, 0, 5, 0, "sip0.cube5.sram");
    expect_name(m, TOPO_M_CPU, 2, 15, 0, "sip2.cube15.m_cpu");
    expect_name(m, TOPO_PE_DMA, 0, 5, 3, "sip0.cube5.pe3.pe_dma");
    topo_machine_destroy(m);
}

static void links_have_names(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    uint32_t steps[128], from = topo_node_at(m, TOPO_PE_DMA, 0, 5, 0);
    assert_int_equal(topo_route(m, from, topo_node_at(m, TOPO_SRAM, 0, 5, 0), true, steps), 3);
    kb_text text = KB_TEXT_INIT;
    for (int i = 0; i < 3; i++) {
        topo_link_name(m, topo_step_link(steps[i]), &text);
        kb_text_puts(&text, "\n");
    }
    assert_string_equal(kb_text_peek(&text), "sip0.cube5.pe0.pe_dma>sip0.cube5.xbar\n"
                                             "sip0.cube5.xbar>sip0.cube5.sram\n"
                                             "sip0.cube5.sram\n");
    kb_text_fini(&text);
    topo_machine_destroy(m);
}

/* What is checked before a machine is made is what it then has. */
static void links_are_counted_beforehand(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(9));
    for (int round = 0; round < 100; round++) {
        char *text = random_description(&rng);
        topo_description d = {0};
        expect_ok(topo_description_default(&d));
        kb_config *config;
        expect_ok(kb_config_load_text("f.yaml", text, strlen(text), &config));
        topo_description_read(&d, config, &(topo_registry){0});
        expect_ok(kb_config_finish(config));
        kb_config_destroy(config);
        topo_machine *m = machine_of(text);
        assert_int_equal(topo_layout_count_links(&d), topo_machine_graph(m)->links.count);
        topo_machine_destroy(m);
        free(text);
    }
}

static bool is_last(const topo_machine *m, uint32_t node)
{
    return node + 1 == topo_machine_graph(m)->nodes.count;
}

/* Every node is where its own coordinates say, and no two have the same name. */
static void numbers_and_coordinates_agree(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    for (int round = 0; round < 40; round++) {
        char *description = random_description(&rng);
        topo_machine *m = machine_of(description);
        const topo_graph *graph = topo_machine_graph(m);
        for (uint32_t n = 0; n < graph->nodes.count; n++) {
            const topo_node *node = &graph->nodes.items[n];
            assert_int_equal(
                topo_node_at(m, (topo_kind)node->kind, node->sip, node->cube, node->index), n);
            /* SIP by SIP, cube by cube. */
            if (!is_last(m, n)) {
                const topo_node *next = &graph->nodes.items[n + 1];
                assert_true(next->sip > node->sip ||
                            (next->sip == node->sip && next->cube >= node->cube));
            }
        }
        topo_machine_destroy(m);
        free(description);
    }
}

static void there_is_nothing_beyond(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    static const struct {
        topo_kind kind;
        uint32_t sip, cube, index;
    } none[] = {
        {TOPO_HOST, 1, 0, 0},         {TOPO_HOST, 0, 0, 1},           {TOPO_SWITCH, 0, 1, 0},
        {TOPO_PCIE_EP, 2, 0, 0},      {TOPO_PCIE_EP, 0, 1, 0},        {TOPO_PCIE_EP, 0, 0, 1},
        {TOPO_IO_CPU, 0, 0, 1},       {TOPO_IO_NOC, 0, 0, 1},         {TOPO_IO_UCIE, 0, 0, 4},
        {TOPO_SIP_PORT, 0, 0, 1},     {TOPO_SIP_PORT, 0, 0, 4},       {TOPO_ROUTER, 0, 0, 16},
        {TOPO_UCIE, 0, 0, 4},         {TOPO_XBAR, 0, 16, 0},          {TOPO_XBAR, 0, 0, 1},
        {TOPO_HBM_CTRL, 0, 0, 8},     {TOPO_SRAM, 0, 0, 1},           {TOPO_M_CPU, 0, 0, 1},
        {TOPO_PE_DMA, 0, 0, 8},       {TOPO_PE_DMA, 2, 0, 0},         {TOPO_UCIE, 0, 0, TOPO_WEST},
        {TOPO_UCIE, 0, 3, TOPO_EAST}, {TOPO_UCIE, 0, 12, TOPO_SOUTH}, {TOPO_KINDS, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(topo_node_at(m, none[i].kind, none[i].sip, none[i].cube, none[i].index),
                         TOPO_NONE);
    topo_machine_destroy(m);
}

static uint32_t across(const topo_machine *m, uint32_t cube, topo_side side)
{
    const topo_graph *graph = topo_machine_graph(m);
    uint32_t port = topo_node_at(m, TOPO_UCIE, 0, cube, side);
    assert_int_not_equal(port, TOPO_NONE);
    for (uint32_t i = graph->first_out[port]; i < graph->first_out[port + 1]; i++) {
        const topo_node *other = &graph->nodes.items[graph->links.items[graph->out[i]].to];
        if (other->kind == TOPO_UCIE)
            return other->cube;
    }
    return TOPO_NONE;
}

/* In a 4x4 mesh cube 5 has N=1, S=9, E=6, W=4. */
static void cubes_are_numbered_row_by_row(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    assert_int_equal(across(m, 5, TOPO_NORTH), 1);
    assert_int_equal(across(m, 5, TOPO_SOUTH), 9);
    assert_int_equal(across(m, 5, TOPO_EAST), 6);
    assert_int_equal(across(m, 5, TOPO_WEST), 4);
    assert_int_equal(across(m, 2, TOPO_NORTH), TOPO_NONE); /* the IO chiplet is there */
    topo_machine_destroy(m);
}

static void pes_are_numbered_corner_by_corner(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    static const uint32_t routers[] = {0, 0, 3, 3, 12, 12, 15, 15};
    for (uint32_t pe = 0; pe < 8; pe++)
        assert_int_equal(topo_pe_router(m, pe), routers[pe]);
    topo_machine_destroy(m);
    m = machine_of(
        "cube: { noc: { w: 3, h: 2 }, pe_layout: { pe_per_corner: 1, corners: [SE, NW] } }");
    assert_int_equal(topo_machine_shape(m)->pes, 2);
    assert_int_equal(topo_pe_router(m, 0), 5);
    assert_int_equal(topo_pe_router(m, 1), 0);
    topo_machine_destroy(m);
    m = machine_of("cube: { noc: { w: 3, h: 2 }, pe_layout: { pe_per_router: 2 } }");
    assert_int_equal(topo_machine_shape(m)->pes, 12);
    for (uint32_t pe = 0; pe < 12; pe++)
        assert_int_equal(topo_pe_router(m, pe), pe / 2);
    topo_machine_destroy(m);
}

static void the_default_machine_is_as_specified(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    const topo_shape *shape = topo_machine_shape(m);
    assert_string_equal(topo_machine_name(m), "default");
    assert_int_equal(shape->sips, 2);
    assert_int_equal(shape->sip_pattern, TOPO_RING_1D);
    assert_int_equal(shape->sip_w, 2);
    assert_int_equal(shape->sip_h, 1);
    assert_false(shape->sip_links);
    assert_int_equal(shape->cubes, 16);
    assert_int_equal(shape->pes, 8);
    assert_int_equal(shape->pe_count, 256);
    assert_true(shape->hbm_bytes == (uint64_t)48 << 30);
    assert_true(shape->slice_bytes == (uint64_t)6 << 30);
    assert_int_equal(shape->sram_bytes, 32 << 20);
    assert_int_equal(shape->tcm_bytes, 16 << 20);
    assert_int_equal(shape->tcm_reserved_bytes, 4 << 20);
    assert_int_equal(shape->fabric.packet_bytes, 256);
    /*
     * Nodes of a SIP: 3 + 4 ports in the IO chiplet; 16 routers, a crossbar, 8 slices, SRAM, M CPU
     * and 8 PEs in each of 16 cubes; and 3 ports in the corner cubes of the south, 4 in others but
     * those of the other sides, which is 4 * 16 less 4 at each of east, west and south.
     */
    assert_int_equal(topo_machine_graph(m)->nodes.count, 2 + 2 * (7 + 16 * 35 + 52));
    assert_null(topo_machine_idle_settings(m));
    topo_machine_destroy(m);
}

/* The link of a pair of nodes, found the slow way. */
static uint32_t link_between(const topo_machine *m, uint32_t from, uint32_t to)
{
    const topo_graph *graph = topo_machine_graph(m);
    uint32_t found = TOPO_NONE;
    for (uint32_t i = graph->first_out[from]; i < graph->first_out[from + 1]; i++) {
        if (graph->links.items[graph->out[i]].to == to) {
            assert_int_equal(found, TOPO_NONE);
            found = graph->out[i];
        }
    }
    assert_int_not_equal(found, TOPO_NONE);
    return found;
}

/* Both directions; GB/s with one decimal, and mm. */
static void expect_pair(const topo_machine *m, uint32_t a, uint32_t b, uint64_t tenths_gbs,
                        double mm)
{
    const topo_graph *graph = topo_machine_graph(m);
    for (int back = 0; back <= 1; back++) {
        uint32_t link = back ? link_between(m, b, a) : link_between(m, a, b);
        assert_int_equal(topo_link_rate(graph, link), tenths_gbs * TOPO_GBS / 10);
        assert_int_equal(graph->links.items[link].wire_fs, (kb_time)(mm * 10000)); /* 10 ps/mm */
    }
}

static void links_have_the_figures_of_the_description(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    uint32_t ep = topo_node_at(m, TOPO_PCIE_EP, 1, 0, 0),
             noc = topo_node_at(m, TOPO_IO_NOC, 1, 0, 0);
    uint32_t router = topo_node_at(m, TOPO_ROUTER, 1, 2, 0),
             xbar = topo_node_at(m, TOPO_XBAR, 1, 2, 0);
    uint32_t pe = topo_node_at(m, TOPO_PE_DMA, 1, 2, 0),
             hbm = topo_node_at(m, TOPO_HBM_CTRL, 1, 2, 0);
    uint32_t sw = topo_node_at(m, TOPO_SWITCH, 0, 0, 0), sram = topo_node_at(m, TOPO_SRAM, 1, 2, 0);
    expect_pair(m, topo_node_at(m, TOPO_HOST, 0, 0, 0), sw, 640, 100);
    expect_pair(m, ep, sw, 640, 100);
    expect_pair(m, ep, noc, 5120, 5);
    expect_pair(m, topo_node_at(m, TOPO_IO_CPU, 1, 0, 0), noc, 5120, 5);
    expect_pair(m, topo_node_at(m, TOPO_IO_UCIE, 1, 0, 2), noc, 5120, 5);
    expect_pair(m, topo_node_at(m, TOPO_IO_UCIE, 1, 0, 2),
                topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_NORTH), 5120, 5);
    expect_pair(m, topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_EAST),
                topo_node_at(m, TOPO_UCIE, 1, 3, TOPO_WEST), 5120, 10);
    expect_pair(m, topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_SOUTH),
                topo_node_at(m, TOPO_UCIE, 1, 6, TOPO_NORTH), 5120, 10);
    /* N and S in column 1, E and W in row 1. */
    expect_pair(m, topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_NORTH), router + 1, 5120, 0);
    expect_pair(m, topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_SOUTH), router + 13, 5120, 0);
    expect_pair(m, topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_WEST), router + 4, 5120, 0);
    expect_pair(m, topo_node_at(m, TOPO_UCIE, 1, 2, TOPO_EAST), router + 7, 5120, 0);
    expect_pair(m, router, router + 1, 2560, 2.5);
    expect_pair(m, router + 11, router + 15, 2560, 2.5);
    expect_pair(m, topo_node_at(m, TOPO_M_CPU, 1, 2, 0), router + 5, 2560, 0);
    expect_pair(m, pe, router, 2560, 0);
    expect_pair(m, pe, xbar, 2560, 2);
    expect_pair(m, router, xbar, 2560, 2);
    expect_pair(m, router + 15, xbar, 2560, 2);
    expect_pair(m, xbar, hbm, 2560, 2);
    expect_pair(m, xbar, sram, 5120, 2);
    const topo_graph *graph = topo_machine_graph(m);
    assert_true(topo_link_rate(graph, graph->nodes.items[hbm].service) == 204800000000);
    assert_true(topo_link_rate(graph, graph->nodes.items[sram].service) == 512 * TOPO_GBS);
    topo_machine_destroy(m);
}

static void nodes_have_the_figures_of_the_description(void **state)
{
    (void)state;
    static const double ns[TOPO_KINDS] = {
        [TOPO_HOST] = 0,    [TOPO_SWITCH] = 5,  [TOPO_PCIE_EP] = 50,     [TOPO_IO_CPU] = 300,
        [TOPO_IO_NOC] = 1,  [TOPO_IO_UCIE] = 8, [TOPO_SIP_PORT] = 17.25, [TOPO_ROUTER] = 1,
        [TOPO_UCIE] = 8,    [TOPO_XBAR] = 2,    [TOPO_HBM_CTRL] = 76,    [TOPO_SRAM] = 10,
        [TOPO_M_CPU] = 200, [TOPO_PE_DMA] = 5};
    topo_machine *m = machine_with("system.sips.link.bw_gbs=100.5", "system.sips.link.length_mm=33",
                                   "system.sips.link.overhead_ns=17.25", NULL);
    const topo_graph *graph = topo_machine_graph(m);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const topo_node *node = &graph->nodes.items[n];
        assert_int_equal(node->overhead_fs, (kb_time)(ns[node->kind] * 1e6));
        bool memory = node->kind == TOPO_HBM_CTRL || node->kind == TOPO_SRAM;
        assert_int_equal(node->service != TOPO_NONE, memory);
        const topo_component *component = topo_machine_component(m, (topo_kind)node->kind);
        if (node->kind == TOPO_SIP_PORT)
            assert_null(component);
        else if (node->kind == TOPO_IO_UCIE)
            assert_string_equal(component->name, "builtin.ucie");
        else
            assert_string_equal(component->name + strlen("builtin."),
                                topo_kind_name((topo_kind)node->kind));
    }
    /* Direct links: the io_noc to the port as far as in the chiplet, then the link itself. */
    uint32_t port = topo_node_at(m, TOPO_SIP_PORT, 0, 0, TOPO_EAST);
    uint32_t to_port = link_between(m, topo_node_at(m, TOPO_IO_NOC, 0, 0, 0), port);
    uint32_t out = link_between(m, port, topo_node_at(m, TOPO_IO_NOC, 1, 0, 0));
    assert_true(topo_link_rate(graph, to_port) == 100500000000);
    assert_true(topo_link_rate(graph, out) == 100500000000);
    assert_int_equal(graph->links.items[to_port].wire_fs, 50 * KB_PS);
    assert_int_equal(graph->links.items[out].wire_fs, 330 * KB_PS);
    topo_machine_destroy(m);
}

/* Machines are connected by the way they are made, so one has to be broken to see the check work.
 */
static void nodes_that_cannot_be_reached_are_a_bug(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    uint32_t sw = topo_node_at(m, TOPO_SWITCH, 0, 0, 0),
             ep = topo_node_at(m, TOPO_PCIE_EP, 1, 0, 0);
    topo_link *down = &m->graph.links.items[link_between(m, sw, ep)];
    topo_link *up = &m->graph.links.items[link_between(m, ep, sw)];
    expect_ok(topo_check_reach(m));
    down->to = sw;
    expect_error(topo_check_reach(m), KB_ERR_BUG,
                 "619 nodes of the machine cannot be reached from the host");
    down->to = ep;
    up->to = ep;
    expect_error(topo_check_reach(m), KB_ERR_BUG, "619 nodes of the machine cannot reach the host");
    topo_machine_destroy(m);
}

/* A mm at 0.000001 ns/mm is a femtosecond: half of it is rounded up, less is rounded down. */
static void wires_are_rounded_to_the_nearest_femtosecond(void **state)
{
    (void)state;
    static const struct {
        const char *delay, *length;
        kb_time expected;
    } cases[] = {
        {"system.ns_per_mm=0.01", "cube.noc.length_mm=2.5", 25000},
        {"system.ns_per_mm=0.000001", "cube.noc.length_mm=0.5", 1},
        {"system.ns_per_mm=0.000001", "cube.noc.length_mm=0.499999", 0},
        {"system.ns_per_mm=0.000000333", "cube.noc.length_mm=10", 3},
        {"system.ns_per_mm=1", "cube.noc.length_mm=1000000", KB_MS},
        {"system.ns_per_mm=0", "cube.noc.length_mm=7", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        topo_machine *m = machine_with(cases[i].delay, cases[i].length, NULL, NULL);
        uint32_t router = topo_node_at(m, TOPO_ROUTER, 0, 0, 0);
        uint32_t link = link_between(m, router, router + 1);
        assert_int_equal(topo_machine_graph(m)->links.items[link].wire_fs, cases[i].expected);
        topo_machine_destroy(m);
    }
}

/* default.yaml leaves nothing out: whatever was there before it was read is gone. */
static void the_default_description_is_complete(void **state)
{
    (void)state;
    topo_description one, other;
    memset(&one, 0, sizeof one);
    memset(&other, 0x11, sizeof other);
    other.name[0] = '\0';
    /* What the kind of node has, and no more. */
    for (int kind = 0; kind < TOPO_KINDS; kind++)
        other.parts[kind].is = (topo_parameters){.timing.latency_fs = 7};
    other.parts[TOPO_HBM_CTRL].is.raw_bytes_per_s = other.parts[TOPO_HBM_CTRL].is.efficiency = 7;
    other.parts[TOPO_SRAM].is.timing.bytes_per_s = other.parts[TOPO_SRAM].is.bytes = 7;
    expect_ok(topo_description_default(&one));
    expect_ok(topo_description_default(&other));
    assert_true(topo_description_hash(&one) == topo_description_hash(&other));
    assert_string_equal(one.name, "default");
}

static void the_mesh_for_comparisons_is_as_its_comment_says(void **state)
{
    (void)state;
    topo_machine *m;
    expect_ok(topo_machine_load(&(topo_source){.path = "mesh-reference"}, &m));
    const topo_shape *shape = topo_machine_shape(m);
    const topo_graph *graph = topo_machine_graph(m);
    assert_string_equal(topo_machine_name(m), "mesh-reference");
    assert_int_equal(shape->pe_count, 64);
    assert_int_equal(shape->noc_w, 8);
    assert_int_equal(shape->noc_h, 8);
    assert_int_equal(shape->fabric.packet_bytes, 8);
    assert_int_equal(shape->fabric.vcs, 8);
    assert_int_equal(shape->fabric.depth_bytes, 64);
    /* From corner to corner: 15 routers of 4 cycles and one for the ends. 8 bytes a cycle. */
    uint32_t steps[64], from = topo_node_at(m, TOPO_PE_DMA, 0, 0, 0);
    uint32_t count = topo_route(m, from, topo_node_at(m, TOPO_PE_DMA, 0, 0, 63), true, steps);
    assert_int_equal(count, 16);
    kb_time latency = topo_source_overhead(graph, from);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t link = topo_step_link(steps[i]);
        latency += graph->links.items[link].wire_fs + topo_link_overhead(graph, link);
        assert_true(topo_link_rate(graph, link) == 8 * TOPO_GBS);
    }
    assert_int_equal(latency, (4 * 15 + 1) * KB_NS);
    topo_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_have_names),
        cmocka_unit_test(links_have_names),
        cmocka_unit_test(numbers_and_coordinates_agree),
        cmocka_unit_test(links_are_counted_beforehand),
        cmocka_unit_test(there_is_nothing_beyond),
        cmocka_unit_test(cubes_are_numbered_row_by_row),
        cmocka_unit_test(pes_are_numbered_corner_by_corner),
        cmocka_unit_test(the_default_machine_is_as_specified),
        cmocka_unit_test(links_have_the_figures_of_the_description),
        cmocka_unit_test(nodes_have_the_figures_of_the_description),
        cmocka_unit_test(nodes_that_cannot_be_reached_are_a_bug),
        cmocka_unit_test(wires_are_rounded_to_the_nearest_femtosecond),
        cmocka_unit_test(the_default_description_is_complete),
        cmocka_unit_test(the_mesh_for_comparisons_is_as_its_comment_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
