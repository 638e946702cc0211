/*
 * ranges.h: the values of an axis, as users write them:
 *
 *     128,256,512      a list; each item is a text, or a range
 *     2..8             whole numbers in steps of 1, both ends included
 *     0.5..1+0.1       in steps of 0.1, exactly
 *     1..64*2          each twice the one before
 *     1KiB..1GiB*4     sizes in bytes
 *
 * What does not begin with a number and ".." is a text: ../machine.yaml is.
 */
#ifndef KB_SWEEP_RANGES_H
#define KB_SWEEP_RANGES_H

#include "base/base.h"

#include <stddef.h>

enum { SWEEP_MAX_VALUES = 1000000 }; /* of an axis */

typedef struct sweep_texts {
    const char **items;
    size_t count;
    size_t capacity;
} sweep_texts;

/* Appends the values of one item. The texts belong to the arena. */
KB_MUST_USE kb_error *sweep_expand(const char *item, kb_arena *arena, sweep_texts *values);

/* The same of items that are separated by commas. */
KB_MUST_USE kb_error *sweep_expand_list(const char *list, kb_arena *arena, sweep_texts *values);

#endif
