/*
 * collective_options.h: the collectives of a command: the options --ccl and --plugin.
 *
 *     typedef struct plan_args {
 *         cli_common common;
 *         collectives_args collectives;
 *     } plan_args;
 *     static const cli_option options[] = {COLLECTIVES_OPTIONS(plan_args)};
 *
 *     collectives c;
 *     kb_code code = collectives_init(&c, &args->collectives, &args->common.settings);
 *     collectives_fini(&c);
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
    CLI_OPTION(                                                                                    \
        "--ccl", "FILE", CLI_STRING, type, collectives.ccl,                                        \
        "the file that configures collectives; default: ./ccl.yaml if it exists, else the\n"       \
        "built-in one; --set ccl.KEY=VALUE overrides a setting of it"),                            \
        CLI_OPTION("--plugin", "FILE", CLI_LIST, type, collectives.plugins,                        \
                   "adds collectives of your own: ./mine.c, which is compiled, or ./mine.so;\n"    \
                   "repeatable")

typedef struct collectives {
    const char *file;        /* NULL: the built-in one */
    const char *plugin_file; /* a file of user code, for reports of crashes, or NULL */
    KB_VEC(const kb_ccl_plugin *) plugins;
    ccl_registry registry;
    ccl_config config;
    bool has_config;
} collectives;

/*
 * Loads the plugins, then ccl.yaml with those settings that begin with "ccl.". Reports errors on
 * stderr. collectives_fini() must be called in any case.
 */
KB_MUST_USE kb_code collectives_init(collectives *c, const collectives_args *args,
                                     const cli_list *settings);
void collectives_fini(collectives *c);

/* The plugins alone, and for a bench that has collectives of its own. `added` may be NULL. */
KB_MUST_USE kb_code collectives_load_plugins(collectives *c, const collectives_args *args);
KB_MUST_USE kb_code collectives_add_plugin(collectives *c, const kb_ccl_plugin *added);

/* Whether ccl.yaml, with those settings that begin with "ccl.", is good. */
KB_MUST_USE kb_error *collectives_check_config(const collectives *c, const cli_list *settings);

/* The settings of the machine: all others. False if out of memory. Free with cli_list_fini(). */
KB_MUST_USE bool collectives_machine_settings(const cli_list *settings, cli_list *machine_settings);

#endif
