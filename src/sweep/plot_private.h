/* plot_private.h: the kinds of plots, and the head that all of them have. */
#ifndef KB_SWEEP_PLOT_PRIVATE_H
#define KB_SWEEP_PLOT_PRIVATE_H

#include "plot.h"
#include "plot_axis.h"

kb_error *plot_draw_lines(const sweep_results *results, const sweep_plot_options *options,
                          kb_text *out);
kb_error *plot_draw_heat(const sweep_results *results, const sweep_plot_options *options,
                         kb_text *out);
kb_error *plot_draw_pareto(const sweep_results *results, const sweep_plot_options *options,
                           kb_text *out);

/* Title, axes that are not in the plot, points that failed: lines at the top. */
typedef struct plot_head {
    const sweep_results *results;
    const plot_role *roles;       /* of the axes */
    const char *title, *fallback; /* the title, or if it is NULL the other one */
} plot_head;

double plot_head_height(const plot_head *head);
/* Begins the document, and draws the head. */
void plot_draw_head(plot_canvas *c, const plot_head *head, size_t series, bool ordered);

#endif
