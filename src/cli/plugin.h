/* plugin.h: finds built-in benches, and loads benches and collectives from files of users. */
#ifndef KB_CLI_PLUGIN_H
#define KB_CLI_PLUGIN_H

#include <kernbench/ccl.h>
#include <kernbench/kernbench.h>

typedef struct plugin {
    const kb_bench_spec *spec;        /* NULL if only collectives were requested */
    const kb_ccl_plugin *collectives; /* NULL if it has none */
    void *library;                    /* NULL if it is built in */
} plugin;

/*
 * Finds a bench by name, or in a file: FILE.so, or FILE.c, which is compiled first; FILE:NAME if it
 * has several. Reports errors on stderr. A library stays loaded until the process ends, as its
 * threads may still run.
 */
KB_MUST_USE kb_code plugin_open(const char *what, plugin *p);

/* Loads a file with collectives, FILE.so or FILE.c. Reports errors on stderr. */
KB_MUST_USE kb_code plugin_open_collectives(const char *file, plugin *p);

#endif
