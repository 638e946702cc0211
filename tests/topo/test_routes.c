/*
 * test_routes.c: routes of the default machine worked out by hand, one for each kind of pair, and
 * properties of routes on random machines.
 *
 * Checks T3.
 */
#include "random_machines.h"
#include "support/seed.h"

/* ---- By hand ----------------------------------------------------------------------------- */

/* "a>b>c": the nodes of a route, with its phases as letters before the names of links' ends. */
static char *route_text(const topo_machine *machine, uint32_t from, uint32_t to, bool data)
{
    uint32_t *steps = kb_alloc_array(topo_machine_shape(machine)->max_steps, sizeof *steps);
    assert_non_null(steps);
    uint32_t count = topo_route(machine, from, to, data, steps);
    kb_text text = KB_TEXT_INIT;
    topo_node_name(machine, from, &text);
    for (uint32_t i = 0; i < count; i++) {
        const topo_link *link = &topo_machine_graph(machine)->links.items[topo_step_link(steps[i])];
        kb_text_printf(&text, "\n%c ", "BAW"[topo_step_phase(steps[i])]);
        topo_node_name(machine, link->to, &text);
    }
    free(steps);
    char *taken = kb_text_take(&text);
    assert_non_null(taken);
    return taken;
}

static void expect_route(const topo_machine *machine, uint32_t from, uint32_t to, bool data,
                         const char *expected)
{
    assert_int_not_equal(from, TOPO_NONE);
    assert_int_not_equal(to, TOPO_NONE);
    char *text = route_text(machine, from, to, data);
    assert_string_equal(text, expected);
    free(text);
}

static uint32_t at(const topo_machine *machine, topo_kind kind, uint32_t sip, uint32_t cube,
                   uint32_t index)
{
    return topo_node_at(machine, kind, sip, cube, index);
}

/* host > switch > pcie_ep > io_noc > ucie > cubes southwards > noc > xbar > hbm_ctrl. */
static void host_to_memory(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    /* Cube 5 is in column 1; its slice 2 is at NE, router x3y0. */
    expect_route(m, at(m, TOPO_HOST, 0, 0, 0), at(m, TOPO_HBM_CTRL, 1, 5, 2), true,
                 "host\nB switch\nB sip1.io.pcie_ep\nB sip1.io.io_noc\nB sip1.io.ucie1\n"
                 "B sip1.cube1.ucie_n\nB sip1.cube1.noc.x1y0\nB sip1.cube1.noc.x1y1\n"
                 "B sip1.cube1.noc.x1y2\nB sip1.cube1.noc.x1y3\nB sip1.cube1.ucie_s\n"
                 "A sip1.cube5.ucie_n\nA sip1.cube5.noc.x1y0\nA sip1.cube5.noc.x2y0\n"
                 "A sip1.cube5.noc.x3y0\nA sip1.cube5.xbar\nA sip1.cube5.hbm_ctrl2\n"
                 "A sip1.cube5.hbm_ctrl2");
    /* A request for a read only arrives there, and the data comes back the same way. */
    expect_route(m, at(m, TOPO_HOST, 0, 0, 0), at(m, TOPO_HBM_CTRL, 0, 0, 0), false,
                 "host\nB switch\nB sip0.io.pcie_ep\nB sip0.io.io_noc\nB sip0.io.ucie0\n"
                 "A sip0.cube0.ucie_n\nA sip0.cube0.noc.x1y0\nA sip0.cube0.noc.x0y0\n"
                 "A sip0.cube0.xbar\nA sip0.cube0.hbm_ctrl0");
    expect_route(m, at(m, TOPO_HBM_CTRL, 0, 0, 0), at(m, TOPO_HOST, 0, 0, 0), true,
                 "sip0.cube0.hbm_ctrl0\nB sip0.cube0.hbm_ctrl0\nB sip0.cube0.xbar\n"
                 "B sip0.cube0.noc.x0y0\nB sip0.cube0.noc.x1y0\nB sip0.cube0.ucie_n\n"
                 "B sip0.io.ucie0\nB sip0.io.io_noc\nB sip0.io.pcie_ep\nB switch\nB host");
    topo_machine_destroy(m);
}

static void kernel_launch(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    expect_route(m, at(m, TOPO_HOST, 0, 0, 0), at(m, TOPO_IO_CPU, 1, 0, 0), false,
                 "host\nB switch\nB sip1.io.pcie_ep\nB sip1.io.io_noc\nB sip1.io.io_cpu");
    expect_route(m, at(m, TOPO_IO_CPU, 1, 0, 0), at(m, TOPO_M_CPU, 1, 2, 0), false,
                 "sip1.io.io_cpu\nB sip1.io.io_noc\nB sip1.io.ucie2\nA sip1.cube2.ucie_n\n"
                 "A sip1.cube2.noc.x1y0\nA sip1.cube2.noc.x1y1\nA sip1.cube2.m_cpu");
    /* PE 7 is at SE. */
    expect_route(m, at(m, TOPO_M_CPU, 1, 2, 0), at(m, TOPO_PE_DMA, 1, 2, 7), false,
                 "sip1.cube2.m_cpu\nA sip1.cube2.noc.x1y1\nA sip1.cube2.noc.x2y1\n"
                 "A sip1.cube2.noc.x3y1\nA sip1.cube2.noc.x3y2\nA sip1.cube2.noc.x3y3\n"
                 "A sip1.cube2.pe7.pe_dma");
    expect_route(m, at(m, TOPO_M_CPU, 1, 1, 0), at(m, TOPO_IO_CPU, 1, 0, 0), false,
                 "sip1.cube1.m_cpu\nB sip1.cube1.noc.x1y1\nB sip1.cube1.noc.x1y0\n"
                 "B sip1.cube1.ucie_n\nB sip1.io.ucie1\nB sip1.io.io_noc\nB sip1.io.io_cpu");
    expect_route(m, at(m, TOPO_IO_CPU, 1, 0, 0), at(m, TOPO_HOST, 0, 0, 0), false,
                 "sip1.io.io_cpu\nB sip1.io.io_noc\nB sip1.io.pcie_ep\nB switch\nB host");
    topo_machine_destroy(m);
}

static void memory_of_the_own_cube(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    expect_route(m, at(m, TOPO_PE_DMA, 0, 3, 1), at(m, TOPO_HBM_CTRL, 0, 3, 1), true,
                 "sip0.cube3.pe1.pe_dma\nA sip0.cube3.xbar\nA sip0.cube3.hbm_ctrl1\n"
                 "A sip0.cube3.hbm_ctrl1");
    expect_route(m, at(m, TOPO_PE_DMA, 0, 3, 1), at(m, TOPO_HBM_CTRL, 0, 3, 6), false,
                 "sip0.cube3.pe1.pe_dma\nA sip0.cube3.xbar\nA sip0.cube3.hbm_ctrl6");
    expect_route(m, at(m, TOPO_HBM_CTRL, 0, 3, 6), at(m, TOPO_PE_DMA, 0, 3, 1), true,
                 "sip0.cube3.hbm_ctrl6\nA sip0.cube3.hbm_ctrl6\nA sip0.cube3.xbar\n"
                 "A sip0.cube3.pe1.pe_dma");
    expect_route(m, at(m, TOPO_PE_DMA, 0, 3, 5), at(m, TOPO_SRAM, 0, 3, 0), true,
                 "sip0.cube3.pe5.pe_dma\nA sip0.cube3.xbar\nA sip0.cube3.sram\nA sip0.cube3.sram");
    /* The M CPU has no port of its own: through the router of the slice's PE. PE 0 stands for SRAM.
     */
    expect_route(m, at(m, TOPO_M_CPU, 0, 3, 0), at(m, TOPO_SRAM, 0, 3, 0), true,
                 "sip0.cube3.m_cpu\nA sip0.cube3.noc.x1y1\nA sip0.cube3.noc.x0y1\n"
                 "A sip0.cube3.noc.x0y0\nA sip0.cube3.xbar\nA sip0.cube3.sram\nA sip0.cube3.sram");
    expect_route(m, at(m, TOPO_HBM_CTRL, 0, 3, 0), at(m, TOPO_SRAM, 0, 3, 0), true,
                 "sip0.cube3.hbm_ctrl0\nB sip0.cube3.hbm_ctrl0\nB sip0.cube3.xbar\n"
                 "A sip0.cube3.sram\nA sip0.cube3.sram");
    topo_machine_destroy(m);
}

static void from_pe_to_pe(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    expect_route(m, at(m, TOPO_PE_DMA, 0, 0, 0), at(m, TOPO_PE_DMA, 0, 0, 0), true,
                 "sip0.cube0.pe0.pe_dma\nA sip0.cube0.noc.x0y0\nA sip0.cube0.pe0.pe_dma");
    expect_route(m, at(m, TOPO_PE_DMA, 0, 0, 0), at(m, TOPO_PE_DMA, 0, 0, 1), true,
                 "sip0.cube0.pe0.pe_dma\nA sip0.cube0.noc.x0y0\nA sip0.cube0.pe1.pe_dma");
    expect_route(m, at(m, TOPO_PE_DMA, 0, 0, 6), at(m, TOPO_PE_DMA, 0, 0, 0), true,
                 "sip0.cube0.pe6.pe_dma\nA sip0.cube0.noc.x3y3\nA sip0.cube0.noc.x2y3\n"
                 "A sip0.cube0.noc.x1y3\nA sip0.cube0.noc.x0y3\nA sip0.cube0.noc.x0y2\n"
                 "A sip0.cube0.noc.x0y1\nA sip0.cube0.noc.x0y0\nA sip0.cube0.pe0.pe_dma");
    topo_machine_destroy(m);
}

/* x first between cubes too: cube 6 to cube 1 goes west over cube 5, then north. */
static void to_another_cube(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    expect_route(m, at(m, TOPO_PE_DMA, 0, 6, 4), at(m, TOPO_HBM_CTRL, 0, 1, 3), true,
                 "sip0.cube6.pe4.pe_dma\nB sip0.cube6.noc.x0y3\nB sip0.cube6.noc.x0y2\n"
                 "B sip0.cube6.noc.x0y1\nB sip0.cube6.ucie_w\nB sip0.cube5.ucie_e\n"
                 "B sip0.cube5.noc.x3y1\nB sip0.cube5.noc.x2y1\nB sip0.cube5.noc.x1y1\n"
                 "B sip0.cube5.noc.x1y0\nB sip0.cube5.ucie_n\nA sip0.cube1.ucie_s\n"
                 "A sip0.cube1.noc.x1y3\nA sip0.cube1.noc.x2y3\nA sip0.cube1.noc.x3y3\n"
                 "A sip0.cube1.noc.x3y2\nA sip0.cube1.noc.x3y1\nA sip0.cube1.noc.x3y0\n"
                 "A sip0.cube1.xbar\nA sip0.cube1.hbm_ctrl3\nA sip0.cube1.hbm_ctrl3");
    /* The data of a read takes the same rule, so another way: north first is never taken. */
    expect_route(m, at(m, TOPO_HBM_CTRL, 0, 1, 3), at(m, TOPO_PE_DMA, 0, 6, 4), true,
                 "sip0.cube1.hbm_ctrl3\nB sip0.cube1.hbm_ctrl3\nB sip0.cube1.xbar\n"
                 "B sip0.cube1.noc.x3y0\nB sip0.cube1.noc.x3y1\nB sip0.cube1.ucie_e\n"
                 "B sip0.cube2.ucie_w\nB sip0.cube2.noc.x0y1\nB sip0.cube2.noc.x1y1\n"
                 "B sip0.cube2.noc.x1y2\nB sip0.cube2.noc.x1y3\nB sip0.cube2.ucie_s\n"
                 "A sip0.cube6.ucie_n\nA sip0.cube6.noc.x1y0\nA sip0.cube6.noc.x0y0\n"
                 "A sip0.cube6.noc.x0y1\nA sip0.cube6.noc.x0y2\nA sip0.cube6.noc.x0y3\n"
                 "A sip0.cube6.pe4.pe_dma");
    topo_machine_destroy(m);
}

static void to_another_sip_over_the_switch(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    expect_route(m, at(m, TOPO_PE_DMA, 0, 4, 0), at(m, TOPO_PE_DMA, 1, 1, 0), true,
                 "sip0.cube4.pe0.pe_dma\nB sip0.cube4.noc.x0y0\nB sip0.cube4.noc.x1y0\n"
                 "B sip0.cube4.ucie_n\nB sip0.cube0.ucie_s\nB sip0.cube0.noc.x1y3\n"
                 "B sip0.cube0.noc.x1y2\nB sip0.cube0.noc.x1y1\nB sip0.cube0.noc.x1y0\n"
                 "B sip0.cube0.ucie_n\nB sip0.io.ucie0\nB sip0.io.io_noc\nB sip0.io.pcie_ep\n"
                 "B switch\nB sip1.io.pcie_ep\nB sip1.io.io_noc\nB sip1.io.ucie1\n"
                 "A sip1.cube1.ucie_n\nA sip1.cube1.noc.x1y0\nA sip1.cube1.noc.x0y0\n"
                 "A sip1.cube1.pe0.pe_dma");
    expect_route(m, at(m, TOPO_PCIE_EP, 0, 0, 0), at(m, TOPO_PCIE_EP, 1, 0, 0), true,
                 "sip0.io.pcie_ep\nB switch\nB sip1.io.pcie_ep");
    topo_machine_destroy(m);
}

static void nowhere_to_go(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    static const topo_kind kinds[] = {TOPO_HOST, TOPO_PCIE_EP, TOPO_IO_CPU, TOPO_M_CPU};
    for (size_t i = 0; i < 4; i++) {
        uint32_t node = at(m, kinds[i], 0, 0, 0);
        assert_int_equal(topo_route(m, node, node, true, NULL), 0);
    }
    topo_machine_destroy(m);
}

static const char direct[] = "link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 }";

static topo_machine *linked_machine(const char *sips)
{
    char text[256];
    snprintf(text, sizeof text,
             "system: { sips: { %s, %s } }\nsip: { cube_mesh: { w: 1, h: 1 } }\n"
             "cube: { noc: { k: 1 } }\n",
             sips, direct);
    return machine_of(text);
}

/* From io_cpu to io_cpu, with only the SIP links shown: sip0.io.sip_e becomes "0e". */
static void expect_sips(topo_machine *m, uint32_t from, uint32_t to, const char *expected)
{
    uint32_t steps[64], count = topo_route(m, at(m, TOPO_IO_CPU, from, 0, 0),
                                           at(m, TOPO_IO_CPU, to, 0, 0), true, steps);
    assert_true(topo_machine_shape(m)->max_steps <= 64);
    kb_text text = KB_TEXT_INIT;
    for (uint32_t i = 0; i < count; i++) {
        const topo_link *link = &topo_machine_graph(m)->links.items[topo_step_link(steps[i])];
        const topo_node *node = &topo_machine_graph(m)->nodes.items[link->from];
        if (node->kind == TOPO_SIP_PORT)
            kb_text_printf(&text, "%s%u%c%s", text.length ? " " : "", node->sip,
                           "nesw"[node->index],
                           topo_step_phase(steps[i]) == TOPO_WRAPPED ? "*" : "");
    }
    assert_string_equal(kb_text_peek(&text), expected);
    kb_text_fini(&text);
}

static void direct_links_in_a_ring(void **state)
{
    (void)state;
    topo_machine *m = linked_machine("count: 5, topology: ring_1d");
    expect_route(m, at(m, TOPO_PE_DMA, 0, 0, 0), at(m, TOPO_PE_DMA, 1, 0, 0), true,
                 "sip0.cube0.pe0.pe_dma\nB sip0.cube0.noc.x0y0\nB sip0.cube0.ucie_n\n"
                 "B sip0.io.ucie0\nB sip0.io.io_noc\nB sip0.io.sip_e\nB sip1.io.io_noc\n"
                 "B sip1.io.ucie0\nA sip1.cube0.ucie_n\nA sip1.cube0.noc.x0y0\n"
                 "A sip1.cube0.pe0.pe_dma");
    expect_sips(m, 0, 2, "0e 1e");
    expect_sips(m, 0, 3, "0w* 4w*");
    expect_sips(m, 4, 1, "4e* 0e*");
    expect_sips(m, 3, 0, "3e 4e*");
    expect_sips(m, 1, 4, "1w 0w*");
    expect_sips(m, 3, 2, "3w");
    /* The host still comes over the switch, and an endpoint reaches others over the links. */
    expect_route(m, at(m, TOPO_HOST, 0, 0, 0), at(m, TOPO_IO_CPU, 2, 0, 0), true,
                 "host\nB switch\nB sip2.io.pcie_ep\nB sip2.io.io_noc\nB sip2.io.io_cpu");
    expect_route(m, at(m, TOPO_PCIE_EP, 4, 0, 0), at(m, TOPO_PCIE_EP, 0, 0, 0), true,
                 "sip4.io.pcie_ep\nB sip4.io.io_noc\nB sip4.io.sip_e\nW sip0.io.io_noc\n"
                 "B sip0.io.pcie_ep");
    topo_machine_destroy(m);
    m = linked_machine("count: 6, topology: ring_1d");
    /* Both directions are equally long: even positions go east, odd ones west. */
    expect_sips(m, 1, 4, "1w 0w* 5w*");
    expect_sips(m, 4, 1, "4e 5e* 0e*");
    topo_machine_destroy(m);
    /* Two have one pair of links, and nothing to go around. */
    m = linked_machine("count: 2, topology: ring_1d");
    expect_sips(m, 0, 1, "0e");
    expect_sips(m, 1, 0, "1w");
    assert_int_equal(at(m, TOPO_SIP_PORT, 0, 0, TOPO_WEST), TOPO_NONE);
    topo_machine_destroy(m);
}

static void direct_links_in_two_dimensions(void **state)
{
    (void)state;
    topo_machine *m = linked_machine("w: 4, h: 3, topology: torus_2d");
    expect_sips(m, 0, 5, "0e 1s");
    expect_sips(m, 5, 0, "5w 4n");
    expect_sips(m, 0, 11, "0w* 3n*");
    expect_sips(m, 3, 10, "3w 2n*");
    expect_sips(m, 11, 1, "11w 10w 9s*"); /* the tie of 2 in 4 goes west from column 3 */
    expect_sips(m, 4, 6, "4e 5e");
    topo_machine_destroy(m);
    m = linked_machine("w: 4, h: 3, topology: mesh_2d_no_wrap");
    expect_sips(m, 0, 11, "0e 1e 2e 3s 7s");
    expect_sips(m, 11, 0, "11w 10w 9w 8n 4n");
    assert_int_equal(at(m, TOPO_SIP_PORT, 0, 0, TOPO_NORTH), TOPO_NONE);
    assert_int_not_equal(at(m, TOPO_SIP_PORT, 0, 0, TOPO_SOUTH), TOPO_NONE);
    topo_machine_destroy(m);
    m = linked_machine("w: 2, h: 3, topology: mesh_2d"); /* wraps, but not where there are two */
    expect_sips(m, 1, 0, "1w");
    expect_sips(m, 4, 0, "4s*");
    expect_sips(m, 0, 5, "0e 1n*");
    topo_machine_destroy(m);
}

/* In a NOC of one router the corners are one, and PEs still meet memory at the crossbar. */
static void the_smallest_cube(void **state)
{
    (void)state;
    topo_machine *m =
        machine_of("system: { sips: { count: 1 } }\nsip: { cube_mesh: { w: 1, h: 2 } }\n"
                   "cube: { noc: { k: 1 } }\n");
    expect_route(m, at(m, TOPO_PE_DMA, 0, 0, 7), at(m, TOPO_HBM_CTRL, 0, 1, 0), true,
                 "sip0.cube0.pe7.pe_dma\nB sip0.cube0.noc.x0y0\nB sip0.cube0.ucie_s\n"
                 "A sip0.cube1.ucie_n\nA sip0.cube1.noc.x0y0\nA sip0.cube1.xbar\n"
                 "A sip0.cube1.hbm_ctrl0\nA sip0.cube1.hbm_ctrl0");
    topo_machine_destroy(m);
}

/* ---- On random machines ------------------------------------------------------------------ */

/* Where the next link starts the last one ended; it begins and ends right; no link comes twice. */
static void check_way(const topo_machine *m, uint32_t from, uint32_t to, bool data,
                      const uint32_t *steps, uint32_t count)
{
    const topo_graph *graph = topo_machine_graph(m);
    uint32_t here = from;
    assert_true(count <= topo_machine_shape(m)->max_steps);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = topo_step_link(steps[i]);
        assert_true(number < graph->links.count);
        const topo_link *link = &graph->links.items[number];
        assert_int_equal(link->from, here);
        here = link->to;
        bool service = link->from == link->to;
        assert_true(!service || (data && (i == 0 || i == count - 1)));
        if (from != to || !is_memory(m, from))
            for (uint32_t j = 0; j < i; j++)
                assert_int_not_equal(topo_step_link(steps[j]), number);
    }
    assert_int_equal(here, to);
}

/* Between routers of a cube and between cubes, x is over before y begins. */
static void check_order(const topo_machine *m, const uint32_t *steps, uint32_t count)
{
    const topo_graph *graph = topo_machine_graph(m);
    uint32_t w = topo_machine_shape(m)->noc_w;
    bool routers_in_y = false, cubes_in_y = false;
    for (uint32_t i = 0; i < count; i++) {
        const topo_link *link = &graph->links.items[topo_step_link(steps[i])];
        const topo_node *a = &graph->nodes.items[link->from], *b = &graph->nodes.items[link->to];
        if (a->kind == TOPO_ROUTER && b->kind == TOPO_ROUTER) {
            bool in_y = a->index % w == b->index % w;
            assert_true(in_y || !routers_in_y);
            routers_in_y = in_y;
        } else {
            routers_in_y = false;
        }
        if (a->kind == TOPO_UCIE && b->kind == TOPO_UCIE) {
            bool in_y = a->index == TOPO_NORTH || a->index == TOPO_SOUTH;
            assert_true(in_y || !cubes_in_y);
            cubes_in_y = in_y;
        }
        if (b->kind == TOPO_IO_NOC)
            cubes_in_y = true; /* from there it is south only */
    }
}

/* AFTER begins once, with the link into the cube of the destination, and then stays. */
static void check_phases(const topo_machine *m, uint32_t from, uint32_t to, const uint32_t *steps,
                         uint32_t count)
{
    const topo_graph *graph = topo_machine_graph(m);
    const topo_node *a = &graph->nodes.items[from], *b = &graph->nodes.items[to];
    bool in_cube = b->kind >= TOPO_ROUTER;
    bool one_cube = in_cube && a->kind >= TOPO_ROUTER && a->sip == b->sip && a->cube == b->cube;
    for (uint32_t i = 0; i < count; i++) {
        const topo_link *link = &graph->links.items[topo_step_link(steps[i])];
        const topo_node *end = &graph->nodes.items[link->to];
        topo_phase phase = topo_step_phase(steps[i]);
        bool inside =
            in_cube && end->kind >= TOPO_ROUTER && end->sip == b->sip && end->cube == b->cube;
        if (one_cube && is_memory(m, from) && is_memory(m, to))
            continue; /* changes at the crossbar */
        assert_int_equal(phase == TOPO_AFTER, inside);
        if (phase == TOPO_WRAPPED)
            assert_true(end->kind == TOPO_SIP_PORT || end->kind == TOPO_IO_NOC);
    }
}

static uint32_t distance(uint32_t a, uint32_t b, uint32_t length, bool wraps)
{
    uint32_t direct_way = a > b ? a - b : b - a;
    return wraps && length - direct_way < direct_way ? length - direct_way : direct_way;
}

/* Links between SIPs that a way should take. */
static uint32_t sip_distance(const topo_shape *shape, uint32_t a, uint32_t b)
{
    bool wraps = shape->sip_pattern != TOPO_MESH_2D_NO_WRAP;
    return distance(a % shape->sip_w, b % shape->sip_w, shape->sip_w, wraps) +
           distance(a / shape->sip_w, b / shape->sip_w, shape->sip_h, wraps);
}

static void check_length(const topo_machine *m, uint32_t from, uint32_t to, const uint32_t *steps,
                         uint32_t count)
{
    const topo_graph *graph = topo_machine_graph(m);
    const topo_shape *shape = topo_machine_shape(m);
    const topo_node *a = &graph->nodes.items[from], *b = &graph->nodes.items[to];
    uint32_t crossings = 0, sips = 0, switches = 0;
    for (uint32_t i = 0; i < count; i++) {
        const topo_link *link = &graph->links.items[topo_step_link(steps[i])];
        crossings += graph->nodes.items[link->from].kind == TOPO_UCIE &&
                     graph->nodes.items[link->to].kind == TOPO_UCIE;
        sips += graph->nodes.items[link->from].kind == TOPO_SIP_PORT;
        switches += link->to == topo_node_at(m, TOPO_SWITCH, 0, 0, 0);
    }
    bool host = a->kind == TOPO_HOST || b->kind == TOPO_HOST;
    bool direct_way = shape->sip_links && !host;
    assert_int_equal(sips, direct_way ? sip_distance(shape, a->sip, b->sip) : 0);
    assert_int_equal(switches, from != to && !direct_way && (host || a->sip != b->sip));
    uint32_t expected = 0, w = shape->cube_w;
    if (a->kind >= TOPO_ROUTER && b->kind >= TOPO_ROUTER && a->sip == b->sip)
        expected = distance(a->cube % w, b->cube % w, w, false) +
                   distance(a->cube / w, b->cube / w, shape->cube_h, false);
    else if (from != to)
        expected = a->cube / w + b->cube / w; /* up from one, down to the other */
    assert_int_equal(crossings, expected);
}

static void check_pair(const topo_machine *m, uint32_t from, uint32_t to, uint32_t *steps)
{
    for (int data = 0; data <= 1; data++) {
        uint32_t count = topo_route(m, from, to, data, steps);
        check_way(m, from, to, data, steps, count);
        check_order(m, steps, count);
        check_phases(m, from, to, steps, count);
        check_length(m, from, to, steps, count);
        uint32_t memories = (uint32_t)is_memory(m, from) + is_memory(m, to);
        uint32_t longest = topo_machine_shape(m)->max_steps;
        steps[longest] = 0x5eed;
        assert_int_equal(topo_route(m, from, to, !data, steps),
                         data ? count - memories : count + memories);
        assert_int_equal(steps[longest], 0x5eed);
    }
}

/* Inside a cube the way back is as long as the way there. */
static void check_symmetry(const topo_machine *m, uint32_t from, uint32_t to, uint32_t *steps)
{
    const topo_graph *graph = topo_machine_graph(m);
    const topo_node *a = &graph->nodes.items[from], *b = &graph->nodes.items[to];
    bool one_column =
        a->cube % topo_machine_shape(m)->cube_w == b->cube % topo_machine_shape(m)->cube_w;
    /* Turns between rows of cubes cost differently many routers; without them it is the same. */
    if (a->sip == b->sip && one_column)
        assert_int_equal(topo_route(m, from, to, true, steps),
                         topo_route(m, to, from, true, steps));
}

static void ways_are_right_on_random_machines(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(6));
    for (int round = 0; round < 300; round++) {
        char *text = random_description(&rng);
        topo_machine *m = machine_of(text);
        node_list ends = list_ends(m);
        uint32_t *steps = kb_alloc_array(topo_machine_shape(m)->max_steps + 1, sizeof *steps);
        assert_non_null(steps);
        for (int i = 0; i < 300; i++) {
            uint32_t from = ends.items[kb_rng_below(&rng, ends.count)];
            uint32_t to = ends.items[kb_rng_below(&rng, ends.count)];
            check_pair(m, from, to, steps);
            check_symmetry(m, from, to, steps);
        }
        free(steps);
        kb_vec_fini(&ends);
        topo_machine_destroy(m);
        free(text);
    }
}

/* The bound is one that a caller can afford: the longest way comes near it. */
static void the_bound_is_not_far_off(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    node_list ends = list_ends(m);
    uint32_t steps[256], bound = topo_machine_shape(m)->max_steps, longest = 0;
    assert_true(bound <= 256);
    for (size_t i = 0; i < ends.count; i++) {
        for (size_t j = 0; j < ends.count; j++) {
            uint32_t count = topo_route(m, ends.items[i], ends.items[j], true, steps);
            longest = count > longest ? count : longest;
        }
    }
    assert_true(longest <= bound && 2 * longest >= bound);
    kb_vec_fini(&ends);
    topo_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_to_memory),
        cmocka_unit_test(kernel_launch),
        cmocka_unit_test(memory_of_the_own_cube),
        cmocka_unit_test(from_pe_to_pe),
        cmocka_unit_test(to_another_cube),
        cmocka_unit_test(to_another_sip_over_the_switch),
        cmocka_unit_test(nowhere_to_go),
        cmocka_unit_test(direct_links_in_a_ring),
        cmocka_unit_test(direct_links_in_two_dimensions),
        cmocka_unit_test(the_smallest_cube),
        cmocka_unit_test(ways_are_right_on_random_machines),
        cmocka_unit_test(the_bound_is_not_far_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
