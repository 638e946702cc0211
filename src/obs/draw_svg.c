/*
 * draw_svg.c: draws a machine: SIPs in their pattern, each with its IO chiplet along the north edge
 * and its cubes in their mesh; the host and the switch above, and a legend below.
 *
 *            host
 *           switch
 *     +-io------+   +-io------+
 *     | cube .. |---| cube .. |
 *     +---------+   +---------+
 *     legend
 *
 * A line is the links of both directions. Lines between SIPs and to the switch are routed in the
 * gutters, so that they cross no die.
 */
#include "draw_svg.h"

#include "draw.h"
#include "number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAD = 30,        /* from the edge of a SIP to its dies */
    NAME = 40,       /* above the IO chiplet: the SIP's name */
    IO_HEIGHT = 170, /* of the IO chiplet */
    MARGIN = 70,
    TITLE = 120
};

/* The layout of SIPs. */
typedef struct plan {
    draw_point pitch;    /* of cubes */
    double sip_w, sip_h; /* of a SIP */
    double gutter_x, gutter_y;
    double left, top; /* of the first SIP */
    draw_rect host, switch_;
    double trunk; /* the highest line to the switch */
    double trunk_step;
    double width, height; /* of all SIPs, with the margin */
} plan;

/* ---- Texts ------------------------------------------------------------------------------- */

enum { TITLE_SIZE = 32, SUBTITLE_SIZE = 20, LEGEND_SIZE = 17, LEGEND_LINE = 64 };

static void print_subtitle(const draw_canvas *c, kb_text *text)
{
    const topo_shape *s = c->shape;
    kb_text_printf(text, "%u SIP%s of %u x %u cubes of %u PEs: %s PEs, %s of HBM", s->sips,
                   s->sips == 1 ? "" : "s", s->cube_w, s->cube_h, s->pes,
                   obs_count(s->pe_count).text, obs_bytes(s->hbm_bytes * s->cubes * s->sips).text);
}

/* Links that are not drawn, as they would hide the die. */
static bool is_left_out(const draw_canvas *c, draw_ink ink)
{
    return c->cube.tiles && (ink == DRAW_PE_XBAR || ink == DRAW_NOC_XBAR);
}

static void print_legend_entry(const draw_canvas *c, draw_ink ink, kb_text *text)
{
    kb_text_printf(text, "%s: %s GB/s%s", draw_ink_name(ink),
                   obs_rate(draw_class(c, ink)->rate).text,
                   is_left_out(c, ink) ? ", not drawn" : "");
}

static void print_memories(const draw_canvas *c, kb_text *text)
{
    const link_class *hbm = link_classes_find(&c->classes, TOPO_HBM_CTRL, TOPO_HBM_CTRL, true);
    const link_class *sram = link_classes_find(&c->classes, TOPO_SRAM, TOPO_SRAM, true);
    if (hbm && sram)
        kb_text_printf(
            text, "A slice (hbm) serves %s GB/s of reads and writes together, the sram %s GB/s.",
            obs_rate(hbm->rate).text, obs_rate(sram->rate).text);
}

/* The maximum of the width so far and that of the text, which is freed. */
static double wider(const draw_canvas *c, double width, kb_text *text, double size)
{
    double this = kb_svg_text_width(draw_words(c, text), size);
    kb_text_fini(text);
    *text = (kb_text)KB_TEXT_INIT;
    return this > width ? this : width;
}

static double legend_column(const draw_canvas *c)
{
    double width = 0;
    kb_text text = KB_TEXT_INIT;
    for (unsigned ink = 0; ink < DRAW_INKS; ink++) {
        if (!draw_class(c, (draw_ink)ink))
            continue;
        print_legend_entry(c, (draw_ink)ink, &text);
        width = wider(c, width, &text, LEGEND_SIZE);
    }
    return LEGEND_LINE + width + 40;
}

/* Minimum width for the title and the legend with its two columns. */
static double text_width(const draw_canvas *c)
{
    kb_text text = KB_TEXT_INIT;
    double width = 2 * legend_column(c);
    kb_text_puts(&text, topo_machine_name(c->machine));
    width = wider(c, width, &text, 1.1 * TITLE_SIZE);
    print_subtitle(c, &text);
    width = wider(c, width, &text, SUBTITLE_SIZE);
    print_memories(c, &text);
    return wider(c, width, &text, LEGEND_SIZE);
}

static plan make_plan(const draw_canvas *c)
{
    const topo_shape *s = c->shape;
    uint32_t rows = s->sip_h, columns = s->sip_w;
    plan p = {.pitch = {c->cube.w + c->cube.gap, c->cube.h + c->cube.gap}};
    p.sip_w = s->cube_w * p.pitch.x - c->cube.gap + 2 * PAD;
    p.sip_h = NAME + IO_HEIGHT + s->cube_h * p.pitch.y + 2 * PAD;
    bool crowded = rows > 1 || s->sip_links;
    p.gutter_x = crowded ? 130 + 8.0 * rows : 80;
    p.gutter_y = crowded ? 110 : 60;
    p.left = MARGIN + (crowded ? p.gutter_x / 2 : 0);
    p.width = 2 * p.left + columns * p.sip_w + (columns - 1) * p.gutter_x;
    double texts = text_width(c) + 2 * MARGIN;
    if (p.width < texts) {
        p.left += (texts - p.width) / 2;
        p.width = texts;
    }
    double middle = p.width / 2;
    p.host = (draw_rect){middle - 70, TITLE + 20, 140, 36};
    p.switch_ = (draw_rect){middle - 170, p.host.y + 90, 340, 36};
    p.trunk = p.switch_.y + p.switch_.h + 30;
    p.trunk_step = s->sips > 40 ? 400.0 / s->sips : 10;
    p.top = p.trunk + p.trunk_step * s->sips + 50 + (s->sip_links ? 40 : 0);
    p.height = p.top + rows * p.sip_h + (rows - 1) * p.gutter_y + (crowded ? 60 : 20);
    return p;
}

static draw_point sip_corner(const draw_canvas *c, const plan *p, uint32_t sip)
{
    uint32_t x = sip % c->shape->sip_w, y = sip / c->shape->sip_w;
    return (draw_point){p->left + x * (p->sip_w + p->gutter_x),
                        p->top + y * (p->sip_h + p->gutter_y)};
}

static draw_rect io_box(const plan *p, draw_point sip)
{
    return (draw_rect){sip.x + PAD, sip.y + PAD + NAME, p->sip_w - 2 * PAD, IO_HEIGHT};
}

static draw_point cube_corner(const draw_canvas *c, const plan *p, draw_point sip, uint32_t cube)
{
    uint32_t x = cube % c->shape->cube_w, y = cube / c->shape->cube_w;
    return (draw_point){sip.x + PAD + x * p->pitch.x,
                        sip.y + PAD + NAME + IO_HEIGHT + c->cube.gap + y * p->pitch.y};
}

/* ---- Cubes ------------------------------------------------------------------------------- */

static bool has_port(const draw_canvas *c, uint32_t cube, topo_side side)
{
    return topo_node_at(c->machine, TOPO_UCIE, 0, cube, side) != TOPO_NONE;
}

/* The line to the die across, from the port in the south or east. */
static void draw_across(draw_canvas *c, draw_point from, draw_point to, topo_side side, bool rated)
{
    topo_side facing = side == TOPO_SOUTH ? TOPO_NORTH : TOPO_WEST;
    draw_rect a = draw_port(c, from, side), b = draw_port(c, to, facing);
    draw_point am = draw_middle(a), bm = draw_middle(b);
    if (side == TOPO_SOUTH)
        draw_line(c, DRAW_UCIE, (draw_point){am.x, a.y + a.h}, (draw_point){bm.x, b.y});
    else
        draw_line(c, DRAW_UCIE, (draw_point){a.x + a.w, am.y}, (draw_point){b.x, bm.y});
    if (rated)
        draw_rate(c, DRAW_UCIE, (draw_point){(a.x + a.w + b.x) / 2, am.y - 7}, "middle");
}

static void draw_cubes(draw_canvas *c, const plan *p, draw_point sip)
{
    const topo_shape *s = c->shape;
    for (uint32_t cube = 0; cube < s->cubes; cube++) {
        draw_point at = cube_corner(c, p, sip, cube);
        kb_text_printf(c->out, "<use href=\"#cube\" x=\"%g\" y=\"%g\"/>\n", at.x, at.y);
        for (unsigned side = 0; side < TOPO_SIDES; side++)
            if (has_port(c, cube, (topo_side)side))
                draw_add_port(c, at, (topo_side)side);
        if (cube % s->cube_w + 1 < s->cube_w)
            draw_across(c, at, cube_corner(c, p, sip, cube + 1), TOPO_EAST, true);
        if (cube / s->cube_w + 1 < s->cube_h)
            draw_across(c, at, cube_corner(c, p, sip, cube + s->cube_w), TOPO_SOUTH, false);
        draw_text(c, "name", (draw_point){at.x + 6, at.y - 6}, 15, "start", "cube%u", cube);
    }
}

/* ---- IO chiplets ------------------------------------------------------------------------- */

static draw_rect io_noc_box(draw_rect io)
{
    return (draw_rect){io.x + 50, io.y + 84, io.w - 100, 24};
}

static draw_rect pcie_box(draw_rect io)
{
    return (draw_rect){io.x + io.w / 2 - 95, io.y + 16, 84, 30};
}

static void draw_sip(draw_canvas *c, const plan *p, uint32_t sip)
{
    draw_point at = sip_corner(c, p, sip);
    draw_rect io = io_box(p, at);
    draw_box(c, "sip", (draw_rect){at.x, at.y, p->sip_w, p->sip_h});
    draw_text(c, "name", (draw_point){at.x + PAD, at.y + 44}, 26, "start", "sip%u", sip);
    draw_box(c, "die", io);
    draw_text(c, "name", (draw_point){io.x + 8, io.y + io.h - 14}, 15, "start", "IO chiplet");
}

/* Ports to the cubes below, the NOC, and its nodes. */
static void draw_io(draw_canvas *c, const plan *p, draw_point corner)
{
    draw_rect io = io_box(p, corner), noc = io_noc_box(io), ep = pcie_box(io);
    draw_rect cpu = {io.x + io.w / 2 + 11, ep.y, ep.w, ep.h};
    draw_line(c, DRAW_IO, (draw_point){draw_middle(ep).x, ep.y + ep.h},
              (draw_point){draw_middle(ep).x, noc.y});
    draw_line(c, DRAW_IO, (draw_point){draw_middle(cpu).x, cpu.y + cpu.h},
              (draw_point){draw_middle(cpu).x, noc.y});
    draw_rate(c, DRAW_IO, (draw_point){draw_middle(cpu).x + 6, noc.y - 14}, "start");
    for (uint32_t column = 0; column < c->shape->cube_w; column++) {
        draw_point below = cube_corner(c, p, corner, column);
        draw_rect facing = draw_port(c, below, TOPO_NORTH), port = facing;
        double x = draw_middle(port).x;
        port.y = io.y + io.h - port.h / 2;
        draw_line(c, DRAW_IO, (draw_point){x, noc.y + noc.h}, (draw_point){x, port.y});
        draw_line(c, DRAW_UCIE, (draw_point){x, port.y + port.h}, (draw_point){x, facing.y});
        draw_box(c, "port", port);
        if (column == 0)
            draw_rate(c, DRAW_UCIE, (draw_point){x + 7, (port.y + port.h + facing.y) / 2 + 4},
                      "start");
    }
    draw_box(c, "router", noc);
    draw_label(c, "light", noc, 13, "io_noc");
    draw_box(c, "pe", ep);
    draw_label(c, "label", ep, 14, "pcie_ep");
    draw_box(c, "cpu", cpu);
    draw_label(c, "label", cpu, 14, "io_cpu");
}

/* ---- Between SIPs ------------------------------------------------------------------------ */

/* A line with several segments. */
static void draw_path(draw_canvas *c, draw_ink ink, const draw_point *points, size_t count)
{
    kb_text_printf(c->out,
                   "<polyline fill=\"none\" stroke-linejoin=\"round\" stroke=\"%s\" "
                   "stroke-width=\"%g\" points=\"",
                   draw_colour(ink), draw_width(c, ink));
    for (size_t i = 0; i < count; i++)
        kb_text_printf(c->out, "%s%g,%g", i == 0 ? "" : " ", points[i].x, points[i].y);
    kb_text_puts(c->out, "\"/>\n");
}

/* The port to another SIP, at the edge of the IO chiplet, beside the io_noc. */
static draw_rect sip_port_box(draw_rect io, topo_side side)
{
    draw_rect noc = io_noc_box(io);
    double y = noc.y;
    if (side == TOPO_NORTH)
        y -= 40;
    else if (side == TOPO_SOUTH)
        y += 40;
    double x = side == TOPO_WEST ? io.x - 7 : io.x + io.w - 7;
    return (draw_rect){x, y, 14, 24};
}

/* The SIP at the other end of a port's link; TOPO_NONE if there is no such port. */
static uint32_t sip_across(const draw_canvas *c, uint32_t sip, topo_side side)
{
    const topo_graph *g = c->graph;
    uint32_t port = topo_node_at(c->machine, TOPO_SIP_PORT, sip, 0, side);
    if (port == TOPO_NONE || g->first_out[port] == g->first_out[port + 1])
        return TOPO_NONE;
    return g->nodes.items[g->links.items[g->out[g->first_out[port]]].to].sip;
}

static void draw_sip_port(draw_canvas *c, draw_rect io, topo_side side)
{
    draw_rect box = sip_port_box(io, side), noc = io_noc_box(io);
    draw_point at = draw_middle(box);
    double edge = side == TOPO_WEST ? noc.x : noc.x + noc.w;
    draw_point corner = {edge - (side == TOPO_WEST ? -20 : 20),
                         side == TOPO_NORTH ? noc.y : noc.y + noc.h};
    if (side == TOPO_EAST || side == TOPO_WEST)
        draw_line(c, DRAW_SIP_LINK, (draw_point){edge, at.y}, at);
    else
        draw_path(c, DRAW_SIP_LINK, (draw_point[]){corner, {corner.x, at.y}, at}, 3);
    draw_box(c, "sipport", box);
}

/* East: straight to the neighbour, or around the north of the row to its other end. */
static void draw_link_east(draw_canvas *c, const plan *p, uint32_t sip, uint32_t other)
{
    draw_point a = sip_corner(c, p, sip), b = sip_corner(c, p, other);
    draw_rect from = sip_port_box(io_box(p, a), TOPO_EAST);
    draw_rect to = sip_port_box(io_box(p, b), TOPO_WEST);
    draw_point f = {from.x + from.w, draw_middle(from).y}, t = {to.x, draw_middle(to).y};
    if (b.x > a.x) {
        draw_line(c, DRAW_SIP_LINK, f, t);
        draw_rate(c, DRAW_SIP_LINK, (draw_point){(f.x + t.x) / 2, f.y - 7}, "middle");
        return;
    }
    double y = a.y - 24, out = a.x + p->sip_w + 50, in = b.x - 36;
    draw_path(c, DRAW_SIP_LINK, (draw_point[]){f, {out, f.y}, {out, y}, {in, y}, {in, t.y}, t}, 6);
}

/* South: in the gutter east of the column; around the ends of the column further out. */
static void draw_link_south(draw_canvas *c, const plan *p, uint32_t sip, uint32_t other)
{
    draw_point a = sip_corner(c, p, sip), b = sip_corner(c, p, other);
    draw_rect from = sip_port_box(io_box(p, a), TOPO_SOUTH);
    draw_rect to = sip_port_box(io_box(p, b), TOPO_NORTH);
    draw_point f = {from.x + from.w, draw_middle(from).y}, t = {to.x + to.w, draw_middle(to).y};
    double lane = a.x + p->sip_w + (b.y > a.y ? 18 : 34);
    draw_path(c, DRAW_SIP_LINK, (draw_point[]){f, {lane, f.y}, {lane, t.y}, t}, 4);
}

static void draw_sip_links(draw_canvas *c, const plan *p)
{
    for (uint32_t sip = 0; sip < c->shape->sips; sip++) {
        uint32_t east = sip_across(c, sip, TOPO_EAST), south = sip_across(c, sip, TOPO_SOUTH);
        if (east != TOPO_NONE)
            draw_link_east(c, p, sip, east);
        if (south != TOPO_NONE)
            draw_link_south(c, p, sip, south);
        for (unsigned side = 0; side < TOPO_SIDES; side++)
            if (topo_node_at(c->machine, TOPO_SIP_PORT, sip, 0, side) != TOPO_NONE)
                draw_sip_port(c, io_box(p, sip_corner(c, p, sip)), (topo_side)side);
    }
}

/* ---- To the switch ----------------------------------------------------------------------- */

/* The x of the line from a SIP to the switch: straight up from the first row, else in the gutter
 * west of the column. */
static double riser_x(const draw_canvas *c, const plan *p, uint32_t sip)
{
    draw_point corner = sip_corner(c, p, sip);
    uint32_t row = sip / c->shape->sip_w;
    if (row == 0)
        return draw_middle(pcie_box(io_box(p, corner))).x;
    return corner.x - 50 - 8.0 * row;
}

/* Lines that start further from the switch run higher, so that lines do not cross. */
static void draw_to_switch(draw_canvas *c, const plan *p, uint32_t sip)
{
    uint32_t sips = c->shape->sips, west = 0, further = 0;
    double x = riser_x(c, p, sip), middle = draw_middle(p->switch_).x;
    for (uint32_t i = 0; i < sips; i++) {
        double other = riser_x(c, p, i);
        west += other < x;
        further += (x < middle) == (other < middle) && fabs(other - middle) > fabs(x - middle);
    }
    double y = p->trunk + p->trunk_step * further;
    double plug = p->switch_.x + p->switch_.w * (west + 0.5) / sips;
    draw_rect ep = pcie_box(io_box(p, sip_corner(c, p, sip)));
    draw_point end = {draw_middle(ep).x, ep.y};
    double turn = sip_corner(c, p, sip).y - 40;
    draw_point points[] = {
        {plug, p->switch_.y + p->switch_.h}, {plug, y}, {x, y}, {x, end.x == x ? end.y : turn},
        {end.x, end.x == x ? end.y : turn},  end};
    draw_path(c, DRAW_PCIE, points, sizeof points / sizeof points[0]);
    draw_rate(c, DRAW_PCIE, (draw_point){end.x + 7, end.y - 30}, "start");
}

static void draw_system(draw_canvas *c, const plan *p)
{
    draw_point host = draw_middle(p->host);
    draw_line(c, DRAW_HOST, (draw_point){host.x, p->host.y + p->host.h},
              (draw_point){host.x, p->switch_.y});
    draw_rate(c, DRAW_HOST,
              (draw_point){host.x + 8, (p->host.y + p->host.h + p->switch_.y) / 2 + 5}, "start");
    draw_box(c, "cpu", p->host);
    draw_label(c, "label", p->host, 18, "host");
    draw_box(c, "switch", p->switch_);
    draw_label(c, "label", p->switch_, 18, "switch");
    for (uint32_t sip = 0; sip < c->shape->sips; sip++)
        draw_to_switch(c, p, sip);
}

/* ---- Title and legend -------------------------------------------------------------------- */

enum { LEGEND_ROW = 30 };

static uint32_t legend_columns(const draw_canvas *c, const plan *p)
{
    uint32_t columns = (uint32_t)((p->width - 2 * MARGIN) / legend_column(c));
    return columns == 0 ? 1 : columns;
}

static uint32_t legend_entries(const draw_canvas *c)
{
    uint32_t count = 0;
    for (unsigned ink = 0; ink < DRAW_INKS; ink++)
        count += draw_class(c, (draw_ink)ink) != NULL;
    return count;
}

static double legend_height(const draw_canvas *c, const plan *p)
{
    uint32_t columns = legend_columns(c, p), rows = (legend_entries(c) + columns - 1) / columns;
    return 70 + LEGEND_ROW * rows + 90;
}

/* Frees the text. */
static void draw_plain(draw_canvas *c, draw_point at, double size, kb_text *text)
{
    draw_text(c, "plain", at, size, "start", "%s", draw_words(c, text));
    kb_text_fini(text);
}

static void draw_legend_entry(draw_canvas *c, draw_ink ink, draw_point at)
{
    kb_text text = KB_TEXT_INIT;
    draw_line(c, ink, (draw_point){at.x, at.y - 5}, (draw_point){at.x + 50, at.y - 5});
    print_legend_entry(c, ink, &text);
    draw_plain(c, (draw_point){at.x + LEGEND_LINE, at.y}, LEGEND_SIZE, &text);
}

static void draw_legend(draw_canvas *c, const plan *p)
{
    uint32_t columns = legend_columns(c, p), entries = legend_entries(c), entry = 0;
    uint32_t rows = (entries + columns - 1) / columns;
    double top = p->height + 24, column_width = legend_column(c);
    draw_text(c, "name", (draw_point){MARGIN, top}, 20, "start", "Links, GB/s in each direction");
    for (unsigned ink = 0; ink < DRAW_INKS; ink++) {
        if (!draw_class(c, (draw_ink)ink))
            continue;
        uint32_t column = entry / rows, row = entry % rows;
        draw_point at = {MARGIN + column_width * column, top + 36 + (double)LEGEND_ROW * row};
        draw_legend_entry(c, (draw_ink)ink, at);
        entry++;
    }
    double y = top + 50 + (double)LEGEND_ROW * rows;
    kb_text text = KB_TEXT_INIT;
    print_memories(c, &text);
    draw_plain(c, (draw_point){MARGIN, y}, LEGEND_SIZE, &text);
    draw_text(c, "plain", (draw_point){MARGIN, y + 26}, LEGEND_SIZE, "start",
              "Dark squares are routers of the NOC, orange boxes UCIe ports.");
}

static void draw_title(draw_canvas *c)
{
    kb_text text = KB_TEXT_INIT;
    draw_text(c, "name", (draw_point){MARGIN, 62}, TITLE_SIZE, "start", "%s",
              topo_machine_name(c->machine));
    print_subtitle(c, &text);
    draw_plain(c, (draw_point){MARGIN, 96}, SUBTITLE_SIZE, &text);
}

/* ---- All --------------------------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "text{font-family:'DejaVu Sans',Helvetica,Arial,sans-serif}\n"
    "rect{stroke-width:1}\n"
    ".sip{fill:#f4f5f7;stroke:#9aa3ad}.die{fill:#ffffff;stroke:#5d6772}\n"
    ".router{fill:#37474f;stroke:none}.xbar{fill:#bbdefb;stroke:#1565c0;stroke-width:.6}\n"
    ".hbm{fill:#c8e6c9;stroke:#2e7d32}.sram{fill:#fff3c4;stroke:#a07800}\n"
    ".pe{fill:#d1ecf1;stroke:#00796b}.cpu{fill:#e1d8f0;stroke:#5e35b1}\n"
    ".port{fill:#ffcc80;stroke:#d35400}.sipport{fill:#f8bbd0;stroke:#ad1457}\n"
    ".switch{fill:#ffcdd2;stroke:#b71c1c}\n"
    ".label,.plain{fill:#1b2228}.light{fill:#ffffff}.small{fill:#1565c0}\n"
    ".name{fill:#1b2228;font-weight:bold}\n"
    ".rate{paint-order:stroke;stroke:#ffffff;stroke-width:3}\n"
    "</style>\n";

static void draw_all(draw_canvas *c)
{
    draw_plan_cube(c);
    plan p = make_plan(c);
    double height = p.height + legend_height(c, &p);
    kb_text_printf(c->out,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                   "viewBox=\"0 0 %g %g\">\n",
                   p.width, height, p.width, height);
    kb_text_puts(c->out, style);
    draw_define_cube(c);
    kb_text_puts(c->out, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    draw_title(c);
    /* Dies first: lines are drawn over them. */
    for (uint32_t sip = 0; sip < c->shape->sips; sip++)
        draw_sip(c, &p, sip);
    draw_system(c, &p);
    draw_sip_links(c, &p);
    for (uint32_t sip = 0; sip < c->shape->sips; sip++) {
        draw_point at = sip_corner(c, &p, sip);
        draw_io(c, &p, at);
        draw_cubes(c, &p, at);
    }
    draw_legend(c, &p);
    kb_text_puts(c->out, "</svg>\n");
}

kb_error *draw_svg(const topo_machine *machine, kb_text *out)
{
    draw_canvas c = {
        .machine = machine,
        .shape = topo_machine_shape(machine),
        .graph = topo_machine_graph(machine),
        .out = out,
    };
    KB_TRY(link_classes_init(&c.classes, machine));
    draw_all(&c);
    link_classes_fini(&c.classes);
    return out->failed ? kb_error_nomem() : NULL;
}
