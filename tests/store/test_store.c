/* test_store.c: runs are added, found, read, deleted and merged. */
#include "support.h"

static void runs_are_kept(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    int64_t first = add_run(s, "a1", 64, 100.5), second = add_run(s, NULL, 128, 200);
    assert_true(second > first);
    store_close(s);

    s = open_store(at.path, STORE_READ);
    assert_int_equal(see_runs(s, (store_filter){0}).count, 2);
    seen one = see_runs(s, (store_filter){.run = first});
    assert_int_equal(one.count, 1);
    assert_string_equal(one.bench, "gemm");
    assert_string_equal(one.parameters, "{\"m\":64}");
    assert_string_equal(one.key, "a1");
    assert_int_equal(one.status, STORE_OK);
    assert_true(one.sim_ns == 100.5);
    assert_int_equal(strlen(one.id), 8);

    json_t *document, *expected = document_of(64, 100.5);
    expect_ok(store_get_document(s, first, &document));
    assert_true(json_equal(document, expected));
    json_decref(document);
    json_decref(expected);
    kb_text yaml = KB_TEXT_INIT;
    expect_ok(store_get_machine(s, first, &yaml));
    assert_string_equal(kb_text_peek(&yaml), "system: {}\n");
    kb_text_fini(&yaml);
    store_close(s);
    scratch_remove(&at);
}

static kb_error *sum_figure(void *self, const char *name, double value)
{
    double *sums = self;
    if (strcmp(name, "sim_ns") == 0)
        sums[0] += value;
    else if (strcmp(name, "parameters.m") == 0)
        sums[1] += value;
    else if (strcmp(name, "metrics.tflops") == 0)
        sums[2] += value;
    else if (strcmp(name, "metrics.busbw.gbs") == 0)
        sums[3] += value;
    else
        sums[4]++;
    return NULL;
}

static void figures_have_names(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    double sums[5] = {0};
    expect_ok(store_each_figure(s, add_run(s, "a", 64, 100), sum_figure, sums));
    expect_ok(store_each_figure(s, add_run(s, "b", 1, 11), sum_figure, sums));
    assert_true(sums[0] == 111 && sums[1] == 65 && sums[2] == 3 && sums[3] == 14);
    assert_true(sums[4] == 0);
    /* Another document: other names, and some of the same in other places. */
    json_t *other = json_pack("{s:f, s:{s:i}}", "sim_ns", 1.0, "x", "y", 3);
    store_run run = run_of("c", other);
    int64_t number;
    expect_ok(store_add(s, &run, &number));
    json_decref(other);
    expect_ok(store_each_figure(s, number, sum_figure, sums));
    assert_true(sums[0] == 112 && sums[4] == 1);
    store_close(s);
    scratch_remove(&at);
}

static void failures_are_kept(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    static const char *const params[] = {"m=64", "name=\xff", "odd"};
    static const char *const settings[] = {"sip.ucie.bw_gbs=1"};
    store_run run = {
        .bench = "gemm",
        .params = {params, 3},
        .settings = {settings, 1},
        .status = STORE_CRASHED,
        .exit_code = 3,
        .message = "it crashed",
        .wall_s = 1,
    };
    int64_t number;
    expect_ok(store_add(s, &run, &number));
    seen one = see_runs(s, (store_filter){.status = "crashed"});
    assert_int_equal(one.count, 1);
    assert_int_equal(one.status, STORE_CRASHED);
    assert_string_equal(one.parameters, "{\"m\":\"64\",\"name\":\"\\\\xff\",\"odd\":\"\"}");
    assert_string_equal(one.settings, "[\"sip.ucie.bw_gbs=1\"]");
    assert_string_equal(one.message, "it crashed");
    assert_true(one.sim_ns == -1);
    json_t *document;
    expect_ok(store_get_document(s, number, &document));
    assert_null(document);
    store_close(s);
    scratch_remove(&at);
}

static void expect_unknown(store *s, const char *name, const char *message)
{
    int64_t run;
    kb_error *err = store_find(s, name, &run);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), message));
    kb_error_free(err);
}

static void runs_have_names(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    expect_unknown(s, "@last", "has 0 runs");
    int64_t runs[40], found;
    for (int i = 0; i < 40; i++)
        runs[i] = add_run(s, NULL, i, i);
    expect_ok(store_find(s, "@last", &found));
    assert_int_equal(found, runs[39]);
    expect_ok(store_find(s, "@-1", &found));
    assert_int_equal(found, runs[39]);
    expect_ok(store_find(s, "@-40", &found));
    assert_int_equal(found, runs[0]);
    expect_unknown(s, "@-41", "has 40 runs");
    expect_unknown(s, "@-0", "expected an id");
    expect_ok(store_find(s, "@first", &found));
    assert_int_equal(found, runs[39]);
    expect_unknown(s, "@second", "there is no run with the label 'second'");
    expect_unknown(s, "@a b", "expected an id");
    assert_true(store_is_label("a-1.x"));
    assert_false(store_is_label("last") || store_is_label("-1") || store_is_label("a b") ||
                 store_is_label(""));
    expect_unknown(s, "", "expected an id");
    expect_unknown(s, "*", "expected an id");
    expect_unknown(s, "zzzzzzzzz", "there is no run");
    for (int i = 0; i < 40; i++) {
        seen one = see_runs(s, (store_filter){.run = runs[i]});
        expect_ok(store_find(s, one.id, &found));
        assert_int_equal(found, runs[i]);
        one.id[6] = '\0'; /* 30 bits: no other begins with them, but once in a million tests */
        expect_ok(store_find(s, one.id, &found));
        assert_int_equal(found, runs[i]);
    }
    /* 40 runs have at most 32 first digits. */
    bool several = false;
    for (const char *digit = "0123456789abcdefghjkmnpqrstvwxyz"; *digit != '\0'; digit++) {
        char prefix[2] = {*digit, '\0'};
        kb_error *err = store_find(s, prefix, &found);
        several = several || strstr(kb_error_message(err), "is the beginning of several runs");
        kb_error_free(err);
    }
    assert_true(several);
    store_close(s);
    scratch_remove(&at);
}

static void lists_are_filtered(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    for (int i = 0; i < 5; i++)
        add_run(s, NULL, i, i);
    json_t *document = document_of(1, 1);
    store_run run = run_of(NULL, document);
    run.bench = "ccl_reduce";
    run.machine_name = "large";
    run.status = STORE_WRONG;
    int64_t number;
    expect_ok(store_add(s, &run, &number));
    json_decref(document);
    assert_int_equal(see_runs(s, (store_filter){.bench = "gemm"}).count, 5);
    assert_int_equal(see_runs(s, (store_filter){.bench = "ccl_*"}).count, 1);
    assert_int_equal(see_runs(s, (store_filter){.machine = "large"}).count, 1);
    assert_int_equal(see_runs(s, (store_filter){.machine = "00c0ffee00c0ffee"}).count, 6);
    assert_int_equal(see_runs(s, (store_filter){.status = "wrong"}).count, 1);
    assert_int_equal(see_runs(s, (store_filter){.label = "first"}).count, 6);
    assert_int_equal(see_runs(s, (store_filter){.label = "second"}).count, 0);
    assert_int_equal(see_runs(s, (store_filter){.not_before = "2020"}).count, 6);
    assert_int_equal(see_runs(s, (store_filter){.not_before = "9999"}).count, 0);
    assert_int_equal(see_runs(s, (store_filter){.last = 2}).count, 2);
    seen two = see_runs(s, (store_filter){.last = 2, .bench = "gemm"});
    assert_int_equal(two.count, 2);
    assert_true(two.sim_ns == 4);
    store_close(s);
    scratch_remove(&at);
}

static void deleting_leaves_nothing(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    int64_t runs[2] = {add_run(s, "a", 1, 1), add_run(s, "b", 2, 2)};
    expect_ok(store_delete(s, runs, 1));
    double sums[5] = {0};
    expect_ok(store_each_figure(s, runs[0], sum_figure, sums));
    assert_true(sums[0] == 0);
    json_t *document;
    expect_ok(store_get_document(s, runs[0], &document));
    assert_null(document);
    bool has;
    expect_ok(store_has_machine(s, "00c0ffee00c0ffee", "default", &has));
    assert_true(has);
    expect_ok(store_delete(s, runs + 1, 1));
    expect_ok(store_has_machine(s, "00c0ffee00c0ffee", "default", &has));
    assert_false(has);
    assert_true(add_run(s, "c", 1, 1) > runs[1]); /* numbers are not used again */
    store_close(s);
    scratch_remove(&at);
}

/* ---- For sweeps -------------------------------------------------------------------------- */

typedef struct known_sum {
    int count;
    int64_t ids;
    double wall_s;
} known_sum;

static kb_error *sum_known(void *self, const store_known *known)
{
    known_sum *sum = self;
    sum->count++;
    sum->ids += known->id;
    sum->wall_s += known->wall_s;
    assert_int_equal(known->status, STORE_OK);
    return NULL;
}

static kb_error *see_request(void *self, const char *request, const char *key)
{
    char *text = self;
    strcat(strcat(strcat(strcat(text, request), ":"), key), " ");
    return NULL;
}

static void sweeps_find_the_newest(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    json_t *document = document_of(1, 1);
    store_run failed = run_of("a", document);
    failed.status = STORE_FAILED;
    int64_t number;
    expect_ok(store_add(s, &failed, &number));
    json_decref(document);
    int64_t a = add_run(s, "a", 1, 1), b = add_run(s, "b", 1, 1);
    add_run(s, NULL, 1, 1);
    store_run requested = run_of("b", NULL);
    requested.request = "r0";
    expect_ok(store_add(s, &requested, &b));
    known_sum sum = {0};
    expect_ok(store_each_known(s, sum_known, &sum));
    assert_int_equal(sum.count, 2);
    assert_int_equal(sum.ids, a + b);
    assert_true(sum.wall_s == 0.5);
    expect_ok(store_add_request(s, "r1", "a"));
    expect_ok(store_add_request(s, "r2", "b"));
    expect_ok(store_add_request(s, "r1", "c"));
    char text[100] = "";
    expect_ok(store_each_request(s, see_request, text));
    assert_string_equal(text, "r0:b r1:c r2:b ");
    store_close(s);
    scratch_remove(&at);
}

static kb_error *refuse(void *self, const store_known *known)
{
    (void)self, (void)known;
    return kb_error_new(KB_ERR_CHECK, "enough");
}

static void callbacks_end_walks(void **state)
{
    (void)state;
    scratch at = scratch_make();
    store *s = open_store(at.path, STORE_WRITE);
    add_run(s, "a", 1, 1);
    expect_error(store_each_known(s, refuse, NULL), KB_ERR_CHECK, "enough");
    store_close(s);
    scratch_remove(&at);
}

/* ---- Merging ----------------------------------------------------------------------------- */

static void stores_are_merged(void **state)
{
    (void)state;
    scratch at = scratch_make(), from = scratch_make();
    store *ours = open_store(at.path, STORE_WRITE), *theirs = open_store(from.path, STORE_WRITE);
    json_t *document = document_of(1, 1);
    store_run failed = run_of("failed here", document);
    failed.status = STORE_TIMEOUT;
    int64_t number;
    expect_ok(store_add(ours, &failed, &number));
    json_decref(document);
    add_run(ours, "both", 1, 1);
    add_run(ours, "ours", 2, 2);
    add_run(theirs, "theirs", 3, 3);
    add_run(theirs, "both", 1, 1);
    add_run(theirs, "failed here", 4, 4);
    add_run(theirs, NULL, 5, 5);
    expect_ok(store_add_request(theirs, "r", "theirs"));
    store_close(theirs);

    uint64_t added, present;
    expect_ok(store_merge(ours, from.path, &added, &present));
    assert_int_equal(added, 3);
    assert_int_equal(present, 1);
    assert_int_equal(see_runs(ours, (store_filter){0}).count, 6);
    seen last = see_runs(ours, (store_filter){.last = 1});
    assert_true(last.sim_ns == 5);
    double sums[5] = {0};
    expect_ok(store_each_figure(ours, last.run, sum_figure, sums));
    assert_true(sums[0] == 5 && sums[1] == 5 && sums[2] == 1.5 && sums[3] == 7);
    expect_ok(store_get_document(ours, last.run, &document));
    assert_non_null(document);
    json_decref(document);
    known_sum sum = {0};
    expect_ok(store_each_known(ours, sum_known, &sum)); /* all are good now */
    assert_int_equal(sum.count, 4);
    char text[100] = "";
    expect_ok(store_each_request(ours, see_request, text));
    assert_string_equal(text, "r:theirs ");

    expect_ok(store_merge(ours, from.path, &added, &present));
    assert_int_equal(added, 0);
    assert_int_equal(present, 4);
    expect_ok(store_merge(ours, at.path, &added, &present)); /* with itself */
    assert_int_equal(added, 0);
    kb_error *err = store_merge(ours, "/nonexistent.db", &added, &present);
    assert_non_null(strstr(kb_error_message(err), "there is no store /nonexistent.db"));
    kb_error_free(err);
    store_close(ours);
    scratch_remove(&at);
    scratch_remove(&from);
}

/* ---- Two programs ------------------------------------------------------------------------ */

enum { WRITERS = 3, EACH = 40 };

static void write_in_child(const char *path, int which)
{
    store *s = open_store(path, STORE_WRITE);
    for (int i = 0; i < EACH; i++) {
        char key[32];
        snprintf(key, sizeof key, "%d-%d", which, i);
        add_run(s, key, i, i);
    }
    store_close(s);
    _exit(0);
}

/* All begin with a file that does not exist. */
static void write_together(const char *journal)
{
    scratch at = scratch_make();
    assert_int_equal(setenv("KERNBENCH_STORE_JOURNAL", journal, 1), 0);
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            write_in_child(at.path, i);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    store *s = open_store(at.path, STORE_WRITE);
    known_sum sum = {0};
    expect_ok(store_each_known(s, sum_known, &sum));
    assert_int_equal(sum.count, WRITERS * EACH);
    store_close(s);
    assert_int_equal(unsetenv("KERNBENCH_STORE_JOURNAL"), 0);
    scratch_remove(&at);
}

static void programs_write_together(void **state)
{
    (void)state;
    write_together("wal");
    write_together("rollback");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_kept),          cmocka_unit_test(figures_have_names),
        cmocka_unit_test(failures_are_kept),      cmocka_unit_test(runs_have_names),
        cmocka_unit_test(lists_are_filtered),     cmocka_unit_test(deleting_leaves_nothing),
        cmocka_unit_test(sweeps_find_the_newest), cmocka_unit_test(callbacks_end_walks),
        cmocka_unit_test(stores_are_merged),      cmocka_unit_test(programs_write_together),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
