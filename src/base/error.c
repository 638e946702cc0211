/*
 * error.c: errors as values.
 *
 * Invariant: `message` and `detail` are complete; an error that could not be built whole does not
 * exist, and no_memory stands in for it. no_memory is in read-only storage: nothing may write to
 * an error before asking is_constant().
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"

struct kb_error {
    kb_code code;
    char *message;
    kb_text detail;
    bool secondary;
};

static char no_memory_message[] = "out of memory"; /* R2 */
static const kb_error no_memory = {.code = KB_ERR_HOST, .message = no_memory_message};

static bool is_constant(const kb_error *err)
{
    return err == &no_memory;
}

kb_error *kb_error_nomem(void)
{
    /* By way of an integer, because the constness is meant to go: callers own and free errors. */
    return (kb_error *)(uintptr_t)&no_memory;
}

static bool is_error_code(kb_code code)
{
    switch (code) {
    case KB_ERR_CHECK:
    case KB_ERR_INPUT:
    case KB_ERR_FAULT:
    case KB_ERR_DEADLOCK:
    case KB_ERR_BUG:
    case KB_ERR_HOST:
        return true;
    default:
        return false;
    }
}

kb_code kb_code_of_errno(int error)
{
    switch (error) {
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
    case EIO:
        return KB_ERR_HOST;
    default:
        return KB_ERR_INPUT;
    }
}

/* Takes over the text in every case. */
static kb_error *from_text(kb_code code, kb_text *message)
{
    KB_ASSERT(is_error_code(code));
    kb_text_escape_from(message, 0);
    char *line = kb_text_take(message);
    kb_error *err = calloc(1, sizeof *err);
    if (!line || !err) {
        free(line);
        free(err);
        return kb_error_nomem();
    }
    err->code = code;
    err->message = line;
    return err;
}

/* Codes become exit statuses, of which the system keeps 8 bits: 256 would pass for success. */
kb_error *kb_error_new(kb_code code, const char *format, ...)
{
    kb_text message = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&message, format, args);
    va_end(args);
    if (is_error_code(code))
        return from_text(code, &message);
    kb_error *err = from_text(KB_ERR_FAULT, &message);
    kb_error_add_detail(err, "kb_error_new() was called with the invalid error code %d", (int)code);
    return err;
}

kb_error *kb_error_at(kb_code code, const kb_srcloc *loc, const char *format, ...)
{
    kb_text message = KB_TEXT_INIT;
    kb_text_puts(&message, loc->file);
    if (loc->line > 0)
        kb_text_printf(&message, ":%d:%d", loc->line, loc->column);
    kb_text_puts(&message, ": ");
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&message, format, args);
    va_end(args);
    return from_text(code, &message);
}

kb_error *kb_error_wrap(kb_error *cause, const char *format, ...)
{
    KB_ASSERT(cause);
    if (is_constant(cause))
        return cause;
    kb_text message = KB_TEXT_INIT;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&message, format, args);
    va_end(args);
    kb_text_escape_from(&message, 0);
    kb_text_printf(&message, ": %s", cause->message);
    char *line = kb_text_take(&message);
    if (line) {
        free(cause->message);
        cause->message = line;
    }
    return cause;
}

/* Takes the lines over; they are dropped if memory ran out. */
static void append_detail(kb_error *err, kb_text *lines)
{
    if (!lines->failed)
        kb_text_append(&err->detail, kb_text_peek(lines), lines->length);
    err->detail.failed = false; /* lines were lost, the rest is whole */
    kb_text_fini(lines);
}

void kb_error_add_detail(kb_error *err, const char *format, ...)
{
    KB_ASSERT(err);
    if (is_constant(err))
        return;
    kb_text line = KB_TEXT_INIT;
    if (err->detail.length > 0)
        kb_text_puts(&line, "\n");
    size_t start = line.length;
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&line, format, args);
    va_end(args);
    kb_text_escape_from(&line, start);
    append_detail(err, &line);
}

void kb_error_add_detail_of(kb_error *err, const kb_error *from)
{
    KB_ASSERT(err);
    if (is_constant(err) || from->detail.length == 0)
        return;
    kb_text lines = KB_TEXT_INIT; /* which have been escaped already */
    if (err->detail.length > 0)
        kb_text_puts(&lines, "\n");
    kb_text_append(&lines, from->detail.bytes, from->detail.length);
    append_detail(err, &lines);
}

kb_error *kb_error_copy(const kb_error *err)
{
    if (is_constant(err))
        return kb_error_nomem();
    kb_error *copy = kb_error_new(err->code, "%s", err->message);
    kb_error_add_detail_of(copy, err);
    if (err->secondary)
        kb_error_set_secondary(copy);
    return copy;
}

void kb_error_set_secondary(kb_error *err)
{
    KB_ASSERT(err);
    if (!is_constant(err))
        err->secondary = true;
}

bool kb_error_is_secondary(const kb_error *err)
{
    return err && err->secondary;
}

kb_code kb_error_code(const kb_error *err)
{
    return err ? err->code : KB_OK;
}

const char *kb_error_message(const kb_error *err)
{
    return err ? err->message : "";
}

const char *kb_error_detail(const kb_error *err)
{
    return err ? kb_text_peek(&err->detail) : "";
}

void kb_error_free(kb_error *err)
{
    if (!err || is_constant(err))
        return;
    free(err->message);
    kb_text_fini(&err->detail);
    free(err);
}
