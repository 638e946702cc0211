/* test_error.c: messages, locations, wrapping, detail; behaviour without memory. Checks R1 and R2.
 */
#include <errno.h>

#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"

static void new_error_has_code_and_message(void **state)
{
    (void)state;
    kb_error *err = kb_error_new(KB_ERR_FAULT, "bad address 0x%x in %s", 255, "pe3");
    assert_string_equal(kb_error_detail(err), "");
    expect_error(err, KB_ERR_FAULT, "bad address 0xff in pe3");
}

static void null_is_success(void **state)
{
    (void)state;
    assert_int_equal(kb_error_code(NULL), KB_OK);
    assert_string_equal(kb_error_message(NULL), "");
    assert_string_equal(kb_error_detail(NULL), "");
    kb_error_free(NULL);
}

static void places_are_printed(void **state)
{
    (void)state;
    kb_srcloc loc = {.file = "m.yaml", .line = 12, .column = 3};
    expect_error(kb_error_at(KB_ERR_INPUT, &loc, "no %s", "w"), KB_ERR_INPUT, "m.yaml:12:3: no w");
    loc.line = 0;
    expect_error(kb_error_at(KB_ERR_INPUT, &loc, "gone"), KB_ERR_INPUT, "m.yaml: gone");
}

static void a_message_is_one_line(void **state)
{
    (void)state;
    expect_error(kb_error_new(KB_ERR_INPUT, "found '%s'", "a\nb\tc\r\x1b[31m\x7f"), KB_ERR_INPUT,
                 "found 'a\\nb\\tc\\r\\x1b[31m\\x7f'");
    /* UTF-8 stays; C1 controls and stray bytes do not. */
    expect_error(kb_error_new(KB_ERR_INPUT, "%s", "gr\xc3\xbc\xc3\x9f \xc2\x9b \xff"), KB_ERR_INPUT,
                 "gr\xc3\xbc\xc3\x9f \\xc2\\x9b \\xff");
    kb_srcloc loc = {.file = "a\nb", .line = 1, .column = 1};
    expect_error(kb_error_at(KB_ERR_INPUT, &loc, "x"), KB_ERR_INPUT, "a\\nb:1:1: x");
}

static void wrap_puts_context_in_front(void **state)
{
    (void)state;
    kb_error *err = kb_error_new(KB_ERR_DEADLOCK, "cause");
    kb_error_add_detail(err, "line %d", 1);
    err = kb_error_wrap(err, "while %s\n", "running");
    err = kb_error_wrap(err, "bench x");
    assert_string_equal(kb_error_detail(err), "line 1");
    expect_error(err, KB_ERR_DEADLOCK, "bench x: while running\\n: cause");
}

static void detail_is_lines(void **state)
{
    (void)state;
    kb_error *err = kb_error_new(KB_ERR_INPUT, "m");
    kb_error_add_detail(err, "one\ntwo");
    kb_error_add_detail(err, "three");
    assert_string_equal(kb_error_detail(err), "one\\ntwo\nthree");
    kb_error_free(err);
}

static void a_copy_says_the_same(void **state)
{
    (void)state;
    kb_error *err = kb_error_new(KB_ERR_FAULT, "50%% of\tit");
    kb_error_add_detail(err, "one\ntwo");
    kb_error_add_detail(err, "three");
    kb_error *copy = kb_error_copy(err);
    assert_string_equal(kb_error_detail(copy), kb_error_detail(err));
    expect_error(copy, KB_ERR_FAULT, kb_error_message(err));

    kb_error *other = kb_error_new(KB_ERR_INPUT, "m");
    kb_error_add_detail_of(other, err);
    kb_error_add_detail_of(other, err);
    assert_string_equal(kb_error_detail(other), "one\\ntwo\nthree\none\\ntwo\nthree");
    kb_error_free(other);
    kb_error_free(err);

    kb_error *nothing = kb_error_copy(kb_error_nomem());
    kb_error_add_detail_of(nothing, nothing);
    assert_ptr_equal(nothing, kb_error_nomem());
}

static void copies_of_secondary_errors_are_secondary(void **state)
{
    (void)state;
    kb_error *err = kb_error_new(KB_ERR_FAULT, "it broke");
    assert_false(kb_error_is_secondary(err));
    kb_error_set_secondary(err);
    kb_error *copy = kb_error_wrap(kb_error_copy(err), "elsewhere");
    assert_true(kb_error_is_secondary(copy));
    kb_error_free(copy);
    kb_error_free(err);
    kb_error_set_secondary(kb_error_nomem()); /* which stays as it is */
    assert_false(kb_error_is_secondary(kb_error_nomem()));
    assert_false(kb_error_is_secondary(NULL));
}

static void long_messages_are_whole(void **state)
{
    (void)state;
    enum { size = 100000 };
    char *big = malloc(size + 1);
    assert_non_null(big);
    memset(big, 'x', size);
    big[size] = '\0';
    kb_error *err = kb_error_new(KB_ERR_INPUT, "%s", big);
    expect_error(err, KB_ERR_INPUT, big);
    free(big);
}

static void nomem_is_constant(void **state)
{
    (void)state;
    kb_error *err = kb_error_nomem();
    kb_error_add_detail(err, "lost");
    err = kb_error_wrap(err, "context");
    assert_ptr_equal(err, kb_error_nomem());
    assert_string_equal(kb_error_detail(err), "");
    kb_error_free(err);
    expect_error(kb_error_nomem(), KB_ERR_HOST, "out of memory");
}

static kb_error *fails_at(int step, int *reached)
{
    *reached = 1;
    KB_TRY(step == 1 ? kb_error_new(KB_ERR_CHECK, "first") : NULL);
    *reached = 2;
    KB_TRY(step == 2 ? kb_error_new(KB_ERR_CHECK, "second") : NULL);
    *reached = 3;
    return NULL;
}

static void try_returns_the_error(void **state)
{
    (void)state;
    int reached;
    expect_error(fails_at(1, &reached), KB_ERR_CHECK, "first");
    assert_int_equal(reached, 1);
    expect_error(fails_at(2, &reached), KB_ERR_CHECK, "second");
    assert_int_equal(reached, 2);
    expect_ok(fails_at(0, &reached));
    assert_int_equal(reached, 3);
}

static void make_without_memory(void)
{
    kb_srcloc loc = {.file = "f", .line = 1, .column = 2};
    kb_error *err = kb_error_at(KB_ERR_INPUT, &loc, "cause \n");
    err = kb_error_wrap(err, "context");
    kb_error_add_detail(err, "first");
    kb_error_add_detail(err, "second");

    const char *message = kb_error_message(err);
    if (kb_error_code(err) == KB_ERR_HOST) {
        assert_string_equal(message, "out of memory");
    } else {
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        assert_true(strcmp(message, "context: f:1:2: cause \\n") == 0 ||
                    strcmp(message, "f:1:2: cause \\n") == 0);
        const char *detail = kb_error_detail(err);
        assert_true(strcmp(detail, "first\nsecond") == 0 || strcmp(detail, "first") == 0 ||
                    strcmp(detail, "second") == 0 || strcmp(detail, "") == 0);
    }
    kb_error_free(err);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(make_without_memory);
}

/* Exit statuses have 8 bits: 256 would be success. */
static void invalid_codes_are_faults(void **state)
{
    (void)state;
    static const int codes[] = {0, -1, 5, 69, 72, 99, 255, 256, 257, 326, 512, 65536, INT32_MAX};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        kb_error *err = kb_error_new((kb_code)codes[i], "mine");
        char detail[100];
        snprintf(detail, sizeof detail, "kb_error_new() was called with the invalid error code %d",
                 codes[i]);
        assert_string_equal(kb_error_detail(err), detail);
        expect_error(err, KB_ERR_FAULT, "mine");
    }
}

static void errno_tells_the_host_from_the_user(void **state)
{
    (void)state;
    static const int of_host[] = {ENOMEM, EMFILE, ENFILE, ENOSPC, EDQUOT, EIO, EAGAIN};
    for (size_t i = 0; i < sizeof of_host / sizeof of_host[0]; i++)
        assert_int_equal(kb_code_of_errno(of_host[i]), KB_ERR_HOST);
    static const int of_user[] = {ENOENT, EACCES, EISDIR, ENOTDIR, ENAMETOOLONG};
    for (size_t i = 0; i < sizeof of_user / sizeof of_user[0]; i++)
        assert_int_equal(kb_code_of_errno(of_user[i]), KB_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_codes_are_faults),
        cmocka_unit_test(new_error_has_code_and_message),
        cmocka_unit_test(null_is_success),
        cmocka_unit_test(places_are_printed),
        cmocka_unit_test(a_message_is_one_line),
        cmocka_unit_test(wrap_puts_context_in_front),
        cmocka_unit_test(detail_is_lines),
        cmocka_unit_test(a_copy_says_the_same),
        cmocka_unit_test(copies_of_secondary_errors_are_secondary),
        cmocka_unit_test(long_messages_are_whole),
        cmocka_unit_test(nomem_is_constant),
        cmocka_unit_test(try_returns_the_error),
        cmocka_unit_test(survives_lack_of_memory),
        cmocka_unit_test(errno_tells_the_host_from_the_user),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
