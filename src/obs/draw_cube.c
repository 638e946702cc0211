/*
 * draw_cube.c: the die of a cube.
 *
 *     +-------------[ucie]-------------+
 *     | hbm0 hbm1      |     hbm2 hbm3 |
 *     | +=============xbar===========+ |    the crossbar is a ring, near what it connects
 *     | # pe0 pe1      |     pe2 pe3 # |
 *     | #-o------o-----o--------o----# |    routers at the corners have their own links to it
 *   [ucie]-----------------         [sram]
 *
 * PEs that are not at the corners are drawn beside their routers.
 *
 * The die is divided into zones, so that boxes never overlap. From north to south: rows of slices,
 * the ring, rows of PEs, the mesh, and the same in reverse. From west to east inside the ring: the
 * crossbar's name, the mesh, the PEs or the m_cpu beside its last column, the sram.
 */
#include "draw.h"

#include <stdio.h>

#include "base/base.h"

enum {
    LABEL = 11,     /* size of letters */
    ROW = 24,       /* pitch of rows of slices or PEs, with a gap of 4 */
    EDGE = 14,      /* from the edge of the die to the first row, with room for ports */
    SIDE = 36,      /* from the edge of the die to the first column */
    BESIDE = 26,    /* from the line of a port to the slices beside it */
    RING_X = 22,    /* from the edge of the die to the ring */
    RING_GAP = 10,  /* from slices to the ring */
    RING_WIDTH = 8, /* of the crossbar's bands */
    PE_GAP = 14,    /* from the ring to PEs */
    ROUTER = 13,    /* side of a router */
    NEXT = 11,      /* from a router to the box beside it */
    WEST = 62,      /* from the ring to the first router, with room for the crossbar's name */
    CPU_W = 44,     /* of the m_cpu */
    CPU_H = 16,
    SRAM_W = 38,
    SRAM_H = 18,
    GAP = 8 /* between zones */
};

/* ---- Layout ------------------------------------------------------------------------------ */

/* The router that the first node of a kind is attached to. */
static uint32_t router_of(const draw_canvas *c, topo_kind kind, uint32_t index)
{
    const topo_graph *g = c->graph;
    for (uint32_t node = 0; node < g->nodes.count; node++) {
        const topo_node *n = &g->nodes.items[node];
        if (n->kind != kind || n->index != index)
            continue;
        for (uint32_t i = g->first_out[node]; i < g->first_out[node + 1]; i++) {
            const topo_node *to = &g->nodes.items[g->links.items[g->out[i]].to];
            if (to->kind == TOPO_ROUTER)
                return to->index;
        }
    }
    return TOPO_NONE;
}

static bool at_corner(const topo_shape *s, uint32_t router)
{
    uint32_t x = router % s->noc_w, y = router / s->noc_w;
    return (x == 0 || x == s->noc_w - 1) && (y == 0 || y == s->noc_h - 1);
}

/* PEs and slices are along the north and the south edge, west and east of the ports. */
typedef struct quadrant {
    bool south, east;
} quadrant;

static quadrant quadrant_of(const draw_canvas *c, uint32_t pe)
{
    const topo_shape *s = c->shape;
    uint32_t router = topo_pe_router(c->machine, pe);
    uint32_t x = 2 * (router % s->noc_w) + 1, y = 2 * (router / s->noc_w) + 1;
    /* PEs in the middle of an odd number of rows or columns alternate. */
    return (quadrant){
        .south = y == s->noc_h ? pe % 4 >= 2 : y > s->noc_h,
        .east = x == s->noc_w ? pe % 2 == 1 : x > s->noc_w,
    };
}

/* The number of PEs in the quadrant of this one, and how many of them come before it. */
static uint32_t count_in_quadrant(const draw_canvas *c, uint32_t pe, uint32_t *before)
{
    quadrant mine = quadrant_of(c, pe);
    uint32_t all = 0;
    *before = 0;
    for (uint32_t i = 0; i < c->shape->pes; i++) {
        quadrant other = quadrant_of(c, i);
        if (other.south != mine.south || other.east != mine.east)
            continue;
        *before += i < pe;
        all++;
    }
    return all;
}

static uint32_t root_of(uint32_t count)
{
    uint32_t root = 1;
    while (root * root < count)
        root++;
    return root;
}

/* The number of PEs at the router of this one, and how many of them come before it. */
static uint32_t count_at_router(const draw_canvas *c, uint32_t pe, uint32_t *before)
{
    uint32_t router = topo_pe_router(c->machine, pe), all = 0;
    *before = 0;
    for (uint32_t i = 0; i < c->shape->pes; i++) {
        bool here = topo_pe_router(c->machine, i) == router;
        *before += here && i < pe;
        all += here;
    }
    return all;
}

/* The column of routers that the ports in the north or south are in. */
static uint32_t port_column(const draw_canvas *c, topo_side side)
{
    const draw_cube *d = &c->cube;
    uint32_t router = d->port_router[side];
    router = router == TOPO_NONE ? d->port_router[TOPO_NORTH] : router;
    return router == TOPO_NONE ? c->shape->noc_w / 2 : router % c->shape->noc_w;
}

/* What to lay out: `group` is the maximum of slices in a quadrant, `tile` of PEs at a router. */
typedef struct contents {
    uint32_t group, tile, in_row[2];
} contents;

static contents count_contents(draw_canvas *c)
{
    contents found = {0};
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        uint32_t before, group = count_in_quadrant(c, pe, &before),
                         tile = count_at_router(c, pe, &before);
        uint32_t *in_row = &found.in_row[quadrant_of(c, pe).south];
        found.group = group > found.group ? group : found.group;
        found.tile = tile > found.tile ? tile : found.tile;
        *in_row = group > *in_row ? group : *in_row;
        c->cube.tiles = c->cube.tiles || !at_corner(c->shape, topo_pe_router(c->machine, pe));
    }
    return found;
}

/* The extent of a router with the boxes beside it, to the east and to the south. */
static draw_point reach_of(const draw_canvas *c, uint32_t tile)
{
    const draw_cube *d = &c->cube;
    double w = NEXT + CPU_W, h = NEXT + CPU_H;
    if (!d->tiles)
        return (draw_point){w, h};
    uint32_t rows = (tile + d->tile_columns - 1) / d->tile_columns;
    return (draw_point){kb_max(w, NEXT + d->tile_columns * d->cell_w), NEXT + (double)rows * ROW};
}

/* Horizontally: the mesh moves east until the slices west of the ports fit. */
static void plan_across(draw_canvas *c, uint32_t group, draw_point reach)
{
    draw_cube *d = &c->cube;
    uint32_t noc_w = c->shape->noc_w;
    d->step.x = reach.x + GAP + ROUTER;
    double mesh = (noc_w - 1) * d->step.x, first = RING_X + RING_WIDTH + WEST;
    double east = reach.x + GAP + SRAM_W + GAP + RING_WIDTH + RING_X;
    uint32_t north = port_column(c, TOPO_NORTH), south = port_column(c, TOPO_SOUTH);
    uint32_t west_most = north < south ? north : south, east_most = north < south ? south : north;
    double west_room = first + west_most * d->step.x, all = first + mesh + east;
    double east_room = all - first - east_most * d->step.x;
    double room = (west_room < east_room ? west_room : east_room) - SIDE - BESIDE;
    /* As many columns as fit, but few enough that the die is about square. */
    uint32_t fit = room > d->cell_w ? (uint32_t)(room / d->cell_w) : 1, least = root_of(group);
    d->columns = fit > least ? fit : least;
    d->columns = d->columns > group && group > 0 ? group : d->columns;
    double need = SIDE + BESIDE + d->columns * d->cell_w;
    d->first.x = first + kb_max(0.0, need - west_room);
    d->w = kb_max(d->first.x + mesh + east, d->first.x + east_most * d->step.x + need);
}

/* Vertically: rows of slices and PEs, the mesh, rows again. */
static void plan_down(draw_canvas *c, const contents *has, draw_point reach)
{
    draw_cube *d = &c->cube;
    uint32_t noc_h = c->shape->noc_h;
    /* Room for the m_cpu above a router with PEs. */
    d->step.y = d->tiles ? reach.y + CPU_H + NEXT + 2 * GAP : reach.y + 2 * GAP + 3;
    for (int south = 0; south < 2; south++)
        d->rows[south] = (has->in_row[south] + d->columns - 1) / d->columns;
    /* Room for the lines from routers to PEs, and for the sram of a mesh of one row. */
    double fan = noc_h > 1 ? 34 : 54, pes[2];
    for (int south = 0; south < 2; south++)
        pes[south] = d->rows[south] > 0 ? PE_GAP + (double)d->rows[south] * ROW + fan : fan;
    double north = EDGE + (double)d->rows[0] * ROW + RING_GAP;
    double above = d->tiles ? ROUTER + CPU_H + NEXT + GAP : pes[0];
    double below = d->tiles ? kb_max(reach.y + GAP, fan) : pes[1];
    d->first.y = north + RING_WIDTH + above;
    double ring_end = d->first.y + (noc_h - 1) * d->step.y + below + RING_WIDTH;
    d->h = ring_end + RING_GAP + (double)d->rows[1] * ROW + EDGE;
    d->ring = (draw_rect){RING_X, north, d->w - 2 * RING_X, ring_end - north};
}

void draw_plan_cube(draw_canvas *c)
{
    char longest[16];
    draw_cube *d = &c->cube;
    *d = (draw_cube){.gap = 44};
    (void)snprintf(longest, sizeof longest, "hbm%u", c->shape->pes - 1);
    d->cell_w = kb_svg_text_width(longest, LABEL) + 10;
    for (unsigned side = 0; side < TOPO_SIDES; side++)
        d->port_router[side] = router_of(c, TOPO_UCIE, side);
    d->m_cpu_router = router_of(c, TOPO_M_CPU, 0);
    contents has = count_contents(c);
    d->tile_columns = root_of(has.tile);
    draw_point reach = reach_of(c, has.tile);
    plan_across(c, has.group, reach);
    plan_down(c, &has, reach);
}

static draw_point router_point(const draw_canvas *c, uint32_t router)
{
    const draw_cube *d = &c->cube;
    KB_ASSERT(c->shape->noc_w > 0);
    uint32_t x = router % c->shape->noc_w, y = router / c->shape->noc_w;
    return (draw_point){d->first.x + x * d->step.x, d->first.y + y * d->step.y};
}

/* The box of a PE's slice, or of the PE itself, in the rows that begin at `y` from the edge. */
static draw_rect row_box(const draw_canvas *c, uint32_t pe, double y)
{
    const draw_cube *d = &c->cube;
    quadrant p = quadrant_of(c, pe);
    uint32_t before, all = count_in_quadrant(c, pe, &before);
    uint32_t columns = all < d->columns ? all : d->columns;
    double port = d->first.x + port_column(c, p.south ? TOPO_SOUTH : TOPO_NORTH) * d->step.x;
    double from = p.east ? port + BESIDE : SIDE, to = p.east ? d->w - SIDE : port - BESIDE;
    double slot = (to - from) / columns, height = ROW - 4;
    /* From north to south, on both sides. */
    uint32_t row = before / columns, last = (all - 1) / columns;
    y += (double)(p.south ? last - row : row) * ROW;
    return (draw_rect){from + (before % columns) * slot + 2, p.south ? d->h - y - height : y,
                       slot - 4, height};
}

static draw_rect slice_box(const draw_canvas *c, uint32_t pe)
{
    return row_box(c, pe, EDGE);
}

static draw_rect pe_box(const draw_canvas *c, uint32_t pe)
{
    const draw_cube *d = &c->cube;
    if (!d->tiles) {
        double south = d->h - d->ring.y - d->ring.h;
        return row_box(c, pe, (quadrant_of(c, pe).south ? south : d->ring.y) + RING_WIDTH + PE_GAP);
    }
    /* South-east of its router, in a square if there are several. */
    uint32_t before;
    (void)count_at_router(c, pe, &before);
    draw_point at = router_point(c, topo_pe_router(c->machine, pe));
    uint32_t row = before / d->tile_columns, column = before % d->tile_columns;
    return (draw_rect){at.x + NEXT + column * d->cell_w, at.y + NEXT + row * (double)ROW,
                       d->cell_w - 4, ROW - 4};
}

/* ---- Parts of a cube ---------------------------------------------------------------------- */

static void draw_mesh(draw_canvas *c)
{
    const topo_shape *s = c->shape;
    KB_ASSERT(s->noc_w > 0);
    for (uint32_t r = 0; r < s->noc_w * s->noc_h; r++) {
        if (r % s->noc_w + 1 < s->noc_w)
            draw_line(c, DRAW_NOC, router_point(c, r), router_point(c, r + 1));
        if (r / s->noc_w + 1 < s->noc_h)
            draw_line(c, DRAW_NOC, router_point(c, r), router_point(c, r + s->noc_w));
    }
    for (uint32_t r = 0; r < s->noc_w * s->noc_h; r++) {
        draw_point at = router_point(c, r);
        double side = ROUTER;
        draw_box(c, "router", (draw_rect){at.x - side / 2, at.y - side / 2, side, side});
    }
    if (s->noc_w > 1) {
        draw_point a = router_point(c, s->noc_w - 2), b = router_point(c, s->noc_w - 1);
        draw_rate(c, DRAW_NOC, (draw_point){(a.x + b.x) / 2, a.y - 5}, "middle");
    }
}

/* The y of the gap between the line of the port at that side and the nearest row. */
static double side_gap(const draw_canvas *c, topo_side side)
{
    const draw_cube *d = &c->cube;
    double bottom = router_point(c, c->shape->noc_w * c->shape->noc_h - 1).y, top = d->first.y;
    uint32_t router = d->port_router[side];
    double port = router == TOPO_NONE ? d->h / 2 : router_point(c, router).y;
    if (bottom > port + 1)
        return (port + bottom) / 2;
    return port > top + 1 ? (port + top) / 2 : port + 32;
}

/* Four bands, with a transparent inside. */
static void draw_ring(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    draw_rect r = d->ring;
    double w = RING_WIDTH;
    kb_text_printf(
        c->out,
        "<path class=\"xbar\" fill-rule=\"evenodd\" d=\"M%g %gh%gv%gh%gzM%g %gh%gv%gh%gz\"/>\n",
        r.x, r.y, r.w, r.h, -r.w, r.x + w, r.y + w, r.w - 2 * w, r.h - 2 * w, -(r.w - 2 * w));
    draw_text(c, "small", (draw_point){r.x + w + 5, side_gap(c, TOPO_WEST) + 4}, 11, "start",
              "xbar");
}

/* Lines are drawn first, below the boxes of other rows. */
static void draw_memory_lines(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        draw_rect slice = slice_box(c, pe);
        bool south = slice.y > d->h / 2;
        double x = draw_middle(slice).x;
        double edge = south ? d->ring.y + d->ring.h : d->ring.y;
        draw_line(c, DRAW_HBM, (draw_point){x, south ? slice.y : slice.y + slice.h},
                  (draw_point){x, edge});
        if (pe == 0)
            draw_rate(c, DRAW_HBM, (draw_point){x + 3, south ? edge + RING_GAP - 1 : edge - 1},
                      "start");
    }
}

static void draw_memories(draw_canvas *c)
{
    draw_memory_lines(c);
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        draw_rect slice = slice_box(c, pe);
        draw_box(c, "hbm", slice);
        draw_label(c, "label", slice, LABEL, "hbm%u", pe);
    }
}

/* From a PE in a row to the ring and to its router. */
static void draw_row_lines(draw_canvas *c, uint32_t pe)
{
    const draw_cube *d = &c->cube;
    draw_rect box = pe_box(c, pe);
    draw_point router = router_point(c, topo_pe_router(c->machine, pe)), middle = draw_middle(box);
    bool south = box.y > d->h / 2, east = middle.x > router.x;
    double ring = south ? d->ring.y + d->ring.h - RING_WIDTH : d->ring.y + RING_WIDTH;
    double inner = south ? box.y : box.y + box.h, outer = south ? box.y + box.h : box.y;
    double reach = south ? ROUTER / 2.0 : -ROUTER / 2.0;
    draw_line(c, DRAW_PE_XBAR, (draw_point){middle.x, outer}, (draw_point){middle.x, ring});
    draw_line(c, DRAW_PE_NOC, (draw_point){middle.x, inner},
              (draw_point){router.x, router.y + reach});
    if (pe > 0)
        return;
    draw_rate(c, DRAW_PE_XBAR, (draw_point){middle.x + 3, south ? ring - 3 : ring + 11}, "start");
    draw_point half = {(middle.x + router.x) / 2 + (east ? 7 : -7), (inner + router.y) / 2};
    draw_rate(c, DRAW_PE_NOC, half, east ? "start" : "end");
}

static void draw_pe_lines(draw_canvas *c)
{
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        if (c->cube.tiles)
            draw_line(c, DRAW_PE_NOC, router_point(c, topo_pe_router(c->machine, pe)),
                      draw_middle(pe_box(c, pe)));
        else
            draw_row_lines(c, pe);
    }
}

static void draw_pes(draw_canvas *c)
{
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        draw_rect box = pe_box(c, pe);
        draw_box(c, "pe", box);
        draw_label(c, "label", box, LABEL, "pe%u", pe);
    }
}

/* Routers with PEs have a link to the crossbar, drawn to the nearer side. */
static void draw_gates(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    if (d->tiles)
        return;
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        uint32_t router = topo_pe_router(c->machine, pe);
        bool first = true;
        for (uint32_t i = 0; i < pe; i++)
            first = first && topo_pe_router(c->machine, i) != router;
        if (!first)
            continue;
        draw_point at = router_point(c, router);
        bool east = at.x > d->w / 2;
        double ring = east ? d->ring.x + d->ring.w - RING_WIDTH : d->ring.x + RING_WIDTH;
        /* Lower than the router's middle, where a port's line may run. */
        double y = at.y + 4, x = at.x + (east ? ROUTER / 2.0 : -ROUTER / 2.0);
        draw_line(c, DRAW_NOC_XBAR, (draw_point){x, y}, (draw_point){ring, y});
        if (pe == 0)
            draw_rate(c, DRAW_NOC_XBAR, (draw_point){(x + ring) / 2, y - 4}, "middle");
    }
}

/* At the east side. */
static void draw_sram(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    double y = side_gap(c, TOPO_EAST), ring = d->ring.x + d->ring.w - RING_WIDTH;
    draw_rect box = {ring - GAP - SRAM_W, y - SRAM_H / 2.0, SRAM_W, SRAM_H};
    draw_line(c, DRAW_SRAM, (draw_point){box.x + box.w, y}, (draw_point){ring, y});
    draw_box(c, "sram", box);
    draw_label(c, "label", box, LABEL, "sram");
    draw_rate(c, DRAW_SRAM, (draw_point){box.x + box.w, box.y - 4}, "end");
}

/* South-east of its router; north-east if PEs are there. */
static void draw_m_cpu(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    if (d->m_cpu_router == TOPO_NONE)
        return;
    draw_point at = router_point(c, d->m_cpu_router);
    draw_rect box = {at.x + NEXT, at.y + (d->tiles ? -NEXT - CPU_H : NEXT), CPU_W, CPU_H};
    draw_line(c, DRAW_M_CPU, at, draw_middle(box));
    draw_box(c, "cpu", box);
    draw_label(c, "label", box, LABEL, "m_cpu");
}

void draw_define_cube(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    kb_text_puts(c->out, "<defs><g id=\"cube\">\n");
    draw_box(c, "die", (draw_rect){0, 0, d->w, d->h});
    draw_ring(c);
    draw_gates(c);
    draw_pe_lines(c);
    draw_m_cpu(c);
    draw_memories(c);
    draw_sram(c);
    draw_pes(c);
    draw_mesh(c);
    kb_text_puts(c->out, "</g></defs>\n");
}

/* ---- Ports ------------------------------------------------------------------------------- */

draw_rect draw_port(const draw_canvas *c, draw_point corner, topo_side side)
{
    static const double length = 40, depth = 13; /* along the edge, and across it */
    const draw_cube *d = &c->cube;
    draw_point at = router_point(c, d->port_router[side]);
    if (side == TOPO_NORTH || side == TOPO_SOUTH) {
        double across = (side == TOPO_SOUTH ? d->h : 0) - depth / 2;
        return (draw_rect){corner.x + at.x - length / 2, corner.y + across, length, depth};
    }
    double across = (side == TOPO_EAST ? d->w : 0) - depth / 2;
    return (draw_rect){corner.x + across, corner.y + at.y - length / 2, depth, length};
}

void draw_add_port(draw_canvas *c, draw_point corner, topo_side side)
{
    const draw_cube *d = &c->cube;
    draw_rect box = draw_port(c, corner, side);
    draw_point middle = draw_middle(box), at = router_point(c, d->port_router[side]);
    at.x += corner.x;
    at.y += corner.y;
    double reach = ROUTER / 2.0;
    if (side == TOPO_NORTH || side == TOPO_SOUTH)
        at.y += side == TOPO_NORTH ? -reach : reach;
    else
        at.x += side == TOPO_WEST ? -reach : reach;
    draw_line(c, DRAW_UCIE_NOC, middle, at);
    draw_box(c, "port", box);
}
