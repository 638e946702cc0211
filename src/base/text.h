/*
 * text.h: a string that grows.
 *
 * Out of memory is sticky: appending goes on doing nothing, and kb_text_take() says so once at the
 * end. `bytes` is NULL while empty and ends in NUL otherwise; the content may hold NULs too.
 */
#ifndef KB_BASE_TEXT_H
#define KB_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct kb_text {
    char *bytes;
    size_t length;
    size_t capacity;
    bool failed;
} kb_text;

#define KB_TEXT_INIT ((kb_text){0})

void kb_text_fini(kb_text *text);

void kb_text_append(kb_text *text, const char *bytes, size_t length);
void kb_text_puts(kb_text *text, const char *string);
void kb_text_printf(kb_text *text, const char *format, ...) KB_PRINTF(2, 3);
void kb_text_vprintf(kb_text *text, const char *format, va_list args) KB_PRINTF(2, 0);

/*
 * Makes what follows `start` fit for one line of a terminal: control characters and bytes that are
 * not UTF-8 become \n, \t, \xNN. For people to read; it cannot be undone, as \ itself stays.
 */
void kb_text_escape_from(kb_text *text, size_t start);

/* Nouns after a count: printf("%u SIP%s", sips, kb_plural(sips)). */
static inline const char *kb_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* The same where the plural has another form: kb_noun(count, "axis", "axes"). */
static inline const char *kb_noun(uint64_t count, const char *one, const char *several)
{
    return count == 1 ? one : several;
}

/* The exact nanoseconds, with all six decimals: "12.345678". */
void kb_text_append_ns(kb_text *text, kb_time time_fs);

/* The content so far, "" if none. Valid until the text changes. */
const char *kb_text_peek(const kb_text *text);

/* Hands the string to the caller, who frees it, and empties the text. NULL if memory ran out. */
KB_MUST_USE char *kb_text_take(kb_text *text);

#endif
