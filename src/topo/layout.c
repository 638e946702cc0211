/* layout.c: numbering nodes and links. What is counted here, compile.c makes in the same order. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

/* Sides that a mesh of that size has links on, seen from a point in it. */
static bool has_neighbour(topo_point at, topo_side side, uint32_t w, uint32_t h)
{
    switch (side) {
    case TOPO_NORTH:
        return at.y > 0;
    case TOPO_EAST:
        return at.x + 1u < w;
    case TOPO_SOUTH:
        return at.y + 1u < h;
    case TOPO_WEST:
    case TOPO_SIDES:
        break;
    }
    return at.x > 0;
}

/* Two in a row have a link already, so a ring begins with three. */
static bool wraps(const topo_description *d, uint32_t length)
{
    return d->sip_links && d->sip_pattern != TOPO_MESH_2D_NO_WRAP && length >= 3;
}

static bool has_sip_port(const topo_layout *l, topo_point at, topo_side side)
{
    bool wrap = side == TOPO_EAST || side == TOPO_WEST ? l->sip_wraps_x : l->sip_wraps_y;
    return wrap || has_neighbour(at, side, l->sip_w, l->sip_h);
}

uint32_t topo_layout_sip_across(const topo_layout *l, uint32_t sip, topo_side side)
{
    topo_point at = l->sips[sip].at;
    if (l->sips[sip].port_node[side] == TOPO_NONE)
        return TOPO_NONE;
    uint32_t x = at.x, y = at.y;
    x = side == TOPO_EAST ? (x + 1) % l->sip_w : x;
    x = side == TOPO_WEST ? (x + l->sip_w - 1) % l->sip_w : x;
    y = side == TOPO_SOUTH ? (y + 1) % l->sip_h : y;
    y = side == TOPO_NORTH ? (y + l->sip_h - 1) % l->sip_h : y;
    return y * l->sip_w + x;
}

uint32_t topo_layout_cube_across(const topo_layout *l, uint32_t cube, topo_side side)
{
    if (!has_neighbour(l->cubes[cube].at, side, l->cube_w, l->cube_h))
        return TOPO_NONE;
    switch (side) {
    case TOPO_NORTH:
        return cube - l->cube_w;
    case TOPO_EAST:
        return cube + 1;
    case TOPO_SOUTH:
        return cube + l->cube_w;
    case TOPO_WEST:
    case TOPO_SIDES:
        break;
    }
    return cube - 1;
}

static topo_point corner_at(const topo_description *d, topo_corner corner)
{
    bool east = corner == TOPO_NE || corner == TOPO_SE;
    bool south = corner == TOPO_SW || corner == TOPO_SE;
    return (topo_point){(uint16_t)(east ? d->noc_w - 1 : 0), (uint16_t)(south ? d->noc_h - 1 : 0)};
}

static bool is_same(topo_point a, topo_point b)
{
    return a.x == b.x && a.y == b.y;
}

/* Where the PEs are, and which of the routers that have some ("gates") is theirs. */
static void place_pes(topo_layout *l, const topo_description *d)
{
    for (uint32_t pe = 0; pe < l->pe_count; pe++) {
        topo_pe_layout *p = &l->pes[pe];
        if (d->pe_per_router) {
            uint32_t router = pe / d->pe_per_router;
            p->at = (topo_point){(uint16_t)(router % d->noc_w), (uint16_t)(router / d->noc_w)};
            p->gate = (uint16_t)router;
            l->gate_count = router + 1;
            continue;
        }
        p->at = corner_at(d, d->corners[pe / d->pe_per_corner]);
        /* Corners share a router if the NOC has one row or column. */
        uint32_t first = 0;
        while (!is_same(l->pes[first].at, p->at))
            first += d->pe_per_corner;
        p->gate = first < pe ? l->pes[first].gate : (uint16_t)l->gate_count++;
    }
}

/*
 * Ports are in the middle of each side. In a NOC less than three routers wide the column of the
 * ports N and S is that of W or E: then these are in the north row, where no packet that comes from
 * the north passes them (docs/decisions/0007-routing.md).
 */
static void place_ports(topo_layout *l)
{
    uint16_t middle_x = (uint16_t)((l->noc_w - 1) / 2), middle_y = (uint16_t)((l->noc_h - 1) / 2);
    uint16_t side_y = l->noc_w < 3 ? 0 : middle_y;
    l->port_at[TOPO_NORTH] = (topo_point){middle_x, 0};
    l->port_at[TOPO_SOUTH] = (topo_point){middle_x, (uint16_t)(l->noc_h - 1)};
    l->port_at[TOPO_EAST] = (topo_point){(uint16_t)(l->noc_w - 1), side_y};
    l->port_at[TOPO_WEST] = (topo_point){0, side_y};
    l->m_cpu_at = (topo_point){middle_x, middle_y};
}

/* Takes `count` numbers and returns the first. */
static uint32_t take(uint32_t *next, uint32_t count)
{
    uint32_t first = *next;
    *next += count;
    return first;
}

/* What all cubes have. Returns how many nodes and links that is. */
static void number_cube(topo_layout *l, uint32_t *nodes, uint32_t *links)
{
    uint32_t in_rows = (l->noc_w - 1) * l->noc_h, in_columns = l->noc_w * (l->noc_h - 1);
    *nodes = *links = 0;
    take(nodes, l->noc_w * l->noc_h);
    l->xbar_node = take(nodes, 1);
    l->memory_node = take(nodes, l->pe_count + 1);
    l->m_cpu_node = take(nodes, 1);
    l->pe_node = take(nodes, l->pe_count);
    l->east_link = take(links, in_rows);
    l->west_link = take(links, in_rows);
    l->south_link = take(links, in_columns);
    l->north_link = take(links, in_columns);
    l->gate_link = take(links, TOPO_GATE_LINKS * l->gate_count);
    l->memory_link = take(links, TOPO_MEMORY_LINKS * (l->pe_count + 1));
    l->m_cpu_link = take(links, TOPO_M_CPU_LINKS);
    l->pe_link = take(links, TOPO_PE_LINKS * l->pe_count);
}

/* The cubes of a SIP. Returns how many nodes and links they have. */
static void number_cubes(topo_layout *l, uint32_t *nodes, uint32_t *links)
{
    uint32_t cube_nodes, cube_links;
    number_cube(l, &cube_nodes, &cube_links);
    *nodes = *links = 0;
    for (uint32_t cube = 0; cube < l->cube_count; cube++) {
        topo_cube_layout *c = &l->cubes[cube];
        c->at = (topo_point){(uint16_t)(cube % l->cube_w), (uint16_t)(cube / l->cube_w)};
        c->first_node = take(nodes, cube_nodes);
        c->first_link = take(links, cube_links);
        for (unsigned side = 0; side < TOPO_SIDES; side++) {
            bool has =
                side == TOPO_NORTH || has_neighbour(c->at, (topo_side)side, l->cube_w, l->cube_h);
            c->port_node[side] = has ? take(nodes, 1) : TOPO_NONE;
            c->port_link[side] = has ? take(links, TOPO_PORT_LINKS) : TOPO_NONE;
        }
    }
}

static void number_sips(topo_layout *l)
{
    uint32_t cube_nodes, cube_links;
    number_cubes(l, &cube_nodes, &cube_links);
    uint32_t nodes = TOPO_SYSTEM_NODES, links = TOPO_HOST_LINKS;
    for (uint32_t sip = 0; sip < l->sip_count; sip++) {
        topo_sip_layout *s = &l->sips[sip];
        s->at = (topo_point){(uint16_t)(sip % l->sip_w), (uint16_t)(sip / l->sip_w)};
        s->io_node = take(&nodes, TOPO_IO_NODES + l->cube_w);
        s->io_link = take(&links, TOPO_IO_LINKS + TOPO_PORT_LINKS * l->cube_w);
        for (unsigned side = 0; side < TOPO_SIDES; side++) {
            bool has = l->sip_links && has_sip_port(l, s->at, (topo_side)side);
            s->port_node[side] = has ? take(&nodes, 1) : TOPO_NONE;
            s->port_link[side] = has ? take(&links, TOPO_SIP_PORT_LINKS) : TOPO_NONE;
        }
        s->cube_node = take(&nodes, cube_nodes);
        s->cube_link = take(&links, cube_links);
    }
    l->node_count = nodes;
    l->link_count = links;
}

/* Routers that have PEs. */
static uint64_t count_gates(const topo_description *d)
{
    if (d->pe_per_router)
        return (uint64_t)d->noc_w * d->noc_h;
    uint64_t count = 0;
    for (uint32_t i = 0; i < d->corner_count; i++) {
        uint32_t first = 0;
        while (!is_same(corner_at(d, d->corners[first]), corner_at(d, d->corners[i])))
            first++;
        count += first == i;
    }
    return count;
}

/* Ports of a mesh of SIPs in one dimension. */
static uint64_t count_sip_ports(const topo_description *d, uint32_t length, uint32_t others)
{
    uint64_t gaps = wraps(d, length) ? length : length - 1;
    return d->sip_links ? 2 * gaps * others : 0;
}

uint64_t topo_layout_count_links(const topo_description *d)
{
    uint64_t w = d->noc_w, h = d->noc_h, pes = d->pes;
    uint64_t cube = 2 * ((w - 1) * h + w * (h - 1)) + TOPO_GATE_LINKS * count_gates(d) +
                    TOPO_MEMORY_LINKS * (pes + 1) + TOPO_M_CPU_LINKS + TOPO_PE_LINKS * pes;
    uint64_t cube_w = d->cube_w, cube_h = d->cube_h;
    /* All have a north port; the others are where two cubes meet. */
    uint64_t ports = cube_w * cube_h + 2 * (cube_w - 1) * cube_h + cube_w * (cube_h - 1);
    uint64_t sip = TOPO_IO_LINKS + TOPO_PORT_LINKS * (cube_w + ports) + cube_w * cube_h * cube;
    uint64_t sip_ports =
        count_sip_ports(d, d->sip_w, d->sip_h) + count_sip_ports(d, d->sip_h, d->sip_w);
    return TOPO_HOST_LINKS + d->sips * sip + TOPO_SIP_PORT_LINKS * sip_ports;
}

kb_error *topo_layout_init(topo_layout *l, const topo_description *d)
{
    *l = (topo_layout){
        .sip_count = d->sips,
        .sip_w = d->sip_w,
        .sip_h = d->sip_h,
        .sip_links = d->sip_links,
        .sip_wraps_x = wraps(d, d->sip_w),
        .sip_wraps_y = wraps(d, d->sip_h),
        .cube_count = d->cube_w * d->cube_h,
        .cube_w = d->cube_w,
        .cube_h = d->cube_h,
        .noc_w = d->noc_w,
        .noc_h = d->noc_h,
        .pe_count = d->pes,
    };
    l->sips = kb_alloc_zeroed(l->sip_count, sizeof *l->sips);
    l->cubes = kb_alloc_zeroed(l->cube_count, sizeof *l->cubes);
    l->pes = kb_alloc_zeroed(l->pe_count, sizeof *l->pes);
    if (!l->sips || !l->cubes || !l->pes) {
        topo_layout_fini(l);
        return kb_error_nomem();
    }
    place_pes(l, d);
    place_ports(l);
    number_sips(l);
    return NULL;
}

void topo_layout_fini(topo_layout *l)
{
    free(l->sips);
    free(l->cubes);
    free(l->pes);
    memset(l, 0, sizeof *l);
}
