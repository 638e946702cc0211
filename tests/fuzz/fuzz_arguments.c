/*
 * fuzz_arguments.c: lines as the arguments of the program: the first names the command, the others
 * go to its option parser. Nothing is run. What was accepted must be as the table of options says;
 * a refusal must be one line on stderr.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { MAX_ARGS_BYTES = 4096 };

static void check_value(const cli_option *option, const void *member)
{
    double number = 0;
    if (option->kind == CLI_UINT || option->kind == CLI_SIZE)
        number = (double)*(const uint64_t *)member;
    else if (option->kind == CLI_DOUBLE)
        number = *(const double *)member;
    else if (option->kind == CLI_ENUM)
        KB_ASSERT(*(const size_t *)member < option->name_count);
    else
        return;
    /* A value that was not given is 0 here, whatever the command begins with. */
    KB_ASSERT(number == 0 || option->min >= option->max ||
              (number >= option->min && number <= option->max));
}

static kb_code parse(const cli_command *command, int argc, char **argv)
{
    _Alignas(max_align_t) char args[MAX_ARGS_BYTES] = {0};
    int words = argc;
    for (size_t i = 0; i < command->option_count; i++)
        KB_ASSERT(command->options[i].at + command->options[i].size <= sizeof args);
    kb_code code = cli_parse(command, &words, argv, args);
    if (code == KB_OK) {
        KB_ASSERT(words >= 1 && words <= argc && words <= command->max_words + 1);
        for (size_t i = 0; i < command->option_count; i++)
            check_value(&command->options[i], args + command->options[i].at);
    }
    cli_free_lists(command, args);
    return code;
}

static kb_code run(int argc, char **argv)
{
    const cli_command *command = cli_find_command(argv[0]);
    if (!command)
        return KB_ERR_INPUT;
    const cli_command *part = argc > 1 ? cli_find_subcommand(command, argv[1]) : NULL;
    return part ? parse(part, argc - 1, argv + 1) : parse(command, argc, argv);
}

static void check_message(kb_code code, const char *text, size_t length)
{
    if (code == KB_OK) {
        KB_ASSERT(length == 0);
        return;
    }
    KB_ASSERT(code == KB_ERR_INPUT && length > 12 && strncmp(text, "kernbench: ", 11) == 0);
    KB_ASSERT(text[length - 1] == '\n' && fuzz_is_printable(text, length - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_parts parts = fuzz_lines(data, size);
    char *argv[32];
    KB_ASSERT(parts.line_count < sizeof argv / sizeof argv[0]);
    for (size_t i = 0; i < parts.line_count; i++)
        argv[i] = strdup(parts.lines[i]);
    argv[parts.line_count] = NULL;
    char *words[32]; /* which the parser reorders */
    memcpy(words, argv, sizeof words);
    char *text;
    size_t length;
    FILE *real = stderr;
    stderr = open_memstream(&text, &length);
    KB_ASSERT(stderr);
    kb_code code = parts.line_count > 0 ? run((int)parts.line_count, words) : KB_OK;
    fclose(stderr);
    stderr = real;
    check_message(code, text, length);
    free(text);
    for (size_t i = 0; i < parts.line_count; i++)
        free(argv[i]);
    fuzz_parts_fini(&parts);
    return 0;
}
