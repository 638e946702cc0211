/* test_suggest.c: distances against a naive reference; what is near and what is not. */
#include "support/expect.h"
#include "support/seed.h"

#include "base/base.h"

/* The nearest of an array of names, NULL if none is near. */
static const char *suggest(const char *word, const char *const *names, size_t count)
{
    static kb_suggestion near;
    kb_suggestion_search(&near, word, names, count);
    return near.best;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The definition, by recursion: slow and plain. */
static size_t naive(const char *a, size_t i, const char *b, size_t j)
{
    if (i == 0 || j == 0)
        return i + j;
    size_t best = naive(a, i - 1, b, j - 1) + (a[i - 1] != b[j - 1]);
    best = least(best, naive(a, i - 1, b, j) + 1);
    best = least(best, naive(a, i, b, j - 1) + 1);
    if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = least(best, naive(a, i - 2, b, j - 2) + 1);
    return best;
}

static void distance_matches_the_naive_one(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    for (int round = 0; round < 3000; round++) {
        char words[2][8] = {{0}};
        for (int w = 0; w < 2; w++) {
            size_t length = kb_rng_below(&rng, 7);
            for (size_t i = 0; i < length; i++)
                words[w][i] = (char)('a' + kb_rng_below(&rng, 3));
        }
        size_t expected = naive(words[0], strlen(words[0]), words[1], strlen(words[1]));
        if (kb_edit_distance(words[0], words[1]) != expected)
            fail_msg("'%s' '%s': expected %zu", words[0], words[1], expected);
    }
    assert_int_equal(kb_edit_distance("", ""), 0);
    assert_int_equal(kb_edit_distance("ca", "abc"), 3); /* restricted: a swap is not edited again */
}

static void long_words_are_safe(void **state)
{
    (void)state;
    char longest[KB_SUGGEST_MAX + 1], longer[KB_SUGGEST_MAX + 2];
    memset(longest, 'x', sizeof longest);
    memset(longer, 'x', sizeof longer);
    longest[KB_SUGGEST_MAX] = longer[KB_SUGGEST_MAX + 1] = '\0';
    assert_int_equal(kb_edit_distance(longest, longest), 0);
    assert_int_equal(kb_edit_distance(longest, ""), KB_SUGGEST_MAX);
    assert_true(kb_edit_distance(longer, longest) == SIZE_MAX);
    char *huge = malloc(1 << 20);
    assert_non_null(huge);
    memset(huge, 'a', 1 << 20);
    huge[(1 << 20) - 1] = '\0';
    const char *names[] = {"a", huge};
    assert_null(suggest(huge, names, 2));
    assert_null(suggest("b", names, 2));
    free(huge);
}

static void suggests_what_is_near(void **state)
{
    (void)state;
    static const char *const names[] = {"hbm_ctrl", "xbar",       "overhead_ns", "w",
                                        "h",        "efficiency", "topology",    "hbm"};
    enum { count = sizeof names / sizeof names[0] };
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"hbm_ctl", "hbm_ctrl"},
        {"hbm_ctlr", "hbm_ctrl"},
        {"xbra", "xbar"},
        {"overhead", "overhead_ns"},
        {"efficency", "efficiency"},
        {"Topology", "topology"},
        {"hmb", "hbm"},
        {"xbar", "xbar"},
        {"bandwidth", NULL},
        {"ww", "w"},               /* one change, and a letter in common */
        {"eff", "efficiency"},     /* its beginning */
        {"effcien", "efficiency"}, /* its beginning, mistyped */
        {"ctrl", "hbm_ctrl"},      /* a part of it */
        {"HBM-CTRL", "hbm_ctrl"},  /* case and dashes */
        {"x", NULL},
        {"ef", NULL}, /* too short for a beginning */
        {"", NULL},
        {"width", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = suggest(cases[i].word, names, count);
        if (cases[i].expected)
            assert_string_equal(got, cases[i].expected);
        else
            assert_null(got);
    }
    assert_null(suggest("xbar", NULL, 0));
}

static void the_first_of_equals_wins(void **state)
{
    (void)state;
    static const char *const names[] = {"bats", "cats", "rats"};
    assert_string_equal(suggest("mats", names, 3), "bats");
    assert_string_equal(suggest("rats", names, 3), "rats");
}

/* One change goes before a part of a name, and that before two changes. */
static void the_nearest_wins(void **state)
{
    (void)state;
    static const char *const names[] = {"ccl_reduce", "ccl_allreduce", "gemm_single_pe",
                                        "gemm_multi_pe"};
    assert_string_equal(suggest("allreduce", names, 4), "ccl_allreduce");
    assert_string_equal(suggest("ccl_reduc", names, 4), "ccl_reduce");
    assert_string_equal(suggest("gem_single", names, 4), "gemm_single_pe");
    assert_string_equal(suggest("gem_mul", names, 4), "gemm_multi_pe");
}

static void hints_list_what_is_short_and_the_nearest(void **state)
{
    (void)state;
    static const char *const three[] = {"ring", "mesh", "tree"}, *const one[] = {"ring"};
    kb_suggestion near;
    kb_suggestion_search(&near, "rng", three, 3);
    assert_string_equal(kb_suggestion_hint(&near, "!"),
                        ": expected ring, mesh or tree; did you mean 'ring'?");
    assert_string_equal(kb_suggestion_near(&near, "!"), "; did you mean 'ring'?");
    kb_suggestion_search(&near, "xyz", three, 3);
    assert_string_equal(kb_suggestion_hint(&near, "!"), ": expected ring, mesh or tree");
    assert_string_equal(kb_suggestion_near(&near, "!"), "!");
    kb_suggestion_search(&near, "xyz", one, 1);
    assert_string_equal(kb_suggestion_hint(&near, "!"), ": expected ring");
    kb_suggestion_search(&near, "xyz", NULL, 0);
    assert_string_equal(kb_suggestion_hint(&near, "!"), "!");
}

/* Lists of too many names, and of too long ones, are left out; the nearest never is. */
static void long_lists_are_left_out(void **state)
{
    (void)state;
    const char *many[KB_SUGGEST_LIST + 1];
    for (size_t i = 0; i <= KB_SUGGEST_LIST; i++)
        many[i] = i == 0 ? "ring" : "x";
    kb_suggestion near;
    kb_suggestion_search(&near, "rng", many, KB_SUGGEST_LIST + 1);
    assert_string_equal(kb_suggestion_hint(&near, "!"), "; did you mean 'ring'?");
    kb_suggestion_search(&near, "zzz", many, KB_SUGGEST_LIST + 1);
    assert_string_equal(kb_suggestion_hint(&near, "!"), "!");
    kb_suggestion_search(&near, "rng", many, KB_SUGGEST_LIST);
    assert_non_null(strstr(kb_suggestion_full(&near, "!"), ": expected ring, x, "));
    assert_string_equal(kb_suggestion_hint(&near, "!"), "; did you mean 'ring'?"); /* not few */
    kb_suggestion_search(&near, "zzz", many, KB_SUGGEST_SHORT);
    assert_non_null(strstr(kb_suggestion_hint(&near, "!"), ": expected ring, x, "));
    kb_suggestion_search(&near, "zzz", many, KB_SUGGEST_SHORT + 1);
    assert_string_equal(kb_suggestion_hint(&near, "!"), "!");

    char name[KB_SUGGEST_MAX + 1];
    memset(name, 'a', sizeof name);
    name[KB_SUGGEST_MAX] = '\0';
    /* For every length of the list: it never overflows, and ends with the nearest. */
    for (size_t count = 1; count < KB_SUGGEST_LIST; count++) {
        for (size_t i = 0; i < count; i++)
            many[i] = name;
        kb_suggestion_search(&near, name + 1, many, count);
        const char *hint = kb_suggestion_full(&near, "!"), *end = strstr(hint, "; did you mean '");
        assert_non_null(end);
        assert_true(strlen(hint) < KB_SUGGEST_HINT);
        assert_string_equal(end + strlen(end) - 2, "'?");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distance_matches_the_naive_one),
        cmocka_unit_test(long_words_are_safe),
        cmocka_unit_test(suggests_what_is_near),
        cmocka_unit_test(the_first_of_equals_wins),
        cmocka_unit_test(the_nearest_wins),
        cmocka_unit_test(hints_list_what_is_short_and_the_nearest),
        cmocka_unit_test(long_lists_are_left_out),
    };
    return cmocka_run_group_tests_name("suggest", tests, NULL, NULL);
}
