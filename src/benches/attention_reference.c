/* attention_reference.c: random numbers and the reference of attention with a cache. */
#include "attention_reference.h"

#include <math.h>
#include <stdlib.h>

kb_error *reference_no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

uint64_t reference_random_below(uint64_t seed, uint64_t i, uint64_t bound)
{
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ (seed + 1) * 0xc2b2ae3d27d4eb4fu;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return h % bound;
}

float *reference_numbers(kb_dtype dtype, uint64_t seed, size_t count)
{
    void *stored = malloc(count * kb_dtype_bytes(dtype));
    float *numbers = malloc(count * sizeof *numbers);
    if (stored && numbers) {
        kb_bench_random(seed, dtype, stored, count);
        kb_convert(KB_F32, numbers, dtype, stored, count);
    } else {
        free(numbers);
        numbers = NULL;
    }
    free(stored);
    return numbers;
}

kb_error *reference_set_tensor(kb_context *ctx, kb_tensor tensor, kb_dtype dtype,
                               const float *numbers, size_t count)
{
    void *stored = malloc(count * kb_dtype_bytes(dtype));
    if (!stored)
        return reference_no_memory();
    kb_convert(dtype, stored, KB_F32, numbers, count);
    kb_error *err =
        kb_tensor_set_slice(ctx, tensor, KB_UNTIMED, NULL, stored, count * kb_dtype_bytes(dtype));
    free(stored);
    return err;
}

float *reference_head(const kb_kv_cache_spec *s, float *all, uint32_t sequence, uint32_t kv_head)
{
    return all + ((size_t)sequence * s->kv_heads + kv_head) * s->capacity * s->head_dim;
}

kb_error *reference_fill_cache(kb_context *ctx, kb_kv_cache cache, const kb_kv_cache_spec *s,
                               const uint32_t *cached, float *keys, float *values)
{
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t head = 0; head < s->kv_heads; head++) {
            kb_kv_range range = {.sequence = b, .kv_head = head, .count = cached[b]};
            KB_TRY(kb_kv_cache_set(ctx, cache, &range, reference_head(s, keys, b, head)));
            range.values = true;
            KB_TRY(kb_kv_cache_set(ctx, cache, &range, reference_head(s, values, b, head)));
        }
    return NULL;
}

void reference_append_key(const kb_kv_cache_spec *s, uint32_t position, const float *from,
                          float *to, double *rotated)
{
    unsigned char stored[4];
    reference_rotate(s, position, from, rotated);
    for (uint32_t i = 0; i < s->head_dim; i++) {
        float wide = (float)rotated[i];
        kb_convert(s->dtype, stored, KB_F32, &wide, 1);
        kb_convert(KB_F32, &to[i], s->dtype, stored, 1);
    }
}

void reference_rotate(const kb_kv_cache_spec *s, uint32_t position, const float *from, double *to)
{
    uint32_t half = s->head_dim / 2;
    for (uint32_t i = 0; i < s->head_dim; i++)
        to[i] = (double)from[i];
    if (s->rope.style == KB_ROPE_NONE)
        return;
    for (uint32_t i = 0; i < half; i++) {
        double angle = position * pow(s->rope.base, -(double)i / half);
        to[i] = (double)from[i] * cos(angle) - (double)from[i + half] * sin(angle);
        to[i + half] = (double)from[i + half] * cos(angle) + (double)from[i] * sin(angle);
    }
}

void reference_attend(const double *q, const float *k, const float *v, uint32_t first, uint32_t end,
                      uint32_t dim, double *weights, double *o)
{
    double max = -HUGE_VAL, sum = 0;
    for (uint32_t t = first; t < end; t++) {
        double score = 0;
        for (uint32_t i = 0; i < dim; i++)
            score += q[i] * (double)k[(size_t)t * dim + i];
        weights[t] = score / sqrt(dim);
        max = fmax(max, weights[t]);
    }
    for (uint32_t i = 0; i < dim; i++)
        o[i] = 0;
    for (uint32_t t = first; t < end; t++) {
        double weight = exp(weights[t] - max);
        sum += weight;
        for (uint32_t i = 0; i < dim; i++)
            o[i] += weight * (double)v[(size_t)t * dim + i];
    }
    for (uint32_t i = 0; i < dim; i++)
        o[i] /= sum;
}

kb_error *reference_compare(const kb_kv_cache_spec *s, uint32_t sequence, uint32_t token,
                            uint32_t head, const float *found, const double *expected)
{
    const double unit = s->dtype == KB_F32 ? 0x1p-14 : s->dtype == KB_F16 ? 0x1p-10 : 0x1p-7;
    for (uint32_t i = 0; i < s->head_dim; i++) {
        double bound = unit * (fabs(expected[i]) + 0.25);
        if (!(fabs((double)found[i] - expected[i]) <= bound))
            return kb_error_new(KB_ERR_CHECK,
                                "sequence %u, new token %u, head %u, element %u: got %.9g, "
                                "expected %.9g within %.3g",
                                sequence, token, head, i, (double)found[i], expected[i], bound);
    }
    return NULL;
}

const char *reference_bound_of(const kb_attention_bounds *bounds)
{
    if (bounds->hbm >= bounds->vector && bounds->hbm >= bounds->matrix)
        return "HBM bandwidth";
    return bounds->vector >= bounds->matrix ? "vector engine" : "matrix engine";
}
