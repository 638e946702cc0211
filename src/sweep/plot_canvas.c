/* plot_canvas.c: see plot_canvas.h. */
#include "plot_canvas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Colours ----------------------------------------------------------------------------- */

/* Nine steps of viridis, which gets evenly lighter and is read by the colour-blind too. */
static const plot_colour viridis[] = {
    {0x44, 0x01, 0x54}, {0x47, 0x2d, 0x7b}, {0x3b, 0x52, 0x8b},
    {0x2c, 0x72, 0x8e}, {0x21, 0x91, 0x8c}, {0x28, 0xae, 0x80},
    {0x5e, 0xc9, 0x62}, {0xad, 0xdc, 0x30}, {0xfd, 0xe7, 0x25},
};
enum { STEPS = sizeof viridis / sizeof viridis[0] };

/* Series without an order, on light and on dark pages: colours of Okabe and Ito, with the yellow
 * darkened for white paper. */
static const char *const unordered[2][PLOT_SERIES] = {
    {"#0072b2", "#d55e00", "#009e73", "#b8479a", "#a67c00", "#3aa0dd", "#5b4bb7", "#5f6b7a"},
    {"#56b4e9", "#f0803c", "#2fc79a", "#e39acb", "#f0d03c", "#8fd0ff", "#a99cf5", "#a9b4c2"},
};

static unsigned char mix(unsigned char a, unsigned char b, double share)
{
    return (unsigned char)lround(a + (b - a) * share);
}

plot_colour plot_scale_colour(double share)
{
    double at = fmin(fmax(share, 0), 1) * (STEPS - 1);
    int step = at < STEPS - 2 ? (int)at : STEPS - 2;
    const plot_colour *a = &viridis[step], *b = &viridis[step + 1];
    return (plot_colour){mix(a->r, b->r, at - step), mix(a->g, b->g, at - step),
                         mix(a->b, b->b, at - step)};
}

static double linear(unsigned char channel)
{
    double c = channel / 255.0;
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

/* By the contrast ratios of WCAG: they are equal where the luminance is 0.179. */
bool plot_is_light(plot_colour colour)
{
    return 0.2126 * linear(colour.r) + 0.7152 * linear(colour.g) + 0.0722 * linear(colour.b) >
           0.179;
}

/* The part of the scale that stands out from the page; the largest value stands out most. */
static plot_colour ordered_colour(size_t i, size_t count, bool dark)
{
    double share = count > 1 ? (double)i / (double)(count - 1) : 1;
    return plot_scale_colour(dark ? 0.35 + 0.6 * share : 0.8 - 0.75 * share);
}

/* The class of the colours of series: pages with several plots have several sets of them. */
static void append_palette(kb_text *out, size_t count, bool ordered)
{
    if (ordered)
        kb_text_printf(out, "kb-plot-%zu", count);
    else
        kb_text_puts(out, "kb-plot-any");
}

static void append_series(kb_text *out, size_t count, bool ordered, bool dark)
{
    kb_text palette = KB_TEXT_INIT;
    append_palette(&palette, count, ordered);
    size_t colours = ordered ? count : PLOT_SERIES;
    for (size_t i = 0; i < colours && i < PLOT_SERIES; i++) {
        char colour[8];
        plot_colour o = ordered_colour(i, count, dark);
        snprintf(colour, sizeof colour, "#%02x%02x%02x", o.r, o.g, o.b);
        const char *value = ordered ? colour : unordered[dark][i];
        kb_text_printf(out, ".%s .c%zu{stroke:%s}.%s .f%zu{fill:%s}\n", kb_text_peek(&palette), i,
                       value, kb_text_peek(&palette), i, value);
    }
    out->failed |= palette.failed;
    kb_text_fini(&palette);
}

/* ---- The document ------------------------------------------------------------------------ */

static void append_style(kb_text *out, size_t series, bool ordered)
{
    kb_text_puts(
        out,
        "<style>\n"
        ".kb-plot text{font-family:system-ui,\"Segoe UI\",Roboto,Helvetica,Arial,sans-serif;"
        "font-variant-numeric:tabular-nums}\n"
        ".kb-plot .ink{fill:#1b2430}.kb-plot .soft{fill:#556070}\n"
        ".kb-plot .page{fill:#fff}.kb-plot .halo{stroke:#fff}\n"
        ".kb-plot .grid{stroke:#e2e6eb}.kb-plot .axis{stroke:#8993a1}\n"
        ".kb-plot .rest{fill:#b4bcc8}\n"
        ".kb-plot .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n");
    append_series(out, series, ordered, false);
    kb_text_puts(out, "@media (prefers-color-scheme:dark){\n"
                      ".kb-plot .ink{fill:#e8edf3}.kb-plot .soft{fill:#a3aebc}\n"
                      ".kb-plot .page{fill:#14181e}.kb-plot .halo{stroke:#14181e}\n"
                      ".kb-plot .grid{stroke:#2a313b}.kb-plot .axis{stroke:#6b7684}\n"
                      ".kb-plot .rest{fill:#4d5765}\n");
    append_series(out, series, ordered, true);
    kb_text_puts(out, "}\n</style>\n");
}

void plot_begin(plot_canvas *c, const char *title, size_t series, bool ordered)
{
    kb_text_puts(c->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"kb-plot ");
    append_palette(c->out, series, ordered);
    kb_text_printf(
        c->out,
        "\" role=\"img\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\">\n<title>",
        c->width, c->height, c->width, c->height);
    kb_svg_append_text(c->out, title);
    kb_text_puts(c->out, "</title>\n");
    append_style(c->out, series, ordered);
    kb_text_printf(c->out, "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n", c->width,
                   c->height);
}

void plot_end(plot_canvas *c)
{
    kb_text_puts(c->out, "</svg>\n");
}

const char *plot_words(plot_canvas *c, kb_text *text)
{
    kb_text_escape_from(text, 0);
    c->out->failed |= text->failed;
    return kb_text_peek(text);
}

/* ---- Shapes ------------------------------------------------------------------------------ */

static void put_text(plot_canvas *c, const char *style, const char *more, double x, double y,
                     double size, const char *anchor, const char *text)
{
    kb_text_printf(c->out,
                   "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" "
                   "text-anchor=\"%s\"%s>",
                   style, x, y, size, anchor, more);
    kb_svg_append_text(c->out, text);
    kb_text_puts(c->out, "</text>\n");
}

void plot_text(plot_canvas *c, const char *style, double x, double y, double size,
               const char *anchor, const char *text)
{
    put_text(c, style, "", x, y, size, anchor, text);
}

void plot_bold(plot_canvas *c, double x, double y, double size, const char *text)
{
    put_text(c, "ink", " font-weight=\"600\"", x, y, size, "start", text);
}

void plot_line(plot_canvas *c, const char *style, double x1, double y1, double x2, double y2)
{
    kb_text_printf(c->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                   style, x1, y1, x2, y2);
}

void plot_mark(plot_canvas *c, size_t series, double x, double y, const char *tip)
{
    kb_text_printf(c->out, "<circle class=\"f%zu halo\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"><title>",
                   series, x, y);
    kb_svg_append_text(c->out, tip);
    kb_text_puts(c->out, "</title></circle>\n");
}

/* ---- Numbers ----------------------------------------------------------------------------- */

void plot_append_number(kb_text *text, double number)
{
    double size = fabs(number);
    if (size >= 1e15 || (size > 0 && size < 1e-4)) {
        kb_text_printf(text, "%.2e", number);
        return;
    }
    char digits[64];
    int decimals = size >= 100 || !(size > 0) ? 0 : 2 - (int)floor(log10(size));
    snprintf(digits, sizeof digits, "%.*f", decimals, number);
    char *point = strchr(digits, '.');
    if (point) {
        char *end = digits + strlen(digits);
        while (end[-1] == '0')
            *--end = '\0';
        if (end[-1] == '.')
            *--end = '\0';
        kb_text_puts(text, digits);
        return;
    }
    size_t length = strlen(digits), sign = digits[0] == '-';
    for (size_t i = 0; i < length; i++) {
        if (i > sign && (length - i) % 3 == 0)
            kb_text_puts(text, ",");
        kb_text_append(text, &digits[i], 1);
    }
}
