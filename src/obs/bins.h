/*
 * bins.h: counters over the time of a run, in a bounded number of bins. Private to obs.
 *
 * A bin ends at the first event after its width, so bins have different widths: a count between two
 * events is never divided. When all bins are in use, pairs of bins are merged and the minimum width
 * doubles; sums stay exact.
 *
 * There are two kinds of counters: totals, which only grow and have their increase in each bin, and
 * levels, which have their peak.
 */
#ifndef KB_OBS_BINS_H
#define KB_OBS_BINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/* A level. Levels that were never set have none. */
typedef struct obs_level {
    uint64_t now;
    uint64_t peak;    /* since the last bin ended */
    uint64_t peaks[]; /* by bin */
} obs_level;

typedef struct obs_bins {
    kb_time width;     /* minimum of a complete bin */
    size_t count, max; /* complete bins; max is even */
    kb_time *ends;     /* by bin; a bin begins at the end of the one before, the first at 0 */
    size_t total_count, level_count;
    uint64_t *totals;   /* at the end of the last bin */
    uint64_t *growth;   /* by total, then by bin */
    obs_level **levels; /* NULL: never set, and 0 */
} obs_bins;

KB_MUST_USE kb_error *obs_bins_init(obs_bins *bins, size_t totals, size_t levels);
void obs_bins_fini(obs_bins *bins);

static inline kb_time obs_bins_end(const obs_bins *bins)
{
    return bins->count > 0 ? bins->ends[bins->count - 1] : 0;
}

/* Whether the current bin has its width. */
static inline bool obs_bins_is_due(const obs_bins *bins, kb_time now)
{
    return now - obs_bins_end(bins) >= bins->width;
}

/* Ends the current bin; `now` is later than the last end. `totals` are the current values. */
void obs_bins_end_bin(obs_bins *bins, kb_time now, const uint64_t *totals);

/* The same at the end of the run, where the last bin may be narrower. */
void obs_bins_finish(obs_bins *bins, kb_time now, const uint64_t *totals);

/* Sets the level from now on. False if out of memory. */
KB_MUST_USE bool obs_bins_set_level(obs_bins *bins, size_t level, uint64_t value);

static inline uint64_t obs_bins_growth(const obs_bins *bins, size_t total, size_t bin)
{
    return bins->growth[total * bins->max + bin];
}

#endif
