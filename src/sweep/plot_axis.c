/* plot_axis.c: see plot_axis.h. */
#include "plot_axis.h"

#include "effects.h"
#include "format.h"
#include "groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Places ------------------------------------------------------------------------------ */

static double number_at(const plot_axis *a, size_t place)
{
    return a->axis->values.items[a->order[place]].number;
}

/* The smallest gap between neighbours as a share of all, on that scale. */
static double smallest_gap(const plot_axis *a, bool is_log)
{
    size_t count = a->axis->values.count;
    double first = number_at(a, 0), last = number_at(a, count - 1), smallest = 1;
    for (size_t i = 1; i < count; i++) {
        double p = number_at(a, i - 1), q = number_at(a, i);
        double gap = is_log ? log(q / p) / log(last / first) : (q - p) / (last - first);
        smallest = fmin(smallest, gap);
    }
    return smallest;
}

static void place_numbers(plot_axis *a, double from, double to)
{
    size_t count = a->axis->values.count;
    plot_scale scale = {
        .min = number_at(a, 0), .max = number_at(a, count - 1), .from = from, .to = to};
    scale.is_log = scale.min > 0 && smallest_gap(a, true) > 1.2 * smallest_gap(a, false);
    for (size_t i = 0; i < count; i++)
        a->at[a->order[i]] = plot_at(&scale, number_at(a, i));
}

static void place_evenly(plot_axis *a, double from, double to)
{
    size_t count = a->axis->values.count;
    for (size_t i = 0; i < count; i++)
        a->at[a->order[i]] = from + (to - from) * ((double)i + 0.5) / (double)count;
}

kb_error *plot_axis_init(plot_axis *a, const sweep_column *axis, double from, double to)
{
    size_t count = axis->values.count;
    uint32_t *ranks = sweep_rank_values(axis);
    *a = (plot_axis){.axis = axis,
                     .order = kb_alloc_array(count, sizeof *a->order),
                     .at = kb_alloc_array(count, sizeof *a->at)};
    bool good = ranks && a->order && a->at;
    if (good) {
        for (uint32_t i = 0; i < count; i++)
            a->order[ranks[i]] = i;
        if (sweep_is_numeric(axis) && count > 1)
            place_numbers(a, from, to);
        else
            place_evenly(a, from, to);
    } else {
        plot_axis_fini(a);
    }
    free(ranks);
    return good ? NULL : kb_error_nomem();
}

void plot_axis_fini(plot_axis *a)
{
    free(a->order);
    free(a->at);
    *a = (plot_axis){0};
}

/* ---- Names ------------------------------------------------------------------------------- */

void plot_append_short_name(kb_text *text, const sweep_column *axis)
{
    const char *name = axis->name, *dot = strrchr(name, '.');
    while (dot && dot > name && dot[-1] != '.')
        dot--;
    kb_text_puts(text, dot ? dot : name);
}

void plot_append_title(kb_text *text, const sweep_column *column, const char *unit)
{
    size_t start = text->length;
    if (column->is_axis)
        kb_text_puts(text, column->name);
    else
        sweep_append_title(text, column);
    /* The unit of the name, "sim ns", moves to the brackets. */
    const char *own = sweep_unit(column->name);
    size_t length = strlen(own), end = text->length;
    if (length > 0 && !text->failed && end > start + length + 1 &&
        text->bytes[end - length - 1] == ' ' && strcmp(text->bytes + end - length, own) == 0) {
        text->length -= length + 1;
        text->bytes[text->length] = '\0';
    }
    if (unit[0] != '\0')
        kb_text_printf(text, " (%s)", unit);
}

void plot_append_clipped(kb_text *out, const char *text, double size, double width)
{
    if (kb_svg_text_width(text, size) <= width) {
        kb_text_puts(out, text);
        return;
    }
    size_t length = strlen(text);
    kb_text clipped = KB_TEXT_INIT;
    do {
        while (length > 0 && (text[--length] & 0xc0) == 0x80)
            ;
        kb_text_fini(&clipped);
        kb_text_append(&clipped, text, length);
        kb_text_puts(&clipped, "...");
    } while (length > 0 && kb_svg_text_width(kb_text_peek(&clipped), size) > width);
    out->failed |= clipped.failed;
    kb_text_puts(out, kb_text_peek(&clipped));
    kb_text_fini(&clipped);
}

void plot_append_notes(kb_text *text, const sweep_results *results, const plot_role *roles)
{
    static const struct {
        plot_role role;
        const char *begin;
    } parts[] = {{PLOT_FIXED, ""},
                 {PLOT_AVERAGED, "mean over "},
                 {PLOT_IDLE, "no effect: "},
                 {PLOT_GIVEN, "in step with the axis: "}};
    size_t start = text->length;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        size_t count = 0;
        for (size_t i = 0; i < results->axis_count; i++) {
            const sweep_column *axis = &results->columns.items[i];
            if (roles[i] != parts[p].role || axis->values.count == 0)
                continue;
            if (count++ > 0)
                kb_text_puts(text, ", ");
            else
                kb_text_printf(text, "%s%s", text->length > start ? "; " : "", parts[p].begin);
            kb_text_puts(text, axis->name);
            if (roles[i] != PLOT_FIXED)
                continue;
            kb_text_puts(text, " = ");
            sweep_append_value(text, axis->values.items[0]);
        }
    }
}

void plot_append_failures(kb_text *text, const sweep_results *results)
{
    size_t failed = 0;
    for (size_t row = 0; row < results->row_count; row++)
        failed += results->rows[row].ok ? 0 : 1;
    if (failed > 0)
        kb_text_printf(text, "%zu of %zu points failed or have not run: they are not shown", failed,
                       results->row_count);
}

/* ---- Axes that matter -------------------------------------------------------------------- */

/* Whether points with the same value of `by` have the same value of the axis. */
static kb_error *is_given_by(const sweep_results *results, const sweep_column *axis,
                             const sweep_column *by, bool *given)
{
    *given = false;
    if (!by)
        return NULL;
    uint32_t *value = kb_alloc_array(by->values.count, sizeof *value);
    if (!value)
        return kb_error_nomem();
    for (size_t v = 0; v < by->values.count; v++)
        value[v] = SWEEP_NO_VALUE;
    *given = true;
    for (size_t row = 0; row < results->row_count && *given; row++) {
        uint32_t index = by->index[row];
        if (index == SWEEP_NO_VALUE)
            continue;
        if (value[index] == SWEEP_NO_VALUE)
            value[index] = axis->index[row];
        *given = value[index] == axis->index[row];
    }
    free(value);
    return NULL;
}

kb_error *plot_find_role(const sweep_results *results, const sweep_column *axis,
                         const sweep_column *x, const sweep_column *y,
                         const sweep_plot_options *options, plot_role *role)
{
    bool by_x, by_y;
    *role = axis == x || axis == y ? PLOT_SHOWN : PLOT_FIXED;
    if (!sweep_varies(axis) || *role == PLOT_SHOWN)
        return NULL;
    KB_TRY(is_given_by(results, axis, x, &by_x));
    KB_TRY(is_given_by(results, axis, y, &by_y));
    *role = by_x || by_y ? PLOT_GIVEN : PLOT_IDLE;
    for (size_t i = 0; i < options->figure_count && *role == PLOT_IDLE; i++) {
        sweep_effect effect;
        KB_TRY(sweep_find_effect(results, axis, options->figures[i], &effect));
        if (effect.changed > 0 || effect.groups == 0)
            *role = PLOT_SHOWN;
        sweep_effect_fini(&effect);
    }
    return NULL;
}

/* ---- Drawing ----------------------------------------------------------------------------- */

double plot_tick_width(const plot_scale *scale)
{
    double width = 0;
    for (size_t i = 0; i < scale->tick_count; i++)
        width = fmax(width, kb_svg_text_width(scale->ticks[i].label, PLOT_SMALL));
    return width;
}

static void draw_label(plot_canvas *c, const plot_axis *a, size_t place, double y, double width)
{
    kb_text words = KB_TEXT_INIT, label = KB_TEXT_INIT;
    sweep_append_value(&words, a->axis->values.items[a->order[place]]);
    plot_append_clipped(&label, plot_words(c, &words), PLOT_SMALL, width);
    double x = a->at[a->order[place]];
    plot_line(c, "axis", x, y, x, y + 4);
    plot_text(c, "soft", x, y + 17, PLOT_SMALL, "middle", plot_words(c, &label));
    kb_text_fini(&label);
    kb_text_fini(&words);
}

static double label_width(const plot_axis *a, size_t place)
{
    kb_text words = KB_TEXT_INIT;
    sweep_append_value(&words, a->axis->values.items[a->order[place]]);
    double width = kb_svg_text_width(kb_text_peek(&words), PLOT_SMALL);
    kb_text_fini(&words);
    return width;
}

/* Labels of numbers that would touch another one are left out, but not the last one. Others are
 * clipped to their places. */
static void draw_labels(plot_canvas *c, const plot_axis *a, double from, double to, double y)
{
    enum { GAP = 8 };
    size_t count = a->axis->values.count, last = count - 1;
    if (!sweep_is_numeric(a->axis)) {
        double room = (to - from) / (double)count;
        for (size_t i = 0; i < count && room > 2 * PLOT_SMALL; i++)
            draw_label(c, a, i, y, room - GAP);
        return;
    }
    double end = -(double)INFINITY, last_width = label_width(a, last);
    for (size_t i = 0; i < count; i++) {
        double width = label_width(a, i), x = a->at[a->order[i]];
        bool hits_last = i < last && x + width / 2 + GAP > a->at[a->order[last]] - last_width / 2;
        if (x - width / 2 < end + GAP || hits_last)
            continue;
        draw_label(c, a, i, y, (double)INFINITY);
        end = x + width / 2;
    }
}

const char *plot_axis_unit(const sweep_column *axis)
{
    double number;
    for (size_t i = 0; i < axis->values.count; i++)
        if (!sweep_read_number(axis->values.items[i].text, &number))
            return "";
    return sweep_unit(axis->name);
}

void plot_draw_axis(plot_canvas *c, const plot_axis *a, double from, double to, double y,
                    bool with_title)
{
    plot_line(c, "axis", from, y, to, y);
    draw_labels(c, a, from, to, y);
    if (!with_title)
        return;
    kb_text title = KB_TEXT_INIT, clipped = KB_TEXT_INIT;
    plot_append_title(&title, a->axis, plot_axis_unit(a->axis));
    plot_append_clipped(&clipped, plot_words(c, &title), PLOT_NORMAL, to - from + 40);
    plot_text(c, "ink", (from + to) / 2, y + 38, PLOT_NORMAL, "middle", plot_words(c, &clipped));
    kb_text_fini(&clipped);
    kb_text_fini(&title);
}
