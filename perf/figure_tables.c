/*
 * figure_tables.c: collects the figures and prints those of each suite as a table.
 *
 * A row is what its figures' names have in common before the last dot. The first value of a row
 * stands in it; a second one, of another unit, gets a row under its full name.
 */
#include "suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the project asks of itself, on one core. Ratios to another build are to one of de3b4b1, or
 * of f55aa19 for models, which the former does not have. */
static const struct bar {
    const char *name;
    double limit;
    bool at_least; /* or at most */
    const char *unit;
} bars[] = {
    {.name = "hold.h4.n1000.vs_floor", .limit = 2, .unit = "x floor"},
    {.name = "hold.h4.n1000.vs_heap", .limit = 3, .at_least = true, .unit = "x heap"},
    {.name = "hold.h4.n10000.vs_floor", .limit = 2, .unit = "x floor"},
    {.name = "hold.h4.n10000.vs_heap", .limit = 3, .at_least = true, .unit = "x heap"},
    {.name = "coroutine.resume.ns", .limit = 15, .unit = " ns"},
    {.name = "mm1.vs_simpy", .limit = 100, .at_least = true, .unit = "x SimPy"},
    {.name = "mm1.coroutine.vs_simpy", .limit = 60, .at_least = true, .unit = "x SimPy"},
    {.name = "fabric.dma.pe256.us_per_read", .limit = 55, .unit = " us"},
    {.name = "fabric.dma.pe65536.vs_pe256", .limit = 3, .unit = "x"},
    {.name = "fabric.dma.pe65536.idle_memory", .limit = 1, .unit = ""},
    {.name = "fabric.uniform.pe256.instructions", .limit = 450, .unit = " instr."},
    {.name = "fabric.uniform.pe65536.vs_pe256", .limit = 3, .unit = "x"},
    {.name = "messages.add.instructions", .limit = 900, .unit = " instr."},
    {.name = "messages.ring16.instructions", .limit = 2600, .unit = " instr."},
    {.name = "collectives.ring256_8.instructions", .limit = 3200, .unit = " instr."},
    {.name = "collectives.ring256_2048.instructions", .limit = 3000, .unit = " instr."},
    {.name = "memory.idle_pe.bytes", .limit = 1024, .unit = " bytes"},
    {.name = "memory.running_pe.bytes", .limit = 4096, .unit = " bytes"},
    {.name = "commands.ring256_8.vs_other", .limit = 6, .at_least = true, .unit = "x"},
    {.name = "commands.ring256_2048.vs_other", .limit = 9, .at_least = true, .unit = "x"},
    {.name = "commands.rsag1024.s", .limit = 2.5, .unit = " s"},
    {.name = "commands.rsag1024.mb", .limit = 100, .unit = " MB"},
    {.name = "commands.rsag1024.vs_other", .limit = 8, .at_least = true, .unit = "x"},
    {.name = "commands.uniform.vs_other", .limit = 1.7, .at_least = true, .unit = "x"},
    {.name = "commands.mesh8x8.vs_other", .limit = 2, .at_least = true, .unit = "x"},
    {.name = "commands.qkv8192.vs_other", .limit = 5, .at_least = true, .unit = "x"},
    {.name = "commands.qkv3072.vs_other", .limit = 3, .at_least = true, .unit = "x"},
    {.name = "commands.decode70b.vs_other", .limit = 4, .at_least = true, .unit = "x"},
    {.name = "commands.decode70b.mb", .limit = 1000, .unit = " MB"},
    {.name = "commands.decode405b.vs_other", .limit = 4, .at_least = true, .unit = "x"},
    {.name = "commands.prefill70b.vs_other", .limit = 4, .at_least = true, .unit = "x"},
};

/* Figures that stand beside the value. */
static const struct column {
    const char *metric;
    const char *heading;
    int decimals;
} columns[] = {
    {.metric = "vs_floor", .heading = "x floor", .decimals = 2},
    {.metric = "vs_heap", .heading = "x heap", .decimals = 2},
    {.metric = "vs_simpy", .heading = "x SimPy", .decimals = 1},
    {.metric = "vs_lean_simpy", .heading = "x lean", .decimals = 1},
    {.metric = "vs_other", .heading = "x other", .decimals = 2},
    {.metric = "instructions", .heading = "instr.", .decimals = 1},
};
enum { column_count = sizeof columns / sizeof columns[0], column_width = 9 };

bool bench_wants(const bench *b, const char *format, ...)
{
    char name[sizeof b->stats.items->name];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);

    size_t length = strlen(name);
    size_t asked = strlen(b->only);
    if (asked <= length)
        return strncmp(b->only, name, asked) == 0;
    return strncmp(b->only, name, length) == 0 && b->only[length] == '.';
}

void bench_report(bench *b, double value, const char *unit, const char *format, ...)
{
    bench_figure figure = {.value = value, .unit = unit};
    va_list args;

    va_start(args, format);
    vsnprintf(figure.name, sizeof figure.name, format, args);
    va_end(args);
    if (!kb_vec_push(&b->stats, figure))
        b->failed = true;
}

void bench_progress(const bench *b, const char *format, ...)
{
    va_list args;

    if (!b->on_terminal)
        return;
    va_start(args, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    fflush(stderr);
    va_end(args);
}

/* The part of a name before the last dot. */
static int row_length(const bench_figure *figure)
{
    const char *dot = strrchr(figure->name, '.');
    return dot != NULL ? (int)(dot - figure->name) : (int)strlen(figure->name);
}

static bool same_row(const bench_figure *a, const bench_figure *b)
{
    int length = row_length(a);
    return length == row_length(b) && strncmp(a->name, b->name, (size_t)length) == 0;
}

static const struct column *column_of(const bench_figure *figure)
{
    for (const struct column *c = columns; c < columns + column_count; c++) {
        const char *end = figure->name + row_length(figure);
        if (end[0] == '.' && strcmp(end + 1, c->metric) == 0)
            return c;
    }
    return NULL;
}

/* The figure of a row that belongs into a column, among those that are being printed. */
static const bench_figure *cell(const bench *b, const bench_figure *row, const struct column *c)
{
    for (size_t i = b->printed; i < b->stats.count; i++) {
        const bench_figure *figure = &b->stats.items[i];
        if (column_of(figure) == c && (row == NULL || same_row(row, figure)))
            return figure;
    }
    return NULL;
}

/* ---- Lines of the table ---- */

static void add_bar(kb_text *line, const bench_figure *figure, const char **gap)
{
    for (const struct bar *bar = bars; bar < bars + sizeof bars / sizeof bars[0]; bar++) {
        if (strcmp(bar->name, figure->name) != 0)
            continue;
        bool met = bar->at_least ? figure->value >= bar->limit : figure->value <= bar->limit;
        bool millions = bar->limit >= 1e5;
        kb_text_printf(line, "%sbar %g%s%s, %s", *gap, millions ? bar->limit / 1e6 : bar->limit,
                       millions ? " M" : "", bar->unit, met ? "met" : "missed");
        *gap = "; ";
    }
}

static void add_value(kb_text *line, const bench_figure *figure)
{
    bool millions = figure->value >= 1e5;

    kb_text_printf(line, " %8.2f %s %-13s", millions ? figure->value / 1e6 : figure->value,
                   millions ? "M" : " ", figure->unit);
}

/* Prints the line without the spaces at its end, and empties it. */
static void print_line(kb_text *line)
{
    const char *text = kb_text_peek(line);
    size_t length = strlen(text);

    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length > 0)
        printf("%.*s\n", (int)length, text);
    kb_text_fini(line);
}

static void print_row(const bench *b, const bench_figure *value)
{
    const bench_figure *first = cell(b, value, NULL);
    int length = value == first ? row_length(value) : (int)strlen(value->name);
    const char *gap = "  ";
    kb_text line = KB_TEXT_INIT, judgement = KB_TEXT_INIT;

    kb_text_printf(&line, "  %-36.*s", length, value->name);
    add_value(&line, value);
    add_bar(&judgement, value, &gap);
    for (const struct column *c = columns; c < columns + column_count; c++) {
        const bench_figure *figure = value == first ? cell(b, value, c) : NULL;
        if (figure != NULL) {
            kb_text_printf(&line, "%*.*f", column_width, c->decimals, figure->value);
            add_bar(&judgement, figure, &gap);
        } else if (cell(b, NULL, c) != NULL) {
            kb_text_printf(&line, "%*s", column_width, "");
        }
    }
    kb_text_puts(&line, kb_text_peek(&judgement));
    print_line(&line);
    kb_text_fini(&judgement);
}

static void print_heading(const bench *b, const char *title)
{
    kb_text line = KB_TEXT_INIT;

    printf("\n%s\n", title);
    kb_text_printf(&line, "  %-36s %8s   %-13s", "", "", "");
    for (const struct column *c = columns; c < columns + column_count; c++) {
        if (cell(b, NULL, c) != NULL)
            kb_text_printf(&line, "%*s", column_width, c->heading);
    }
    print_line(&line);
}

void bench_print_table(bench *b, const char *title)
{
    bench_progress(b, "%s", "");
    if (b->printed == b->stats.count)
        return;

    print_heading(b, title);
    for (size_t i = b->printed; i < b->stats.count; i++) {
        if (column_of(&b->stats.items[i]) == NULL)
            print_row(b, &b->stats.items[i]);
    }
    fflush(stdout);
    b->printed = b->stats.count;
}
