/*
 * draw_cube.c: the die of a cube.
 *
 *     +-------------[ucie]-------------+
 *     | hbm0 hbm1      |     hbm2 hbm3 |
 *     | +=============xbar===========+ |    the crossbar is a ring: what it joins is near it
 *     | # pe0 pe1      |     pe2 pe3 # |
 *     | #-o------o-----o--------o----# |    routers at the corners have their own way into it
 *   [ucie]-----------------         [sram]
 *
 * If PEs are not at the corners they are drawn beside their routers.
 */
#include "draw.h"

/* ---- Plan -------------------------------------------------------------------------------- */

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

/* Four groups along the north and south edge: those west of the ports there, and those east. */
typedef struct place {
    bool south, east;
} place;

static place place_of(const draw_canvas *c, uint32_t pe)
{
    const topo_shape *s = c->shape;
    uint32_t router = topo_pe_router(c->machine, pe);
    uint32_t x = 2 * (router % s->noc_w) + 1, y = 2 * (router / s->noc_w) + 1;
    /* In the middle of an odd number there is no side: they take turns. */
    return (place){
        .south = y == s->noc_h ? pe % 4 >= 2 : y > s->noc_h,
        .east = x == s->noc_w ? pe % 2 == 1 : x > s->noc_w,
    };
}

/* The number of PEs in the place of this one, and how many of them come before it. */
static uint32_t share_place(const draw_canvas *c, uint32_t pe, uint32_t *before)
{
    place mine = place_of(c, pe);
    uint32_t all = 0;
    *before = 0;
    for (uint32_t i = 0; i < c->shape->pes; i++) {
        place other = place_of(c, i);
        if (other.south != mine.south || other.east != mine.east)
            continue;
        *before += i < pe;
        all++;
    }
    return all;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void draw_plan_cube(draw_canvas *c)
{
    const topo_shape *s = c->shape;
    draw_cube *d = &c->cube;
    uint32_t most = 0, before;
    bool tiles = false;
    for (uint32_t pe = 0; pe < s->pes; pe++) {
        uint32_t all = share_place(c, pe, &before);
        most = all > most ? all : most;
        tiles = tiles || !at_corner(s, topo_pe_router(c->machine, pe));
    }
    *d = (draw_cube){.gap = 44, .router = 13, .ring_width = 8, .slice_height = 20, .tiles = tiles};
    d->pe_height = tiles ? 0 : 20;
    for (unsigned side = 0; side < TOPO_SIDES; side++)
        d->port_router[side] = router_of(c, TOPO_UCIE, side);
    d->m_cpu_router = router_of(c, TOPO_M_CPU, 0);

    /* From the edge to the first router; between routers; and for the slices to be told apart. */
    double side_margin = tiles ? 124 : 84, edge_margin = tiles ? 102 : 126;
    double least_x = 56, least_y = tiles ? 56 : 46;
    double slots = most > 16 ? 16 : most;
    d->side = larger(360, 2 * side_margin + (s->noc_w - 1) * least_x);
    d->side = larger(d->side, 2 * edge_margin + (s->noc_h - 1) * least_y);
    d->side = larger(d->side, 2 * (slots * 36 + 62));
    d->ring = (draw_rect){22, 44, d->side - 44, d->side - 88};
    double w = d->side - 2 * side_margin, h = d->side - 2 * edge_margin;
    d->step =
        (draw_point){s->noc_w > 1 ? w / (s->noc_w - 1) : 0, s->noc_h > 1 ? h / (s->noc_h - 1) : 0};
    d->first = (draw_point){s->noc_w > 1 ? side_margin : d->side / 2,
                            s->noc_h > 1 ? edge_margin : d->side / 2};
}

static draw_point router_point(const draw_canvas *c, uint32_t router)
{
    const draw_cube *d = &c->cube;
    KB_ASSERT(c->shape->noc_w > 0);
    uint32_t x = router % c->shape->noc_w, y = router / c->shape->noc_w;
    return (draw_point){d->first.x + x * d->step.x, d->first.y + y * d->step.y};
}

/* The box of a PE's slice, or of the PE itself, in the rows along the edges. */
static draw_rect row_box(const draw_canvas *c, uint32_t pe, double y, double height)
{
    const draw_cube *d = &c->cube;
    place p = place_of(c, pe);
    uint32_t before, all = share_place(c, pe, &before);
    topo_side side = p.south ? TOPO_SOUTH : TOPO_NORTH;
    uint32_t router =
        d->port_router[side] != TOPO_NONE ? d->port_router[side] : d->port_router[TOPO_NORTH];
    double port = router == TOPO_NONE ? d->side / 2 : router_point(c, router).x;
    double from = p.east ? port + 26 : 36, to = p.east ? d->side - 36 : port - 26;
    double slot = (to - from) / all, gap = slot > 12 ? 4 : slot / 4;
    return (draw_rect){from + before * slot + gap / 2, p.south ? d->side - y - height : y,
                       slot - gap, height};
}

static draw_rect slice_box(const draw_canvas *c, uint32_t pe)
{
    return row_box(c, pe, 14, c->cube.slice_height);
}

static draw_rect pe_box(const draw_canvas *c, uint32_t pe)
{
    const draw_cube *d = &c->cube;
    if (!d->tiles)
        return row_box(c, pe, d->ring.y + d->ring_width + 12, d->pe_height);
    /* South-east of its router, in a square of its own if there are several. */
    uint32_t router = topo_pe_router(c->machine, pe), before = 0, all = 0, columns = 1;
    for (uint32_t i = 0; i < c->shape->pes; i++) {
        bool here = topo_pe_router(c->machine, i) == router;
        all += here;
        before += here && i < pe;
    }
    while (columns * columns < all)
        columns++;
    double side = 26.0 / columns;
    draw_point at = router_point(c, router);
    uint32_t row = before / columns, column = before % columns;
    return (draw_rect){at.x + 11 + column * side, at.y + 11 + row * side, side - 1, side - 1};
}

/* ---- Pieces ------------------------------------------------------------------------------ */

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
        double side = c->cube.router;
        draw_box(c, "router", (draw_rect){at.x - side / 2, at.y - side / 2, side, side});
    }
    if (s->noc_w > 1) {
        draw_point a = router_point(c, s->noc_w - 2), b = router_point(c, s->noc_w - 1);
        draw_rate(c, DRAW_NOC, (draw_point){(a.x + b.x) / 2, a.y - 5}, "middle");
    }
}

/* Between the line of the port at that side and the last row: where there is room. */
static double side_gap(const draw_canvas *c, topo_side side)
{
    const draw_cube *d = &c->cube;
    double bottom = router_point(c, c->shape->noc_w * c->shape->noc_h - 1).y;
    uint32_t router = d->port_router[side];
    double port = router == TOPO_NONE ? d->side / 2 : router_point(c, router).y;
    return bottom > port + 1 ? (port + bottom) / 2 : port + 32;
}

/* Four bands, so that what is inside stays clear. */
static void draw_ring(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    draw_rect r = d->ring;
    double w = d->ring_width;
    kb_text_printf(
        c->out,
        "<path class=\"xbar\" fill-rule=\"evenodd\" d=\"M%g %gh%gv%gh%gzM%g %gh%gv%gh%gz\"/>\n",
        r.x, r.y, r.w, r.h, -r.w, r.x + w, r.y + w, r.w - 2 * w, r.h - 2 * w, -(r.w - 2 * w));
    draw_text(c, "small", (draw_point){r.x + w + 5, side_gap(c, TOPO_WEST) + 4}, 11, "start",
              "xbar");
}

static void draw_memories(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        draw_rect slice = slice_box(c, pe);
        bool south = slice.y > d->side / 2;
        double x = draw_middle(slice).x;
        double edge = south ? d->ring.y + d->ring.h : d->ring.y;
        draw_line(c, DRAW_HBM, (draw_point){x, south ? slice.y : slice.y + slice.h},
                  (draw_point){x, edge});
        draw_box(c, "hbm", slice);
        draw_label(c, "label", slice, 11, "hbm%u", pe);
        if (pe == 0)
            draw_rate(c, DRAW_HBM, (draw_point){x + 3, slice.y + slice.h + 9}, "start");
    }
}

static void draw_pes(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    for (uint32_t pe = 0; pe < c->shape->pes; pe++) {
        draw_rect box = pe_box(c, pe);
        draw_point router = router_point(c, topo_pe_router(c->machine, pe));
        draw_point middle = draw_middle(box);
        if (d->tiles) {
            draw_line(c, DRAW_PE_NOC, router, (draw_point){box.x, box.y});
        } else {
            bool south = box.y > d->side / 2;
            double ring = south ? d->ring.y + d->ring.h - d->ring_width : d->ring.y + d->ring_width;
            double inner = south ? box.y : box.y + box.h, outer = south ? box.y + box.h : box.y;
            double reach = south ? d->router / 2 : -d->router / 2;
            draw_line(c, DRAW_PE_XBAR, (draw_point){middle.x, outer}, (draw_point){middle.x, ring});
            draw_line(c, DRAW_PE_NOC, (draw_point){middle.x, inner},
                      (draw_point){router.x, router.y + reach});
            if (pe == 0) {
                draw_rate(c, DRAW_PE_XBAR, (draw_point){middle.x + 3, ring + 10}, "start");
                bool east = middle.x > router.x;
                draw_point half = {(middle.x + router.x) / 2 + (east ? 7 : -7),
                                   (inner + router.y) / 2};
                draw_rate(c, DRAW_PE_NOC, half, east ? "start" : "end");
            }
        }
        draw_box(c, "pe", box);
        draw_label(c, "label", box, 11, "pe%u", pe);
    }
}

/* Routers with PEs have a way into the crossbar, drawn to the nearer side. */
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
        bool east = at.x > d->side / 2;
        double ring = east ? d->ring.x + d->ring.w - d->ring_width : d->ring.x + d->ring_width;
        /* Lower than the router's middle, where a port's line may run. */
        double y = at.y + 4, x = at.x + (east ? d->router / 2 : -d->router / 2);
        draw_line(c, DRAW_NOC_XBAR, (draw_point){x, y}, (draw_point){ring, y});
        if (pe == 0)
            draw_rate(c, DRAW_NOC_XBAR, (draw_point){(x + ring) / 2, y - 4}, "middle");
    }
}

/* At the east side. */
static void draw_sram(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    double y = side_gap(c, TOPO_EAST), ring = d->ring.x + d->ring.w - d->ring_width;
    draw_rect box = {ring - 40, y - 9, 32, 18};
    draw_line(c, DRAW_SRAM, (draw_point){box.x + box.w, y}, (draw_point){ring, y});
    draw_box(c, "sram", box);
    draw_label(c, "label", box, 11, "sram");
    draw_rate(c, DRAW_SRAM, (draw_point){box.x + box.w, box.y - 4}, "end");
}

/* South-east of its router; west of it where the mesh ends. */
static void draw_m_cpu(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    if (d->m_cpu_router == TOPO_NONE)
        return;
    draw_point at = router_point(c, d->m_cpu_router);
    bool last_column = d->m_cpu_router % c->shape->noc_w + 1 == c->shape->noc_w;
    bool last_row = d->m_cpu_router / c->shape->noc_w + 1 == c->shape->noc_h;
    bool west = last_column || d->tiles; /* PEs are on the other side */
    draw_rect box = {at.x + (west ? -46 : 9), at.y + (last_row ? -27 : 10), 38, 16};
    if (c->shape->noc_w == 1 && !d->tiles) /* PEs spread north and south of it */
        box = (draw_rect){at.x + 44, at.y + 10, 38, 16};
    draw_point middle = draw_middle(box);
    draw_line(c, DRAW_M_CPU, at, middle);
    draw_box(c, "cpu", box);
    draw_label(c, "label", box, 11, "m_cpu");
}

void draw_define_cube(draw_canvas *c)
{
    const draw_cube *d = &c->cube;
    kb_text_puts(c->out, "<defs><g id=\"cube\">\n");
    draw_box(c, "die", (draw_rect){0, 0, d->side, d->side});
    draw_ring(c);
    draw_gates(c);
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
    bool far = side == TOPO_SOUTH || side == TOPO_EAST;
    double across = (far ? d->side : 0) - depth / 2;
    if (side == TOPO_NORTH || side == TOPO_SOUTH)
        return (draw_rect){corner.x + at.x - length / 2, corner.y + across, length, depth};
    return (draw_rect){corner.x + across, corner.y + at.y - length / 2, depth, length};
}

void draw_add_port(draw_canvas *c, draw_point corner, topo_side side)
{
    const draw_cube *d = &c->cube;
    draw_rect box = draw_port(c, corner, side);
    draw_point middle = draw_middle(box), at = router_point(c, d->port_router[side]);
    at.x += corner.x;
    at.y += corner.y;
    double reach = d->router / 2;
    if (side == TOPO_NORTH || side == TOPO_SOUTH)
        at.y += side == TOPO_NORTH ? -reach : reach;
    else
        at.x += side == TOPO_WEST ? -reach : reach;
    draw_line(c, DRAW_UCIE_NOC, middle, at);
    draw_box(c, "port", box);
}
