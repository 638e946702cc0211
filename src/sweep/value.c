/* value.c: see value.h. Numbers do not depend on the locale: the program's is always "C". */
#include "value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sweep_value sweep_number(double number)
{
    if (!isfinite(number))
        return SWEEP_NONE;
    return (sweep_value){.is_number = true, .number = number};
}

bool sweep_read_number(const char *text, double *number)
{
    /* strtod() takes more than decimals: hexadecimal, infinity. */
    if (text[0] == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    char *end;
    *number = strtod(text, &end);
    return *end == '\0' && isfinite(*number);
}

sweep_value sweep_value_of_text(const char *text)
{
    sweep_value value = {.text = text};
    uint64_t bytes;
    if (sweep_read_number(text, &value.number))
        value.is_number = true;
    else if (kb_bytes_parse(text, &bytes))
        value = (sweep_value){.is_number = true, .number = (double)bytes, .text = text};
    return value;
}

bool sweep_values_equal(sweep_value a, sweep_value b)
{
    if (a.none || b.none)
        return a.none && b.none;
    if (a.is_number && b.is_number)
        return !(a.number < b.number) && !(a.number > b.number);
    return a.text && b.text && strcmp(a.text, b.text) == 0;
}

void sweep_append_number(kb_text *text, double number)
{
    char buffer[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, sizeof buffer, "%.*g", digits, number);
        double again = strtod(buffer, NULL);
        if (!(again < number) && !(again > number))
            break;
    }
    kb_text_puts(text, buffer);
}

/* Whether the name ends with "." and the word. */
static bool ends_with(const char *name, const char *word)
{
    size_t length = strlen(name), part = strlen(word);
    return part > 0 && length > part && name[length - part - 1] == '.' &&
           strcmp(name + length - part, word) == 0;
}

static kb_error *refuse_ambiguous(const char *what, const char *word, const char *const *names,
                                  size_t count)
{
    kb_text list = KB_TEXT_INIT;
    enum { SHOWN = 4 };
    size_t matches = 0;
    for (size_t i = 0; i < count; i++)
        if (ends_with(names[i], word) && matches++ < SHOWN)
            kb_text_printf(&list, "%s%s", matches > 1 ? ", " : "", names[i]);
    kb_error *err = kb_error_new(KB_ERR_INPUT, "%s '%s' stands for %zu names: %s%s", what, word,
                                 matches, kb_text_peek(&list), matches > SHOWN ? ", ..." : "");
    kb_text_fini(&list);
    return err;
}

/* The nearest name, or the one whose last part is nearer: "metrics.busbw_gbs" for "busbw". */
static kb_error *refuse_unknown(const char *what, const char *word, const char *const *names,
                                size_t count)
{
    kb_suggestion whole, part;
    kb_suggestion_init(&whole, word);
    kb_suggestion_init(&part, word);
    const char *of_part = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(names[i], '.'), *best = part.best;
        kb_suggestion_offer(&whole, names[i]);
        if (dot)
            kb_suggestion_offer(&part, dot + 1);
        if (part.best != best)
            of_part = names[i];
    }
    if (of_part && (!whole.best || part.rank < whole.rank))
        return kb_error_new(KB_ERR_INPUT, "unknown %s '%s': did you mean '%s'?", what, word,
                            of_part);
    return kb_error_new(KB_ERR_INPUT, "unknown %s '%s'%s", what, word,
                        kb_suggestion_hint(&whole, count == 0 ? ": there are none" : ""));
}

kb_error *sweep_find_name(const char *what, const char *word, const char *const *names,
                          size_t count, size_t *index)
{
    size_t matches = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], word) == 0) {
            *index = i;
            return NULL;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (ends_with(names[i], word)) {
            *index = i;
            matches++;
        }
    }
    if (matches == 1)
        return NULL;
    return matches > 1 ? refuse_ambiguous(what, word, names, count)
                       : refuse_unknown(what, word, names, count);
}
