/*
 * pending_set.h: the links and ports with work left at the current instant, as a two-level bitmap.
 * Private to net.
 *
 * With serial ports, arrivals at an instant make links choose, and these make ports accept, at the
 * same instant. An event for each would cost more than the work itself. So each link and each port
 * has a bit in the first level. A bit of the second level marks a word of the first that is not 0.
 */
#ifndef KB_NET_PENDING_SET_H
#define KB_NET_PENDING_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"

#define PENDING_SET_EMPTY UINT32_MAX

typedef struct pending_set {
    uint64_t *words;       /* one bit per number; NULL: not in use */
    uint64_t *in_use;      /* one bit per word that is not 0 */
    uint32_t guard;        /* lowest number with a pending event, or PENDING_SET_EMPTY */
    bool is_being_handled; /* handle_pending() runs and handles additions too */
} pending_set;

/* For numbers below `count`; false if out of memory. */
static inline KB_MUST_USE bool pending_set_init(pending_set *a, size_t count)
{
    size_t words = count / 64 + 1;
    *a = (pending_set){.words = kb_alloc_zeroed(words, sizeof *a->words),
                       .in_use = kb_alloc_zeroed(words / 64 + 1, sizeof *a->in_use),
                       .guard = PENDING_SET_EMPTY};
    return a->words && a->in_use;
}

static inline void pending_set_fini(pending_set *a)
{
    free(a->words);
    free(a->in_use);
}

static inline size_t pending_set_bytes(const pending_set *a, size_t count)
{
    return a->words ? (count / 64 + 1 + count / 4096 + 1) * sizeof *a->words : 0;
}

static inline void pending_set_add(pending_set *a, uint32_t number)
{
    a->words[number / 64] |= UINT64_C(1) << number % 64;
    a->in_use[number / 4096] |= UINT64_C(1) << number / 64 % 64;
}

static inline void pending_set_remove(pending_set *a, uint32_t number)
{
    uint64_t *word = &a->words[number / 64];
    *word &= ~(UINT64_C(1) << number % 64);
    if (*word == 0)
        a->in_use[number / 4096] &= ~(UINT64_C(1) << number / 64 % 64);
}

/* Returns the lowest number of the set, below `count`, or PENDING_SET_EMPTY. */
static inline uint32_t pending_set_first(const pending_set *a, uint32_t count)
{
    for (uint32_t i = 0; i <= count / 4096; i++)
        if (a->in_use[i] != 0) {
            uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(a->in_use[i]);
            return word * 64 + (uint32_t)__builtin_ctzll(a->words[word]);
        }
    return PENDING_SET_EMPTY;
}

#endif
