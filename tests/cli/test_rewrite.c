/* test_rewrite.c: settings written into descriptions: replaced, inserted, quoted, refused. */
#include "support/expect.h"

#include "cli/rewrite.h"

static void expect_rewritten(const char *before, const char *setting, const char *after)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, before);
    expect_ok(rewrite_setting(&text, setting));
    assert_string_equal(kb_text_peek(&text), after);
    kb_text_fini(&text);
}

static void scalars_are_replaced(void **state)
{
    (void)state;
    expect_rewritten("a: 1 # why\n", "a=22", "a: 22 # why\n");
    expect_rewritten("a:\n  b: { c: 1, d: 2 }\n", "a.b.d=x", "a:\n  b: { c: 1, d: x }\n");
    expect_rewritten("a: [N, E]\n", "a.1=W", "a: [N, W]\n");
    expect_rewritten("a: \"x # y\" # z\n", "a=1", "a: 1 # z\n");
    expect_rewritten("a: 'it''s' # z\n", "a=1", "a: 1 # z\n");
    expect_rewritten("a: \"q\\\"r\" # z\n", "a=1", "a: 1 # z\n");
    expect_rewritten("{a: 1}", "a=2", "{a: 2}");
    /* Columns count characters, not bytes. */
    expect_rewritten("n: { x: \303\251\303\251, a: 1 }\n", "n.a=2",
                     "n: { x: \303\251\303\251, a: 2 }\n");
}

static void keys_are_put_where_they_belong(void **state)
{
    (void)state;
    expect_rewritten("# top\na: 1\n", "b=2", "# top\nb: 2\na: 1\n");
    expect_rewritten("a:\n  # in\n  b: 1\n", "a.c=2", "a:\n  # in\n  c: 2\n  b: 1\n");
    expect_rewritten("a: { b: 1 }\n", "a.c=2", "a: { c: 2, b: 1 }\n");
    expect_rewritten("a: {}\n", "a.c=2", "a: { c: 2 }\n");
    expect_rewritten("a: 1\n", "x.y.z=2", "x: { y: { z: 2 } }\na: 1\n");
    expect_rewritten("{}", "x=2", "{ x: 2 }");
}

/* LF, CR LF or CR ends a line, and a byte order mark is no column. */
static void lines_end_as_the_parser_has_it(void **state)
{
    (void)state;
    expect_rewritten("a: 1\rb: 2\n", "b=3", "a: 1\rb: 3\n");
    expect_rewritten("a: { b: 1 }\rc:\r\n  d: 2\n", "c.e=3", "a: { b: 1 }\rc:\r\n  e: 3\n  d: 2\n");
    expect_rewritten("\xef\xbb\xbf{a: 1}", "a=2", "\xef\xbb\xbf{a: 2}");
    expect_rewritten("a: {\r\n}\n", "a.b=2", "a: { b: 2 \r\n}\n");
}

static void values_are_quoted_if_need_be(void **state)
{
    (void)state;
    expect_rewritten("a: 1\n", "a=b: c", "a: \"b: c\"\n");
    expect_rewritten("a: 1\n", "a=", "a: \"\"\n");
    expect_rewritten("a: 1\n", "a=\"\\", "a: \"\\\"\\\\\"\n");
    expect_rewritten("a: 1\n", "a=-1.5e-3", "a: -1.5e-3\n");
    expect_rewritten("a: 1\n", "a=x=y", "a: \"x=y\"\n");
}

static void words_that_mean_something_are_quoted(void **state)
{
    (void)state;
    expect_rewritten("a: 1\n", "a=null", "a: \"null\"\n");
    expect_rewritten("a: 1\n", "a=---", "a: \"---\"\n");
    expect_rewritten("a: 1\n", "a=-x", "a: \"-x\"\n");
}

static void collections_are_replaced(void **state)
{
    (void)state;
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "a:\n  b: { c: [1, 2], d: 3 } # why\n  e: 4\n");
    expect_ok(rewrite_collection(&text, "a.b", "{ x: [] }"));
    assert_string_equal(kb_text_peek(&text), "a:\n  b: { x: [] } # why\n  e: 4\n");
    expect_ok(rewrite_collection(&text, "a.b.x", "[1]"));
    assert_string_equal(kb_text_peek(&text), "a:\n  b: { x: [1] } # why\n  e: 4\n");
    static const char *const none[] = {"a.e", "a.f", "b"};
    for (size_t i = 0; i < 3; i++) {
        kb_error *err = rewrite_collection(&text, none[i], "[]");
        assert_int_equal(kb_error_code(err), KB_ERR_BUG);
        kb_error_free(err);
    }
    kb_text_fini(&text);
}

static void others_are_refused(void **state)
{
    (void)state;
    static const char *const settings[] = {"a", "a.b=1", "l.7=1", "m=1"};
    for (size_t i = 0; i < 4; i++) {
        kb_text text = KB_TEXT_INIT;
        kb_text_puts(&text, "a: 1\nl: [1]\nm: { x: 1 }\n");
        kb_error *err = rewrite_setting(&text, settings[i]);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        assert_string_equal(kb_text_peek(&text), "a: 1\nl: [1]\nm: { x: 1 }\n");
        kb_error_free(err);
        kb_text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_are_replaced),
        cmocka_unit_test(keys_are_put_where_they_belong),
        cmocka_unit_test(lines_end_as_the_parser_has_it),
        cmocka_unit_test(values_are_quoted_if_need_be),
        cmocka_unit_test(words_that_mean_something_are_quoted),
        cmocka_unit_test(collections_are_replaced),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests_name("rewrite", tests, NULL, NULL);
}
