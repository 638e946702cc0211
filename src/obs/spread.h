/*
 * spread.h: amounts over the time of a run, in a bounded number of equal bins. Private to obs.
 *
 * An amount belongs to an interval, and is divided among the bins that the interval overlaps, in
 * proportion to the overlap; sums are exact. When an interval ends past the last bin, pairs of bins
 * are merged and the width doubles. So after a run that is long enough at least half of the bins
 * are in use.
 *
 * (bins.h has bins of different widths for what is sampled at events and must not be divided.)
 */
#ifndef KB_OBS_SPREAD_H
#define KB_OBS_SPREAD_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct obs_spread {
    kb_time width; /* of a bin */
    size_t bins, rows;
    uint64_t **amounts; /* by row, then bin; NULL: all 0 */
} obs_spread;

/* `first_width`: of a bin, until a doubling is needed. */
KB_MUST_USE kb_error *obs_spread_init(obs_spread *spread, size_t rows, kb_time first_width);
void obs_spread_fini(obs_spread *spread);

/* Adds the amount to the row over [start, end); to one bin if that is empty. False if out of
 * memory. */
KB_MUST_USE bool obs_spread_add(obs_spread *spread, size_t row, kb_time start, kb_time end,
                                uint64_t amount);

/* Merges pairs of bins: the width doubles. */
void obs_spread_merge(obs_spread *spread);

static inline uint64_t obs_spread_get(const obs_spread *spread, size_t row, size_t bin)
{
    return spread->amounts[row] ? spread->amounts[row][bin] : 0;
}

/* The bins that a run of this length uses. */
size_t obs_spread_used(const obs_spread *spread, kb_time end);

#endif
