/*
 * effects.h: what the axes of a sweep change: for each axis, whether it has any effect, on which
 * figures, and where; from which value on it hardly matters; and where the bottleneck changes.
 *
 * Two points are compared if both are ok and they differ in this axis alone. Equal means equal to
 * the bit. Figures of the host (wall times) and those that repeat parameters are not compared.
 */
#ifndef KB_SWEEP_EFFECTS_H
#define KB_SWEEP_EFFECTS_H

#include "results.h"

typedef struct sweep_effect {
    const sweep_column *axis;
    uint64_t pairs; /* that were compared: of neighbouring values */
    size_t groups;  /* sets of points that differ in this axis alone, two points or more */
    size_t changed; /* groups in which a figure is not the same in all points */
    size_t figures; /* that change in some group */
    const sweep_column *changed_figures[4]; /* the first of them */
    double
        ratio; /* of one figure: the largest max / min of a group; 0 if a number is not above 0 */
    /* If the axis matters only for some values of another one: that axis, and for each of its
     * values whether it does. */
    const sweep_column *only_for;
    bool *matters;
} sweep_effect;

/* The effect on all figures, or on one of them. */
KB_MUST_USE kb_error *sweep_find_effect(const sweep_results *results, const sweep_column *axis,
                                        const sweep_column *figure, sweep_effect *out);
void sweep_effect_fini(sweep_effect *effect);

/*
 * Of a numeric axis: the smallest value from which on, in each group, the figure differs by less
 * than `tolerance` from its value at the largest. False if that is the largest, or if there are
 * fewer than three values, or none to compare.
 */
typedef struct sweep_plateau {
    sweep_value from;
    bool is_first; /* it is the smallest value of the axis: the figure hardly changes at all */
    size_t groups;
} sweep_plateau;
KB_MUST_USE kb_error *sweep_find_plateau(const sweep_results *results, const sweep_column *axis,
                                         const sweep_column *figure, double tolerance, bool *found,
                                         sweep_plateau *out);

/* Between two neighbouring values of an axis the bottleneck is `from` and then `to`. */
typedef struct sweep_turn {
    sweep_value before, after;
    const char *from, *to;
    size_t groups; /* in which that is so */
} sweep_turn;

typedef struct sweep_turns {
    KB_VEC(sweep_turn) items; /* in the order of the axis, then of their first group */
    size_t groups;            /* with two points or more */
    size_t changed;           /* groups with a turn */
} sweep_turns;
KB_MUST_USE kb_error *sweep_find_turns(const sweep_results *results, const sweep_column *axis,
                                       sweep_turns *out);
void sweep_turns_fini(sweep_turns *turns);

#endif
