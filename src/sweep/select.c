/*
 * select.c: see select.h. For the Pareto front rows are sorted by their objectives, the best first:
 * then a row can only be dominated by one before it, and it is enough to compare it with those that
 * are in the front already.
 */
#include "select.h"

#include <stdlib.h>
#include <string.h>

/* ---- Objectives -------------------------------------------------------------------------- */

/* "NAME:min"; the name may have colons. */
static kb_error *parse_one(const char *option, char *text, sweep_objective *out)
{
    char *colon = strrchr(text, ':');
    bool is_max = colon && strcmp(colon, ":max") == 0;
    if (!colon || colon == text || (!is_max && strcmp(colon, ":min") != 0))
        return kb_error_new(KB_ERR_INPUT,
                            "%s: expected NAME:min or NAME:max, such as sim_ns:min, found '%s'",
                            option, text);
    *colon = '\0';
    *out = (sweep_objective){.name = text, .maximize = is_max};
    return NULL;
}

kb_error *sweep_objectives_parse(const char *option, const char *text, sweep_objectives *out)
{
    *out = (sweep_objectives){.texts = strdup(text)};
    if (!out->texts)
        return kb_error_nomem();
    kb_error *err = NULL;
    char *rest = out->texts;
    for (char *word; !err && (word = strsep(&rest, ","));) {
        if (out->count == SWEEP_MAX_OBJECTIVES)
            err = kb_error_new(KB_ERR_INPUT, "%s: expected at most %d objectives", option,
                               SWEEP_MAX_OBJECTIVES);
        else
            err = parse_one(option, word, &out->items[out->count++]);
    }
    if (err) {
        free(out->texts);
        *out = (sweep_objectives){0};
    }
    return err;
}

kb_error *sweep_objectives_find(const char *option, const sweep_results *results,
                                sweep_objectives *objectives)
{
    for (size_t i = 0; i < objectives->count; i++) {
        sweep_objective *o = &objectives->items[i];
        kb_error *err = sweep_find_column(results, "figure or axis", o->name, &o->column);
        if (err)
            return kb_error_wrap(err, "%s", option);
        if (o->column->is_axis && !sweep_is_numeric(o->column))
            return kb_error_new(KB_ERR_INPUT, "%s: the values of axis '%s' are not numbers", option,
                                o->column->name);
    }
    return NULL;
}

/* ---- Choosing ---------------------------------------------------------------------------- */

size_t sweep_admit(const sweep_results *results, const sweep_expression *constraint, bool *admitted)
{
    size_t count = 0;
    for (size_t row = 0; row < results->row_count; row++) {
        sweep_row_view view = {results, row};
        admitted[row] = results->rows[row].ok &&
                        (!constraint || sweep_expression_holds(constraint, sweep_row_value, &view));
        count += admitted[row];
    }
    return count;
}

/* A number of which less is better. */
static double cost(const sweep_objective *objective, size_t row)
{
    double number = sweep_cell(objective->column, row).number;
    return objective->maximize ? -number : number;
}

bool sweep_find_best(const sweep_results *results, const sweep_objective *objective,
                     const bool *admitted, size_t *best, size_t *equal)
{
    *equal = 0;
    for (size_t row = 0; row < results->row_count; row++) {
        if (!admitted[row] || sweep_cell(objective->column, row).none)
            continue;
        if (*equal == 0 || cost(objective, row) < cost(objective, *best)) {
            *best = row;
            *equal = 1;
        } else if (!(cost(objective, row) > cost(objective, *best))) {
            ++*equal;
        }
    }
    return *equal > 0;
}

/* ---- Pareto front ------------------------------------------------------------------------ */

static bool has_all(const sweep_objectives *objectives, size_t row)
{
    for (size_t i = 0; i < objectives->count; i++)
        if (sweep_cell(objectives->items[i].column, row).none)
            return false;
    return true;
}

static int compare_rows(const void *x, const void *y, void *objectives)
{
    const sweep_objectives *o = objectives;
    size_t a = *(const size_t *)x, b = *(const size_t *)y;
    for (size_t i = 0; i < o->count; i++) {
        double p = cost(&o->items[i], a), q = cost(&o->items[i], b);
        if (p < q || p > q)
            return p < q ? -1 : 1;
    }
    return (a > b) - (a < b);
}

static bool dominates(const sweep_objectives *o, size_t a, size_t b)
{
    bool better = false;
    for (size_t i = 0; i < o->count; i++) {
        double p = cost(&o->items[i], a), q = cost(&o->items[i], b);
        if (p > q)
            return false;
        better |= p < q;
    }
    return better;
}

kb_error *sweep_find_front(const sweep_results *results, const sweep_objectives *objectives,
                           const bool *admitted, bool *in_front)
{
    size_t *rows = kb_alloc_array(results->row_count, sizeof *rows);
    if (!rows)
        return kb_error_nomem();
    size_t count = 0, kept = 0;
    for (size_t row = 0; row < results->row_count; row++) {
        in_front[row] = false;
        if (admitted[row] && has_all(objectives, row))
            rows[count++] = row;
    }
    qsort_r(rows, count, sizeof *rows, compare_rows, (void *)(uintptr_t)objectives);
    /* The front is collected at the beginning of the same array; the last ones in are the nearest.
     */
    for (size_t i = 0; i < count; i++) {
        bool dominated = false;
        for (size_t k = kept; k > 0 && !dominated; k--)
            dominated = dominates(objectives, rows[k - 1], rows[i]);
        if (!dominated) {
            in_front[rows[i]] = true;
            rows[kept++] = rows[i];
        }
    }
    free(rows);
    return NULL;
}
