/* utf8.c: strict UTF-8 decoding. */
#include "base/utf8.h"

size_t kb_utf8_decode(const char *bytes, size_t size, uint32_t *character)
{
    /* Of each length: the smallest character that needs it, so that overlong forms are refused. */
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (size == 0)
        return 0;

    uint32_t lead = (unsigned char)bytes[0];
    if (lead < 0x80) {
        *character = lead;
        return 1;
    }
    size_t length = lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
    if (length == 0 || length > size)
        return 0;

    uint32_t value = lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        uint32_t next = (unsigned char)bytes[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    bool surrogate = value >= 0xd800 && value < 0xe000;
    if (value < smallest[length] || value > 0x10ffff || surrogate)
        return 0;
    *character = value;
    return length;
}
