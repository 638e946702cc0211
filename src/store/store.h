/*
 * store.h: runs kept in a SQLite file. docs/store.md documents the schema.
 *
 * Each run that was added is complete in the file, whatever kills the program afterwards. Several
 * programs may write to one store at the same time. A store must not be used across fork().
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
    STORE_READ,    /* an existing file, which is not changed */
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
    STORE_CRASHED,  /* ended by a signal */
    STORE_TIMEOUT,  /* ended by the limit of time of a sweep */
    STORE_NO_MEMORY /* ended by the limit of memory of a sweep */
} store_status;
const char *store_status_name(store_status status);

/* A run to be added. Texts may be NULL except bench. */
typedef struct store_run {
    const char *key;        /* of the point, as hexadecimal digits */
    const char *bench;      /* its name */
    const char *bench_file; /* as it was given; NULL: built in */
    const char *command;    /* that runs it again */
    const char *machine_name;
    const char *machine_hash;
    const char *machine_yaml; /* the complete file */
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

/* *id: of the new run. */
KB_MUST_USE kb_error *store_add(store *s, const store_run *run, int64_t *id);

/* Notes that a request, which is a hash of texts, led to a key. */
KB_MUST_USE kb_error *store_add_request(store *s, const char *request, const char *key);

/* ---- Many runs at once -------------------------------------------------------------------- */

/* What a sweep needs of a run that it finds again: the newest of each key. */
typedef struct store_known {
    const char *key;
    int64_t id;
    store_status status;
    double wall_s;
} store_known;

/* The texts live until the call returns. An error of the callback ends the walk. */
KB_MUST_USE kb_error *store_each_known(store *s, kb_error *(*each)(void *self, const store_known *),
                                       void *self);
KB_MUST_USE kb_error *
store_each_request(store *s, kb_error *(*each)(void *self, const char *request, const char *key),
                   void *self);

/* All numbers of a run's document: "sim_ns", "metrics.busbw_gbs", "breakdown.compute_ns". */
KB_MUST_USE kb_error *
store_each_figure(store *s, int64_t id,
                  kb_error *(*each)(void *self, const char *name, double value), void *self);

/* Adds the runs and requests of another store that this one does not have, by key. */
KB_MUST_USE kb_error *store_merge(store *s, const char *path, uint64_t *added, uint64_t *present);

#endif
