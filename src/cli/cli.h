/*
 * cli.h: what the commands of the program share.
 *
 * Results go to stdout, everything else to stderr. A command returns the code that main() makes the
 * exit status.
 */
#ifndef KB_CLI_CLI_H
#define KB_CLI_CLI_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct cli_command {
    const char *name;
    const char *arguments; /* as usage shows them, "" if none */
    const char *summary;   /* its line in the list of commands */
    const char *help;      /* the rest of its --help, with an example */
    /* argv[0] is the command's name. --help is dealt with before. */
    kb_code (*run)(int argc, char **argv);
} cli_command;

extern const cli_command cli_commands[];
extern const size_t cli_command_count;

/* The command of that name, or NULL after saying so. */
const cli_command *cli_find_command(const char *name);

/* Prints "kernbench: " and the message on one line of stderr. Returns the code it was given. */
kb_code cli_fail(kb_code code, const char *format, ...) KB_PRINTF(2, 3);

/* Complains of a word that is none of `names`, with the nearest of them. Returns KB_ERR_INPUT. */
kb_code cli_unknown(const char *what, const char *word, const char *const *names, size_t count);

/* Complains of a word too many, be it an option or not. Returns KB_ERR_INPUT. */
kb_code cli_too_many(const char *command, const char *word);

void cli_print_help(FILE *out);
void cli_print_command_help(const cli_command *command);

kb_code cli_help(int argc, char **argv);
kb_code cli_version(int argc, char **argv);

#endif
