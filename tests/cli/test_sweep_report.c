/* test_sweep_report.c: reports of a sweep that is worked out by hand (tests/sweep/by_hand.h). */
#include "support/expect.h"

#include "sweep/by_hand.h"

#include "cli/sweep_report.h"

#include <fcntl.h>

/* What is printed on a stream while the report is made. */
typedef struct printed {
    char out[16384], err[4096];
    kb_code code;
} printed;

static void read_back(int fd, char *into, size_t size)
{
    ssize_t length = pread(fd, into, size - 1, 0);
    assert_true(length >= 0);
    into[length] = '\0';
    close(fd);
}

static int temporary(void)
{
    char path[] = "/tmp/sweep-report-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

/* The report with these options, "--best=sim_ns:min", of the sweep by hand. */
static printed report(const char *const *options, size_t count, bool json)
{
    printed p = {0};
    sweep_report_args args = {0};
    sweep_results *r = by_hand();
    int out = temporary(), err = temporary(), old_out = dup(1), old_err = dup(2);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    p.code = sweep_report_take(&args, options, count);
    if (p.code == KB_OK)
        p.code = sweep_report_check(&args, json, r->names, r->axis_count);
    if (p.code == KB_OK)
        p.code = sweep_report_print(r, &args, NULL, 0, json, false);
    fflush(stdout);
    dup2(old_out, 1);
    dup2(old_err, 2);
    close(old_out);
    close(old_err);
    read_back(out, p.out, sizeof p.out);
    read_back(err, p.err, sizeof p.err);
    cli_list_fini(&args.values);
    sweep_results_destroy(r);
    return p;
}
#define REPORT(...)                                                                                \
    report((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / 8,     \
           false)

/* fail_msg() cuts long texts. */
static void fail_after(const char *text)
{
    fputs(text, stderr);
    fail();
}

static const char failure[] = "\n1 of 20 points failed\n"
                              "  sip.ucie.bw_gbs = 32, nbytes = 64KiB, algo = tree: timeout: took "
                              "more than 10 s, \"tree\"\n";

static const char findings[] =
    "\nWhat the axes change\n"
    "  sip.ucie.bw_gbs: sim_ns changes up to 6.83x, only for nbytes = 64KiB, less than 1 % from 256 on\n"
    "  nbytes: sim_ns changes up to 20.48x\n"
    "  algo: no effect: all figures are the same in 9 of 9 sets of points that differ in it alone\n"
    "\nWhere the bottleneck changes\n"
    "  sip.ucie.bw_gbs: other_sips at 128, message at 256, in 2 of 4 series\n"
    "  nbytes: message at 4KiB, other_sips at 64KiB, in 5 of 9 series\n";

static void the_table_has_all_points(void **state)
{
    (void)state;
    printed p = REPORT("--sort=sim_ns:max");
    static const char begin[] = "  sip.ucie.bw_gbs  nbytes  algo  status   sim ns  bottleneck\n"
                                "               32   64KiB  ring  ok         2048  other_sips\n"
                                "               64   64KiB  ring  ok         1024  other_sips\n"
                                "               64   64KiB  tree  ok         1024  other_sips\n"
                                "              128   64KiB  ring  ok          512  other_sips\n";
    static const char end[] = "              256    4KiB  tree  ok          100  message\n"
                              "               32   64KiB  tree  timeout\n";
    assert_string_equal(p.err, "");
    assert_int_equal(p.code, KB_ERR_CHECK);
    if (strncmp(p.out, begin, sizeof begin - 1) != 0 || !strstr(p.out, end))
        fail_after(p.out);
    const char *rest = strstr(p.out, failure);
    if (!rest || strcmp(rest + sizeof failure - 1, findings) != 0)
        fail_after(p.out);
}

static void a_pivot_says_how_points_are_combined(void **state)
{
    (void)state;
    printed p = REPORT("--rows=bw_gbs", "--cols=nbytes");
    static const char same[] = "sim ns by sip.ucie.bw_gbs (down) and nbytes (across)\n"
                               "  sip.ucie.bw_gbs  4KiB  64KiB\n"
                               "               32   100  2048*\n"
                               "               64   100   1024\n"
                               "              128   100    512\n"
                               "              256   100    300\n"
                               "              512   100    300\n"
                               "\n"
                               "  *: some points of the cell failed or have not run.\n";
    assert_memory_equal(p.out, same, sizeof same - 1);
    p = REPORT("--rows=algo", "--cols=bw_gbs");
    /* Of ring at 32: (100 + 2048) / 2; of tree 100 alone. */
    static const char mean[] =
        "sim ns by algo (down) and sip.ucie.bw_gbs (across)\n"
        "  algo    32   64  128  256  512\n"
        "  ring  1074  562  306  200  200\n"
        "  tree  100*  562  306  200  200\n"
        "\n"
        "  A cell has the mean over nbytes; within a cell values are up to 181 % of it apart. *: some\n"
        "  points of the cell failed or have not run.\n";
    if (strncmp(p.out, mean, sizeof mean - 1) != 0)
        fail_after(p.out);
}

static void the_best_and_the_front_are_named(void **state)
{
    (void)state;
    printed p = REPORT("--best=bw_gbs:min", "--constraint=sim_ns < 600 and nbytes > 4KiB",
                       "--pareto=bw_gbs:min,sim_ns:min");
    static const char end[] =
        "\nSmallest sip.ucie.bw_gbs, of 6 points with sim_ns < 600 and nbytes > 4KiB\n"
        "  sip.ucie.bw_gbs = 128, nbytes = 64KiB, algo = ring; 1 other point has the same\n"
        "\nPareto front of bw_gbs:min,sim_ns:min: 4 of 6 points with sim_ns < 600 and nbytes > 4KiB\n"
        "  sim_ns = 512 ns at sip.ucie.bw_gbs = 128, nbytes = 64KiB, algo = ring\n"
        "  sim_ns = 512 ns at sip.ucie.bw_gbs = 128, nbytes = 64KiB, algo = tree\n"
        "  sim_ns = 300 ns at sip.ucie.bw_gbs = 256, nbytes = 64KiB, algo = ring\n"
        "  sim_ns = 300 ns at sip.ucie.bw_gbs = 256, nbytes = 64KiB, algo = tree\n";
    if (!strstr(p.out, end))
        fail_after(p.out);
}

static void json_has_what_the_text_says(void **state)
{
    (void)state;
    printed p = report((const char *const[]){"--pareto=sim_ns:min", "--best=sim_ns:max"}, 2, true);
    assert_int_equal(p.code, KB_ERR_CHECK);
    json_t *d = json_loads(p.out, 0, NULL);
    json_t *points = json_object_get(d, "points"), *axes = json_object_get(d, "axes");
    assert_int_equal(json_array_size(points), 20);
    json_t *failed = json_array_get(points, 7);
    assert_string_equal(json_string_value(json_object_get(failed, "status")), "timeout");
    assert_true(json_is_false(json_object_get(failed, "ok")));
    json_t *first = json_array_get(points, 0);
    assert_true(json_number_value(json_object_get(json_object_get(first, "axes"), "nbytes")) >
                4095);
    assert_true(json_number_value(json_object_get(json_object_get(first, "figures"), "sim_ns")) >
                99);
    assert_int_equal(json_array_size(axes), 3);
    json_t *bw = json_array_get(axes, 0), *algo = json_array_get(axes, 2);
    assert_int_equal(json_integer_value(json_object_get(bw, "changed")), 2);
    assert_int_equal(json_integer_value(json_object_get(algo, "changed")), 0);
    json_t *on = json_array_get(json_object_get(bw, "on"), 0);
    assert_true(json_number_value(json_object_get(on, "plateau_from")) > 255);
    assert_int_equal(json_array_size(json_object_get(bw, "bottleneck_changes")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(d, "best"), "point")), 6);
    assert_int_equal(json_array_size(json_object_get(d, "pareto")), 10); /* all of 4KiB */
    json_decref(d);
}

static void expect_refusal(const char *first, const char *second, const char *message)
{
    printed p = report((const char *const[]){first, second}, second ? 2 : 1, false);
    assert_int_equal(p.code, KB_ERR_INPUT);
    assert_string_equal(p.out, "");
    if (strcmp(p.err, message) != 0)
        fail_after(p.err);
}

static void mistakes_are_found_before_anything_runs(void **state)
{
    (void)state;
    expect_refusal("--rows=algo", NULL, "kernbench: --rows needs --cols, the axis along the top\n");
    expect_refusal(
        "--rows=algorithm", "--cols=nbytes",
        "kernbench: --rows: unknown axis 'algorithm': expected sip.ucie.bw_gbs, nbytes or "
        "algo\n");
    expect_refusal("--constraint=sim_ns < 5", NULL,
                   "kernbench: --constraint needs --best or --pareto\n");
    expect_refusal("--best=sim_ns:max,algo:min", NULL,
                   "kernbench: --best: expected one objective, such as sim_ns:min\n");
    expect_refusal("--plot-kind=pareto", NULL,
                   "kernbench: --plot-kind pareto needs --pareto a:min,b:max\n");
    expect_refusal("--csv=-", "--plot=-",
                   "kernbench: only one of --json, --csv and --plot can be on stdout\n");
    expect_refusal("--value=message", NULL,
                   "kernbench: --value: unknown figure 'message': did you mean "
                   "'causes.message_ns'?\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_all_points),
        cmocka_unit_test(a_pivot_says_how_points_are_combined),
        cmocka_unit_test(the_best_and_the_front_are_named),
        cmocka_unit_test(json_has_what_the_text_says),
        cmocka_unit_test(mistakes_are_found_before_anything_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
