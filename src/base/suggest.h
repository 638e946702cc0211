/*
 * suggest.h: "did you mean ...?" for every name that is looked up in a list.
 *
 *     kb_suggestion near;
 *     kb_suggestion_init(&near, word);
 *     for (each name of the list)
 *         kb_suggestion_offer(&near, name);
 *     kb_error_new(KB_ERR_INPUT, "unknown case '%s'%s", word, kb_suggestion_hint(&near, ""));
 *
 * prints: unknown case 'pe-lcal-hbm': expected pe-local-hbm, h2d-near or d2h-near; did you mean
 * 'pe-local-hbm'?
 *
 * Case, and '-' in place of '_', count as equal. Edit distance: insertions, deletions,
 * substitutions and swaps of neighbours cost 1 each. A name is near, the best first, if
 *   1. the distance is 1 at most and the two share a letter: 'ww' for 'w';
 *   2. the name begins with the word, or else contains it: 'allreduce' for 'ccl_allreduce';
 *   3. the distance is at most a third of the longer of the two, and at most 3;
 *   4. the word is that near to a beginning of the name: 'gem_single' for 'gemm_single_pe'.
 * 2 and 4 need a word of three bytes. Words and names of more than KB_SUGGEST_MAX bytes are never
 * near.
 */
#ifndef KB_BASE_SUGGEST_H
#define KB_BASE_SUGGEST_H

#include <stddef.h>

#include "base/text.h"

enum {
    KB_SUGGEST_MAX = 64,
    KB_SUGGEST_FEW = 6,    /* names that are listed beside the nearest one */
    KB_SUGGEST_SHORT = 12, /* names that are listed where none is near */
    KB_SUGGEST_LIST = 32,  /* a list of more names is never shown */
    KB_SUGGEST_HINT = 400, /* bytes of a hint; a list that needs more is not shown */
};

/* A search in progress. The candidates must stay as long as it does. */
typedef struct kb_suggestion {
    const char *word;
    const char *best; /* NULL if none is near; of equally near ones, the first that was offered */
    size_t rank;      /* of the best: lower is nearer */
    size_t count;     /* candidates that were offered */
    const char *names[KB_SUGGEST_LIST];
    char hint[KB_SUGGEST_HINT];
} kb_suggestion;

void kb_suggestion_init(kb_suggestion *suggestion, const char *word);
void kb_suggestion_offer(kb_suggestion *suggestion, const char *candidate);

/*
 * The end of a message: ": expected a, b or c" if there are few names, or if none is near and the
 * list is short; then "; did you mean 'b'?" if one is; `otherwise` if neither. Stays until the next
 * call or the end of the search.
 */
const char *kb_suggestion_hint(kb_suggestion *suggestion, const char *otherwise);

/* The same with the list wherever there is room, and without it. */
const char *kb_suggestion_full(kb_suggestion *suggestion, const char *otherwise);
const char *kb_suggestion_near(kb_suggestion *suggestion, const char *otherwise);

/* All names of an array are offered. */
void kb_suggestion_search(kb_suggestion *suggestion, const char *word, const char *const *names,
                          size_t count);

/* Appends "a, b or c". */
void kb_append_names(kb_text *text, const char *const *names, size_t count);

/* The distance of two strings of at most KB_SUGGEST_MAX bytes, SIZE_MAX if one is longer. */
size_t kb_edit_distance(const char *a, const char *b);

#endif
