/*
 * plot_axis.h: what plots have in common: axes of a sweep as axes of a plot, names, titles, notes.
 */
#ifndef KB_SWEEP_PLOT_AXIS_H
#define KB_SWEEP_PLOT_AXIS_H

#include "plot.h"
#include "plot_canvas.h"
#include "plot_scale.h"

enum { PLOT_SMALL = 11, PLOT_NORMAL = 12, PLOT_TITLE = 16 }; /* sizes of texts */

/* An axis of the sweep along an edge of the plot: numbers at their places, other values evenly. */
typedef struct plot_axis {
    const sweep_column *axis;
    uint32_t *order; /* indices of the values, in the order of the edge */
    double *at;      /* pixels, by the index of a value */
} plot_axis;

/* Between two pixels. Numbers are on the scale, linear or logarithmic, that crowds them less. */
KB_MUST_USE kb_error *plot_axis_init(plot_axis *a, const sweep_column *axis, double from,
                                     double to);
void plot_axis_fini(plot_axis *a);

/* Draws the labels of the values below y, as many as fit, and the title with its unit. */
void plot_draw_axis(plot_canvas *c, const plot_axis *a, double from, double to, double y,
                    bool with_title);

/* The unit of the numbers of an axis; "" if they are written with one, "64KiB". */
const char *plot_axis_unit(const sweep_column *axis);

/* Appends the name of an axis without its first parts: "ucie.bw_gbs". */
void plot_append_short_name(kb_text *text, const sweep_column *axis);
/* Appends the title of a column with the unit in brackets: "busbw (GB/s)". */
void plot_append_title(kb_text *text, const sweep_column *column, const char *unit);

/* Copies a text of at most so many pixels; a longer one ends in "...". */
void plot_append_clipped(kb_text *out, const char *text, double size, double width);

/* What a plot makes of an axis of the sweep. */
typedef enum plot_role {
    PLOT_FIXED,    /* it has one value, or none */
    PLOT_SHOWN,    /* an axis of the plot, or what tells series apart */
    PLOT_GIVEN,    /* the values of the plot's axes determine its values */
    PLOT_IDLE,     /* it has no effect on the figures: one of its points is shown */
    PLOT_AVERAGED, /* the plot shows the mean over its values */
} plot_role;

/* The role of the axis in a plot of the figures over x and y (NULL: none): PLOT_SHOWN if it is one
 * of them, or matters. */
KB_MUST_USE kb_error *plot_find_role(const sweep_results *results, const sweep_column *axis,
                                     const sweep_column *x, const sweep_column *y,
                                     const sweep_plot_options *options, plot_role *role);

/* Appends what the plot does not show, as a line: of each axis, by its role; and the number of
 * points that failed. Nothing if there is nothing to say. */
void plot_append_notes(kb_text *text, const sweep_results *results, const plot_role *roles);
void plot_append_failures(kb_text *text, const sweep_results *results);

/* The widest of the tick labels. */
double plot_tick_width(const plot_scale *scale);

#endif
