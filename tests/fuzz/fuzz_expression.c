/*
 * fuzz_expression.c: each line is an expression, parsed and evaluated with a few values. What is
 * parsed must be evaluated to a finite number or none; put in parentheses it must be accepted again
 * and have the same value.
 */
#include "fuzz.h"

#include <math.h>

#include "sweep/expression.h"

static const char *const names[] = {"x", "sip.ucie.bw_gbs", "sim_ns", "algo", "gone"};
enum { NAMES = sizeof names / sizeof names[0] };

static sweep_value value_of(const void *self, size_t index)
{
    static const char *const written[NAMES] = {"3", "1MiB", "-0.25", "ring", NULL};
    (void)self;
    return written[index] ? sweep_value_of_text(written[index]) : SWEEP_NONE;
}

/* False if the expression is refused. */
static bool evaluate(const char *text, sweep_value *value)
{
    sweep_expression *e = NULL;
    kb_error *err = sweep_expression_parse("line", text, &e);
    if (!err)
        err = sweep_expression_bind(e, names, NAMES);
    if (!err)
        *value = sweep_expression_evaluate(e, value_of, NULL);
    sweep_expression_destroy(e);
    if (err)
        fuzz_check_refusal(err, (const char *const[]){"line: ", NULL});
    return !err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_parts parts = fuzz_lines(data, size);
    for (size_t i = 0; i < parts.line_count; i++) {
        sweep_value value, again;
        if (!evaluate(parts.lines[i], &value))
            continue;
        KB_ASSERT(value.none || (value.is_number && isfinite(value.number)));
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "(%s)", parts.lines[i]);
        if (evaluate(kb_text_peek(&text), &again)) /* unless that is too deep */
            KB_ASSERT(sweep_values_equal(value, again));
        kb_text_fini(&text);
    }
    fuzz_parts_fini(&parts);
    return 0;
}
