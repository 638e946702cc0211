/*
 * collectives.h: which collectives a command works with: --ccl and --plugin.
 *
 *     typedef struct plan_args {
 *         cli_common common;
 *         collectives_args collectives;
 *     } plan_args;
 *     static const cli_option options[] = {COLLECTIVES_OPTIONS(plan_args)};
 *
 *     collectives c;
 *     kb_code code = collectives_open(&args.collectives, &c);      // plugins are loaded
 *     if (code == KB_OK)
 *         code = collectives_load(&c, &args.common.settings);      // and ccl.yaml is read
 *     collectives_close(&c);
 */
#ifndef KB_CLI_COLLECTIVES_H
#define KB_CLI_COLLECTIVES_H

#include "ccl/ccl.h"

#include <kernbench/ccl.h>

#include "options.h"
#include "plugin.h"

typedef struct collectives_args {
    const char *ccl;
    cli_list plugins;
} collectives_args;

/* For a struct with a member `collectives`. */
#define COLLECTIVES_OPTIONS(type)                                                                  \
    {.name = "--ccl",                                                                              \
     .value = "FILE",                                                                              \
     .help = "the file that configures collectives; default: ./ccl.yaml if it exists, else the\n"  \
             "built-in one; --set ccl.KEY=VALUE overrides a setting of it",                        \
     .kind = CLI_STRING,                                                                           \
     CLI_INTO(type, collectives.ccl)},                                                             \
    {                                                                                              \
        .name = "--plugin", .value = "FILE",                                                       \
        .help = "adds collectives of your own: ./mine.c, which is compiled, or ./mine.so;\n"       \
                "repeatable",                                                                      \
        .kind = CLI_LIST, CLI_INTO(type, collectives.plugins)                                      \
    }

void collectives_args_fini(collectives_args *args);

typedef struct collectives {
    const char *file;        /* NULL: what is built in */
    const char *plugin_file; /* whose code is to blame if it crashes; NULL: all of it ships */
    KB_VEC(const kb_ccl_plugin *) plugins;
    ccl_registry registry;
    ccl_config config;
    bool has_config;
} collectives;

/* Finds ccl.yaml and loads the plugins; in any case to be closed. */
KB_MUST_USE kb_code collectives_open(const collectives_args *args, collectives *c);

/* One more, which stays its file's; nothing for NULL. */
KB_MUST_USE kb_code collectives_add(collectives *c, const kb_ccl_plugin *one);

/* Reads ccl.yaml, with those of the settings that begin with "ccl.". */
KB_MUST_USE kb_code collectives_load(collectives *c, const cli_list *settings);

void collectives_close(collectives *c);

/* The settings that are about the machine. False if there is no memory. To be cli_list_fini()ed. */
KB_MUST_USE bool collectives_other_settings(const cli_list *settings, cli_list *others);

#endif
