/*
 * options.h: reading the options of a command from a table.
 *
 *     typedef struct probe_args {
 *         cli_common common; // first, if the command has_machine
 *         uint64_t bytes;
 *     } probe_args;
 *
 *     static const cli_option options[] = {
 *         {.name = "--bytes", .value = "N", .help = "size of a transfer", .kind = CLI_BYTES,
 *          .min = 1, .max = 1 << 30, CLI_INTO(probe_args, bytes)},
 *     };
 *
 *     probe_args args = {.bytes = 4096};
 *     kb_code code = cli_parse(self, &argc, argv, &args);
 *
 * Takes `--name value` and `--name=value`; `--` ends the options. What is not given keeps the value
 * it had. Mistakes are one line on stderr and KB_ERR_INPUT.
 */
#ifndef KB_CLI_OPTIONS_H
#define KB_CLI_OPTIONS_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum cli_kind {             /* and the type of what it sets */
                        CLI_FLAG,   /* bool: takes no value */
                        CLI_STRING, /* const char *: an argument of main() */
                        CLI_UINT,   /* uint64_t */
                        CLI_BYTES,  /* uint64_t: 4096, 4KiB, 1MiB, 64KB, 2GiB */
                        CLI_DOUBLE, /* double */
                        CLI_ENUM,   /* size_t: the index in `names` */
                        CLI_LIST    /* cli_list: once more with every use of the option */
} cli_kind;

typedef struct cli_option {
    const char *name;  /* "--bytes" */
    const char *value; /* "N", as help shows it; NULL for a flag */
    const char *help;  /* one line, or more: these are indented */
    cli_kind kind;
    size_t at, size;          /* of the member that it sets: CLI_INTO */
    double min, max;          /* of numbers, both included; up to 2^53; min == max: no bounds */
    const char *const *names; /* of an enum */
    size_t name_count;
} cli_option;

#define CLI_INTO(type, member) .at = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define CLI_NAMES(array) .names = (array), .name_count = sizeof(array) / sizeof(array)[0]

typedef struct cli_list {
    const char **items;
    size_t count;
    size_t capacity;
} cli_list;

void cli_list_fini(cli_list *list);

/* What every command has that has a machine. */
typedef struct cli_common {
    const char *topology; /* NULL: the default machine */
    cli_list settings;
    bool json;
    bool quiet;
} cli_common;

void cli_common_fini(cli_common *common);

struct cli_command;

/*
 * Fills the struct that `args` points to. The words that are no options are moved to argv[1] and
 * on, and *argc counts them and argv[0].
 */
KB_MUST_USE kb_code cli_parse(const struct cli_command *command, int *argc, char **argv,
                              void *args);

/* Appends the options of a command, as its --help shows them. */
void cli_print_options(const struct cli_command *command, FILE *out);

/* Numbers as the options take them; false if the text is none. */
KB_MUST_USE bool cli_read_uint(const char *text, uint64_t *value);
KB_MUST_USE bool cli_read_double(const char *text, double *value);

#endif
