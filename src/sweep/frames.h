/*
 * frames.h: what a child that runs a point sends to its parent, in this order; it may end at any
 * moment, and what is complete until then counts.
 *
 *     key       when the machine is compiled, before the bench runs
 *     machine   the complete file of the machine, if it was asked for
 *     document  the JSON document
 *     end       how the run ended
 */
#ifndef KB_SWEEP_FRAMES_H
#define KB_SWEEP_FRAMES_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sweep_key_frame {
    char key[33];
    char machine[17]; /* its hash */
    bool known;       /* the store has the point: there was no run */
} sweep_key_frame;

typedef struct sweep_end_frame {
    int32_t code;
    double wall_s;
} sweep_end_frame;

/* `fd` is a pipe. False if the parent does not read any more. */
KB_MUST_USE bool sweep_send_key(int fd, const sweep_key_frame *frame, const char *machine_name);
KB_MUST_USE bool sweep_send_machine(int fd, const char *yaml, size_t length);
KB_MUST_USE bool sweep_send_document(int fd, const char *json, size_t length);
/* All that follows is the document: for a program that prints it. */
KB_MUST_USE bool sweep_send_open_document(int fd);
KB_MUST_USE bool sweep_send_end(int fd, const sweep_end_frame *frame, const char *message);

/* What was received. Texts are in the bytes, not all of them end with NUL. */
typedef struct sweep_frames {
    bool has_key, has_end, is_open;
    sweep_key_frame key;
    sweep_end_frame end;
    const char *machine_name, *machine, *document, *message;
    size_t machine_name_length, machine_length, document_length, message_length;
} sweep_frames;

void sweep_read_frames(const char *bytes, size_t length, sweep_frames *report);

#endif
