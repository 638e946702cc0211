/*
 * position.c: where things are drawn, in mm from the north-west corner. To scale as far as the
 * description gives lengths: the pitch of the cubes and of their routers. The rest is put where it
 * can be told apart.
 *
 *           host
 *          switch
 *     +--------------+ +--------------+
 *     | IO chiplet   | | IO chiplet   |
 *     | cube cube .. | | cube cube .. |
 *     | cube cube .. | | cube cube .. |
 *     +--------------+ +--------------+
 */
#include "machine_private.h"

typedef struct scale {
    const topo_layout *l;
    double pitch;        /* of cubes */
    double cell;         /* of routers */
    double io_height;    /* of an IO chiplet, with the gap below it */
    double sip_w, sip_h; /* pitch of SIPs */
    double top;          /* of the first SIPs: host and switch are above */
} scale;

static scale scale_of(const topo_machine *machine)
{
    const topo_layout *l = &machine->layout;
    const topo_description *d = &machine->description;
    static const double mm = 1e-6, least = 1, used = 0.8; /* nm; mm; of a cube, by its NOC */
    scale s = {.l = l, .pitch = (double)d->cube_pitch_nm * mm};
    if (s.pitch < least)
        s.pitch = 10 * least;
    uint32_t longer = l->noc_w > l->noc_h ? l->noc_w : l->noc_h;
    s.cell = (double)d->noc.length_nm * mm;
    if (s.cell <= 0 || s.cell * longer > s.pitch)
        s.cell = used * s.pitch / longer;
    s.io_height = s.pitch;
    s.sip_w = (l->cube_w + 1) * s.pitch;
    s.sip_h = (l->cube_h + 1) * s.pitch + s.io_height;
    s.top = 2 * s.pitch;
    return s;
}

static topo_point move(topo_point from, double x, double y)
{
    return (topo_point){from.x + x, from.y + y};
}

/* The middle of a router. */
static topo_point router_point(const scale *s, topo_point cube, topo_spot at)
{
    double x = at.x - 0.5 * (s->l->noc_w - 1), y = at.y - 0.5 * (s->l->noc_h - 1);
    return move(cube, x * s->cell, y * s->cell);
}

/* The PEs of a router stand in a row above it, and their memories in one below it. */
static topo_point pe_point(const scale *s, topo_point cube, uint32_t pe, double y)
{
    const topo_layout *l = s->l;
    uint32_t before = 0, all = 0;
    for (uint32_t i = 0; i < l->pe_count; i++) {
        all += l->pes[i].gate == l->pes[pe].gate;
        before += l->pes[i].gate == l->pes[pe].gate && i < pe;
    }
    double x = 0.8 * ((before + 0.5) / all - 0.5);
    return move(router_point(s, cube, l->pes[pe].at), x * s->cell, y * s->cell);
}

static topo_point port_point(const scale *s, topo_point cube, topo_side side)
{
    static const double edge = 0.46; /* of the pitch, from the middle */
    topo_point router = router_point(s, cube, s->l->port_at[side]);
    switch (side) {
    case TOPO_NORTH:
        return (topo_point){router.x, cube.y - edge * s->pitch};
    case TOPO_EAST:
        return (topo_point){cube.x + edge * s->pitch, router.y};
    case TOPO_SOUTH:
        return (topo_point){router.x, cube.y + edge * s->pitch};
    case TOPO_WEST:
    case TOPO_SIDES:
        break;
    }
    return (topo_point){cube.x - edge * s->pitch, router.y};
}

static topo_point in_cube(const scale *s, topo_point cube, const topo_node *node)
{
    const topo_layout *l = s->l;
    topo_spot at = {(uint16_t)(node->index % l->noc_w), (uint16_t)(node->index / l->noc_w)};
    topo_point middle = router_point(s, cube, l->m_cpu_at);
    switch ((topo_kind)node->kind) {
    case TOPO_ROUTER:
        return router_point(s, cube, at);
    case TOPO_UCIE:
        return port_point(s, cube, (topo_side)node->index);
    case TOPO_HBM_CTRL:
        return pe_point(s, cube, node->index, 0.3);
    case TOPO_PE_DMA:
        return pe_point(s, cube, node->index, -0.3);
    case TOPO_SRAM:
        return move(middle, 0.45 * s->cell, 0.15 * s->cell);
    case TOPO_M_CPU:
        return move(middle, 0.45 * s->cell, -0.15 * s->cell);
    default: /* the crossbar */
        return move(middle, 0.45 * s->cell, 0);
    }
}

static topo_point in_io(const scale *s, topo_point corner, const topo_node *node)
{
    double width = s->l->cube_w * s->pitch, height = s->io_height;
    topo_point middle = move(corner, 0.5 * width, 0.5 * height);
    switch ((topo_kind)node->kind) {
    case TOPO_PCIE_EP:
        return move(middle, 0, -0.4 * height);
    case TOPO_IO_CPU:
        return move(middle, 0.25 * s->pitch, -0.2 * height);
    case TOPO_IO_UCIE:
        return move(corner, (node->index + 0.5) * s->pitch, 0.85 * height);
    case TOPO_SIP_PORT: {
        static const double x[TOPO_SIDES] = {
            [TOPO_NORTH] = -0.3, [TOPO_EAST] = 0.45, [TOPO_SOUTH] = -0.2, [TOPO_WEST] = -0.45};
        static const double y[TOPO_SIDES] = {[TOPO_NORTH] = -0.4, [TOPO_SOUTH] = 0.25};
        return move(middle, x[node->index] * width, y[node->index] * height);
    }
    default: /* the io_noc */
        return middle;
    }
}

topo_point topo_node_position(const topo_machine *machine, uint32_t node)
{
    const topo_layout *l = &machine->layout;
    const topo_node *n = &machine->graph.nodes.items[node];
    scale s = scale_of(machine);
    topo_point above = {.x = 0.5 * (l->sip_w * s.sip_w), .y = 0.5 * s.pitch};
    if (n->kind == TOPO_HOST)
        return above;
    if (n->kind == TOPO_SWITCH)
        return move(above, 0, s.pitch);
    topo_spot at = l->sips[n->sip].at;
    topo_point corner = {.x = 0.5 * s.pitch + at.x * s.sip_w, .y = s.top + at.y * s.sip_h};
    if (node < l->sips[n->sip].cube_node)
        return in_io(&s, corner, n);
    topo_spot cube = l->cubes[n->cube].at;
    topo_point middle =
        move(corner, (cube.x + 0.5) * s.pitch, s.io_height + (cube.y + 0.5) * s.pitch);
    return in_cube(&s, middle, n);
}
