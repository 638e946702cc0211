/*
 * suggest.h: "did you mean ...?"
 *
 * The nearest name by edit distance: insertions, deletions, substitutions, and swaps of neighbours
 * cost 1 each. A name is near if at most a third of the longer of the two has changed, and at most
 * 3 letters. Names and words beyond KB_SUGGEST_MAX bytes are never near: nobody mistypes those.
 */
#ifndef KB_BASE_SUGGEST_H
#define KB_BASE_SUGGEST_H

#include <stddef.h>

enum { KB_SUGGEST_MAX = 64 };

/* A search in progress: init, offer every candidate, read best (NULL if none is near). */
typedef struct kb_suggestion {
    const char *word;
    const char *best; /* of equally near ones, the first that was offered */
    size_t distance;
} kb_suggestion;

void kb_suggestion_init(kb_suggestion *suggestion, const char *word);
void kb_suggestion_offer(kb_suggestion *suggestion, const char *candidate);

/* The nearest of an array of names, NULL if none is near. */
const char *kb_suggest(const char *word, const char *const *names, size_t count);

/* The distance of two strings of at most KB_SUGGEST_MAX bytes, SIZE_MAX if one is longer. */
size_t kb_edit_distance(const char *a, const char *b);

#endif
