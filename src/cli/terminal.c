/* terminal.c: headings, paragraphs, and the width of characters: see terminal.h. */
#include "terminal.h"

#include "base/base.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether to print escape codes: on a terminal, unless NO_COLOR is set. */
static bool wants_colour(FILE *out)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_colour && no_colour[0] != '\0')
        return false;
    if (terminal && strcmp(terminal, "dumb") == 0)
        return false;
    return isatty(fileno(out)) == 1;
}

void cli_print_bold(FILE *out, bool on)
{
    if (wants_colour(out))
        fputs(on ? "\033[1m" : "\033[0m", out);
}

void cli_print_heading(FILE *out, const char *text)
{
    cli_print_bold(out, true);
    fputs(text, out);
    cli_print_bold(out, false);
    fputc('\n', out);
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

/* Characters that are two columns wide, and combining ones: the ranges that matter. */
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
