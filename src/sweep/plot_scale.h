/*
 * plot_scale.h: from numbers to pixels: linear and logarithmic scales with round ticks, and units.
 */
#ifndef KB_SWEEP_PLOT_SCALE_H
#define KB_SWEEP_PLOT_SCALE_H

#include "plot_canvas.h"

enum { PLOT_TICKS = 64 };

/* A unit that makes numbers of a figure short: 1e-3 and "us" for a figure in ns. */
typedef struct plot_unit {
    double factor;
    const char *name; /* "" if it has none */
} plot_unit;

/* For numbers up to `largest` of the figure or axis of that name. */
plot_unit plot_choose_unit(const char *name, double largest);

typedef struct plot_tick {
    double value;
    char label[32];
} plot_tick;

typedef struct plot_scale {
    bool is_log;
    double min, max; /* of the numbers that it shows */
    double from, to; /* in pixels */
    plot_tick ticks[PLOT_TICKS];
    size_t tick_count;
} plot_scale;

/*
 * A scale for numbers between min and max, with about `wanted` ticks at round values. It is
 * logarithmic if all are positive and the largest is `spread` times the smallest; otherwise linear,
 * and from 0 if `from_zero`. The ends are ticks.
 */
void plot_scale_init(plot_scale *scale, double min, double max, double spread, bool from_zero,
                     int wanted);

double plot_at(const plot_scale *scale, double value);

#endif
