/*
 * table.c: aligned tables and numbers. Column widths are counted in characters of a terminal, not
 * in bytes. Numbers do not depend on the locale.
 */
#include "table.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char bold[] = "\033[1m", plain[] = "\033[0m";

bool cli_wants_colour(FILE *out)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_colour && no_colour[0] != '\0')
        return false;
    if (terminal && strcmp(terminal, "dumb") == 0)
        return false;
    return isatty(fileno(out)) == 1;
}

void cli_print_heading(FILE *out, const char *text)
{
    bool colour = cli_wants_colour(out);
    fprintf(out, "%s%s%s\n", colour ? bold : "", text, colour ? plain : "");
}

void cli_print_wrapped(FILE *out, const char *text)
{
    enum { WIDTH = 96 };
    size_t column = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        bool wraps = column > 0 && column + 1 + length > WIDTH;
        fprintf(out, "%s%.*s", column == 0 ? "  " : wraps ? "\n  " : " ", (int)length, text);
        column = wraps || column == 0 ? length : column + 1 + length;
        text += length + strspn(text + length, " ");
    }
    fputc('\n', out);
}

/* Characters that take two columns, and those that take none: the ranges that matter. */
static size_t character_width(uint32_t c)
{
    static const struct {
        uint32_t first, last;
        size_t width;
    } ranges[] = {
        {0x300, 0x36f, 0},     {0x200b, 0x200f, 0}, {0x20d0, 0x20ff, 0}, {0xfe00, 0xfe0f, 0},
        {0x1100, 0x115f, 2},   {0x2e80, 0xa4cf, 2}, {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2},
        {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2}, {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2},
        {0x20000, 0x3fffd, 2},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return ranges[i].width;
    return 1;
}

size_t cli_text_width(const char *text, size_t length)
{
    size_t width = 0;
    for (size_t at = 0; at < length;) {
        uint32_t character = 0;
        size_t bytes = kb_utf8_decode(text + at, length - at, &character);
        width += character_width(character);
        at += bytes > 0 ? bytes : 1;
    }
    return width;
}

/* ---- Tables ------------------------------------------------------------------------------ */

void cli_table_init(cli_table *table, const cli_column *columns, size_t count)
{
    *table = (cli_table){.columns = columns, .column_count = count};
}

void cli_table_cell(cli_table *table, const char *format, ...)
{
    size_t start = table->text.length;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&table->text, format, args);
    va_end(args);
    kb_text_escape_from(&table->text, start);
    if (table->text.failed || !kb_vec_push(&table->ends, table->text.length))
        table->failed = true;
}

typedef struct cell {
    const char *text;
    size_t length;
} cell;

static cell cell_at(const cli_table *table, size_t i)
{
    size_t start = i == 0 ? 0 : table->ends.items[i - 1];
    return (cell){kb_text_peek(&table->text) + start, table->ends.items[i] - start};
}

static void print_cell(const cli_table *table, size_t column, cell c, size_t width, FILE *out)
{
    size_t used = cli_text_width(c.text, c.length);
    int gap = (int)(width > used ? width - used : 0);
    bool last = column + 1 == table->column_count;
    if (last && c.length == 0)
        return; /* nothing trails a row */
    fputs("  ", out);
    if (!table->columns[column].left)
        fprintf(out, "%*s", gap, "");
    fwrite(c.text, 1, c.length, out);
    if (table->columns[column].left && !last)
        fprintf(out, "%*s", gap, "");
}

static void print_table(const cli_table *table, const size_t *widths, FILE *out)
{
    size_t columns = table->column_count;
    bool colour = cli_wants_colour(out);
    KB_ASSERT(columns > 0);
    fputs(colour ? bold : "", out);
    for (size_t c = 0; c < columns; c++) {
        const char *title = table->columns[c].title;
        print_cell(table, c, (cell){title, strlen(title)}, widths[c], out);
    }
    fprintf(out, "%s\n", colour ? plain : "");
    for (size_t i = 0; i < table->ends.count; i++) {
        print_cell(table, i % columns, cell_at(table, i), widths[i % columns], out);
        if (i % columns + 1 == columns)
            fputc('\n', out);
    }
}

kb_code cli_table_print(cli_table *table, FILE *out)
{
    size_t columns = table->column_count;
    size_t *widths = kb_alloc_array(columns, sizeof *widths);
    bool good = widths && !table->failed;
    if (good) {
        KB_ASSERT(table->ends.count % columns == 0);
        for (size_t c = 0; c < columns; c++)
            widths[c] = cli_text_width(table->columns[c].title, strlen(table->columns[c].title));
        for (size_t i = 0; i < table->ends.count; i++) {
            cell c = cell_at(table, i);
            size_t width = cli_text_width(c.text, c.length);
            if (width > widths[i % columns])
                widths[i % columns] = width;
        }
        print_table(table, widths, out);
    }
    free(widths);
    kb_text_fini(&table->text);
    kb_vec_fini(&table->ends);
    return good ? KB_OK : cli_report(kb_error_nomem());
}
