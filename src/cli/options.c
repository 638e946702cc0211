/*
 * options.c: reads options from a table: see options.h. A table is constant, so that help can be
 * printed from it without running the command; an option knows the offset of the member that it
 * sets.
 */
#include "options.h"

#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const cli_option common_options[] = {
    CLI_OPTION("--topology", "FILE", CLI_STRING, cli_common, topology,
               "the machine: a YAML file, or the name of a built-in machine; default: default"),
    CLI_OPTION("--set", "KEY=VALUE", CLI_LIST, cli_common, settings,
               "overrides a setting of the machine, such as sip.ucie.bw_gbs=1024; repeatable"),
    CLI_OPTION("--json", NULL, CLI_FLAG, cli_common, json,
               "prints one JSON document instead of text"),
    CLI_OPTION("--quiet", NULL, CLI_FLAG, cli_common, quiet,
               "no warnings, progress or explanations"),
};
enum { COMMON_COUNT = sizeof common_options / sizeof common_options[0] };

void cli_list_fini(cli_list *list)
{
    kb_vec_fini(list);
}

/* ---- Numbers ----------------------------------------------------------------------------- */

bool cli_read_uint(const char *text, uint64_t *value)
{
    int64_t number;
    if (kb_decimal_parse(text, 0, &number) != KB_DECIMAL_OK || number < 0)
        return false;
    *value = (uint64_t)number;
    return true;
}

bool cli_read_double(const char *text, double *value)
{
    /* strtod() takes more than decimals: hexadecimal, infinity. The locale is always "C". */
    if (text[0] == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    char *end;
    double number = strtod(text, &end);
    if (*end != '\0' || !isfinite(number))
        return false;
    *value = number;
    return true;
}

/* ---- Parsing ----------------------------------------------------------------------------- */

typedef struct parser {
    const cli_command *command;
    char *args;
} parser;

static kb_code bad_value(const parser *p, const cli_option *option, const char *text)
{
    char buffer[CLI_CLIP];
    kb_text expected = KB_TEXT_INIT;
    switch (option->kind) {
    case CLI_UINT:
        kb_text_puts(&expected, "a whole number");
        break;
    case CLI_SIZE:
        kb_text_puts(&expected, "a number of bytes, such as 4096 or 4KiB");
        break;
    default:
        kb_text_puts(&expected, "a number");
        break;
    }
    if (option->kind == CLI_UINT && option->min >= option->max) {
        kb_text_printf(&expected, " from 0 to %" PRId64, INT64_MAX);
    } else if (option->min < option->max && option->kind == CLI_SIZE) {
        kb_text_puts(&expected, ", from ");
        kb_bytes_print_limit((uint64_t)option->min, &expected);
        kb_text_puts(&expected, " to ");
        kb_bytes_print_limit((uint64_t)option->max, &expected);
    } else if (option->min < option->max) {
        kb_text_printf(&expected, " from %.15g to %.15g", option->min, option->max);
    }
    kb_code code =
        cli_fail(KB_ERR_INPUT, "%s: expected %s, found '%s'; see kernbench %s --help", option->name,
                 kb_text_peek(&expected), cli_clip(text, buffer), p->command->name);
    kb_text_fini(&expected);
    return code;
}

static bool in_range(const cli_option *option, double value)
{
    return option->min >= option->max || (value >= option->min && value <= option->max);
}

static kb_code set_enum(const cli_option *option, const char *text, size_t *target)
{
    for (size_t i = 0; i < option->name_count; i++) {
        if (strcmp(text, option->names[i]) == 0) {
            *target = i;
            return KB_OK;
        }
    }
    char buffer[CLI_CLIP];
    kb_suggestion near;
    kb_suggestion_search(&near, text, option->names, option->name_count);
    return cli_fail(KB_ERR_INPUT, "%s: unknown value '%s'%s", option->name, cli_clip(text, buffer),
                    kb_suggestion_hint(&near, ""));
}

/* The member that the option sets, which must be of the type of its kind. */
static void *target_of(const parser *p, const cli_option *option)
{
    static const size_t sizes[] = {
        [CLI_FLAG] = sizeof(bool),
        [CLI_STRING] = sizeof(const char *),
        [CLI_OPTIONAL] = sizeof(const char *),
        [CLI_UINT] = sizeof(uint64_t),
        [CLI_SIZE] = sizeof(uint64_t),
        [CLI_DOUBLE] = sizeof(double),
        [CLI_ENUM] = sizeof(size_t),
        [CLI_LIST] = sizeof(cli_list),
    };
    KB_ASSERT(option->size == sizes[option->kind]);
    return p->args + option->at;
}

static kb_code set_number(const parser *p, const cli_option *option, const char *text)
{
    void *target = target_of(p, option);
    if (option->kind == CLI_DOUBLE) {
        double value;
        if (!cli_read_double(text, &value) || !in_range(option, value))
            return bad_value(p, option, text);
        *(double *)target = value;
        return KB_OK;
    }
    uint64_t value;
    bool read =
        option->kind == CLI_UINT ? cli_read_uint(text, &value) : kb_bytes_parse(text, &value);
    if (!read || !in_range(option, (double)value))
        return bad_value(p, option, text);
    *(uint64_t *)target = value;
    return KB_OK;
}

static kb_code set(const parser *p, const cli_option *option, const char *text)
{
    void *target = target_of(p, option);
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)target = true;
        return KB_OK;
    case CLI_STRING:
    case CLI_OPTIONAL:
        if (text[0] == '\0')
            return cli_fail(KB_ERR_INPUT, "%s: empty value: expected %s", option->name,
                            option->value);
        *(const char **)target = text;
        return KB_OK;
    case CLI_UINT:
    case CLI_SIZE:
    case CLI_DOUBLE:
        return set_number(p, option, text);
    case CLI_ENUM:
        return set_enum(option, text, target);
    case CLI_LIST:
        if (!kb_vec_push((cli_list *)target, text))
            return cli_report(kb_error_nomem());
        return KB_OK;
    }
    return KB_OK;
}

static size_t option_total(const cli_command *command)
{
    return command->option_count + (command->machine != CLI_NO_MACHINE ? COMMON_COUNT : 0);
}

/* The command's own, then the common ones. */
static const cli_option *option_at(const cli_command *command, size_t i)
{
    return i < command->option_count ? &command->options[i]
                                     : &common_options[i - command->option_count];
}

static const cli_option *find(const cli_command *command, const char *word, size_t length)
{
    for (size_t i = 0; i < option_total(command); i++) {
        const cli_option *option = option_at(command, i);
        if (strlen(option->name) == length && memcmp(option->name, word, length) == 0)
            return option;
    }
    return NULL;
}

static kb_code unknown(const cli_command *command, const char *word)
{
    enum { MAX = 64 };
    const char *names[MAX + 1];
    size_t count = 0;
    for (size_t i = 0; i < option_total(command) && count < MAX; i++)
        names[count++] = option_at(command, i)->name;
    names[count++] = "--help";
    char buffer[CLI_CLIP], name[CLI_CLIP];
    size_t length = strcspn(word, "="); /* --nmae=value is compared by its name */
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    kb_suggestion near;
    kb_suggestion_search(&near, name, names, count);
    const char *hint = kb_suggestion_near(&near, "");
    word = cli_clip(word, buffer);
    if (hint[0] != '\0')
        return cli_fail(KB_ERR_INPUT, "unknown option '%s'%s", word, hint);
    return cli_fail(KB_ERR_INPUT, "unknown option '%s'; see kernbench %s --help", word,
                    command->name);
}

/* Reads the option at argv[*i], and its value, which may be the next argument. */
static kb_code take_option(const parser *p, int argc, char **argv, int *i)
{
    char *word = argv[*i];
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const cli_option *option = find(p->command, word, length);
    if (!option)
        return unknown(p->command, word);
    if (option->kind == CLI_FLAG && equals)
        return cli_fail(KB_ERR_INPUT, "%s takes no value", option->name);
    if (option->kind == CLI_FLAG)
        return set(p, option, NULL);
    if (equals)
        return set(p, option, equals + 1);
    bool has_value = *i + 1 < argc;
    if (option->kind == CLI_OPTIONAL && (!has_value || argv[*i + 1][0] == '-'))
        return set(p, option, option->by_default);
    if (!has_value)
        return cli_fail(KB_ERR_INPUT, "%s needs a value: %s %s", option->name, option->name,
                        option->value);
    return set(p, option, argv[++*i]);
}

kb_code cli_parse(const cli_command *command, int *argc, char **argv, void *args)
{
    parser p = {.command = command, .args = args};
    int words = 1;
    bool options_end = false;
    for (int i = 1; i < *argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1] != '\0') {
            kb_code code = take_option(&p, *argc, argv, &i);
            if (code != KB_OK)
                return code;
        } else if (words > command->max_words) {
            char buffer[CLI_CLIP];
            return cli_fail(KB_ERR_INPUT, "too many arguments: '%s'; see kernbench %s --help",
                            cli_clip(argv[i], buffer), command->name);
        } else {
            argv[words++] = argv[i];
        }
    }
    *argc = words;
    return KB_OK;
}

void cli_free_lists(const cli_command *command, void *args)
{
    parser p = {.command = command, .args = args};
    for (size_t i = 0; i < option_total(command); i++)
        if (option_at(command, i)->kind == CLI_LIST)
            cli_list_fini(target_of(&p, option_at(command, i)));
}

/* ---- Help -------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 24 };

static void print_option(const cli_option *option, FILE *out)
{
    int width = fprintf(out, "  %s%s%s", option->name, option->value ? " " : "",
                        option->value ? option->value : "");
    if (width > HELP_COLUMN - 2) {
        fputc('\n', out);
        width = 0;
    }
    const char *line = option->help;
    for (;;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "%*s%.*s\n", HELP_COLUMN - width, "", (int)length, line);
        if (line[length] == '\0')
            break;
        line += length + 1;
        width = 0;
    }
}

void cli_print_options(const cli_command *command, FILE *out)
{
    if (option_total(command) == 0)
        return;
    fputs("Options:\n", out);
    for (size_t i = 0; i < option_total(command); i++)
        print_option(option_at(command, i), out);
    fputs("  --help                this text\n\n", out);
}
