/*
 * ranges.c: lists and ranges of values: see ranges.h.
 *
 * Numbers are decimal and exact, so 0.1+0.1+0.1 is 0.3, and the last value of a range is the end if
 * the steps lead there. A size is a whole number of bytes; it is printed in the largest unit, of
 * the kind that the range is written in, that divides it.
 */
#include "ranges.h"

#include <inttypes.h>
#include <string.h>

__extension__ typedef __int128 wide;

/* mantissa / 10^digits */
typedef struct decimal {
    int64_t mantissa;
    int digits;
} decimal;

typedef enum units { NO_UNITS, BINARY_UNITS, DECIMAL_UNITS } units;

typedef struct range {
    const char *text; /* for messages */
    decimal first, last, step;
    char operation; /* '+' or '*' */
    units units;
} range;

/* ---- Decimal numbers --------------------------------------------------------------------- */

static bool read_decimal(const char *text, decimal *value)
{
    for (value->digits = 0; value->digits <= KB_DECIMAL_MAX_DIGITS; value->digits++) {
        kb_decimal_result result = kb_decimal_parse(text, value->digits, &value->mantissa);
        if (result != KB_DECIMAL_TOO_FINE)
            return result == KB_DECIMAL_OK;
    }
    return false;
}

static wide power_of_ten(int digits)
{
    wide power = 1;
    while (digits-- > 0)
        power *= 10;
    return power;
}

/* Below 0 if a < b. */
static int compare(decimal a, decimal b)
{
    int digits = a.digits > b.digits ? a.digits : b.digits;
    wide x = a.mantissa * power_of_ten(digits - a.digits);
    wide y = b.mantissa * power_of_ten(digits - b.digits);
    return (x > y) - (x < y);
}

/* False if it has too many digits. */
static bool reduce(wide mantissa, int digits, decimal *value)
{
    while (digits > 0 && mantissa % 10 == 0) {
        mantissa /= 10;
        digits--;
    }
    value->mantissa = (int64_t)mantissa;
    value->digits = digits;
    return digits <= KB_DECIMAL_MAX_DIGITS && value->mantissa == mantissa;
}

static bool add(decimal a, decimal b, decimal *sum)
{
    int digits = a.digits > b.digits ? a.digits : b.digits;
    wide total =
        a.mantissa * power_of_ten(digits - a.digits) + b.mantissa * power_of_ten(digits - b.digits);
    return reduce(total, digits, sum);
}

static bool multiply(decimal a, decimal b, decimal *product)
{
    return reduce((wide)a.mantissa * b.mantissa, a.digits + b.digits, product);
}

/* ---- Reading ----------------------------------------------------------------------------- */

/* Where ".." is behind a number, NULL if it is not: "2..8", "1KiB..1GiB". */
static const char *find_dots(const char *text)
{
    const char *at = text + (*text == '-');
    if (*at < '0' || *at > '9')
        return NULL;
    return strstr(at, "..");
}

static units units_of(const char *text)
{
    size_t length = strlen(text);
    if (strspn(text, "-+.0123456789eE") == length)
        return NO_UNITS;
    bool is_decimal = length >= 2 && text[length - 1] == 'B' && strchr("kKMGT", text[length - 2]);
    return is_decimal ? DECIMAL_UNITS : BINARY_UNITS;
}

/* A number or a size. */
static kb_error *read_number(range *r, const char *start, size_t length, decimal *value)
{
    char text[64];
    uint64_t bytes;
    if (length < sizeof text) {
        memcpy(text, start, length);
        text[length] = '\0';
        if (read_decimal(text, value))
            return NULL;
        if (kb_bytes_parse(text, &bytes) && bytes <= INT64_MAX) {
            *value = (decimal){.mantissa = (int64_t)bytes};
            if (r->units != BINARY_UNITS)
                r->units = units_of(text);
            return NULL;
        }
    }
    return kb_error_new(KB_ERR_INPUT,
                        "range '%.80s': '%.*s' is neither a number nor a size; expected such as "
                        "2..8, 0..1+0.1 or 1KiB..1MiB*4",
                        r->text, (int)(length < sizeof text ? length : sizeof text), start);
}

static kb_error *read_range(const char *text, const char *dots, range *r)
{
    *r = (range){.text = text, .operation = '+', .step = {.mantissa = 1}};
    KB_TRY(read_number(r, text, (size_t)(dots - text), &r->first));
    const char *last = dots + 2;
    const char *step = strpbrk(last + (*last != '\0'), "+*"); /* not the sign of the end itself */
    for (; step && step > last && (step[-1] == 'e' || step[-1] == 'E');
         step = strpbrk(step + 1, "+*"))
        continue; /* 1e+3 */
    size_t length = step ? (size_t)(step - last) : strlen(last);
    KB_TRY(read_number(r, last, length, &r->last));
    if (step) {
        r->operation = *step;
        KB_TRY(read_number(r, step + 1, strlen(step + 1), &r->step));
    }
    if (compare(r->first, r->last) > 0)
        return kb_error_new(
            KB_ERR_INPUT, "range '%.80s' ends before it begins; write the smaller end first", text);
    decimal zero = {0}, one = {.mantissa = 1};
    bool grows = r->operation == '+' ? compare(r->step, zero) > 0
                                     : compare(r->step, one) > 0 && compare(r->first, zero) > 0;
    if (!grows)
        return kb_error_new(KB_ERR_INPUT,
                            r->operation == '+'
                                ? "range '%.80s': expected a step above 0"
                                : "range '%.80s': expected a factor above 1, and a first value "
                                  "above 0",
                            text);
    return NULL;
}

/* ---- Values ------------------------------------------------------------------------------ */

/* Appends a number of bytes in the largest unit that divides it. */
static void print_size(uint64_t bytes, units kind, kb_text *text)
{
    static const char *const names[2][5] = {{"TiB", "GiB", "MiB", "KiB", ""},
                                            {"TB", "GB", "MB", "KB", ""}};
    uint64_t base = kind == BINARY_UNITS ? 1024 : 1000;
    uint64_t unit = base * base * base * base;
    size_t i = 0;
    for (; unit > 1 && (bytes == 0 || bytes % unit != 0); unit /= base)
        i++;
    kb_text_printf(text, "%" PRIu64 "%s", bytes / unit, names[kind == DECIMAL_UNITS][i]);
}

static kb_error *append(kb_arena *arena, const char *text, size_t length, sweep_texts *values)
{
    if (values->count >= SWEEP_MAX_VALUES)
        return kb_error_new(KB_ERR_INPUT, "more than %d values", SWEEP_MAX_VALUES);
    const char *copy = kb_arena_strndup(arena, text, length);
    return copy && kb_vec_push(values, copy) ? NULL : kb_error_nomem();
}

static kb_error *append_value(const range *r, decimal value, kb_arena *arena, sweep_texts *values)
{
    kb_text text = KB_TEXT_INIT;
    if (r->units == NO_UNITS || value.digits > 0 || value.mantissa < 0)
        kb_decimal_print(value.mantissa, value.digits, &text);
    else
        print_size((uint64_t)value.mantissa, r->units, &text);
    kb_error *err =
        text.failed ? kb_error_nomem() : append(arena, kb_text_peek(&text), text.length, values);
    kb_text_fini(&text);
    return err;
}

static double to_double(decimal value)
{
    double number = (double)value.mantissa;
    for (int i = 0; i < value.digits; i++)
        number /= 10;
    return number;
}

/* Whether the value after this one, which does not fit, is past the end. */
static bool is_past_end(const range *r, decimal value)
{
    double next = r->operation == '+' ? to_double(value) + to_double(r->step)
                                      : to_double(value) * to_double(r->step);
    return next >= to_double(r->last);
}

static kb_error *expand_range(const range *r, kb_arena *arena, sweep_texts *values)
{
    decimal value = r->first;
    while (compare(value, r->last) <= 0) {
        if (r->units != NO_UNITS && value.digits > 0)
            return kb_error_new(KB_ERR_INPUT,
                                "range '%.80s' has a value that is no whole number "
                                "of bytes",
                                r->text);
        kb_error *err = append_value(r, value, arena, values);
        if (err)
            return kb_error_wrap(err, "range '%.80s'", r->text);
        decimal before = value;
        bool fits =
            r->operation == '+' ? add(value, r->step, &value) : multiply(value, r->step, &value);
        if (!fits && is_past_end(r, before))
            return NULL;
        if (!fits)
            return kb_error_new(KB_ERR_INPUT, "range '%.80s' has values of more than %d digits",
                                r->text, KB_DECIMAL_MAX_DIGITS);
    }
    return NULL;
}

kb_error *sweep_expand(const char *item, kb_arena *arena, sweep_texts *values)
{
    range r;
    const char *dots = find_dots(item);
    if (!dots) {
        if (item[0] == '\0')
            return kb_error_new(KB_ERR_INPUT, "a value is empty");
        return append(arena, item, strlen(item), values);
    }
    KB_TRY(read_range(item, dots, &r));
    return expand_range(&r, arena, values);
}

kb_error *sweep_expand_list(const char *list, kb_arena *arena, sweep_texts *values)
{
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        const char *item = kb_arena_strndup(arena, at, length);
        if (!item)
            return kb_error_nomem();
        KB_TRY(sweep_expand(item, arena, values));
        at += length;
        if (*at == '\0')
            return NULL;
    }
}
