/*
 * sweep_findings.c: what the results of a sweep show, in sentences that are computed from them.
 */
#include "sweep_report.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "terminal.h"

enum { NAMED = 3, LISTED_FRONT = 50 };

/* ---- Effects ----------------------------------------------------------------------------- */

static void append_figures(kb_text *text, const sweep_effect *effect)
{
    for (size_t i = 0; i < effect->figures && i < NAMED; i++)
        kb_text_printf(text, "%s%s", i > 0 ? ", " : "", effect->changed_figures[i]->name);
    if (effect->figures > NAMED)
        kb_text_printf(text, " and %zu more", effect->figures - NAMED);
}

/* "; only for nbytes = 64KiB" */
static void append_condition(kb_text *text, const sweep_effect *effect)
{
    if (!effect->only_for)
        return;
    size_t count = 0;
    kb_text_printf(text, ", only for %s = ", effect->only_for->name);
    for (size_t v = 0; v < effect->only_for->values.count; v++) {
        if (!effect->matters[v])
            continue;
        kb_text_puts(text, count++ > 0 ? ", " : "");
        sweep_append_value(text, effect->only_for->values.items[v]);
    }
}

static kb_error *append_plateau(kb_text *text, const sweep_report *r, const sweep_column *axis,
                                const sweep_column *figure)
{
    bool found;
    sweep_plateau plateau;
    KB_TRY(sweep_find_plateau(r->results, axis, figure, SWEEP_TOLERANCE, &found, &plateau));
    if (!found)
        return NULL;
    kb_text_printf(text, ", less than %g %%", 100 * SWEEP_TOLERANCE);
    if (!plateau.is_first) {
        kb_text_puts(text, " from ");
        sweep_append_value(text, plateau.from);
        kb_text_puts(text, " on");
    }
    return NULL;
}

/* What the axis does to each figure that is shown. */
static kb_error *append_effects(kb_text *text, const sweep_report *r, const sweep_column *axis,
                                const sweep_effect *on_all)
{
    size_t changed = 0, unchanged = 0;
    kb_text none = KB_TEXT_INIT;
    kb_error *err = NULL;
    for (size_t i = 0; i < r->figures.count && !err; i++) {
        const sweep_column *figure = r->figures.items[i];
        sweep_effect effect;
        err = sweep_find_effect(r->results, axis, figure, &effect);
        if (err)
            break;
        if (effect.groups > 0 && effect.changed == 0) {
            kb_text_printf(&none, "%s%s", unchanged++ > 0 ? ", " : "", figure->name);
        } else if (effect.changed > 0) {
            kb_text_printf(text, "%s%s changes", changed++ > 0 ? "; " : "", figure->name);
            if (effect.ratio > 0)
                kb_text_printf(text, " up to %.*fx", effect.ratio < 1.095 ? 4 : 2, effect.ratio);
            append_condition(text, &effect);
            err = append_plateau(text, r, axis, figure);
        }
        sweep_effect_fini(&effect);
    }
    if (unchanged > 0)
        kb_text_printf(text, "%sno effect on %s", changed > 0 ? "; " : "", kb_text_peek(&none));
    if (changed == 0) {
        kb_text_puts(text, unchanged > 0 ? "; it changes " : "it changes ");
        append_figures(text, on_all);
        append_condition(text, on_all);
    }
    kb_text_fini(&none);
    return err;
}

static kb_error *append_axis(kb_text *text, const sweep_report *r, const sweep_column *axis)
{
    sweep_effect effect;
    KB_TRY(sweep_find_effect(r->results, axis, NULL, &effect));
    kb_error *err = NULL;
    if (effect.groups == 0)
        kb_text_puts(text, "nothing to compare: no two points differ in this axis alone");
    else if (effect.changed == 0)
        kb_text_printf(text,
                       "no effect: all figures are the same in %zu of %zu sets of points that "
                       "differ in it alone",
                       effect.groups, effect.groups);
    else
        err = append_effects(text, r, axis, &effect);
    sweep_effect_fini(&effect);
    return err;
}

static kb_error *print_axes(const sweep_report *r)
{
    bool any = false;
    for (size_t i = 0; i < r->results->axis_count; i++) {
        const sweep_column *axis = &r->results->columns.items[i];
        if (!sweep_varies(axis))
            continue;
        if (!any)
            cli_print_heading(stdout, "\nWhat the axes change");
        any = true;
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "%s: ", axis->name);
        kb_error *err = append_axis(&text, r, axis);
        kb_text_escape_from(&text, 0);
        if (!err)
            cli_print_wrapped(stdout, cli_text(&text));
        kb_text_fini(&text);
        if (err)
            return err;
    }
    return NULL;
}

/* ---- Bottlenecks ------------------------------------------------------------------------- */

enum { LISTED_TURNS = 6 };

static void print_turn(const sweep_column *axis, const sweep_turn *turn, size_t groups)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "%s: %s at ", axis->name, turn->from);
    sweep_append_value(&text, turn->before);
    kb_text_printf(&text, ", %s at ", turn->to);
    sweep_append_value(&text, turn->after);
    if (groups > 1)
        kb_text_printf(&text, ", in %zu of %zu series", turn->groups, groups);
    kb_text_escape_from(&text, 0);
    cli_print_wrapped(stdout, cli_text(&text));
    kb_text_fini(&text);
}

static kb_error *print_turns(const sweep_report *r)
{
    bool any = false;
    for (size_t i = 0; i < r->results->axis_count; i++) {
        const sweep_column *axis = &r->results->columns.items[i];
        sweep_turns turns;
        KB_TRY(sweep_find_turns(r->results, axis, &turns));
        if (turns.items.count > 0 && !any)
            cli_print_heading(stdout, "\nWhere the bottleneck changes");
        any |= turns.items.count > 0;
        for (size_t t = 0; t < turns.items.count && t < LISTED_TURNS; t++)
            print_turn(axis, &turns.items.items[t], turns.groups);
        if (turns.items.count > LISTED_TURNS)
            printf("  %s: ... and %zu more changes\n", axis->name,
                   turns.items.count - LISTED_TURNS);
        sweep_turns_fini(&turns);
    }
    return NULL;
}

/* ---- The best, and the front ------------------------------------------------------------- */

/* "sim_ns = 512 ns, x = 3 at n = 2": the objectives that are no axes, and the axes that vary. */
static void append_point(kb_text *text, const sweep_report *r, const sweep_objectives *objectives,
                         size_t row)
{
    size_t count = 0;
    for (size_t i = 0; i < objectives->count; i++) {
        const sweep_column *column = objectives->items[i].column;
        if (column->is_axis)
            continue;
        kb_text_printf(text, "%s%s = ", count++ > 0 ? ", " : "", column->name);
        sweep_append_value(text, sweep_cell(column, row));
        const char *unit = sweep_unit(column->name);
        kb_text_printf(text, unit[0] != '\0' ? " %s" : "%s", unit);
    }
    kb_text_puts(text, count > 0 ? " at " : "");
    sweep_append_axes(text, r->results, row, true);
}

static size_t count_admitted(const sweep_report *r)
{
    size_t count = 0;
    for (size_t row = 0; row < r->results->row_count; row++)
        count += r->admitted[row];
    return count;
}

/* "of 12 points that satisfy x > 3" */
static void append_choice(kb_text *text, const sweep_report *r)
{
    size_t count = count_admitted(r);
    kb_text_printf(text, "of %zu point%s", count, kb_plural(count));
    if (r->constraint)
        kb_text_printf(text, " with %s", sweep_expression_text(r->constraint));
}

static void print_best(const sweep_report *r)
{
    const sweep_objective *objective = &r->best.items[0];
    size_t best, equal;
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "\n%s %s, ", objective->maximize ? "Largest" : "Smallest",
                   objective->column->name);
    append_choice(&text, r);
    kb_text_escape_from(&text, 1);
    cli_print_heading(stdout, cli_text(&text));
    kb_text_fini(&text);
    if (!sweep_find_best(r->results, objective, r->admitted, &best, &equal)) {
        printf("  none\n");
        return;
    }
    append_point(&text, r, &r->best, best);
    if (equal > 1)
        kb_text_printf(&text, "; %zu other point%s the same", equal - 1,
                       equal == 2 ? " has" : "s have");
    kb_text_escape_from(&text, 0);
    cli_print_wrapped(stdout, cli_text(&text));
    kb_text_fini(&text);
}

static void print_front_row(const sweep_report *r, size_t row)
{
    kb_text text = KB_TEXT_INIT;
    append_point(&text, r, &r->pareto, row);
    kb_text_escape_from(&text, 0);
    cli_print_wrapped(stdout, cli_text(&text));
    kb_text_fini(&text);
}

static kb_error *print_front(const sweep_report *r)
{
    bool *front = kb_alloc_zeroed(r->results->row_count, sizeof *front);
    if (!front)
        return kb_error_nomem();
    kb_error *err = sweep_find_front(r->results, &r->pareto, r->admitted, front);
    size_t count = 0, listed = 0;
    for (size_t row = 0; row < r->results->row_count && !err; row++)
        count += front[row];
    if (!err) {
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "\nPareto front of %s: %zu ", r->args->pareto, count);
        append_choice(&text, r);
        kb_text_escape_from(&text, 1);
        cli_print_heading(stdout, cli_text(&text));
        kb_text_fini(&text);
    }
    for (size_t row = 0; row < r->results->row_count && !err && listed < LISTED_FRONT; row++) {
        if (!front[row])
            continue;
        print_front_row(r, row);
        listed++;
    }
    if (listed < count)
        printf("  ... and %zu more: --json has all\n", count - listed);
    free(front);
    return err;
}

kb_error *sweep_print_findings(const sweep_report *r)
{
    KB_TRY(print_axes(r));
    KB_TRY(print_turns(r));
    if (r->best.count > 0)
        print_best(r);
    return r->pareto.count > 0 ? print_front(r) : NULL;
}
