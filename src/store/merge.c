/*
 * merge.c: adds the runs of another store, in one transaction.
 *
 * The other file is attached to the connection, so all is done by SQLite. It is opened on its own
 * first, which checks it and migrates it if it is older.
 */
#include "store_private.h"

#include <stdlib.h>
#include <sys/stat.h>

/* The runs that are missing, in their order. Keys that this store has count before it is changed.
 */
static const char find_missing[] =
    "CREATE TEMP TABLE missing AS SELECT number, id FROM other.runs AS theirs"
    " WHERE NOT EXISTS (SELECT 1 FROM main.runs AS ours WHERE ours.id = theirs.id)"
    " AND NOT EXISTS (SELECT 1 FROM main.runs AS ours WHERE ours.key = theirs.key"
    "   AND (ours.status = 'ok' OR theirs.status <> 'ok'))"
    " ORDER BY number";

static const char copy_missing[] =
    "INSERT OR IGNORE INTO main.machines (hash, name, yaml)"
    " SELECT hash, name, yaml FROM other.machines WHERE machine IN"
    " (SELECT machine FROM other.runs WHERE number IN (SELECT number FROM missing));"

    "INSERT INTO main.runs (id, ended_at, bench, bench_file, parameters, settings, machine, status,"
    " exit_code, message, sim_ns, verified, verdict, wall_s, cpu_s, peak_bytes, key, command,"
    " directory, version, host, label)"
    " SELECT id, ended_at, bench, bench_file, parameters, settings,"
    " (SELECT ours.machine FROM main.machines AS ours JOIN other.machines AS theirs"
    "  USING (hash, name) WHERE theirs.machine = runs.machine),"
    " status, exit_code, message, sim_ns, verified, verdict, wall_s, cpu_s, peak_bytes, key,"
    " command, directory, version, host, label"
    " FROM other.runs AS runs WHERE number IN (SELECT number FROM missing) ORDER BY number;"

    /* From their numbers to ours. */
    "CREATE TEMP TABLE renumbered (theirs INTEGER PRIMARY KEY, ours INTEGER NOT NULL);"
    "INSERT INTO renumbered SELECT missing.number, ours.number FROM missing"
    " JOIN main.runs AS ours USING (id);"

    "INSERT INTO main.documents (run, json) SELECT ours, json"
    " FROM renumbered JOIN other.documents ON run = theirs ORDER BY ours;"
    "INSERT INTO main.op_logs (run, bytes) SELECT ours, bytes"
    " FROM renumbered JOIN other.op_logs ON run = theirs ORDER BY ours;"
    "INSERT OR IGNORE INTO main.figure_names (name) SELECT name FROM other.figure_names;"
    "INSERT INTO main.figure_values (run, figure, value)"
    " SELECT renumbered.ours, names.figure, value FROM renumbered"
    " JOIN other.figure_values AS theirs ON theirs.run = renumbered.theirs"
    " JOIN other.figure_names AS their_names ON their_names.figure = theirs.figure"
    " JOIN main.figure_names AS names ON names.name = their_names.name"
    " ORDER BY renumbered.ours, names.figure;"
    "INSERT OR IGNORE INTO main.requests SELECT request, key FROM other.requests;";

static const char clean_up[] = "DROP TABLE IF EXISTS temp.missing;"
                               "DROP TABLE IF EXISTS temp.renumbered;";

static kb_error *copy(store *s, uint64_t *added, uint64_t *present)
{
    int64_t missing, all;
    KB_TRY(store_execute(s, find_missing));
    KB_TRY(store_read_number(s, "SELECT count(*) FROM missing", &missing));
    KB_TRY(store_read_number(s, "SELECT count(*) FROM other.runs", &all));
    KB_TRY(store_execute(s, copy_missing));
    *added = (uint64_t)missing;
    *present = (uint64_t)(all - missing);
    return store_execute(s, clean_up);
}

static kb_error *attach(store *s, const char *path)
{
    sqlite3_stmt *statement;
    char *plain = store_plain_path(path);
    if (!plain)
        return kb_error_nomem();
    int result = sqlite3_prepare_v2(s->db, "ATTACH DATABASE ?1 AS other", -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_bind_text(statement, 1, plain, -1, SQLITE_STATIC);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    (void)sqlite3_finalize(statement);
    free(plain);
    return result == SQLITE_DONE
               ? NULL
               : store_error_of(path, result, sqlite3_errmsg(s->db), sqlite3_system_errno(s->db));
}

/* *present: how many runs it has, if it is the same file. */
static kb_error *check_other(store *s, const char *path, bool *is_same, uint64_t *present)
{
    store *other;
    struct stat ours, theirs;
    int64_t runs;
    KB_TRY(store_open(path, STORE_READ, &other));
    store_close(other);
    *is_same = stat(s->path, &ours) == 0 && stat(path, &theirs) == 0 &&
               ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
    if (!*is_same)
        return NULL;
    KB_TRY(store_read_number(s, "SELECT count(*) FROM runs", &runs));
    *present = (uint64_t)runs;
    return NULL;
}

kb_error *store_merge(store *s, const char *path, uint64_t *added, uint64_t *present)
{
    bool is_same;
    *added = *present = 0;
    KB_TRY(check_other(s, path, &is_same, present));
    if (is_same)
        return NULL;
    KB_TRY(attach(s, path));
    kb_error *err = store_begin(s);
    if (!err)
        err = store_end(s, copy(s, added, present));
    (void)sqlite3_exec(s->db, clean_up, NULL, NULL, NULL);
    (void)sqlite3_exec(s->db, "DETACH DATABASE other", NULL, NULL, NULL);
    return err;
}
