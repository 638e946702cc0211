/*
 * alloc.h: allocation with sizes that cannot overflow.
 *
 * All of base and sim allocates with the malloc family and releases with free(), so that a test
 * can replace it at link time (tests/support/failing_alloc.h). NULL means out of memory and
 * nothing else: a size of zero is served like a size of one.
 */
#ifndef KB_BASE_ALLOC_H
#define KB_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include <kernbench/kernbench.h>

/* For sums and products that 64 bits do not hold. */
__extension__ typedef unsigned __int128 kb_u128;

/* False on overflow, and then *out is not to be used. */
static inline KB_MUST_USE bool kb_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline KB_MUST_USE bool kb_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

KB_MUST_USE void *kb_alloc_array(size_t count, size_t size);
KB_MUST_USE void *kb_alloc_zeroed(size_t count, size_t size);

/* `align` is a power of two and a multiple of sizeof(void *). */
KB_MUST_USE void *kb_alloc_aligned(size_t align, size_t count, size_t size);

/*
 * For arrays that are large and looked at all over: aligned to cache lines, and in huge pages if it
 * fills some and the system has them, so that finding the page costs little.
 */
KB_MUST_USE void *kb_alloc_large(size_t count, size_t size);

/* On failure `old` stays valid. */
KB_MUST_USE void *kb_realloc_array(void *old, size_t count, size_t size);

/*
 * Grows `items` so that `extra` more fit behind `count`, by half again or more to keep appending
 * linear. Returns the new array with *capacity raised; on failure NULL, and all is as it was.
 */
KB_MUST_USE void *kb_grow_array(void *items, size_t count, size_t extra, size_t size,
                                size_t *capacity);

#endif
