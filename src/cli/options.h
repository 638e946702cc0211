/*
 * options.h: reading the options of a command from a table.
 *
 *     typedef struct probe_args {
 *         cli_common common; // first, if the command has options of a machine
 *         uint64_t bytes;
 *     } probe_args;
 *
 *     static const cli_option options[] = {
 *         CLI_OPTION("--bytes", "N", CLI_SIZE, probe_args, bytes, "size of a transfer", .min = 1,
 *                    .max = 1 << 30),
 *     };
 *
 *     probe_args args = {.bytes = 4096};
 *     kb_code code = cli_parse(self, &argc, argv, &args);
 *
 * Accepts `--name value` and `--name=value`; `--` ends the options. An option whose value is
 * optional takes the next argument unless that begins with "-", so its command must not take words.
 * Options that are not given keep their value in the struct. An error is one line on stderr and
 * KB_ERR_INPUT.
 */
#ifndef KB_CLI_OPTIONS_H
#define KB_CLI_OPTIONS_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Kinds of options, with the type of the member that they set. */
typedef enum cli_kind {
    CLI_FLAG,     /* bool: takes no value */
    CLI_STRING,   /* const char *: an argument of main() */
    CLI_OPTIONAL, /* the same; without a value it is `by_default` */
    CLI_UINT,     /* uint64_t */
    CLI_SIZE,     /* uint64_t: 4096, 4KiB, 1MiB, 64KB, 2GiB */
    CLI_DOUBLE,   /* double */
    CLI_ENUM,     /* size_t: the index in `names` */
    CLI_LIST      /* cli_list: each use of the option appends */
} cli_kind;

typedef struct cli_option {
    const char *name;  /* "--bytes" */
    const char *value; /* "N", as help shows it; NULL for a flag */
    const char *help;  /* one line or more */
    cli_kind kind;
    size_t at, size;          /* of the member that it sets */
    double min, max;          /* of numbers, inclusive, up to 2^53; min == max: no bounds */
    const char *by_default;   /* of an optional value */
    const char *const *names; /* of an enum */
    size_t name_count;
} cli_option;

/* An option that sets a member of the struct `type`: its name, value, kind and help, then bounds.
 */
#define CLI_OPTION(name_, value_, kind_, type, member, ...)                                        \
    {                                                                                              \
        .name = (name_), .value = (value_), .kind = (kind_), .at = offsetof(type, member),         \
        .size = sizeof(((type *)0)->member), .help = __VA_ARGS__                                   \
    }
#define CLI_NAMES(array) .names = (array), .name_count = sizeof(array) / sizeof(array)[0]

typedef struct cli_list {
    const char **items;
    size_t count;
    size_t capacity;
} cli_list;

void cli_list_fini(cli_list *list);

/* Options of every command that takes a machine. */
typedef struct cli_common {
    const char *topology; /* NULL: the default machine */
    cli_list settings;
    bool json;
    bool quiet;
} cli_common;

struct cli_command;

/*
 * Fills the struct that `args` points to. Words that are not options are moved to argv[1] and on,
 * and *argc counts them and argv[0].
 */
KB_MUST_USE kb_code cli_parse(const struct cli_command *command, int *argc, char **argv,
                              void *args);

/* Frees the lists in that struct. */
void cli_free_lists(const struct cli_command *command, void *args);

/* Prints the options of a command, as its --help shows them. */
void cli_print_options(const struct cli_command *command, FILE *out);

/* Numbers as options accept them; false if the text is not a number. */
KB_MUST_USE bool cli_read_uint(const char *text, uint64_t *value);
KB_MUST_USE bool cli_read_double(const char *text, double *value);

#endif
