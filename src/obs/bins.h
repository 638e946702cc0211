/*
 * bins.h: counters over the time of a run, in a bounded number of bins. Private to obs.
 *
 * A bin ends when its time is over and something happens, so bins are of different widths: what is
 * counted between two instants is never divided. When all bins are in use, every two become one and
 * the least width doubles; sums stay exact.
 *
 * There are two kinds of counters: totals that only grow, of which a bin has the increase, and
 * levels, of which a bin has the peak.
 */
#ifndef KB_OBS_BINS_H
#define KB_OBS_BINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/* A level that has been set. */
typedef struct obs_level {
    uint64_t now;
    uint64_t peak;    /* since the last bin ended */
    uint64_t peaks[]; /* by bin */
} obs_level;

typedef struct obs_bins {
    kb_time width;     /* the least of a bin that has ended */
    size_t count, max; /* bins that have ended; max is even */
    kb_time *ends;     /* by bin. The first one begins at 0, others where the one before ends */
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

/* Whether the bin under way has had its time. */
static inline bool obs_bins_is_due(const obs_bins *bins, kb_time now)
{
    return now - obs_bins_end(bins) >= bins->width;
}

/* Ends the bin under way, later than the last. `totals` are those of now. */
void obs_bins_end_bin(obs_bins *bins, kb_time now, const uint64_t *totals);

/* The same at the end of the run, for whatever time has passed since the last bin ended. */
void obs_bins_finish(obs_bins *bins, kb_time now, const uint64_t *totals);

/* From now on the level is this. False if there is no memory. */
KB_MUST_USE bool obs_bins_set_level(obs_bins *bins, size_t level, uint64_t value);

static inline uint64_t obs_bins_growth(const obs_bins *bins, size_t total, size_t bin)
{
    return bins->growth[total * bins->max + bin];
}

#endif
