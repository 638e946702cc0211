/*
 * route.c: the route between two nodes.
 *
 * Dimension order everywhere: x before y between routers, between cubes and between SIPs. A cube is
 * left and entered through the port of the side, a SIP through the IO chiplet, north in the own
 * column and south in that of the destination. Nothing is searched and nothing is stored: the
 * numbers of links follow from the coordinates (layout.h).
 *
 * Phases: see docs/decisions/0007-routing.md.
 */
#include "machine_private.h"

/* A route that is being written. */
typedef struct route {
    const topo_layout *l;
    uint32_t *next;
    bool data;
} route;

/* An end of a route, with the number of the first link of its cube. */
typedef struct end {
    const topo_node *node;
    uint32_t first;
} end;

static void take(route *w, uint32_t link, topo_phase phase)
{
    *w->next++ = topo_step(link, phase);
}

static bool in_cube(const topo_node *node)
{
    return node->kind == TOPO_PE_DMA || node->kind == TOPO_HBM_CTRL || node->kind == TOPO_SRAM ||
           node->kind == TOPO_M_CPU;
}

static bool is_memory(const topo_node *node)
{
    return node->kind == TOPO_HBM_CTRL || node->kind == TOPO_SRAM;
}

/* ---- In a cube --------------------------------------------------------------------------- */

/* A row of steps whose links are `stride` apart. */
static uint32_t *run(uint32_t *next, uint32_t count, uint32_t link, uint32_t stride,
                     topo_phase phase)
{
    for (; count > 0; count--, link += stride)
        *next++ = topo_step(link, phase);
    return next;
}

/* x first. `first` is the first link of the cube; strides may be negative, around 2^32. */
static void cross_noc(route *w, uint32_t first, topo_point from, topo_point to, topo_phase phase)
{
    const topo_layout *l = w->l;
    uint32_t width = l->noc_w, row = first + from.y * (width - 1), column = first + to.x;
    uint32_t *next = w->next;
    if (from.x < to.x)
        next = run(next, (uint32_t)to.x - from.x, row + l->east_link + from.x, 1, phase);
    else if (from.x > to.x)
        next = run(next, (uint32_t)from.x - to.x, row + l->west_link + from.x - 1, -1u, phase);
    if (from.y < to.y)
        next = run(next, (uint32_t)to.y - from.y, column + l->south_link + from.y * width, width,
                   phase);
    else if (from.y > to.y)
        next = run(next, (uint32_t)from.y - to.y, column + l->north_link + (from.y - 1u) * width,
                   -width, phase);
    w->next = next;
}

/* The PE at whose router remote traffic of a memory meets the crossbar. */
static const topo_pe_layout *memory_pe(const topo_layout *l, const topo_node *memory)
{
    return &l->pes[memory->kind == TOPO_HBM_CTRL ? memory->index : 0];
}

static uint32_t memory_link(const topo_layout *l, end e)
{
    uint32_t memory = e.node->kind == TOPO_HBM_CTRL ? e.node->index : l->pe_count;
    return e.first + l->memory_link + TOPO_MEMORY_LINKS * memory;
}

static uint32_t pe_link(const topo_layout *l, end e)
{
    return e.first + l->pe_link + TOPO_PE_LINKS * e.node->index;
}

static void leave_memory(route *w, end from, topo_phase phase)
{
    uint32_t link = memory_link(w->l, from);
    if (w->data)
        take(w, link + TOPO_MEMORY_SERVICE, phase);
    take(w, link + TOPO_MEMORY_TO_XBAR, phase);
}

static void enter_memory(route *w, end to)
{
    uint32_t link = memory_link(w->l, to);
    take(w, link + TOPO_XBAR_TO_MEMORY, TOPO_AFTER);
    if (w->data)
        take(w, link + TOPO_MEMORY_SERVICE, TOPO_AFTER);
}

/* From a node of a cube to its router, which is returned. */
static topo_point enter_noc(route *w, end from, topo_phase phase)
{
    const topo_layout *l = w->l;
    if (from.node->kind == TOPO_PE_DMA) {
        take(w, pe_link(l, from) + TOPO_PE_TO_NOC, phase);
        return l->pes[from.node->index].at;
    }
    if (from.node->kind == TOPO_M_CPU) {
        take(w, from.first + l->m_cpu_link + TOPO_M_CPU_TO_NOC, phase);
        return l->m_cpu_at;
    }
    const topo_pe_layout *pe = memory_pe(l, from.node);
    leave_memory(w, from, phase);
    take(w, from.first + l->gate_link + TOPO_GATE_LINKS * pe->gate + TOPO_XBAR_TO_NOC, phase);
    return pe->at;
}

/* From a router of the destination's cube to the destination. */
static void arrive(route *w, topo_point at, end to)
{
    const topo_layout *l = w->l;
    if (to.node->kind == TOPO_PE_DMA) {
        cross_noc(w, to.first, at, l->pes[to.node->index].at, TOPO_AFTER);
        take(w, pe_link(l, to) + TOPO_NOC_TO_PE, TOPO_AFTER);
    } else if (to.node->kind == TOPO_M_CPU) {
        cross_noc(w, to.first, at, l->m_cpu_at, TOPO_AFTER);
        take(w, to.first + l->m_cpu_link + TOPO_NOC_TO_M_CPU, TOPO_AFTER);
    } else {
        const topo_pe_layout *pe = memory_pe(l, to.node);
        cross_noc(w, to.first, at, pe->at, TOPO_AFTER);
        take(w, to.first + l->gate_link + TOPO_GATE_LINKS * pe->gate + TOPO_NOC_TO_XBAR,
             TOPO_AFTER);
        enter_memory(w, to);
    }
}

/* Both ends in one cube. PEs and memories meet at the crossbar, others in the NOC. */
static void stay_in_cube(route *w, end from, end to)
{
    if (is_memory(from.node) && is_memory(to.node)) {
        leave_memory(w, from, TOPO_BEFORE);
        enter_memory(w, to);
    } else if (from.node->kind == TOPO_PE_DMA && is_memory(to.node)) {
        take(w, pe_link(w->l, from) + TOPO_PE_TO_XBAR, TOPO_AFTER);
        enter_memory(w, to);
    } else if (is_memory(from.node) && to.node->kind == TOPO_PE_DMA) {
        leave_memory(w, from, TOPO_AFTER);
        take(w, pe_link(w->l, to) + TOPO_XBAR_TO_PE, TOPO_AFTER);
    } else {
        arrive(w, enter_noc(w, from, TOPO_AFTER), to);
    }
}

/* ---- In a SIP ---------------------------------------------------------------------------- */

/* A packet at a router of a cube. */
typedef struct traveller {
    const topo_sip_layout *sip;
    uint32_t cube;
    topo_point at;
} traveller;

/* Out through a port and in through the one across. */
static void cross_ucie(route *w, traveller *t, topo_side side, uint32_t next, topo_phase phase)
{
    const topo_layout *l = w->l;
    const topo_cube_layout *c = &l->cubes[t->cube];
    topo_side other = topo_opposite(side);
    cross_noc(w, t->sip->cube_link + c->first_link, t->at, l->port_at[side], TOPO_BEFORE);
    take(w, t->sip->cube_link + c->port_link[side] + TOPO_PORT_OUT, TOPO_BEFORE);
    take(w, t->sip->cube_link + c->port_link[side] + TOPO_PORT_ACROSS, phase);
    take(w, t->sip->cube_link + l->cubes[next].port_link[other] + TOPO_PORT_IN, phase);
    t->cube = next;
    t->at = l->port_at[other];
}

/* To another cube of the SIP: it is entered in the phase AFTER. */
static void cross_cubes(route *w, traveller *t, uint32_t to)
{
    const topo_layout *l = w->l;
    while (t->cube != to) {
        topo_point here = l->cubes[t->cube].at, there = l->cubes[to].at;
        topo_side side = TOPO_SOUTH;
        uint32_t next = t->cube + l->cube_w;
        if (here.x < there.x) {
            side = TOPO_EAST;
            next = t->cube + 1;
        } else if (here.x > there.x) {
            side = TOPO_WEST;
            next = t->cube - 1;
        } else if (here.y > there.y) {
            side = TOPO_NORTH;
            next = t->cube - l->cube_w;
        }
        cross_ucie(w, t, side, next, next == to ? TOPO_AFTER : TOPO_BEFORE);
    }
}

static uint32_t column_link(const topo_sip_layout *sip, uint32_t column)
{
    return sip->io_link + TOPO_IO_LINKS + TOPO_PORT_LINKS * column;
}

/* North to the IO chiplet, up to its io_noc. */
static void leave_cubes(route *w, traveller *t)
{
    const topo_layout *l = w->l;
    while (t->cube >= l->cube_w)
        cross_ucie(w, t, TOPO_NORTH, t->cube - l->cube_w, TOPO_BEFORE);
    const topo_cube_layout *c = &l->cubes[t->cube];
    cross_noc(w, t->sip->cube_link + c->first_link, t->at, l->port_at[TOPO_NORTH], TOPO_BEFORE);
    take(w, t->sip->cube_link + c->port_link[TOPO_NORTH] + TOPO_PORT_OUT, TOPO_BEFORE);
    take(w, t->sip->cube_link + c->port_link[TOPO_NORTH] + TOPO_PORT_ACROSS, TOPO_BEFORE);
    take(w, column_link(t->sip, t->cube) + TOPO_PORT_IN, TOPO_BEFORE);
}

/* From the io_noc south to a cube. */
static traveller enter_cubes(route *w, const topo_sip_layout *sip, uint32_t to)
{
    const topo_layout *l = w->l;
    uint32_t column = l->cubes[to].at.x;
    topo_phase phase = column == to ? TOPO_AFTER : TOPO_BEFORE;
    take(w, column_link(sip, column) + TOPO_PORT_OUT, TOPO_BEFORE);
    take(w, column_link(sip, column) + TOPO_PORT_ACROSS, phase);
    take(w, sip->cube_link + l->cubes[column].port_link[TOPO_NORTH] + TOPO_PORT_IN, phase);
    traveller t = {.sip = sip, .cube = column, .at = l->port_at[TOPO_NORTH]};
    cross_cubes(w, &t, to);
    return t;
}

/* ---- Between SIPs ------------------------------------------------------------------------ */

/*
 * Whether the route goes east or south. If both directions round a ring are equally long, even
 * positions take that one and odd positions the other, so that both are used alike.
 */
static bool goes_onwards(uint32_t from, uint32_t to, uint32_t length, bool wraps)
{
    if (!wraps)
        return to > from;
    uint32_t distance = to > from ? to - from : to + length - from;
    return 2 * distance < length || (2 * distance == length && from % 2 == 0);
}

/* From io_noc to io_noc along one dimension, from position `from` to `to`. Returns the SIP there.
 */
static uint32_t cross_ring(route *w, uint32_t sip, uint32_t from, uint32_t to, uint32_t length,
                           bool wraps, bool in_row)
{
    const topo_layout *l = w->l;
    bool onwards = goes_onwards(from, to, length, wraps);
    uint32_t stride = in_row ? 1 : l->sip_w;
    topo_side along = in_row ? TOPO_EAST : TOPO_SOUTH;
    topo_side side = onwards ? along : topo_opposite(along);
    topo_phase phase = TOPO_BEFORE;
    while (from != to) {
        uint32_t link = l->sips[sip].port_link[side];
        bool wrapping = from == (onwards ? length - 1 : 0);
        take(w, link + TOPO_SIP_PORT_TO, phase);
        if (wrapping)
            phase = TOPO_WRAPPED;
        take(w, link + TOPO_SIP_PORT_ACROSS, phase);
        uint32_t next = onwards ? from + 1 : from - 1;
        if (wrapping)
            next = onwards ? 0 : length - 1;
        sip += (next - from) * stride; /* wraps around 2^32 as it should */
        from = next;
    }
    return sip;
}

static void cross_sips(route *w, uint32_t from, uint32_t to)
{
    const topo_layout *l = w->l;
    topo_point here = l->sips[from].at, there = l->sips[to].at;
    from = cross_ring(w, from, here.x, there.x, l->sip_w, l->sip_wraps_x, true);
    cross_ring(w, from, here.y, there.y, l->sip_h, l->sip_wraps_y, false);
}

/* ---- All of it --------------------------------------------------------------------------- */

/* Where a packet that is in no cube has got to. */
typedef enum stop { AT_SWITCH, AT_EP, AT_IO_NOC } stop;

/* Out of the cubes, or wherever the route begins. */
static stop set_out(route *w, end from)
{
    const topo_sip_layout *sip = &w->l->sips[from.node->sip];
    switch (from.node->kind) {
    case TOPO_HOST:
        take(w, TOPO_HOST_TO_SWITCH, TOPO_BEFORE);
        return AT_SWITCH;
    case TOPO_PCIE_EP:
        return AT_EP;
    case TOPO_IO_CPU:
        take(w, sip->io_link + TOPO_IO_CPU_TO_NOC, TOPO_BEFORE);
        return AT_IO_NOC;
    default:
        break;
    }
    traveller t = {.sip = sip, .cube = from.node->cube, .at = enter_noc(w, from, TOPO_BEFORE)};
    leave_cubes(w, &t);
    return AT_IO_NOC;
}

/* To the switch, from a SIP. */
static void climb(route *w, const topo_sip_layout *sip, stop at)
{
    if (at == AT_IO_NOC)
        take(w, sip->io_link + TOPO_IO_NOC_TO_EP, TOPO_BEFORE);
    if (at != AT_SWITCH)
        take(w, sip->io_link + TOPO_EP_TO_SWITCH, TOPO_BEFORE);
}

/* To the IO chiplet of the destination. */
static stop reach_sip(route *w, end from, end to, stop at)
{
    const topo_layout *l = w->l;
    const topo_sip_layout *here = &l->sips[from.node->sip], *there = &l->sips[to.node->sip];
    if (at != AT_SWITCH && here == there)
        return at;
    if (at == AT_SWITCH || !l->sip_links) {
        climb(w, here, at);
        take(w, there->io_link + TOPO_SWITCH_TO_EP, TOPO_BEFORE);
        return AT_EP;
    }
    if (at == AT_EP)
        take(w, here->io_link + TOPO_EP_TO_IO_NOC, TOPO_BEFORE);
    cross_sips(w, from.node->sip, to.node->sip);
    return AT_IO_NOC;
}

/* Through the IO chiplet of the destination and on. */
static void finish(route *w, end to, stop at)
{
    const topo_sip_layout *sip = &w->l->sips[to.node->sip];
    if (to.node->kind == TOPO_PCIE_EP) {
        if (at == AT_IO_NOC)
            take(w, sip->io_link + TOPO_IO_NOC_TO_EP, TOPO_BEFORE);
        return;
    }
    if (at == AT_EP)
        take(w, sip->io_link + TOPO_EP_TO_IO_NOC, TOPO_BEFORE);
    if (to.node->kind == TOPO_IO_CPU) {
        take(w, sip->io_link + TOPO_NOC_TO_IO_CPU, TOPO_BEFORE);
        return;
    }
    traveller t = enter_cubes(w, sip, to.node->cube);
    arrive(w, t.at, to);
}

static end end_at(const topo_machine *machine, uint32_t node)
{
    const topo_layout *l = &machine->layout;
    KB_DEBUG_ASSERT(node < machine->graph.nodes.count);
    const topo_node *n = &machine->graph.nodes.items[node];
    KB_DEBUG_ASSERT(in_cube(n) || n->kind == TOPO_HOST || n->kind == TOPO_PCIE_EP ||
                    n->kind == TOPO_IO_CPU);
    return (end){.node = n, .first = l->sips[n->sip].cube_link + l->cubes[n->cube].first_link};
}

uint32_t topo_route(const topo_machine *machine, uint32_t from, uint32_t to, bool data,
                    uint32_t *steps)
{
    route w = {.l = &machine->layout, .next = steps, .data = data};
    end a = end_at(machine, from), b = end_at(machine, to);
    if (in_cube(a.node) && in_cube(b.node) && a.node->sip == b.node->sip) {
        if (a.node->cube == b.node->cube) {
            if (from != to || a.node->kind != TOPO_M_CPU)
                stay_in_cube(&w, a, b);
        } else {
            traveller t = {.sip = &w.l->sips[a.node->sip], .cube = a.node->cube};
            t.at = enter_noc(&w, a, TOPO_BEFORE);
            cross_cubes(&w, &t, b.node->cube);
            arrive(&w, t.at, b);
        }
    } else if (from != to) {
        stop at = set_out(&w, a);
        if (b.node->kind == TOPO_HOST) {
            climb(&w, &w.l->sips[a.node->sip], at);
            take(&w, TOPO_SWITCH_TO_HOST, TOPO_BEFORE);
        } else {
            finish(&w, b, reach_sip(&w, a, b, at));
        }
    }
    return (uint32_t)(w.next - steps);
}

uint32_t topo_max_steps(const topo_layout *l)
{
    /* Through a cube: its NOC, and the three links of a port. */
    uint32_t cube = l->noc_w - 1 + l->noc_h - 1 + TOPO_PORT_LINKS;
    /* Out of one SIP and into another, or from corner to corner of one. */
    uint32_t apart = 2 * l->cube_h, inside = l->cube_w + l->cube_h;
    uint32_t sips = TOPO_SIP_PORT_LINKS * (l->sip_w + l->sip_h);
    static const uint32_t ends = 2 * TOPO_MEMORY_LINKS, io = 2 * 4;
    return ends + (apart > inside ? apart : inside) * cube + io + sips;
}
