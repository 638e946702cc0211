/*
 * add.c: adds and deletes runs, each in one transaction.
 *
 * An id is random, so that runs of merged stores keep theirs: 8 digits of base 32. Should another
 * run have it, the row is not inserted, and the next id is tried.
 */
#include "store_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { ID_DIGITS = 8, MAX_TRIES = 16 };

static const char *const status_names[STORE_STATUSES] = {
    [STORE_OK] = "ok",
    [STORE_WRONG] = "wrong",
    [STORE_FAILED] = "failed",
    [STORE_DEADLOCK] = "deadlock",
    [STORE_CRASHED] = "crashed",
    [STORE_TIMEOUT] = "timeout",
    [STORE_NO_MEMORY] = "no-memory",
};

const char *store_status_name(store_status status)
{
    return status_names[status];
}

store_status store_status_of(kb_code code)
{
    switch (code) {
    case KB_OK:
        return STORE_OK;
    case KB_ERR_CHECK:
        return STORE_WRONG;
    case KB_ERR_DEADLOCK:
        return STORE_DEADLOCK;
    default:
        return STORE_FAILED;
    }
}

/* ---- Texts ------------------------------------------------------------------------------- */

/* NULL is stored as NULL. The text must stay until the statement is reset. */
static void bind(sqlite3_stmt *statement, int at, const char *text)
{
    if (text)
        (void)sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

/* Compact, with as many digits as `run --json` prints. NULL if out of memory. */
static char *dump(const json_t *value)
{
    return value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
}

/* Texts of users may be no UTF-8, which JSON cannot have. */
static json_t *text_json(const char *bytes, size_t length)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_append(&text, bytes, length);
    kb_text_escape_from(&text, 0);
    json_t *value = text.failed ? NULL : json_stringn(kb_text_peek(&text), text.length);
    kb_text_fini(&text);
    return value;
}

static json_t *list_json(const store_strings *strings)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < strings->count; i++) {
        const char *item = strings->items[i];
        if (json_array_append_new(list, text_json(item, strlen(item))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

/* {"m": "64"} of "m=64". */
static json_t *pairs_json(const store_strings *strings)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < strings->count; i++) {
        const char *item = strings->items[i];
        size_t length = strcspn(item, "=");
        const char *value = item + length + (item[length] == '=');
        json_t *name = text_json(item, length);
        bool set = name && json_object_set_new(object, json_string_value(name),
                                               text_json(value, strlen(value))) == 0;
        json_decref(name);
        if (!set) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static char *dump_parameters(const store_run *added)
{
    json_t *given = json_object_get(added->document, "parameters");
    json_t *object = given ? json_incref(given) : pairs_json(&added->params);
    char *text = dump(object);
    json_decref(object);
    return text;
}

static char *dump_settings(const store_run *added)
{
    json_t *list = list_json(&added->settings);
    char *text = dump(list);
    json_decref(list);
    return text;
}

static void make_id(char id[static ID_DIGITS + 1])
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        uint64_t seed =
            (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 48;
        bits = kb_splitmix64(&seed);
    }
    for (size_t i = 0; i < ID_DIGITS; i++)
        id[i] = digits[bits >> 5 * i & 31];
    id[ID_DIGITS] = '\0';
}

/* ---- Machines ---------------------------------------------------------------------------- */

/* *machine is 0 if it is not stored. */
static kb_error *find_machine(store *s, const char *hash, const char *name, int64_t *machine)
{
    sqlite3_stmt *statement;
    KB_TRY(store_statement_get(s, STORE_FIND_MACHINE, &statement));
    bind(statement, 1, hash);
    bind(statement, 2, name);
    int result = sqlite3_step(statement);
    *machine = result == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    (void)sqlite3_reset(statement);
    return result == SQLITE_ROW || result == SQLITE_DONE ? NULL : store_error(s, result);
}

kb_error *store_has_machine(store *s, const char *hash, const char *name, bool *has)
{
    int64_t machine;
    KB_TRY(find_machine(s, hash, name, &machine));
    *has = machine != 0;
    return NULL;
}

static kb_error *add_machine(store *s, const store_run *added, int64_t *machine)
{
    sqlite3_stmt *statement;
    *machine = 0;
    if (!added->machine_hash || !added->machine_name)
        return NULL;
    KB_TRY(find_machine(s, added->machine_hash, added->machine_name, machine));
    if (*machine != 0 || !added->machine_yaml)
        return NULL;
    KB_TRY(store_statement_get(s, STORE_INSERT_MACHINE, &statement));
    bind(statement, 1, added->machine_hash);
    bind(statement, 2, added->machine_name);
    bind(statement, 3, added->machine_yaml);
    KB_TRY(store_run_statement(s, statement));
    *machine = sqlite3_last_insert_rowid(s->db);
    return NULL;
}

/* ---- Runs -------------------------------------------------------------------------------- */

/* What the row has besides what was given. */
typedef struct row {
    char id[ID_DIGITS + 1];
    int64_t machine;
    char *parameters, *settings;
} row;

/* From the document: how it ended, and how long it took. */
static void bind_results(sqlite3_stmt *statement, const json_t *document)
{
    const json_t *sim = json_object_get(document, "sim_ns");
    const json_t *verified = json_object_get(document, "verified");
    if (json_is_number(sim))
        (void)sqlite3_bind_double(statement, 10, json_number_value(sim));
    if (json_is_boolean(verified))
        (void)sqlite3_bind_int(statement, 11, json_is_true(verified));
    bind(statement, 12, json_string_value(json_object_get(document, "verdict")));
}

static void bind_run(const store *s, sqlite3_stmt *statement, const store_run *added, const row *r)
{
    bind(statement, 1, r->id);
    bind(statement, 2, added->bench);
    bind(statement, 3, added->bench_file);
    bind(statement, 4, r->parameters);
    bind(statement, 5, r->settings);
    if (r->machine != 0)
        (void)sqlite3_bind_int64(statement, 6, r->machine);
    bind(statement, 7, store_status_name(added->status));
    (void)sqlite3_bind_int(statement, 8, added->exit_code);
    bind(statement, 9, added->message);
    bind_results(statement, added->document);
    (void)sqlite3_bind_double(statement, 13, added->wall_s);
    if (added->cpu_s > 0)
        (void)sqlite3_bind_double(statement, 14, added->cpu_s);
    if (added->peak_bytes > 0)
        (void)sqlite3_bind_int64(statement, 15, (sqlite3_int64)added->peak_bytes);
    bind(statement, 16, added->key);
    bind(statement, 17, added->command);
    bind(statement, 18, added->directory);
    bind(statement, 19, kb_version());
    bind(statement, 20, s->host);
    bind(statement, 21, added->label);
}

static kb_error *insert_run(store *s, const store_run *added, row *r, int64_t *run)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        sqlite3_stmt *statement;
        make_id(r->id);
        KB_TRY(store_statement_get(s, STORE_INSERT_RUN, &statement));
        bind_run(s, statement, added, r);
        KB_TRY(store_run_statement(s, statement));
        if (sqlite3_changes(s->db) > 0) {
            *run = sqlite3_last_insert_rowid(s->db);
            return NULL;
        }
    }
    return kb_error_new(KB_ERR_HOST, "the store %s: cannot find an id that is not in use", s->path);
}

static kb_error *insert_document(store *s, const json_t *document, int64_t run)
{
    sqlite3_stmt *statement;
    KB_TRY(store_statement_get(s, STORE_INSERT_DOCUMENT, &statement));
    char *text = dump(document);
    if (!text)
        return kb_error_nomem();
    (void)sqlite3_bind_int64(statement, 1, run);
    bind(statement, 2, text);
    kb_error *err = store_run_statement(s, statement);
    (void)sqlite3_clear_bindings(statement);
    free(text);
    return err ? err : store_add_figures(s, run, document);
}

static kb_error *insert_ops(store *s, const store_run *added, int64_t run)
{
    sqlite3_stmt *statement;
    KB_TRY(store_statement_get(s, STORE_INSERT_OPS, &statement));
    (void)sqlite3_bind_int64(statement, 1, run);
    int result = sqlite3_bind_blob64(statement, 2, added->ops, added->ops_size, SQLITE_STATIC);
    if (result != SQLITE_OK)
        return store_error(s, result);
    return store_run_statement(s, statement);
}

kb_error *store_add_request(store *s, const char *request, const char *key)
{
    sqlite3_stmt *statement;
    KB_TRY(store_statement_get(s, STORE_INSERT_REQUEST, &statement));
    bind(statement, 1, request);
    bind(statement, 2, key);
    return store_run_statement(s, statement);
}

static kb_error *insert(store *s, const store_run *added, row *r, int64_t *run)
{
    KB_TRY(add_machine(s, added, &r->machine));
    KB_TRY(insert_run(s, added, r, run));
    if (added->document)
        KB_TRY(insert_document(s, added->document, *run));
    if (added->request)
        KB_TRY(store_add_request(s, added->request, added->key));
    return added->ops ? insert_ops(s, added, *run) : NULL;
}

kb_error *store_add(store *s, const store_run *added, int64_t *run)
{
    row r = {.parameters = dump_parameters(added), .settings = dump_settings(added)};
    kb_error *err = r.parameters && r.settings ? store_begin(s) : kb_error_nomem();
    *run = 0;
    if (!err)
        err = store_end(s, insert(s, added, &r, run));
    free(r.parameters);
    free(r.settings);
    return err;
}

/* ---- Deleting ---------------------------------------------------------------------------- */

static kb_error *delete_all(store *s, const int64_t *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sqlite3_stmt *statement;
        KB_TRY(store_statement_get(s, STORE_DELETE_RUN, &statement));
        (void)sqlite3_bind_int64(statement, 1, runs[i]);
        KB_TRY(store_run_statement(s, statement));
    }
    return NULL;
}

kb_error *store_delete(store *s, const int64_t *runs, size_t count)
{
    KB_TRY(store_begin(s));
    return store_end(s, delete_all(s, runs, count));
}
