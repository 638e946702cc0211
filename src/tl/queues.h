/*
 * queues.h: what sends (queue.c) and receives (receive.c) share: directions, and waits in the log.
 * Private to tl.
 */
#ifndef KB_TL_QUEUES_H
#define KB_TL_QUEUES_H

#include <string.h>

#include "tl_private.h"

/* A fault if the PE has no queues; and that the kernel names no direction that there is. */
void tl_check_queues(const tl_call *call);
KB_NORETURN void tl_fault_direction(const tl_call *call, const char *direction);

/* The first two letters of a name; most have no more. */
static inline uint32_t tl_direction_key(const char *name)
{
    uint32_t first = (uint8_t)name[0];
    return first == 0 ? 0 : first | (uint32_t)(uint8_t)name[1] << 8;
}

/* NULL if there is none such. */
ipcq_end *tl_look_up_slowly(tl_context *tl, const char *direction);

/* NULL if there is none such. Kernels mostly use the same few again and again. */
static inline ipcq_end *tl_look_up(tl_context *tl, const char *direction)
{
    uint32_t key = tl_direction_key(direction);
    for (uint32_t i = 0; i < TL_RECENT && key != 0; i++)
        if (tl->recent[i].key == key &&
            (key >> 8 == 0 || strcmp(tl->recent[i].name, direction) == 0))
            return tl->recent[i].end;
    return tl_look_up_slowly(tl, direction);
}

static inline ipcq_end *tl_find_direction(const tl_call *call, const char *direction)
{
    ipcq_end *end = KB_LIKELY(direction != NULL) ? tl_look_up(call->tl, direction) : NULL;
    if (KB_UNLIKELY(!end))
        tl_fault_direction(call, direction);
    return end;
}

/* What the log is told of a wait for a queue. */
kb_op tl_queue_entry(const tl_call *call, const char *name);

/* Shows that something of the kernel's has waited between the two; the entry knows what for. */
void tl_show_wait(const tl_context *tl, kb_op *entry, kb_time since, kb_time until);

/* The kernel has waited for a credit until then. */
void tl_show_lack(tl_context *tl, kb_time until, bool unfinished);

#endif
