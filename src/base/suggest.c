/*
 * suggest.c: Damerau-Levenshtein distance, in the restricted form (optimal string alignment: what
 * was swapped is not edited again), which needs only the last three rows of the table.
 */
#include "base/suggest.h"

#include <stdint.h>
#include <string.h>

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t kb_edit_distance(const char *a, const char *b)
{
    size_t a_length = strnlen(a, KB_SUGGEST_MAX + 1);
    size_t b_length = strnlen(b, KB_SUGGEST_MAX + 1);
    if (a_length > KB_SUGGEST_MAX || b_length > KB_SUGGEST_MAX)
        return SIZE_MAX;

    /* Row i, column j: the distance of the first i bytes of a and the first j of b. */
    size_t storage[3][KB_SUGGEST_MAX + 1];
    size_t *before = storage[0], *last = storage[1], *row = storage[2];
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
            row[j] = min(replaced, min(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min(row[j], before[j - 2] + 1);
        }
    }
    return row[b_length];
}

void kb_suggestion_init(kb_suggestion *suggestion, const char *word)
{
    *suggestion = (kb_suggestion){.word = word, .distance = SIZE_MAX};
}

void kb_suggestion_offer(kb_suggestion *suggestion, const char *candidate)
{
    size_t distance = kb_edit_distance(suggestion->word, candidate);
    if (distance >= suggestion->distance)
        return;
    size_t word_length = strlen(suggestion->word), candidate_length = strlen(candidate);
    size_t longer = word_length > candidate_length ? word_length : candidate_length;
    if (distance <= min(3, longer / 3)) {
        suggestion->best = candidate;
        suggestion->distance = distance;
    }
}

const char *kb_suggest(const char *word, const char *const *names, size_t count)
{
    kb_suggestion suggestion;
    kb_suggestion_init(&suggestion, word);
    for (size_t i = 0; i < count; i++)
        kb_suggestion_offer(&suggestion, names[i]);
    return suggestion.best;
}
