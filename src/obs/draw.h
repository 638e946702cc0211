/*
 * draw.h: the canvas of a drawing of a machine as SVG, and the layout of cubes.
 *
 * One unit is a pixel at the natural size of the drawing. Dies form the grid of the machine; the
 * layout of a die is made for legibility.
 */
#ifndef KB_OBS_DRAW_H
#define KB_OBS_DRAW_H

#include "topo/topo.h"

#include "link_classes.h"

typedef struct draw_rect {
    double x, y, w, h;
} draw_rect;

typedef struct draw_point {
    double x, y;
} draw_point;

/* Kinds of links with a colour and a line of the legend. */
typedef enum draw_ink {
    DRAW_HOST,
    DRAW_PCIE,
    DRAW_SIP_LINK,
    DRAW_IO,
    DRAW_UCIE,
    DRAW_UCIE_NOC,
    DRAW_NOC,
    DRAW_PE_NOC,
    DRAW_PE_XBAR,
    DRAW_NOC_XBAR,
    DRAW_HBM,
    DRAW_SRAM,
    DRAW_M_CPU,
    DRAW_INKS
} draw_ink;

/* The layout of a cube's die, relative to its north-west corner. */
typedef struct draw_cube {
    double w, h;            /* of the die */
    double gap;             /* between dies */
    draw_point first, step; /* the first router, and the distance of routers */
    draw_rect ring;         /* the crossbar's outer edge */
    double cell_w;          /* width of the box of a slice or a PE, with its label */
    uint32_t columns;       /* of slices, west and east of the ports in the north and south */
    uint32_t rows[2];       /* of slices along the north and the south edge */
    uint32_t tile_columns;  /* of the PEs beside a router */
    bool tiles;             /* PEs are beside their routers, not in rows */
    uint32_t port_router[TOPO_SIDES]; /* TOPO_NONE if no cube has that port */
    uint32_t m_cpu_router;
} draw_cube;

typedef struct draw_canvas {
    const topo_machine *machine;
    const topo_shape *shape;
    const topo_graph *graph;
    link_classes classes;
    draw_cube cube;
    kb_text *out;
} draw_canvas;

/* ---- Shapes ------------------------------------------------------------------------------ */

const char *draw_colour(draw_ink ink);
double draw_width(const draw_canvas *c, draw_ink ink);

/* The class of links with this ink; NULL if the machine has no such links. */
const link_class *draw_class(const draw_canvas *c, draw_ink ink);
const char *draw_ink_name(draw_ink ink);

/* The text; if it is incomplete, the drawing fails. */
const char *draw_words(const draw_canvas *c, const kb_text *text);

void draw_box(draw_canvas *c, const char *style, draw_rect r);
void draw_line(draw_canvas *c, draw_ink ink, draw_point from, draw_point to);

/* A centred text in a box: smaller if it does not fit, omitted if it would be illegible. */
void draw_label(draw_canvas *c, const char *style, draw_rect r, double size, const char *format,
                ...) KB_PRINTF(5, 6);

/* `anchor` is start, middle or end; the point is on the base line. */
void draw_text(draw_canvas *c, const char *style, draw_point at, double size, const char *anchor,
               const char *format, ...) KB_PRINTF(6, 7);

/* The bandwidth of the links of that ink, beside one of them. */
void draw_rate(draw_canvas *c, draw_ink ink, draw_point at, const char *anchor);

static inline draw_point draw_middle(draw_rect r)
{
    return (draw_point){r.x + r.w / 2, r.y + r.h / 2};
}

/* ---- A cube ------------------------------------------------------------------------------ */

/* Sets c->cube. */
void draw_plan_cube(draw_canvas *c);

/* Defines the symbol "cube", with what all cubes have in common. */
void draw_define_cube(draw_canvas *c);

/* The port at a side of the die with this corner. */
draw_rect draw_port(const draw_canvas *c, draw_point corner, topo_side side);

/* Draws the port and the line to its router. */
void draw_add_port(draw_canvas *c, draw_point corner, topo_side side);

#endif
