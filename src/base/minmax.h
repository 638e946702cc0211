/*
 * minmax.h: the smaller and the larger of two numbers, and division that rounds up.
 *
 * kb_min() and kb_max() take two numbers of one type: int64_t, uint64_t, uint32_t or double.
 */
#ifndef KB_BASE_MINMAX_H
#define KB_BASE_MINMAX_H

#include <stdint.h>

#define KB_DEFINE_MINMAX(suffix, type)                                                             \
    static inline type kb_min_##suffix(type a, type b)                                             \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    static inline type kb_max_##suffix(type a, type b)                                             \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }

KB_DEFINE_MINMAX(i64, int64_t)
KB_DEFINE_MINMAX(u64, uint64_t)
KB_DEFINE_MINMAX(u32, uint32_t)
KB_DEFINE_MINMAX(f64, double)

#undef KB_DEFINE_MINMAX

#define kb_min(a, b)                                                                               \
    _Generic((a) + (b), int64_t                                                                    \
             : kb_min_i64, uint64_t                                                                \
             : kb_min_u64, uint32_t                                                                \
             : kb_min_u32, double                                                                  \
             : kb_min_f64)((a), (b))

#define kb_max(a, b)                                                                               \
    _Generic((a) + (b), int64_t                                                                    \
             : kb_max_i64, uint64_t                                                                \
             : kb_max_u64, uint32_t                                                                \
             : kb_max_u32, double                                                                  \
             : kb_max_f64)((a), (b))

/* a / b, rounded up; and the multiple of `unit` that is a or next above it. Nothing is negative. */
#define KB_DIV_UP(a, b) ((a) / (b) + ((a) % (b) > 0))
#define KB_ROUND_UP(a, unit) (KB_DIV_UP(a, unit) * (unit))

#endif
