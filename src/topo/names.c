/* names.c: what nodes and links are called, in every message, trace and report. */
#include <inttypes.h>
#include <stdio.h>

#include "machine_private.h"
#include "pe_index.h"

static const char *const kind_names[TOPO_KINDS] = {
    [TOPO_HOST] = "host",         [TOPO_SWITCH] = "switch",     [TOPO_PCIE_EP] = "pcie_ep",
    [TOPO_IO_CPU] = "io_cpu",     [TOPO_IO_NOC] = "io_noc",     [TOPO_IO_UCIE] = "io_ucie",
    [TOPO_SIP_PORT] = "sip_port", [TOPO_ROUTER] = "router",     [TOPO_UCIE] = "ucie",
    [TOPO_XBAR] = "xbar",         [TOPO_HBM_CTRL] = "hbm_ctrl", [TOPO_SRAM] = "sram",
    [TOPO_M_CPU] = "m_cpu",       [TOPO_PE_DMA] = "pe_dma",
};

const char *const topo_corner_names[TOPO_CORNERS] = {
    [TOPO_NW] = "NW", [TOPO_NE] = "NE", [TOPO_SW] = "SW", [TOPO_SE] = "SE"};

const char *topo_sip_pattern_name(topo_sip_pattern pattern)
{
    static const char *const names[] = {
        [TOPO_RING_1D] = "ring_1d",
        [TOPO_TORUS_2D] = "torus_2d",
        [TOPO_MESH_2D_NO_WRAP] = "mesh_2d_no_wrap",
    };
    return names[pattern];
}

const char *topo_kind_name(topo_kind kind)
{
    return kind_names[kind];
}

topo_pe_text topo_pe_name(kb_pe pe)
{
    topo_pe_text name;
    (void)snprintf(name.text, sizeof name.text, "sip%" PRIu32 ".cube%" PRIu32 ".pe%" PRIu32, pe.sip,
                   pe.cube, pe.pe);
    return name;
}

topo_pe_text topo_cube_name(kb_pe pe)
{
    topo_pe_text name;
    (void)snprintf(name.text, sizeof name.text, "sip%" PRIu32 ".cube%" PRIu32, pe.sip, pe.cube);
    return name;
}

void topo_node_name(const topo_machine *machine, uint32_t node, kb_text *text)
{
    static const char side[TOPO_SIDES] = "nesw";
    const topo_node *n = &machine->graph.nodes.items[node];
    const char *kind = topo_kind_name((topo_kind)n->kind);
    uint32_t w = machine->layout.noc_w;
    switch ((topo_kind)n->kind) {
    case TOPO_HOST:
    case TOPO_SWITCH:
    case TOPO_KINDS:
        kb_text_puts(text, kind);
        break;
    case TOPO_PCIE_EP:
    case TOPO_IO_CPU:
    case TOPO_IO_NOC:
        kb_text_printf(text, "sip%u.io.%s", n->sip, kind);
        break;
    case TOPO_IO_UCIE:
        kb_text_printf(text, "sip%u.io.ucie%u", n->sip, n->index);
        break;
    case TOPO_SIP_PORT:
        kb_text_printf(text, "sip%u.io.sip_%c", n->sip, side[n->index]);
        break;
    case TOPO_ROUTER:
        kb_text_printf(text, "sip%u.cube%u.noc.x%uy%u", n->sip, n->cube, n->index % w,
                       n->index / w);
        break;
    case TOPO_UCIE:
        kb_text_printf(text, "sip%u.cube%u.ucie_%c", n->sip, n->cube, side[n->index]);
        break;
    case TOPO_HBM_CTRL:
        kb_text_printf(text, "sip%u.cube%u.hbm_ctrl%u", n->sip, n->cube, n->index);
        break;
    case TOPO_XBAR:
    case TOPO_SRAM:
    case TOPO_M_CPU:
        kb_text_printf(text, "sip%u.cube%u.%s", n->sip, n->cube, kind);
        break;
    case TOPO_PE_DMA:
        kb_text_printf(text, "sip%u.cube%u.pe%u.pe_dma", n->sip, n->cube, n->index);
        break;
    }
}

void topo_link_name(const topo_machine *machine, uint32_t link, kb_text *text)
{
    const topo_link *l = &machine->graph.links.items[link];
    topo_node_name(machine, l->from, text);
    if (l->from == l->to)
        return; /* a memory serving */
    kb_text_puts(text, ">");
    topo_node_name(machine, l->to, text);
}
