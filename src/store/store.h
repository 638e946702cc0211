/*
 * store.h: runs kept in a SQLite file. docs/store.md documents the schema.
 *
 * Each run that was added is complete in the file, whatever kills the program afterwards. Several
 * programs may write to one store at the same time. A store must not be used across fork().
 *
 *     store.c         opening, closing, transactions     schema.c        tables, views, migrations
 *     journal.c       which journal a file system needs  add.c           adding and deleting runs
 *     figures.c       the numbers of documents           read.c          finding and reading runs
 *     merge.c         merging stores                     sqlite_error.c  messages
 */
#ifndef KB_STORE_STORE_H
#define KB_STORE_STORE_H

#include "base/base.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct store store;

typedef enum store_mode {
    STORE_READ,    /* an existing file, which is changed only to migrate it if it is older */
    STORE_WRITE,   /* created if it does not exist, migrated if it is older */
    STORE_EXISTING /* as STORE_WRITE, but the file must exist */
} store_mode;

KB_MUST_USE kb_error *store_open(const char *path, store_mode mode, store **out);
void store_close(store *s); /* NULL does nothing */

/* "write-ahead log" or "rollback journal", with the reason for the latter; for messages. */
const char *store_journal(const store *s);

/* How a run ended. */
typedef enum store_status {
    STORE_OK,
    STORE_WRONG,  /* verification failed */
    STORE_FAILED, /* an error: input, fault or host; exit_code says which */
    STORE_DEADLOCK,
    STORE_CRASHED,   /* ended by a signal */
    STORE_TIMEOUT,   /* ended by the limit of time of a sweep */
    STORE_NO_MEMORY, /* ended by the limit of memory of a sweep */
    STORE_STATUSES
} store_status;
const char *store_status_name(store_status status); /* "ok", "no-memory" */

/* The status of a run that ended by itself, with that code. */
store_status store_status_of(kb_code code);

typedef struct store_strings {
    const char *const *items;
    size_t count;
} store_strings;

/* A run to be added. Texts may be NULL except bench. */
typedef struct store_run {
    const char *key;        /* of the point, as hexadecimal digits */
    const char *request;    /* that led to the key: see store_add_request() */
    const char *bench;      /* its name */
    const char *bench_file; /* as it was given; NULL: built in */
    const char *label;      /* see store_is_label() */
    store_strings params;   /* "m=64", as given: for runs without a document, which has all */
    store_strings settings; /* "KEY=VALUE", of the machine and of ccl.yaml, as given */
    const char *command;    /* that runs it again in the directory */
    const char *directory;  /* where it was run */
    const char *machine_name;
    const char *machine_hash;
    const char *machine_yaml; /* the complete file; may be NULL if store_has_machine() */
    store_status status;
    int exit_code;
    const char *message;    /* of the failure */
    double wall_s;          /* of the run with its machine and context */
    double cpu_s;           /* 0 if it is not known */
    uint64_t peak_bytes;    /* resident memory; 0 if it is not known */
    const json_t *document; /* of run --json; NULL if it failed before there was one */
    const void *ops;        /* the compressed op log; NULL: not kept */
    size_t ops_size;
} store_run;

/* *run: the number of the new run. Numbers count up and are not used again. */
KB_MUST_USE kb_error *store_add(store *s, const store_run *added, int64_t *run);

/* Whether users can give that label to runs: "@LABEL" then names the newest that has it. */
bool store_is_label(const char *text);

/* Whether a machine with that hash and name is stored. */
KB_MUST_USE kb_error *store_has_machine(store *s, const char *hash, const char *name, bool *has);

/* Notes that a request, which is a hash of texts, led to a key. */
KB_MUST_USE kb_error *store_add_request(store *s, const char *request, const char *key);

KB_MUST_USE kb_error *store_delete(store *s, const int64_t *runs, size_t count);

/* ---- One run ------------------------------------------------------------------------------ */

/*
 * The number of the run that a user names: its id, a prefix of it that no other run has, "@last",
 * "@-1" (the same), "@-2" (the one added before that), or "@LABEL", the newest with that label.
 */
KB_MUST_USE kb_error *store_find(store *s, const char *name, int64_t *run);

/* *document: as `run --json` printed it; NULL if there is none. The caller frees it. */
KB_MUST_USE kb_error *store_get_document(store *s, int64_t run, json_t **document);

/* Appends the file of its machine; nothing if there is none. */
KB_MUST_USE kb_error *store_get_machine(store *s, int64_t run, kb_text *yaml);

/* Appends its compressed op log; nothing if there is none. */
KB_MUST_USE kb_error *store_get_ops(store *s, int64_t run, kb_text *bytes);

/* All numbers of a run's document: "sim_ns", "metrics.busbw_gbs", "breakdown.compute_ns". */
KB_MUST_USE kb_error *
store_each_figure(store *s, int64_t run,
                  kb_error *(*each)(void *self, const char *name, double value), void *self);

/* ---- Many runs at once -------------------------------------------------------------------- */

/* A run as lists show it; texts may be NULL except those that say otherwise. */
typedef struct store_row {
    int64_t run;
    const char *id;       /* not NULL */
    const char *ended_at; /* UTC: "2026-01-31 12:00:00.000"; not NULL */
    const char *bench;    /* not NULL */
    const char *bench_file;
    const char *parameters; /* a JSON object; not NULL */
    const char *settings;   /* a JSON array; not NULL */
    const char *machine_name, *machine_hash;
    store_status status;
    int exit_code;
    const char *message;
    bool has_sim;
    double sim_ns, wall_s;
    double cpu_s;        /* 0 if it is not known */
    uint64_t peak_bytes; /* 0 if it is not known */
    const char *verdict, *key, *command, *directory, *label;
    const char *version, *host; /* not NULL */
    bool has_document, has_ops;
} store_row;

/* Which runs; all zeros: all. */
typedef struct store_filter {
    int64_t run;         /* this one */
    const char *bench;   /* its name, with * and ? */
    const char *machine; /* name or hash */
    const char *status;  /* as store_status_name() */
    const char *label;
    const char *not_before; /* of ended_at */
    int64_t last;           /* only so many, the newest */
} store_filter;

/* In the order in which they were added. Texts live until the call returns. An error of the
 * callback ends the walk. */
KB_MUST_USE kb_error *store_each_run(store *s, const store_filter *filter,
                                     kb_error *(*each)(void *self, const store_row *row),
                                     void *self);

/* What a sweep needs of a run that it finds again: the newest of each key. */
typedef struct store_known {
    const char *key;
    int64_t id; /* its number */
    store_status status;
    double wall_s;
} store_known;

/* The texts live until the call returns. An error of the callback ends the walk. */
KB_MUST_USE kb_error *store_each_known(store *s, kb_error *(*each)(void *self, const store_known *),
                                       void *self);
KB_MUST_USE kb_error *
store_each_request(store *s, kb_error *(*each)(void *self, const char *request, const char *key),
                   void *self);

/*
 * Adds the runs and requests of another store that this one does not have. It has a run if it has
 * its id, or a run of the same key that is as good: one that ended well, or if the other did not.
 */
KB_MUST_USE kb_error *store_merge(store *s, const char *path, uint64_t *added, uint64_t *present);

#endif
