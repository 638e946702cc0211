/*
 * store.c: opening and closing a store, its statements and transactions.
 *
 * A file is looked at before anything of it is changed: one that is no store stays as it is.
 */
#include "store_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    BUSY_TIMEOUT_MS = 60000, /* transactions take milliseconds, or on a network disk tenths */
    SWITCH_TIMEOUT_MS = 5000,
    SWITCH_POLL_MS = 20,
};

/* ---- Statements -------------------------------------------------------------------------- */

static const char *const statements[STORE_STATEMENTS] = {
    [STORE_BEGIN] = "BEGIN IMMEDIATE",
    [STORE_COMMIT] = "COMMIT",
    [STORE_ROLLBACK] = "ROLLBACK",
    [STORE_FIND_MACHINE] = "SELECT machine FROM machines WHERE hash = ?1 AND name = ?2",
    [STORE_INSERT_MACHINE] = "INSERT INTO machines (hash, name, yaml) VALUES (?1, ?2, ?3)",
    [STORE_INSERT_RUN] =
        "INSERT OR IGNORE INTO runs (id, ended_at, bench, bench_file, parameters, settings,"
        " machine, status, exit_code, message, sim_ns, verified, verdict, wall_s, cpu_s,"
        " peak_bytes, key, command, directory, version, host, label) VALUES (?1,"
        " strftime('%Y-%m-%d %H:%M:%f', 'now'), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
        " ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
    [STORE_INSERT_DOCUMENT] = "INSERT INTO documents (run, json) VALUES (?1, ?2)",
    [STORE_INSERT_OPS] = "INSERT INTO op_logs (run, bytes) VALUES (?1, ?2)",
    [STORE_FIND_FIGURE] = "SELECT figure FROM figure_names WHERE name = ?1",
    [STORE_INSERT_FIGURE] = "INSERT INTO figure_names (name) VALUES (?1)",
    [STORE_INSERT_VALUE] =
        "INSERT OR REPLACE INTO figure_values (run, figure, value) VALUES (?1, ?2, ?3)",
    [STORE_INSERT_REQUEST] = "INSERT OR REPLACE INTO requests (request, key) VALUES (?1, ?2)",
    [STORE_DELETE_RUN] = "DELETE FROM runs WHERE number = ?1",
    [STORE_EACH_FIGURE] = ("SELECT name, value FROM figure_values JOIN figure_names USING (figure)"
                           " WHERE run = ?1"),
};

kb_error *store_statement_get(store *s, store_statement which, sqlite3_stmt **out)
{
    *out = s->statements[which];
    if (*out) {
        (void)sqlite3_reset(*out);
        (void)sqlite3_clear_bindings(*out);
        return NULL;
    }
    int result =
        sqlite3_prepare_v3(s->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    s->statements[which] = *out;
    return result == SQLITE_OK ? NULL : store_error(s, result);
}

kb_error *store_execute(store *s, const char *sql)
{
    int result = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? NULL : store_error(s, result);
}

kb_error *store_run_statement(store *s, sqlite3_stmt *statement)
{
    int result = sqlite3_step(statement);
    kb_error *err = result == SQLITE_DONE || result == SQLITE_ROW ? NULL : store_error(s, result);
    (void)sqlite3_reset(statement);
    return err;
}

kb_error *store_read_number(store *s, const char *sql, int64_t *number)
{
    sqlite3_stmt *statement;
    *number = 0;
    int result = sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *number = sqlite3_column_int64(statement, 0);
    kb_error *err = result == SQLITE_ROW || result == SQLITE_DONE ? NULL : store_error(s, result);
    (void)sqlite3_finalize(statement);
    return err;
}

/* ---- Transactions ------------------------------------------------------------------------ */

kb_error *store_begin(store *s)
{
    sqlite3_stmt *statement;
    KB_TRY(store_statement_get(s, STORE_BEGIN, &statement));
    return store_run_statement(s, statement);
}

kb_error *store_end(store *s, kb_error *err)
{
    sqlite3_stmt *statement;
    if (!err)
        err = store_statement_get(s, STORE_COMMIT, &statement);
    if (!err)
        err = store_run_statement(s, statement);
    if (!err)
        return NULL;
    store_forget_figures(s);
    if (!sqlite3_get_autocommit(s->db)) /* some errors have undone it already */
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return err;
}

/* ---- Opening ----------------------------------------------------------------------------- */

char *store_copy_text(const char *text)
{
    kb_text copy = KB_TEXT_INIT;
    kb_text_puts(&copy, text);
    return kb_text_take(&copy);
}

/* SQLite reads "file:..." as a URI, and ":memory:" is no file. */
char *store_plain_path(const char *path)
{
    kb_text plain = KB_TEXT_INIT;
    kb_text_printf(&plain, "%s%s", path[0] == '/' ? "" : "./", path);
    return kb_text_take(&plain);
}

/* SQLite takes a file of a few bytes for an empty one, and would overwrite it. */
static kb_error *check_header(const char *path)
{
    static const char magic[] = "SQLite format 3";
    char header[sizeof magic];
    FILE *file = fopen(path, "rb");
    if (!file)
        return kb_error_new(kb_code_of_errno(errno), "cannot open the store %s: %s", path,
                            strerror(errno));
    size_t size = fread(header, 1, sizeof header, file);
    (void)fclose(file);
    if (size == 0 || (size == sizeof header && memcmp(header, magic, sizeof magic) == 0))
        return NULL;
    return store_error_of(path, SQLITE_NOTADB, "", 0);
}

static kb_error *check_file(const char *path, store_mode mode)
{
    struct stat status;
    if (stat(path, &status) == 0) {
        if (S_ISREG(status.st_mode))
            return check_header(path);
        return kb_error_new(KB_ERR_INPUT, "cannot open the store %s: %s", path,
                            S_ISDIR(status.st_mode) ? "it is a directory" : "it is no file");
    }
    if (errno == ENOENT && mode == STORE_WRITE)
        return NULL;
    if (errno == ENOENT)
        return kb_error_new(KB_ERR_INPUT,
                            "there is no store %s: kernbench run --save creates kernbench.db, "
                            "--store names another one",
                            path);
    return kb_error_new(kb_code_of_errno(errno), "cannot open the store %s: %s", path,
                        strerror(errno));
}

static kb_error *connect(store *s, int flags)
{
    char *plain = store_plain_path(s->path);
    if (!plain)
        return kb_error_nomem();
    int result = sqlite3_open_v2(plain, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    free(plain);
    if (result != SQLITE_OK) {
        int os = s->db ? sqlite3_system_errno(s->db) : ENOMEM;
        return store_error_of(s->path, result, sqlite3_errstr(result), os);
    }
    (void)sqlite3_extended_result_codes(s->db, 1);
    (void)sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
    return NULL;
}

/*
 * A write-ahead log cannot be read where no file can be created, unless nothing is in it: then the
 * file alone is the store, and cannot change.
 */
static kb_error *connect_immutable(store *s)
{
    kb_text log = KB_TEXT_INIT, uri = KB_TEXT_INIT;
    struct stat status;
    kb_text_printf(&log, "%s-wal", s->path);
    kb_text_puts(&uri, "file:");
    for (const char *at = s->path; *at != '\0'; at++)
        kb_text_printf(&uri, strchr("%?# ", *at) ? "%%%02x" : "%c", (unsigned char)*at);
    kb_text_puts(&uri, "?immutable=1");
    kb_error *err = log.failed || uri.failed ? kb_error_nomem() : NULL;
    if (!err && stat(kb_text_peek(&log), &status) == 0 && status.st_size > 0)
        err = kb_error_new(KB_ERR_INPUT,
                           "cannot read the store %s: it has a write-ahead log and is in a folder "
                           "that cannot be written; copy it with its -wal file",
                           s->path);
    if (!err) {
        (void)sqlite3_close(s->db);
        s->db = NULL;
        int result =
            sqlite3_open_v2(kb_text_peek(&uri), &s->db,
                            SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
        err =
            result == SQLITE_OK ? NULL : store_error_of(s->path, result, sqlite3_errstr(result), 0);
    }
    kb_text_fini(&log);
    kb_text_fini(&uri);
    return err;
}

static kb_error *read_first_page(store *s, store_mode mode)
{
    int result = sqlite3_exec(s->db, "PRAGMA user_version", NULL, NULL, NULL);
    if (mode == STORE_READ &&
        ((result & 0xff) == SQLITE_CANTOPEN || (result & 0xff) == SQLITE_READONLY))
        return connect_immutable(s);
    return result == SQLITE_OK ? NULL : store_error(s, result);
}

/* At one moment: another program may be creating it. */
static kb_error *read_head(store *s, int64_t *version, int64_t *application, int64_t *entries)
{
    KB_TRY(store_execute(s, "BEGIN"));
    kb_error *err = store_read_number(s, "PRAGMA user_version", version);
    if (!err)
        err = store_read_number(s, "PRAGMA application_id", application);
    if (!err)
        err = store_read_number(s, "SELECT count(*) FROM sqlite_schema", entries);
    (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return err;
}

/* An empty file has version 0, and becomes a store if it is to be written. */
static kb_error *check_version(store *s, store_mode mode, int64_t *version)
{
    int64_t application, entries;
    KB_TRY(read_first_page(s, mode));
    KB_TRY(read_head(s, version, &application, &entries));
    bool is_empty = application == 0 && *version == 0 && entries == 0;
    if (is_empty && mode == STORE_WRITE)
        return NULL;
    if (application != STORE_APPLICATION || *version < 1)
        return kb_error_new(KB_ERR_INPUT, "%s is not a store of runs: %s", s->path,
                            is_empty ? "it is empty" : "it is a database of another program");
    if (*version > STORE_VERSION)
        return kb_error_new(KB_ERR_INPUT,
                            "the store %s was written by a newer KernBench: its schema is version "
                            "%lld, this program (%s) knows versions up to %d; use the newer one",
                            s->path, (long long)*version, kb_version(), STORE_VERSION);
    return NULL;
}

/* ---- The journal ------------------------------------------------------------------------- */

static void wait_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Other programs that have it open may be in the way, and SQLite does not wait for them. */
static kb_error *switch_journal(store *s, const char *sql)
{
    int result = SQLITE_BUSY;
    for (int waited = 0; waited <= SWITCH_TIMEOUT_MS; waited += SWITCH_POLL_MS) {
        result = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
        if ((result & 0xff) != SQLITE_BUSY && (result & 0xff) != SQLITE_LOCKED)
            break;
        wait_ms(SWITCH_POLL_MS);
    }
    return result == SQLITE_OK ? NULL : store_error(s, result);
}

/* Whether it has that journal. */
static kb_error *has_journal(store *s, const char *name, bool *has)
{
    sqlite3_stmt *statement;
    *has = false;
    int result = sqlite3_prepare_v2(s->db, "PRAGMA journal_mode", -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        const char *mode = (const char *)sqlite3_column_text(statement, 0);
        *has = mode && strcmp(mode, name) == 0;
    }
    (void)sqlite3_finalize(statement);
    return result == SQLITE_ROW ? NULL : store_error(s, result);
}

static kb_error *set_journal(store *s)
{
    bool is_wal, has;
    const char *reason;
    KB_TRY(store_choose_journal(s->path, &is_wal, &reason));
    KB_TRY(has_journal(s, is_wal ? "wal" : "delete", &has));
    if (!has)
        KB_TRY(switch_journal(s, is_wal ? "PRAGMA journal_mode = WAL"
                                        : "PRAGMA journal_mode = DELETE"));
    kb_text text = KB_TEXT_INIT;
    if (is_wal)
        kb_text_puts(&text, "write-ahead log");
    else
        kb_text_printf(&text, "rollback journal (%s)", reason);
    s->journal = kb_text_take(&text);
    if (!s->journal)
        return kb_error_nomem();
    /* Without a sync at each commit a power failure may lose the last runs, but breaks nothing. */
    return store_execute(s, is_wal ? "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000"
                                   : "PRAGMA synchronous = FULL");
}

static kb_error *prepare_writing(store *s, int64_t version)
{
    if (sqlite3_db_readonly(s->db, "main") == 1)
        return store_error_of(s->path, SQLITE_READONLY, "", 0);
    KB_TRY(set_journal(s));
    return version < STORE_VERSION ? store_migrate(s) : NULL;
}

static kb_error *open_file(store *s, store_mode mode)
{
    int64_t version;
    KB_TRY(check_file(s->path, mode));
    /* For reading too: who cannot write leaves files of the write-ahead log behind. */
    KB_TRY(connect(s, SQLITE_OPEN_READWRITE | (mode == STORE_WRITE ? SQLITE_OPEN_CREATE : 0)));
    KB_TRY(check_version(s, mode, &version));
    if (mode != STORE_READ || version < STORE_VERSION)
        KB_TRY(prepare_writing(s, version));
    if (mode == STORE_READ)
        KB_TRY(store_execute(s, "PRAGMA query_only = ON"));
    return store_execute(s, "PRAGMA cache_size = -16384");
}

static char *read_host(void)
{
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) != 0)
        name[0] = '\0';
    return store_copy_text(name);
}

kb_error *store_open(const char *path, store_mode mode, store **out)
{
    *out = NULL;
    store *s = kb_alloc_zeroed(1, sizeof *s);
    if (!s)
        return kb_error_nomem();
    s->path = store_copy_text(path);
    s->host = read_host();
    kb_error *err = s->path && s->host ? open_file(s, mode) : kb_error_nomem();
    if (err) {
        store_close(s);
        return err;
    }
    *out = s;
    return NULL;
}

void store_close(store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < STORE_STATEMENTS; i++)
        (void)sqlite3_finalize(s->statements[i]);
    (void)sqlite3_close(s->db);
    store_forget_figures(s);
    kb_vec_fini(&s->figures);
    free(s->journal);
    free(s->host);
    free(s->path);
    free(s);
}

const char *store_journal(const store *s)
{
    return s->journal ? s->journal : "read only";
}
