/*
 * compile.c: from a description to nodes and links, in the order of layout.h.
 *
 * A cube, with its routers as +, two PEs at each corner, and the crossbar that joins their
 * memories:
 *
 *                 ucie_n
 *     pe0 pe1  +--+--+--+  pe2 pe3         pe_dma -- xbar -- hbm_ctrl (one for each PE)
 *              |  |  |  |                           /    \
 *       ucie_w +--+--+--+ ucie_e        routers with PEs  sram
 *              |  |  |  |
 *              +--+--+--+
 *              |  |  |  |
 *     pe4 pe5  +--+--+--+  pe6 pe7
 *                 ucie_s
 *
 * What is at a router (PEs, the M CPU, ports) has a link to it but no wire. Not modelled: that
 * wires of one kind differ in length, such as those from the switch to near and far SIPs.
 */
#include "machine_private.h"

typedef struct builder {
    topo_graph *graph;
    const topo_layout *l;
    const topo_description *d;
} builder;

static void add_node(const builder *b, topo_kind kind, uint32_t sip, uint32_t cube, uint32_t index)
{
    topo_node node = {
        .overhead_fs = b->d->parts[kind].is.timing.latency_fs,
        .sip = (uint16_t)sip,
        .cube = (uint16_t)cube,
        .index = (uint16_t)index,
        .kind = (uint8_t)kind,
    };
    topo_graph_add_node(b->graph, node);
}

/* length * ns_per_mm, to the nearest femtosecond: 10^-6 mm * 10^-9 ns/mm is 10^-9 fs. */
static kb_time wire_time(const builder *b, uint64_t length_nm)
{
    __extension__ typedef unsigned __int128 wide;
    static const uint64_t giga = 1000000000;
    return (kb_time)(((wide)length_nm * b->d->wire_delay + giga / 2) / giga);
}

static void add_link(const builder *b, uint32_t from, uint32_t to, topo_wire wire)
{
    topo_graph_add_link(b->graph, from, to, wire.bytes_per_s, wire_time(b, wire.length_nm));
}

static void add_pair(const builder *b, uint32_t one, uint32_t other, topo_wire wire)
{
    add_link(b, one, other, wire);
    add_link(b, other, one, wire);
}

static topo_wire short_wire(uint64_t bytes_per_s)
{
    return (topo_wire){.bytes_per_s = bytes_per_s};
}

static void add_cube_nodes(const builder *b, uint32_t sip, uint32_t cube)
{
    const topo_layout *l = b->l;
    for (uint32_t i = 0; i < l->noc_w * l->noc_h; i++)
        add_node(b, TOPO_ROUTER, sip, cube, i);
    add_node(b, TOPO_XBAR, sip, cube, 0);
    for (uint32_t i = 0; i < l->pe_count; i++)
        add_node(b, TOPO_HBM_CTRL, sip, cube, i);
    add_node(b, TOPO_SRAM, sip, cube, 0);
    add_node(b, TOPO_M_CPU, sip, cube, 0);
    for (uint32_t i = 0; i < l->pe_count; i++)
        add_node(b, TOPO_PE_DMA, sip, cube, i);
    for (unsigned side = 0; side < TOPO_SIDES; side++)
        if (l->cubes[cube].port_node[side] != TOPO_NONE)
            add_node(b, TOPO_UCIE, sip, cube, side);
}

static void add_nodes(const builder *b)
{
    const topo_layout *l = b->l;
    add_node(b, TOPO_HOST, 0, 0, 0);
    add_node(b, TOPO_SWITCH, 0, 0, 0);
    for (uint32_t sip = 0; sip < l->sip_count; sip++) {
        add_node(b, TOPO_PCIE_EP, sip, 0, 0);
        add_node(b, TOPO_IO_CPU, sip, 0, 0);
        add_node(b, TOPO_IO_NOC, sip, 0, 0);
        for (uint32_t column = 0; column < l->cube_w; column++)
            add_node(b, TOPO_IO_UCIE, sip, 0, column);
        for (unsigned side = 0; side < TOPO_SIDES; side++)
            if (l->sips[sip].port_node[side] != TOPO_NONE)
                add_node(b, TOPO_SIP_PORT, sip, 0, side);
        for (uint32_t cube = 0; cube < l->cube_count; cube++)
            add_cube_nodes(b, sip, cube);
    }
}

/* The links between routers in one direction, in the order of the router further north-west. */
static void add_mesh(const builder *b, uint32_t first, topo_side side)
{
    const topo_layout *l = b->l;
    bool in_row = side == TOPO_EAST || side == TOPO_WEST;
    bool onwards = side == TOPO_EAST || side == TOPO_SOUTH;
    uint32_t w = in_row ? l->noc_w - 1 : l->noc_w, h = in_row ? l->noc_h : l->noc_h - 1;
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t x = 0; x < w; x++) {
            uint32_t near = first + y * l->noc_w + x, far = near + (in_row ? 1 : l->noc_w);
            add_link(b, onwards ? near : far, onwards ? far : near, b->d->noc);
        }
    }
}

static uint32_t router_at(const topo_layout *l, topo_point at)
{
    return (uint32_t)at.y * l->noc_w + at.x;
}

/* The links of routers that have PEs to the crossbar, in the order of the first PE there. */
static void add_gates(const builder *b, uint32_t first)
{
    const topo_layout *l = b->l;
    topo_wire wire = {.bytes_per_s = b->d->noc_to_xbar, .length_nm = b->d->xbar_length_nm};
    uint32_t gate = 0;
    for (uint32_t pe = 0; pe < l->pe_count; pe++) {
        if (l->pes[pe].gate != gate)
            continue;
        add_pair(b, first + router_at(l, l->pes[pe].at), first + l->xbar_node, wire);
        gate++;
    }
}

static void add_memory(const builder *b, uint32_t xbar, uint32_t memory, topo_kind kind,
                       uint64_t bytes_per_s)
{
    add_pair(b, xbar, memory, (topo_wire){bytes_per_s, b->d->xbar_length_nm});
    topo_graph_add_service(b->graph, memory, b->d->parts[kind].is.timing.bytes_per_s);
}

static void add_memories(const builder *b, uint32_t first)
{
    const topo_layout *l = b->l;
    uint32_t xbar = first + l->xbar_node, memory = first + l->memory_node;
    for (uint32_t slice = 0; slice < l->pe_count; slice++)
        add_memory(b, xbar, memory++, TOPO_HBM_CTRL, b->d->xbar_to_hbm);
    add_memory(b, xbar, memory, TOPO_SRAM, b->d->xbar_to_sram);
}

static void add_ports(const builder *b, uint32_t sip, uint32_t cube)
{
    const topo_layout *l = b->l;
    const topo_cube_layout *c = &l->cubes[cube];
    const topo_sip_layout *s = &l->sips[sip];
    for (unsigned side = 0; side < TOPO_SIDES; side++) {
        if (c->port_node[side] == TOPO_NONE)
            continue;
        uint32_t port = s->cube_node + c->port_node[side];
        uint32_t router = s->cube_node + c->first_node + router_at(l, l->port_at[side]);
        add_pair(b, port, router, short_wire(b->d->ucie_to_noc));
        uint32_t other = topo_layout_cube_across(l, cube, (topo_side)side);
        topo_wire across = {b->d->parts[TOPO_UCIE].is.timing.bytes_per_s, b->d->cube_pitch_nm};
        if (other == TOPO_NONE) { /* the north row: the IO chiplet is there */
            across.length_nm = b->d->io.length_nm;
            add_link(b, port, s->io_node + TOPO_IO_NODES + c->at.x, across);
        } else {
            add_link(b, port,
                     s->cube_node + l->cubes[other].port_node[topo_opposite((topo_side)side)],
                     across);
        }
    }
}

static void add_cube_links(const builder *b, uint32_t sip, uint32_t cube)
{
    const topo_layout *l = b->l;
    uint32_t first = l->sips[sip].cube_node + l->cubes[cube].first_node;
    uint32_t xbar = first + l->xbar_node;
    add_mesh(b, first, TOPO_EAST);
    add_mesh(b, first, TOPO_WEST);
    add_mesh(b, first, TOPO_SOUTH);
    add_mesh(b, first, TOPO_NORTH);
    add_gates(b, first);
    add_memories(b, first);
    add_pair(b, first + l->m_cpu_node, first + router_at(l, l->m_cpu_at),
             short_wire(b->d->noc.bytes_per_s));
    for (uint32_t pe = 0; pe < l->pe_count; pe++) {
        uint32_t dma = first + l->pe_node + pe;
        add_pair(b, dma, first + router_at(l, l->pes[pe].at), short_wire(b->d->pe_to_noc));
        add_pair(b, dma, xbar, (topo_wire){b->d->pe_to_xbar, b->d->xbar_length_nm});
    }
    add_ports(b, sip, cube);
}

static void add_io_links(const builder *b, uint32_t sip)
{
    const topo_layout *l = b->l;
    const topo_sip_layout *s = &l->sips[sip];
    uint32_t ep = s->io_node + TOPO_NODE_EP, noc = s->io_node + TOPO_NODE_IO_NOC;
    add_pair(b, ep, TOPO_NODE_SWITCH, b->d->sip_to_switch);
    add_pair(b, ep, noc, b->d->io);
    add_pair(b, s->io_node + TOPO_NODE_IO_CPU, noc, b->d->io);
    topo_wire across = {b->d->parts[TOPO_UCIE].is.timing.bytes_per_s, b->d->io.length_nm};
    for (uint32_t column = 0; column < l->cube_w; column++) {
        uint32_t port = s->io_node + TOPO_IO_NODES + column;
        add_pair(b, port, noc, b->d->io);
        add_link(b, port, s->cube_node + l->cubes[column].port_node[TOPO_NORTH], across);
    }
    topo_wire to_port = {b->d->sip_to_sip.bytes_per_s, b->d->io.length_nm};
    for (unsigned side = 0; side < TOPO_SIDES; side++) {
        uint32_t other = topo_layout_sip_across(l, sip, (topo_side)side);
        if (other == TOPO_NONE)
            continue;
        add_link(b, noc, s->port_node[side], to_port);
        add_link(b, s->port_node[side], l->sips[other].io_node + TOPO_NODE_IO_NOC,
                 b->d->sip_to_sip);
    }
}

kb_error *topo_compile(topo_machine *machine)
{
    topo_graph *graph = &machine->graph;
    const topo_layout *l = &machine->layout;
    builder b = {.graph = graph, .l = l, .d = &machine->description};
    if (!kb_vec_reserve(&graph->nodes, l->node_count) ||
        !kb_vec_reserve(&graph->links, l->link_count))
        return kb_error_nomem();
    add_nodes(&b);
    add_pair(&b, TOPO_NODE_HOST, TOPO_NODE_SWITCH, b.d->host_to_switch);
    for (uint32_t sip = 0; sip < l->sip_count; sip++) {
        add_io_links(&b, sip);
        for (uint32_t cube = 0; cube < l->cube_count; cube++)
            add_cube_links(&b, sip, cube);
    }
    KB_TRY(topo_graph_finish(graph));
    KB_ASSERT(graph->nodes.count == l->node_count && graph->links.count == l->link_count); /* T3 */
    return NULL;
}
