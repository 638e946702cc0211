/*
 * protobuf.h: the wire format of protocol buffers: fields with a number, as variable-length
 * integers, as 8 bytes, or with a length before them. Appends to a kb_text, whose out of memory is
 * sticky. Private to obs.
 *
 *     size_t event = pb_begin(text, 11);
 *     pb_put_uint(text, 9, 1);
 *     pb_end(text, event);
 */
#ifndef KB_OBS_PROTOBUF_H
#define KB_OBS_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

void pb_put_varint(kb_text *text, uint64_t value);
void pb_put_uint(kb_text *text, uint32_t field, uint64_t value);
void pb_put_fixed64(kb_text *text, uint32_t field, uint64_t value);
void pb_put_double(kb_text *text, uint32_t field, double value);

/* Invalid UTF-8 becomes U+FFFD: fields of texts must not have any. */
void pb_put_text(kb_text *text, uint32_t field, const char *value);

/* Appends the field's bytes as they are: a message that was encoded elsewhere. */
void pb_put_bytes(kb_text *text, uint32_t field, const kb_text *bytes);

/* A message that is encoded between the two calls; messages nest. */
size_t pb_begin(kb_text *text, uint32_t field);
void pb_end(kb_text *text, size_t begun);

#endif
