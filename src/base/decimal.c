/* decimal.c: reading and printing decimal numbers, in whole numbers throughout. */
#include "base/decimal.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* A number taken apart: the digits of `whole` and `part` in a row, times 10^exponent. */
typedef struct pieces {
    bool negative;
    const char *whole, *part;
    size_t whole_length, part_length;
    long exponent;
} pieces;

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Beyond this no exponent makes a difference: files are shorter. */
enum { max_exponent = 100000000 };

static const char *read_exponent(const char *text, long *exponent)
{
    bool negative = *text == '-';
    text += negative || *text == '+';
    size_t length = count_digits(text);
    if (length == 0)
        return NULL;
    for (size_t i = 0; i < length; i++)
        if (*exponent < max_exponent)
            *exponent = *exponent * 10 + (text[i] - '0');
    if (negative)
        *exponent = -*exponent;
    return text + length;
}

/* False if it has not the form of a number: -, digits without needless zeros, ., digits, e+-,
 * digits. */
static bool take_apart(const char *text, pieces *p)
{
    *p = (pieces){.negative = *text == '-', .part = ""};
    text += p->negative;
    p->whole = text;
    p->whole_length = count_digits(text);
    if (p->whole_length == 0 || (text[0] == '0' && p->whole_length > 1))
        return false;
    text += p->whole_length;
    if (*text == '.') {
        p->part = ++text;
        p->part_length = count_digits(text);
        if (p->part_length == 0)
            return false;
        text += p->part_length;
    }
    if (*text == 'e' || *text == 'E')
        text = read_exponent(text + 1, &p->exponent);
    return text && *text == '\0';
}

static int digit(const pieces *p, size_t i)
{
    return (i < p->whole_length ? p->whole[i] : p->part[i - p->whole_length]) - '0';
}

/* value * 10 + next; false if that does not fit. Built up negative, where there is room for one
 * more. */
static bool append(int64_t *value, int next)
{
    return !__builtin_mul_overflow(*value, 10, value) &&
           !__builtin_sub_overflow(*value, next, value);
}

kb_decimal_result kb_decimal_parse(const char *text, int digits, int64_t *value)
{
    KB_ASSERT(digits >= 0 && digits <= KB_DECIMAL_MAX_DIGITS);
    pieces p;
    if (!take_apart(text, &p))
        return KB_DECIMAL_NO_NUMBER;
    size_t count = p.whole_length + p.part_length;
    /* How many zeros belong behind the last digit. */
    long shift = p.exponent - (long)p.part_length + digits;
    for (; count > 0 && digit(&p, count - 1) == 0; count--)
        shift++;
    if (count == 0) {
        *value = 0;
        return KB_DECIMAL_OK;
    }
    if (shift < 0)
        return KB_DECIMAL_TOO_FINE;
    int64_t result = 0;
    for (size_t i = 0; i < count; i++)
        if (!append(&result, digit(&p, i)))
            return KB_DECIMAL_TOO_LARGE;
    for (; shift > 0; shift--)
        if (!append(&result, 0))
            return KB_DECIMAL_TOO_LARGE;
    if (!p.negative && __builtin_sub_overflow(0, result, &result))
        return KB_DECIMAL_TOO_LARGE;
    *value = result;
    return KB_DECIMAL_OK;
}

#define KIB ((uint64_t)1 << 10)
#define KB ((uint64_t)1000)

static const struct {
    const char *name;
    uint64_t bytes;
} byte_units[] = {
    {"TiB", KIB *KIB *KIB *KIB},
    {"GiB", KIB *KIB *KIB},
    {"MiB", KIB *KIB},
    {"KiB", KIB},
    {"", 1},
    {"B", 1},
    {"T", KIB *KIB *KIB *KIB},
    {"G", KIB *KIB *KIB},
    {"M", KIB *KIB},
    {"K", KIB},
    {"TB", KB *KB *KB *KB},
    {"GB", KB *KB *KB},
    {"MB", KB *KB},
    {"KB", KB},
    {"kB", KB},
};

bool kb_bytes_parse(const char *text, uint64_t *value)
{
    size_t digits = count_digits(text);
    char number[20];
    int64_t count;
    if (digits == 0 || digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    const char *unit = text + digits + strspn(text + digits, " ");
    for (size_t i = 0; i < sizeof byte_units / sizeof byte_units[0]; i++)
        if (strcmp(unit, byte_units[i].name) == 0)
            return kb_decimal_parse(number, 0, &count) == KB_DECIMAL_OK &&
                   !__builtin_mul_overflow((uint64_t)count, byte_units[i].bytes, value);
    return false;
}

kb_bytes_text kb_bytes_print(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024; unit++)
        value /= 1024;
    kb_bytes_text out;
    snprintf(out.text, sizeof out.text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return out;
}

void kb_decimal_print(int64_t value, int digits, kb_text *text)
{
    KB_ASSERT(digits >= 0 && digits <= KB_DECIMAL_MAX_DIGITS);
    uint64_t unit = 1, magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
    for (int i = 0; i < digits; i++)
        unit *= 10;
    uint64_t part = magnitude % unit;
    for (; digits > 0 && part % 10 == 0; digits--)
        part /= 10;
    kb_text_printf(text, "%s%" PRIu64, value < 0 ? "-" : "", magnitude / unit);
    if (digits > 0)
        kb_text_printf(text, ".%0*" PRIu64, digits, part);
}

void kb_decimal_print_range(int64_t min, int64_t max, int digits, kb_text *text)
{
    if (min == 1 && digits > 0) { /* the least there is above nothing */
        kb_text_puts(text, "above 0");
    } else {
        kb_text_puts(text, "of at least ");
        kb_decimal_print(min, digits, text);
    }
    kb_text_puts(text, " and at most ");
    kb_decimal_print(max, digits, text);
}

void kb_bytes_print_limit(uint64_t bytes, kb_text *text)
{
    size_t unit = 0; /* the first ones are the largest, and the last of them is a byte */
    while (byte_units[unit].bytes > 1 && (bytes == 0 || bytes % byte_units[unit].bytes != 0))
        unit++;
    kb_text_printf(text, "%" PRIu64, bytes);
    if (byte_units[unit].bytes > 1)
        kb_text_printf(text, " (%" PRIu64 "%s)", bytes / byte_units[unit].bytes,
                       byte_units[unit].name);
}
