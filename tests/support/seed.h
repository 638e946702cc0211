/* seed.h: seeds of random tests. They are fixed, so that a test is the same every time, unless the
 * environment has KB_SEED=N: then all are others. `./kb soak` runs the tests so, again and again.
 */
#ifndef TESTS_SUPPORT_SEED_H
#define TESTS_SUPPORT_SEED_H

#include <stdint.h>
#include <stdlib.h>

/* The seed under KB_SEED=n: a test that has failed with it runs this one from then on. */
static inline uint64_t test_seed_of(uint64_t usual, uint64_t n)
{
    return usual + n * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t test_seed(uint64_t usual)
{
    const char *text = getenv("KB_SEED");
    return text ? test_seed_of(usual, strtoull(text, NULL, 10)) : usual;
}

#endif
