/* parens.h: finds an unclosed parenthesis in a C file. */
#ifndef KB_CLI_PARENS_H
#define KB_CLI_PARENS_H

#include <stdbool.h>
#include <stddef.h>

/* The position of a parenthesis, counted from 1. */
typedef struct paren_place {
    int line, column;
} paren_place;

/* The innermost parenthesis that is open at a `;`, other than that of a `for`. False if there is
 * none. */
bool parens_find_open(const char *text, size_t length, paren_place *place);

#endif
