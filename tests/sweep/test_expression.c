/*
 * test_expression.c: expressions: hand-worked values, missing values, refusals with their places;
 * random expressions against a tree walk that has no notion of precedence.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "sweep/expression.h"

#include <math.h>

/* ---- Some values ------------------------------------------------------------------------- */

static const char *const names[] = {
    "x",      "sip.ucie.bw_gbs", "metrics.busbw_gbs", "nbytes", "algo", "odd name", "gone",
    "a.same", "b.same"};
enum { NAMES = sizeof names / sizeof names[0] };

static sweep_value value_of(const void *self, size_t index)
{
    (void)self;
    switch (index) {
    case 0:
        return sweep_number(3);
    case 1:
        return sweep_value_of_text("256");
    case 2:
        return sweep_number(127.5);
    case 3:
        return sweep_value_of_text("1MiB");
    case 4:
        return sweep_value_of_text("ring");
    case 5:
        return sweep_number(-2);
    case 6:
        return SWEEP_NONE;
    default:
        return sweep_number(1);
    }
}

static sweep_value value(const char *text)
{
    sweep_expression *e;
    expect_ok(sweep_expression_parse(text, text, &e));
    assert_string_equal(sweep_expression_text(e), text);
    expect_ok(sweep_expression_bind(e, names, NAMES));
    sweep_value v = sweep_expression_evaluate(e, value_of, NULL);
    assert_int_equal(sweep_expression_holds(e, value_of, NULL),
                     !v.none && (v.number < 0 || v.number > 0));
    sweep_expression_destroy(e);
    return v;
}

static void expect_result(const char *text, double expected)
{
    sweep_value v = value(text);
    if (v.none || v.number < expected || v.number > expected)
        fail_msg("%s: %s%g, expected %g", text, v.none ? "none, " : "", v.number, expected);
}

static void expect_none(const char *text)
{
    if (!value(text).none)
        fail_msg("%s: expected none", text);
}

static void operators_group_as_documented(void **state)
{
    (void)state;
    expect_result("1 + 2 * 3", 7);
    expect_result("(1 + 2) * 3", 9);
    expect_result("10 - 3 - 2", 5);
    expect_result("2 ^ 3 ^ 2", 512);
    expect_result("-2 ^ 2", -4);
    expect_result("2 ^ -1", 0.5);
    expect_result("- -3", 3);
    expect_result("7 % 4 * 2", 6);
    expect_result("12 / 3 / 2", 2);
    expect_result("1 < 2 and 2 < 3", 1);
    expect_result("1 or 0 and 0", 1);
    expect_result("(1 or 0) and 0", 0);
    expect_result("not 1 == 2", 1);
    expect_result("not 0 and 0", 0);
    expect_result("not not 5", 1);
    expect_result("1 + 1 == 2", 1);
    expect_result("2 <= 2", 1);
    expect_result("2 >= 3", 0);
    expect_result("2 != 2", 0);
}

static void functions_compute(void **state)
{
    (void)state;
    expect_result("min(3)", 3);
    expect_result("min(3, 1, 2)", 1);
    expect_result("max(3, 1, 7, 2)", 7);
    expect_result("abs(-4)", 4);
    expect_result("log2(1024)", 10);
    expect_result("ceil(1.25) + floor(1.75)", 3);
    expect_result("max(min(1, 2), abs(3 - 8))", 5);
    expect_result("has(x) and not has(gone)", 1);
    /* Only a call is a function. */
    expect_none("gone + log2(8)");
}

static void numbers_have_units_of_bytes(void **state)
{
    (void)state;
    expect_result("4KiB", 4096);
    expect_result("1MiB - 1024KiB", 0);
    expect_result("64KB", 64000);
    expect_result("2K", 2048);
    expect_result("1.5e3", 1500);
    expect_result("1e-3*1E+3", 1);
    expect_result(".5", 0.5);
    expect_result("nbytes == 1MiB", 1);
    expect_result("nbytes / 1KiB", 1024);
}

static void names_are_found_by_their_last_parts(void **state)
{
    (void)state;
    expect_result("x", 3);
    expect_result("busbw_gbs", 127.5);
    expect_result("bw_gbs", 256);
    expect_result("ucie.bw_gbs * 2", 512);
    expect_result("`odd name` + `x`", 1);
    expect_result("a.same", 1);
}

static void texts_are_compared_as_written(void **state)
{
    (void)state;
    expect_result("algo == \"ring\"", 1);
    expect_result("algo != 'tree'", 1);
    expect_result("'tree' == algo", 0);
    expect_result("nbytes == '1MiB'", 1);
    expect_result("nbytes == '1024KiB'", 0);
    expect_result("x == '3'", 0); /* a figure, which is not written anywhere */
    expect_result("'a' == 'a'", 1);
    expect_result("algo == 3", 0);
    expect_none("algo");
    expect_none("algo + 1");
    expect_none("algo < 3");
}

static void missing_values_stay_missing(void **state)
{
    (void)state;
    expect_none("gone");
    expect_none("gone + 1");
    expect_none("gone == gone");
    expect_none("-gone");
    expect_none("not gone");
    expect_none("min(1, gone)");
    expect_result("gone and 0", 0);
    expect_result("0 and gone", 0);
    expect_none("gone and 1");
    expect_result("gone or 2", 1);
    expect_result("1 or gone", 1);
    expect_none("gone or 0");
    expect_none("1 / 0");
    expect_none("5 % 0");
    expect_none("log2(0)");
    expect_none("log2(-1)");
    expect_none("(-8) ^ 0.5");
    expect_none("1e308 * 10");
}

static void expect_refusal(const char *text, const char *message)
{
    sweep_expression *e;
    kb_error *err = sweep_expression_parse("--where", text, &e);
    if (!err) {
        err = sweep_expression_bind(e, names, NAMES);
        sweep_expression_destroy(e);
    }
    if (!err)
        fail_msg("%s: expected a refusal", text);
    expect_error(err, KB_ERR_INPUT, message);
}

static void mistakes_are_told_with_their_place(void **state)
{
    (void)state;
#define VALUE "expected a value: a number, a name, a text in quotes or '(', found "
    expect_refusal("", "--where: the expression is empty, at column 1");
    expect_refusal("x < < 5", "--where: " VALUE "'<', at column 5");
    expect_refusal("x <", "--where: " VALUE "the end, at column 4");
    expect_refusal("x and and", "--where: " VALUE "'and', at column 7");
    expect_refusal("(x", "--where: expected an operator or ')', found the end, at column 3");
    expect_refusal("x x", "--where: expected an operator or the end, found 'x', at column 3");
    expect_refusal("x = 3", "--where: '=' compares as '==', at column 3");
    expect_refusal("x && 3", "--where: conditions are joined by the words 'and', 'or' and 'not', "
                             "at column 3");
    expect_refusal("1 < x < 3", "--where: comparisons do not chain: write 'a < b and b < c', at "
                                "column 7");
    expect_refusal("1.5MiB", "--where: expected a number, or a whole number with a unit of bytes "
                             "such as 4KiB, found '1.5MiB', at column 1");
    expect_refusal("0x10 + 1", "--where: expected a number, or a whole number with a unit of bytes "
                               "such as 4KiB, found '0x10', at column 1");
    expect_refusal("algo == 'ring", "--where: the closing quote is missing, at column 9");
    expect_refusal("algo == ''", "--where: nothing is between the quotes, at column 9");
    expect_refusal("'ring'", "--where: a text can only be compared, with == or !=, at column 1");
    expect_refusal("1 + 'a'", "--where: a text can only be compared, with == or !=, at column 5");
    expect_refusal("algo < 'b'", "--where: a text can only be compared, with == or !=, at "
                                 "column 8");
    expect_refusal("x and 'b'", "--where: a text can only be compared, with == or !=, at column 7");
    expect_refusal("mix(1, 2)", "--where: unknown function 'mix': expected min, max, abs, log2, "
                                "ceil, floor or has; did you mean 'min'?, at column 1");
    expect_refusal("abs(1, 2)", "--where: expected ')' after the argument, found ',', at column 6");
    expect_refusal("max(1 2)", "--where: expected ',' or ')', found '2', at column 7");
    expect_refusal("max()", "--where: " VALUE "')', at column 5");
    expect_refusal("has(1)", "--where: expected a name, found '1', at column 5");
    expect_refusal("x ? 1", "--where: expected a number, a name, a text in quotes or an operator, "
                            "found '?', at column 3");
    expect_refusal("buswb_gbs > 1", "--where: unknown name 'buswb_gbs': did you mean "
                                    "'metrics.busbw_gbs'?");
    expect_refusal("same > 1", "--where: name 'same' stands for 2 names: a.same, b.same");
#undef VALUE
}

static void the_place_is_marked(void **state)
{
    (void)state;
    sweep_expression *e;
    kb_error *err = sweep_expression_parse("--where", "x + * 2", &e);
    assert_string_equal(kb_error_detail(err), "  x + * 2\n      ^");
    kb_error_free(err);
    expect_ok(sweep_expression_parse("--where", "1 < unheard_of", &e));
    err = sweep_expression_bind(e, names, NAMES);
    assert_string_equal(kb_error_detail(err), "  1 < unheard_of\n      ^");
    kb_error_free(err);
    sweep_expression_destroy(e);
}

static void nesting_is_limited(void **state)
{
    (void)state;
    static const char *const openings[] = {"(",    "-",    "not ",
                                           "abs(", "1 ^ ", "1 or 1 and 1 < 1 + 1 * 1 ^ ("};
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        kb_text text = KB_TEXT_INIT;
        for (int n = 0; n < 5000; n++)
            kb_text_puts(&text, openings[i]);
        sweep_expression *e;
        kb_error *err = sweep_expression_parse("test", kb_text_peek(&text), &e);
        assert_non_null(strstr(kb_error_message(err), "nested too deeply"));
        kb_error_free(err);
        kb_text_fini(&text);
    }
    /* Length is not. */
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "0");
    for (int n = 0; n < 5000; n++)
        kb_text_puts(&text, " + 1");
    expect_result(kb_text_peek(&text), 5000);
    kb_text_fini(&text);
    /* The deepest that is accepted, with an operator of each level waiting. */
    kb_text_puts(&text, "1");
    for (int n = 0; n < 33; n++)
        kb_text_puts(&text, " or max(0, 0 and 1 < 1 + 1 * 1 ^ (1");
    for (int n = 0; n < 33; n++)
        kb_text_puts(&text, "))");
    sweep_expression *e;
    kb_error *err = sweep_expression_parse("test", kb_text_peek(&text), &e);
    if (!err) {
        sweep_expression_evaluate(e, value_of, NULL);
        sweep_expression_destroy(e);
    }
    kb_error_free(err);
    kb_text_fini(&text);
}

/* ---- Random expressions ------------------------------------------------------------------ */

/*
 * A tree is drawn together with its text. Each operand is put in parentheses, unless the operator
 * binds more weakly than the operand by a table that is written out here, or by the toss of a coin.
 */
typedef struct drawn {
    kb_text text;
    sweep_value value;
    int binds; /* 1: or, 2: and, 3: not, 4: comparison, 5: sum, 6: product, 7: minus, 8: ^, 9: atom
                */
} drawn;

typedef struct artist {
    kb_rng rng;
    int depth;
} artist;

static drawn draw(artist *a);

static drawn draw_atom(artist *a)
{
    drawn d = {.binds = 9};
    size_t which = (size_t)kb_rng_below(&a->rng, 4);
    if (which == 0) {
        size_t i = (size_t)kb_rng_below(&a->rng, NAMES);
        kb_text_printf(&d.text, "`%s`", names[i]);
        d.value = value_of(NULL, i);
    } else if (which == 1) {
        uint64_t n = kb_rng_below(&a->rng, 5);
        kb_text_printf(&d.text, "%uKiB", (unsigned)n);
        d.value = sweep_number((double)n * 1024);
    } else {
        uint64_t n = kb_rng_below(&a->rng, 40);
        kb_text_printf(&d.text, "%u.%u", (unsigned)n / 4, (unsigned)(n % 4) * 25);
        d.value = sweep_number((double)(n / 4) + (double)(n % 4 * 25) / (n % 4 == 0 ? 1 : 100));
    }
    return d;
}

/* The operand, in parentheses if it binds less than `needs`. */
static drawn draw_operand(artist *a, kb_text *into, int needs)
{
    drawn d = draw(a);
    bool wrap = d.binds < needs || kb_rng_below(&a->rng, 6) == 0;
    kb_text_printf(into, wrap ? "(%s)" : "%s", kb_text_peek(&d.text));
    kb_text_fini(&d.text);
    return d;
}

static const struct {
    const char *word;
    int binds, left, right; /* what the operands need */
} operators[] = {
    {"or", 1, 1, 2}, {"and", 2, 2, 3}, {"==", 4, 5, 5}, {"!=", 4, 5, 5}, {"<", 4, 5, 5},
    {"<=", 4, 5, 5}, {">", 4, 5, 5},   {">=", 4, 5, 5}, {"+", 5, 5, 6},  {"-", 5, 5, 6},
    {"*", 6, 6, 7},  {"/", 6, 6, 7},   {"%", 6, 6, 7},  {"^", 8, 9, 7},
};

static bool truthy(sweep_value v)
{
    return v.is_number && (v.number < 0 || v.number > 0);
}

static sweep_value apply_logic(bool is_and, sweep_value x, sweep_value y)
{
    bool usable = !x.none && x.is_number && !y.none && y.is_number;
    if (usable)
        return sweep_number(is_and ? truthy(x) && truthy(y) : truthy(x) || truthy(y));
    sweep_value one = !x.none && x.is_number ? x : y;
    if (one.none || !one.is_number || truthy(one) == is_and)
        return SWEEP_NONE;
    return sweep_number(is_and ? 0 : 1);
}

static sweep_value apply(const char *word, sweep_value x, sweep_value y)
{
    if (strcmp(word, "and") == 0 || strcmp(word, "or") == 0)
        return apply_logic(word[0] == 'a', x, y);
    if (x.none || y.none)
        return SWEEP_NONE;
    double a = x.number, b = y.number;
    bool equal = x.is_number && y.is_number     ? a <= b && b <= a
                 : !x.is_number && !y.is_number ? strcmp(x.text, y.text) == 0
                                                : false;
    if (word[1] == '=' && (word[0] == '=' || word[0] == '!'))
        return sweep_number((word[0] == '=') == equal);
    if (!x.is_number || !y.is_number)
        return SWEEP_NONE;
    switch (word[0]) {
    case '<':
        return sweep_number(word[1] ? a <= b : a < b);
    case '>':
        return sweep_number(word[1] ? a >= b : a > b);
    case '+':
        return sweep_number(a + b);
    case '-':
        return sweep_number(a - b);
    case '*':
        return sweep_number(a * b);
    case '/':
        return sweep_number(a / b);
    case '%':
        return sweep_number(fmod(a, b));
    default:
        return sweep_number(pow(a, b));
    }
}

static drawn draw_binary(artist *a)
{
    size_t i = (size_t)kb_rng_below(&a->rng, sizeof operators / sizeof operators[0]);
    drawn d = {.binds = operators[i].binds};
    drawn x = draw_operand(a, &d.text, operators[i].left);
    kb_text_printf(&d.text, " %s ", operators[i].word);
    drawn y = draw_operand(a, &d.text, operators[i].right);
    d.value = apply(operators[i].word, x.value, y.value);
    return d;
}

static drawn draw_unary(artist *a)
{
    drawn d = {.binds = 9};
    static const char *const words[] = {"-", "not ", "abs(", "log2(", "ceil(", "floor("};
    size_t i = (size_t)kb_rng_below(&a->rng, 6);
    kb_text_puts(&d.text, words[i]);
    drawn x = draw_operand(a, &d.text, i == 0 ? 7 : i == 1 ? 3 : 1);
    kb_text_puts(&d.text, i > 1 ? ")" : "");
    d.binds = i == 0 ? 7 : i == 1 ? 3 : 9;
    double n = x.value.number;
    const double results[] = {-n, !truthy(x.value), fabs(n), log2(n), ceil(n), floor(n)};
    d.value = x.value.none || !x.value.is_number ? SWEEP_NONE : sweep_number(results[i]);
    return d;
}

static drawn draw_extreme(artist *a)
{
    drawn d = {.binds = 9};
    bool is_max = kb_rng_below(&a->rng, 2) == 1;
    int count = 1 + (int)kb_rng_below(&a->rng, 3);
    kb_text_puts(&d.text, is_max ? "max(" : "min(");
    for (int i = 0; i < count; i++) {
        kb_text_puts(&d.text, i > 0 ? ", " : "");
        drawn x = draw_operand(a, &d.text, 1);
        bool bad = x.value.none || !x.value.is_number;
        if (i == 0)
            d.value = x.value;
        else if (d.value.none || !d.value.is_number || bad)
            d.value = SWEEP_NONE;
        else
            d.value.number = is_max ? fmax(d.value.number, x.value.number)
                                    : fmin(d.value.number, x.value.number);
    }
    kb_text_puts(&d.text, ")");
    return d;
}

static drawn draw(artist *a)
{
    if (a->depth >= 6 || kb_rng_below(&a->rng, 5) == 0)
        return draw_atom(a);
    a->depth++;
    uint64_t which = kb_rng_below(&a->rng, 8);
    drawn d = which < 5 ? draw_binary(a) : which < 7 ? draw_unary(a) : draw_extreme(a);
    a->depth--;
    return d;
}

static void random_expressions_agree_with_their_trees(void **state)
{
    (void)state;
    artist a = {0};
    kb_rng_init(&a.rng, test_seed(7));
    size_t numbers = 0, missing = 0;
    for (int round = 0; round < 20000; round++) {
        drawn d = draw(&a);
        sweep_value got = value(kb_text_peek(&d.text));
        bool none = d.value.none || !d.value.is_number;
        if (got.none != none ||
            (!none && (got.number < d.value.number || got.number > d.value.number)))
            fail_msg("%s: %s%.17g, expected %s%.17g", kb_text_peek(&d.text),
                     got.none ? "none " : "", got.number, none ? "none " : "", d.value.number);
        *(none ? &missing : &numbers) += 1;
        kb_text_fini(&d.text);
    }
    assert_true(numbers > 2000 && missing > 2000);
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static void numbers_are_printed_shortest(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } cases[] = {{0, "0"},
                 {0.1, "0.1"},
                 {2910.258753, "2910.258753"},
                 {1e21, "1e+21"},
                 {1.0 / 3, "0.3333333333333333"},
                 {-1.5, "-1.5"},
                 {9007199254740993.0, "9007199254740992"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kb_text text = KB_TEXT_INIT;
        sweep_append_number(&text, cases[i].number);
        assert_string_equal(kb_text_peek(&text), cases[i].text);
        kb_text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_group_as_documented),
        cmocka_unit_test(functions_compute),
        cmocka_unit_test(numbers_have_units_of_bytes),
        cmocka_unit_test(names_are_found_by_their_last_parts),
        cmocka_unit_test(texts_are_compared_as_written),
        cmocka_unit_test(missing_values_stay_missing),
        cmocka_unit_test(mistakes_are_told_with_their_place),
        cmocka_unit_test(the_place_is_marked),
        cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(random_expressions_agree_with_their_trees),
        cmocka_unit_test(numbers_are_printed_shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
