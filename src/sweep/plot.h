/*
 * plot.h: results of a sweep as a drawing: an SVG document that stands alone, or within a page.
 *
 *     lines     a figure over an axis; a line for each combination of the other axes that matter
 *     heat      a figure over two axes, as coloured cells with numbers
 *     pareto    two figures, and the points of which none is better in both
 *
 * A drawing is legible on light and on dark pages: it follows prefers-color-scheme. It depends on
 * nothing but the results. Axes without any effect on the figure are left out of it.
 */
#ifndef KB_SWEEP_PLOT_H
#define KB_SWEEP_PLOT_H

#include "results.h"
#include "select.h"

typedef enum sweep_plot_kind {
    SWEEP_PLOT_AUTO, /* pareto if there are objectives; heat for two axes with many values each,
                        else lines */
    SWEEP_PLOT_LINES,
    SWEEP_PLOT_HEAT,
    SWEEP_PLOT_PARETO
} sweep_plot_kind;

enum { SWEEP_MAX_PLOTTED = 4 }; /* figures in one plot */

typedef struct sweep_plot_options {
    sweep_plot_kind kind;
    const char *title;         /* NULL: made from the figure and the axes */
    const sweep_column *x, *y; /* axes of a heat map, x also of lines; NULL: chosen */
    const sweep_column *figures[SWEEP_MAX_PLOTTED];
    size_t figure_count;                /* of lines and heat maps: 1 at least */
    const sweep_objectives *objectives; /* of a Pareto front: two, found */
    const sweep_expression *constraint; /* of a Pareto front, bound to the results; NULL: none */
} sweep_plot_options;

/* Appends a whole SVG document. */
KB_MUST_USE kb_error *sweep_plot(const sweep_results *results, const sweep_plot_options *options,
                                 kb_text *out);

#endif
