/* bins.c: counters over time in a bounded number of bins: see bins.h. */
#include "bins.h"

#include <stdlib.h>

#include "base/base.h"

enum {
    MAX_BINS = 1024,
    MIN_BINS = 64,
    MAX_VALUES = 1 << 20, /* of all counters, unless MIN_BINS need more */
    FIRST_WIDTH_NS = 20,  /* several packets on a link: narrower bins would show spikes */
};

kb_error *obs_bins_init(obs_bins *bins, size_t totals, size_t levels)
{
    size_t counters = totals + levels > 0 ? totals + levels : 1;
    size_t max = MAX_VALUES / counters / 2 * 2;
    *bins = (obs_bins){
        .width = FIRST_WIDTH_NS * KB_NS,
        .max = max < MIN_BINS   ? MIN_BINS
               : max > MAX_BINS ? MAX_BINS
                                : max,
        .total_count = totals,
        .level_count = levels,
    };
    bins->ends = kb_alloc_array(bins->max, sizeof *bins->ends);
    bins->totals = kb_alloc_zeroed(totals, sizeof *bins->totals);
    bins->growth = kb_alloc_array(totals * bins->max, sizeof *bins->growth);
    bins->levels = kb_alloc_zeroed(levels, sizeof *bins->levels);
    if (bins->ends && bins->totals && bins->growth && bins->levels)
        return NULL;
    obs_bins_fini(bins);
    return kb_error_nomem();
}

void obs_bins_fini(obs_bins *bins)
{
    for (size_t i = 0; bins->levels && i < bins->level_count; i++)
        free(bins->levels[i]);
    free(bins->levels);
    free(bins->growth);
    free(bins->totals);
    free(bins->ends);
    *bins = (obs_bins){0};
}

/* Merges pairs of bins. */
static void merge_pairs(obs_bins *bins)
{
    bins->count /= 2;
    bins->width *= 2;
    for (size_t bin = 0; bin < bins->count; bin++)
        bins->ends[bin] = bins->ends[2 * bin + 1];
    for (size_t i = 0; i < bins->total_count; i++) {
        uint64_t *growth = bins->growth + i * bins->max;
        for (size_t bin = 0; bin < bins->count; bin++)
            growth[bin] = growth[2 * bin] + growth[2 * bin + 1];
    }
    for (size_t i = 0; i < bins->level_count; i++) {
        obs_level *level = bins->levels[i];
        for (size_t bin = 0; level && bin < bins->count; bin++)
            level->peaks[bin] = kb_max(level->peaks[2 * bin], level->peaks[2 * bin + 1]);
    }
}

/*
 * Adds the counts since the last bin ended to this bin. During an instant a total may include bytes
 * that are subtracted again at its end.
 */
static void add_to_bin(obs_bins *bins, size_t bin, const uint64_t *totals)
{
    for (size_t i = 0; i < bins->total_count; i++) {
        uint64_t total = kb_max(totals[i], bins->totals[i]);
        bins->growth[i * bins->max + bin] += total - bins->totals[i];
        bins->totals[i] = total;
    }
    for (size_t i = 0; i < bins->level_count; i++) {
        obs_level *level = bins->levels[i];
        if (!level)
            continue;
        level->peaks[bin] = kb_max(level->peaks[bin], level->peak);
        level->peak = level->now;
    }
}

void obs_bins_end_bin(obs_bins *bins, kb_time now, const uint64_t *totals)
{
    KB_ASSERT(now > obs_bins_end(bins));
    if (bins->count == bins->max)
        merge_pairs(bins);
    size_t bin = bins->count++;
    bins->ends[bin] = now;
    for (size_t i = 0; i < bins->total_count; i++)
        bins->growth[i * bins->max + bin] = 0;
    for (size_t i = 0; i < bins->level_count; i++)
        if (bins->levels[i])
            bins->levels[i]->peaks[bin] = 0;
    add_to_bin(bins, bin, totals);
}

void obs_bins_finish(obs_bins *bins, kb_time now, const uint64_t *totals)
{
    kb_time end = obs_bins_end(bins);
    if (bins->count == 0 || obs_bins_is_due(bins, now)) {
        obs_bins_end_bin(bins, now > end ? now : end + 1, totals);
        return;
    }
    bins->ends[bins->count - 1] = now > end ? now : end;
    add_to_bin(bins, bins->count - 1, totals);
}

bool obs_bins_set_level(obs_bins *bins, size_t level, uint64_t value)
{
    KB_ASSERT(level < bins->level_count);
    obs_level *is = bins->levels[level];
    if (!is) {
        is = kb_alloc_zeroed(1, sizeof *is + bins->max * sizeof is->peaks[0]);
        if (!is)
            return false;
        bins->levels[level] = is;
    }
    is->now = value;
    is->peak = kb_max(is->peak, value);
    return true;
}
