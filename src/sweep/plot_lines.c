/*
 * plot_lines.c: a figure over an axis. Each combination of the other axes that matter is a series.
 * A plot of one panel names its series at the end of their lines; where there are several figures,
 * or too many series, there are panels with a common legend.
 */
#include "plot_private.h"

#include "format.h"
#include "groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 760,
    MARGIN = 20,
    HEIGHT_ALONE = 320, /* of the area of lines: of the only panel, and of one of several */
    HEIGHT_AMONG = 190,
    FACET_LINE = 17, /* height of the line that names a facet */
    MAX_PANELS = 12,
    LABEL_GAP = 15,   /* between base lines of labels */
    SWATCH = 10,      /* width of the mark before a label */
    LABEL_ROOM = 200, /* width for labels of series, at most */
};

/* The points of a line: rows in the order of x. */
typedef struct lines_series {
    const size_t *rows;
    size_t count;
    size_t colour; /* also the number of its label */
    size_t facet;  /* the number of its panel of each figure */
} lines_series;

typedef struct lines_plot {
    const sweep_results *results;
    const sweep_plot_options *options;
    plot_canvas canvas;
    const sweep_column *x;
    plot_role *roles;          /* of the axes: those that are shown are x, or tell series apart */
    const sweep_column *facet; /* an axis that has panels; NULL: none */
    uint32_t *facet_ranks;
    size_t facet_count;
    bool ordered; /* series are told apart by one axis of numbers */
    sweep_row_groups groups;
    lines_series *series;         /* one for each group */
    size_t first_of[PLOT_SERIES]; /* the first series of each colour */
    size_t colours;
    double left, label_room, top;
    double panel_w, panel_h; /* with everything */
    size_t panel_columns, panels;
} lines_plot;

/* ---- What is shown ----------------------------------------------------------------------- */

/* The axis of numbers with the most values, or else the axis with the most. */
static const sweep_column *choose_x(const sweep_results *r)
{
    const sweep_column *best = NULL;
    for (size_t i = 0; i < r->axis_count; i++) {
        const sweep_column *axis = &r->columns.items[i];
        size_t count = axis->values.count, most = best ? best->values.count : 1;
        bool numeric = sweep_is_numeric(axis), better = best && sweep_is_numeric(best);
        if (count > 1 && (numeric == better || !best ? count > most : numeric))
            best = axis;
    }
    return best;
}

/* Whether two rows have the same values of all axes that tell series apart, but for the facet. */
static bool is_same_series(const lines_plot *p, size_t a, size_t b)
{
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const sweep_column *axis = &p->results->columns.items[i];
        if (p->roles[i] == PLOT_SHOWN && axis != p->x && axis != p->facet &&
            axis->index[a] != axis->index[b])
            return false;
    }
    return true;
}

/* Numbers the series by their values; returns how many different ones there are, or more than
 * PLOT_SERIES. */
static size_t number_series(lines_plot *p)
{
    p->colours = 0;
    for (size_t g = 0; g < p->groups.count; g++) {
        lines_series *s = &p->series[g];
        *s = (lines_series){.rows = sweep_group_rows(&p->groups, g),
                            .count = sweep_group_size(&p->groups, g)};
        if (p->facet && p->facet->index[s->rows[0]] != SWEEP_NO_VALUE)
            s->facet = p->facet_ranks[p->facet->index[s->rows[0]]];
        size_t i = 0;
        while (i < p->colours && !is_same_series(p, p->series[p->first_of[i]].rows[0], s->rows[0]))
            i++;
        if (i == PLOT_SERIES)
            return PLOT_SERIES + 1;
        if (i == p->colours)
            p->first_of[p->colours++] = g;
        s->colour = i;
    }
    return p->colours;
}

/* Divides the series by an axis with few values, if there are too many for one panel. */
static kb_error *choose_facet(lines_plot *p)
{
    size_t count = number_series(p);
    for (size_t most = 2; count > PLOT_SERIES && most <= MAX_PANELS; most++) {
        for (size_t i = 0; i < p->results->axis_count && count > PLOT_SERIES; i++) {
            const sweep_column *axis = &p->results->columns.items[i];
            if (p->roles[i] != PLOT_SHOWN || axis == p->x || axis->values.count != most)
                continue;
            free(p->facet_ranks);
            p->facet = axis;
            p->facet_count = most;
            p->facet_ranks = sweep_rank_values(axis);
            if (!p->facet_ranks)
                return kb_error_nomem();
            count = number_series(p);
        }
    }
    if (count > PLOT_SERIES)
        return kb_error_new(
            KB_ERR_INPUT,
            "too many lines for a plot: %zu series over %s, where up to %d in up to "
            "%d panels are legible; fix axes with --where, or try a heat map",
            p->groups.count, p->x->name, PLOT_SERIES, MAX_PANELS);
    return NULL;
}

/* Whether colours may show an order: of one axis, of numbers. */
static bool is_ordered(const lines_plot *p)
{
    size_t axes = 0;
    bool numeric = true;
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const sweep_column *axis = &p->results->columns.items[i];
        if (p->roles[i] == PLOT_SHOWN && axis != p->x && axis != p->facet) {
            axes++;
            numeric &= sweep_is_numeric(axis);
        }
    }
    return axes == 1 && numeric && p->colours > 1;
}

/* Colours follow the numbers: series are numbered in the order of the plan. */
static kb_error *sort_colours(lines_plot *p)
{
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const sweep_column *axis = &p->results->columns.items[i];
        if (p->roles[i] != PLOT_SHOWN || axis == p->x || axis == p->facet)
            continue;
        uint32_t *ranks = sweep_rank_values(axis);
        if (!ranks)
            return kb_error_nomem();
        size_t place[PLOT_SERIES], first[PLOT_SERIES];
        for (size_t c = 0; c < p->colours; c++) {
            uint32_t rank = ranks[axis->index[p->series[p->first_of[c]].rows[0]]];
            place[c] = 0;
            for (size_t d = 0; d < p->colours; d++)
                place[c] += ranks[axis->index[p->series[p->first_of[d]].rows[0]]] < rank;
            first[place[c]] = p->first_of[c];
        }
        for (size_t g = 0; g < p->groups.count; g++)
            p->series[g].colour = place[p->series[g].colour];
        memcpy(p->first_of, first, sizeof first);
        free(ranks);
    }
    return NULL;
}

static bool has_points(const lines_plot *p)
{
    for (size_t row = 0; row < p->results->row_count; row++)
        for (size_t i = 0; i < p->options->figure_count; i++)
            if (p->results->rows[row].ok && !isnan(p->options->figures[i]->numbers[row]))
                return true;
    return false;
}

static kb_error *choose(lines_plot *p)
{
    const sweep_results *r = p->results;
    p->x = p->options->x ? p->options->x : choose_x(r);
    if (!p->x)
        return kb_error_new(KB_ERR_INPUT, "nothing to plot: no axis has two values");
    p->roles = kb_alloc_zeroed(r->axis_count, sizeof *p->roles);
    bool *in_common = kb_alloc_zeroed(r->axis_count, sizeof *in_common);
    if (!p->roles || !in_common) {
        free(in_common);
        return kb_error_nomem();
    }
    kb_error *err = NULL;
    for (size_t i = 0; i < r->axis_count && !err; i++) {
        const sweep_column *axis = &r->columns.items[i];
        err = plot_find_role(r, axis, p->x, NULL, p->options, &p->roles[i]);
        in_common[i] = p->roles[i] == PLOT_SHOWN && axis != p->x;
    }
    if (!err)
        err = sweep_group(r, in_common, p->x, false, &p->groups);
    free(in_common);
    if (err)
        return err;
    p->series = kb_alloc_array(p->groups.count, sizeof *p->series);
    if (!p->series)
        return kb_error_nomem();
    p->facet_count = 1;
    if (!has_points(p))
        return kb_error_new(KB_ERR_INPUT, "nothing to plot: no point that is done and right has "
                                          "the figure");
    KB_TRY(choose_facet(p));
    p->ordered = is_ordered(p);
    return p->ordered ? sort_colours(p) : NULL;
}

/* ---- Labels ------------------------------------------------------------------------------ */

/* Appends what tells a series apart: the values of its axes, or their names. */
static void append_label(const lines_plot *p, size_t row, bool names, kb_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < p->results->axis_count; i++) {
        const sweep_column *axis = &p->results->columns.items[i];
        bool is_told = p->roles[i] == PLOT_SHOWN && axis != p->x && axis != p->facet;
        if (!is_told || (!names && axis->index[row] == SWEEP_NO_VALUE))
            continue;
        kb_text_puts(text, count++ > 0 ? ", " : "");
        if (names)
            plot_append_short_name(text, axis);
        else
            sweep_append_value(text, sweep_cell(axis, row));
    }
}

/* The label of a colour, clipped. */
static void append_series_label(lines_plot *p, size_t colour, kb_text *text)
{
    kb_text words = KB_TEXT_INIT;
    append_label(p, p->series[p->first_of[colour]].rows[0], false, &words);
    plot_append_clipped(text, plot_words(&p->canvas, &words), PLOT_NORMAL, LABEL_ROOM);
    kb_text_fini(&words);
}

static double label_width(lines_plot *p, size_t colour)
{
    kb_text text = KB_TEXT_INIT;
    append_series_label(p, colour, &text);
    double width = kb_svg_text_width(plot_words(&p->canvas, &text), PLOT_NORMAL);
    kb_text_fini(&text);
    return width;
}

static void append_heading(lines_plot *p, kb_text *text, double room)
{
    kb_text words = KB_TEXT_INIT;
    append_label(p, 0, true, &words);
    plot_append_clipped(text, plot_words(&p->canvas, &words), PLOT_SMALL, room);
    kb_text_fini(&words);
}

enum { LEGEND_ROW = 18 };

/* The names of the series in rows, and what they are; returns how many rows. Draws nothing above
 * the top of the page. */
static size_t draw_legend(lines_plot *p, double y)
{
    double x = MARGIN, first = y;
    bool is_drawn = y > 0;
    kb_text text = KB_TEXT_INIT;
    append_heading(p, &text, LABEL_ROOM);
    const char *heading = plot_words(&p->canvas, &text);
    if (is_drawn)
        plot_text(&p->canvas, "soft", x, y, PLOT_SMALL, "start", heading);
    x += kb_svg_text_width(heading, PLOT_SMALL) + 14;
    kb_text_fini(&text);
    for (size_t i = 0; i < p->colours; i++) {
        double width = label_width(p, i) + 26;
        if (x + width > WIDTH - MARGIN) {
            x = MARGIN;
            y += LEGEND_ROW;
        }
        append_series_label(p, i, &text);
        if (is_drawn) {
            kb_text_printf(p->canvas.out, "<path class=\"line c%zu\" d=\"M%.1f %.1fh16\"/>\n", i, x,
                           y - 4);
            plot_text(&p->canvas, "ink", x + 21, y, PLOT_NORMAL, "start",
                      plot_words(&p->canvas, &text));
        }
        kb_text_fini(&text);
        x += width + 12;
    }
    return (size_t)lround((y - first) / LEGEND_ROW) + 1;
}

/* ---- A panel ----------------------------------------------------------------------------- */

typedef struct lines_panel {
    const sweep_column *figure;
    plot_unit unit;
    size_t facet;
    plot_scale y;
    plot_axis x;
    double left, right, top, bottom; /* of the area of lines */
} lines_panel;

/* All panels of a figure have the same scale. */
static void scale_figure(const lines_plot *p, const sweep_column *figure, lines_panel *panel)
{
    double min = (double)INFINITY, max = -(double)INFINITY;
    for (size_t i = 0; i < p->groups.starts[p->groups.count]; i++) {
        size_t row = p->groups.rows[i];
        double number = figure->numbers[row];
        if (p->results->rows[row].ok && !isnan(number)) {
            min = fmin(min, number);
            max = fmax(max, number);
        }
    }
    enum { SPREAD = 50, TICKS = 6 };
    if (min > max)
        min = max = 0;
    panel->unit = plot_choose_unit(figure->name, fmax(fabs(min), fabs(max)));
    /* Lines that hardly rise are legible only without the zero. */
    bool from_zero = max - min > 0.2 * max || !(max > min);
    plot_scale_init(&panel->y, min * panel->unit.factor, max * panel->unit.factor, SPREAD,
                    from_zero, TICKS);
}

/* A line of text above a panel, which empties the text. */
static void draw_panel_line(lines_plot *p, const lines_panel *panel, const char *style,
                            double above, kb_text *text)
{
    kb_text clipped = KB_TEXT_INIT;
    double left = panel->left - p->left + 2;
    plot_append_clipped(&clipped, plot_words(&p->canvas, text), PLOT_NORMAL, panel->right - left);
    plot_text(&p->canvas, style, left, panel->top - above, PLOT_NORMAL, "start",
              plot_words(&p->canvas, &clipped));
    kb_text_fini(&clipped);
    kb_text_fini(text);
}

/* "sips.count = 4", with less of the name if there is no room. */
static void append_facet(lines_plot *p, const lines_panel *panel, double room, kb_text *text)
{
    kb_text name = KB_TEXT_INIT, value = KB_TEXT_INIT;
    kb_text_puts(&value, " = ");
    for (size_t v = 0; v < p->facet->values.count; v++)
        if (p->facet_ranks[v] == panel->facet)
            sweep_append_value(&value, p->facet->values.items[v]);
    room -= kb_svg_text_width(plot_words(&p->canvas, &value), PLOT_NORMAL);
    plot_append_short_name(&name, p->facet);
    const char *words = plot_words(&p->canvas, &name), *dot = strrchr(words, '.');
    if (dot && kb_svg_text_width(words, PLOT_NORMAL) > room)
        words = dot + 1;
    plot_append_clipped(text, words, PLOT_NORMAL, room);
    kb_text_puts(text, kb_text_peek(&value));
    kb_text_fini(&value);
    kb_text_fini(&name);
}

static void draw_frame(lines_plot *p, const lines_panel *panel)
{
    plot_canvas *c = &p->canvas;
    for (size_t i = 0; i < panel->y.tick_count; i++) {
        double y = plot_at(&panel->y, panel->y.ticks[i].value);
        plot_line(c, "grid", panel->left, y, panel->right, y);
        plot_text(c, "soft", panel->left - 7, y + 4, PLOT_SMALL, "end", panel->y.ticks[i].label);
    }
    kb_text title = KB_TEXT_INIT;
    plot_append_title(&title, panel->figure, panel->unit.name);
    draw_panel_line(p, panel, p->facet ? "soft" : "ink", 12, &title);
    if (!p->facet)
        return;
    append_facet(p, panel, panel->right - panel->left + p->left, &title);
    draw_panel_line(p, panel, "ink", 12 + FACET_LINE, &title);
}

/* Of points with the same x, which differ in axes without effect, the first that is ok is taken. */
static bool is_repeated(const lines_plot *p, const lines_series *s, size_t i)
{
    uint32_t x = p->x->index[s->rows[i]];
    for (size_t j = i; j-- > 0 && p->x->index[s->rows[j]] == x;)
        if (p->results->rows[s->rows[j]].ok)
            return true;
    return false;
}

/* The place of a point; false if it has none. */
static bool place(const lines_plot *p, const lines_panel *panel, size_t row, double *x, double *y)
{
    double number = panel->figure->numbers[row];
    if (!p->results->rows[row].ok || isnan(number) || p->x->index[row] == SWEEP_NO_VALUE)
        return false;
    *x = panel->x.at[p->x->index[row]];
    *y = plot_at(&panel->y, number * panel->unit.factor);
    return true;
}

/* A line has a gap where a point failed. */
static void draw_path(lines_plot *p, const lines_panel *panel, const lines_series *s)
{
    double x, y;
    bool pen = false;
    kb_text_printf(p->canvas.out, "<path class=\"line c%zu\" d=\"", s->colour);
    for (size_t i = 0; i < s->count; i++) {
        if (is_repeated(p, s, i))
            continue;
        bool has_place = place(p, panel, s->rows[i], &x, &y);
        if (has_place)
            kb_text_printf(p->canvas.out, "%s%.1f %.1f", pen ? "L" : "M", x, y);
        pen = has_place;
    }
    kb_text_puts(p->canvas.out, "\"/>\n");
}

static void draw_marks(lines_plot *p, const lines_panel *panel, const lines_series *s)
{
    double x, y;
    for (size_t i = 0; i < s->count; i++) {
        if (is_repeated(p, s, i) || !place(p, panel, s->rows[i], &x, &y))
            continue;
        kb_text tip = KB_TEXT_INIT;
        append_label(p, s->rows[i], false, &tip);
        kb_text_puts(&tip, tip.length > 0 ? ", " : "");
        plot_append_short_name(&tip, p->x);
        kb_text_puts(&tip, " = ");
        sweep_append_value(&tip, sweep_cell(p->x, s->rows[i]));
        kb_text_puts(&tip, ": ");
        plot_append_number(&tip, panel->figure->numbers[s->rows[i]] * panel->unit.factor);
        kb_text_printf(&tip, " %s", panel->unit.name);
        plot_mark(&p->canvas, s->colour, x, y, plot_words(&p->canvas, &tip));
        kb_text_fini(&tip);
    }
}

/* ---- Labels at the ends of lines --------------------------------------------------------- */

typedef struct end_label {
    size_t colour;
    double x, y;  /* of the last point */
    double label; /* base line of the label */
} end_label;

static int compare_labels(const void *a, const void *b)
{
    const end_label *p = a, *q = b;
    if (p->y < q->y || p->y > q->y)
        return p->y < q->y ? -1 : 1;
    return (p->colour > q->colour) - (p->colour < q->colour);
}

/* Moves labels apart, downward and then from the bottom upward. */
static void spread(end_label *labels, size_t count, double top, double bottom)
{
    qsort(labels, count, sizeof *labels, compare_labels);
    for (size_t i = 0; i < count; i++) {
        labels[i].label = fmax(labels[i].y + 4, top);
        if (i > 0)
            labels[i].label = fmax(labels[i].label, labels[i - 1].label + LABEL_GAP);
    }
    for (size_t i = count; i-- > 0;) {
        labels[i].label = fmin(labels[i].label, bottom - (double)(count - 1 - i) * LABEL_GAP);
        /* A label that was pushed down goes up again as far as the one below lets it. */
        if (i + 1 < count)
            labels[i].label = fmin(labels[i].label, labels[i + 1].label - LABEL_GAP);
    }
}

static void draw_end_labels(lines_plot *p, const lines_panel *panel)
{
    end_label labels[PLOT_SERIES];
    size_t count = 0;
    for (size_t g = 0; g < p->groups.count; g++) {
        const lines_series *s = &p->series[g];
        end_label label = {.colour = s->colour};
        bool any = false;
        for (size_t i = 0; i < s->count; i++)
            any |= place(p, panel, s->rows[i], &label.x, &label.y);
        if (any)
            labels[count++] = label;
    }
    spread(labels, count, panel->top + 4, panel->bottom + 4);
    double x = panel->right + 14;
    for (size_t i = 0; i < count; i++) {
        const end_label *l = &labels[i];
        double from = l->x + 6, to = x - 4;
        if (fabs(l->label - 4 - l->y) > 4 || to - from > 12)
            kb_text_printf(p->canvas.out,
                           "<path class=\"line c%zu\" style=\"stroke-width:1;opacity:.55\" "
                           "d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
                           l->colour, from, l->y, to, l->label - 4);
        kb_text text = KB_TEXT_INIT;
        append_series_label(p, l->colour, &text);
        kb_text_printf(p->canvas.out, "<path class=\"line c%zu\" d=\"M%.1f %.1fh%d\"/>\n",
                       l->colour, x, l->label - 4, SWATCH);
        plot_text(&p->canvas, "ink", x + SWATCH + 6, l->label, PLOT_NORMAL, "start",
                  plot_words(&p->canvas, &text));
        kb_text_fini(&text);
    }
}

/* ---- The whole plot ---------------------------------------------------------------------- */

static kb_error *draw_panel(lines_plot *p, size_t number)
{
    lines_panel panel = {.figure = p->options->figures[number / p->facet_count],
                         .facet = number % p->facet_count};
    double x = MARGIN + (double)(number % p->panel_columns) * p->panel_w;
    size_t line = number / p->panel_columns;
    double y = p->top + (double)line * p->panel_h;
    scale_figure(p, panel.figure, &panel);
    panel.left = x + p->left;
    panel.right = x + p->panel_w - (p->panels > 1 ? 18 : p->label_room);
    panel.top = y + 30 + (p->facet ? FACET_LINE : 0);
    panel.bottom = y + p->panel_h - 52;
    panel.y.from = panel.bottom;
    panel.y.to = panel.top;
    KB_TRY(plot_axis_init(&panel.x, p->x, panel.left + 8, panel.right - 8));
    draw_frame(p, &panel);
    plot_draw_axis(&p->canvas, &panel.x, panel.left, panel.right, panel.bottom, true);
    for (size_t g = 0; g < p->groups.count; g++)
        if (p->series[g].facet == panel.facet)
            draw_path(p, &panel, &p->series[g]);
    for (size_t g = 0; g < p->groups.count; g++)
        if (p->series[g].facet == panel.facet)
            draw_marks(p, &panel, &p->series[g]);
    if (p->panels == 1 && p->colours > 1) {
        kb_text heading = KB_TEXT_INIT;
        append_heading(p, &heading, p->label_room - 14);
        plot_text(&p->canvas, "soft", panel.right + 14, panel.top - 12, PLOT_SMALL, "start",
                  plot_words(&p->canvas, &heading));
        kb_text_fini(&heading);
        draw_end_labels(p, &panel);
    }
    plot_axis_fini(&panel.x);
    return NULL;
}

/* Room for the labels of ticks and of series. */
static void measure(lines_plot *p)
{
    for (size_t i = 0; i < p->options->figure_count; i++) {
        lines_panel panel;
        scale_figure(p, p->options->figures[i], &panel);
        p->left = fmax(p->left, plot_tick_width(&panel.y) + 12);
    }
    p->panels = p->options->figure_count * p->facet_count;
    p->panel_columns = p->panels == 1 ? 1 : p->panels % 3 == 0 && p->panels != 6 ? 3 : 2;
    p->panel_w = (WIDTH - 2.0 * MARGIN) / (double)p->panel_columns;
    p->panel_h = (p->panels == 1 ? HEIGHT_ALONE : HEIGHT_AMONG) + 82 + (p->facet ? FACET_LINE : 0);
    p->label_room = 10;
    for (size_t i = 0; i < p->colours && p->colours > 1; i++)
        p->label_room = fmax(p->label_room, label_width(p, i) + SWATCH + 24);
    if (p->colours > 1) {
        kb_text heading = KB_TEXT_INIT;
        append_heading(p, &heading, LABEL_ROOM);
        p->label_room =
            fmax(p->label_room, kb_svg_text_width(kb_text_peek(&heading), PLOT_SMALL) + 18);
        kb_text_fini(&heading);
    }
}

static void append_default_title(const lines_plot *p, kb_text *text)
{
    for (size_t i = 0; i < p->options->figure_count; i++) {
        kb_text_puts(text, i > 0 ? ", " : "");
        plot_append_title(text, p->options->figures[i], "");
    }
    kb_text_printf(text, " over %s", p->x->name);
}

static kb_error *draw(lines_plot *p)
{
    plot_canvas *c = &p->canvas;
    measure(p);
    plot_head head = {.results = p->results, .roles = p->roles, .title = p->options->title};
    kb_text title = KB_TEXT_INIT;
    append_default_title(p, &title);
    head.fallback = plot_words(c, &title);
    size_t rows = KB_DIV_UP(p->panels, p->panel_columns);
    bool has_legend = p->panels > 1 && p->colours > 1;
    double legend = has_legend ? LEGEND_ROW * (double)draw_legend(p, 0) + 6 : 0;
    c->width = WIDTH;
    c->height = plot_head_height(&head) + legend + (double)rows * p->panel_h + 8;
    plot_draw_head(c, &head, p->colours, p->ordered);
    p->top = plot_head_height(&head);
    if (legend > 0)
        draw_legend(p, p->top + 16);
    p->top += legend;
    kb_error *err = NULL;
    for (size_t i = 0; i < p->panels && !err; i++)
        err = draw_panel(p, i);
    plot_end(c);
    kb_text_fini(&title);
    return err;
}

kb_error *plot_draw_lines(const sweep_results *results, const sweep_plot_options *options,
                          kb_text *out)
{
    lines_plot p = {.results = results, .options = options, .canvas = {.out = out}};
    kb_error *err = choose(&p);
    if (!err)
        err = draw(&p);
    free(p.series);
    free(p.facet_ranks);
    free(p.roles);
    sweep_row_groups_fini(&p.groups);
    return err;
}
