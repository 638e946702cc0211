/*
 * expression.h: expressions over axes and figures, for --where, --constraint and derived metrics.
 *
 *     sip.ucie.bw_gbs >= 256 and nbytes <= 64MiB
 *     metrics.busbw_gbs / sip.ucie.bw_gbs
 *     algorithm == "ring" or not (`odd name` < 5)
 *
 * From the weakest to the strongest: or; and; not; == != < <= > >= (which do not chain); + -;
 * * / %; - before a value; ^ (from the right: 2^3^2 is 2^9, and -2^2 is -4). Functions: min and max
 * of one value or more, abs, log2, ceil, floor, and has(name), which says whether there is a value.
 *
 * A name is letters, digits, _ and dots, or anything in backquotes. A text is in single or double
 * quotes, and is compared for equality with a value as it was written. Numbers may be sizes, such
 * as 64KiB. Conditions are 1 and 0; as a condition, any number but 0 is true.
 *
 * A value that is missing makes the result missing, but for has(), `0 and x` and `1 or x`. So does
 * what has no finite result: a division by 0, log2 of 0, arithmetic with a text.
 */
#ifndef KB_SWEEP_EXPRESSION_H
#define KB_SWEEP_EXPRESSION_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>

#include "value.h"

typedef struct sweep_expression sweep_expression;

/* `origin` begins the messages of errors: "--where", "plan.yaml:7:10: where". */
KB_MUST_USE kb_error *sweep_expression_parse(const char *origin, const char *text,
                                             sweep_expression **out);
void sweep_expression_destroy(sweep_expression *e); /* NULL does nothing */

/* The text that it was made of. */
const char *sweep_expression_text(const sweep_expression *e);

/*
 * Looks up the names that the expression has, as sweep_find_name() does. Must be called before
 * evaluation; when called again, the names of the last call hold.
 */
KB_MUST_USE kb_error *sweep_expression_bind(sweep_expression *e, const char *const *names,
                                            size_t count);

/* The value of a name, by its index in the list that the expression is bound to. */
typedef sweep_value sweep_get_value(const void *self, size_t index);

/* A number or none. */
sweep_value sweep_expression_evaluate(const sweep_expression *e, sweep_get_value *get,
                                      const void *self);

/* Whether the value is a number other than 0: of a missing value the answer is no. */
bool sweep_expression_holds(const sweep_expression *e, sweep_get_value *get, const void *self);

#endif
