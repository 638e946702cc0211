/*
 * agenda.h: what is left to do at one instant, in the order of numbers. Private to net.
 *
 * With serial ports all that arrives at an instant makes links choose, and these make ports accept,
 * at the same instant. An event for each would cost more than what it does. So each of these has a
 * bit in the agenda instead, and a bit in a second level says which words are not empty.
 */
#ifndef KB_NET_AGENDA_H
#define KB_NET_AGENDA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"

#define AGENDA_EMPTY UINT32_MAX

typedef struct agenda {
    uint64_t *words;    /* a bit for each number; NULL: there is no agenda */
    uint64_t *in_use;   /* a bit for each word that is not 0 */
    uint32_t guard;     /* the lowest number that an event is pending for; or AGENDA_EMPTY */
    bool is_being_done; /* do_agenda() runs, and finds what is added */
} agenda;

/* For numbers below `count`; false if there is no memory. */
static inline KB_MUST_USE bool agenda_init(agenda *a, size_t count)
{
    size_t words = count / 64 + 1;
    *a = (agenda){.words = kb_alloc_zeroed(words, sizeof *a->words),
                  .in_use = kb_alloc_zeroed(words / 64 + 1, sizeof *a->in_use),
                  .guard = AGENDA_EMPTY};
    return a->words && a->in_use;
}

static inline void agenda_fini(agenda *a)
{
    free(a->words);
    free(a->in_use);
}

static inline size_t agenda_bytes(const agenda *a, size_t count)
{
    return a->words ? (count / 64 + 1 + count / 4096 + 1) * sizeof *a->words : 0;
}

static inline void agenda_add(agenda *a, uint32_t number)
{
    a->words[number / 64] |= UINT64_C(1) << number % 64;
    a->in_use[number / 4096] |= UINT64_C(1) << number / 64 % 64;
}

static inline void agenda_remove(agenda *a, uint32_t number)
{
    uint64_t *word = &a->words[number / 64];
    *word &= ~(UINT64_C(1) << number % 64);
    if (*word == 0)
        a->in_use[number / 4096] &= ~(UINT64_C(1) << number / 64 % 64);
}

/* The lowest number on it, of those below `count`; or AGENDA_EMPTY. */
static inline uint32_t agenda_first(const agenda *a, uint32_t count)
{
    for (uint32_t i = 0; i <= count / 4096; i++)
        if (a->in_use[i] != 0) {
            uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(a->in_use[i]);
            return word * 64 + (uint32_t)__builtin_ctzll(a->words[word]);
        }
    return AGENDA_EMPTY;
}

#endif
