/* draw_shapes.c: boxes, lines and texts of a drawing, and the colours of links. */
#include "draw.h"

#include "number.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

typedef struct ink {
    const char *colour;
    const char *name;
    topo_kind a, b; /* the ends of its links */
} ink;

static const ink inks[DRAW_INKS] = {
    [DRAW_HOST] = {"#4e342e", "host to switch", TOPO_HOST, TOPO_SWITCH},
    [DRAW_PCIE] = {"#c62828", "SIP to switch", TOPO_PCIE_EP, TOPO_SWITCH},
    [DRAW_SIP_LINK] = {"#d81b60", "SIP to SIP", TOPO_SIP_PORT, TOPO_IO_NOC},
    [DRAW_IO] = {"#6a1b9a", "in the IO chiplet", TOPO_IO_NOC, TOPO_IO_UCIE},
    [DRAW_UCIE] = {"#ef6c00", "UCIe, die to die", TOPO_UCIE, TOPO_IO_UCIE},
    [DRAW_UCIE_NOC] = {"#8d6e63", "UCIe port to router", TOPO_UCIE, TOPO_ROUTER},
    [DRAW_NOC] = {"#546e7a", "router to router", TOPO_ROUTER, TOPO_ROUTER},
    [DRAW_PE_NOC] = {"#00897b", "PE to router", TOPO_PE_DMA, TOPO_ROUTER},
    [DRAW_PE_XBAR] = {"#1e88e5", "PE to xbar", TOPO_PE_DMA, TOPO_XBAR},
    [DRAW_NOC_XBAR] = {"#3949ab", "router to xbar", TOPO_ROUTER, TOPO_XBAR},
    [DRAW_HBM] = {"#2e7d32", "xbar to HBM slice", TOPO_XBAR, TOPO_HBM_CTRL},
    [DRAW_SRAM] = {"#a07800", "xbar to SRAM", TOPO_XBAR, TOPO_SRAM},
    [DRAW_M_CPU] = {"#7e57c2", "m_cpu to router", TOPO_M_CPU, TOPO_ROUTER},
};

const char *draw_colour(draw_ink i)
{
    return inks[i].colour;
}

const char *draw_ink_name(draw_ink i)
{
    return inks[i].name;
}

const link_class *draw_class(const draw_canvas *c, draw_ink i)
{
    return link_classes_find(&c->classes, inks[i].a, inks[i].b, false);
}

/* Grows with the bandwidth, between limits. */
double draw_width(const draw_canvas *c, draw_ink i)
{
    const link_class *class = draw_class(c, i);
    double gbs = class ? (double)class->rate / (double)TOPO_GBS : 1;
    double width = 0.13 * sqrt(gbs);
    return width < 1 ? 1 : width > 5 ? 5 : width;
}

void draw_box(draw_canvas *c, const char *style, draw_rect r)
{
    double round = r.h < 40 ? 2 : 6;
    kb_text_printf(
        c->out,
        "<rect class=\"%s\" x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\" rx=\"%g\"/>\n",
        style, r.x, r.y, r.w, r.h, round);
}

void draw_line(draw_canvas *c, draw_ink i, draw_point from, draw_point to)
{
    kb_text_printf(c->out,
                   "<line x1=\"%.6g\" y1=\"%.6g\" x2=\"%.6g\" y2=\"%.6g\" stroke=\"%s\" "
                   "stroke-width=\"%.3g\"/>\n",
                   from.x, from.y, to.x, to.y, draw_colour(i), draw_width(c, i));
}

static void put_text(draw_canvas *c, const char *style, draw_point at, double size,
                     const char *anchor, const char *colour, const char *text)
{
    kb_text_printf(c->out,
                   "<text class=\"%s\" x=\"%.6g\" y=\"%.6g\" font-size=\"%g\" text-anchor=\"%s\"",
                   style, at.x, at.y, size, anchor);
    if (colour)
        kb_text_printf(c->out, " fill=\"%s\"", colour);
    kb_text_puts(c->out, ">");
    kb_svg_append_text(c->out, text);
    kb_text_puts(c->out, "</text>\n");
}

const char *draw_words(const draw_canvas *c, const kb_text *text)
{
    c->out->failed |= text->failed;
    return kb_text_peek(text);
}

void draw_text(draw_canvas *c, const char *style, draw_point at, double size, const char *anchor,
               const char *format, ...)
{
    kb_text text = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&text, format, args);
    va_end(args);
    put_text(c, style, at, size, anchor, NULL, draw_words(c, &text));
    kb_text_fini(&text);
}

void draw_label(draw_canvas *c, const char *style, draw_rect r, double size, const char *format,
                ...)
{
    static const double pad = 2; /* at each side */
    kb_text text = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&text, format, args);
    va_end(args);
    double width = kb_svg_text_width(draw_words(c, &text), 1);
    if (width * size > r.w - 2 * pad)
        size = (r.w - 2 * pad) / width;
    draw_point middle = draw_middle(r);
    if (size >= 7 && size < r.h)
        put_text(c, style, (draw_point){middle.x, middle.y + 0.36 * size}, size, "middle", NULL,
                 draw_words(c, &text));
    kb_text_fini(&text);
}

void draw_rate(draw_canvas *c, draw_ink i, draw_point at, const char *anchor)
{
    const link_class *class = draw_class(c, i);
    if (class)
        put_text(c, "rate", at, 10, anchor, draw_colour(i), obs_rate(class->rate).text);
}
