/*
 * cli.h: what the commands of the program share.
 *
 * Results go to stdout, everything else to stderr. A command returns the code that main() makes the
 * exit status. Each command is a file that defines one cli_command; main.c lists them.
 */
#ifndef KB_CLI_CLI_H
#define KB_CLI_CLI_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "effective.h"
#include "options.h"

typedef struct cli_command cli_command;
struct cli_command {
    const char *name;
    const char *arguments; /* as usage shows them, "" if none */
    const char *summary;   /* its line in the list of commands: "draw the machine" */
    const char *help;      /* paragraphs of its --help before the options, "" if none */
    const char *example;   /* the end of its --help: whole lines that begin with "Example: " */
    const cli_option *options;
    size_t option_count;
    bool has_machine; /* it takes the options of cli_common, which its arguments begin with */
    int max_words;    /* arguments that are no options */
    /* NULL, or what it consists of; ends with NULL. Their names begin with this one's: "ccl plan".
     */
    const cli_command *const *subcommands;
    /* argv[0] is the command's name. --help is dealt with before. */
    kb_code (*run)(const cli_command *self, int argc, char **argv);
};

/* For .options and .option_count. */
#define CLI_OPTIONS(table) .options = (table), .option_count = sizeof(table) / sizeof(table)[0]

extern const cli_command *const cli_commands[];
extern const size_t cli_command_count;

extern const cli_command cli_ccl_command;
extern const cli_command cli_help_command;
extern const cli_command cli_list_command;
extern const cli_command cli_new_command;
extern const cli_command cli_probe_command;
extern const cli_command cli_run_command;
extern const cli_command cli_topo_command;
extern const cli_command cli_traffic_command;
extern const cli_command cli_validate_command;
extern const cli_command cli_version_command;

/* The command of that name, or NULL after saying so. */
const cli_command *cli_find_command(const char *name);

/* The part of a command that the word names, or NULL. */
const cli_command *cli_find_subcommand(const cli_command *command, const char *word);
/* The word: "plan". */
const char *cli_subcommand_word(const cli_command *subcommand);

/* Runs the command that the arguments name; argv[0] is the program. */
kb_code cli_run(int argc, char **argv);

/*
 * The same inside another program, whose signals and descriptors stay as they are. With a spec,
 * that is the bench of `run`, whatever --bench says, and its kernels and workers have stacks of so
 * many bytes by default.
 */
kb_code cli_run_embedded(int argc, char **argv, const kb_bench_spec *spec, uint64_t stack_bytes);

/* ---- Messages ---------------------------------------------------------------------------- */

/* Prints "kernbench: " and the message on one line of stderr. Returns the code it was given. */
kb_code cli_fail(kb_code code, const char *format, ...) KB_PRINTF(2, 3);

/* Prints the error's message like cli_fail, then its details; frees it. Returns its code. */
kb_code cli_report(kb_error *err);

/* Prints "kernbench: warning: " and the message on one line of stderr. */
void cli_warn(const char *format, ...) KB_PRINTF(1, 2);

/* Reports a word that is none of `names`, with the nearest of them and with all if they are few;
 * else with the help of the command ("": of the program). Returns KB_ERR_INPUT. */
kb_code cli_unknown(const char *what, const char *word, const char *const *names, size_t count,
                    const char *command);

/* Reports an argument too many, be it an option or not. Returns KB_ERR_INPUT. */
kb_code cli_too_many(const char *command, const char *word);

/* ---- Output ------------------------------------------------------------------------------ */

/*
 * The text, to print it or to draw it. If memory ran out while it was made, what is printed is not
 * whole: main() then reports that and exits with KB_ERR_HOST, so that callers need not check.
 */
const char *cli_text(const kb_text *text);

/* Whether a text that cli_text() returned was not whole. */
bool cli_text_was_lost(void);

enum { CLI_CLIP = 80 };

/* The word itself, or its beginning and "..." in the buffer; never half a character. */
const char *cli_clip(const char *word, char buffer[static CLI_CLIP]);

void cli_print_help(FILE *out);
void cli_print_command_help(const cli_command *command);
kb_code cli_print_version(void);

#endif
