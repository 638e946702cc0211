/*
 * latency.h: latencies of any number of transfers in bounded memory: mean and maximum exactly,
 * quantiles to 0.05 %. Private to measure.
 *
 * Counted in buckets: one a value up to 2^12 fs, and 2^11 for each power of two above, so a bucket
 * is never wider than 1/2048 of what is in it. Each knows the largest value that it got, which is
 * what a quantile gives: where latencies are few different values, as on a machine of one clock, it
 * is exact.
 */
#ifndef KB_MEASURE_LATENCY_H
#define KB_MEASURE_LATENCY_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

__extension__ typedef unsigned __int128 latency_wide;

typedef struct latency_bucket {
    uint64_t count;
    kb_time largest;
} latency_bucket;

typedef struct latency_counts {
    latency_bucket *buckets;
    uint64_t count;
    latency_wide sum;
    kb_time largest;
} latency_counts;

KB_MUST_USE kb_error *latency_init(latency_counts *l);
void latency_fini(latency_counts *l);

void latency_add(latency_counts *l, kb_time latency);

/* 0 if nothing was counted. */
double latency_mean(const latency_counts *l);

/* The least latency that `percent` of all do not exceed. 0 if nothing was counted. */
kb_time latency_quantile(const latency_counts *l, uint32_t percent);

#endif
