/*
 * suggest.c: Damerau-Levenshtein distance, in the restricted form (optimal string alignment: what
 * was swapped is not edited again), which needs only the last three rows of the table. The last row
 * holds the distance of the word to every beginning of the name, too.
 */
#include "base/suggest.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/minmax.h"

/* Lower is nearer. A name that begins with the word is nearer than one that needs two changes. */
enum { SAME, ONE_CHANGE, BEGINS, CONTAINS, FEW_CHANGES, BEGINS_CHANGED = FEW_CHANGES + 4 };

enum { SHORTEST_PART = 3 }; /* bytes of a word that is looked for in names */

typedef struct distances {
    size_t whole;
    size_t prefix; /* the least of all beginnings of the name */
} distances;

/* The character as it is compared without case. */
static char fold(char c)
{
    if (c == '_')
        return '-';
    if (c >= 'A' && c <= 'Z')
        return (char)(c + ('a' - 'A'));
    return c;
}

/* Copies a string, in small letters if it is to be compared without case; false if it is too long.
 */
static bool copy(char into[static KB_SUGGEST_MAX + 1], const char *from, bool folded)
{
    size_t length = strnlen(from, KB_SUGGEST_MAX + 1);
    if (length > KB_SUGGEST_MAX)
        return false;
    for (size_t i = 0; i <= length; i++)
        into[i] = from[i];
    for (size_t i = 0; folded && i < length; i++)
        into[i] = fold(into[i]);
    return true;
}

static distances measure(const char *a, const char *b)
{
    /* Row i, column j: the distance of the first i bytes of a and the first j of b. */
    size_t storage[3][KB_SUGGEST_MAX + 1];
    size_t *before = storage[0], *last = storage[1], *row = storage[2];
    size_t a_length = strlen(a), b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = kb_min(replaced, kb_min(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = kb_min(row[j], before[j - 2] + 1);
        }
    }
    distances d = {.whole = row[b_length], .prefix = SIZE_MAX};
    for (size_t j = 0; j <= b_length; j++)
        d.prefix = kb_min(d.prefix, row[j]);
    return d;
}

size_t kb_edit_distance(const char *a, const char *b)
{
    char first[KB_SUGGEST_MAX + 1], second[KB_SUGGEST_MAX + 1];
    if (!copy(first, a, false) || !copy(second, b, false))
        return SIZE_MAX;
    return measure(first, second).whole;
}

/* Whether a text of that length is recognisable after `distance` changes. */
static bool is_near(size_t distance, size_t length)
{
    size_t limit = kb_min(3, length / 3);
    return distance <= limit || (distance == 1 && length > 1);
}

/* Lower is nearer; SIZE_MAX if the name is not near. */
static size_t rank(const char *word, const char *name)
{
    char a[KB_SUGGEST_MAX + 1], b[KB_SUGGEST_MAX + 1];
    if (!copy(a, word, true) || !copy(b, name, true))
        return SIZE_MAX;
    distances d = measure(a, b);
    size_t length = strlen(a), name_length = strlen(b);
    bool near = is_near(d.whole, length > name_length ? length : name_length);
    bool is_part = length >= SHORTEST_PART;
    if (near && d.whole <= 1)
        return d.whole == 0 ? SAME : ONE_CHANGE;
    if (is_part && d.prefix == 0)
        return BEGINS;
    if (is_part && strstr(b, a))
        return CONTAINS;
    if (near)
        return FEW_CHANGES + d.whole;
    return is_part && d.prefix <= kb_min(3, length / 3) ? BEGINS_CHANGED + d.prefix : SIZE_MAX;
}

void kb_suggestion_init(kb_suggestion *suggestion, const char *word)
{
    suggestion->word = word;
    suggestion->best = NULL;
    suggestion->rank = SIZE_MAX;
    suggestion->count = 0;
    suggestion->hint[0] = '\0';
}

void kb_suggestion_offer(kb_suggestion *suggestion, const char *candidate)
{
    if (suggestion->count < KB_SUGGEST_LIST)
        suggestion->names[suggestion->count] = candidate;
    suggestion->count++;
    size_t at = rank(suggestion->word, candidate);
    if (at < suggestion->rank) {
        suggestion->best = candidate;
        suggestion->rank = at;
    }
}

void kb_suggestion_search(kb_suggestion *suggestion, const char *word, const char *const *names,
                          size_t count)
{
    kb_suggestion_init(suggestion, word);
    for (size_t i = 0; i < count; i++)
        kb_suggestion_offer(suggestion, names[i]);
}

/* What stands before a name of "a, b or c". */
static const char *separator(size_t i, size_t count)
{
    return i == 0 ? "" : i + 1 < count ? ", " : " or ";
}

void kb_append_names(kb_text *text, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        kb_text_printf(text, "%s%s", separator(i, count), names[i]);
}

/* Writes ": expected a, b or c" and returns its length; 0 if the list is empty or too long. */
static size_t print_list(kb_suggestion *s)
{
    if (s->count == 0 || s->count > KB_SUGGEST_LIST)
        return 0;
    size_t length = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t room = sizeof s->hint - length;
        int more = snprintf(s->hint + length, room, "%s%s%s", i == 0 ? ": expected " : "",
                            separator(i, s->count), s->names[i]);
        if (more < 0 || (size_t)more >= room)
            return 0;
        length += (size_t)more;
    }
    return length;
}

/* `length` bytes of the hint are written already. */
static const char *finish(kb_suggestion *s, size_t length, const char *otherwise)
{
    static const char around[] = "; did you mean ''?";
    if (s->best && length + strlen(s->best) + sizeof around > sizeof s->hint)
        length = 0; /* the nearest matters more than the list */
    if (s->best)
        snprintf(s->hint + length, sizeof s->hint - length, "; did you mean '%s'?", s->best);
    else
        s->hint[length] = '\0';
    return s->hint[0] != '\0' ? s->hint : otherwise;
}

const char *kb_suggestion_full(kb_suggestion *suggestion, const char *otherwise)
{
    return finish(suggestion, print_list(suggestion), otherwise);
}

const char *kb_suggestion_hint(kb_suggestion *suggestion, const char *otherwise)
{
    size_t limit = suggestion->best ? KB_SUGGEST_FEW : KB_SUGGEST_SHORT;
    return suggestion->count <= limit ? kb_suggestion_full(suggestion, otherwise)
                                      : kb_suggestion_near(suggestion, otherwise);
}

const char *kb_suggestion_near(kb_suggestion *suggestion, const char *otherwise)
{
    return finish(suggestion, 0, otherwise);
}
