/*
 * continuation.h: where a suspended computation continues. Private to sim.
 *
 * On x86-64 it is a stack pointer; elsewhere, and with KB_UCONTEXT, it is a ucontext_t. The
 * floating point control words are not switched. Sanitizers are told of each switch.
 *
 * Switching is inlined, and goes on with a jump. A processor predicts where returns go by counting
 * calls, which a change of stacks confounds: each call on the way to a switch would cost a
 * misprediction on the way back.
 */
#ifndef KB_SIM_CONTINUATION_H
#define KB_SIM_CONTINUATION_H

#include <stddef.h>

#include "base/base.h"

#if defined(__x86_64__) && !defined(KB_UCONTEXT)
#define KB_CONTEXT_ASM 1
#else
#define KB_CONTEXT_ASM 0
#include <ucontext.h>
#endif

#ifdef KB_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef KB_TSAN
#include <sanitizer/tsan_interface.h>
#endif

typedef struct kb_continuation {
#if KB_CONTEXT_ASM
    void *stack_pointer; /* C3: the stack has the address to go on at, then rbx and rbp */
#else
    ucontext_t ucontext;
#endif
#ifdef KB_ASAN
    void *fake_stack;
    const void *stack_low;
    size_t stack_bytes;
#endif
#ifdef KB_TSAN
    void *fibre;
#endif
} kb_continuation;

/* entry(arg) runs when it is first switched to, on the given stack; it must never return. */
void kb_continuation_make(kb_continuation *context, void *stack_low, size_t stack_bytes,
                          void (*entry)(void *arg), void *arg);

/* Gives back what one made with kb_continuation_make() holds. Not on its own stack. */
void kb_continuation_destroy(kb_continuation *context);

#if KB_CONTEXT_ASM

#ifdef __AVX512F__
#define KB_AVX512_CLOBBERS                                                                         \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",    \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5",  \
        "k6", "k7"
#else
#define KB_AVX512_CLOBBERS
#endif

static inline void kb_continuation_jump(kb_continuation *from, kb_continuation *to)
{
    /*
     * All registers that can be named as clobbered are, so the compiler saves what it still needs;
     * rbp and rbx, which it may reserve, are saved here. The first instruction steps over the red
     * zone, in which the function around this may keep variables.
     */
    __asm__ volatile("leaq   -128(%%rsp), %%rsp\n\t"
                     "pushq  %%rbp\n\t"
                     "pushq  %%rbx\n\t"
                     "leaq   1f(%%rip), %%rax\n\t"
                     "pushq  %%rax\n\t"
                     "movq   %%rsp, (%%rdi)\n\t"
                     "movq   (%%rsi), %%rsp\n\t"
                     "popq   %%rax\n\t"
                     "jmp    *%%rax\n"
                     "1:\n\t"
                     "popq   %%rbx\n\t"
                     "popq   %%rbp\n\t"
                     "leaq   128(%%rsp), %%rsp\n\t"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "st", "st(1)",
                       "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "memory",
                       "cc" KB_AVX512_CLOBBERS);
}

#else

static inline void kb_continuation_jump(kb_continuation *from, kb_continuation *to)
{
    KB_ASSERT(swapcontext(&from->ucontext, &to->ucontext) == 0);
}

#endif

/*
 * Goes on at `to`, and returns when `from` is switched to. That must be `to` itself, or
 * something that goes on at `to`: they are entered and left like calls.
 */
static inline void kb_continuation_switch(kb_continuation *from, kb_continuation *to)
{
#ifdef KB_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_low, to->stack_bytes);
#endif
#ifdef KB_TSAN
    from->fibre = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->fibre, 0);
#endif
    kb_continuation_jump(from, to);
#ifdef KB_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, &to->stack_low, &to->stack_bytes);
#endif
}

/* To be called first in a new one: `from` is what was switched from. */
static inline void kb_continuation_entered(kb_continuation *from)
{
#ifdef KB_ASAN
    __sanitizer_finish_switch_fiber(NULL, &from->stack_low, &from->stack_bytes);
#else
    (void)from;
#endif
}

/* Like a switch that will not come back. */
__attribute__((noreturn)) static inline void kb_continuation_leave(kb_continuation *from,
                                                                   kb_continuation *to)
{
#ifdef KB_ASAN
    __sanitizer_start_switch_fiber(NULL, to->stack_low, to->stack_bytes);
#endif
#ifdef KB_TSAN
    __tsan_switch_to_fiber(to->fibre, 0);
#endif
    kb_continuation_jump(from, to);
    __builtin_unreachable();
}

#endif
