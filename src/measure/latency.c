/*
 * latency.c: latencies counted in buckets whose width grows with the value.
 */
#include "latency.h"

#include <stdlib.h>

enum {
    precision_bits = 11,
    value_bits = 63,
    bucket_count = ((value_bits - precision_bits) << precision_bits) + (1 << precision_bits),
};

/* The leading bits choose the bucket: above 2^12 the first is always 1, and 11 follow. */
static uint32_t bucket_of(uint64_t value)
{
    uint32_t bits = value == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(value);
    uint32_t shift = bits > precision_bits + 1 ? bits - precision_bits - 1 : 0;
    return (shift << precision_bits) + (uint32_t)(value >> shift);
}

kb_error *latency_init(latency_counts *l)
{
    *l = (latency_counts){.buckets = kb_alloc_zeroed(bucket_count, sizeof *l->buckets)};
    return l->buckets ? NULL : kb_error_nomem();
}

void latency_fini(latency_counts *l)
{
    free(l->buckets);
    l->buckets = NULL;
}

void latency_add(latency_counts *l, kb_time latency)
{
    latency_bucket *bucket = &l->buckets[bucket_of((uint64_t)latency)];
    bucket->count++;
    if (latency > bucket->largest)
        bucket->largest = latency;
    if (latency > l->largest)
        l->largest = latency;
    l->count++;
    l->sum += (uint64_t)latency;
}

double latency_mean(const latency_counts *l)
{
    return l->count == 0 ? 0 : (double)l->sum / (double)l->count;
}

kb_time latency_quantile(const latency_counts *l, uint32_t percent)
{
    uint64_t wanted = (uint64_t)(((latency_wide)l->count * percent + 99) / 100);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < bucket_count && l->count > 0; i++) {
        seen += l->buckets[i].count;
        if (l->buckets[i].count > 0 && seen >= wanted)
            return l->buckets[i].largest;
    }
    return 0;
}
