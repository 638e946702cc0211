/*
 * rng.h: reproducible random numbers. The state is a plain struct: copy it to fork a sequence.
 *
 * The same seed gives the same numbers with every compiler, machine and C library. Not for secrets.
 */
#ifndef KB_BASE_RNG_H
#define KB_BASE_RNG_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/check.h"

typedef struct kb_rng {
    uint64_t s[4]; /* never all zero */
} kb_rng;

/* Any seed is good, also 0; near seeds give unrelated sequences. */
void kb_rng_init(kb_rng *rng, uint64_t seed);

/* One step of splitmix64: advances the state and returns 64 well mixed bits. */
uint64_t kb_splitmix64(uint64_t *state);

/* 64 uniform bits: xoshiro256** 1.0. */
static inline uint64_t kb_rng_u64(kb_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t times5 = s[1] * 5;
    uint64_t result = (times5 << 7 | times5 >> 57) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* Uniform in 0 .. bound - 1, without bias; bound > 0. */
static inline uint64_t kb_rng_below(kb_rng *rng, uint64_t bound)
{
    /* Lemire: the high half of a product is the result, a low half too small is drawn again. */
    KB_DEBUG_ASSERT(bound > 0);
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)kb_rng_u64(rng) * bound;
    if (KB_UNLIKELY((uint64_t)product < bound)) {
        uint64_t excess =
            -bound % bound; /* 2^64 mod bound: this many results would be too likely */
        while ((uint64_t)product < excess)
            product = (wide)kb_rng_u64(rng) * bound;
    }
    return (uint64_t)(product >> 64);
}

/* Uniform in [0, 1): a multiple of 2^-53. */
static inline double kb_rng_double(kb_rng *rng)
{
    return (double)(kb_rng_u64(rng) >> 11) * 0x1p-53;
}

/* Exponential with mean 1: a multiple of 2^-57, below 54. Mostly one draw of 64 bits. */
double kb_rng_exponential(kb_rng *rng);

/* Exponential with the given mean (>= 0), rounded down to whole femtoseconds. */
kb_time kb_rng_exponential_time(kb_rng *rng, kb_time mean);

#endif
