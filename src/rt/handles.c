/*
 * handles.c: handles that users hold: each has the number of its context in its upper bits, so that
 * one of another context, or of one that was destroyed, is refused.
 *
 * The count of contexts is the only variable of the library that contexts share. Nothing but the
 * comparison of handles reads the numbers, so results do not depend on them. They come round after
 * RT_MAX_CONTEXT contexts of a process.
 */
#include <stdatomic.h>

#include "runtime.h"

static _Atomic uint64_t contexts_made;

uint32_t rt_new_context_number(void)
{
    return (uint32_t)(atomic_fetch_add(&contexts_made, 1) % RT_MAX_CONTEXT) + 1;
}

uint64_t rt_make_handle(const kb_context *ctx, uint64_t number)
{
    KB_ASSERT(number >> RT_CONTEXT_SHIFT == 0);
    return (uint64_t)ctx->number << RT_CONTEXT_SHIFT | number;
}

uint64_t rt_number_of(const kb_context *ctx, uint64_t handle)
{
    bool own = handle >> RT_CONTEXT_SHIFT == ctx->number;
    return own ? handle & (((uint64_t)1 << RT_CONTEXT_SHIFT) - 1) : 0;
}

kb_error *rt_bad_handle(const kb_context *ctx, const char *function, const char *what,
                        const char *gone, uint64_t handle)
{
    uint64_t number = handle >> RT_CONTEXT_SHIFT;
    const char *colon = function[0] != '\0' ? ": " : "";
    bool foreign = number > 0 && number != ctx->number && number <= atomic_load(&contexts_made);
    if (foreign)
        return kb_error_new(KB_ERR_FAULT,
                            "%s%sinvalid %s handle: it belongs to another context, or to one that "
                            "was destroyed",
                            function, colon, what);
    return kb_error_new(KB_ERR_FAULT, "%s%sinvalid or %s %s handle", function, colon, gone, what);
}
