/*
 * effects.c: see effects.h. In a group of points that differ in one axis alone it is enough to
 * compare neighbours: all are equal if all neighbours are.
 */
#include "effects.h"

#include "groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = sizeof((sweep_effect *)0)->changed_figures / sizeof(sweep_column *) };

/* ---- Effects ----------------------------------------------------------------------------- */

static bool is_same(double a, double b)
{
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b) : !(a < b) && !(a > b);
}

/* Whether the figure is the same in all rows of the group. */
static bool is_constant(const sweep_row_groups *groups, size_t group, const sweep_column *figure)
{
    const size_t *rows = sweep_group_rows(groups, group);
    for (size_t i = 1; i < sweep_group_size(groups, group); i++)
        if (!is_same(figure->numbers[rows[i - 1]], figure->numbers[rows[i]]))
            return false;
    return true;
}

/* Whether the group has two points, and of one figure (NULL: of all) a number. */
static bool is_comparable(const sweep_row_groups *groups, size_t group, const sweep_column *figure)
{
    const size_t *rows = sweep_group_rows(groups, group);
    size_t size = sweep_group_size(groups, group);
    bool any = !figure;
    for (size_t i = 0; i < size && !any; i++)
        any = !isnan(figure->numbers[rows[i]]);
    return size > 1 && any;
}

/* Notes the groups in which the figure changes. */
static void compare_figure(const sweep_row_groups *groups, const sweep_column *figure,
                           bool *changes, sweep_effect *effect)
{
    bool any = false;
    for (size_t g = 0; g < groups->count; g++) {
        if (!is_constant(groups, g, figure)) {
            changes[g] = true;
            any = true;
        }
    }
    if (any && effect->figures++ < SHOWN)
        effect->changed_figures[effect->figures - 1] = figure;
}

/* For each value of the other axis whether it occurs in a group with two points, and in one that
 * changes. Returns whether it has values of both kinds: with a change, and without. */
static bool divides(const sweep_row_groups *groups, const sweep_column *figure, const bool *changes,
                    const sweep_column *other, bool *occurs, bool *matters)
{
    size_t with = 0, all = 0;
    memset(occurs, 0, other->values.count * sizeof *occurs);
    memset(matters, 0, other->values.count * sizeof *matters);
    for (size_t g = 0; g < groups->count; g++) {
        uint32_t index = other->index[sweep_group_rows(groups, g)[0]];
        if (index == SWEEP_NO_VALUE || !is_comparable(groups, g, figure))
            continue;
        all += !occurs[index];
        occurs[index] = true;
        with += changes[g] && !matters[index];
        matters[index] |= changes[g];
    }
    return with > 0 && with < all;
}

/* Finds the axis of whose values the fewest matter. */
static kb_error *find_condition(const sweep_results *results, const sweep_row_groups *groups,
                                const sweep_column *figure, const bool *changes,
                                sweep_effect *effect)
{
    double least = 1;
    for (size_t i = 0; i < results->axis_count; i++) {
        const sweep_column *other = &results->columns.items[i];
        if (other == effect->axis || !sweep_varies(other))
            continue;
        bool *occurs = kb_alloc_array(other->values.count, sizeof *occurs);
        bool *matters = kb_alloc_array(other->values.count, sizeof *matters);
        if (!occurs || !matters) {
            free(occurs);
            free(matters);
            return kb_error_nomem();
        }
        bool is_condition = divides(groups, figure, changes, other, occurs, matters);
        double with = 0, all = 0;
        for (size_t v = 0; v < other->values.count; v++) {
            with += matters[v];
            all += occurs[v];
        }
        if (is_condition && with / all < least) {
            least = with / all;
            free(effect->matters);
            effect->only_for = other;
            effect->matters = matters;
            matters = NULL;
        }
        free(occurs);
        free(matters);
    }
    return NULL;
}

/* The largest ratio of two numbers in a group; 0 if a number is not above 0. */
static double largest_ratio(const sweep_row_groups *groups, const sweep_column *figure)
{
    double largest = 1;
    for (size_t g = 0; g < groups->count; g++) {
        const size_t *rows = sweep_group_rows(groups, g);
        double min = (double)INFINITY, max = 0;
        for (size_t i = 0; i < sweep_group_size(groups, g); i++) {
            double number = figure->numbers[rows[i]];
            if (isnan(number))
                continue;
            if (!(number > 0))
                return 0;
            min = fmin(min, number);
            max = fmax(max, number);
        }
        largest = fmax(largest, max / min);
    }
    return largest;
}

static kb_error *compare(const sweep_results *results, const sweep_row_groups *groups,
                         const sweep_column *figure, bool *changes, sweep_effect *effect)
{
    for (size_t g = 0; g < groups->count; g++) {
        bool counts = is_comparable(groups, g, figure);
        effect->pairs += counts ? sweep_group_size(groups, g) - 1 : 0;
        effect->groups += counts;
    }
    if (figure) {
        compare_figure(groups, figure, changes, effect);
        effect->ratio = largest_ratio(groups, figure);
    } else {
        for (size_t c = results->axis_count; c < results->columns.count; c++)
            if (results->columns.items[c].kind == SWEEP_RESULT)
                compare_figure(groups, &results->columns.items[c], changes, effect);
    }
    for (size_t g = 0; g < groups->count; g++)
        effect->changed += changes[g];
    return find_condition(results, groups, figure, changes, effect);
}

kb_error *sweep_find_effect(const sweep_results *results, const sweep_column *axis,
                            const sweep_column *figure, sweep_effect *out)
{
    *out = (sweep_effect){.axis = axis};
    sweep_row_groups groups;
    KB_TRY(sweep_group_along(results, axis, &groups));
    bool *changes = kb_alloc_zeroed(groups.count, sizeof *changes);
    kb_error *err = changes ? compare(results, &groups, figure, changes, out) : kb_error_nomem();
    free(changes);
    sweep_row_groups_fini(&groups);
    if (err)
        sweep_effect_fini(out);
    return err;
}

void sweep_effect_fini(sweep_effect *effect)
{
    free(effect->matters);
    *effect = (sweep_effect){0};
}

/* ---- Plateaus ---------------------------------------------------------------------------- */

/* Marks the values of the axis at which the figure of the group is not near to its last value. */
static bool mark_far(const sweep_row_groups *groups, size_t group, const sweep_column *axis,
                     const sweep_column *figure, double tolerance, bool *far)
{
    const size_t *rows = sweep_group_rows(groups, group);
    size_t size = sweep_group_size(groups, group);
    double last = figure->numbers[rows[size - 1]];
    bool usable = true;
    for (size_t i = 0; i < size; i++) {
        double number = figure->numbers[rows[i]];
        usable &= !isnan(number) && axis->index[rows[i]] != SWEEP_NO_VALUE;
        if (usable && !(fabs(number - last) < tolerance * fabs(last)) && !is_same(number, last))
            far[axis->index[rows[i]]] = true;
    }
    return usable;
}

/* The first value, in order, behind which there are only near ones. */
static size_t first_near(const sweep_column *axis, const uint32_t *ranks, const bool *far)
{
    size_t first = 0;
    for (size_t v = 0; v < axis->values.count; v++)
        if (far[v] && ranks[v] + 1 > first)
            first = ranks[v] + 1;
    return first;
}

/* Each group with the figure must reach to the largest value. */
static bool find_plateau(const sweep_row_groups *groups, const sweep_column *axis,
                         const sweep_column *figure, double tolerance, const uint32_t *ranks,
                         bool *far, sweep_plateau *out)
{
    size_t last = axis->values.count - 1, compared = 0;
    for (size_t g = 0; g < groups->count; g++) {
        if (!is_comparable(groups, g, figure))
            continue;
        compared++;
        size_t size = sweep_group_size(groups, g);
        const size_t *rows = sweep_group_rows(groups, g);
        uint32_t end = axis->index[rows[size - 1]];
        if (end == SWEEP_NO_VALUE || ranks[end] != last || size < 3 ||
            !mark_far(groups, g, axis, figure, tolerance, far))
            return false;
    }
    size_t first = first_near(axis, ranks, far);
    for (size_t v = 0; v <= last; v++)
        if (ranks[v] == first)
            out->from = axis->values.items[v];
    out->is_first = first == 0;
    out->groups = compared;
    return compared > 0 && first < last;
}

kb_error *sweep_find_plateau(const sweep_results *results, const sweep_column *axis,
                             const sweep_column *figure, double tolerance, bool *found,
                             sweep_plateau *out)
{
    *found = false;
    if (axis->values.count < 3 || !sweep_is_numeric(axis))
        return NULL;
    sweep_row_groups groups;
    KB_TRY(sweep_group_along(results, axis, &groups));
    uint32_t *ranks = sweep_rank_values(axis);
    bool *far = kb_alloc_zeroed(axis->values.count, sizeof *far);
    bool good = ranks && far;
    if (good)
        *found = find_plateau(&groups, axis, figure, tolerance, ranks, far, out);
    free(far);
    free(ranks);
    sweep_row_groups_fini(&groups);
    return good ? NULL : kb_error_nomem();
}

/* ---- Bottlenecks ------------------------------------------------------------------------- */

static kb_error *add_turn(sweep_turns *turns, const sweep_turn *turn)
{
    for (size_t i = 0; i < turns->items.count; i++) {
        sweep_turn *t = &turns->items.items[i];
        if (sweep_values_equal(t->before, turn->before) &&
            sweep_values_equal(t->after, turn->after) && strcmp(t->from, turn->from) == 0 &&
            strcmp(t->to, turn->to) == 0) {
            t->groups++;
            return NULL;
        }
    }
    return kb_vec_push(&turns->items, *turn) ? NULL : kb_error_nomem();
}

static kb_error *add_group(const sweep_results *results, const sweep_column *axis,
                           const size_t *rows, size_t size, sweep_turns *out)
{
    bool changed = false;
    for (size_t i = 1; i < size; i++) {
        const char *from = results->rows[rows[i - 1]].bottleneck;
        const char *to = results->rows[rows[i]].bottleneck;
        if (!from || !to || strcmp(from, to) == 0)
            continue;
        changed = true;
        sweep_turn turn = {.before = sweep_cell(axis, rows[i - 1]),
                           .after = sweep_cell(axis, rows[i]),
                           .from = from,
                           .to = to,
                           .groups = 1};
        KB_TRY(add_turn(out, &turn));
    }
    out->groups += size > 1;
    out->changed += changed;
    return NULL;
}

/* By the first of its two values; turns of a non-numeric axis stay in the order of their groups. */
static bool is_later(const sweep_turn *a, const sweep_turn *b)
{
    return a->before.is_number && b->before.is_number && a->before.number > b->before.number;
}

static void sort_turns(sweep_turns *turns)
{
    for (size_t i = 1; i < turns->items.count; i++) {
        sweep_turn turn = turns->items.items[i];
        size_t at = i;
        for (; at > 0 && is_later(&turns->items.items[at - 1], &turn); at--)
            turns->items.items[at] = turns->items.items[at - 1];
        turns->items.items[at] = turn;
    }
}

kb_error *sweep_find_turns(const sweep_results *results, const sweep_column *axis, sweep_turns *out)
{
    *out = (sweep_turns){0};
    sweep_row_groups groups;
    KB_TRY(sweep_group_along(results, axis, &groups));
    kb_error *err = NULL;
    for (size_t g = 0; g < groups.count && !err; g++)
        err = add_group(results, axis, sweep_group_rows(&groups, g), sweep_group_size(&groups, g),
                        out);
    sweep_row_groups_fini(&groups);
    if (err)
        sweep_turns_fini(out);
    else
        sort_turns(out);
    return err;
}

void sweep_turns_fini(sweep_turns *turns)
{
    kb_vec_fini(&turns->items);
}
