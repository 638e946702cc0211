/*
 * continuation.c: making continuations.
 */
#include "sim/continuation.h"

#include <stdint.h>

#if KB_CONTEXT_ASM

void kb_start_stack(void); /* start_x86_64.S */

static void make(kb_continuation *context, char *low, size_t bytes, void (*entry)(void *),
                 void *arg)
{
    uintptr_t top = ((uintptr_t)low + bytes) & ~(uintptr_t)15;
    uintptr_t *frame = (uintptr_t *)top - 4;
    frame[0] = (uintptr_t)kb_start_stack;
    frame[1] = (uintptr_t)arg;
    frame[2] = (uintptr_t)entry;
    frame[3] = 0; /* for alignment */
    context->stack_pointer = frame;
}

#else

/* makecontext() passes ints: a pointer goes in two halves. */
static void start(unsigned entry_high, unsigned entry_low, unsigned arg_high, unsigned arg_low)
{
    uintptr_t entry = (uintptr_t)((uint64_t)entry_high << 32 | entry_low);
    uintptr_t arg = (uintptr_t)((uint64_t)arg_high << 32 | arg_low);
    ((void (*)(void *))entry)((void *)arg);
}

static void make(kb_continuation *context, char *low, size_t bytes, void (*entry)(void *),
                 void *arg)
{
    KB_ASSERT(getcontext(&context->ucontext) == 0);
    context->ucontext.uc_stack.ss_sp = low;
    context->ucontext.uc_stack.ss_size = bytes;
    context->ucontext.uc_link = NULL;
    uint64_t entry_bits = (uintptr_t)entry;
    uint64_t arg_bits = (uintptr_t)arg;
    makecontext(&context->ucontext, (void (*)(void))(void *)start, 4, (unsigned)(entry_bits >> 32),
                (unsigned)entry_bits, (unsigned)(arg_bits >> 32), (unsigned)arg_bits);
}

#endif

void kb_continuation_make(kb_continuation *context, void *stack_low, size_t stack_bytes,
                          void (*entry)(void *arg), void *arg)
{
    make(context, stack_low, stack_bytes, entry, arg);
#ifdef KB_ASAN
    context->fake_stack = NULL;
    context->stack_low = stack_low;
    context->stack_bytes = stack_bytes;
#endif
#ifdef KB_TSAN
    context->fibre = __tsan_create_fiber(0);
#endif
}

void kb_continuation_destroy(kb_continuation *context)
{
#ifdef KB_TSAN
    __tsan_destroy_fiber(context->fibre);
#else
    (void)context;
#endif
}
