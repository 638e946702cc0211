/*
 * rng.c: seeding and exponential variates. The algorithms splitmix64 and xoshiro256** are by
 * Sebastiano Vigna and David Blackman, who gave them to the public domain.
 *
 * Exponential: the ziggurat of Marsaglia and Tsang (2000) with 256 layers, all in integers. The
 * exponentials and logarithms of C libraries differ in the last bit, and even plain + and * do
 * where a compiler may fuse them, so that a run would depend on where it was built; integers do
 * not. The curve exp(-x) is covered by layers of equal area; layer i reaches to x = edges[i]:
 *
 *     |#
 *     |##.            # below the curve for certain: x < edges[i+1], 98.9 % of all draws
 *     |####..         . part of the layer's end is below the curve: a second draw decides
 *     |#######....    the bottom layer, 0, stands for the rectangle up to edges[1] and the tail
 *     +-----------------> x
 *
 * What lies beyond edges[1] is again exponential, so the tail is the same game moved to the right.
 */
#include "base/rng.h"

#include <stdbool.h>

__extension__ typedef unsigned __int128 wide;

enum { layer_count = 256, fraction_bits = 57 };

/* Right edges of the layers in units of 2^-57; the last is 0. */
static const uint64_t edges[layer_count + 1] = {
#include "base/rng_table.inc"
};

uint64_t kb_splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void kb_rng_init(kb_rng *rng, uint64_t seed)
{
    /* Four outputs in a row are never all zero: splitmix64 gives each number once a period. */
    for (int i = 0; i < 4; i++)
        rng->s[i] = kb_splitmix64(&seed);
}

static uint64_t mul_high(uint64_t a, uint64_t b)
{
    return (uint64_t)((wide)a * b >> 64);
}

/* exp(x) - 1 for x below 1, argument and result in units of 2^-57: the Taylor series. */
static uint64_t expm1_q57(uint64_t x)
{
    uint64_t sum = 0;
    uint64_t term = x;
    for (uint64_t n = 2; term > 0; n++) {
        sum += term;
        term = (uint64_t)((wide)term * x >> fraction_bits) / n;
    }
    return sum;
}

/*
 * Whether a random height in the end of a layer, x between edges[layer + 1] and edges[layer], is
 * below the curve there. With d the distance from x to the layer's right edge, D the length of the
 * end, and v uniform in [0, 1), that is v (exp(D) - 1) < exp(d) - 1.
 */
static bool is_below_curve(kb_rng *rng, uint64_t layer, uint64_t x)
{
    uint64_t v = kb_rng_u64(rng);
    uint64_t from_edge = edges[layer] - x;
    uint64_t end = edges[layer] - edges[layer + 1];
    if (mul_high(v, end) >= from_edge)
        return false; /* above the chord, so above the curve, which sags: spares most of the work */
    return mul_high(v, expm1_q57(end)) < expm1_q57(from_edge);
}

/* In units of 2^-57. */
static inline int64_t exponential_q57(kb_rng *rng)
{
    /* The seventh tail in a row, a chance of exp(-53), ends it: the result must fit. */
    const uint64_t limit = 7 * edges[1];
    for (uint64_t start = 0; start < limit;) {
        uint64_t u = kb_rng_u64(rng);
        uint64_t layer = u % layer_count;
        uint64_t x = mul_high(u - layer, edges[layer]);
        if (KB_LIKELY(x < edges[layer + 1]))
            return (int64_t)(start + x);
        if (layer == 0)
            start += edges[1];
        else if (is_below_curve(rng, layer, x))
            return (int64_t)(start + x);
    }
    return (int64_t)limit;
}

double kb_rng_exponential(kb_rng *rng)
{
    /* The scaling is exact, so fusing it with a caller's addition changes nothing. */
    return (double)exponential_q57(rng) * 0x1p-57;
}

kb_time kb_rng_exponential_time(kb_rng *rng, kb_time mean)
{
    KB_ASSERT(mean >= 0);
    wide time = (wide)(uint64_t)exponential_q57(rng) * (uint64_t)mean >> fraction_bits;
    return time < INT64_MAX ? (kb_time)time : INT64_MAX;
}
