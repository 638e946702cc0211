/* test_decimal.c: decimal numbers, against hand-worked values and against 128-bit arithmetic. */
#include <inttypes.h>

#include "support/expect.h"
#include "support/seed.h"

#include "base/base.h"

static void expect_decimal(const char *text, int digits, int64_t expected)
{
    int64_t value = -77;
    kb_decimal_result result = kb_decimal_parse(text, digits, &value);
    if (result != KB_DECIMAL_OK || value != expected)
        fail_msg("%s with %d digits: result %d, value %" PRId64, text, digits, (int)result, value);
}

static void expect_result(const char *text, int digits, kb_decimal_result expected)
{
    int64_t value = -77;
    kb_decimal_result result = kb_decimal_parse(text, digits, &value);
    if (result != expected || value != -77)
        fail_msg("'%s' with %d digits: result %d", text, digits, (int)result);
}

static void reads_numbers_exactly(void **state)
{
    (void)state;
    expect_decimal("0", 9, 0);
    expect_decimal("-0", 9, 0);
    expect_decimal("0.000", 2, 0);
    expect_decimal("1", 0, 1);
    expect_decimal("-7", 0, -7);
    expect_decimal("204.8", 9, 204800000000);
    expect_decimal("0.01", 9, 10000000);
    expect_decimal("0.1", 18, 100000000000000000);
    expect_decimal("76.0", 6, 76000000);
    expect_decimal("1.000000", 0, 1);
    expect_decimal("2.50", 1, 25);
    expect_decimal("-0.5", 1, -5);
    expect_decimal("1e3", 0, 1000);
    expect_decimal("1E+3", 2, 100000);
    expect_decimal("12.5e-1", 2, 125);
    expect_decimal("1e-9", 9, 1);
    expect_decimal("100e-2", 0, 1);
    expect_decimal("0.001e3", 0, 1);
    expect_decimal("123456789.987654321", 9, 123456789987654321);
    expect_decimal("0e999999999999999999999", 0, 0);
    expect_decimal("0e-999999999999999999999", 0, 0);
}

static void the_limits_are_exact(void **state)
{
    (void)state;
    expect_decimal("9223372036854775807", 0, INT64_MAX);
    expect_decimal("-9223372036854775808", 0, INT64_MIN);
    expect_decimal("9.223372036854775807", 18, INT64_MAX);
    expect_decimal("9223372036.854775807", 9, INT64_MAX);
    expect_decimal("922337203685477580.7", 1, INT64_MAX);
    expect_decimal("9.22337203685477580e18", 0, 9223372036854775800);
    expect_result("9223372036854775808", 0, KB_DECIMAL_TOO_LARGE);
    expect_result("-9223372036854775809", 0, KB_DECIMAL_TOO_LARGE);
    expect_result("10000000000", 9, KB_DECIMAL_TOO_LARGE);
    expect_result("1e19", 0, KB_DECIMAL_TOO_LARGE);
    expect_result("1e999999999999999999999", 0, KB_DECIMAL_TOO_LARGE);
    expect_result("123456789012345678901234567890", 0, KB_DECIMAL_TOO_LARGE);
}

static void what_is_finer_is_refused(void **state)
{
    (void)state;
    expect_result("0.1", 0, KB_DECIMAL_TOO_FINE);
    expect_result("0.0000000001", 9, KB_DECIMAL_TOO_FINE);
    expect_result("1.0000000001", 9, KB_DECIMAL_TOO_FINE);
    expect_result("1e-10", 9, KB_DECIMAL_TOO_FINE);
    expect_result("15e-1", 0, KB_DECIMAL_TOO_FINE);
    expect_result("1e-999999999999999999999", 9, KB_DECIMAL_TOO_FINE);
    expect_result("0.3333333333333333333333333333333", 9, KB_DECIMAL_TOO_FINE);
    expect_result("123456789012345678901234567890.1", 0, KB_DECIMAL_TOO_FINE);
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",     "-",    ".5",    "5.",  "+1",    "01",       "00", "-01.5", "1e",
        "1e+",  "1.e3", "1.2.3", "1,5", "0x10",  " 1",       "1 ", "nan",   "inf",
        "1e3x", "--1",  "1_000", "e3",  "1e--3", "1e3.5",    "~",  "ten",   "1\n2",
        "1.5.", "-e1",  "1e+-3", "- 1", "\xff",  "1\xc2\xb2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_result(bad[i], 9, KB_DECIMAL_NO_NUMBER);
}

static void prints_what_it_reads(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        int digits;
        const char *text;
    } cases[] = {
        {0, 9, "0"},
        {204800000000, 9, "204.8"},
        {1, 9, "0.000000001"},
        {-50, 3, "-0.05"},
        {1000000, 6, "1"},
        {42, 0, "42"},
        {INT64_MAX, 0, "9223372036854775807"},
        {INT64_MIN, 18, "-9.223372036854775808"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kb_text text = KB_TEXT_INIT;
        kb_decimal_print(cases[i].value, cases[i].digits, &text);
        assert_string_equal(kb_text_peek(&text), cases[i].text);
        expect_decimal(cases[i].text, cases[i].digits, cases[i].value);
        kb_text_fini(&text);
    }
}

/* m * 10^e written in one of several ways, and its value at so many digits by plain arithmetic. */
static void random_numbers_agree_with_plain_arithmetic(void **state)
{
    (void)state;
    __extension__ typedef __int128 wide;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    int seen[4] = {0};
    for (int round = 0; round < 200000; round++) {
        int digits = (int)kb_rng_below(&rng, KB_DECIMAL_MAX_DIGITS + 1);
        uint64_t range = (uint64_t)1 << kb_rng_below(&rng, 63);
        int64_t mantissa = (int64_t)kb_rng_below(&rng, range);
        int places = (int)kb_rng_below(&rng, 12), exponent = (int)kb_rng_below(&rng, 24) - 12;
        kb_text text = KB_TEXT_INIT;
        bool negative = kb_rng_below(&rng, 2) == 1;
        kb_text_puts(&text, negative ? "-" : "");
        kb_decimal_print(mantissa, places, &text);
        if (exponent != 0)
            kb_text_printf(&text, "e%d", exponent);

        /* mantissa * 10^shift, if that is whole and fits. */
        int shift = exponent - places + digits;
        wide value = negative ? -(wide)mantissa : mantissa;
        kb_decimal_result expected = KB_DECIMAL_OK;
        for (; shift > 0 && expected == KB_DECIMAL_OK; shift--) {
            value *= 10;
            if (value > INT64_MAX || value < INT64_MIN)
                expected = KB_DECIMAL_TOO_LARGE;
        }
        for (; shift < 0 && expected == KB_DECIMAL_OK; shift++) {
            if (value % 10 != 0)
                expected = KB_DECIMAL_TOO_FINE;
            value /= 10;
        }
        seen[expected]++;
        if (expected == KB_DECIMAL_OK)
            expect_decimal(kb_text_peek(&text), digits, (int64_t)value);
        else
            expect_result(kb_text_peek(&text), digits, expected);
        kb_text_fini(&text);
    }
    assert_true(seen[KB_DECIMAL_OK] > 1000 && seen[KB_DECIMAL_TOO_FINE] > 1000 &&
                seen[KB_DECIMAL_TOO_LARGE] > 1000);
}

static kb_config *load(const char *text)
{
    kb_config *config;
    expect_ok(kb_config_load_text("f.yaml", text, strlen(text), &config));
    return config;
}

static void settings_are_read_exactly_or_refused(void **state)
{
    (void)state;
    kb_config *config = load("a: 204.8\nb: -1\nc: 1001\nd: '5'\ne: 0.12345\nf: x\ng: 0\nh: [1]\n"
                             "i: 1e-3\n");
    kb_config_node *root = kb_config_root(config);
    assert_int_equal(kb_config_decimal(kb_config_find(root, "a"), 2, 0, 100000, 7), 20480);
    assert_int_equal(kb_config_decimal(kb_config_find(root, "i"), 3, 0, 1000, 7), 1);
    assert_int_equal(kb_config_decimal(NULL, 3, 0, 1000, 7), 7);
    for (char key[] = "b"; key[0] <= 'h'; key[0]++) {
        int64_t min = key[0] == 'g' ? 1 : 500;
        assert_int_equal(kb_config_decimal(kb_config_find(root, key), 3, min, 1000000, 7), 7);
    }
    kb_error *err = kb_config_finish(config);
    assert_string_equal(
        kb_error_detail(err),
        "f.yaml:2:4: b: expected a number of at least 0.5 and at most 1000, found '-1'\n"
        "f.yaml:3:4: c: expected a number of at least 0.5 and at most 1000, found '1001'\n"
        "f.yaml:4:4: d: expected a number of at least 0.5 and at most 1000, found the string '5'\n"
        "f.yaml:5:4: e: expected at most 3 digits after the point, found '0.12345'\n"
        "f.yaml:6:4: f: expected a number of at least 0.5 and at most 1000, found 'x'\n"
        "f.yaml:7:4: g: expected a number above 0 and at most 1000, found '0'\n"
        "f.yaml:8:4: h: expected a number of at least 0.5 and at most 1000, found a sequence");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void bytes_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"17", 17},
        {"17B", 17},
        {"2KiB", 2048},
        {"64KB", 64000},
        {"4K", 4096},
        {"7kB", 7000},
        {"1MiB", 1 << 20},
        {"3GiB", 3ull << 30},
        {"5 MiB", 5 << 20},
        {"1TiB", 1ull << 40},
        {"2T", 2ull << 40},
        {"1TB", 1000000000000},
        {"16777215GiB", 16777215ull << 30},
    };
    uint64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(kb_bytes_parse(good[i].text, &value));
        assert_int_equal(value, good[i].bytes);
    }
    static const char *const bad[] = {
        "", "B", "KiB", "1 2", "99999999999999999999", "17179869184GiB", "1Ki", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(kb_bytes_parse(bad[i], &value));
}

static void bytes_are_rounded_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {320000, "312.50 KiB"},
        {UINT64_MAX, "16.00 EiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(kb_bytes_print(cases[i].bytes).text, cases[i].text);
}

static void limits_are_printed_in_both_forms(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0"},
        {1, "1"},
        {1000, "1000"},
        {4096, "4096 (4KiB)"},
        {4097, "4097"},
        {3 << 20, "3145728 (3MiB)"},
        {1ull << 40, "1099511627776 (1TiB)"},
        {UINT64_MAX, "18446744073709551615"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kb_text text = KB_TEXT_INIT;
        kb_bytes_print_limit(cases[i].bytes, &text);
        assert_string_equal(kb_text_peek(&text), cases[i].text);
        kb_text_fini(&text);
    }
    kb_text text = KB_TEXT_INIT;
    kb_decimal_print_range(1, 1500000, 6, &text);
    kb_text_puts(&text, "; ");
    kb_decimal_print_range(2, 10, 1, &text);
    assert_string_equal(kb_text_peek(&text),
                        "above 0 and at most 1.5; of at least 0.2 and at most 1");
    kb_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_numbers_exactly),
        cmocka_unit_test(the_limits_are_exact),
        cmocka_unit_test(what_is_finer_is_refused),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(prints_what_it_reads),
        cmocka_unit_test(random_numbers_agree_with_plain_arithmetic),
        cmocka_unit_test(settings_are_read_exactly_or_refused),
        cmocka_unit_test(bytes_have_units),
        cmocka_unit_test(bytes_are_rounded_for_people),
        cmocka_unit_test(limits_are_printed_in_both_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
