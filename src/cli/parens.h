/* parens.h: finds a parenthesis that is not closed, in a C file that does not compile. */
#ifndef KB_CLI_PARENS_H
#define KB_CLI_PARENS_H

#include <stdbool.h>
#include <stddef.h>

/* Where a parenthesis is opened, counted from 1. */
typedef struct paren_place {
    int line, column;
} paren_place;

/* The innermost parenthesis that is open at a `;`, other than that of a `for`. False if there is
 * none. */
bool parens_find_open(const char *text, size_t length, paren_place *place);

#endif
