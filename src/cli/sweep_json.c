/*
 * sweep_json.c: the results of a sweep as a JSON document: all points with all their figures, and
 * what they show. Points are referred to by their index, from 0 in the order of the plan.
 */
#include "sweep_report.h"

#include <stdlib.h>

#include "cli.h"
#include "json.h"

static json_t *value_json(sweep_value value)
{
    if (value.none)
        return json_null();
    return value.is_number ? cli_json_real(value.number) : cli_json_text(value.text);
}

/* ---- Points ------------------------------------------------------------------------------ */

static json_t *text_or_null(const char *text)
{
    return text ? cli_json_text(text) : json_null();
}

static json_t *row_json(const sweep_results *results, size_t row)
{
    const sweep_row *r = &results->rows[row];
    json_t *axes = json_object(), *figures = json_object(), *object = json_object();
    for (size_t c = 0; c < results->columns.count; c++) {
        const sweep_column *column = &results->columns.items[c];
        sweep_value value = sweep_cell(column, row);
        if (!value.none)
            cli_json_set(column->is_axis ? &axes : &figures, column->name, value_json(value));
    }
    cli_json_set(&object, "axes", axes);
    cli_json_set(&object, "status", text_or_null(r->status));
    cli_json_set(&object, "ok", json_boolean(r->ok));
    cli_json_set(&object, "message", text_or_null(r->message));
    cli_json_set(&object, "bottleneck", text_or_null(r->bottleneck));
    cli_json_set(&object, "figures", figures);
    return object;
}

/* ---- What they show ---------------------------------------------------------------------- */

static json_t *condition_json(const sweep_effect *effect)
{
    if (!effect->only_for)
        return json_null();
    json_t *values = json_array();
    for (size_t v = 0; v < effect->only_for->values.count; v++)
        if (effect->matters[v])
            cli_json_append(&values, value_json(effect->only_for->values.items[v]));
    return json_pack("{s:o, s:o}", "axis", cli_json_text(effect->only_for->name), "values", values);
}

static json_t *effect_json(const sweep_effect *effect)
{
    return json_pack("{s:o, s:I, s:I, s:o, s:o}", "axis", cli_json_text(effect->axis->name),
                     "compared", (json_int_t)effect->groups, "changed", (json_int_t)effect->changed,
                     "changed_figures", cli_json_count(effect->figures), "only_for",
                     condition_json(effect));
}

/* The effect on a figure that is shown. */
static kb_error *figure_json(const sweep_report *r, const sweep_column *axis,
                             const sweep_column *figure, json_t **out)
{
    sweep_effect effect;
    sweep_plateau plateau;
    bool found;
    KB_TRY(sweep_find_plateau(r->results, axis, figure, SWEEP_TOLERANCE, &found, &plateau));
    KB_TRY(sweep_find_effect(r->results, axis, figure, &effect));
    *out = json_pack("{s:o, s:I, s:o, s:o, s:o}", "figure", cli_json_text(figure->name), "changed",
                     (json_int_t)effect.changed, "largest_ratio",
                     effect.ratio > 0 ? cli_json_real(effect.ratio) : json_null(), "plateau_from",
                     found ? value_json(plateau.from) : json_null(), "only_for",
                     condition_json(&effect));
    sweep_effect_fini(&effect);
    return NULL;
}

static kb_error *turns_json(const sweep_report *r, const sweep_column *axis, json_t **out)
{
    sweep_turns turns;
    KB_TRY(sweep_find_turns(r->results, axis, &turns));
    *out = json_array();
    for (size_t i = 0; i < turns.items.count; i++) {
        const sweep_turn *t = &turns.items.items[i];
        cli_json_append(out, json_pack("{s:o, s:o, s:s, s:s, s:I}", "before", value_json(t->before),
                                       "after", value_json(t->after), "from", t->from, "to", t->to,
                                       "series", (json_int_t)t->groups));
    }
    sweep_turns_fini(&turns);
    return NULL;
}

static kb_error *axis_json(const sweep_report *r, const sweep_column *axis, json_t **out)
{
    sweep_effect effect;
    json_t *figures = json_array(), *turns = NULL;
    KB_TRY(sweep_find_effect(r->results, axis, NULL, &effect));
    *out = effect_json(&effect);
    sweep_effect_fini(&effect);
    kb_error *err = NULL;
    for (size_t i = 0; i < r->figures.count && !err; i++) {
        json_t *figure = NULL;
        err = figure_json(r, axis, r->figures.items[i], &figure);
        cli_json_append(&figures, figure);
    }
    if (!err)
        err = turns_json(r, axis, &turns);
    cli_json_set(out, "on", figures);
    cli_json_set(out, "bottleneck_changes", turns);
    return err;
}

static json_t *best_json(const sweep_report *r)
{
    size_t best, equal;
    if (r->best.count == 0 ||
        !sweep_find_best(r->results, &r->best.items[0], r->admitted, &best, &equal))
        return json_null();
    return json_pack("{s:I, s:o, s:o, s:I}", "point", (json_int_t)best, "figure",
                     cli_json_text(r->best.items[0].column->name), "value",
                     value_json(sweep_cell(r->best.items[0].column, best)), "equal",
                     (json_int_t)equal);
}

static kb_error *front_json(const sweep_report *r, json_t **out)
{
    *out = json_null();
    if (r->pareto.count == 0)
        return NULL;
    bool *front = kb_alloc_zeroed(r->results->row_count, sizeof *front);
    kb_error *err =
        front ? sweep_find_front(r->results, &r->pareto, r->admitted, front) : kb_error_nomem();
    json_t *points = json_array();
    for (size_t row = 0; front && row < r->results->row_count && !err; row++)
        if (front[row])
            cli_json_append(&points, json_integer((json_int_t)row));
    free(front);
    *out = points;
    return err;
}

kb_error *sweep_make_document(const sweep_report *r, json_t **out)
{
    json_t *points = json_array(), *axes = json_array(), *front = NULL;
    kb_error *err = NULL;
    for (size_t row = 0; row < r->results->row_count; row++)
        cli_json_append(&points, row_json(r->results, row));
    for (size_t i = 0; i < r->results->axis_count && !err; i++) {
        json_t *axis = NULL;
        if (!sweep_varies(&r->results->columns.items[i]))
            continue;
        err = axis_json(r, &r->results->columns.items[i], &axis);
        cli_json_append(&axes, axis);
    }
    if (!err)
        err = front_json(r, &front);
    *out = json_object();
    cli_json_set(out, "points", points);
    cli_json_set(out, "axes", axes);
    cli_json_set(out, "best", best_json(r));
    cli_json_set(out, "pareto", front);
    return err;
}

kb_code sweep_print_json(const sweep_report *r)
{
    json_t *document = NULL;
    kb_error *err = sweep_make_document(r, &document);
    if (!err)
        return cli_json_print(document);
    json_decref(document);
    return cli_report(err);
}
