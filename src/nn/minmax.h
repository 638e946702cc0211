/* minmax.h: the smaller and the larger of two numbers. Private to nn. */
#ifndef KB_NN_MINMAX_H
#define KB_NN_MINMAX_H

#include <stdint.h>

static inline int64_t nn_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t nn_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
