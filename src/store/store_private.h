/* store_private.h: a store as the files of this folder see it. */
#ifndef KB_STORE_STORE_PRIVATE_H
#define KB_STORE_STORE_PRIVATE_H

#include "store.h"

#include <sqlite3.h>

/* Statements that are prepared once. */
typedef enum store_statement {
    STORE_BEGIN,
    STORE_COMMIT,
    STORE_ROLLBACK,
    STORE_FIND_MACHINE,
    STORE_INSERT_MACHINE,
    STORE_INSERT_RUN,
    STORE_INSERT_DOCUMENT,
    STORE_INSERT_OPS,
    STORE_FIND_FIGURE,
    STORE_INSERT_FIGURE,
    STORE_INSERT_VALUE,
    STORE_INSERT_REQUEST,
    STORE_DELETE_RUN,
    STORE_EACH_FIGURE,
    STORE_STATEMENTS
} store_statement;

/* The name of a figure and its number in the table of names. */
typedef struct store_figure_name {
    char *name;
    int64_t number;
} store_figure_name;

struct store {
    sqlite3 *db;
    char *path; /* as it was given */
    char *host;
    char *journal;
    sqlite3_stmt *statements[STORE_STATEMENTS];
    /* Of the last document, in its order: the next one most likely has the same. */
    KB_VEC(store_figure_name) figures;
};

enum { STORE_VERSION = 2, STORE_APPLICATION = 0x4b427374 }; /* "KBst" */

/* ---- sqlite_error.c ---- */

/* The error for a result code of SQLite that is none of success. */
KB_MUST_USE kb_error *store_error(const store *s, int result);
/* The same without a connection. */
KB_MUST_USE kb_error *store_error_of(const char *path, int result, const char *message, int os);

/* ---- journal.c ---- */

/* Whether a write-ahead log is safe for a file in that directory; *reason otherwise says why not.
 */
KB_MUST_USE kb_error *store_choose_journal(const char *path, bool *is_wal, const char **reason);

/* Whether files of a file system of that type (statfs) are of this host alone. */
bool store_is_local(unsigned long type);

/* ---- schema.c ---- */

/* Creates the tables of an empty file, or those that a newer version has, in one transaction. */
KB_MUST_USE kb_error *store_migrate(store *s);

/* ---- store.c ---- */

/* The statement, reset and without values. */
KB_MUST_USE kb_error *store_statement_get(store *s, store_statement which, sqlite3_stmt **out);

/* Runs statements that have no result. */
KB_MUST_USE kb_error *store_execute(store *s, const char *sql);

/* Runs a statement that has no result, and resets it. */
KB_MUST_USE kb_error *store_run_statement(store *s, sqlite3_stmt *statement);

/* The first column of the first row; 0 if there is none. */
KB_MUST_USE kb_error *store_read_number(store *s, const char *sql, int64_t *number);

KB_MUST_USE kb_error *store_begin(store *s);

/* Ends the transaction: commits it, or undoes it if there is an error, which is returned. */
KB_MUST_USE kb_error *store_end(store *s, kb_error *err);

/* NULL if out of memory. */
char *store_copy_text(const char *text);

/* A path that SQLite takes for a file, whatever its name. NULL if out of memory. */
char *store_plain_path(const char *path);

/* ---- figures.c ---- */

KB_MUST_USE kb_error *store_add_figures(store *s, int64_t run, const json_t *document);
/* Their numbers may not be in the file: a transaction was undone. */
void store_forget_figures(store *s);

#endif
