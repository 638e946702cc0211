/*
 * decimal.h: numbers as people write them, exactly.
 *
 * A decimal number is held as a whole number of its smallest unit: 204.8 with nine digits after the
 * point is 204800000000. Nothing is rounded: a number that is finer than the unit is refused.
 * Numbers of bytes may have a unit.
 */
#ifndef KB_BASE_DECIMAL_H
#define KB_BASE_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/text.h"

enum { KB_DECIMAL_MAX_DIGITS = 18 };

typedef enum kb_decimal_result {
    KB_DECIMAL_OK,
    KB_DECIMAL_NO_NUMBER, /* not of the form -12.5e-3 */
    KB_DECIMAL_TOO_FINE,  /* has more digits after the point */
    KB_DECIMAL_TOO_LARGE  /* does not fit */
} kb_decimal_result;

/* The number in `text` times 10^digits. *value is set on KB_DECIMAL_OK alone. */
KB_MUST_USE kb_decimal_result kb_decimal_parse(const char *text, int digits, int64_t *value);

/* A number of bytes as people write it, such as 4096, 4KiB or 4K (all three are the same) or 4KB
 * (which is 4000); false if the text is none. */
KB_MUST_USE bool kb_bytes_parse(const char *text, uint64_t *value);

/* A number of bytes for people, rounded in the unit that suits: "66.69 GiB". */
typedef struct kb_bytes_text {
    char text[32];
} kb_bytes_text;

kb_bytes_text kb_bytes_print(uint64_t bytes);

/* Appends value / 10^digits, without needless zeros: "204.8", "-0.05", "3". */
void kb_decimal_print(int64_t value, int digits, kb_text *text);

/* "above 0 and at most 1000": a range of numbers that have `digits` digits after the point. */
void kb_decimal_print_range(int64_t min, int64_t max, int digits, kb_text *text);

/* Appends a number of bytes, and in brackets the same with a unit: "4096 (4KiB)", "100". */
void kb_bytes_print_limit(uint64_t bytes, kb_text *text);

#endif
