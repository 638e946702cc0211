/*
 * request.h: requests to the machine: transfers of the host and of PEs, and mappings. All
 * asynchronous work is waited for here.
 */
#ifndef KERNBENCH_REQUEST_H
#define KERNBENCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Requests ---------------------------------------------------------------------------- */

typedef enum kb_message_kind {
    KB_MEMORY_WRITE, /* the host writes `data` to `to` */
    KB_MEMORY_READ,  /* the host reads what is at `from` into `into` */
    KB_PE_DMA,       /* the DMA of `pe` copies from `from` to `to` */
    KB_MMU_MAP,      /* addresses from `va` on, had from kb_va_alloc(), mean `to`, for `pe` */
    KB_MMU_UNMAP     /* the range that was mapped at `va` no longer is, in the MMU of `pe` */
} kb_message_kind;

typedef struct kb_message {
    kb_message_kind kind;
    uint64_t bytes; /* at least 1; 0 for KB_MMU_UNMAP */
    kb_location from, to;
    kb_pe pe;
    uint64_t va;
    const void *data; /* copied; NULL: contents stay as they are */
    void *into;       /* filled when the request is submitted; NULL: only time is wanted */
} kb_message;

/* Names a request of its context. One that was freed is never taken for another. */
typedef struct kb_request {
    uint64_t id;
} kb_request;

/* How the time of a request came about: the four parts add up to ended - issued. */
typedef struct kb_completion {
    kb_time issued, ended;
    kb_time overhead; /* of nodes on the way */
    kb_time wire;
    kb_time drain;    /* of the bytes, at the slowest link of each way */
    kb_time queueing; /* behind others */
    uint64_t bytes;
} kb_completion;

/*
 * Requests under way at the same time are not ordered among each other. Each handle is to be freed
 * with kb_request_free() when it is no longer wanted.
 */
KB_API KB_MUST_USE kb_error *kb_request_submit(kb_context *ctx, const kb_message *message,
                                               kb_request *request);

/*
 * Lets simulated time pass until it is done, and at once if it is. A fault of the request, such as
 * an unmapped address, is returned here, every time. `completion` may be NULL.
 */
KB_API KB_MUST_USE kb_error *kb_request_wait(kb_context *ctx, kb_request request,
                                             kb_completion *completion);

/* Whether it is done, without waiting. */
KB_API KB_MUST_USE kb_error *kb_request_test(kb_context *ctx, kb_request request, bool *done);

/* Forgets the handle; the request goes on. Those that are left are freed with the context. Nothing
 * happens if it is 0. */
KB_API KB_MUST_USE kb_error *kb_request_free(kb_context *ctx, kb_request request);

/* Waits for all work under way of the caller. Returns the fault of what failed, if something did.
 */
KB_API KB_MUST_USE kb_error *kb_synchronize(kb_context *ctx);

#ifdef __cplusplus
}
#endif

#endif
