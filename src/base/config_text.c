/*
 * config_text.c: which bytes a configuration may be made of.
 *
 * Checked before the parser sees them, because there the position is known and nothing can go wrong
 * yet. Escapes such as "\\0" make bytes that were not in the file, so values are checked once more.
 */
#include <string.h>

#include "base/config_node.h"
#include "base/utf8.h"

/* Lines that begin with %: libyaml 0.2.5 compares each %TAG with all before it. */
enum { max_directives = 100 };

/*
 * The line separators of Unicode are left out too: YAML 1.1 and 1.2 differ on them. So are a byte
 * order mark that is not the first character, and what is no character: YAML forbids them.
 */
static bool is_text(uint32_t character)
{
    if (character == '\t' || character == '\n' || character == '\r')
        return true;
    return !kb_utf8_is_control(character) && character != 0x2028 && character != 0x2029 &&
           character != 0xfeff && character != 0xfffe && character != 0xffff;
}

/* Whether a line ends with the byte at i: LF, CR LF or CR. */
static bool ends_line(const char *text, size_t length, size_t i)
{
    bool before_lf = i + 1 < length && text[i + 1] == '\n';
    return text[i] == '\n' || (text[i] == '\r' && !before_lf);
}

/* At the beginning of a text it is no part of it. */
static size_t mark_length(const char *text, size_t length)
{
    static const char byte_order_mark[] = {'\xef', '\xbb', '\xbf'};
    size_t size = sizeof byte_order_mark;
    return length >= size && memcmp(text, byte_order_mark, size) == 0 ? size : 0;
}

size_t kb_config_offset(const char *text, size_t length, kb_srcloc loc)
{
    size_t at = mark_length(text, length);
    for (int line = 1; line < loc.line && at < length; at++)
        line += ends_line(text, length, at);
    for (int column = 1; column < loc.column && at < length; column++) {
        uint32_t character;
        size_t size = kb_utf8_decode(text + at, length - at, &character);
        at += size > 0 ? size : 1;
    }
    return at;
}

const char *kb_config_bad_text(kb_config *config, const char *text, size_t length, kb_srcloc *loc)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < length;) {
        uint32_t character = 0;
        size_t step = kb_utf8_decode(text + i, length - i, &character);
        if (step == 0 || !is_text(character)) {
            const char *what = step == 0 ? "a byte that is not UTF-8" : "a control character";
            unsigned value = step == 0 ? (unsigned char)text[i] : character;
            const char *message = kb_arena_printf(&config->arena, "%s (0x%02x)", what, value);
            if (loc)
                *loc = (kb_srcloc){.file = loc->file, .line = line, .column = column};
            return message ? message : what;
        }
        bool ends = ends_line(text, length, i);
        line += ends;
        column = ends ? 1 : column + 1;
        i += step;
    }
    return NULL;
}

/* The line where there is one directive too many, 0 if nowhere. */
static int too_many_directives(const char *text, size_t length)
{
    int line = 1, directives = 0;
    bool at_start = true; /* of a line */
    for (size_t i = 0; i < length; i++) {
        if (at_start && text[i] == '%' && ++directives > max_directives)
            return line;
        at_start = ends_line(text, length, i);
        line += at_start;
    }
    return 0;
}

kb_error *kb_config_check_text(kb_config *config, const char *name, const char *text, size_t length)
{
    kb_srcloc loc = {.file = name};
    if (length > KB_CONFIG_MAX_SIZE)
        return kb_error_at(KB_ERR_INPUT, &loc, "larger than %d MiB", KB_CONFIG_MAX_SIZE >> 20);
    const char *bad = kb_config_bad_text(config, text, length, &loc);
    if (bad)
        return kb_error_at(KB_ERR_INPUT, &loc, "expected YAML text, found %s", bad);
    loc.line = too_many_directives(text, length);
    loc.column = 1;
    if (loc.line > 0)
        return kb_error_at(KB_ERR_INPUT, &loc, "more than %d directives", max_directives);
    return NULL;
}
