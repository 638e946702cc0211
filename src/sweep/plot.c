/* plot.c: chooses the kind of a plot; see plot.h. */
#include "plot_private.h"

enum { MARGIN = 20, LINE = 17 };

/* ---- Heads ------------------------------------------------------------------------------- */

/* The line of axes that are not shown, and that of failures. */
static void append_line(const plot_head *head, int line, kb_text *text)
{
    if (line == 0)
        plot_append_notes(text, head->results, head->roles);
    else
        plot_append_failures(text, head->results);
}

double plot_head_height(const plot_head *head)
{
    double height = MARGIN + PLOT_TITLE + 6;
    for (int line = 0; line < 2; line++) {
        kb_text text = KB_TEXT_INIT;
        append_line(head, line, &text);
        height += text.length > 0 ? LINE : 0;
        kb_text_fini(&text);
    }
    return height;
}

void plot_draw_head(plot_canvas *c, const plot_head *head, size_t series, bool ordered)
{
    kb_text title = KB_TEXT_INIT, clipped = KB_TEXT_INIT;
    kb_text_puts(&title, head->title ? head->title : head->fallback);
    plot_begin(c, plot_words(c, &title), series, ordered);
    /* Bold texts are wider. */
    plot_append_clipped(&clipped, plot_words(c, &title), 1.1 * PLOT_TITLE, c->width - 2 * MARGIN);
    double y = MARGIN + PLOT_TITLE - 4;
    plot_bold(c, MARGIN, y, PLOT_TITLE, plot_words(c, &clipped));
    kb_text_fini(&clipped);
    kb_text_fini(&title);
    for (int line = 0; line < 2; line++) {
        kb_text text = KB_TEXT_INIT, shown = KB_TEXT_INIT;
        append_line(head, line, &text);
        plot_append_clipped(&shown, plot_words(c, &text), PLOT_NORMAL, c->width - 2 * MARGIN);
        if (shown.length > 0)
            plot_text(c, "soft", MARGIN, y += LINE + (line == 0 ? 2 : 0), PLOT_NORMAL, "start",
                      plot_words(c, &shown));
        kb_text_fini(&shown);
        kb_text_fini(&text);
    }
}

/* ---- Kinds ------------------------------------------------------------------------------- */

/* Two axes with more values than a plot of lines has colours, and no third one, make a heat map. */
static sweep_plot_kind choose_kind(const sweep_results *results, const sweep_plot_options *options)
{
    if (options->kind != SWEEP_PLOT_AUTO)
        return options->kind;
    if (options->objectives && options->objectives->count == 2)
        return SWEEP_PLOT_PARETO;
    if (options->y)
        return SWEEP_PLOT_HEAT;
    size_t axes = 0;
    bool many = true;
    for (size_t i = 0; i < results->axis_count; i++) {
        const sweep_column *axis = &results->columns.items[i];
        axes += sweep_varies(axis);
        many &= !sweep_varies(axis) || axis->values.count > PLOT_SERIES - 2;
    }
    return axes == 2 && many && options->figure_count == 1 ? SWEEP_PLOT_HEAT : SWEEP_PLOT_LINES;
}

kb_error *sweep_plot(const sweep_results *results, const sweep_plot_options *options, kb_text *out)
{
    kb_error *err;
    switch (choose_kind(results, options)) {
    case SWEEP_PLOT_HEAT:
        err = plot_draw_heat(results, options, out);
        break;
    case SWEEP_PLOT_PARETO:
        err = plot_draw_pareto(results, options, out);
        break;
    default:
        err = plot_draw_lines(results, options, out);
    }
    if (!err && out->failed)
        err = kb_error_nomem();
    return err;
}
