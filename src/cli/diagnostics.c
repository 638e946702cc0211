/*
 * diagnostics.c: messages on stderr. A message is one line whatever the user typed: control
 * characters and bytes that are not UTF-8 are escaped, long words are clipped. Also remembers
 * whether a text of the output is incomplete because memory ran out.
 */
#include "cli.h"

#include <stdarg.h>
#include <string.h>

/* False if memory ran out: another message was printed instead. */
static bool KB_PRINTF(2, 0) print_line(const char *prefix, const char *format, va_list args)
{
    kb_text text = KB_TEXT_INIT;

    kb_text_puts(&text, prefix);
    kb_text_vprintf(&text, format, args);
    kb_text_escape_from(&text, 0);
    kb_text_puts(&text, "\n");
    bool whole = !text.failed;
    fputs(whole ? kb_text_peek(&text) : "kernbench: out of memory\n", stderr);
    kb_text_fini(&text);
    return whole;
}

kb_code cli_fail(kb_code code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    bool whole = print_line("kernbench: ", format, args);
    va_end(args);
    return whole ? code : KB_ERR_HOST;
}

void cli_warn(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)print_line("kernbench: warning: ", format, args);
    va_end(args);
}

kb_code cli_print_error(const kb_error *err)
{
    kb_code code = cli_fail(kb_error_code(err), "%s", kb_error_message(err));

    /* Its lines are escaped already, as the message is. */
    for (const char *line = kb_error_detail(err); *line != '\0';) {
        size_t length = strcspn(line, "\n");
        fprintf(stderr, "  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return code;
}

kb_code cli_report(kb_error *err)
{
    kb_code code = cli_print_error(err);
    kb_error_free(err);
    return code;
}

static bool text_was_lost;

const char *cli_text(const kb_text *text)
{
    text_was_lost |= text->failed;
    return kb_text_peek(text);
}

bool cli_text_was_lost(void)
{
    return text_was_lost;
}

const char *cli_clip(const char *word, char buffer[static CLI_CLIP])
{
    if (strlen(word) < CLI_CLIP)
        return word;

    size_t keep = CLI_CLIP - sizeof "...";
    while (keep > 0 && ((unsigned char)word[keep] & 0xc0) == 0x80)
        keep--;
    memcpy(buffer, word, keep);
    memcpy(buffer + keep, "...", sizeof "...");
    return buffer;
}

kb_code cli_unknown(const char *what, const char *word, const char *const *names, size_t count,
                    const char *command)
{
    char buffer[CLI_CLIP];
    kb_suggestion near;

    kb_suggestion_search(&near, word, names, count);
    word = cli_clip(word, buffer);
    const char *hint = kb_suggestion_hint(&near, "");
    if (hint[0] != '\0')
        return cli_fail(KB_ERR_INPUT, "unknown %s '%s'%s", what, word, hint);
    return cli_fail(KB_ERR_INPUT, "unknown %s '%s'; see kernbench %s%s--help", what, word, command,
                    command[0] != '\0' ? " " : "");
}

kb_code cli_too_many(const char *command, const char *word)
{
    char buffer[CLI_CLIP];

    if (word[0] == '-') {
        static const char *const options[] = {"--help"};
        return cli_unknown("option", word, options, 1, command);
    }
    return cli_fail(KB_ERR_INPUT, "too many arguments: '%s'; see kernbench %s --help",
                    cli_clip(word, buffer), command);
}
