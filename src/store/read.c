/* read.c: finds and reads runs. */
#include "store_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- Walking over rows ------------------------------------------------------------------- */

typedef kb_error *row_fn(void *self, sqlite3_stmt *statement);

/* Calls `each` for every row of the statement, and finalizes it. */
static kb_error *walk(store *s, sqlite3_stmt *statement, row_fn *each, void *self)
{
    kb_error *err = NULL;
    int result = SQLITE_DONE;
    while (!err && (result = sqlite3_step(statement)) == SQLITE_ROW)
        err = each(self, statement);
    if (!err && result != SQLITE_DONE)
        err = store_error(s, result);
    (void)sqlite3_finalize(statement);
    return err;
}

static kb_error *prepare(store *s, const char *sql, sqlite3_stmt **statement)
{
    int result = sqlite3_prepare_v2(s->db, sql, -1, statement, NULL);
    return result == SQLITE_OK ? NULL : store_error(s, result);
}

static const char *text_at(sqlite3_stmt *statement, int column)
{
    return (const char *)sqlite3_column_text(statement, column);
}

/* A text that is there in each row. */
static kb_error *need_text(sqlite3_stmt *statement, int column, const char **text)
{
    *text = text_at(statement, column);
    return *text ? NULL : kb_error_nomem();
}

static kb_error *read_status(const char *name, store_status *status)
{
    for (*status = 0; *status < STORE_STATUSES; ++*status)
        if (name && strcmp(store_status_name(*status), name) == 0)
            return NULL;
    return kb_error_new(KB_ERR_INPUT, "the store has a run with an unknown status '%s'",
                        name ? name : "");
}

/* ---- Rows of lists ----------------------------------------------------------------------- */

typedef struct row_walk {
    kb_error *(*each)(void *self, const store_row *row);
    void *self;
} row_walk;

#define COLUMNS                                                                                    \
    "number, id, ended_at, bench, bench_file, parameters, settings, machines.name, machines.hash," \
    " status, exit_code, message, sim_ns, wall_s, cpu_s, peak_bytes, verdict, key, command,"       \
    " directory, version, host, label,"                                                            \
    " EXISTS (SELECT 1 FROM documents WHERE run = number),"                                        \
    " EXISTS (SELECT 1 FROM op_logs WHERE run = number)"

static kb_error *give_row(void *self, sqlite3_stmt *statement)
{
    const row_walk *w = self;
    store_row row = {
        .run = sqlite3_column_int64(statement, 0),
        .bench_file = text_at(statement, 4),
        .machine_name = text_at(statement, 7),
        .machine_hash = text_at(statement, 8),
        .exit_code = sqlite3_column_int(statement, 10),
        .message = text_at(statement, 11),
        .has_sim = sqlite3_column_type(statement, 12) != SQLITE_NULL,
        .sim_ns = sqlite3_column_double(statement, 12),
        .wall_s = sqlite3_column_double(statement, 13),
        .cpu_s = sqlite3_column_double(statement, 14),
        .peak_bytes = (uint64_t)sqlite3_column_int64(statement, 15),
        .verdict = text_at(statement, 16),
        .key = text_at(statement, 17),
        .command = text_at(statement, 18),
        .directory = text_at(statement, 19),
        .label = text_at(statement, 22),
        .has_document = sqlite3_column_int(statement, 23) != 0,
        .has_ops = sqlite3_column_int(statement, 24) != 0,
    };
    KB_TRY(need_text(statement, 1, &row.id));
    KB_TRY(need_text(statement, 2, &row.ended_at));
    KB_TRY(need_text(statement, 3, &row.bench));
    KB_TRY(need_text(statement, 5, &row.parameters));
    KB_TRY(need_text(statement, 6, &row.settings));
    KB_TRY(need_text(statement, 20, &row.version));
    KB_TRY(need_text(statement, 21, &row.host));
    KB_TRY(read_status(text_at(statement, 9), &row.status));
    return w->each(w->self, &row);
}

static void bind(sqlite3_stmt *statement, int at, const char *text)
{
    if (text)
        (void)sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

#define WHERE                                                                                      \
    " FROM runs LEFT JOIN machines USING (machine) WHERE (?1 IS NULL OR bench GLOB ?1)"            \
    " AND (?2 IS NULL OR machines.name = ?2 OR machines.hash = ?2)"                                \
    " AND (?3 IS NULL OR status = ?3) AND (?4 IS NULL OR ended_at >= ?4)"                          \
    " AND (?7 IS NULL OR label = ?7)"

kb_error *store_each_run(store *s, const store_filter *filter,
                         kb_error *(*each)(void *self, const store_row *row), void *self)
{
    static const char all[] = "SELECT " COLUMNS WHERE " ORDER BY number";
    static const char one[] = "SELECT " COLUMNS WHERE " AND number = ?5";
    static const char newest[] = "SELECT " COLUMNS WHERE " AND number IN (SELECT number" WHERE
                                 " ORDER BY number DESC LIMIT ?6) ORDER BY number";
    row_walk w = {.each = each, .self = self};
    sqlite3_stmt *statement;
    KB_TRY(prepare(s, filter->run ? one : filter->last ? newest : all, &statement));
    bind(statement, 1, filter->bench);
    bind(statement, 2, filter->machine);
    bind(statement, 3, filter->status);
    bind(statement, 4, filter->not_before);
    bind(statement, 7, filter->label);
    if (filter->run)
        (void)sqlite3_bind_int64(statement, 5, filter->run);
    else if (filter->last)
        (void)sqlite3_bind_int64(statement, 6, filter->last);
    return walk(s, statement, give_row, &w);
}

/* ---- One run ----------------------------------------------------------------------------- */

bool store_is_label(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "_-.+");
    return length > 0 && text[length] == '\0' && text[0] != '-' && strcmp(text, "last") != 0;
}

static kb_error *report_name(const char *name)
{
    return kb_error_new(KB_ERR_INPUT, "unknown run '%s': expected an id, @last, @-2 or @LABEL",
                        name);
}

static kb_error *read_first_number(void *self, sqlite3_stmt *statement)
{
    *(int64_t *)self = sqlite3_column_int64(statement, 0);
    return NULL;
}

/* "@baseline" */
static kb_error *find_label(store *s, const char *name, int64_t *run)
{
    sqlite3_stmt *statement;
    if (!store_is_label(name + 1))
        return report_name(name);
    KB_TRY(prepare(s, "SELECT number FROM runs WHERE label = ?1 ORDER BY number DESC LIMIT 1",
                   &statement));
    bind(statement, 1, name + 1);
    KB_TRY(walk(s, statement, read_first_number, run));
    if (*run != 0)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "there is no run with the label '%s' in the store %s",
                        name + 1, s->path);
}

/* "@-2": the last but one. */
static kb_error *find_last(store *s, const char *name, int64_t *run)
{
    int64_t back = 1, runs;
    bool is_last = strcmp(name, "@last") == 0;
    if (!is_last && (kb_decimal_parse(name + 2, 0, &back) != KB_DECIMAL_OK || back < 1))
        return report_name(name);
    kb_text sql = KB_TEXT_INIT;
    kb_text_printf(&sql, "SELECT number FROM runs ORDER BY number DESC LIMIT 1 OFFSET %lld",
                   (long long)back - 1);
    kb_error *err = sql.failed ? kb_error_nomem() : store_read_number(s, kb_text_peek(&sql), run);
    kb_text_fini(&sql);
    KB_TRY(err);
    KB_TRY(store_read_number(s, "SELECT count(*) FROM runs", &runs));
    if (*run != 0)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "there is no run %s: the store %s has %lld run%s", name,
                        s->path, (long long)runs, kb_plural((uint64_t)runs));
}

/* What begins with the prefix. */
typedef struct matches {
    kb_text ids;
    size_t count;
    int64_t run;
} matches;

static kb_error *note_match(void *self, sqlite3_stmt *statement)
{
    matches *m = self;
    const char *id;
    KB_TRY(need_text(statement, 1, &id));
    m->run = sqlite3_column_int64(statement, 0);
    kb_text_printf(&m->ids, "%s%s", m->count++ > 0 ? ", " : "", id);
    return NULL;
}

static bool is_id(const char *name)
{
    return name[0] != '\0' && name[strspn(name, "0123456789abcdefghijklmnopqrstuvwxyz")] == '\0';
}

kb_error *store_find(store *s, const char *name, int64_t *run)
{
    enum { SHOWN = 4 };
    matches m = {0};
    sqlite3_stmt *statement;
    *run = 0;
    if (strcmp(name, "@last") == 0 || strncmp(name, "@-", 2) == 0)
        return find_last(s, name, run);
    if (name[0] == '@')
        return find_label(s, name, run);
    if (!is_id(name))
        return report_name(name);
    /* All ids that begin with it: "~" comes after all letters. */
    KB_TRY(prepare(s,
                   "SELECT number, id FROM runs WHERE id >= ?1 AND id < ?1 || '~'"
                   " ORDER BY id LIMIT ?2",
                   &statement));
    bind(statement, 1, name);
    (void)sqlite3_bind_int(statement, 2, SHOWN);
    kb_error *err = walk(s, statement, note_match, &m);
    if (!err && m.ids.failed)
        err = kb_error_nomem();
    if (!err && m.count == 0)
        err = kb_error_new(KB_ERR_INPUT, "there is no run '%s' in the store %s", name, s->path);
    if (!err && m.count > 1)
        err = kb_error_new(KB_ERR_INPUT, "'%s' is the beginning of several runs: %s%s", name,
                           kb_text_peek(&m.ids), m.count == SHOWN ? ", ..." : "");
    kb_text_fini(&m.ids);
    *run = m.run;
    return err;
}

/* Appends the value of the first column. */
static kb_error *append_bytes(void *self, sqlite3_stmt *statement)
{
    kb_text *text = self;
    const void *bytes = sqlite3_column_blob(statement, 0);
    int length = sqlite3_column_bytes(statement, 0);
    if (length > 0 && bytes)
        kb_text_append(text, bytes, (size_t)length);
    return text->failed || (length > 0 && !bytes) ? kb_error_nomem() : NULL;
}

static kb_error *get_bytes(store *s, const char *sql, int64_t run, kb_text *text)
{
    sqlite3_stmt *statement;
    KB_TRY(prepare(s, sql, &statement));
    (void)sqlite3_bind_int64(statement, 1, run);
    return walk(s, statement, append_bytes, text);
}

kb_error *store_get_machine(store *s, int64_t run, kb_text *yaml)
{
    return get_bytes(s, "SELECT yaml FROM runs JOIN machines USING (machine) WHERE number = ?1",
                     run, yaml);
}

kb_error *store_get_ops(store *s, int64_t run, kb_text *bytes)
{
    return get_bytes(s, "SELECT bytes FROM op_logs WHERE run = ?1", run, bytes);
}

/* Why jansson could not read a document: if memory ran out it says that of its syntax too. */
static kb_error *report_document(store *s, int64_t run)
{
    int64_t is_valid = 0;
    kb_text sql = KB_TEXT_INIT;
    kb_text_printf(&sql, "SELECT json_valid(json) FROM documents WHERE run = %lld", (long long)run);
    kb_error *err =
        sql.failed ? kb_error_nomem() : store_read_number(s, kb_text_peek(&sql), &is_valid);
    kb_text_fini(&sql);
    KB_TRY(err);
    if (is_valid)
        return kb_error_nomem();
    return kb_error_new(KB_ERR_INPUT, "the store %s: the document of a run is no JSON", s->path);
}

kb_error *store_get_document(store *s, int64_t run, json_t **document)
{
    kb_text text = KB_TEXT_INIT;
    *document = NULL;
    kb_error *err = get_bytes(s, "SELECT json FROM documents WHERE run = ?1", run, &text);
    if (!err && text.length > 0) {
        *document = json_loadb(text.bytes, text.length, 0, NULL);
        if (!*document)
            err = report_document(s, run);
    }
    kb_text_fini(&text);
    return err;
}

/* ---- For sweeps -------------------------------------------------------------------------- */

typedef struct known_walk {
    kb_error *(*each)(void *self, const store_known *);
    void *self;
} known_walk;

static kb_error *give_known(void *self, sqlite3_stmt *statement)
{
    const known_walk *w = self;
    store_known known = {.id = sqlite3_column_int64(statement, 1),
                         .wall_s = sqlite3_column_double(statement, 3)};
    KB_TRY(need_text(statement, 0, &known.key));
    KB_TRY(read_status(text_at(statement, 2), &known.status));
    return w->each(w->self, &known);
}

kb_error *store_each_known(store *s, kb_error *(*each)(void *self, const store_known *), void *self)
{
    known_walk w = {.each = each, .self = self};
    sqlite3_stmt *statement;
    /* SQLite takes the other columns from the row of the maximum. */
    KB_TRY(prepare(s,
                   "SELECT key, max(number), status, wall_s FROM runs WHERE key IS NOT NULL"
                   " GROUP BY key",
                   &statement));
    return walk(s, statement, give_known, &w);
}

typedef struct request_walk {
    kb_error *(*each)(void *self, const char *request, const char *key);
    void *self;
} request_walk;

static kb_error *give_request(void *self, sqlite3_stmt *statement)
{
    const request_walk *w = self;
    const char *request, *key;
    KB_TRY(need_text(statement, 0, &request));
    KB_TRY(need_text(statement, 1, &key));
    return w->each(w->self, request, key);
}

kb_error *store_each_request(store *s,
                             kb_error *(*each)(void *self, const char *request, const char *key),
                             void *self)
{
    request_walk w = {.each = each, .self = self};
    sqlite3_stmt *statement;
    KB_TRY(prepare(s, "SELECT request, key FROM requests", &statement));
    return walk(s, statement, give_request, &w);
}
