/* test_config.c: strict reading of YAML; every message word by word; behaviour without memory. */
#include <locale.h>
#include <math.h>
#include <sys/stat.h>

#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"

static kb_config *load(const char *text)
{
    kb_config *config;
    expect_ok(kb_config_load_text("f.yaml", text, strlen(text), &config));
    return config;
}

/* Finishes, compares and destroys. */
static void expect_finish(kb_config *config, const char *message)
{
    kb_error *err = kb_config_finish(config);
    if (message)
        expect_error(err, KB_ERR_INPUT, message);
    else
        expect_ok(err);
    kb_config_destroy(config);
}

static void expect_load_bytes(const char *bytes, size_t length, const char *message)
{
    kb_config *config = (kb_config *)&config;
    kb_error *err = kb_config_load_text("f.yaml", bytes, length, &config);
    assert_null(config);
    expect_error(err, KB_ERR_INPUT, message);
}

static void expect_load(const char *text, const char *message)
{
    expect_load_bytes(text, strlen(text), message);
}

static char *repeated(const char *before, const char *unit, size_t count, const char *after)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, before);
    for (size_t i = 0; i < count; i++)
        kb_text_puts(&text, unit);
    kb_text_puts(&text, after);
    char *taken = kb_text_take(&text);
    assert_non_null(taken);
    return taken;
}

static void reads_values_of_all_kinds(void **state)
{
    (void)state;
    kb_config *config = load("# a comment\n"
                             "int: -42\n"
                             "zero: 0\n"
                             "double: 2.5e-1\n"
                             "whole: 3\n"
                             "yes: true\n"
                             "no: false\n"
                             "plain: ring_1d\n"
                             "quoted: \"12\"\n"
                             "block: |\n  two\n  lines\n"
                             "map: { inner: { deep: 7 } }\n"
                             "list:\n  - 10\n  - 20\n");
    kb_config_node *root = kb_config_root(config);
    assert_int_equal(kb_config_int(kb_config_need(root, "int"), -100, 100, 0), -42);
    assert_int_equal(kb_config_int(kb_config_need(root, "zero"), 0, 0, 1), 0);
    assert_true(kb_config_double(kb_config_need(root, "double"), kb_between(0, 1), 0) == 0.25);
    assert_true(kb_config_double(kb_config_need(root, "whole"), kb_above(0), 0) == 3.0);
    assert_string_equal(kb_config_source_text(kb_config_need(root, "double")), "2.5e-1");
    assert_true(kb_config_bool(kb_config_need(root, "yes"), false));
    assert_false(kb_config_bool(kb_config_need(root, "no"), true));
    assert_string_equal(kb_config_string(kb_config_need(root, "plain"), ""), "ring_1d");
    assert_string_equal(kb_config_string(kb_config_need(root, "quoted"), ""), "12");
    assert_string_equal(kb_config_string(kb_config_need(root, "block"), ""), "two\nlines\n");
    static const char *const names[] = {"mesh_2d", "ring_1d"};
    assert_int_equal(kb_config_enum(kb_config_need(root, "plain"), names, 2, 0), 1);
    kb_config_node *inner =
        kb_config_mapping(kb_config_need(kb_config_mapping(kb_config_need(root, "map")), "inner"));
    assert_int_equal(kb_config_int(kb_config_need(inner, "deep"), 0, 9, 0), 7);
    kb_srcloc loc = kb_config_loc(kb_config_need(inner, "deep"));
    assert_string_equal(loc.file, "f.yaml");
    assert_int_equal(loc.line, 13);
    assert_int_equal(loc.column, 23);

    kb_config_node *list = kb_config_sequence(kb_config_need(root, "list"));
    assert_int_equal(kb_config_count(list), 2);
    int64_t expected = 10;
    for (kb_config_node *item = kb_config_first(list); item; item = kb_config_next(item)) {
        assert_null(kb_config_key(item));
        assert_int_equal(kb_config_int(item, 0, 100, 0), expected);
        expected += 10;
    }
    assert_int_equal(expected, 30);
    expect_finish(config, NULL);
}

static void absent_optional_values_are_silent(void **state)
{
    (void)state;
    kb_config *config = load("{}");
    kb_config_node *root = kb_config_root(config);
    kb_config_node *none = kb_config_find(root, "none");
    assert_null(none);
    assert_null(kb_config_mapping(none));
    assert_null(kb_config_sequence(none));
    assert_null(kb_config_need(none, "x"));
    assert_null(kb_config_find(none, "x"));
    assert_null(kb_config_first(none));
    assert_null(kb_config_next(none));
    assert_null(kb_config_key(none));
    assert_null(kb_config_source_text(none));
    assert_int_equal(kb_config_count(none), 0);
    assert_int_equal(kb_config_int(none, 1, 2, 99), 99);
    assert_true(kb_config_double(none, kb_between(1, 2), 99) == 99);
    assert_true(kb_config_bool(none, true));
    assert_string_equal(kb_config_string(none, "d"), "d");
    assert_int_equal(kb_config_enum(none, NULL, 0, 5), 5);
    kb_config_problem(none, "nothing to say");
    expect_finish(config, NULL);
}

static void the_keys_may_be_the_users_choice(void **state)
{
    (void)state;
    kb_config *config = load("b: 1\na: 2\n");
    kb_text seen = KB_TEXT_INIT;
    kb_config_node *root = kb_config_root(config);
    assert_int_equal(kb_config_count(root), 2);
    for (kb_config_node *value = kb_config_first(root); value; value = kb_config_next(value))
        kb_text_printf(&seen, "%s=%d ", kb_config_key(value), (int)kb_config_int(value, 0, 9, 0));
    assert_string_equal(kb_text_peek(&seen), "b=1 a=2 ");
    kb_text_fini(&seen);
    expect_finish(config, NULL);
}

static void integers_are_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"1.0", "0x10", "1e3",  "007",  "+5",  "1_000", "-x",
                                      "--1", "1 2",  "four", "true", "-01", "~"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64], message[160];
        snprintf(text, sizeof text, "n: %s\n", bad[i]);
        snprintf(message, sizeof message, "f.yaml:1:4: n: expected an integer, found '%s'", bad[i]);
        kb_config *config = load(text);
        kb_config_node *n = kb_config_need(kb_config_root(config), "n");
        assert_int_equal(kb_config_int(n, INT64_MIN, INT64_MAX, -7), -7);
        expect_finish(config, message);
    }
    kb_config *config = load("a: -9223372036854775808\nb: 9223372036854775807\nc: -0\n");
    kb_config_node *root = kb_config_root(config);
    assert_true(kb_config_int(kb_config_need(root, "a"), INT64_MIN, 0, 0) == INT64_MIN);
    assert_true(kb_config_int(kb_config_need(root, "b"), 0, INT64_MAX, 0) == INT64_MAX);
    assert_int_equal(kb_config_int(kb_config_need(root, "c"), 0, 1, 9), 0);
    expect_finish(config, NULL);

    /* What is an integer but out of range is told the range. */
    config = load("n: 9223372036854775808\n");
    (void)kb_config_int(kb_config_need(kb_config_root(config), "n"), INT64_MIN, INT64_MAX, 0);
    expect_finish(config, "f.yaml:1:4: n: expected an integer from -9223372036854775808 to "
                          "9223372036854775807, found '9223372036854775808'");

    config = load("a: 65\nb: 0\nc: \"8\"\n");
    root = kb_config_root(config);
    assert_int_equal(kb_config_int(kb_config_need(root, "a"), 1, 64, 3), 3);
    assert_int_equal(kb_config_int(kb_config_need(root, "b"), 1, INT64_MAX, 4), 4);
    assert_int_equal(kb_config_int(kb_config_need(root, "c"), 1, 64, 5), 5);
    kb_error *err = kb_config_finish(config);
    assert_string_equal(
        kb_error_detail(err),
        "f.yaml:1:4: a: expected an integer from 1 to 64, found '65'\n"
        "f.yaml:2:4: b: expected an integer from 1 to 9223372036854775807, found '0'\n"
        "f.yaml:3:4: c: expected an integer from 1 to 64, found the string '8'");
    expect_error(err, KB_ERR_INPUT,
                 "f.yaml:1:4: a: expected an integer from 1 to 64, found '65' "
                 "(and 2 more problems)");
    kb_config_destroy(config);
}

static void expect_double(const char *value, kb_range range, double expected, const char *wanted)
{
    char text[64], message[200];
    snprintf(text, sizeof text, "x: %s\n", value);
    kb_config *config = load(text);
    double got = kb_config_double(kb_config_need(kb_config_root(config), "x"), range, -77);
    if (!(wanted ? got == -77 : got == expected))
        fail_msg("%s: got %g", value, got);
    snprintf(message, sizeof message, "f.yaml:1:4: x: expected %s, found '%s'", wanted, value);
    expect_finish(config, wanted ? message : NULL);
}

static void doubles_are_strict(void **state)
{
    (void)state;
    const double inf = (double)INFINITY;
    kb_range any = kb_between(-inf, inf);
    expect_double("0.1", any, 0.1, NULL);
    expect_double("-12.5E+2", any, -1250, NULL);
    expect_double("1e-3", any, 0.001, NULL);
    expect_double("5e-324", any, 5e-324, NULL);
    expect_double("1.7976931348623157e308", any, 1.7976931348623157e308, NULL);
    expect_double("0.30000000000000001665", any, 0.3, NULL);
    static const char *const bad[] = {".5",    "5.", "1e",   "1e+",   "nan",   ".inf",   "1,5",
                                      "0x1p3", "+1", "01.5", "1e999", "1.2.3", "-1e999", "-x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_double(bad[i], any, 0, "a number");
    expect_double("0", kb_above(0), 0, "a number above 0");
    expect_double("1e-300", kb_above(0), 1e-300, NULL);
    expect_double("-1", kb_at_least(0), 0, "a number of at least 0");
    expect_double("0", kb_at_least(0), 0, NULL);
    expect_double("1", kb_above_up_to(0, 1), 1, NULL);
    expect_double("1.0001", kb_above_up_to(0, 1), 0, "a number above 0 and at most 1");
    expect_double("0.4", kb_between(0.5, 1), 0, "a number of at least 0.5 and at most 1");
    expect_double("5", kb_between(-inf, 4), 0, "a number of at most 4");
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    const char *old = setlocale(LC_NUMERIC, NULL);
    char saved[64];
    snprintf(saved, sizeof saved, "%s", old);
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "de_DE"))
        skip();
    expect_double("0.25", kb_above(0), 0.25, NULL);
    setlocale(LC_NUMERIC, saved);
}

static void strings_of_all_styles_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *value;
    } cases[] = {
        {"'it''s'", "it's"},
        {"'a''''b'", "a''b"},
        {"\"a''b\"", "a''b"},
        {"\"x\n  y\"", "x y"},
        {"\"x\n\n  y\"", "x\ny"},
        {"\"x\\\\\\\n  y\"", "x\\y"}, /* an escaped line break behind an escaped backslash */
        {"x\n  y", "x y"},
        {"|\n  x\n   y\n\n", "x\n y\n"},
        {"|-\n  x\n", "x"},
        {"|+\n  x\n", "x\n\n"},
        {">\n  x\n  y\n", "x y\n"},
        {">-\n  x\n\n   i\n  y", "x\n\n i\ny"}, /* a blank line before an indented one stays */
        {"\"\\x41\\u00e4\\U0001F600\\t\"", "A\xc3\xa4\xf0\x9f\x98\x80\t"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[100];
        snprintf(text, sizeof text, "a: %s\n", cases[i].yaml);
        kb_config *config = load(text);
        kb_config_node *a = kb_config_need(kb_config_root(config), "a");
        assert_string_equal(kb_config_string(a, "none"), cases[i].value);
        expect_finish(config, NULL);
    }
    kb_config *config = load("d: |\n");
    assert_string_equal(kb_config_source_text(kb_config_need(kb_config_root(config), "d")), "");
    expect_finish(config, NULL);
}

static void directives_of_yaml_are_read(void **state)
{
    (void)state;
    static const char *const texts[] = {"%YAML 1.2\n---\na: 1\n", "%YAML 1.1\n---\na: 1\n...\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        kb_config *config = load(texts[i]);
        kb_config_node *a = kb_config_need(kb_config_root(config), "a");
        assert_int_equal(kb_config_int(a, 0, 9, 0), 1);
        expect_finish(config, NULL);
    }
}

static void wrong_kinds_are_reported_once(void **state)
{
    (void)state;
    kb_config *config = load("a: [1]\nb: {x: 1}\nc: text\nd:\ne: yes\nf: ''\ng: Ring\n");
    kb_config_node *root = kb_config_root(config);
    kb_config_node *a = kb_config_need(root, "a");
    assert_null(kb_config_mapping(a));
    assert_null(kb_config_mapping(a)); /* once is enough */
    assert_null(kb_config_find(a, "x"));
    kb_config_node *b = kb_config_need(root, "b");
    assert_int_equal(kb_config_int(b, 0, 1, 0), 0); /* and x is not an unknown key on top */
    kb_config_node *c = kb_config_need(root, "c");
    assert_null(kb_config_sequence(c));
    assert_null(kb_config_source_text(b));
    kb_config_node *d = kb_config_need(root, "d");
    assert_string_equal(kb_config_string(d, "fallback"), "fallback");
    assert_true(kb_config_bool(kb_config_need(root, "e"), true));
    assert_string_equal(kb_config_string(kb_config_need(root, "f"), "fallback"), "fallback");
    static const char *const names[] = {"ring", "mesh", "tree"};
    assert_int_equal(kb_config_enum(kb_config_need(root, "g"), names, 3, 2), 2);
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:1:4: a: expected a mapping, found a sequence\n"
                        "f.yaml:2:4: b: expected an integer from 0 to 1, found a mapping\n"
                        "f.yaml:3:4: c: expected a sequence, found 'text'\n"
                        "f.yaml:4:1: d: expected a string, found nothing\n"
                        "f.yaml:5:4: e: expected true or false, found 'yes'\n"
                        "f.yaml:6:4: f: expected a string, found the string ''\n"
                        "f.yaml:7:4: g: expected ring, mesh or tree, found 'Ring'; "
                        "did you mean 'ring'?");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void missing_and_unknown_keys_are_reported(void **state)
{
    (void)state;
    kb_config *config = load("cube:\n"
                             "  hbm_ctl: { efficiency: 0.8 }\n"
                             "  list:\n"
                             "    - { nam: a }\n"
                             "zzz: 1\n");
    kb_config_node *cube = kb_config_mapping(kb_config_need(kb_config_root(config), "cube"));
    assert_null(kb_config_find(cube, "hbm_ctrl"));
    assert_null(kb_config_need(cube, "w"));
    kb_config_node *list = kb_config_sequence(kb_config_need(cube, "list"));
    for (kb_config_node *item = kb_config_first(list); item; item = kb_config_next(item))
        kb_config_string(kb_config_need(item, "name"), "");
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:2:3: missing key 'cube.w'\n"
                        "f.yaml:2:3: unknown key 'cube.hbm_ctl': expected hbm_ctrl, w or list; "
                        "did you mean 'cube.hbm_ctrl'?\n"
                        "f.yaml:4:7: missing key 'cube.list.0.name'\n"
                        "f.yaml:4:9: unknown key 'cube.list.0.nam': expected name; "
                        "did you mean 'cube.list.0.name'?\n"
                        "f.yaml:5:1: unknown key 'zzz': expected cube");
    expect_error(err, KB_ERR_INPUT, "f.yaml:2:3: missing key 'cube.w' (and 4 more problems)");
    kb_config_destroy(config);
}

static void duplicate_keys_are_reported_and_the_first_counts(void **state)
{
    (void)state;
    kb_config *config = load("a: 1\nb: {c: 1, c: 2}\na: 3\na: 4\n");
    kb_config_node *root = kb_config_root(config);
    assert_int_equal(kb_config_count(root), 2);
    assert_int_equal(kb_config_int(kb_config_need(root, "a"), 0, 9, 0), 1);
    assert_int_equal(kb_config_int(kb_config_need(kb_config_need(root, "b"), "c"), 0, 9, 0), 1);
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:2:11: duplicate key 'b.c', first set in line 2\n"
                        "f.yaml:3:1: duplicate key 'a', first set in line 1\n"
                        "f.yaml:4:1: duplicate key 'a', first set in line 1");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void anchors_aliases_merges_and_tags_are_refused(void **state)
{
    (void)state;
    kb_config *config = load("a: &x 1\nb: *x\n<<: {c: 2}\nd: !!str 4\n");
    kb_config_node *root = kb_config_root(config);
    static const char *const keys[] = {"a", "b", "d"};
    for (size_t i = 0; i < 3; i++)
        kb_config_int(kb_config_need(root, keys[i]), 0, 9, 0);
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:1:4: anchors are not supported: leave out the &name\n"
                        "f.yaml:2:5: aliases are not supported: repeat the value here\n"
                        "f.yaml:3:1: merge keys are not supported: repeat the keys here\n"
                        "f.yaml:4:4: tags are not supported: leave out the !name");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void problems_of_the_caller_are_placed(void **state)
{
    (void)state;
    kb_config *config = load("a: {b: 12}\n");
    kb_config_node *root = kb_config_root(config);
    kb_config_problem(root, "too %s", "small");
    kb_config_problem(kb_config_need(kb_config_need(root, "a"), "b"), "not a multiple of %d", 8);
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:1:1: too small\nf.yaml:1:8: a.b: not a multiple of 8");
    expect_error(err, KB_ERR_INPUT, "f.yaml:1:1: too small (and 1 more problem)");
    kb_config_destroy(config);
}

static void overrides_replace_and_create(void **state)
{
    (void)state;
    kb_config *config = load("a: {b: 1, list: [{x: 1}, 2]}\nempty:\n");
    kb_config_override(config, "a.b=5");
    kb_config_override(config, "a.b=6");
    kb_config_override(config, "a.list.0.x=7");
    kb_config_override(config, "a.list.1=8");
    kb_config_override(config, "new.deep.key=x=y z");
    kb_config_override(config, "empty.k=9");
    kb_config_node *root = kb_config_root(config);
    kb_config_node *a = kb_config_need(root, "a");
    assert_int_equal(kb_config_int(kb_config_need(a, "b"), 0, 9, 0), 6);
    kb_config_node *item = kb_config_first(kb_config_sequence(kb_config_need(a, "list")));
    assert_int_equal(kb_config_int(kb_config_need(item, "x"), 0, 9, 0), 7);
    assert_int_equal(kb_config_int(kb_config_next(item), 0, 9, 0), 8);
    kb_config_node *deep = kb_config_find(kb_config_find(root, "new"), "deep");
    assert_string_equal(kb_config_string(kb_config_need(deep, "key"), ""), "x=y z");
    kb_config_node *k = kb_config_need(kb_config_need(root, "empty"), "k");
    assert_int_equal(kb_config_int(k, 0, 9, 0), 9);
    kb_srcloc loc = kb_config_loc(k);
    assert_string_equal(loc.file, "--set empty.k");
    assert_int_equal(loc.line, 0);
    expect_finish(config, NULL);
}

static void overrides_must_hit_a_known_key(void **state)
{
    (void)state;
    kb_config *config = load("cube: {w: 4, h: many, list: [1, 2]}\n");
    static const char *const settings[] = {
        "cube.w=four",     "cube.hbm_ctl.efficiency=0.9",
        "cub.w=3",         "cube.w.x=1",
        "cube.list.2=5",   "cube.list.x=5",
        "novalue",         "=3",
        "cube..w=1",       "cube.=1",
        "cube.h.y=1",      "cube.hbm_ctrl.eff=1",
        "cube.w2=a\x01 b", "q=\xff",
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        kb_config_override(config, settings[i]);
    kb_config_node *cube = kb_config_mapping(kb_config_need(kb_config_root(config), "cube"));
    assert_int_equal(kb_config_int(kb_config_need(cube, "w"), 1, 9, 4), 4);
    assert_int_equal(kb_config_int(kb_config_need(cube, "h"), 1, 9, 4), 4);
    kb_config_node *hbm = kb_config_mapping(kb_config_find(cube, "hbm_ctrl"));
    assert_non_null(hbm); /* made by the override */
    assert_true(kb_config_double(kb_config_find(hbm, "efficiency"), kb_above(0), 0.8) == 0.8);
    kb_config_need(hbm, "size");
    kb_config_sequence(kb_config_need(cube, "list"));
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:1:17: cube.h: expected an integer from 1 to 9, found 'many'\n"
                        "--set cube.w: expected an integer from 1 to 9, found 'four'\n"
                        "--set cube.hbm_ctl.efficiency: unknown key 'cube.hbm_ctl': expected "
                        "w, h, hbm_ctrl or list; did you mean 'cube.hbm_ctrl'?\n"
                        "--set cub.w: unknown key 'cub': expected cube; did you mean 'cube'?\n"
                        "--set cube.w.x: 'cube.w' is not a mapping\n"
                        "--set cube.list.2: 'cube.list' is a sequence of 2: expected an index "
                        "from 0, found '2'\n"
                        "--set cube.list.x: 'cube.list' is a sequence of 2: expected an index "
                        "from 0, found 'x'\n"
                        "--set novalue: expected key=value\n"
                        "--set : expected names of 1 to 200 bytes, joined by dots\n"
                        "--set cube..w: expected names of 1 to 200 bytes, joined by dots\n"
                        "--set cube.: expected names of 1 to 200 bytes, joined by dots\n"
                        "--set cube.h.y: 'cube.h' is not a mapping\n"
                        "--set cube.hbm_ctrl.eff: missing key 'cube.hbm_ctrl.size'\n"
                        "--set cube.hbm_ctrl.eff: unknown key 'cube.hbm_ctrl.eff': expected "
                        "efficiency or size; did you mean 'cube.hbm_ctrl.efficiency'?\n"
                        "--set cube.w2: found a control character (0x01)\n"
                        "--set q: found a byte that is not UTF-8 (0xff)");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void an_override_of_a_mapping_replaces_it(void **state)
{
    (void)state;
    kb_config *config = load("a: {b: 1}\n");
    kb_config_override(config, "a=3");
    kb_config_node *a = kb_config_need(kb_config_root(config), "a");
    assert_int_equal(kb_config_int(kb_config_need(a, "b"), 0, 9, 5), 5);
    expect_finish(config, "--set a: expected a mapping, found '3'");
}

static void an_override_below_an_empty_key_keeps_the_place_of_the_key(void **state)
{
    (void)state;
    kb_config *config = load("empt:\nother: 1\n");
    kb_config_override(config, "empt.k=1");
    kb_config_node *root = kb_config_root(config);
    kb_config_find(root, "empty");
    kb_config_find(root, "other");
    expect_finish(config,
                  "f.yaml:1:1: unknown key 'empt': expected empty or other; did you mean 'empty'?");
}

static void a_prefix_of_an_override_is_shown(void **state)
{
    (void)state;
    kb_config *config = load("a: 1\n");
    kb_config_override_given(config, "part.", "a=x");
    kb_config_int(kb_config_find(kb_config_root(config), "a"), 0, 9, 5);
    expect_finish(config, "--set part.a: expected an integer from 0 to 9, found 'x'");
}

static void keys_may_be_asked_for_by_their_beginning(void **state)
{
    (void)state;
    kb_config *config = load("x_b: 2\ny: 3\nx_a: 4\nz: 5\n");
    kb_config_node *root = kb_config_root(config), *node = NULL;
    node = kb_config_find_prefixed(root, "x_", node);
    assert_string_equal(kb_config_key(node), "x_b");
    node = kb_config_find_prefixed(root, "x_", node);
    assert_string_equal(kb_config_key(node), "x_a");
    assert_null(kb_config_find_prefixed(root, "x_", node));
    assert_null(kb_config_find_prefixed(NULL, "x_", NULL));
    kb_config_find(root, "y");
    expect_finish(config, "f.yaml:4:1: unknown key 'z': expected y");
}

static void deep_overrides_are_refused(void **state)
{
    (void)state;
    char *setting = repeated("", "a.", 100, "a=1");
    char message[400];
    snprintf(message, sizeof message, "--set %.201s: nested deeper than 50 levels", setting);
    kb_config *config = load("{}");
    kb_config_override(config, setting);
    free(setting);
    kb_config_find(kb_config_root(config), "a");
    kb_error *err = kb_config_finish(config);
    assert_int_equal(strncmp(kb_error_message(err), message, strlen(message)), 0);
    kb_error_free(err);
    kb_config_destroy(config);
}

static void syntax_errors_have_a_place(void **state)
{
    (void)state;
    expect_load("a: [1, 2\n",
                "f.yaml:2:1: did not find expected ',' or ']' while parsing a flow sequence that "
                "begins in line 1");
    expect_load("a:\n\tb: 1\n", "f.yaml:2:1: tab character may not be used as indentation");
    expect_load("a: \"x\n",
                "f.yaml:1:4: found unexpected end of stream while scanning a quoted scalar");
    expect_load("a: b: c\n", "f.yaml:1:5: mapping values are not allowed in this context");
    expect_load("a: \xc3\xa4\nb: @c\n",
                "f.yaml:2:4: a value must not begin with @: put it in quotes");
    expect_load("a: 1\n---\nb: 2\n", "f.yaml:2:1: expected one document, found a second one");
    expect_load("", "f.yaml: expected a mapping, found an empty document");
    expect_load("# nothing\n", "f.yaml: expected a mapping, found an empty document");
    expect_load("---\n", "f.yaml:1:1: expected a mapping, found a scalar");
    expect_load("text\n", "f.yaml:1:1: expected a mapping, found a scalar");
    expect_load("- 1\n", "f.yaml:1:1: expected a mapping, found a sequence");
    expect_load("? [a]\n: 1\n", "f.yaml:1:3: expected a name as the key, found a sequence");
    expect_load("? {a: 1}\n: 1\n", "f.yaml:1:3: expected a name as the key, found a mapping");
    expect_load("'': 1\n", "f.yaml:1:1: expected a name as the key, found nothing");
    expect_load("a: &x 1\n*x : 2\n", "f.yaml:2:2: expected a name as the key, found an alias");
    expect_load("\"a\\0b\": 1\n", "f.yaml:1:1: a control character (0x00) in a key");
}

static void bad_bytes_have_a_place(void **state)
{
    (void)state;
    expect_load_bytes("a: 1\nb\0: 2\n", 11,
                      "f.yaml:2:2: expected YAML text, found a control character (0x00)");
    expect_load("a: \xff\n",
                "f.yaml:1:4: expected YAML text, found a byte that is not UTF-8 (0xff)");
    expect_load("\xff\xfe"
                "a",
                "f.yaml:1:1: expected YAML text, found a byte that is not UTF-8 (0xff)");
    expect_load("a: \xc3\xa4 \x1b\n",
                "f.yaml:1:6: expected YAML text, found a control character (0x1b)");
    expect_load("a: \xe2\x80\xa8\n",
                "f.yaml:1:4: expected YAML text, found a control character (0x2028)");
    expect_load("a: 1\r\nb: 1\rc: \x7f",
                "f.yaml:3:4: expected YAML text, found a control character (0x7f)");

    kb_config *config = load("\xef\xbb\xbf"
                             "a: \"x\\0y\"\nb: \"t\\tt\"\n"); /* after a byte order mark */
    kb_config_node *root = kb_config_root(config);
    assert_string_equal(kb_config_string(kb_config_need(root, "a"), "none"), "none");
    assert_string_equal(kb_config_string(kb_config_need(root, "b"), "none"), "t\tt");
    expect_finish(config, "f.yaml:1:4: a control character (0x00) in a string");

    config = load("a: |3\n "); /* no newline ends the block */
    assert_string_equal(kb_config_source_text(kb_config_need(kb_config_root(config), "a")), "");
    expect_finish(config, NULL);
}

static void expect_load_repeated(const char *before, const char *unit, size_t count,
                                 const char *message)
{
    char *text = repeated(before, unit, count, "");
    expect_load(text, message);
    free(text);
}

static void monsters_are_refused(void **state)
{
    (void)state;
    expect_load_repeated("a: ", "[", 10000, "f.yaml:1:54: nested deeper than 50 levels");
    expect_load_repeated("a: ", "{b: ", 10000, "f.yaml:1:204: nested deeper than 50 levels");
    expect_load_repeated("a: ", "x", (1 << 20) - 2, "f.yaml: larger than 1 MiB");
    expect_load_repeated("? ", "k", 201, "f.yaml:1:3: key longer than 200 bytes");
    expect_load_repeated("", "%TAG !a! b\r\n", 101, "f.yaml:101:1: more than 100 directives");

    kb_text nested = KB_TEXT_INIT;
    for (int i = 0; i < 1000; i++)
        kb_text_printf(&nested, "%*sa:\n", i, "");
    expect_load(kb_text_peek(&nested), "f.yaml:52:52: nested deeper than 50 levels");
    kb_text_fini(&nested);
}

static void long_values_are_clipped_in_messages(void **state)
{
    (void)state;
    char *text = repeated("a: ", "\xc3\xa4", 500000, "\n");
    kb_config *config = load(text);
    kb_config_int(kb_config_need(kb_config_root(config), "a"), 0, 9, 0);
    free(text);
    text =
        repeated("f.yaml:1:4: a: expected an integer from 0 to 9, found '", "\xc3\xa4", 30, "...'");
    expect_finish(config, text);
    free(text);

    text = repeated("a: ", "1", 1000000, "\n");
    config = load(text);
    kb_config_node *a = kb_config_need(kb_config_root(config), "a");
    assert_true(kb_config_double(a, kb_above(0), 0.5) == 0.5); /* more than a double can be */
    assert_int_equal(strlen(kb_config_source_text(a)), 1000000);
    free(text);
    text = repeated("f.yaml:1:4: a: expected a number above 0, found '", "1", 60, "...'");
    expect_finish(config, text);
    free(text);
}

static void laughs_are_not_multiplied(void **state)
{
    (void)state;
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "a0: &a0 [lol]\n");
    for (int i = 1; i < 30; i++)
        kb_text_printf(&text, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1);
    kb_config *config = load(kb_text_peek(&text));
    kb_text_fini(&text);
    kb_error *err = kb_config_finish(config);
    const char *first = "f.yaml:1:1: unknown key 'a0' (and 146 more problems)"; /* 30 + 30 + 87 */
    expect_error(err, KB_ERR_INPUT, first);
    kb_config_destroy(config);
}

static void a_list_of_problems_has_an_end(void **state)
{
    (void)state;
    for (size_t count = 20; count <= 22; count++) {
        char *text = repeated("", "a: x\n", count + 1, ""); /* the first is no duplicate */
        kb_config *config = load(text);
        free(text);
        kb_config_need(kb_config_root(config), "a");
        kb_error *err = kb_config_finish(config);
        const char *detail = kb_error_detail(err);
        size_t lines = 1;
        for (const char *c = detail; *c; c++)
            lines += *c == '\n';
        const char *last = strrchr(detail, '\n') + 1;
        assert_int_equal(lines, count == 20 ? 20 : 21);
        assert_string_equal(last, count == 20
                                      ? "f.yaml:21:1: duplicate key 'a', first set in line 1"
                                  : count == 21 ? "... and 1 more problem"
                                                : "... and 2 more problems");
        kb_error_free(err);
        kb_config_destroy(config);
    }
}

static void messages_are_one_line(void **state)
{
    (void)state;
    kb_config *config = load("a: \"x\\ny\"\n\"k\\nk\": 1\n");
    kb_config_int(kb_config_need(kb_config_root(config), "a"), 0, 9, 0);
    kb_error *err = kb_config_finish(config);
    assert_string_equal(kb_error_detail(err),
                        "f.yaml:1:4: a: expected an integer from 0 to 9, found the string 'x\\ny'\n"
                        "f.yaml:2:1: unknown key 'k\\nk': expected a");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void expect_file(const char *path, const char *reason)
{
    char message[400];
    snprintf(message, sizeof message, "%s: %s", path, reason);
    kb_config *config;
    expect_error(kb_config_load_file(path, &config), KB_ERR_INPUT, message);
    assert_null(config);
}

static void files_are_read(void **state)
{
    (void)state;
    char path[] = "/tmp/kb_test_config_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: 7\n", 5), 5);
    close(fd);
    kb_config *config;
    expect_ok(kb_config_load_file(path, &config));
    assert_int_equal(kb_config_int(kb_config_need(kb_config_root(config), "a"), 0, 9, 0), 7);
    assert_string_equal(kb_config_loc(kb_config_root(config)).file, path);
    expect_finish(config, NULL);
    if (geteuid() != 0) { /* root may read everything */
        chmod(path, 0);
        expect_file(path, "cannot open: Permission denied");
    }
    unlink(path);
    expect_file(path, "cannot open: No such file or directory");
    expect_file("", "cannot open: No such file or directory");
    expect_file("/", "cannot read: Is a directory");
    expect_file("/dev/null", "expected a mapping, found an empty document");
    expect_file("/dev/zero", "larger than 1 MiB");
}

static void load_override_and_read(void)
{
    static const char text[] =
        "a: {b: 1, c: [1, x, {d: 2}]}\na: 2\nunknwn: 3\ne: oops\nf: \"\\0\"\n"
        "g: &h 1\n";
    kb_config *config;
    kb_error *err = kb_config_load_text("f.yaml", text, sizeof text - 1, &config);
    if (err) {
        assert_null(config);
        expect_error(err, KB_ERR_HOST, "out of memory");
        return;
    }
    kb_config_override(config, "a.b=9");
    kb_config_override(config, "a.n.m=9");
    kb_config_override(config, "a.n..m=9");
    kb_config_node *root = kb_config_root(config);
    kb_config_node *a = kb_config_need(root, "a");
    int64_t b = kb_config_int(kb_config_need(a, "b"), 0, 5, 3);
    assert_true(b == 3 || b == 1);
    for (kb_config_node *item = kb_config_first(kb_config_need(a, "c")); item;
         item = kb_config_next(item))
        kb_config_double(item, kb_at_least(0), 1);
    kb_config_find(root, "unknown");
    kb_config_need(root, "missing");
    static const char *const names[] = {"one", "two"};
    kb_config_enum(kb_config_need(root, "e"), names, 2, 0);
    kb_config_string(kb_config_need(root, "f"), "");
    err = kb_config_finish(config);
    if (kb_error_code(err) == KB_ERR_HOST)
        assert_string_equal(kb_error_message(err), "out of memory");
    else
        assert_string_equal(kb_error_message(err),
                            "f.yaml:1:1: missing key 'missing' (and 11 more problems)");
    kb_error_free(err);
    kb_config_destroy(config);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(load_override_and_read);
}

static void load_file_without_memory(void)
{
    kb_config *config;
    kb_error *err = kb_config_load_file("/dev/zero", &config);
    assert_null(config);
    assert_true(kb_error_code(err) == KB_ERR_HOST || kb_error_code(err) == KB_ERR_INPUT);
    kb_error_free(err);
}

static void reading_survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(load_file_without_memory);
}

static void override_after_reading(void)
{
    kb_config *config = load("{}");
    kb_config_root(config);
    kb_config_override(config, "a=1");
}

static void overrides_come_before_reading(void **state)
{
    (void)state;
    expect_abort(override_after_reading, "assertion failed: !config->reading");
    kb_config_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values_of_all_kinds),
        cmocka_unit_test(absent_optional_values_are_silent),
        cmocka_unit_test(the_keys_may_be_the_users_choice),
        cmocka_unit_test(integers_are_strict),
        cmocka_unit_test(doubles_are_strict),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(strings_of_all_styles_are_read),
        cmocka_unit_test(directives_of_yaml_are_read),
        cmocka_unit_test(wrong_kinds_are_reported_once),
        cmocka_unit_test(missing_and_unknown_keys_are_reported),
        cmocka_unit_test(duplicate_keys_are_reported_and_the_first_counts),
        cmocka_unit_test(anchors_aliases_merges_and_tags_are_refused),
        cmocka_unit_test(problems_of_the_caller_are_placed),
        cmocka_unit_test(overrides_replace_and_create),
        cmocka_unit_test(overrides_must_hit_a_known_key),
        cmocka_unit_test(an_override_of_a_mapping_replaces_it),
        cmocka_unit_test(an_override_below_an_empty_key_keeps_the_place_of_the_key),
        cmocka_unit_test(a_prefix_of_an_override_is_shown),
        cmocka_unit_test(keys_may_be_asked_for_by_their_beginning),
        cmocka_unit_test(deep_overrides_are_refused),
        cmocka_unit_test(syntax_errors_have_a_place),
        cmocka_unit_test(bad_bytes_have_a_place),
        cmocka_unit_test(monsters_are_refused),
        cmocka_unit_test(long_values_are_clipped_in_messages),
        cmocka_unit_test(laughs_are_not_multiplied),
        cmocka_unit_test(a_list_of_problems_has_an_end),
        cmocka_unit_test(messages_are_one_line),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(survives_lack_of_memory),
        cmocka_unit_test(reading_survives_lack_of_memory),
        cmocka_unit_test(overrides_come_before_reading),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
