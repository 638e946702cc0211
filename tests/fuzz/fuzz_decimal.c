/*
 * fuzz_decimal.c: a text as a decimal number, with every number of digits, and as a number of
 * bytes. What was read must be what strtod() reads, up to its precision; printed and read again it
 * must be the same.
 */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

static void check_decimal(const char *text, int digits)
{
    int64_t value = 0, again = 0;
    if (kb_decimal_parse(text, digits, &value) != KB_DECIMAL_OK)
        return;
    double expected = strtod(text, NULL) * pow(10, digits);
    KB_ASSERT(fabs((double)value - expected) <= 1e-14 * fabs(expected));
    kb_text printed = KB_TEXT_INIT;
    kb_decimal_print(value, digits, &printed);
    KB_ASSERT(kb_decimal_parse(kb_text_peek(&printed), digits, &again) == KB_DECIMAL_OK);
    KB_ASSERT(again == value);
    kb_text_fini(&printed);
}

static void check_bytes(const char *text)
{
    uint64_t bytes, plain;
    if (!kb_bytes_parse(text, &bytes))
        return;
    char *unit;
    double count = strtod(text, &unit);
    unit += strspn(unit, " ");
    KB_ASSERT(count >= 0 && (count == 0) == (bytes == 0));
    if (*unit == '\0')
        KB_ASSERT(strchr(text, ' ') || (cli_read_uint(text, &plain) && plain == bytes));
    else
        KB_ASSERT(count == 0 || bytes % 1000 == 0 || bytes % 1024 == 0 || *unit == 'B');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_parts parts = fuzz_lines(data, size);
    for (size_t i = 0; i < parts.line_count; i++) {
        const char *text = parts.lines[i];
        double number = 0;
        int64_t whole = 0;
        for (int digits = 0; digits <= KB_DECIMAL_MAX_DIGITS; digits++)
            check_decimal(text, digits);
        check_bytes(text);
        KB_ASSERT(!cli_read_double(text, &number) || isfinite(number));
        if (kb_decimal_parse(text, 0, &whole) == KB_DECIMAL_OK)
            KB_ASSERT(cli_read_double(text, &number) && fabs(number - (double)whole) <= 1024);
    }
    fuzz_parts_fini(&parts);
    return 0;
}
