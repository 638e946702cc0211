/*
 * arguments.c: arguments of kernels. A kernel's parameters are known as they are written; their
 * types are read from there. An argument travels as a long double and becomes the parameter's type
 * when the kernel is called, which C leaves undefined if it does not fit: so it is checked here.
 */
#include "arguments.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* ---- Parameters as they are written ---- */

static const char *skip_spaces(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* The text of a parameter, such as "int n", in `text`; for messages. */
enum { PARAMETER_BYTES = 64 };
static void parameter_text(const kb_kernel *kernel, size_t index, char text[PARAMETER_BYTES])
{
    const char *at = kernel->parameters;
    for (size_t i = 0; i < index && at; i++) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    at = at ? skip_spaces(at) : "";
    size_t length = strcspn(at, ",");
    while (length > 0 && isspace((unsigned char)at[length - 1]))
        length--;
    snprintf(text, PARAMETER_BYTES, "%.*s", (int)length, at);
}

static bool is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether the word stands in the text by itself. */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool begins = at == text || !is_name_character(at[-1]);
        if (begins && !is_name_character(at[length]))
            return true;
    }
    return false;
}

/* ---- What a parameter takes ---- */

typedef struct range {
    int64_t min;
    uint64_t max;
} range;

/* Types that are not here, such as enums, are taken for int. Those with the more words come first.
 */
static const struct {
    const char *words[2];
    range holds;
} types[] = {
    {{"unsigned", "char"}, {0, UCHAR_MAX}},
    {{"unsigned", "short"}, {0, USHRT_MAX}},
    {{"unsigned", "long"}, {0, ULONG_MAX}},
    {{"unsigned", NULL}, {0, UINT_MAX}},
    {{"signed", "char"}, {SCHAR_MIN, SCHAR_MAX}},
    {{"char", NULL}, {CHAR_MIN, CHAR_MAX}},
    {{"short", NULL}, {SHRT_MIN, SHRT_MAX}},
    {{"long", NULL}, {LONG_MIN, LONG_MAX}},
    {{"int8_t", NULL}, {INT8_MIN, INT8_MAX}},
    {{"int16_t", NULL}, {INT16_MIN, INT16_MAX}},
    {{"int32_t", NULL}, {INT32_MIN, INT32_MAX}},
    {{"int64_t", NULL}, {INT64_MIN, INT64_MAX}},
    {{"uint8_t", NULL}, {0, UINT8_MAX}},
    {{"uint16_t", NULL}, {0, UINT16_MAX}},
    {{"uint32_t", NULL}, {0, UINT32_MAX}},
    {{"uint64_t", NULL}, {0, UINT64_MAX}},
    {{"size_t", NULL}, {0, SIZE_MAX}},
    {{"ptrdiff_t", NULL}, {PTRDIFF_MIN, PTRDIFF_MAX}},
    {{"intptr_t", NULL}, {INTPTR_MIN, INTPTR_MAX}},
    {{"uintptr_t", NULL}, {0, UINTPTR_MAX}},
    {{"kb_time", NULL}, {INT64_MIN, INT64_MAX}},
    {{"tl_ptr", NULL}, {0, INT64_MAX}},
};

static range range_of(const char *parameter)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *second = types[i].words[1];
        if (has_word(parameter, types[i].words[0]) && (!second || has_word(parameter, second)))
            return types[i].holds;
    }
    return (range){INT_MIN, INT_MAX};
}

static bool takes_any_number(const char *parameter)
{
    return has_word(parameter, "float") || has_word(parameter, "double") ||
           has_word(parameter, "bool") || has_word(parameter, "_Bool");
}

static kb_error *check_integer(const char *parameter, int64_t integer)
{
    if (takes_any_number(parameter))
        return NULL;
    range holds = range_of(parameter);
    if (integer >= holds.min && (integer < 0 || (uint64_t)integer <= holds.max))
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "'%s' cannot hold %" PRId64, parameter, integer);
}

static kb_error *check_real(const char *parameter, double real)
{
    if (takes_any_number(parameter))
        return NULL;
    if (has_word(parameter, "tl_ptr"))
        return kb_error_new(KB_ERR_FAULT, "'%s' is an address: expected a tensor, found %g",
                            parameter, real);
    bool whole = real == floor(real) && fabs(real) < 0x1p63;
    if (!whole)
        return kb_error_new(KB_ERR_FAULT, "'%s' takes whole numbers, found %g", parameter, real);
    return check_integer(parameter, (int64_t)real);
}

static kb_error *check_argument(const char *parameter, const kb_arg *arg)
{
    switch (arg->kind) {
    case KB_ARG_INTEGER:
        return check_integer(parameter, arg->integer);
    case KB_ARG_REAL:
        return check_real(parameter, arg->real);
    case KB_ARG_TENSOR:
    case KB_ARG_TENSORS:
        if (has_word(parameter, "tl_ptr"))
            return NULL;
        return kb_error_new(KB_ERR_FAULT,
                            "'%s' takes a number, found a tensor: tensors are for "
                            "parameters of type tl_ptr",
                            parameter);
    }
    return kb_error_new(KB_ERR_INPUT, "'%s' is given an argument of unknown kind %d", parameter,
                        (int)arg->kind);
}

kb_error *rt_check_arguments(const kb_kernel *kernel, const kb_arg *args, size_t count)
{
    if (count != kernel->parameter_count)
        return kb_error_new(KB_ERR_FAULT, "expected %zu argument%s (%s), found %zu",
                            kernel->parameter_count, kb_plural(kernel->parameter_count),
                            kernel->parameters, count);
    for (size_t i = 0; i < count; i++) {
        char parameter[PARAMETER_BYTES];
        parameter_text(kernel, i, parameter);
        kb_error *err = check_argument(parameter, &args[i]);
        if (err)
            return kb_error_wrap(err, "argument %zu", i + 1);
    }
    return NULL;
}
