/*
 * config_text.c: which bytes a configuration may be made of.
 *
 * Checked before the parser sees them, because there the position is known and nothing can go wrong
 * yet. Escapes such as "\\0" make bytes that were not in the file, so values are checked once more.
 */
#include <string.h>

#include "base/config_node.h"
#include "base/utf8.h"

/* In a row: libfyaml 0.7.12 takes time by the square of their number, 12 s for 100,000. */
enum { max_blank_lines = 200 };

/* The line separators of Unicode are left out too: YAML 1.1 and 1.2 differ on them. */
static bool is_text(uint32_t character)
{
    if (character == '\t' || character == '\n' || character == '\r')
        return true;
    return !kb_utf8_is_control(character) && character != 0x2028 && character != 0x2029;
}

/* Whether a line ends with the byte at i: LF, CR LF or CR. */
static bool ends_line(const char *text, size_t length, size_t i)
{
    bool before_lf = i + 1 < length && text[i + 1] == '\n';
    return text[i] == '\n' || (text[i] == '\r' && !before_lf);
}

const char *kb_config_bad_text(kb_config *config, const char *text, size_t length, kb_place *place)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < length;) {
        uint32_t character = 0;
        size_t step = kb_utf8_decode(text + i, length - i, &character);
        if (step == 0 || !is_text(character)) {
            const char *what = step == 0 ? "a byte that is not UTF-8" : "a control character";
            unsigned value = step == 0 ? (unsigned char)text[i] : character;
            const char *message = kb_arena_printf(&config->arena, "%s (0x%02x)", what, value);
            if (place)
                *place = (kb_place){.file = place->file, .line = line, .column = column};
            return message ? message : what;
        }
        bool ends = ends_line(text, length, i);
        line += ends;
        column = ends ? 1 : column + 1;
        i += step;
    }
    return NULL;
}

/* The line where there are too many blank ones in a row, 0 if nowhere. */
static int too_many_blank_lines(const char *text, size_t length)
{
    int line = 1, blank = 0;
    for (size_t i = 0; i < length; i++) {
        if (ends_line(text, length, i)) {
            line++;
            if (++blank > max_blank_lines)
                return line;
        } else if (!strchr(" \t\r", text[i])) {
            blank = 0;
        }
    }
    return 0;
}

kb_error *kb_config_check_text(kb_config *config, const char *name, const char *text, size_t length)
{
    kb_place place = {.file = name};
    if (length > KB_CONFIG_MAX_SIZE)
        return kb_error_at(KB_ERR_INPUT, &place, "larger than %d MiB", KB_CONFIG_MAX_SIZE >> 20);
    const char *bad = kb_config_bad_text(config, text, length, &place);
    if (bad)
        return kb_error_at(KB_ERR_INPUT, &place, "expected YAML text, found %s", bad);
    place.line = too_many_blank_lines(text, length);
    place.column = 1;
    if (place.line > 0)
        return kb_error_at(KB_ERR_INPUT, &place, "more than %d blank lines in a row",
                           max_blank_lines);
    return NULL;
}
