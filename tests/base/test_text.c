/* test_text.c: growing strings, escaping, UTF-8, exact times; behaviour without memory. */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"

static void expect_taken(kb_text *text, const char *expected)
{
    char *taken = kb_text_take(text);
    assert_string_equal(taken, expected);
    free(taken);
}

static void appends_in_every_way(void **state)
{
    (void)state;
    kb_text text = KB_TEXT_INIT;
    assert_string_equal(kb_text_peek(&text), "");
    kb_text_puts(&text, "ab");
    kb_text_append(&text, "cdX", 2);
    kb_text_printf(&text, "%d%s", 12, "");
    kb_text_append(&text, NULL, 0);
    assert_string_equal(kb_text_peek(&text), "abcd12");
    assert_int_equal(text.length, 6);
    expect_taken(&text, "abcd12");
    expect_taken(&text, ""); /* empty again, and still a string */
    for (int i = 0; i < 5000; i++)
        kb_text_printf(&text, "%d,", i % 10);
    assert_int_equal(text.length, 10000);
    assert_int_equal(strlen(kb_text_peek(&text)), 10000);
    kb_text_fini(&text);
    assert_null(text.bytes);
}

static void expect_escaped(const char *source, size_t length, const char *expected)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_append(&text, source, length);
    kb_text_escape_from(&text, 0);
    assert_string_equal(kb_text_peek(&text), expected);
    assert_int_equal(text.length, strlen(expected));
    kb_text_fini(&text);
}

static void escapes_what_is_not_printable(void **state)
{
    (void)state;
    expect_escaped("", 0, "");
    expect_escaped("plain \\ text", 12, "plain \\ text");
    expect_escaped("\0a\n", 3, "\\x00a\\n");
    expect_escaped("\xe2\x82", 2, "\\xe2\\x82");                   /* cut short */
    expect_escaped("\xe2\x82\xac", 3, "\xe2\x82\xac");             /* euro sign */
    expect_escaped("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");          /* surrogate */
    expect_escaped("\xc0\x80", 2, "\\xc0\\x80");                   /* overlong */
    expect_escaped("\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */

    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "keep\nthis ");
    kb_text_puts(&text, "not\nthat");
    kb_text_escape_from(&text, 10);
    assert_string_equal(kb_text_peek(&text), "keep\nthis not\\nthat");
    kb_text_fini(&text);
}

/* Encodes by the definition, independently of the decoder. */
static size_t encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[length] | c);
    return length;
}

static void decodes_all_of_utf8(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x110010; c++) {
        char bytes[4];
        size_t length = encode(c, bytes);
        uint32_t decoded = 0;
        bool valid = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
        size_t got = kb_utf8_decode(bytes, length, &decoded);
        if (got != (valid ? length : 0) || (valid && decoded != c))
            fail_msg("U+%04x: length %zu, decoded U+%04x", c, got, decoded);
        if (kb_utf8_decode(bytes, length - 1, &decoded) != 0)
            fail_msg("U+%04x: decoded though cut short", c);
    }
    uint32_t decoded;
    assert_int_equal(kb_utf8_decode("\x80", 1, &decoded), 0);
    assert_int_equal(kb_utf8_decode("\xf8\x88\x80\x80\x80", 5, &decoded), 0);
    assert_int_equal(kb_utf8_decode("\xe0\x80\x80", 3, &decoded), 0);
}

static void times_are_exact(void **state)
{
    (void)state;
    static const struct {
        kb_time time;
        const char *text;
    } cases[] = {
        {0, "0.000000"},
        {1, "0.000001"},
        {-1, "-0.000001"},
        {12345678, "12.345678"},
        {KB_S, "1000000000.000000"},
        {INT64_MAX, "9223372036854.775807"},
        {INT64_MIN, "-9223372036854.775808"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kb_text text = KB_TEXT_INIT;
        kb_text_append_ns(&text, cases[i].time);
        expect_taken(&text, cases[i].text);
    }
}

static void use_without_memory(void)
{
    kb_text text = KB_TEXT_INIT;
    for (int i = 0; i < 20; i++)
        kb_text_printf(&text, "%d\n", i);
    kb_text_escape_from(&text, 0);
    kb_text_puts(&text, "end");
    bool failed = text.failed;
    char *taken = kb_text_take(&text);
    if (taken)
        assert_string_equal(taken, "0\\n1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n10\\n11\\n12\\n13\\n14"
                                   "\\n15\\n16\\n17\\n18\\n19\\nend");
    else
        assert_true(failed);
    free(taken);
    assert_false(text.failed); /* taken, and so new */
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(use_without_memory);
}

static void nouns_agree_with_counts(void **state)
{
    (void)state;
    assert_string_equal(kb_plural(0), "s");
    assert_string_equal(kb_plural(1), "");
    assert_string_equal(kb_plural(2), "s");
    assert_string_equal(kb_plural(UINT64_MAX), "s");
    assert_string_equal(kb_noun(0, "axis", "axes"), "axes");
    assert_string_equal(kb_noun(1, "axis", "axes"), "axis");
    assert_string_equal(kb_noun(11, "axis", "axes"), "axes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_in_every_way),    cmocka_unit_test(escapes_what_is_not_printable),
        cmocka_unit_test(decodes_all_of_utf8),     cmocka_unit_test(times_are_exact),
        cmocka_unit_test(nouns_agree_with_counts), cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
