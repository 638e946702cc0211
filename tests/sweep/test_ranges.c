/* test_ranges.c: lists and ranges of values; the hash of texts. */
#include "support/expect.h"

#include "sweep/digest.h"
#include "sweep/ranges.h"

/* The values, separated by spaces, or the message of the error. */
static void expect_values(const char *list, const char *expected)
{
    kb_arena arena;
    sweep_texts values = {0};
    kb_text text = KB_TEXT_INIT;
    kb_arena_init(&arena);
    kb_error *err = sweep_expand_list(list, &arena, &values);
    for (size_t i = 0; i < values.count && !err; i++)
        kb_text_printf(&text, "%s%s", i > 0 ? " " : "", values.items[i]);
    if (err)
        kb_text_puts(&text, kb_error_message(err));
    assert_string_equal(kb_text_peek(&text), expected);
    kb_error_free(err);
    kb_text_fini(&text);
    kb_vec_fini(&values);
    kb_arena_fini(&arena);
}

static void expands_lists(void **state)
{
    (void)state;
    expect_values("128,256,512", "128 256 512");
    expect_values("ring", "ring");
    expect_values("../odd.yaml,default", "../odd.yaml default");
    expect_values("1,2..4,8..32*2", "1 2 3 4 8 16 32");
    expect_values("a..b", "a..b"); /* no number: a text */
    expect_values("1,,2", "a value is empty");
    expect_values("", "a value is empty");
    expect_values("1,", "a value is empty");
}

static void expands_ranges(void **state)
{
    (void)state;
    expect_values("2..8", "2 3 4 5 6 7 8");
    expect_values("5..5", "5");
    expect_values("0..10+2", "0 2 4 6 8 10");
    expect_values("0..9+2", "0 2 4 6 8");
    expect_values("1..64*2", "1 2 4 8 16 32 64");
    expect_values("1..100*3", "1 3 9 27 81");
    expect_values("-2..2", "-2 -1 0 1 2");
    expect_values("-0.2..0.1+0.1", "-0.2 -0.1 0 0.1");
    expect_values("0.5..1+0.1", "0.5 0.6 0.7 0.8 0.9 1");
    expect_values("1..2*1.1", "1 1.1 1.21 1.331 1.4641 1.61051 1.771561 1.9487171");
    expect_values("1e3..3e3+1e3", "1000 2000 3000");
    expect_values("1e-3..2e-3+1e-3", "0.001 0.002");
    expect_values("1..1e+1+4", "1 5 9");
    expect_values("9223372036854775806..9223372036854775807",
                  "9223372036854775806 9223372036854775807");
}

static void expands_sizes(void **state)
{
    (void)state;
    expect_values("1KiB..1MiB*4", "1KiB 4KiB 16KiB 64KiB 256KiB 1MiB");
    expect_values("512..2KiB*2", "512 1KiB 2KiB");
    expect_values("1KiB..3KiB+512", "1KiB 1536 2KiB 2560 3KiB");
    expect_values("1KB..1MB*10", "1KB 10KB 100KB 1MB");
    expect_values("1K..2K*2", "1KiB 2KiB");
    expect_values("1KiB..4KiB*1.5", "1KiB 1536 2304 3456");
    expect_values("3..8*1.5", "3 4.5 6.75");
}

static void reports_bad_ranges(void **state)
{
    (void)state;
    expect_values("8..2", "range '8..2' ends before it begins; write the smaller end first");
    expect_values("1..8+0", "range '1..8+0': expected a step above 0");
    expect_values("1..8*1", "range '1..8*1': expected a factor above 1, and a first value above 0");
    expect_values("0..8*2", "range '0..8*2': expected a factor above 1, and a first value above 0");
    expect_values("1..x", "range '1..x': 'x' is neither a number nor a size; expected such as "
                          "2..8, 0..1+0.1 or 1KiB..1MiB*4");
    expect_values("1..", "range '1..': '' is neither a number nor a size; expected such as "
                         "2..8, 0..1+0.1 or 1KiB..1MiB*4");
    expect_values("1a..4", "range '1a..4': '1a' is neither a number nor a size; expected such as "
                           "2..8, 0..1+0.1 or 1KiB..1MiB*4");
    expect_values("0..100000000", "range '0..100000000': more than 1000000 values");
    expect_values("1B..10B*1.5",
                  "range '1B..10B*1.5' has a value that is no whole number of bytes");
    expect_values("1..2*1.0000001", "range '1..2*1.0000001' has values of more than 18 digits");
}

static void expect_hash(const char *text, size_t repeat, const char *hex)
{
    sweep_digest digest;
    sweep_digest_init(&digest);
    for (size_t i = 0; i < repeat; i++)
        sweep_digest_bytes(&digest, text, strlen(text));
    assert_string_equal(sweep_digest_finish(&digest).hex, hex);
}

/* The first half of the examples of FIPS 180-4, and of other implementations. */
static void hashes_as_sha256(void **state)
{
    (void)state;
    expect_hash("", 1, "e3b0c44298fc1c149afbf4c8996fb924");
    expect_hash("abc", 1, "ba7816bf8f01cfea414140de5dae2223");
    expect_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                "248d6a61d20638b8e5c026930c3e6039");
    expect_hash("aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67");
}

static void keeps_texts_apart(void **state)
{
    (void)state;
    sweep_digest a, b;
    sweep_digest_init(&a);
    sweep_digest_init(&b);
    sweep_digest_text(&a, "ab");
    sweep_digest_text(&a, "c");
    sweep_digest_text(&b, "a");
    sweep_digest_text(&b, "bc");
    assert_string_not_equal(sweep_digest_finish(&a).hex, sweep_digest_finish(&b).hex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expands_lists),    cmocka_unit_test(expands_ranges),
        cmocka_unit_test(expands_sizes),    cmocka_unit_test(reports_bad_ranges),
        cmocka_unit_test(hashes_as_sha256), cmocka_unit_test(keeps_texts_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
