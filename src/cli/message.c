/*
 * message.c: what the program says on stderr. A message is one line whatever the user typed:
 * control characters and bytes that are not UTF-8 are escaped, long words are clipped.
 */
#include "cli.h"

#include <stdarg.h>
#include <string.h>

enum { CLIP = 80 };

kb_code cli_fail(kb_code code, const char *format, ...)
{
    kb_text text = KB_TEXT_INIT;
    va_list args;

    kb_text_puts(&text, "kernbench: ");
    va_start(args, format);
    kb_text_vprintf(&text, format, args);
    va_end(args);
    kb_text_escape_from(&text, 0);
    kb_text_puts(&text, "\n");
    fputs(text.failed ? "kernbench: out of memory\n" : kb_text_peek(&text), stderr);
    kb_text_fini(&text);
    return code;
}

/* The word itself, or its beginning and "..." in the buffer; never half a character. */
static const char *clip(const char *word, char buffer[static CLIP])
{
    if (strlen(word) < CLIP)
        return word;

    size_t keep = CLIP - sizeof "...";
    while (keep > 0 && ((unsigned char)word[keep] & 0xc0) == 0x80)
        keep--;
    memcpy(buffer, word, keep);
    memcpy(buffer + keep, "...", sizeof "...");
    return buffer;
}

kb_code cli_unknown(const char *what, const char *word, const char *const *names, size_t count)
{
    char buffer[CLIP];
    const char *near = kb_suggest(word, names, count);

    word = clip(word, buffer);
    if (near != NULL)
        return cli_fail(KB_ERR_INPUT, "unknown %s '%s'; did you mean '%s'?", what, word, near);
    return cli_fail(KB_ERR_INPUT, "unknown %s '%s'; see kernbench --help", what, word);
}

kb_code cli_too_many(const char *command, const char *word)
{
    char buffer[CLIP];

    if (word[0] == '-') {
        static const char *const options[] = {"--help"};
        return cli_unknown("option", word, options, 1);
    }
    return cli_fail(KB_ERR_INPUT, "too many arguments: '%s'; see kernbench %s --help",
                    clip(word, buffer), command);
}
