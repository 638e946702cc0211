/*
 * expectation.h: how long points will take, from those that are done.
 *
 * The model is a product: each value of an axis makes a point longer or shorter by a factor, which
 * is the geometric mean over the points that have it, moved towards 1 where they are few. That is
 * enough to start long points first, and to say how long the rest takes.
 */
#ifndef KB_SWEEP_EXPECTATION_H
#define KB_SWEEP_EXPECTATION_H

#include "sweep_plan.h"

typedef struct sweep_expectation {
    double *sums; /* of the logarithms of times, by value of an axis */
    uint32_t *counts;
    double sum, seconds;
    uint64_t count;
} sweep_expectation;

KB_MUST_USE kb_error *sweep_expectation_init(sweep_expectation *e, const sweep_plan *plan);
void sweep_expectation_fini(sweep_expectation *e);

void sweep_expectation_add(sweep_expectation *e, const sweep_point *point, double seconds);

/* In seconds; 0 if nothing is known yet. */
double sweep_expectation_of(const sweep_expectation *e, const sweep_point *point);

#endif
