/*
 * runs.h: what the commands `runs ...` share: the store, the choice of runs, texts of rows.
 *
 *     cmd_runs.c         lists and deletes     cmd_runs_show.c     shows one
 *     cmd_runs_export.c  writes documents, tables, machines and op logs
 */
#ifndef KB_CLI_RUNS_H
#define KB_CLI_RUNS_H

#include "store/store.h"

#include <jansson.h>

#include "cli.h"
#include "options.h"

typedef struct runs_choice {
    const char *store;
    const char *bench, *machine, *since, *label;
    size_t status; /* STORE_STATUSES: any */
    uint64_t last;
} runs_choice;

enum { RUNS_MAX_WORDS = 1000 };

extern const char *const runs_status_names[STORE_STATUSES];

#define RUNS_STORE_OPTION(type)                                                                    \
    CLI_OPTION("--store", "DB", CLI_STRING, type, choice.store,                                    \
               "the store, a file of run --save; default: kernbench.db")

/* For a struct with a member `choice`. */
#define RUNS_FILTER_OPTIONS(type)                                                                  \
    CLI_OPTION("--bench", "NAME", CLI_STRING, type, choice.bench,                                  \
               "runs of this bench; * and ? stand for any characters, as in 'ccl_*'"),             \
        CLI_OPTION("--machine", "NAME|HASH", CLI_STRING, type, choice.machine,                     \
                   "runs on the machine of this name or hash"),                                    \
        CLI_OPTION("--label", "NAME", CLI_STRING, type, choice.label, "runs with this label"),     \
        CLI_OPTION("--status", "STATUS", CLI_ENUM, type, choice.status,                            \
                   "runs that ended so: ok, wrong, failed, deadlock, crashed, timeout, no-memory", \
                   CLI_NAMES(runs_status_names)),                                                  \
        CLI_OPTION("--since", "WHEN", CLI_STRING, type, choice.since,                              \
                   "runs that ended after a date in UTC, such as 2026-01-31 or '2026-01-31 "       \
                   "12:00',\nor not longer ago than 45m, 12h or 7d"),                              \
        CLI_OPTION("--last", "N", CLI_UINT, type, choice.last, "the newest N of these", .min = 1,  \
                   .max = 1e9)

#define RUNS_CHOICE                                                                                \
    {                                                                                              \
        .store = "kernbench.db", .status = STORE_STATUSES                                          \
    }

/* Whether it has a filter. */
bool runs_has_filter(const runs_choice *choice);

/*
 * The runs of the words, in their order, or without words all that pass the filter. Errors are
 * reported. The caller frees *runs.
 */
KB_MUST_USE kb_code runs_choose(store *s, const runs_choice *choice, const cli_call *call,
                                int64_t **runs, size_t *count);

/* Calls for each run that passes the filter. Errors are reported. */
KB_MUST_USE kb_code runs_each(store *s, const runs_choice *choice,
                              kb_error *(*each)(void *self, const store_row *row), void *self);

/* Calls for one run. Errors are reported. */
KB_MUST_USE kb_code runs_one(store *s, int64_t run,
                             kb_error *(*each)(void *self, const store_row *row), void *self);

/* Appends "m=64 dtype=f16" of the row's parameters, and "KEY=VALUE ..." of its settings. */
void runs_append_parameters(const store_row *row, kb_text *text);
void runs_append_settings(const store_row *row, kb_text *text);

/* The row as a JSON object; NULL if out of memory. */
json_t *runs_row_json(const store_row *row);

extern const cli_command cli_runs_show_command, cli_runs_delete_command, cli_runs_export_command;

#endif
