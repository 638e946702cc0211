/*
 * programs.h: what the tests of contexts, requests, workers and groups share: contexts of a small
 * machine, messages, and notes of what happened in which order.
 */
#ifndef TESTS_RT_PROGRAMS_H
#define TESTS_RT_PROGRAMS_H

#include "support/expect.h"
#include "support/temporary.h"

#include <malloc.h>

#include "base/base.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

/* Of something that is done many times, how often where everything takes longer. */
static inline uint64_t fewer_if_slow(uint64_t count)
{
#if defined(KB_ASAN) || defined(KB_TSAN)
    return count / 10 + 1;
#else
    return RUNNING_ON_VALGRIND ? count / 50 + 1 : count;
#endif
}

/* Of a range of cases, every how many-th one where everything takes much longer. */
static inline uint32_t stride_if_slow(uint32_t stride)
{
    return RUNNING_ON_VALGRIND ? stride : 1;
}

/* Of the heap; always the same where that is not to be had. */
static inline size_t bytes_in_use(void)
{
#ifdef KB_ASAN
    return 0;
#else
    return RUNNING_ON_VALGRIND ? 0 : mallinfo2().uordblks;
#endif
}

/* ---- Contexts ---- */

enum { SIPS = 4, CUBES = 2, PES = 4 }; /* of the small machine */

static const char *const small_machine[] = {
    "system.sips.count=4",
    "sip.cube_mesh.w=2",
    "sip.cube_mesh.h=1",
    "cube.noc.w=2",
    "cube.noc.h=2",
    "cube.pe_layout.pe_per_corner=1",
    "ccl.defaults.algorithm=auto",
};

/* The options with the small machine, unless they have one. NULL means the default ones. */
static inline kb_error *try_small(const kb_context_options *options, kb_context **ctx)
{
    kb_context_options chosen = options ? *options : (kb_context_options){0};
    if (!chosen.topology && !chosen.settings) {
        chosen.settings = small_machine;
        chosen.setting_count = sizeof small_machine / sizeof *small_machine;
    }
    return kb_context_create(&chosen, ctx);
}

static inline kb_context *open_small(const kb_context_options *options)
{
    kb_context *ctx;
    expect_ok(try_small(options, &ctx));
    return ctx;
}

/* ---- Messages ---- */

static inline kb_location at(kb_memory memory, uint32_t sip, uint32_t cube, uint32_t pe,
                             uint64_t offset)
{
    return (kb_location){.memory = memory, .pe = {sip, cube, pe}, .offset = offset};
}

static inline kb_location hbm(uint32_t sip, uint64_t offset)
{
    return at(KB_HBM, sip, 0, 0, offset);
}

static inline kb_location virtual_at(uint64_t va)
{
    return at(KB_VIRTUAL, 0, 0, 0, va);
}

static inline kb_message write_to(kb_location to, uint64_t bytes)
{
    return (kb_message){.kind = KB_MEMORY_WRITE, .to = to, .bytes = bytes};
}

static inline kb_message read_from(kb_location from, uint64_t bytes)
{
    return (kb_message){.kind = KB_MEMORY_READ, .from = from, .bytes = bytes};
}

static inline kb_message dma(kb_pe pe, kb_location from, kb_location to, uint64_t bytes)
{
    return (kb_message){.kind = KB_PE_DMA, .pe = pe, .from = from, .to = to, .bytes = bytes};
}

static inline kb_message map_to(kb_pe pe, uint64_t va, kb_location to, uint64_t bytes)
{
    return (kb_message){.kind = KB_MMU_MAP, .pe = pe, .va = va, .to = to, .bytes = bytes};
}

static inline kb_message unmap_from(kb_pe pe, uint64_t va)
{
    return (kb_message){.kind = KB_MMU_UNMAP, .pe = pe, .va = va};
}

/* One that the machine will refuse: nothing is mapped at the address. */
static inline kb_message faulty(uint32_t sip)
{
    return dma((kb_pe){.sip = sip}, virtual_at(0xdead0000), hbm(sip, 0), 64);
}

static inline kb_request submit(kb_context *ctx, kb_message message)
{
    kb_request request;
    expect_ok(kb_request_submit(ctx, &message, &request));
    return request;
}

static inline kb_completion wait_for(kb_context *ctx, kb_request request)
{
    kb_completion completion;
    expect_ok(kb_request_wait(ctx, request, &completion));
    return completion;
}

/* Submits, waits and frees; returns how long it took. */
static inline kb_time carry_out(kb_context *ctx, kb_message message)
{
    kb_request request = submit(ctx, message);
    kb_completion completion = wait_for(ctx, request);
    expect_ok(kb_request_free(ctx, request));
    return completion.ended - completion.issued;
}

static inline bool is_done(kb_context *ctx, kb_request request)
{
    bool done;
    expect_ok(kb_request_test(ctx, request, &done));
    return done;
}

/* A tensor of n bytes at PE 0 of the current device. */
static inline kb_tensor_spec bytes_spec(const char *name, uint64_t n)
{
    return (kb_tensor_spec){.name = name, .dtype = KB_I8, .shape = KB_SHAPE(n)};
}

/* ---- Errors ---- */

/* The message must contain the text. Frees the error. */
static inline void expect_error_about(kb_error *err, kb_code code, const char *text)
{
    if (!strstr(kb_error_message(err), text))
        fail_msg("expected an error about '%s', found '%s'", text, kb_error_message(err));
    assert_int_equal(kb_error_code(err), code);
    kb_error_free(err);
}

/* ---- Notes ---- */

typedef struct notes {
    char text[1 << 16];
    size_t length;
} notes;

static inline void note(notes *n, const char *format, ...) KB_PRINTF(2, 3);

static inline void note(notes *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(n->text + n->length, sizeof n->text - n->length, format, args);
    va_end(args);
    assert_true(length >= 0 && (size_t)length < sizeof n->text - n->length);
    n->length += (size_t)length;
}

static inline void expect_notes(notes *n, const char *text)
{
    assert_string_equal(n->text, text);
    *n = (notes){0};
}

/* Warnings of a context, a line each: its on_warning. */
static inline void note_warning(void *self, const char *line)
{
    note(self, "%s\n", line);
}

#endif
