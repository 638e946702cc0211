/*
 * utf8.h: strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef KB_BASE_UTF8_H
#define KB_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Decodes the character at `bytes`, of which `size` are left. Returns its length, 1 to 4, or 0 if
 * there is no valid character (or no byte at all).
 */
size_t kb_utf8_decode(const char *bytes, size_t size, uint32_t *character);

/* Whether a terminal may act on it instead of showing it: C0, DEL and C1. */
static inline bool kb_utf8_is_control(uint32_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

#endif
