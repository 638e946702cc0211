/*
 * arrivals.h: when a PE creates transfers: by chance, at a given mean rate. Private to traffic.
 *
 * Times are exact: a cycle that is no whole number of femtoseconds does not drift.
 */
#ifndef KB_MEASURE_ARRIVALS_H
#define KB_MEASURE_ARRIVALS_H

#include <stdint.h>

#include "traffic.h"

/* What all PEs have in common. */
typedef struct arrivals {
    traffic_process process;
    topo_pace cycle;      /* of Bernoulli arrivals */
    double log_miss;      /* -ln(1 - p) for a probability of p a cycle; 0 if p is 1 */
    uint64_t mean_gap;    /* of Poisson arrivals, in ticks */
    uint64_t last_moment; /* a cycle or a tick: none comes after it */
} arrivals;

/* A PE's own. */
typedef struct arrivals_stream {
    kb_rng rng;
    uint64_t moment; /* Bernoulli: the next cycle; Poisson: the last arrival, in ticks */
} arrivals_stream;

/* `bytes_per_s` is of the injection link. Nothing arrives after `last`. */
KB_MUST_USE kb_error *arrivals_init(arrivals *a, const traffic_options *options,
                                    uint64_t bytes_per_s, uint32_t packet_bytes, kb_time last);

void arrivals_start(arrivals_stream *stream, uint64_t seed, uint32_t pe);

/* The next one, or KB_FOREVER if there is none. */
kb_time arrivals_next(const arrivals *a, arrivals_stream *stream);

#endif
