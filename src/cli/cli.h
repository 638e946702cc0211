/*
 * cli.h: commands of the program, and what they share.
 *
 * Results go to stdout, everything else to stderr. A command returns the code that becomes the exit
 * status. Each file cmd_NAME.c defines one command; commands.c lists them.
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
#include "topo/topo.h"

typedef struct cli_command cli_command;

/* A command as it was called. */
typedef struct cli_call {
    const cli_command *command;
    void *args;                  /* the struct that the options are read into */
    const cli_common *common;    /* its beginning; NULL without options of a machine */
    const topo_machine *machine; /* NULL unless the command is CLI_MACHINE */
    char **words;                /* arguments that are not options */
    int word_count;
} cli_call;

typedef enum cli_machine_use {
    CLI_NO_MACHINE,
    CLI_MACHINE_OPTIONS, /* has the options of cli_common; loads the machine itself */
    CLI_MACHINE          /* the same, and the machine is loaded before run() is called */
} cli_machine_use;

struct cli_command {
    const char *name;
    const char *arguments; /* as usage shows them, "" if none */
    const char *summary;   /* its line in the list of commands: "draw the machine" */
    const char *help;      /* paragraphs of its --help before the options, "" if none */
    const char *example;   /* the end of its --help: whole lines that begin with "Example: " */
    cli_machine_use machine;
    const cli_option *options;
    size_t option_count;
    size_t args_size;     /* of the struct that options are read into; with options of a machine it
                             begins with a cli_common */
    const void *defaults; /* its initial value */
    int max_words;        /* arguments that are not options */
    bool takes_raw_words; /* no options: all arguments are words */
    /* NULL-terminated, or NULL. Names of subcommands begin with the command's: "ccl plan". */
    const cli_command *const *subcommands;
    kb_code (*check)(
        const cli_call *call); /* checks options before the machine is loaded, or NULL */
    kb_code (*run)(const cli_call *call);
};

/* For .options and .option_count. */
#define CLI_OPTIONS(table) .options = (table), .option_count = sizeof(table) / sizeof(table)[0]

/* For .args_size and .defaults: CLI_ARGS(probe_args, .bytes = 4096). */
#define CLI_ARGS(type, ...)                                                                        \
    .args_size = sizeof(type), .defaults = &(const type)                                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

extern const cli_command *const cli_commands[];
extern const size_t cli_command_count;

extern const cli_command cli_ccl_command;
extern const cli_command cli_compare_command;
extern const cli_command cli_explain_command;
extern const cli_command cli_help_command;
extern const cli_command cli_list_command;
extern const cli_command cli_new_command;
extern const cli_command cli_probe_command;
extern const cli_command cli_report_command;
extern const cli_command cli_run_command;
extern const cli_command cli_runs_command;
extern const cli_command cli_sweep_command;
extern const cli_command cli_sweep_merge_command;
extern const cli_command cli_topo_command;
extern const cli_command cli_traffic_command;
extern const cli_command cli_validate_command;
extern const cli_command cli_version_command;

/* The command of that name; NULL after reporting an unknown one. */
const cli_command *cli_find_command(const char *name);

/* The subcommand of that name, or NULL. */
const cli_command *cli_find_subcommand(const cli_command *command, const char *word);
/* The last word of its name: "plan". */
const char *cli_subcommand_word(const cli_command *subcommand);

/*
 * Runs the command that the arguments name, as main() does: argv[0] is the program. Changes nothing
 * of the process but what the command writes, so it can be called in a process of another program.
 */
kb_code cli_dispatch(int argc, char **argv);

/*
 * The same with a bench of that program: what `run` runs, whatever --bench says. Its kernels and
 * workers have stacks of this size by default.
 */
kb_code cli_dispatch_bench(int argc, char **argv, const kb_bench_spec *spec, uint64_t stack_bytes);

/* ---- Messages ---------------------------------------------------------------------------- */

/* Prints "kernbench: " and the message on one line of stderr. Returns the code it was given. */
kb_code cli_fail(kb_code code, const char *format, ...) KB_PRINTF(2, 3);

/* Prints the error's message like cli_fail, then its details. Returns its code. */
kb_code cli_print_error(const kb_error *err);

/* The same, and frees the error. */
kb_code cli_report(kb_error *err);

/* Prints "kernbench: warning: " and the message on one line of stderr. */
void cli_warn(const char *format, ...) KB_PRINTF(1, 2);

/*
 * Reports a word that is not one of `names`, and suggests the nearest name, or all if they are few;
 * else refers to the help of the command ("": of the program). Returns KB_ERR_INPUT.
 */
kb_code cli_unknown(const char *what, const char *word, const char *const *names, size_t count,
                    const char *command);

/* Reports an unexpected argument: an option or a word. Returns KB_ERR_INPUT. */
kb_code cli_too_many(const char *command, const char *word);

/* ---- Output ------------------------------------------------------------------------------ */

/*
 * The text, to print or to draw it. If memory ran out while it was composed, it is incomplete:
 * main() then reports that and exits with KB_ERR_HOST, so callers need not check.
 */
const char *cli_text(const kb_text *text);

/* Whether a text that cli_text() returned was incomplete. */
bool cli_text_was_lost(void);

enum { CLI_CLIP = 80 };

/* The word itself, or its beginning and "..." in the buffer; never half a character. */
const char *cli_clip(const char *word, char buffer[static CLI_CLIP]);

void cli_print_help(FILE *out);
void cli_print_command_help(const cli_command *command);
kb_code cli_print_version(void);

#endif
