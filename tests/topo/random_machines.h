/* random_machines.h: what the tests of topo share: loading machines, making random ones, listing
 * ends. */
#ifndef TESTS_TOPO_MACHINES_H
#define TESTS_TOPO_MACHINES_H

#include "support/expect.h"

#include "topo/topo.h"

/* The default machine with up to four settings. */
static inline topo_machine *machine_with(const char *first, const char *second, const char *third,
                                         const char *fourth)
{
    const char *settings[] = {first, second, third, fourth};
    size_t count = 0;
    while (count < 4 && settings[count])
        count++;
    topo_machine *machine;
    expect_ok(
        topo_machine_load(&(topo_source){.settings = settings, .setting_count = count}, &machine));
    return machine;
}

static inline topo_machine *default_machine(void)
{
    return machine_with(NULL, NULL, NULL, NULL);
}

static inline topo_machine *machine_of(const char *text)
{
    topo_machine *machine;
    expect_ok(topo_machine_load(
        &(topo_source){.path = "f.yaml", .text = text, .length = strlen(text)}, &machine));
    return machine;
}

static inline uint32_t between(kb_rng *rng, uint32_t min, uint32_t max)
{
    return min + (uint32_t)kb_rng_below(rng, max - min + 1);
}

static inline void add_random_sips(kb_rng *rng, kb_text *text)
{
    static const char *const patterns[] = {"ring_1d", "torus_2d", "mesh_2d", "mesh_2d_no_wrap"};
    uint32_t pattern = between(rng, 0, 3);
    kb_text_puts(text, "system:\n  sips:\n");
    if (pattern == 0)
        kb_text_printf(text, "    count: %u\n", between(rng, 1, 9));
    else
        kb_text_printf(text, "    w: %u\n    h: %u\n", between(rng, 1, 5), between(rng, 1, 4));
    kb_text_printf(text, "    topology: %s\n", patterns[pattern]);
    if (between(rng, 0, 2) > 0)
        kb_text_puts(text, "    link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 }\n");
}

/* Any shape: narrow and wide NOCs, all patterns of SIPs, both ways to place PEs. */
static inline char *random_description(kb_rng *rng)
{
    kb_text text = KB_TEXT_INIT;
    add_random_sips(rng, &text);
    kb_text_printf(&text, "sip:\n  cube_mesh: { w: %u, h: %u }\n", between(rng, 1, 5),
                   between(rng, 1, 4));
    uint32_t w = between(rng, 1, 5), h = between(rng, 1, 5), pes;
    kb_text_printf(&text, "cube:\n  noc: { w: %u, h: %u }\n", w, h);
    if (between(rng, 0, 2) == 0) {
        uint32_t each = between(rng, 1, 2);
        pes = each * w * h;
        kb_text_printf(&text, "  pe_layout: { pe_per_router: %u }\n", each);
    } else {
        static const char *const corners[] = {"[SE]", "[NE, NW]", "[SW, NW, SE]",
                                              "[NW, NE, SW, SE]"};
        uint32_t count = between(rng, 1, 4), each = between(rng, 1, 3);
        pes = each * count;
        kb_text_printf(&text, "  pe_layout: { pe_per_corner: %u, corners: %s }\n", each,
                       corners[count - 1]);
    }
    kb_text_printf(&text, "  hbm_gib: %u\n", pes);
    char *taken = kb_text_take(&text);
    assert_non_null(taken);
    return taken;
}

/* Nodes that routes may begin and end at. */
typedef KB_VEC(uint32_t) node_list;

static inline bool is_end(const topo_node *node)
{
    switch ((topo_kind)node->kind) {
    case TOPO_HOST:
    case TOPO_PCIE_EP:
    case TOPO_IO_CPU:
    case TOPO_M_CPU:
    case TOPO_HBM_CTRL:
    case TOPO_SRAM:
    case TOPO_PE_DMA:
        return true;
    default:
        return false;
    }
}

static inline node_list list_ends(const topo_machine *machine)
{
    node_list ends = {0};
    const topo_graph *graph = topo_machine_graph(machine);
    for (uint32_t n = 0; n < graph->nodes.count; n++)
        if (is_end(&graph->nodes.items[n]))
            assert_true(kb_vec_push(&ends, n));
    return ends;
}

static inline bool is_memory(const topo_machine *machine, uint32_t node)
{
    return topo_machine_graph(machine)->nodes.items[node].service != TOPO_NONE;
}

#endif
