/* text.c: a string that grows. */
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

void kb_text_fini(kb_text *text)
{
    free(text->bytes);
    *text = KB_TEXT_INIT;
}

/* Makes room for `extra` bytes and a NUL behind the content. */
static bool reserve(kb_text *text, size_t extra)
{
    if (text->failed)
        return false;
    if (extra < text->capacity - text->length)
        return true;
    size_t wanted;
    char *grown = NULL;
    if (kb_size_add(extra, 1, &wanted))
        grown = kb_grow_array(text->bytes, text->length, wanted, 1, &text->capacity);
    if (!grown) {
        text->failed = true;
        return false;
    }
    text->bytes = grown;
    return true;
}

void kb_text_append(kb_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    if (length > 0)
        memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void kb_text_puts(kb_text *text, const char *string)
{
    kb_text_append(text, string, strlen(string));
}

void kb_text_printf(kb_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    kb_text_vprintf(text, format, args);
    va_end(args);
}

void kb_text_vprintf(kb_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0) {
        text->failed = true; /* longer than INT_MAX, or the C library itself is out of memory */
    } else if (reserve(text, (size_t)length)) {
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

static void append_escaped_byte(kb_text *text, unsigned char byte)
{
    switch (byte) {
    case '\n':
        kb_text_puts(text, "\\n");
        break;
    case '\r':
        kb_text_puts(text, "\\r");
        break;
    case '\t':
        kb_text_puts(text, "\\t");
        break;
    default:
        kb_text_printf(text, "\\x%02x", byte);
    }
}

/* The length of the character at `bytes` if it may be shown as it is, else 0. */
static size_t showable(const char *bytes, size_t size)
{
    uint32_t character;
    size_t length = kb_utf8_decode(bytes, size, &character);
    return length > 0 && !kb_utf8_is_control(character) ? length : 0;
}

void kb_text_escape_from(kb_text *text, size_t start)
{
    if (start == text->length)
        return;
    size_t clean = start;
    for (size_t step; (step = showable(text->bytes + clean, text->length - clean)) > 0;)
        clean += step;
    if (clean == text->length)
        return; /* nearly always: nothing to escape, nothing to allocate */

    kb_text escaped = KB_TEXT_INIT;
    kb_text_append(&escaped, text->bytes, clean);
    for (size_t i = clean; i < text->length;) {
        size_t length = showable(text->bytes + i, text->length - i);
        if (length > 0) {
            kb_text_append(&escaped, text->bytes + i, length);
            i += length;
        } else {
            append_escaped_byte(&escaped, (unsigned char)text->bytes[i]);
            i++;
        }
    }
    escaped.failed |= text->failed;
    kb_text_fini(text);
    *text = escaped;
}

void kb_text_append_ns(kb_text *text, kb_time time_fs)
{
    /* Unsigned, so that the most negative time has a magnitude too. */
    uint64_t magnitude = time_fs < 0 ? 0 - (uint64_t)time_fs : (uint64_t)time_fs;
    uint64_t ns = (uint64_t)KB_NS;
    kb_text_printf(text, "%s%" PRIu64 ".%06" PRIu64, time_fs < 0 ? "-" : "", magnitude / ns,
                   magnitude % ns);
}

const char *kb_text_peek(const kb_text *text)
{
    return text->bytes ? text->bytes : "";
}

char *kb_text_take(kb_text *text)
{
    kb_text_append(text, "", 0); /* an empty text is a string too */
    if (text->failed) {
        kb_text_fini(text);
        return NULL;
    }
    char *bytes = text->bytes;
    *text = KB_TEXT_INIT;
    return bytes;
}
