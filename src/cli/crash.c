/*
 * crash.c: tells a mistake in the user's code from a bug in KernBench when the process gets a
 * signal that ends it, and says how far a run is when it is interrupted or takes long.
 *
 * Signals belong to the process, and a handler has no argument of ours: so the handlers and which
 * simulator each thread runs are state of the process, the one place in KernBench that has any. It
 * is in the program and not in the library, which leaves the signals of its users alone.
 *
 * A coroutine that overflows its stack has none left for the handler, which therefore gets a stack
 * of its own, one a thread. Everything that the handlers call is safe in a signal handler.
 *
 * A debugger sees the signal before the handler does. There is no core dump: the exit status is
 * worth more to a script. What cannot be told apart: a bug in a call that a kernel makes looks like
 * one of the kernel.
 */
#include "crash.h"

#include "base/base.h"
#include "sim/sim.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(KB_ASAN) || defined(KB_TSAN)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { DEFAULT_KIB = 64 }; /* what a stack_bytes of 0 means */

static _Thread_local const kb_sim *watched;
static _Thread_local size_t watched_kib;
static _Thread_local const char *blamed;
static volatile sig_atomic_t progress_is_shown;
static struct timespec progress_began;

/* Of each thread: enough for the kernel to save any registers, and for the handler. */
static _Thread_local char handler_stack[64 * 1024] __attribute__((aligned(16)));

/* ---- Lines ------------------------------------------------------------------------------- */

static const char wipe[] = "\r\033[K";

/* A line to be written at once, so that it stays in one piece. */
typedef struct line {
    char text[512];
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

static void add_digits(line *l, uint64_t number, unsigned base, size_t least)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0 || at + least > sizeof digits - 1);
    add(l, digits + at);
}

static void add_number(line *l, uint64_t number, unsigned base)
{
    add_digits(l, number, base, 1);
}

static void write_text(const char *text, size_t length)
{
    ssize_t written = write(STDERR_FILENO, text, length);
    (void)written; /* there is nobody left to tell */
}

/* Over the line of progress, if there is one. */
static void write_line(line *l)
{
    if (progress_is_shown)
        write_text(wipe, sizeof wipe - 1);
    l->text[l->length++] = '\n';
    write_text(l->text, l->length);
}

/* ---- Where it is ------------------------------------------------------------------------- */

/* "kernel scale on sip0.cube0.pe0" */
static void add_coroutine(line *l, const kb_co *co)
{
    if (kb_co_get_line(co).file)
        add(l, "kernel ");
    add(l, kb_co_name(co));
}

/* "mine.c:27", if a kernel runs. */
static void add_last_line(line *l, const kb_co *co, const char *before)
{
    kb_line at = kb_co_get_line(co);
    if (!at.file)
        return;
    const char *slash = strrchr(at.file, '/');
    add(l, before);
    add(l, slash ? slash + 1 : at.file);
    add(l, ":");
    add_number(l, (uint64_t)at.line, 10);
}

/* "12.345 ns simulated; kernel scale on sip0.cube0.pe0 runs, last seen at mine.c:27" */
static void add_whereabouts(line *l)
{
    kb_time now = kb_sim_now(watched);
    const kb_co *runs = kb_sim_current(watched);
    const kb_co *co = runs ? runs : kb_sim_newest(watched);
    add_number(l, (uint64_t)(now / KB_NS), 10);
    add(l, ".");
    add_digits(l, (uint64_t)(now % KB_NS / KB_PS), 10, 3);
    add(l, " ns simulated");
    if (!kb_sim_is_running(watched)) {
        add(l, "; the host's side of the bench runs");
    } else if (co) {
        add(l, "; ");
        add_coroutine(l, co);
        add(l, runs ? " runs" : " is not done");
        add_last_line(l, co, ", last seen at ");
    }
}

/* ---- Crashes ----------------------------------------------------------------------------- */

static const struct {
    int number;
    const char *name;
    const char *meaning; /* in code of the user's */
} crashes[] = {
    {SIGSEGV, "SIGSEGV",
     "segmentation fault (a mistake in its C code, such as a bad pointer or endless recursion)"},
    {SIGBUS, "SIGBUS", "bus error (a mistake in its C code, such as a bad pointer)"},
    {SIGFPE, "SIGFPE", "arithmetic error (a mistake in its C code, such as dividing by zero)"},
    {SIGILL, "SIGILL", "illegal instruction (a mistake in its C code, such as a missing return)"},
    {SIGABRT, "SIGABRT", "aborted (by abort(), or by an assertion that failed)"},
};
enum { CRASHES = sizeof crashes / sizeof crashes[0] };

static size_t which_crash(int number)
{
    size_t i = 0;
    while (i < CRASHES - 1 && crashes[i].number != number)
        i++;
    return i;
}

static void tell_overflow(const char *name)
{
    line l = {.length = 0};
    add(&l, "kernbench: stack overflow in ");
    add(&l, name);
    add(&l, ": its stack has ");
    add_number(&l, watched_kib, 10);
    add(&l, " KiB; make stacks larger (--stack-bytes), or use less of them");
    write_line(&l);
}

/* Whose code of the user's it is: a coroutine's, or that of the host's side. */
static void add_culprit(line *l, const kb_co *co)
{
    if (co) {
        add_coroutine(l, co);
    } else {
        add(l, "the bench ");
        add(l, blamed);
    }
}

static void tell_mistake(const kb_co *co, const char *meaning)
{
    line l = {.length = 0};
    add(&l, "kernbench: ");
    add_culprit(&l, co);
    add(&l, " crashed: ");
    add(&l, meaning);
    if (co)
        add_last_line(&l, co, "; last seen at ");
    write_line(&l);
}

static void tell_bug(const char *name, const siginfo_t *info)
{
    line l = {.length = 0};
    add(&l, "kernbench: ");
    add(&l, name);
    if (info->si_code > 0) {
        add(&l, " at address 0x");
        add_number(&l, (uintptr_t)info->si_addr, 16);
    }
    add(&l, ": this is a bug in KernBench; please report it, with the command that you ran");
    write_line(&l);
}

static void default_action(int number)
{
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* abort() sends a signal to the process itself. */
static bool was_sent(int number, const siginfo_t *info)
{
    return info->si_code <= 0 && !(number == SIGABRT && info->si_pid == getpid());
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (was_sent(number, info)) {
        default_action(number); /* it means what it means without this handler */
        return;
    }
    bool bad_address = number == SIGSEGV || number == SIGBUS;
    const char *overflown =
        watched && bad_address ? kb_sim_stack_overflow(watched, info->si_addr) : NULL;
    if (overflown) {
        tell_overflow(overflown);
        _exit(KB_ERR_FAULT);
    }
    size_t which = which_crash(number);
    const kb_co *co = watched ? kb_sim_current(watched) : NULL;
    bool simulator = watched && kb_sim_is_running(watched) && !co;
    if (blamed && !simulator) {
        tell_mistake(co, crashes[which].meaning);
        _exit(KB_ERR_FAULT);
    }
    tell_bug(crashes[which].name, info);
    _exit(KB_ERR_BUG);
}

/* The user's code has called exit(): what was printed is not lost. */
static void on_exit_of_user(void)
{
    if (!blamed)
        return;
    const kb_co *co = watched ? kb_sim_current(watched) : NULL;
    line l = {.length = 0};
    fflush(NULL);
    add(&l, "kernbench: ");
    add_culprit(&l, co);
    add(&l, " called exit(): it must return instead");
    write_line(&l);
    _exit(KB_ERR_FAULT);
}

/* ---- Being interrupted, and taking long -------------------------------------------------- */

static void on_interrupt(int number)
{
    if (watched) {
        line l = {.length = 0};
        add(&l, "kernbench: interrupted at ");
        add_whereabouts(&l);
        write_line(&l);
    }
    default_action(number);
}

/* ", 1234 ns a second" */
static void add_rate(line *l)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t passed_s = now.tv_sec - progress_began.tv_sec;
    if (passed_s <= 0)
        return;
    add(l, ", ");
    add_number(l, (uint64_t)(kb_sim_now(watched) / KB_NS / passed_s), 10);
    add(l, " ns a second");
}

static void on_tick(int number)
{
    (void)number;
    if (!watched)
        return;
    line l = {.length = 0};
    add_whereabouts(&l);
    add_rate(&l);
    write_text(wipe, sizeof wipe - 1);
    write_text(l.text, l.length);
    progress_is_shown = 1;
}

void crash_wipe(void)
{
    if (progress_is_shown)
        write_text(wipe, sizeof wipe - 1);
    progress_is_shown = 0;
}

void crash_show_progress(bool on)
{
    if (SANITIZED || isatty(STDERR_FILENO) != 1)
        return;
    struct sigaction action = {.sa_handler = on ? on_tick : SIG_IGN,
                               .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval every = {.it_interval = {.tv_usec = on ? 250000 : 0},
                              .it_value = {.tv_sec = on ? 1 : 0}};
    sigemptyset(&action.sa_mask);
    clock_gettime(CLOCK_MONOTONIC, &progress_began);
    KB_ASSERT(sigaction(SIGALRM, &action, NULL) == 0);
    KB_ASSERT(setitimer(ITIMER_REAL, &every, NULL) == 0);
    if (!on)
        crash_wipe();
}

/* ---- Setting up -------------------------------------------------------------------------- */

static void prepare_thread(void)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    KB_ASSERT(sigaltstack(&stack, NULL) == 0);
}

/* Unless it is ignored, as it is for what runs in the background. */
static void handle_interrupts(void)
{
    struct sigaction old, action = {.sa_handler = on_interrupt, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    KB_ASSERT(sigaction(SIGINT, NULL, &old) == 0);
    if (old.sa_handler == SIG_DFL)
        KB_ASSERT(sigaction(SIGINT, &action, NULL) == 0);
}

bool crash_install(void)
{
    KB_ASSERT(atexit(on_exit_of_user) == 0);
    if (SANITIZED)
        return false;
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CRASHES; i++)
        sigaddset(&action.sa_mask, crashes[i].number); /* a crash in the handler ends all */
    prepare_thread();
    for (size_t i = 0; i < CRASHES; i++)
        KB_ASSERT(sigaction(crashes[i].number, &action, NULL) == 0);
    handle_interrupts();
    return true;
}

void crash_watch(const kb_sim *sim, size_t stack_bytes)
{
    if (!SANITIZED)
        prepare_thread();
    watched_kib = stack_bytes ? (stack_bytes + 1023) / 1024 : DEFAULT_KIB;
    watched = sim;
}

void crash_blame(const char *file)
{
    blamed = file;
}
