/* frames.c: see frames.h. A frame is its type, the length of what follows, and that. Parent and
 * child are one program, perhaps on two machines of one kind: numbers are as in memory. */
#include "frames.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

typedef struct header {
    char type[8];
    uint64_t length;
} header;

enum { OPEN = -1 }; /* a length: all that follows */

static bool send_bytes(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t sent = write(fd, at, length);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        length -= (size_t)sent;
    }
    return true;
}

/* Two parts in one frame. */
static bool send_frame(int fd, const char *type, const void *first, size_t first_length,
                       const void *second, size_t second_length)
{
    header h = {.length = first_length + second_length};
    strncpy(h.type, type, sizeof h.type - 1);
    return send_bytes(fd, &h, sizeof h) && send_bytes(fd, first, first_length) &&
           send_bytes(fd, second, second_length);
}

bool sweep_send_key(int fd, const sweep_key_frame *frame, const char *machine_name)
{
    return send_frame(fd, "key", frame, sizeof *frame, machine_name, strlen(machine_name));
}

bool sweep_send_machine(int fd, const char *yaml, size_t length)
{
    return send_frame(fd, "machine", yaml, length, "", 0);
}

bool sweep_send_document(int fd, const char *json, size_t length)
{
    return send_frame(fd, "json", json, length, "", 0);
}

bool sweep_send_open_document(int fd)
{
    header h = {.type = "json", .length = (uint64_t)OPEN};
    return send_bytes(fd, &h, sizeof h);
}

bool sweep_send_end(int fd, const sweep_end_frame *frame, const char *message)
{
    return send_frame(fd, "end", frame, sizeof *frame, message, strlen(message));
}

/* ---- Reading ----------------------------------------------------------------------------- */

static void read_key(const char *bytes, size_t length, sweep_frames *r)
{
    if (length < sizeof r->key)
        return;
    memcpy(&r->key, bytes, sizeof r->key);
    r->key.key[sizeof r->key.key - 1] = r->key.machine[sizeof r->key.machine - 1] = '\0';
    r->has_key = true;
    r->machine_name = bytes + sizeof r->key;
    r->machine_name_length = length - sizeof r->key;
}

static void read_end(const char *bytes, size_t length, sweep_frames *r)
{
    if (length < sizeof r->end)
        return;
    memcpy(&r->end, bytes, sizeof r->end);
    r->has_end = true;
    r->message = bytes + sizeof r->end;
    r->message_length = length - sizeof r->end;
}

static void read_frame(const char *type, const char *bytes, size_t length, sweep_frames *r)
{
    if (strcmp(type, "key") == 0) {
        read_key(bytes, length, r);
    } else if (strcmp(type, "machine") == 0) {
        r->machine = bytes;
        r->machine_length = length;
    } else if (strcmp(type, "json") == 0) {
        r->document = bytes;
        r->document_length = length;
    } else if (strcmp(type, "end") == 0) {
        read_end(bytes, length, r);
    }
}

void sweep_read_frames(const char *bytes, size_t length, sweep_frames *report)
{
    *report = (sweep_frames){0};
    header h;
    while (length >= sizeof h) {
        memcpy(&h, bytes, sizeof h);
        h.type[sizeof h.type - 1] = '\0';
        bytes += sizeof h;
        length -= sizeof h;
        if (h.length == (uint64_t)OPEN) {
            report->is_open = true;
            h.length = length;
        }
        if (h.length > length)
            return; /* cut off */
        read_frame(h.type, bytes, (size_t)h.length, report);
        bytes += h.length;
        length -= (size_t)h.length;
    }
}
