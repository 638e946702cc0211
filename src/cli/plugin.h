/*
 * plugin.h: which bench is meant, be it one that ships or one in a file of the user's; and files
 * with collectives.
 */
#ifndef KB_CLI_PLUGIN_H
#define KB_CLI_PLUGIN_H

#include <kernbench/ccl.h>
#include <kernbench/kernbench.h>

typedef struct plugin {
    const kb_bench_spec *spec;        /* NULL if it is about collectives alone */
    const kb_ccl_plugin *collectives; /* NULL if it has none */
    void *library;                    /* NULL if it ships */
} plugin;

/*
 * Finds the bench of a name; or loads a file: FILE.so, or FILE.c, which is compiled first, and
 * behind a colon the name of the bench in it, unless it has one alone. What is wrong is said on
 * stderr. A library stays loaded until the end of the process: threads of its own may run in it.
 */
KB_MUST_USE kb_code plugin_open(const char *what, plugin *p);

/* Loads a file with collectives, FILE.so or FILE.c. What is wrong is said on stderr. */
KB_MUST_USE kb_code plugin_open_collectives(const char *file, plugin *p);

#endif
