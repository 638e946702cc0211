/*
 * test_store_files.c: what is no store, or a damaged one, is refused with a message and stays as it
 * is; older stores are migrated; journals suit the file system.
 */
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "store/store_private.h"

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t read_file(const char *path, char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, room, file);
    assert_int_equal(fclose(file), 0);
    return size;
}

/* In all modes; the file stays as it is. */
static void expect_refused(const char *path, kb_code code, const char *message)
{
    static char before[1 << 17], after[1 << 17];
    struct stat status;
    bool is_file = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    size_t size = is_file ? read_file(path, before, sizeof before) : 0;
    for (store_mode mode = STORE_READ; mode <= STORE_EXISTING; mode++) {
        store *s;
        kb_error *err = store_open(path, mode, &s);
        assert_null(s);
        if (!strstr(kb_error_message(err), message))
            print_error("%s\n", kb_error_message(err));
        assert_non_null(strstr(kb_error_message(err), message));
        assert_int_equal(kb_error_code(err), code);
        kb_error_free(err);
        if (is_file) {
            assert_int_equal(read_file(path, after, sizeof after), size);
            assert_memory_equal(before, after, size);
        }
    }
}

static void execute(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int64_t number_of(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, 0);
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return number;
}

static void other_files_are_refused(void **state)
{
    (void)state;
    scratch at = scratch_make();
    static const char text[] = "This is a text, which is longer than the header of a database is: "
                               "that has 100 bytes, so this goes on for a bit, and a bit more.\n";
    write_file(at.path, text, sizeof text);
    expect_refused(at.path, KB_ERR_INPUT, "is not a store of runs: it is no SQLite database");
    char noise[5000];
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)kb_splitmix64(&seed);
    write_file(at.path, noise, sizeof noise);
    expect_refused(at.path, KB_ERR_INPUT, "is not a store of runs: it is no SQLite database");
    write_file(at.path, "x", 1);
    expect_refused(at.path, KB_ERR_INPUT, "is not a store of runs");
    expect_refused(at.directory, KB_ERR_INPUT, "it is a directory");
    expect_refused("/nonexistent/s.db", KB_ERR_INPUT, "");
    assert_int_equal(unlink(at.path), 0);
    execute(at.path, "CREATE TABLE runs (x)");
    expect_refused(at.path, KB_ERR_INPUT, "it is a database of another program");
    scratch_remove(&at);
}

/* They have no runs, and become a store when they are written. */
static void empty_files_are_new(void **state)
{
    (void)state;
    scratch at = scratch_make();
    write_file(at.path, "", 0);
    store *s;
    kb_error *err = store_open(at.path, STORE_READ, &s);
    assert_non_null(strstr(kb_error_message(err), "it is empty"));
    kb_error_free(err);
    s = open_store(at.path, STORE_WRITE);
    add_run(s, NULL, 1, 1);
    store_close(s);
    scratch_remove(&at);
}

static void make_store(const char *path, int runs)
{
    store *s = open_store(path, STORE_WRITE);
    for (int i = 0; i < runs; i++)
        add_run(s, NULL, i, i);
    store_close(s);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    static char bytes[1 << 17];
    scratch at = scratch_make();
    make_store(at.path, 30);
    size_t size = read_file(at.path, bytes, sizeof bytes);
    assert_true(size > 20000 && size < sizeof bytes);
    write_file(at.path, bytes, size / 2);
    expect_refused(at.path, KB_ERR_INPUT, "is damaged");
    write_file(at.path, bytes, 50);
    expect_refused(at.path, KB_ERR_INPUT, "is damaged");
    scratch_remove(&at);
}

/* Wherever bytes are wrong, there is an error or the right result, and never a crash. */
static void wrong_bytes_are_survived(void **state)
{
    (void)state;
    static char bytes[1 << 17], changed[1 << 17];
    scratch at = scratch_make();
    make_store(at.path, 20);
    size_t size = read_file(at.path, bytes, sizeof bytes);
    uint64_t seed = 7;
    int errors = 0;
    for (int i = 0; i < 100; i++) {
        memcpy(changed, bytes, size);
        for (int k = 0; k < 40; k++)
            changed[kb_splitmix64(&seed) % size] = (char)kb_splitmix64(&seed);
        write_file(at.path, changed, size);
        store *s;
        seen all = {0};
        kb_error *err = store_open(at.path, STORE_READ, &s);
        if (!err)
            err = store_each_run(s, &(store_filter){0}, see, &all);
        errors += err != NULL;
        assert_true(!err || kb_error_code(err) != KB_ERR_BUG);
        kb_error_free(err);
        store_close(s);
    }
    assert_true(errors > 0);
    scratch_remove(&at);
}

static void newer_stores_are_refused(void **state)
{
    (void)state;
    scratch at = scratch_make();
    make_store(at.path, 1);
    execute(at.path, "PRAGMA user_version = 999");
    expect_refused(at.path, KB_ERR_INPUT,
                   "was written by a newer KernBench: its schema is version 999");
    execute(at.path, "PRAGMA user_version = 2");
    store *s = open_store(at.path, STORE_READ);
    assert_int_equal(see_runs(s, (store_filter){0}).count, 1);
    store_close(s);
    scratch_remove(&at);
}

/* A store that the program of version 1 wrote. */
static void make_version_1(const char *path)
{
    static char sql[1 << 16];
    size_t size = read_file(KB_TEST_DIR "/store/version1.sql", sql, sizeof sql - 1);
    sql[size] = '\0';
    execute(path, sql);
    assert_int_equal(number_of(path, "PRAGMA user_version"), 1);
}

static void check_migrated(store *s)
{
    int64_t run;
    json_t *document;
    seen all = see_runs(s, (store_filter){0});
    assert_int_equal(all.count, 2);
    assert_string_equal(all.id, "n1fvj64n");
    assert_string_equal(all.settings, "[\"sip.ucie.bw_gbs=64\"]");
    assert_true(all.sim_ns > 9952.0199 && all.sim_ns < 9952.0201); /* its digits were rounded */
    expect_ok(store_find(s, "13tggj6y", &run));
    expect_ok(store_get_document(s, run, &document));
    assert_string_equal(json_string_value(json_object_get(document, "bench")), "gemm_single_pe");
    json_decref(document);
    assert_int_equal(see_runs(s, (store_filter){.label = "first"}).count, 0);
}

static void older_stores_are_migrated(void **state)
{
    (void)state;
    for (store_mode mode = STORE_READ; mode <= STORE_EXISTING; mode++) {
        scratch at = scratch_make();
        make_version_1(at.path);
        store *s = open_store(at.path, mode);
        check_migrated(s);
        store_close(s);
        assert_int_equal(number_of(at.path, "PRAGMA user_version"), STORE_VERSION);
        s = open_store(at.path, STORE_WRITE);
        check_migrated(s);
        add_run(s, NULL, 64, 1);
        assert_int_equal(see_runs(s, (store_filter){.label = "first"}).count, 1);
        store_close(s);
        /* Views are those of a new store. */
        assert_int_equal(number_of(at.path, "SELECT count(*) FROM latest WHERE label IS NULL"), 2);
        scratch_remove(&at);
    }
}

/* Programs that find it older at the same time: one of them migrates it. */
static void programs_migrate_together(void **state)
{
    (void)state;
    scratch at = scratch_make();
    pid_t children[4];
    make_version_1(at.path);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            store *s = open_store(at.path, STORE_EXISTING);
            check_migrated(s);
            store_close(s);
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    scratch_remove(&at);
}

/* As a user who may not write; root may always. */
static void read_as_nobody(const char *path)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        _exit(77);
    store *s;
    kb_error *err = store_open(path, STORE_EXISTING, &s);
    bool refused = err && strstr(kb_error_message(err), "read-only") && !s;
    kb_error_free(err);
    s = open_store(path, STORE_READ);
    bool read = see_runs(s, (store_filter){0}).count == 3;
    store_close(s);
    _exit(refused && read ? 0 : 1);
}

static void read_only_stores_are_read(void **state)
{
    (void)state;
    scratch at = scratch_make();
    make_store(at.path, 3);
    assert_int_equal(chmod(at.path, 0444), 0);
    assert_int_equal(chmod(at.directory, 0555), 0);
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        read_as_nobody(at.path);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(at.directory, 0755), 0);
    scratch_remove(&at);
}

/* Files may not grow: what was there stays whole, and the next run is added when they may. */
static void limits_of_files_lose_nothing(void **state)
{
    (void)state;
    scratch at = scratch_make();
    make_store(at.path, 2);
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        struct rlimit limit = {.rlim_cur = 200000, .rlim_max = 200000};
        kb_error *err = NULL;
        int64_t run;
        store *s = open_store(at.path, STORE_WRITE);
        json_t *document = document_of(1, 1);
        store_run added = run_of(NULL, document);
        if (sigaction(SIGXFSZ, &ignore, NULL) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(2);
        for (int i = 0; i < 1000 && !err; i++)
            err = store_add(s, &added, &run);
        bool good = kb_error_code(err) == KB_ERR_HOST || kb_error_code(err) == KB_ERR_INPUT;
        if (!good)
            print_error("%s\n", kb_error_message(err));
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(number_of(at.path, "SELECT count(*) FROM pragma_integrity_check"
                                        " WHERE integrity_check = 'ok'"),
                     1);
    assert_true(number_of(at.path, "SELECT count(*) FROM runs") > 2);
    assert_int_equal(number_of(at.path, "SELECT count(*) FROM runs"),
                     number_of(at.path, "SELECT count(*) FROM documents"));
    make_store(at.path, 1);
    scratch_remove(&at);
}

static void journals_suit_file_systems(void **state)
{
    (void)state;
    assert_true(store_is_local(0xef53));
    assert_false(store_is_local(0x6969));     /* nfs */
    assert_false(store_is_local(0x0bd00bd0)); /* lustre */
    assert_false(store_is_local(0xff534d42)); /* cifs */
    assert_false(store_is_local(0x65735546)); /* fuse */
    scratch at = scratch_make();
    assert_int_equal(setenv("KERNBENCH_STORE_JOURNAL", "wal", 1), 0);
    store *s = open_store(at.path, STORE_WRITE);
    assert_string_equal(store_journal(s), "write-ahead log");
    add_run(s, NULL, 1, 1);
    store_close(s);
    /* The same file on another file system. */
    assert_int_equal(setenv("KERNBENCH_STORE_JOURNAL", "rollback", 1), 0);
    s = open_store(at.path, STORE_EXISTING);
    assert_string_equal(store_journal(s), "rollback journal (KERNBENCH_STORE_JOURNAL)");
    add_run(s, NULL, 1, 1);
    char log[80];
    snprintf(log, sizeof log, "%s-wal", at.path);
    assert_int_equal(access(log, F_OK), -1);
    assert_int_equal(see_runs(s, (store_filter){0}).count, 2);
    store_close(s);
    assert_int_equal(setenv("KERNBENCH_STORE_JOURNAL", "x", 1), 0);
    expect_error(store_open(at.path, STORE_WRITE, &s), KB_ERR_INPUT,
                 "KERNBENCH_STORE_JOURNAL: expected wal or rollback, found 'x'");
    assert_int_equal(unsetenv("KERNBENCH_STORE_JOURNAL"), 0);
    scratch_remove(&at);
}

/* Names that mean something to SQLite are files all the same. */
static void odd_names_are_files(void **state)
{
    (void)state;
    static const char *const names[] = {":memory:", "file:x?mode=memory", "a b#c%20"};
    char before[200];
    scratch at = scratch_make();
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(at.directory), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make_store(names[i], 1);
        store *s = open_store(names[i], STORE_READ);
        assert_int_equal(see_runs(s, (store_filter){0}).count, 1);
        store_close(s);
        assert_int_equal(unlink(names[i]), 0);
    }
    assert_int_equal(chdir(before), 0);
    scratch_remove(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(empty_files_are_new),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(wrong_bytes_are_survived),
        cmocka_unit_test(newer_stores_are_refused),
        cmocka_unit_test(older_stores_are_migrated),
        cmocka_unit_test(programs_migrate_together),
        cmocka_unit_test(read_only_stores_are_read),
        cmocka_unit_test(limits_of_files_lose_nothing),
        cmocka_unit_test(journals_suit_file_systems),
        cmocka_unit_test(odd_names_are_files),
    };
    return cmocka_run_group_tests_name("store-files", tests, NULL, NULL);
}
