/* test_sweep_plan.c: plans from files and options: points and their order, zips, conditions,
 * errors; the keys of points. */
#include "support/expect.h"

#include "sweep/point_key.h"
#include "sweep/sweep_plan.h"

static sweep_plan *make_plan(void)
{
    sweep_plan *plan;
    expect_ok(sweep_plan_create(&plan));
    return plan;
}

static sweep_plan *read_plan(const char *text)
{
    sweep_plan *plan = make_plan();
    expect_ok(sweep_plan_read_text(plan, "plan.yaml", text, strlen(text)));
    return plan;
}

static void append_point(const sweep_plan *plan, const sweep_point *p, kb_text *text)
{
    kb_text_puts(text, p->bench);
    if (p->topology)
        kb_text_printf(text, " on %s", p->topology);
    for (size_t i = 0; i < p->settings.count; i++)
        kb_text_printf(text, " %s", p->settings.items[i]);
    for (size_t i = 0; i < p->params.count; i++)
        kb_text_printf(text, " %s", p->params.items[i]);
    if (plan->repeat > 1)
        kb_text_printf(text, " #%u", p->repeat);
    kb_text_puts(text, "; ");
}

/* Finishes the plan, compares its points, and destroys it. */
static void expect_points(sweep_plan *plan, const char *expected)
{
    sweep_point point = {0};
    kb_text text = KB_TEXT_INIT;
    expect_ok(sweep_plan_finish(plan));
    for (size_t i = 0; i < plan->point_count; i++) {
        expect_ok(sweep_plan_point(plan, i, &point));
        append_point(plan, &point, &text);
    }
    assert_string_equal(kb_text_peek(&text), expected);
    kb_text_fini(&text);
    sweep_point_fini(&point);
    sweep_plan_destroy(plan);
}

static void expect_bad_file(const char *text, const char *message)
{
    sweep_plan *plan = make_plan();
    expect_error(sweep_plan_read_text(plan, "plan.yaml", text, strlen(text)), KB_ERR_INPUT,
                 message);
    sweep_plan_destroy(plan);
}

static void expect_unfinished(sweep_plan *plan, const char *message)
{
    expect_error(sweep_plan_finish(plan), KB_ERR_INPUT, message);
    sweep_plan_destroy(plan);
}

static void the_last_axis_is_the_fastest(void **state)
{
    (void)state;
    sweep_plan *plan = make_plan();
    expect_ok(sweep_plan_bench(plan, "b"));
    expect_ok(sweep_plan_over(plan, "sip.x=1,2"));
    expect_ok(sweep_plan_param(plan, "k=7"));
    expect_ok(sweep_plan_over(plan, "m=4..6"));
    expect_points(plan, "b sip.x=1 k=7 m=4; b sip.x=1 k=7 m=5; b sip.x=1 k=7 m=6; "
                        "b sip.x=2 k=7 m=4; b sip.x=2 k=7 m=5; b sip.x=2 k=7 m=6; ");
}

static void a_plan_may_have_one_point(void **state)
{
    (void)state;
    sweep_plan *plan = make_plan();
    expect_ok(sweep_plan_bench(plan, "b"));
    expect_points(plan, "b; ");
}

static void reads_files(void **state)
{
    (void)state;
    sweep_plan *plan = read_plan("bench: b\n"
                                 "topology: two.yaml\n"
                                 "set: {sip.y: 3}\n"
                                 "param: {n: 64KiB}\n"
                                 "over:\n"
                                 "  param.topology: [a, 1..2]\n"
                                 "  ccl.k: 8\n"
                                 "where: '`param.topology` != 1'\n"
                                 "repeat: 2\n"
                                 "timeout: 1.5\n"
                                 "memory_per_point: 4GiB\n"
                                 "workers: 3\n"
                                 "timing_only: true\n"
                                 "store: s.db\n"
                                 "show: {rows: m, json: true, pareto: ['a:min', b]}\n");
    assert_true(plan->timing_only && !plan->verify && plan->workers == 3);
    assert_true(plan->memory_bytes == (uint64_t)4 << 30);
    assert_float_equal(plan->timeout_s, 1.5, 0);
    assert_string_equal(plan->store, "s.db");
    assert_int_equal(plan->views.count, 4);
    assert_string_equal(plan->views.items[0], "--rows=m");
    assert_string_equal(plan->views.items[1], "--json");
    assert_string_equal(plan->views.items[3], "--pareto=b");
    expect_points(plan, "b on two.yaml sip.y=3 ccl.k=8 n=64KiB topology=a #0; "
                        "b on two.yaml sip.y=3 ccl.k=8 n=64KiB topology=a #1; "
                        "b on two.yaml sip.y=3 ccl.k=8 n=64KiB topology=2 #0; "
                        "b on two.yaml sip.y=3 ccl.k=8 n=64KiB topology=2 #1; ");
}

static void benches_may_have_parts_of_their_own(void **state)
{
    (void)state;
    expect_points(read_plan("bench: [a, b]\nover: {m: 1..2}\n"), "a m=1; a m=2; b m=1; b m=2; ");
    sweep_plan *plan = read_plan("bench:\n"
                                 "  a: {param: {k: 3}, over: {m: 1..2}}\n"
                                 "  b: {over: {n: [5]}, set: {sip.x: 9}}\n"
                                 "set: {sip.x: 1}\n"
                                 "over: {sip.y: 7..8}\n");
    expect_ok(sweep_plan_finish(plan));
    assert_int_equal(plan->columns.count, 4);
    assert_string_equal(plan->columns.items[0], "bench");
    assert_string_equal(plan->columns.items[1], "sip.y");
    sweep_point point = {0};
    kb_text text = KB_TEXT_INIT;
    for (size_t i = 0; i < plan->point_count; i++) {
        expect_ok(sweep_plan_point(plan, i, &point));
        append_point(plan, &point, &text);
        for (size_t c = 0; c < 4; c++)
            kb_text_printf(&text, "%s,", point.cells[c] ? point.cells[c] : "-");
    }
    assert_string_equal(kb_text_peek(&text),
                        "a sip.x=1 sip.y=7 k=3 m=1; a,7,1,-,a sip.x=1 sip.y=7 k=3 m=2; a,7,2,-,"
                        "a sip.x=1 sip.y=8 k=3 m=1; a,8,1,-,a sip.x=1 sip.y=8 k=3 m=2; a,8,2,-,"
                        "b sip.x=9 sip.y=7 n=5; b,7,-,5,b sip.x=9 sip.y=8 n=5; b,8,-,5,");
    kb_text_fini(&text);
    sweep_point_fini(&point);
    sweep_plan_destroy(plan);
}

static void zipped_axes_advance_together(void **state)
{
    (void)state;
    expect_points(read_plan("bench: b\nover: {m: 1..2, j: [x, y], n: [3, 4]}\nzip: [m, n]\n"),
                  "b m=1 n=3 j=x; b m=1 n=3 j=y; b m=2 n=4 j=x; b m=2 n=4 j=y; ");
    expect_points(read_plan("bench: b\nover: {m: 1..2, n: 3..4, j: 5..6, k: 7..8}\n"
                            "zip: [[m, n], [j, k]]\n"),
                  "b m=1 n=3 j=5 k=7; b m=1 n=3 j=6 k=8; b m=2 n=4 j=5 k=7; b m=2 n=4 j=6 k=8; ");
    expect_unfinished(read_plan("bench: b\nover: {m: 1..2, n: 1..3}\nzip: [m, n]\n"),
                      "plan.yaml:2:20: n: zipped axes need as many values each: m has 2, n has 3");
    expect_unfinished(read_plan("bench: b\nover: {rows: 1..2, n: 1..3}\nzip: [rwos, n]\n"),
                      "zip: 'rwos' is not an axis: expected rows or n; did you mean 'rows'?");
    sweep_plan *plan = make_plan();
    expect_ok(sweep_plan_bench(plan, "b"));
    expect_ok(sweep_plan_over(plan, "m=1,2"));
    expect_ok(sweep_plan_zip(plan, "m"));
    expect_unfinished(plan, "zip of m: expected two axes or more");
}

static void options_replace_the_file(void **state)
{
    (void)state;
    const char *text = "bench: a\nset: {sip.x: 1}\nparam: {k: 3}\nover: {m: 1..2, sip.y: [5, 6]}\n";
    sweep_plan *plan = read_plan(text);
    expect_ok(sweep_plan_bench(plan, "b"));
    expect_ok(sweep_plan_set(plan, "sip.y=9"));
    expect_ok(sweep_plan_over(plan, "sip.x=2"));
    expect_ok(sweep_plan_param(plan, "k=4"));
    expect_points(plan, "b sip.y=9 sip.x=2 k=4 m=1; b sip.y=9 sip.x=2 k=4 m=2; ");
    plan = read_plan(text);
    expect_ok(sweep_plan_over(plan, "m=8"));
    expect_ok(sweep_plan_over(plan, "k=1,2"));
    expect_points(plan, "a sip.x=1 sip.y=5 m=8 k=1; a sip.x=1 sip.y=5 m=8 k=2; "
                        "a sip.x=1 sip.y=6 m=8 k=1; a sip.x=1 sip.y=6 m=8 k=2; ");
}

static void shards_are_the_plan_together(void **state)
{
    (void)state;
    for (uint64_t shards = 1; shards <= 9; shards++) {
        int seen[8] = {0};
        for (uint64_t shard = 0; shard < shards; shard++) {
            sweep_plan *plan = read_plan("bench: b\nover: {m: 1..8}\nwhere: m != 3\n");
            plan->shard = shard;
            plan->shards = shards;
            expect_ok(sweep_plan_finish(plan));
            sweep_point point = {0};
            for (size_t i = 0; i < plan->point_count; i++) {
                expect_ok(sweep_plan_point(plan, i, &point));
                seen[atoi(point.cells[0]) - 1]++;
            }
            sweep_point_fini(&point);
            sweep_plan_destroy(plan);
        }
        for (int i = 0; i < 8; i++)
            assert_int_equal(seen[i], i == 2 ? 0 : 1);
    }
}

static void reports_what_does_not_fit(void **state)
{
    (void)state;
    expect_unfinished(read_plan("over: {m: 1..2}\n"),
                      "the plan has no bench; give --bench NAME, see kernbench list");
    expect_unfinished(read_plan("bench: b\nparam: {m: 1}\nover: {m: 1..2}\n"),
                      "plan.yaml:3:11: m: m has a fixed value too (plan.yaml:2:12: m)");
    expect_unfinished(read_plan("bench: b\ntopology: a\nover: {topology: [a, b]}\n"),
                      "plan.yaml:3:18: topology: the topology has a fixed value too");
    expect_unfinished(read_plan("bench: b\nover: {a: 1..1000, b: 1..1000, c: 1..1000}\n"),
                      "the plan has more than 10000000 points");
    expect_unfinished(read_plan("bench: b\nover: {m: 1..2, param.m: 3}\n"),
                      "plan.yaml:2:26: param.m: there is another axis over param.m");
    expect_unfinished(read_plan("bench: b\nover: {rows: 1..2}\nwhere: rwos > 1\n"),
                      "plan.yaml:3:8: where: unknown name 'rwos': expected rows; did you mean "
                      "'rows'?");
    expect_unfinished(read_plan("bench: b\nover: {m: 1..2}\nwhere: m > 2\n"),
                      "no point of the plan satisfies its conditions");
    sweep_plan *plan = make_plan();
    expect_error(sweep_plan_over(plan, "m"), KB_ERR_INPUT, "--over m: expected KEY=VALUE");
    expect_error(sweep_plan_over(plan, "m=3..1"), KB_ERR_INPUT,
                 "--over m: range '3..1' ends before it begins; write the smaller end first");
    expect_error(sweep_plan_over(plan, "m=1,1"), KB_ERR_INPUT,
                 "--over m: the value '1' is there twice");
    sweep_plan_destroy(plan);
}

static void reports_bad_files(void **state)
{
    (void)state;
    expect_bad_file("bench: b\novr: {m: 1}\n",
                    "plan.yaml:2:1: unknown key 'ovr'; did you mean 'over'?");
    expect_bad_file("bench: b\nover: {m: 4..2}\n",
                    "plan.yaml:2:11: over.m: range '4..2' ends before it begins; write the "
                    "smaller end first");
    expect_bad_file("bench: b\nover: {m: []}\n",
                    "plan.yaml:2:11: over.m: expected a value or more");
    expect_bad_file("bench: b\nover: [m]\n",
                    "plan.yaml:2:7: over: expected a mapping, found a sequence");
    expect_bad_file("bench: b\nzip: [m]\n",
                    "plan.yaml:2:6: zip: expected two axes or more, such as [a, b]");
    expect_bad_file("bench: b\nmemory_per_point: 1\ntimeout: -1\n",
                    "plan.yaml:2:19: memory_per_point: expected a number of bytes of at least "
                    "1048576, such as 4GiB, found '1' (and 1 more problem)");
    expect_bad_file("bench: {}\n", "plan.yaml:1:8: bench: expected a bench or more");
    expect_bad_file("bench: b\ntiming_only: true\nverify_data: true\n",
                    "plan.yaml:3:14: verify_data: verify_data and timing_only are mutually "
                    "exclusive");
    expect_bad_file("bench: b\nover: {m: [1, 1]}\n",
                    "plan.yaml:2:11: over.m: m: the value '1' is there twice");
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static sweep_hash request_of(const char *text, size_t index)
{
    sweep_plan *plan = read_plan(text);
    sweep_keys keys;
    sweep_point point = {0};
    expect_ok(sweep_plan_finish(plan));
    expect_ok(sweep_keys_init(&keys, plan, NULL));
    expect_ok(sweep_keys_add_bench(&keys, "b", NULL));
    expect_ok(sweep_keys_add_bench(&keys, "c", NULL));
    expect_ok(sweep_keys_add_topology(&keys, "default"));
    expect_ok(sweep_plan_point(plan, index, &point));
    sweep_hash hash = sweep_keys_request(&keys, &point);
    sweep_point_fini(&point);
    sweep_keys_fini(&keys);
    sweep_plan_destroy(plan);
    return hash;
}

static void requests_are_equal_if_the_runs_are(void **state)
{
    (void)state;
    sweep_hash first = request_of("bench: b\nover: {m: [1, 2], sip.x: [3, 4]}\n", 1);
    static const char *const same[] = {
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\n",
        "bench: b\nover: {sip.x: 4, m: 1}\n",
        "bench: {b: {set: {sip.x: 4}}}\nset: {sip.x: 5}\nparam: {m: 1}\ntimeout: 5\nworkers: 2\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\nrepeat: 2\ndevice: all\n",
    };
    static const char *const other[] = {
        "bench: c\nset: {sip.x: 4}\nparam: {m: 1}\n",
        "bench: b\nset: {sip.x: 3}\nparam: {m: 1}\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 2}\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1, n: 1}\n",
        "bench: b\ntopology: default\nset: {sip.x: 4}\nparam: {m: 1}\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\ntiming_only: true\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\nverify_data: true\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\ncheck_races: true\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\ndevice: sip:0\n",
        "bench: b\nset: {sip.x: 4}\nparam: {m: 1}\nstack_bytes: 64KiB\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_string_equal(request_of(same[i], 0).hex, first.hex);
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_string_not_equal(request_of(other[i], 0).hex, first.hex);
    assert_string_not_equal(
        request_of("bench: b\nset: {sip.x: 4}\nparam: {m: 1}\nrepeat: 2\n", 1).hex, first.hex);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The request with a bench, a machine and a ccl.yaml in files of those contents. */
static sweep_hash request_of_files(const char *bench, const char *machine, const char *ccl)
{
    char folder[] = "/tmp/kernbench-plan-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char paths[3][64];
    const char *texts[] = {bench, machine, ccl};
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        write_file(paths[i], texts[i]);
    }
    sweep_plan *plan = make_plan();
    sweep_keys keys;
    sweep_point point = {0};
    expect_ok(sweep_plan_bench(plan, paths[0]));
    plan->topology = paths[1];
    expect_ok(sweep_plan_finish(plan));
    expect_ok(sweep_keys_init(&keys, plan, paths[2]));
    expect_ok(sweep_keys_add_bench(&keys, paths[0], paths[0]));
    expect_ok(sweep_keys_add_topology(&keys, paths[1]));
    expect_ok(sweep_plan_point(plan, 0, &point));
    sweep_hash hash = sweep_keys_request(&keys, &point);
    sweep_point_fini(&point);
    sweep_keys_fini(&keys);
    sweep_plan_destroy(plan);
    for (int i = 0; i < 3; i++)
        assert_int_equal(unlink(paths[i]), 0);
    assert_int_equal(rmdir(folder), 0);
    return hash;
}

static void requests_depend_on_the_contents_of_files(void **state)
{
    (void)state;
    sweep_hash first = request_of_files("b", "m", "c");
    assert_string_equal(request_of_files("b", "m", "c").hex, first.hex); /* in another folder */
    assert_string_not_equal(request_of_files("b2", "m", "c").hex, first.hex);
    assert_string_not_equal(request_of_files("b", "m2", "c").hex, first.hex);
    assert_string_not_equal(request_of_files("b", "m", "c2").hex, first.hex);
}

static void keys_depend_on_machine_and_values(void **state)
{
    (void)state;
    sweep_plan *plan = read_plan("bench: b\nover: {m: [1, 1.0], ccl.x: [1, 2]}\n");
    sweep_keys keys;
    sweep_point point = {0};
    int64_t values[] = {1, 2};
    expect_ok(sweep_plan_finish(plan));
    expect_ok(sweep_keys_init(&keys, plan, NULL));
    expect_ok(sweep_keys_add_bench(&keys, "b", NULL));
    expect_ok(sweep_plan_point(plan, 0, &point));
    sweep_hash first = sweep_keys_key(&keys, &point, 7, values, 2);
    assert_string_not_equal(sweep_keys_key(&keys, &point, 8, values, 2).hex, first.hex);
    assert_string_not_equal(sweep_keys_request(&keys, &point).hex, first.hex);
    expect_ok(sweep_plan_point(plan, 2, &point)); /* the same value, written otherwise */
    assert_string_equal(sweep_keys_key(&keys, &point, 7, values, 2).hex, first.hex);
    expect_ok(sweep_plan_point(plan, 1, &point)); /* another setting of collectives */
    assert_string_not_equal(sweep_keys_key(&keys, &point, 7, values, 2).hex, first.hex);
    expect_ok(sweep_plan_point(plan, 0, &point));
    values[1] = 3;
    assert_string_not_equal(sweep_keys_key(&keys, &point, 7, values, 2).hex, first.hex);
    sweep_point_fini(&point);
    sweep_keys_fini(&keys);
    sweep_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_axis_is_the_fastest),
        cmocka_unit_test(a_plan_may_have_one_point),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(benches_may_have_parts_of_their_own),
        cmocka_unit_test(zipped_axes_advance_together),
        cmocka_unit_test(options_replace_the_file),
        cmocka_unit_test(shards_are_the_plan_together),
        cmocka_unit_test(reports_what_does_not_fit),
        cmocka_unit_test(reports_bad_files),
        cmocka_unit_test(requests_are_equal_if_the_runs_are),
        cmocka_unit_test(requests_depend_on_the_contents_of_files),
        cmocka_unit_test(keys_depend_on_machine_and_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
