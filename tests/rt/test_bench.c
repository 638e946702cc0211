/*
 * test_bench.c: what a bench is given, what it tells, and how its results are compared.
 */
#include "tensors.h"

#include <math.h>

#include "rt/rt.h"

/* ---- A bench that does what a test asks of it -------------------------------------------- */

typedef kb_error *body_fn(kb_bench *bench);
static body_fn *body;

static kb_error *run_body(kb_bench *bench)
{
    return body ? body(bench) : NULL;
}

static bool is_large(const kb_bench *bench)
{
    return kb_bench_param(bench, "n") > 100;
}

static const char *const colours[] = {"red", "green", "4K", NULL};

static const kb_param params[] = {
    {.name = "n", .value = 8, .min = 1, .max = 1000, .help = "elements"},
    {.name = "shift", .value = -2, .min = -5, .max = 5, .help = "by how much"},
    {.name = "colour", .value = 1, .names = colours, .help = "which one"},
};

static const kb_bench_spec spec = {
    .name = "mine",
    .summary = "does what a test asks of it",
    .params = params,
    .param_count = 3,
    .run = run_body,
    .is_timing_only = is_large,
};

/* Its lines, one after the other. */
typedef struct lines {
    char text[200];
} lines;

static void keep_line(void *self, const char *line)
{
    lines *l = self;
    size_t length = strlen(l->text);
    snprintf(l->text + length, sizeof l->text - length, "%s|", line);
}

static kb_bench *make(const char *const *settings, size_t count, bool verify)
{
    rt_bench_options options = {.settings = settings, .setting_count = count, .verify = verify};
    kb_bench *bench;
    expect_ok(rt_bench_create(&spec, &options, &bench));
    return bench;
}

/* Runs the body on the machine; the verdict is told. */
static kb_error *run_on(const char *yaml, body_fn *fn, rt_verdict *verdict)
{
    kb_context *ctx = open_machine(yaml);
    kb_bench *bench = make(NULL, 0, true);
    body = fn;
    kb_error *err = rt_bench_run(bench, ctx);
    *verdict = rt_bench_verdict(bench);
    rt_bench_destroy(bench);
    kb_context_destroy(ctx);
    return err;
}

static void expect_wrong(const char *yaml, body_fn *fn, const char *message)
{
    rt_verdict verdict;
    expect_error(run_on(yaml, fn, &verdict), KB_ERR_CHECK, message);
    assert_int_equal(verdict, RT_WRONG);
}

static void expect_right(const char *yaml, body_fn *fn)
{
    rt_verdict verdict;
    expect_ok(run_on(yaml, fn, &verdict));
    assert_int_equal(verdict, RT_VERIFIED);
}

/* ---- Parameters -------------------------------------------------------------------------- */

static void parameters_are_what_was_given_or_the_default(void **state)
{
    (void)state;
    kb_bench *bench = make(NULL, 0, false);
    assert_int_equal(kb_bench_param(bench, "n"), 8);
    assert_int_equal(kb_bench_param(bench, "shift"), -2);
    rt_bench_destroy(bench);
    const char *given[] = {"n=3", "shift=5", "n=1000"}; /* the last one counts */
    bench = make(given, 3, false);
    assert_int_equal(kb_bench_param(bench, "n"), 1000);
    assert_int_equal(kb_bench_param(bench, "shift"), 5);
    rt_bench_destroy(bench);
}

static void numbers_may_have_units(void **state)
{
    (void)state;
    static const kb_param wide[] = {{.name = "n", .max = INT64_MAX, .help = ""}};
    static const struct {
        const char *setting;
        int64_t value;
    } sizes[] = {
        {"n=4096", 4096},     {"n=4KiB", 4096},  {"n=4K", 4096},
        {"n=2 MiB", 2 << 20}, {"n=64KB", 64000}, {"n=1e3", 1000},
    };
    kb_bench_spec of_bytes = spec;
    of_bytes.params = wide;
    of_bytes.param_count = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rt_bench_options options = {.settings = &sizes[i].setting, .setting_count = 1};
        kb_bench *bench;
        expect_ok(rt_bench_create(&of_bytes, &options, &bench));
        assert_int_equal(kb_bench_param(bench, "n"), sizes[i].value);
        rt_bench_destroy(bench);
    }
}

static void a_parameter_may_be_one_of_several_names(void **state)
{
    (void)state;
    static const char *const given[] = {"colour=red", "colour=green", "colour=4K"};
    kb_bench *bench = make(NULL, 0, false);
    assert_int_equal(kb_bench_param(bench, "colour"), 1);
    rt_bench_destroy(bench);
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        bench = make(&given[i], 1, false);
        assert_int_equal(kb_bench_param(bench, "colour"), i);
        rt_bench_destroy(bench);
    }
}

static void wrong_parameters_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *setting, *message;
    } wrongs[] = {
        {"shfit=1",
         "unknown parameter 'shfit' of bench 'mine': expected n, shift or colour; did you mean 'shift'?"},
        {"elements=1", "unknown parameter 'elements' of bench 'mine': expected n, shift or colour"},
        {"=1", "unknown parameter '' of bench 'mine': expected n, shift or colour"},
        {"n", "parameter 'n': expected NAME=VALUE"},
        {"n=", "parameter n of bench 'mine': expected a whole number from 1 to 1000, found ''"},
        {"n=x", "parameter n of bench 'mine': expected a whole number from 1 to 1000, found 'x'"},
        {"n=0", "parameter n of bench 'mine': expected a whole number from 1 to 1000, found '0'"},
        {"n=1001",
         "parameter n of bench 'mine': expected a whole number from 1 to 1000, found '1001'"},
        {"n=1.5",
         "parameter n of bench 'mine': expected a whole number from 1 to 1000, found '1.5'"},
        {"shift=-6",
         "parameter shift of bench 'mine': expected a whole number from -5 to 5, found '-6'"},
        {"n=1KiB",
         "parameter n of bench 'mine': expected a whole number from 1 to 1000, found '1KiB'"},
        {"n=18014398509481985K", /* 1 KiB, but for 2^64 */
         "parameter n of bench 'mine': expected a whole number from 1 to 1000, found "
         "'18014398509481985K'"},
        {"colour=blue",
         "parameter colour of bench 'mine': unknown value 'blue': expected red, green or 4K"},
        {"colour=0",
         "parameter colour of bench 'mine': unknown value '0': expected red, green or 4K"},
        {"colour=",
         "parameter colour of bench 'mine': unknown value '': expected red, green or 4K"},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        rt_bench_options options = {.settings = &wrongs[i].setting, .setting_count = 1};
        kb_bench *bench;
        expect_error(rt_bench_create(&spec, &options, &bench), KB_ERR_INPUT, wrongs[i].message);
        assert_null(bench);
    }
}

static void wrong_benches_are_refused(void **state)
{
    (void)state;
    static const kb_param out_of_range[] = {{.name = "n", .value = 9, .min = 1, .max = 8}};
    static const kb_param beyond_names[] = {{.name = "colour", .value = 3, .names = colours}};
    kb_bench_spec nameless = spec, idle = spec, odd = spec, beyond = spec;
    nameless.name = NULL;
    idle.run = NULL;
    odd.params = out_of_range;
    odd.param_count = 1;
    beyond.params = beyond_names;
    beyond.param_count = 1;
    const kb_bench_spec *const bad[] = {&nameless, &idle, &odd, &beyond};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kb_bench *bench;
        kb_error *err = rt_bench_create(bad[i], &(rt_bench_options){0}, &bench);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        kb_error_free(err);
    }
}

static void ask_for_what_is_not_there(void)
{
    kb_bench *bench = make(NULL, 0, false);
    (void)kb_bench_param(bench, "m");
}

static void a_parameter_that_the_bench_has_not_is_a_bug(void **state)
{
    (void)state;
    expect_abort(ask_for_what_is_not_there, "bench 'mine' has a parameter 'm'");
}

static void a_bench_may_be_too_large_for_data(void **state)
{
    (void)state;
    const char *large = "n=101";
    kb_bench *bench = make(NULL, 0, false);
    assert_false(rt_bench_is_timing_only(bench));
    rt_bench_destroy(bench);
    bench = make(&large, 1, false);
    assert_true(rt_bench_is_timing_only(bench));
    rt_bench_destroy(bench);
    bench = make(&large, 1, true); /* to verify, there must be data */
    assert_false(rt_bench_is_timing_only(bench));
    rt_bench_destroy(bench);
}

/* ---- What it tells ----------------------------------------------------------------------- */

static kb_error *talk(kb_bench *bench)
{
    kb_bench_print(bench, "%d and %s", 1, "two");
    kb_bench_print(bench, "%s", "");
    kb_bench_metric(bench, "speed", 2.5, "GB/s");
    kb_bench_metric(bench, "count", 3, NULL);
    return NULL;
}

static void lines_and_figures_are_told(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    lines l = {""};
    rt_bench_options options = {.print = keep_line, .self = &l};
    kb_bench *bench;
    size_t count;
    expect_ok(rt_bench_create(&spec, &options, &bench));
    body = talk;
    expect_ok(rt_bench_run(bench, ctx));
    assert_string_equal(l.text, "1 and two||");
    const rt_metric *metrics = rt_bench_metrics(bench, &count);
    assert_int_equal(count, 2);
    assert_string_equal(metrics[0].name, "speed");
    assert_string_equal(metrics[0].unit, "GB/s");
    assert_true(metrics[0].value == 2.5);
    assert_string_equal(metrics[1].unit, "");
    assert_int_equal(rt_bench_verdict(bench), RT_NOT_VERIFIED);
    rt_bench_destroy(bench);
    kb_context_destroy(ctx);
}

static kb_error *fault(kb_bench *bench)
{
    (void)bench;
    return kb_error_new(KB_ERR_FAULT, "no");
}

static kb_error *own_check(kb_bench *bench)
{
    (void)bench;
    return kb_error_new(KB_ERR_CHECK, "wrong, says the bench");
}

static void errors_are_handed_on(void **state)
{
    (void)state;
    rt_verdict verdict;
    expect_error(run_on(ONE_PE, fault, &verdict), KB_ERR_FAULT, "no");
    assert_int_equal(verdict, RT_NOT_VERIFIED);
    expect_wrong(ONE_PE, own_check, "wrong, says the bench");
}

/* ---- Comparing --------------------------------------------------------------------------- */

/* A tensor of the current device with these numbers. */
static kb_tensor tensor_of(kb_bench *bench, kb_dtype dtype, kb_shape shape, const kb_policy *policy,
                           const float *numbers, size_t count)
{
    unsigned char data[256];
    kb_tensor_spec of = {
        .name = "y", .dtype = dtype, .shape = shape, .policy = policy, .access = KB_UNTIMED};
    kb_tensor y;
    kb_context *ctx = kb_bench_context(bench);
    assert_true(count * kb_dtype_bytes(dtype) <= sizeof data);
    kb_convert(dtype, data, KB_F32, numbers, count);
    expect_ok(kb_empty(ctx, &of, &y));
    expect_ok(kb_tensor_set_slice(ctx, y, KB_UNTIMED, NULL, data, count * kb_dtype_bytes(dtype)));
    return y;
}

static const kb_policy split = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};

/* 4 x 8 over 2 cubes and 4 PEs: blocks of 2 x 2. Element (3, 5) is in the row of blocks 1 and in
 * column 2: that is cube 1, PE 2. */
static kb_error *two_wrong(kb_bench *bench)
{
    float numbers[32];
    double expected[32];
    for (int i = 0; i < 32; i++) {
        numbers[i] = (float)i;
        expected[i] = i;
    }
    numbers[3 * 8 + 5] = 30;
    numbers[3 * 8 + 7] = 30;
    expect_ok(kb_ahbm_set_device(kb_bench_context(bench), 1));
    kb_tensor y = tensor_of(bench, KB_F32, KB_SHAPE(4, 8), &split, numbers, 32);
    return kb_bench_verify(bench, y, expected, 0, 0.5);
}

static void the_first_wrong_element_is_named(void **state)
{
    (void)state;
    expect_wrong(THREE_SIPS, two_wrong,
                 "'y'[3, 5] at sip1.cube1.pe2: got 30, expected 29 within 0.5; 2 of 32 elements "
                 "are wrong");
}

static kb_error *vector_wrong(kb_bench *bench)
{
    const float numbers[3] = {1, 2, 3};
    const double expected[3] = {1, 2.5, 3};
    kb_tensor y = tensor_of(bench, KB_BF16, KB_SHAPE(3), NULL, numbers, 3);
    return kb_bench_verify(bench, y, expected, 0.1, 0.125);
}

static kb_error *host_wrong(kb_bench *bench)
{
    const int32_t number = 16777217; /* is no float */
    const double expected = 16777216;
    kb_tensor y;
    kb_tensor_spec of = {.name = "h", .dtype = KB_I32, .shape = KB_SHAPE(1)};
    KB_TRY(kb_from_host(kb_bench_context(bench), &of, &number, sizeof number, &y));
    return kb_bench_verify(bench, y, &expected, 0, 0);
}

static void vectors_and_tensors_of_the_host(void **state)
{
    (void)state;
    expect_wrong(ONE_PE, vector_wrong,
                 "'y'[1] at sip0.cube0.pe0: got 2, expected 2.5 within 0.375; 1 of 3 elements are "
                 "wrong");
    expect_wrong(ONE_PE, host_wrong,
                 "'h'[0] on the host: got 16777217, expected 16777216 within 0; 1 of 1 elements "
                 "are wrong");
}

/* Bounds are inclusive; NaN is never right where a number is expected, and infinity only itself. */
static kb_error *just_right(kb_bench *bench)
{
    const float numbers[5] = {1.5F, -8.5F, INFINITY, -INFINITY, 7};
    const double expected[5] = {1, -8, HUGE_VAL, -HUGE_VAL, (double)NAN};
    kb_tensor y = tensor_of(bench, KB_F32, KB_SHAPE(5), NULL, numbers, 5);
    return kb_bench_verify(bench, y, expected, 0, 0.5);
}

static float odd_number;
static double odd_expected;

static kb_error *odd(kb_bench *bench)
{
    kb_tensor y = tensor_of(bench, KB_F32, KB_SHAPE(1), NULL, &odd_number, 1);
    return kb_bench_verify(bench, y, &odd_expected, 1e30, 1e30);
}

static void numbers_that_are_none(void **state)
{
    (void)state;
    static const struct {
        float number;
        double expected;
    } wrong[] = {{NAN, 1}, {1, HUGE_VAL}, {INFINITY, 1}, {-INFINITY, HUGE_VAL}};
    expect_right(ONE_PE, just_right);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rt_verdict verdict;
        odd_number = wrong[i].number;
        odd_expected = wrong[i].expected;
        kb_error *err = run_on(ONE_PE, odd, &verdict);
        assert_int_equal(kb_error_code(err), KB_ERR_CHECK);
        kb_error_free(err);
    }
}

/* One good comparison does not make up for a bad one, whatever comes first. */
static kb_error *good_then_bad(kb_bench *bench)
{
    const float number = 1;
    const double right = 1, wrong = 2;
    kb_tensor y = tensor_of(bench, KB_F32, KB_SHAPE(1), NULL, &number, 1);
    expect_ok(kb_bench_verify(bench, y, &right, 0, 0));
    return kb_bench_verify(bench, y, &wrong, 0, 0);
}

static void one_wrong_result_is_enough(void **state)
{
    (void)state;
    expect_wrong(ONE_PE, good_then_bad,
                 "'y'[0] at sip0.cube0.pe0: got 1, expected 2 within 0; 1 of 1 elements are wrong");
}

/* Comparing waits for what is under way, whether or not it compares: times are the same. */
static kb_error *compare_after_a_copy(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    static const unsigned char zeros[64];
    static const double expected[64];
    kb_tensor_spec of = {.name = "z", .dtype = KB_I8, .shape = KB_SHAPE(64), .access = KB_UNTIMED};
    kb_tensor host, y;
    KB_TRY(kb_from_host(ctx, &of, zeros, sizeof zeros, &host));
    KB_TRY(kb_empty(ctx, &of, &y));
    KB_TRY(kb_tensor_copy(ctx, y, host, KB_TIMED));
    KB_TRY(kb_bench_verify(bench, y, kb_bench_verifies(bench) ? expected : NULL, 0, 0));
    kb_bench_metric(bench, "after", kb_to_ns(kb_context_now(ctx)), "ns");
    return NULL;
}

static void comparing_does_not_change_times(void **state)
{
    (void)state;
    double after[2];
    for (int verify = 0; verify < 2; verify++) {
        kb_context *ctx = open_machine(ONE_PE);
        kb_bench *bench = make(NULL, 0, verify);
        size_t count;
        body = compare_after_a_copy;
        expect_ok(rt_bench_run(bench, ctx));
        after[verify] = rt_bench_metrics(bench, &count)[0].value;
        rt_bench_destroy(bench);
        kb_context_destroy(ctx);
    }
    assert_true(after[0] > 0);
    assert_true(after[0] == after[1]);
}

/* ---- Numbers and devices ----------------------------------------------------------------- */

static void random_numbers_are_reproducible(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static float a[COUNT], b[COUNT];
    static int8_t whole[COUNT];
    double sum = 0;
    int counts[3] = {0};
    kb_bench_random(1, KB_F32, a, COUNT);
    kb_bench_random(1, KB_F32, b, COUNT);
    assert_memory_equal(a, b, sizeof a);
    kb_bench_random(2, KB_F32, b, COUNT);
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < COUNT; i++) {
        assert_true(a[i] >= -1 && a[i] <= 1);
        sum += (double)a[i];
    }
    assert_true(fabs(sum / COUNT) < 0.05);
    kb_bench_random(1, KB_I8, whole, COUNT);
    for (int i = 0; i < COUNT; i++)
        counts[whole[i] + 1]++;
    for (int i = 0; i < 3; i++)
        assert_true(counts[i] > COUNT / 4);
}

static kb_error *look_at_devices(kb_bench *bench)
{
    kb_bench_metric(bench, "count", kb_bench_device_count(bench), "");
    kb_bench_metric(bench, "last", kb_bench_device(bench, kb_bench_device_count(bench) - 1), "");
    return NULL;
}

static void a_bench_knows_its_devices(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        double count, last;
    } cases_of_device[] = {{NULL, 3, 2}, {"all", 3, 2}, {"sip:1", 1, 1}};
    for (size_t i = 0; i < 3; i++) {
        kb_context_options options = {.device = cases_of_device[i].device};
        kb_context *ctx = open_context(THREE_SIPS, options);
        kb_bench *bench = make(NULL, 0, false);
        size_t count;
        body = look_at_devices;
        expect_ok(rt_bench_run(bench, ctx));
        const rt_metric *metrics = rt_bench_metrics(bench, &count);
        assert_true(metrics[0].value == cases_of_device[i].count);
        assert_true(metrics[1].value == cases_of_device[i].last);
        rt_bench_destroy(bench);
        kb_context_destroy(ctx);
    }
}

/* Files of benches say which headers they were made with; these follow the version. */
static void the_interface_is_that_of_the_version(void **state)
{
    (void)state;
    size_t length = strlen(KB_INTERFACE);
    assert_memory_equal(kb_version(), KB_INTERFACE, length);
    assert_true(kb_version()[length] == '.');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_what_was_given_or_the_default),
        cmocka_unit_test(numbers_may_have_units),
        cmocka_unit_test(a_parameter_may_be_one_of_several_names),
        cmocka_unit_test(wrong_parameters_are_refused),
        cmocka_unit_test(wrong_benches_are_refused),
        cmocka_unit_test(a_parameter_that_the_bench_has_not_is_a_bug),
        cmocka_unit_test(a_bench_may_be_too_large_for_data),
        cmocka_unit_test(lines_and_figures_are_told),
        cmocka_unit_test(errors_are_handed_on),
        cmocka_unit_test(the_first_wrong_element_is_named),
        cmocka_unit_test(vectors_and_tensors_of_the_host),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(one_wrong_result_is_enough),
        cmocka_unit_test(comparing_does_not_change_times),
        cmocka_unit_test(random_numbers_are_reproducible),
        cmocka_unit_test(a_bench_knows_its_devices),
        cmocka_unit_test(the_interface_is_that_of_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
