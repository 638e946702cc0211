/*
 * select.h: the best point, and the Pareto front, of the points that satisfy a constraint.
 *
 * Points that are not ok, that do not satisfy the constraint or lack its values, or that lack the
 * value of an objective, are not considered.
 */
#ifndef KB_SWEEP_SELECT_H
#define KB_SWEEP_SELECT_H

#include "results.h"

enum { SWEEP_MAX_OBJECTIVES = 8 };

/* An axis of numbers or a figure, and whether more of it is better. */
typedef struct sweep_objective {
    const char *name; /* as it was written */
    bool maximize;
    const sweep_column *column; /* once it is found */
} sweep_objective;

typedef struct sweep_objectives {
    sweep_objective items[SWEEP_MAX_OBJECTIVES];
    size_t count;
    char *texts; /* the caller frees it */
} sweep_objectives;

/* Reads "a:min,b:max"; `option` begins the messages of errors. */
KB_MUST_USE kb_error *sweep_objectives_parse(const char *option, const char *text,
                                             sweep_objectives *out);
/* Finds their columns. */
KB_MUST_USE kb_error *sweep_objectives_find(const char *option, const sweep_results *results,
                                            sweep_objectives *objectives);

/* For each row whether it is ok and satisfies the constraint, which is bound to the names of the
 * results; NULL: all that are ok. Returns how many. */
size_t sweep_admit(const sweep_results *results, const sweep_expression *constraint,
                   bool *admitted);

/* The best of the admitted rows, the first of equal ones, and how many are as good; false if no
 * row has a value. */
KB_MUST_USE bool sweep_find_best(const sweep_results *results, const sweep_objective *objective,
                                 const bool *admitted, size_t *best, size_t *equal);

/*
 * For each row whether it is admitted and no other is better in one objective and not worse in all
 * others. Rows that are equal in all objectives are in the front together.
 */
KB_MUST_USE kb_error *sweep_find_front(const sweep_results *results,
                                       const sweep_objectives *objectives, const bool *admitted,
                                       bool *in_front);

#endif
