/*
 * plot_canvas.h: shapes and texts of plots.
 *
 * One unit is a pixel at the natural size. Colours are classes of the style sheet, so that they can
 * follow the page: "ink", "soft" and "paper" of texts, "grid" of lines, "c0", "c1", ... of series.
 */
#ifndef KB_SWEEP_PLOT_CANVAS_H
#define KB_SWEEP_PLOT_CANVAS_H

#include "base/base.h"

#include <stdbool.h>

enum { PLOT_SERIES = 8 }; /* colours of series */

typedef struct plot_box {
    double x, y, w, h;
} plot_box;

typedef struct plot_canvas {
    kb_text *out;
    double width, height;
} plot_canvas;

/* Begins and ends the document. Series that are ordered have colours from a scale of `series`
 * steps; others have colours that differ as much as possible. */
void plot_begin(plot_canvas *c, const char *title, size_t series, bool ordered);
void plot_end(plot_canvas *c);

/* The text, or what a terminal shows of it if it is not UTF-8; a lost one fails the drawing. */
const char *plot_words(plot_canvas *c, kb_text *text);

/* `anchor`: start, middle or end; (x, y) is on the base line. */
void plot_text(plot_canvas *c, const char *style, double x, double y, double size,
               const char *anchor, const char *text);
void plot_bold(plot_canvas *c, double x, double y, double size, const char *text);

void plot_line(plot_canvas *c, const char *style, double x1, double y1, double x2, double y2);
/* The mark of a point of a series, with a text that is shown when the pointer is on it. */
void plot_mark(plot_canvas *c, size_t series, double x, double y, const char *tip);

/* The colour of a share of the scale, 0 to 1: perceptually ordered, the same in all pages. */
typedef struct plot_colour {
    unsigned char r, g, b;
} plot_colour;
plot_colour plot_scale_colour(double share);
/* Whether black is more legible on it than white. */
bool plot_is_light(plot_colour colour);

/* Appends a number for people, three digits or so: "0.0123", "12.3", "1,230". */
void plot_append_number(kb_text *text, double number);

#endif
