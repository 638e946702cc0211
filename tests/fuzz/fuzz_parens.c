/* fuzz_parens.c: bytes as a C file in which a parenthesis may be open. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cli/parens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* without a NUL behind it, for ASan to see reads past the end */
    KB_ASSERT(text);
    if (size > 0)
        memcpy(text + 1, data, size);
    paren_place place;
    if (parens_find_open(text + 1, size, &place)) {
        KB_ASSERT(place.line >= 1 && place.column >= 1);
        const char *at = text + 1, *end = at + size;
        for (int line = 1; line < place.line; line++) {
            at = memchr(at, '\n', (size_t)(end - at));
            KB_ASSERT(at);
            at++;
        }
        KB_ASSERT(end - at >= place.column && at[place.column - 1] == '(');
    }
    free(text);
    return 0;
}
