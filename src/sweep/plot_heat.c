/*
 * plot_heat.c: a figure over two axes, as coloured cells. Colours are a perceptually ordered scale,
 * the same on light and on dark pages; a cell has its number where there is room. A cell of several
 * points has their mean.
 */
#include "plot_private.h"

#include "format.h"
#include "pivot.h"

#include <math.h>
#include <stdlib.h>

enum {
    MARGIN = 20,
    MIN_CELL = 12,
    MAX_CELL_W = 96,
    MAX_CELL_H = 40,
    AREA_W = 560,
    AREA_H = 400,
    LABEL_ROOM = 160, /* width for labels of rows, at most */
    BAR = 14,         /* width of the scale of colours */
    STEPS = 48        /* of the scale of colours */
};

typedef struct heat_plot {
    const sweep_results *results;
    const sweep_plot_options *options;
    plot_canvas canvas;
    const sweep_column *figure;
    plot_role *roles;
    sweep_pivot pivot; /* rows: y, from the bottom upward */
    plot_unit unit;
    plot_scale scale; /* of colours */
    double cell_w, cell_h, left, top;
    bool with_numbers; /* all of them have room in their cells */
} heat_plot;

/* The axes that are not given: those that matter with the most values. */
static kb_error *choose_axes(heat_plot *p, const sweep_column **x, const sweep_column **y)
{
    const sweep_results *r = p->results;
    *x = p->options->x;
    *y = p->options->y;
    for (int pass = 0; pass < 2; pass++) {
        const sweep_column **missing = !*x ? x : !*y ? y : NULL;
        const sweep_column *best = NULL;
        for (size_t i = 0; i < r->axis_count && missing; i++) {
            const sweep_column *axis = &r->columns.items[i];
            plot_role role;
            KB_TRY(plot_find_role(r, axis, *x, *y, p->options, &role));
            if (role == PLOT_SHOWN && axis != *x && axis != *y &&
                (!best || axis->values.count > best->values.count))
                best = axis;
        }
        if (missing)
            *missing = best;
    }
    if (!*x || !*y || *x == *y)
        return kb_error_new(KB_ERR_INPUT, "a heat map needs two axes with an effect on %s",
                            p->figure->name);
    return NULL;
}

static kb_error *choose(heat_plot *p)
{
    const sweep_column *x, *y;
    p->figure = p->options->figures[0];
    KB_TRY(choose_axes(p, &x, &y));
    p->roles = kb_alloc_zeroed(p->results->axis_count, sizeof *p->roles);
    if (!p->roles)
        return kb_error_nomem();
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const sweep_column *axis = &p->results->columns.items[i];
        KB_TRY(plot_find_role(p->results, axis, x, y, p->options, &p->roles[i]));
        if (p->roles[i] == PLOT_SHOWN && axis != x && axis != y)
            p->roles[i] = PLOT_AVERAGED;
    }
    return sweep_pivot_make(p->results, y, x, p->figure, &p->pivot);
}

/* ---- Measures ---------------------------------------------------------------------------- */

static kb_error *scale_colours(heat_plot *p)
{
    double min = (double)INFINITY, max = -(double)INFINITY;
    size_t cells = p->pivot.rows->values.count * p->pivot.columns->values.count;
    for (size_t i = 0; i < cells; i++) {
        if (!isnan(p->pivot.cells[i].mean)) {
            min = fmin(min, p->pivot.cells[i].mean);
            max = fmax(max, p->pivot.cells[i].mean);
        }
    }
    if (min > max)
        return kb_error_new(KB_ERR_INPUT, "nothing to plot: no point has the figure %s",
                            p->figure->name);
    enum { SPREAD = 30, TICKS = 6 };
    p->unit = plot_choose_unit(p->figure->name, fmax(fabs(min), fabs(max)));
    plot_scale_init(&p->scale, min * p->unit.factor, max * p->unit.factor, SPREAD, false, TICKS);
    return NULL;
}

static double widest_label(heat_plot *p, const sweep_column *axis)
{
    double widest = 0;
    for (size_t i = 0; i < axis->values.count; i++) {
        kb_text text = KB_TEXT_INIT;
        sweep_append_value(&text, axis->values.items[i]);
        widest = fmax(widest, kb_svg_text_width(plot_words(&p->canvas, &text), PLOT_SMALL));
        kb_text_fini(&text);
    }
    return widest;
}

static void measure(heat_plot *p)
{
    double columns = (double)p->pivot.columns->values.count;
    double rows = (double)p->pivot.rows->values.count;
    p->left = MARGIN + fmin(widest_label(p, p->pivot.rows), LABEL_ROOM) + 10;
    p->cell_w = fmax(fmin(AREA_W / columns, MAX_CELL_W), MIN_CELL);
    p->cell_h = fmax(fmin(AREA_H / rows, MAX_CELL_H), MIN_CELL);
    p->with_numbers = p->cell_h >= PLOT_SMALL + 3;
    for (size_t i = 0; i < p->pivot.rows->values.count * p->pivot.columns->values.count; i++) {
        kb_text text = KB_TEXT_INIT;
        plot_append_number(&text, p->pivot.cells[i].mean * p->unit.factor);
        if (!isnan(p->pivot.cells[i].mean) &&
            kb_svg_text_width(plot_words(&p->canvas, &text), PLOT_SMALL) > p->cell_w - 4)
            p->with_numbers = false;
        kb_text_fini(&text);
    }
}

/* ---- Drawing ----------------------------------------------------------------------------- */

static plot_colour colour_of(const heat_plot *p, double mean)
{
    plot_scale scale = p->scale;
    scale.from = 0;
    scale.to = 1;
    return plot_scale_colour(plot_at(&scale, mean * p->unit.factor));
}

static void append_tip(heat_plot *p, size_t row, size_t column, kb_text *text)
{
    const sweep_pivot *v = &p->pivot;
    const sweep_pivot_cell *cell = sweep_pivot_at(v, row, column);
    plot_append_short_name(text, v->columns);
    kb_text_puts(text, " = ");
    sweep_append_value(text, v->columns->values.items[v->column_order[column]]);
    kb_text_puts(text, ", ");
    plot_append_short_name(text, v->rows);
    kb_text_puts(text, " = ");
    sweep_append_value(text, v->rows->values.items[v->row_order[row]]);
    kb_text_puts(text, ": ");
    if (isnan(cell->mean)) {
        kb_text_puts(text, cell->points == 0 ? "no point" : cell->status ? cell->status : "none");
    } else {
        plot_append_number(text, cell->mean * p->unit.factor);
        kb_text_printf(text, " %s", p->unit.name);
        if (cell->numbers > 1)
            kb_text_printf(text, " (mean of %zu points)", cell->numbers);
    }
}

/* The number of a cell, or how its point ended. */
static void draw_number(heat_plot *p, const sweep_pivot_cell *cell, plot_colour colour, double x,
                        double y)
{
    kb_text number = KB_TEXT_INIT;
    if (!isnan(cell->mean))
        plot_append_number(&number, cell->mean * p->unit.factor);
    else
        kb_text_puts(&number, cell->status ? cell->status : "");
    const char *words = plot_words(&p->canvas, &number);
    if (isnan(cell->mean)) {
        bool fits = kb_svg_text_width(words, PLOT_SMALL) <= p->cell_w - 4;
        if (cell->status && p->cell_h >= PLOT_SMALL + 3)
            plot_text(&p->canvas, "soft", x, y, PLOT_SMALL, "middle", fits ? words : "x");
    } else if (p->with_numbers) {
        kb_text_printf(p->canvas.out,
                       "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"middle\" "
                       "fill=\"%s\">%s</text>\n",
                       x, y, PLOT_SMALL, plot_is_light(colour) ? "#000" : "#fff", words);
    }
    kb_text_fini(&number);
}

static void draw_cell(heat_plot *p, size_t row, size_t column)
{
    const sweep_pivot_cell *cell = sweep_pivot_at(&p->pivot, row, column);
    size_t rows = p->pivot.rows->values.count;
    double x = p->left + (double)column * p->cell_w;
    double y = p->top + (double)(rows - 1 - row) * p->cell_h;
    plot_colour colour = colour_of(p, isnan(cell->mean) ? 0 : cell->mean);
    kb_text tip = KB_TEXT_INIT;
    append_tip(p, row, column, &tip);
    kb_text_printf(p->canvas.out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
                   x + 0.5, y + 0.5, p->cell_w - 1, p->cell_h - 1);
    if (isnan(cell->mean))
        kb_text_puts(p->canvas.out, " class=\"grid\" fill=\"none\"><title>");
    else
        kb_text_printf(p->canvas.out, " fill=\"#%02x%02x%02x\"><title>", colour.r, colour.g,
                       colour.b);
    kb_svg_append_text(p->canvas.out, plot_words(&p->canvas, &tip));
    kb_text_puts(p->canvas.out, "</title></rect>\n");
    draw_number(p, cell, colour, x + p->cell_w / 2, y + p->cell_h / 2 + 4);
    kb_text_fini(&tip);
}

/* Labels of one axis; those that would touch the one before are left out. */
static void draw_labels(heat_plot *p, bool of_rows)
{
    const sweep_column *axis = of_rows ? p->pivot.rows : p->pivot.columns;
    const uint32_t *order = of_rows ? p->pivot.row_order : p->pivot.column_order;
    size_t count = axis->values.count;
    double bottom = p->top + (double)p->pivot.rows->values.count * p->cell_h;
    double room = of_rows ? LABEL_ROOM : fmax(p->cell_w - 4, 40), end = -(double)INFINITY;
    for (size_t i = 0; i < count; i++) {
        kb_text text = KB_TEXT_INIT, clipped = KB_TEXT_INIT;
        sweep_append_value(&text, axis->values.items[order[i]]);
        plot_append_clipped(&clipped, plot_words(&p->canvas, &text), PLOT_SMALL, room);
        const char *words = plot_words(&p->canvas, &clipped);
        double at = ((double)i + 0.5) * (of_rows ? p->cell_h : p->cell_w);
        double half = of_rows ? PLOT_SMALL / 2.0 + 1 : kb_svg_text_width(words, PLOT_SMALL) / 2 + 3;
        if (at - half >= end) {
            end = at + half;
            if (of_rows)
                plot_text(&p->canvas, "soft", p->left - 7, bottom - at + 4, PLOT_SMALL, "end",
                          words);
            else
                plot_text(&p->canvas, "soft", p->left + at, bottom + 17, PLOT_SMALL, "middle",
                          words);
        }
        kb_text_fini(&clipped);
        kb_text_fini(&text);
    }
}

/* The scale of colours, with its ticks. */
static void draw_bar(heat_plot *p)
{
    plot_canvas *c = &p->canvas;
    double x = p->left + (double)p->pivot.columns->values.count * p->cell_w + 26;
    double height = fmax((double)p->pivot.rows->values.count * p->cell_h, 120);
    for (int i = 0; i < STEPS; i++) {
        plot_colour colour = plot_scale_colour(((double)i + 0.5) / STEPS);
        kb_text_printf(c->out,
                       "<rect x=\"%.1f\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" "
                       "fill=\"#%02x%02x%02x\"/>\n",
                       x, p->top + height * (STEPS - 1 - i) / STEPS, BAR, height / STEPS + 0.3,
                       colour.r, colour.g, colour.b);
    }
    plot_scale scale = p->scale;
    scale.from = p->top + height;
    scale.to = p->top;
    for (size_t i = 0; i < scale.tick_count; i++) {
        double y = plot_at(&scale, scale.ticks[i].value);
        plot_line(c, "axis", x + BAR, y, x + BAR + 4, y);
        plot_text(c, "soft", x + BAR + 8, y + 4, PLOT_SMALL, "start", scale.ticks[i].label);
    }
}

static void draw_axis_titles(heat_plot *p)
{
    plot_canvas *c = &p->canvas;
    const sweep_column *x = p->pivot.columns, *y = p->pivot.rows;
    double width = (double)x->values.count * p->cell_w;
    double bottom = p->top + (double)y->values.count * p->cell_h;
    kb_text text = KB_TEXT_INIT, clipped = KB_TEXT_INIT;
    plot_append_title(&text, y, plot_axis_unit(y));
    plot_text(c, "ink", MARGIN, p->top - 12, PLOT_NORMAL, "start", plot_words(c, &text));
    kb_text_fini(&text);
    plot_append_title(&text, x, plot_axis_unit(x));
    plot_append_clipped(&clipped, plot_words(c, &text), PLOT_NORMAL, c->width - 2 * MARGIN);
    double half = kb_svg_text_width(kb_text_peek(&clipped), PLOT_NORMAL) / 2;
    double middle = fmax(p->left + width / 2, MARGIN + half);
    plot_text(c, "ink", middle, bottom + 38, PLOT_NORMAL, "middle", plot_words(c, &clipped));
    kb_text_fini(&clipped);
    kb_text_fini(&text);
}

static kb_error *draw(heat_plot *p)
{
    plot_canvas *c = &p->canvas;
    KB_TRY(scale_colours(p));
    measure(p);
    size_t columns = p->pivot.columns->values.count, rows = p->pivot.rows->values.count;
    plot_head head = {.results = p->results, .roles = p->roles, .title = p->options->title};
    kb_text title = KB_TEXT_INIT;
    plot_append_title(&title, p->figure, p->unit.name);
    head.fallback = plot_words(c, &title);
    p->top = plot_head_height(&head) + 34;
    double bar = BAR + 42 + plot_tick_width(&p->scale);
    c->width = fmax(p->left + (double)columns * p->cell_w + bar + MARGIN, 480);
    c->height = p->top + fmax((double)rows * p->cell_h, 120) + 60;
    plot_draw_head(c, &head, 0, false);
    for (size_t row = 0; row < rows; row++)
        for (size_t column = 0; column < columns; column++)
            draw_cell(p, row, column);
    draw_labels(p, true);
    draw_labels(p, false);
    draw_axis_titles(p);
    draw_bar(p);
    plot_end(c);
    kb_text_fini(&title);
    return NULL;
}

kb_error *plot_draw_heat(const sweep_results *results, const sweep_plot_options *options,
                         kb_text *out)
{
    heat_plot p = {.results = results, .options = options, .canvas = {.out = out}};
    kb_error *err = choose(&p);
    if (!err)
        err = draw(&p);
    sweep_pivot_fini(&p.pivot);
    free(p.roles);
    return err;
}
