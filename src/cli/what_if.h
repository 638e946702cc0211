/*
 * what_if.h: what would make a run faster: runs of the same program on better machines, in child
 * processes on all cores.
 *
 *     what_if *runs;
 *     KB_TRY(what_if_create(&options, &runs));
 *     code = what_if_base(runs, &document); // the run itself
 *     code = what_if_measure(runs, path, &table);
 *     what_if_destroy(runs);
 */
#ifndef KB_CLI_WHAT_IF_H
#define KB_CLI_WHAT_IF_H

#include <jansson.h>

#include "run_path.h"

typedef struct what_if what_if;

typedef struct what_if_options {
    const run_program *program;
    const char *topology, *device;
    const cli_list *settings, *params;
    const cli_list *own; /* "key=value": one more run each */
    const topo_machine *machine;
    bool data; /* is computed */
    bool quiet;
    uint64_t stack_bytes, path_bytes;
    size_t steps;   /* of the path in the document, at most */
    double seconds; /* of wall time, for all runs but the first */
    unsigned cores; /* 0: all */
} what_if_options;

/* The options must stay. */
KB_MUST_USE kb_error *what_if_create(const what_if_options *options, what_if **out);
void what_if_destroy(what_if *runs);

/* Runs the program and returns the document of the run with its critical path; NULL if it has none.
 * What went wrong has been printed on stderr: a run that faults or deadlocks has a document and a
 * code that is not KB_OK. */
KB_MUST_USE kb_code what_if_base(what_if *runs, json_t **document);

/* An array with a member for each resource, in descending order of the gain. */
KB_MUST_USE kb_code what_if_measure(what_if *runs, const json_t *path, json_t **table);

/* Prints the table. */
KB_MUST_USE kb_code what_if_print(const json_t *path, const json_t *table, bool verbose);

#endif
