/*
 * numbers.h: random numbers, references in double precision, and comparison, for the tests of
 * layers.
 */
#ifndef TESTS_NN_NUMBERS_H
#define TESTS_NN_NUMBERS_H

#include <kernbench/nn.h>

#include <math.h>

#include "tp/tp_machines.h"

/* From -1 to 1. */
static inline double random_number(uint64_t seed, uint64_t i)
{
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ (seed + 1) * 0xc2b2ae3d27d4eb4fu;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    h *= 0x94d049bb133111ebu;
    return (double)(h >> 11) / (double)(1ull << 52) - 1;
}

/* The number as the dtype has it. */
static inline double round_to(kb_dtype dtype, double number)
{
    float wide = (float)number, rounded;
    unsigned char bytes[4];
    kb_convert(dtype, bytes, KB_F32, &wide, 1);
    kb_convert(KB_F32, &rounded, dtype, bytes, 1);
    return (double)rounded;
}

/* Numbers that the dtype has; free() them. */
static inline double *random_numbers(uint64_t seed, size_t count, kb_dtype dtype)
{
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = round_to(dtype, random_number(seed, i));
    return numbers;
}

/* The distance that a result may have from `expected`, which is computed in f32 and rounded once:
 * half a step of the dtype, and a few of f32. */
static inline double tolerance(kb_dtype dtype, double expected)
{
    static const double steps[KB_DTYPES] = {[KB_F16] = 0x1p-11, [KB_BF16] = 0x1p-8, [KB_F32] = 0};
    return fabs(expected) * (steps[dtype] + 4e-6) + 2e-6;
}

static inline void expect_near(kb_context *ctx, kb_tensor t, const double *expected, size_t count)
{
    kb_dtype dtype;
    const char *name;
    expect_ok(kb_tensor_dtype(ctx, t, &dtype));
    expect_ok(kb_tensor_name(ctx, t, &name));
    float *found = read_tensor(ctx, t, count);
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)found[i] - expected[i]) <= tolerance(dtype, expected[i])))
            fail_msg("element %zu of '%s' is %.9g, expected %.9g", i, name, (double)found[i],
                     expected[i]);
    free(found);
}

/* Rotates (tokens, heads, head_dim) in place. Angles are products in f32, as kernels make them. */
static inline void rotate_reference(const kb_rope *rope, double *x, const double *positions,
                                    size_t tokens, size_t heads, size_t head_dim)
{
    if (rope->style == KB_ROPE_NONE)
        return;
    size_t pairs = (rope->dims ? rope->dims : head_dim) / 2;
    bool is_half = rope->style == KB_ROPE_HALF_SPLIT;
    for (size_t row = 0; row < tokens * heads; row++)
        for (size_t i = 0; i < pairs; i++) {
            double frequency = pow(rope->base > 0 ? rope->base : 10000, -(double)i / (double)pairs);
            if (rope->scaling == KB_ROPE_LINEAR)
                frequency /= rope->factor;
            float angle = (float)positions[row / heads] * (float)frequency;
            double *a = x + row * head_dim + (is_half ? i : 2 * i);
            double *b = is_half ? a + pairs : a + 1;
            double first = *a, second = *b, c = cos((double)angle), s = sin((double)angle);
            *a = first * c - second * s;
            *b = second * c + first * s;
        }
}

#endif
