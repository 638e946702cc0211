/*
 * attention_reference.h: random numbers and the double-precision reference for the benches of
 * attention with a cache. It is independent of how kernels divide their work.
 */
#ifndef KB_BENCHES_ATTENTION_REFERENCE_H
#define KB_BENCHES_ATTENTION_REFERENCE_H

#include <kernbench/attention.h>
#include <kernbench/kernbench.h>

#include <stddef.h>
#include <stdint.h>

KB_MUST_USE kb_error *reference_no_memory(void);

/* Deterministic for each seed. */
uint64_t reference_random_below(uint64_t seed, uint64_t i, uint64_t bound);

/* Random numbers, rounded to the dtype; to be freed with free(). NULL: no memory. */
float *reference_numbers(kb_dtype dtype, uint64_t seed, size_t count);

/* Writes the numbers to a tensor, untimed. */
KB_MUST_USE kb_error *reference_set_tensor(kb_context *ctx, kb_tensor tensor, kb_dtype dtype,
                                           const float *numbers, size_t count);

/* The begin of the keys or values of a sequence and head in (sequence, kv head, token, dim). */
float *reference_head(const kb_kv_cache_spec *spec, float *all, uint32_t sequence,
                      uint32_t kv_head);

/* Writes the first `cached` tokens of all sequences to a cache, untimed. */
KB_MUST_USE kb_error *reference_fill_cache(kb_context *ctx, kb_kv_cache cache,
                                           const kb_kv_cache_spec *spec, const uint32_t *cached,
                                           float *keys, float *values);

/* A new key as it is cached: rotated, and rounded to the dtype. `rotated` is a buffer. */
void reference_append_key(const kb_kv_cache_spec *spec, uint32_t position, const float *from,
                          float *to, double *rotated);

/* A head, rotated by its position with the cache's rope: pairs (i, i + dim / 2), or none. */
void reference_rotate(const kb_kv_cache_spec *spec, uint32_t position, const float *from,
                      double *to);

/* softmax(q K^T / sqrt(dim)) V over keys from `first` to before `end`. `weights` has room for `end`
 * numbers. */
void reference_attend(const double *q, const float *k, const float *v, uint32_t first, uint32_t end,
                      uint32_t dim, double *weights, double *o);

/* Compares the result of a head. The tolerance covers one rounding of results, and small
 * differences of keys and angles. */
KB_MUST_USE kb_error *reference_compare(const kb_kv_cache_spec *spec, uint32_t sequence,
                                        uint32_t token, uint32_t head, const float *found,
                                        const double *expected);

/* The name of the resource with the largest bound. */
const char *reference_bound_of(const kb_attention_bounds *bounds);

#endif
