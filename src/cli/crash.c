/*
 * crash.c: tells a stack that was too small from a bug, when the process gets SIGSEGV or SIGBUS.
 *
 * Signals belong to the process, and a handler has no argument of ours: so the handler and which
 * simulator each thread runs are state of the process, the one place in KernBench that has any. It
 * is in the program and not in the library, which leaves the signals of its users alone.
 *
 * A coroutine that overflows its stack has none left for the handler, which therefore gets a stack
 * of its own, one a thread. Everything that the handler calls is safe in a signal handler.
 *
 * A debugger sees the signal before the handler does. There is no core dump: the exit status is
 * worth more to a script.
 */
#include "crash.h"

#include "base/base.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#if defined(KB_ASAN) || defined(KB_TSAN)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { DEFAULT_KIB = 64 }; /* what a stack_bytes of 0 means */

static _Thread_local const kb_sim *watched;
static _Thread_local size_t watched_kib;

/* Of each thread: enough for the kernel to save any registers, and for the handler. */
static _Thread_local char handler_stack[64 * 1024] __attribute__((aligned(16)));

/* A line to be written at once, so that it stays in one piece. */
typedef struct line {
    char text[256];
    size_t length;
} line;

static void add(line *l, const char *text)
{
    for (; *text && l->length < sizeof l->text - 1; text++) {
        /* Names are the user's: the line stays one line whatever is in them. */
        bool control = (unsigned char)*text < ' ' || *text == 127;
        l->text[l->length++] = (char)(control ? '?' : *text);
    }
}

static void add_number(line *l, uint64_t number, unsigned base)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    add(l, digits + at);
}

static void write_line(line *l)
{
    l->text[l->length++] = '\n';
    ssize_t written = write(STDERR_FILENO, l->text, l->length);
    (void)written; /* there is nobody left to tell */
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0) {
        /* Somebody sent it with kill(): it means what it means without this handler. */
        (void)signal(number, SIG_DFL);
        (void)raise(number);
        return;
    }
    line l = {.length = 0};
    const char *name = watched ? kb_sim_stack_overflow(watched, info->si_addr) : NULL;
    add(&l, "kernbench: ");
    if (name) {
        add(&l, "stack overflow in ");
        add(&l, name);
        add(&l, ": its stack has ");
        add_number(&l, watched_kib, 10);
        add(&l, " KiB; make stacks larger, or use less of them");
        write_line(&l);
        _exit(KB_ERR_FAULT);
    }
    add(&l, number == SIGBUS ? "SIGBUS" : "SIGSEGV");
    add(&l, " at address 0x");
    add_number(&l, (uintptr_t)info->si_addr, 16);
    add(&l, ": this is a bug in KernBench; please report it, with the command that you ran");
    write_line(&l);
    _exit(KB_ERR_BUG);
}

static void prepare_thread(void)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    KB_ASSERT(sigaltstack(&stack, NULL) == 0);
}

bool crash_install(void)
{
    if (SANITIZED)
        return false;
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGSEGV); /* a crash in the handler ends the process */
    sigaddset(&action.sa_mask, SIGBUS);
    prepare_thread();
    KB_ASSERT(sigaction(SIGSEGV, &action, NULL) == 0);
    KB_ASSERT(sigaction(SIGBUS, &action, NULL) == 0);
    return true;
}

void crash_watch(const kb_sim *sim, size_t stack_bytes)
{
    if (SANITIZED)
        return;
    prepare_thread();
    watched_kib = stack_bytes ? (stack_bytes + 1023) / 1024 : DEFAULT_KIB;
    watched = sim;
}
