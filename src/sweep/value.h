/*
 * value.h: values of axes and figures, and names that stand for them.
 *
 * A value is a number, a text, or none. A text that is a number or a size ("1MiB") is both: it is
 * computed with as a number, and shown as it was written.
 */
#ifndef KB_SWEEP_VALUE_H
#define KB_SWEEP_VALUE_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sweep_value {
    bool none; /* there is no such value */
    bool is_number;
    double number;    /* of sizes in bytes: "1MiB" is 1048576 */
    const char *text; /* as it was written; NULL for figures */
} sweep_value;

#define SWEEP_NONE ((sweep_value){.none = true})

/* A number, or none if it is infinite or NaN. */
sweep_value sweep_number(double number);

/* The value that is written so. The text must live as long as the value. */
sweep_value sweep_value_of_text(const char *text);

/* Equal numbers, or equal texts. A none equals only a none. */
bool sweep_values_equal(sweep_value a, sweep_value b);

/* A decimal number such as -12.5e-3; false if the text is none, or too large. */
KB_MUST_USE bool sweep_read_number(const char *text, double *number);

/* Appends the shortest decimal number that is read as the same double. */
void sweep_append_number(kb_text *text, double number);

/*
 * Finds a name in a list: the name itself, or the only one that ends with "." and the word, such as
 * "metrics.busbw_gbs" for "busbw_gbs". The error says "unknown WHAT 'word'" and suggests names.
 */
KB_MUST_USE kb_error *sweep_find_name(const char *what, const char *word, const char *const *names,
                                      size_t count, size_t *index);

#endif
