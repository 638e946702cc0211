/*
 * run_record.h: what the store keeps of a run, from how it was made and how it ended.
 *
 *     run_record record;
 *     kb_error *err = run_record_init(&record, &request, outcome);
 *     ... record.run goes to store_add(), or its parts to another process ...
 *     run_record_fini(&record);
 */
#ifndef KB_CLI_RUN_RECORD_H
#define KB_CLI_RUN_RECORD_H

#include "run_once.h"
#include "store/store.h"

/* What was run, as it was given. */
typedef struct run_request {
    const char *bench; /* name or file */
    const run_options *options;
    const collectives_args *collectives;
} run_request;

typedef struct run_record {
    store_run run;
    json_t *document;
    kb_text command, directory, yaml;
    char hash[20];
} run_record;

/*
 * All but the key and the op log. Texts of the run, of its machine and of
 * its error must live as long as the record; run_record_fini() must be called in any case.
 */
KB_MUST_USE kb_error *run_record_init(run_record *record, const run_request *request,
                                      const run_outcome *outcome);
void run_record_fini(run_record *record);

/* Appends the command that runs it again. */
void run_record_command(const run_request *request, kb_text *text);

#endif
