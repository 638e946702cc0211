/*
 * parens.c: finds an unclosed parenthesis.
 *
 * Operations of kernels are macros, and a compiler searches the end of a macro's arguments in the
 * whole file: gcc reports the end of the file, not the call. But a `;` directly inside parentheses
 * is valid only in a `for` (elsewhere it is inside braces), so the first other one shows which
 * parenthesis is unclosed. Directives are skipped, as a macro may be unbalanced.
 */
#include "parens.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 256 };

typedef struct opened {
    char with;
    bool is_for;
    paren_place place;
} opened;

typedef struct scan {
    const char *at, *end;
    int line;
    const char *line_start;
    bool is_for;   /* the last word was `for` */
    bool is_fresh; /* only blanks in this line so far */
    opened stack[MAX_DEPTH];
    size_t depth;
} scan;

static void step(scan *s)
{
    if (*s->at == '\n') {
        s->line++;
        s->line_start = s->at + 1;
        s->is_fresh = true;
    }
    s->at++;
}

static bool looking_at(const scan *s, const char *what)
{
    size_t length = strlen(what);
    return (size_t)(s->end - s->at) >= length && memcmp(s->at, what, length) == 0;
}

/* Up to and with `what`. */
static void skip_past(scan *s, const char *what)
{
    while (s->at < s->end && !looking_at(s, what))
        step(s);
    for (size_t i = 0; i < strlen(what) && s->at < s->end; i++)
        step(s);
}

/* A string or a character. */
static void skip_quoted(scan *s)
{
    char quote = *s->at;
    step(s);
    while (s->at < s->end && *s->at != quote && *s->at != '\n') {
        if (*s->at == '\\' && s->at + 1 < s->end)
            step(s);
        step(s);
    }
    if (s->at < s->end)
        step(s);
}

/* With the lines that continue it. */
static void skip_directive(scan *s)
{
    while (s->at < s->end && *s->at != '\n') {
        if (*s->at == '\\' && s->at + 1 < s->end)
            step(s);
        step(s);
    }
}

static void skip_word(scan *s)
{
    const char *start = s->at;
    while (s->at < s->end && (isalnum((unsigned char)*s->at) || *s->at == '_'))
        step(s);
    s->is_for = s->at - start == 3 && memcmp(start, "for", 3) == 0;
}

static bool skip_non_code(scan *s)
{
    if (looking_at(s, "//"))
        skip_past(s, "\n");
    else if (looking_at(s, "/*"))
        skip_past(s, "*/");
    else if (*s->at == '#' && s->is_fresh)
        skip_directive(s);
    else if (*s->at == '"' || *s->at == '\'')
        skip_quoted(s);
    else if (isspace((unsigned char)*s->at))
        step(s);
    else
        return false;
    return true;
}

/* True for a `;` directly inside parentheses that are not of a `for`. */
static bool take(scan *s)
{
    char c = *s->at;
    const opened *top = s->depth > 0 ? &s->stack[s->depth - 1] : NULL;
    if (strchr("([{", c) && s->depth < MAX_DEPTH)
        s->stack[s->depth++] = (opened){c, s->is_for, {s->line, (int)(s->at - s->line_start) + 1}};
    else if (strchr(")]}", c) && s->depth > 0)
        s->depth--;
    else if (c == ';' && top && top->with == '(' && !top->is_for)
        return true;
    s->is_for = false;
    step(s);
    return false;
}

bool parens_find_open(const char *text, size_t length, paren_place *place)
{
    scan s = {.at = text, .end = text + length, .line = 1, .line_start = text, .is_fresh = true};
    while (s.at < s.end && s.depth < MAX_DEPTH) {
        if (skip_non_code(&s))
            continue;
        s.is_fresh = false;
        if (isalnum((unsigned char)*s.at) || *s.at == '_') {
            skip_word(&s);
        } else if (*s.at == '\0') {
            step(&s);
        } else if (take(&s)) {
            *place = s.stack[s.depth - 1].place;
            return true;
        }
    }
    return false;
}
