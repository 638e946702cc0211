/*
 * start_x86_64.S: where a new stack begins, in the System V calling convention for x86-64.
 * kb_continuation_make() has put an argument and a function on it; the function must not return.
 */
#if defined(__x86_64__) && !defined(KB_UCONTEXT)

        .text
        .globl  kb_start_stack
        .hidden kb_start_stack
        .type   kb_start_stack, @function
        .balign 16
kb_start_stack:
        .cfi_startproc
        .cfi_undefined %rip             /* a backtrace ends here */
        popq    %rdi
        popq    %rax
        xorl    %ebp, %ebp
        pushq   %rbp                    /* the stack is aligned to 16 before a call */
        call    *%rax
        ud2
        .cfi_endproc
        .size   kb_start_stack, . - kb_start_stack

#endif

        .section .note.GNU-stack, "", @progbits
