/*
 * try.c: errors that are returned to the frames of a kernel. A mistake, or a kernel that is stopped
 * from outside, ends a coroutine without returning through its frames. A kernel in another language
 * has frames that must not be skipped: tl_try() ends the call alone, and those frames return.
 *
 * Once it has returned an error the kernel issues nothing and never waits again, so that what
 * happens to it afterwards takes no simulated time and no other part of the simulation sees it.
 * Scopes of skipped frames stay open: their values go when the kernel ends.
 */
#include <inttypes.h>

#include "tl_private.h"

typedef struct tried_call {
    tl_context *tl;
    void (*call)(tl_context *tl, void *arg);
    void *arg;
} tried_call;

static void make_call(void *arg)
{
    const tried_call *tried = arg;
    tried->call(tried->tl, tried->arg);
}

/* Why the kernel is stopped. */
static kb_error *copy_reason(const tl_context *tl)
{
    if (tl->error)
        return kb_error_copy(tl->error);
    if (tl->failure)
        return kb_error_copy(tl->failure);
    kb_pe pe = tl->run.pe;
    return kb_error_new(KB_ERR_FAULT,
                        "kernel '%s' on %s: stopped, because the simulation is being torn down",
                        tl->run.kernel->name, topo_pe_name(pe).text);
}

kb_error *tl_try(tl_context *tl, void (*call)(tl_context *tl, void *arg), void *arg)
{
    if (kb_co_is_unwinding(tl->co))
        tl->stopped = true;
    tried_call tried = {tl, call, arg};
    if (!tl->stopped && !kb_co_try(tl->co, make_call, &tried))
        tl->stopped = true;
    return tl->stopped ? copy_reason(tl) : NULL;
}
