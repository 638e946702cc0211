/*
 * plot_pareto.c: points over two objectives. Those of the front stand out, are joined and labelled
 * with the values of their axes; the others show what was passed over. A label that would cover
 * another one or a point is left out: the point has its text under the pointer.
 */
#include "plot_private.h"

#include "format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 760, AREA_H = 360, MARGIN = 20, MAX_LABELS = 48, LABEL_ROOM = 260 };

typedef struct pareto_axis {
    const sweep_objective *objective;
    plot_unit unit;
    plot_scale scale;
} pareto_axis;

typedef struct pareto_plot {
    const sweep_results *results;
    const sweep_plot_options *options;
    plot_canvas canvas;
    plot_role *roles;
    bool *admitted, *front;
    size_t *order; /* rows of the front, along x */
    size_t front_count;
    pareto_axis x, y;
    double left, right, top, bottom;
    plot_box taken[2 * MAX_LABELS]; /* what labels must not cover */
    size_t taken_count;
} pareto_plot;

static double number_of(const pareto_axis *a, size_t row)
{
    return sweep_cell(a->objective->column, row).number * a->unit.factor;
}

/* Whether the point has a place: it is ok, and has both numbers. */
static bool is_placed(const pareto_plot *p, size_t row)
{
    return p->results->rows[row].ok && !sweep_cell(p->x.objective->column, row).none &&
           !sweep_cell(p->y.objective->column, row).none;
}

/* ---- What is shown ----------------------------------------------------------------------- */

static int compare_x(const void *a, const void *b, void *plot)
{
    const pareto_plot *p = plot;
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    double s = number_of(&p->x, i), t = number_of(&p->x, j);
    if (s < t || s > t)
        return s < t ? -1 : 1;
    s = number_of(&p->y, i);
    t = number_of(&p->y, j);
    if (s < t || s > t)
        return s < t ? -1 : 1;
    return (i > j) - (i < j);
}

/* The ticks of an axis of the sweep are at its values, if there are few. */
static void use_values(pareto_axis *a)
{
    const sweep_column *axis = a->objective->column;
    if (axis->values.count > 12)
        return;
    a->unit = (plot_unit){1, sweep_unit(axis->name)};
    plot_scale *s = &a->scale;
    double min = (double)INFINITY, max = -(double)INFINITY;
    s->tick_count = axis->values.count;
    for (size_t i = 0; i < axis->values.count; i++) {
        const sweep_value *value = &axis->values.items[i];
        s->ticks[i].value = value->number;
        snprintf(s->ticks[i].label, sizeof s->ticks[i].label, "%s", value->text);
        min = fmin(min, value->number);
        max = fmax(max, value->number);
    }
    /* Some room at the ends. */
    double room = s->is_log ? pow(max / min, 0.06) : 0.06 * (max - min);
    s->min = s->is_log ? min / room : fmin(min - room, 0);
    s->max = s->is_log ? max * room : max + room;
}

static void scale_axis(const pareto_plot *p, pareto_axis *a)
{
    double min = (double)INFINITY, max = -(double)INFINITY;
    for (size_t row = 0; row < p->results->row_count; row++) {
        if (is_placed(p, row)) {
            double number = sweep_cell(a->objective->column, row).number;
            min = fmin(min, number);
            max = fmax(max, number);
        }
    }
    enum { SPREAD = 20, TICKS = 6 };
    a->unit = plot_choose_unit(a->objective->column->name, fmax(fabs(min), fabs(max)));
    plot_scale_init(&a->scale, min * a->unit.factor, max * a->unit.factor, SPREAD, true, TICKS);
    if (a->objective->column->is_axis)
        use_values(a);
}

static kb_error *choose(pareto_plot *p)
{
    const sweep_results *r = p->results;
    const sweep_objectives *o = p->options->objectives;
    if (!o || o->count != 2)
        return kb_error_new(KB_ERR_INPUT,
                            "a plot of a Pareto front needs two objectives: --pareto a:min,b:max");
    p->x.objective = &o->items[0];
    p->y.objective = &o->items[1];
    p->roles = kb_alloc_zeroed(r->axis_count, sizeof *p->roles);
    p->admitted = kb_alloc_zeroed(r->row_count, sizeof *p->admitted);
    p->front = kb_alloc_zeroed(r->row_count, sizeof *p->front);
    p->order = kb_alloc_array(r->row_count, sizeof *p->order);
    if (!p->roles || !p->admitted || !p->front || !p->order)
        return kb_error_nomem();
    sweep_plot_options figures = {0};
    for (size_t i = 0; i < 2; i++)
        if (!o->items[i].column->is_axis)
            figures.figures[figures.figure_count++] = o->items[i].column;
    for (size_t i = 0; i < r->axis_count; i++) {
        const sweep_column *axis = &r->columns.items[i];
        KB_TRY(plot_find_role(r, axis, NULL, NULL, &figures, &p->roles[i]));
        if (axis == o->items[0].column || axis == o->items[1].column)
            p->roles[i] = PLOT_SHOWN;
    }
    sweep_admit(r, p->options->constraint, p->admitted);
    KB_TRY(sweep_find_front(r, o, p->admitted, p->front));
    p->x.unit.factor = p->y.unit.factor = 1;
    for (size_t row = 0; row < r->row_count; row++)
        if (p->front[row])
            p->order[p->front_count++] = row;
    if (p->front_count == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "nothing to plot: no point that is done and right%s has "
                            "both objectives",
                            p->options->constraint ? ", and satisfies the constraint," : "");
    qsort_r(p->order, p->front_count, sizeof *p->order, compare_x, p);
    scale_axis(p, &p->x);
    scale_axis(p, &p->y);
    return NULL;
}

/* ---- Drawing ----------------------------------------------------------------------------- */

/* "2, ring": the values of the axes that vary. */
static void append_values(const pareto_plot *p, size_t row, bool names, kb_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const sweep_column *axis = &p->results->columns.items[i];
        if (p->roles[i] != PLOT_SHOWN)
            continue;
        kb_text_puts(text, count++ > 0 ? ", " : "");
        if (names)
            plot_append_short_name(text, axis);
        else
            sweep_append_value(text, sweep_cell(axis, row));
    }
}

static void append_tip(const pareto_plot *p, size_t row, kb_text *text)
{
    append_values(p, row, false, text);
    const pareto_axis *axes[] = {&p->x, &p->y};
    for (size_t i = 0; i < 2; i++) {
        kb_text_puts(text, i == 0 ? ": " : ", ");
        plot_append_number(text, number_of(axes[i], row));
        kb_text_printf(text, " %s", axes[i]->unit.name);
    }
}

static void draw_grid(pareto_plot *p)
{
    plot_canvas *c = &p->canvas;
    for (size_t i = 0; i < p->y.scale.tick_count; i++) {
        double y = plot_at(&p->y.scale, p->y.scale.ticks[i].value);
        plot_line(c, "grid", p->left, y, p->right, y);
        plot_text(c, "soft", p->left - 7, y + 4, PLOT_SMALL, "end", p->y.scale.ticks[i].label);
    }
    double end = -(double)INFINITY;
    for (size_t i = 0; i < p->x.scale.tick_count; i++) {
        const plot_tick *tick = &p->x.scale.ticks[i];
        double x = plot_at(&p->x.scale, tick->value);
        double half = kb_svg_text_width(tick->label, PLOT_SMALL) / 2;
        plot_line(c, "grid", x, p->top, x, p->bottom);
        if (x - half < end + 6)
            continue;
        plot_text(c, "soft", x, p->bottom + 17, PLOT_SMALL, "middle", tick->label);
        end = x + half;
    }
    plot_line(c, "axis", p->left, p->bottom, p->right, p->bottom);
}

static void append_axis_title(const pareto_axis *a, kb_text *text)
{
    plot_append_title(text, a->objective->column, a->unit.name);
    kb_text_printf(text, ", %s is better", a->objective->maximize ? "more" : "less");
}

static void draw_titles(pareto_plot *p)
{
    plot_canvas *c = &p->canvas;
    kb_text text = KB_TEXT_INIT;
    append_axis_title(&p->x, &text);
    plot_text(c, "ink", (p->left + p->right) / 2, p->bottom + 38, PLOT_NORMAL, "middle",
              plot_words(c, &text));
    kb_text_fini(&text);
    append_axis_title(&p->y, &text);
    plot_text(c, "ink", MARGIN, p->top - 14, PLOT_NORMAL, "start", plot_words(c, &text));
    kb_text_fini(&text);
}

/* Points beside the front: small, and hollow if they are excluded by the constraint. */
static void draw_rest(pareto_plot *p)
{
    for (size_t row = 0; row < p->results->row_count; row++) {
        if (!is_placed(p, row) || p->front[row])
            continue;
        kb_text tip = KB_TEXT_INIT;
        append_tip(p, row, &tip);
        kb_text_printf(
            p->canvas.out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"%s><title>",
            p->admitted[row] ? "rest" : "axis", plot_at(&p->x.scale, number_of(&p->x, row)),
            plot_at(&p->y.scale, number_of(&p->y, row)), p->admitted[row] ? "" : " fill=\"none\"");
        kb_svg_append_text(p->canvas.out, plot_words(&p->canvas, &tip));
        kb_text_puts(p->canvas.out, "</title></circle>\n");
        kb_text_fini(&tip);
    }
}

/* The border of what is dominated: steps, as nothing between two points of the front was run. */
static void draw_border(pareto_plot *p)
{
    /* Better is to the left or to the right: the step is on the worse side. */
    bool flat_first = p->x.objective->maximize == false;
    kb_text_puts(p->canvas.out, "<path class=\"line c0\" style=\"stroke-width:1.5\" d=\"");
    for (size_t i = 0; i < p->front_count; i++) {
        double x = plot_at(&p->x.scale, number_of(&p->x, p->order[i]));
        double y = plot_at(&p->y.scale, number_of(&p->y, p->order[i]));
        if (i == 0)
            kb_text_printf(p->canvas.out, "M%.1f %.1f", x, y);
        else if (flat_first)
            kb_text_printf(p->canvas.out, "H%.1fV%.1f", x, y);
        else
            kb_text_printf(p->canvas.out, "V%.1fH%.1f", y, x);
    }
    kb_text_puts(p->canvas.out, "\"/>\n");
}

/* ---- Labels ------------------------------------------------------------------------------ */

static bool overlap(const plot_box *a, const plot_box *b)
{
    return a->x < b->x + b->w && b->x < a->x + a->w && a->y < b->y + b->h && b->y < a->y + a->h;
}

static bool is_free(const pareto_plot *p, const plot_box *box, size_t own)
{
    if (box->x < p->left || box->x + box->w > WIDTH - 4 || box->y < p->top - 8 ||
        box->y + box->h > p->bottom)
        return false;
    for (size_t i = 0; i < p->taken_count; i++)
        if (i != own && overlap(box, &p->taken[i]))
            return false;
    return true;
}

/* Beside the point, on the side where nothing is better first. */
static void draw_label(pareto_plot *p, size_t row, size_t own)
{
    kb_text words = KB_TEXT_INIT, clipped = KB_TEXT_INIT;
    append_values(p, row, false, &words);
    plot_append_clipped(&clipped, plot_words(&p->canvas, &words), PLOT_SMALL, LABEL_ROOM);
    const char *label = plot_words(&p->canvas, &clipped);
    double x = plot_at(&p->x.scale, number_of(&p->x, row));
    double y = plot_at(&p->y.scale, number_of(&p->y, row));
    double w = kb_svg_text_width(label, PLOT_SMALL), h = PLOT_SMALL + 3;
    const plot_box places[] = {{x + 8, y - h - 2, w, h},     {x + 8, y + 2, w, h},
                               {x - 8 - w, y - h - 2, w, h}, {x - 8 - w, y + 2, w, h},
                               {x - w / 2, y - h - 8, w, h}, {x - w / 2, y + 8, w, h}};
    bool left_first = !p->x.objective->maximize && p->y.objective->maximize;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const plot_box *box = &places[left_first && i < 4 ? (i + 2) % 4 : i];
        if (!is_free(p, box, own))
            continue;
        plot_text(&p->canvas, "ink", box->x, box->y + PLOT_SMALL, PLOT_SMALL, "start", label);
        p->taken[p->taken_count++] = *box;
        break;
    }
    kb_text_fini(&clipped);
    kb_text_fini(&words);
}

/* Such points differ in axes without an effect: they are at the same place. */
static bool has_same_label(const pareto_plot *p, size_t a, size_t b)
{
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const uint32_t *index = p->results->columns.items[i].index;
        if (p->roles[i] == PLOT_SHOWN && index[a] != index[b])
            return false;
    }
    return true;
}

static void draw_front(pareto_plot *p)
{
    draw_border(p);
    size_t labels = p->front_count < MAX_LABELS ? p->front_count : MAX_LABELS;
    for (size_t i = 0; i < p->front_count; i++) {
        size_t row = p->order[i];
        double x = plot_at(&p->x.scale, number_of(&p->x, row));
        double y = plot_at(&p->y.scale, number_of(&p->y, row));
        kb_text tip = KB_TEXT_INIT;
        append_tip(p, row, &tip);
        plot_mark(&p->canvas, 0, x, y, plot_words(&p->canvas, &tip));
        kb_text_fini(&tip);
        if (i < labels)
            p->taken[p->taken_count++] = (plot_box){x - 5, y - 5, 10, 10};
    }
    for (size_t i = 0; i < labels; i++)
        if (i == 0 || !has_same_label(p, p->order[i - 1], p->order[i]))
            draw_label(p, p->order[i], i);
}

static void append_default_title(const pareto_plot *p, kb_text *text)
{
    kb_text_puts(text, "Pareto front: ");
    plot_append_title(text, p->x.objective->column, "");
    kb_text_puts(text, " and ");
    plot_append_title(text, p->y.objective->column, "");
}

static double draw_key_item(pareto_plot *p, const char *mark, double x, double y, const char *text)
{
    plot_canvas *c = &p->canvas;
    kb_text_printf(c->out, "<circle %s cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"/>\n", mark, x + 4, y - 4);
    plot_text(c, "soft", x + 13, y, PLOT_NORMAL, "start", text);
    return x + 13 + kb_svg_text_width(text, PLOT_NORMAL) + 18;
}

/* What the marks are, in two lines, and which axes the labels name. */
static void draw_key(pareto_plot *p, double y)
{
    plot_canvas *c = &p->canvas;
    size_t hollow = 0, others = 0;
    for (size_t row = 0; row < p->results->row_count; row++) {
        hollow += is_placed(p, row) && !p->admitted[row] ? 1 : 0;
        others += is_placed(p, row) && p->admitted[row] && !p->front[row] ? 1 : 0;
    }
    kb_text text = KB_TEXT_INIT, names = KB_TEXT_INIT, clipped = KB_TEXT_INIT;
    append_values(p, 0, true, &names);
    kb_text_printf(&text, "Pareto front, labelled with %s", plot_words(c, &names));
    plot_append_clipped(&clipped, plot_words(c, &text), PLOT_NORMAL, WIDTH - 2 * MARGIN - 14);
    draw_key_item(p, "class=\"f0\"", MARGIN, y, plot_words(c, &clipped));
    double x = MARGIN;
    if (others > 0)
        x = draw_key_item(p, "class=\"rest\"", x, y + 18, "other points");
    if (hollow > 0)
        draw_key_item(p, "class=\"axis\" fill=\"none\"", x, y + 18, "excluded by the constraint");
    kb_text_fini(&clipped);
    kb_text_fini(&names);
    kb_text_fini(&text);
}

static void draw(pareto_plot *p)
{
    plot_canvas *c = &p->canvas;
    plot_head head = {.results = p->results, .roles = p->roles, .title = p->options->title};
    kb_text title = KB_TEXT_INIT;
    append_default_title(p, &title);
    head.fallback = plot_words(c, &title);
    double y = plot_head_height(&head);
    p->top = y + 74;
    p->bottom = p->top + AREA_H;
    p->left = MARGIN + plot_tick_width(&p->y.scale) + 12;
    p->right = WIDTH - MARGIN - 20;
    c->width = WIDTH;
    c->height = p->bottom + 56;
    p->x.scale.from = p->left;
    p->x.scale.to = p->right;
    p->y.scale.from = p->bottom;
    p->y.scale.to = p->top;
    plot_draw_head(c, &head, 1, false);
    draw_key(p, y + 12);
    draw_grid(p);
    draw_titles(p);
    draw_rest(p);
    draw_front(p);
    plot_end(c);
    kb_text_fini(&title);
}

kb_error *plot_draw_pareto(const sweep_results *results, const sweep_plot_options *options,
                           kb_text *out)
{
    pareto_plot p = {.results = results, .options = options, .canvas = {.out = out}};
    kb_error *err = choose(&p);
    if (!err)
        draw(&p);
    free(p.order);
    free(p.front);
    free(p.admitted);
    free(p.roles);
    return err;
}
