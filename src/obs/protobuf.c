/* protobuf.c: the wire format of protocol buffers: see protobuf.h. */
#include "protobuf.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, WITH_LENGTH = 2 }; /* wire types */

enum { MAX_VARINT = 10 }; /* bytes */

/* Returns how many bytes. */
static size_t encode(uint64_t value, char bytes[MAX_VARINT])
{
    size_t length = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[length++] = (char)(unsigned char)(value | 0x80);
    bytes[length++] = (char)(unsigned char)value;
    return length;
}

void pb_put_varint(kb_text *text, uint64_t value)
{
    char bytes[MAX_VARINT];
    kb_text_append(text, bytes, encode(value, bytes));
}

static void put_tag(kb_text *text, uint32_t field, uint32_t wire_type)
{
    pb_put_varint(text, (uint64_t)field << 3 | wire_type);
}

void pb_put_uint(kb_text *text, uint32_t field, uint64_t value)
{
    put_tag(text, field, VARINT);
    pb_put_varint(text, value);
}

void pb_put_fixed64(kb_text *text, uint32_t field, uint64_t value)
{
    char bytes[8]; /* least significant first */
    put_tag(text, field, FIXED64);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(unsigned char)(value >> 8 * i);
    kb_text_append(text, bytes, sizeof bytes);
}

void pb_put_double(kb_text *text, uint32_t field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    pb_put_fixed64(text, field, bits);
}

void pb_put_bytes(kb_text *text, uint32_t field, const kb_text *bytes)
{
    put_tag(text, field, WITH_LENGTH);
    pb_put_varint(text, bytes->length);
    kb_text_append(text, kb_text_peek(bytes), bytes->length);
    text->failed = text->failed || bytes->failed;
}

void pb_put_text(kb_text *text, uint32_t field, const char *value)
{
    size_t begun = pb_begin(text, field);
    for (size_t size = strlen(value); size > 0;) {
        uint32_t c;
        size_t length = kb_utf8_decode(value, size, &c);
        if (length > 0)
            kb_text_append(text, value, length);
        else
            kb_text_puts(text, "\xef\xbf\xbd");
        length = length > 0 ? length : 1;
        value += length;
        size -= length;
    }
    pb_end(text, begun);
}

/* Most messages are shorter than 128 bytes, so one byte is kept for the length. */
size_t pb_begin(kb_text *text, uint32_t field)
{
    put_tag(text, field, WITH_LENGTH);
    kb_text_append(text, "", 1);
    return text->length;
}

void pb_end(kb_text *text, size_t begun)
{
    if (text->failed)
        return;
    size_t length = text->length - begun;
    char bytes[MAX_VARINT];
    size_t more = encode(length, bytes) - 1;
    if (more > 0) {
        kb_text_append(text, bytes, more); /* makes room */
        if (text->failed)
            return;
        memmove(text->bytes + begun + more, text->bytes + begun, length);
    }
    memcpy(text->bytes + begun - 1, bytes, more + 1);
}
