/*
 * schema.c: the tables and views of a store, by version (PRAGMA user_version).
 *
 * A new file gets all versions one after the other, so each step is what migrates older files too.
 * Steps that were released are not changed. Views have no data: the newest ones replace all.
 */
#include "store_private.h"

/* The step to each version from the one before. */
static const char *const steps[STORE_VERSION] = {
    /* 1 */
    "CREATE TABLE machines ("
    "  machine INTEGER PRIMARY KEY,"
    "  hash TEXT NOT NULL,"
    "  name TEXT NOT NULL,"
    "  yaml TEXT NOT NULL,"
    "  UNIQUE (hash, name));"
    "CREATE TABLE runs ("
    "  number INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  ended_at TEXT NOT NULL,"
    "  bench TEXT NOT NULL,"
    "  bench_file TEXT,"
    "  parameters TEXT NOT NULL,"
    "  settings TEXT NOT NULL,"
    "  machine INTEGER REFERENCES machines (machine),"
    "  status TEXT NOT NULL,"
    "  exit_code INTEGER NOT NULL,"
    "  message TEXT,"
    "  sim_ns REAL,"
    "  verified INTEGER,"
    "  verdict TEXT,"
    "  wall_s REAL NOT NULL,"
    "  cpu_s REAL,"
    "  peak_bytes INTEGER,"
    "  key TEXT,"
    "  command TEXT,"
    "  directory TEXT,"
    "  version TEXT NOT NULL,"
    "  host TEXT NOT NULL);"
    /* All that a sweep reads to resume. */
    "CREATE INDEX runs_by_key ON runs (key, status, wall_s) WHERE key IS NOT NULL;"
    "CREATE TABLE documents (run INTEGER PRIMARY KEY, json TEXT NOT NULL);"
    "CREATE TABLE op_logs (run INTEGER PRIMARY KEY, bytes BLOB NOT NULL);"
    "CREATE TABLE figure_names (figure INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);"
    "CREATE TABLE figure_values ("
    "  run INTEGER NOT NULL,"
    "  figure INTEGER NOT NULL REFERENCES figure_names (figure),"
    "  value REAL NOT NULL,"
    "  PRIMARY KEY (run, figure)) WITHOUT ROWID;"
    "CREATE TABLE requests (request TEXT PRIMARY KEY, key TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TRIGGER run_deleted AFTER DELETE ON runs BEGIN"
    "  DELETE FROM documents WHERE run = old.number;"
    "  DELETE FROM op_logs WHERE run = old.number;"
    "  DELETE FROM figure_values WHERE run = old.number;"
    "  DELETE FROM machines WHERE machine = old.machine"
    "    AND NOT EXISTS (SELECT 1 FROM runs WHERE machine = old.machine);"
    "END;",

    /* 2 */
    "ALTER TABLE runs ADD COLUMN label TEXT;"
    "CREATE INDEX runs_by_label ON runs (label) WHERE label IS NOT NULL;",
};

/* Each view names the run by its id. */
#define OF_DOCUMENT(path)                                                                          \
    " FROM runs JOIN documents ON documents.run = runs.number,"                                    \
    " json_each(documents.json, '" path "') AS item"

static const char *const views[][2] = {
    {"latest",
     "SELECT id AS run, label, ended_at, bench, parameters, settings, machines.name AS machine,"
     " status, sim_ns, verdict, wall_s"
     " FROM runs LEFT JOIN machines USING (machine) ORDER BY number DESC"},
    {"figures", "SELECT runs.id AS run, bench, name, value FROM figure_values"
                " JOIN runs ON runs.number = figure_values.run JOIN figure_names USING (figure)"},
    {"metrics", "SELECT run, bench, substr(name, 9) AS metric, value FROM figures"
                " WHERE name LIKE 'metrics.%'"},
    {"breakdown", "SELECT run, bench, substr(name, 11) AS part, value AS ns FROM figures"
                  " WHERE name LIKE 'breakdown.%'"},
    {"causes", "SELECT run, bench, substr(name, 8) AS cause, value AS ns FROM figures"
               " WHERE name LIKE 'causes.%' AND value > 0"},
    {"kernels", "SELECT runs.id AS run, bench, item.value ->> 'name' AS kernel,"
                " item.value ->> 'sip' AS sip, item.value ->> 'pes' AS pes,"
                " item.value ->> 'issued_ns' AS issued_ns, item.value ->> 'total_ns' AS total_ns,"
                " item.value ->> 'pe_exec_ns' AS pe_exec_ns,"
                " item.value ->> 'network_ns' AS network_ns,"
                " item.value ->> 'held_ns' AS held_ns" OF_DOCUMENT("$.kernels")},
    {"units", "SELECT runs.id AS run, bench, item.value ->> 'unit' AS unit,"
              " item.value ->> 'count' AS count, item.value ->> 'busy_ns' AS busy_ns,"
              " item.value ->> 'at_work_ns' AS at_work_ns, item.value ->> 'share' AS share,"
              " item.value ->> 'bytes' AS bytes,"
              " item.value ->> 'flops' AS flops" OF_DOCUMENT("$.units")},
    {"links", "SELECT runs.id AS run, bench, item.value ->> 'link' AS link,"
              " item.value ->> 'alike' AS alike, item.value ->> 'bytes' AS bytes,"
              " item.value ->> 'utilization' AS utilization,"
              " item.value ->> 'waited_ns' AS waited_ns,"
              " item.value ->> 'mean_queue' AS mean_queue" OF_DOCUMENT("$.busiest_links")},
    {"link_kinds",
     "SELECT runs.id AS run, bench, item.value ->> '$.between[0]' AS source,"
     " item.value ->> '$.between[1]' AS destination,"
     " item.value ->> 'gbs' AS gbs, item.value ->> 'count' AS count,"
     " item.value ->> 'active' AS active, item.value ->> 'bytes' AS bytes,"
     " item.value ->> 'mean_utilization' AS mean_utilization,"
     " item.value ->> 'max_utilization' AS max_utilization" OF_DOCUMENT("$.link_kinds")},
};

static kb_error *execute(store *s, const kb_text *sql)
{
    return sql->failed ? kb_error_nomem() : store_execute(s, kb_text_peek(sql));
}

static kb_error *make_views(store *s)
{
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        kb_text sql = KB_TEXT_INIT;
        kb_text_printf(&sql, "DROP VIEW IF EXISTS %s; CREATE VIEW %s AS %s", views[i][0],
                       views[i][0], views[i][1]);
        kb_error *err = execute(s, &sql);
        kb_text_fini(&sql);
        KB_TRY(err);
    }
    return NULL;
}

/* Another program may have done it since the version was read first. */
static kb_error *migrate(store *s)
{
    int64_t version;
    KB_TRY(store_read_number(s, "PRAGMA user_version", &version));
    if (version >= STORE_VERSION)
        return NULL;
    for (int64_t i = version; i < STORE_VERSION; i++)
        KB_TRY(store_execute(s, steps[i]));
    KB_TRY(make_views(s));
    kb_text sql = KB_TEXT_INIT;
    kb_text_printf(&sql, "PRAGMA application_id = %d; PRAGMA user_version = %d", STORE_APPLICATION,
                   STORE_VERSION);
    kb_error *err = execute(s, &sql);
    kb_text_fini(&sql);
    return err;
}

kb_error *store_migrate(store *s)
{
    KB_TRY(store_begin(s));
    return store_end(s, migrate(s));
}
