/*
 * crash.c: signal handlers that distinguish errors of user code from bugs of KernBench, and report
 * the progress of a run that is interrupted or takes long.
 *
 * Signals belong to the process, and handlers have no argument: the handlers and the simulator of
 * each thread are process-wide state. It is in the program, not in the library, which does not
 * touch the signals of its users.
 *
 * A coroutine that overflowed its stack has no room for the handler, which runs on an alternate
 * stack of each thread. The handlers are async-signal-safe.
 *
 * A debugger gets the signal before the handler. There is no core dump, as scripts need the exit
 * status. Limitation: a bug in a function of KernBench that a kernel calls looks like an error of
 * the kernel.
 *
 * User code may run in its own threads, in constructors and destructors of its library and in
 * handlers of exit(). So it is known from before the library is loaded until the process ends
 * whether there is user code, and main() reports the end of its own work: ending the process before
 * is a failure. exit_hooks.c has the functions that end it.
 */
#include "crash.h"

#include "base/base.h"
#include "data/data.h"
#include "sim/sim.h"

#include <fenv.h>
#include <limits.h>
#include <link.h>
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "descriptors.h"

#if defined(KB_ASAN) || defined(KB_TSAN)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { DEFAULT_KIB = 64 }; /* for a stack_bytes of 0 */

static _Thread_local const kb_sim *watched;
static _Thread_local size_t watched_kib;
static _Thread_local const char *running_file; /* of the user code that runs; NULL: none */
static _Thread_local bool is_thread_of_user;
static char user_file[256]; /* the first user file that was loaded; "": none */
static pid_t main_process;  /* 0: not installed */
static void (*exit_now)(int status) = _exit;
static volatile sig_atomic_t main_is_done;
static int main_status;
static volatile sig_atomic_t progress_is_shown;
static struct timespec progress_began;

/* Large enough for all registers that the kernel saves, and for the handler. */
static _Thread_local char handler_stack[64 * 1024] __attribute__((aligned(16)));

/* ---- Lines ------------------------------------------------------------------------------- */

static const char wipe[] = "\r\033[K";

/* A line that is written with one call. */
typedef struct line {
    char text[512];
    size_t length;
} line;

/* Ends the process without handlers of exit(). */
static KB_NORETURN void leave(int status)
{
    exit_now(status);
    __builtin_unreachable();
}

static void add(line *l, const char *text)
{
    for (; *text && l->length < sizeof l->text - 1; text++) {
        /* Names are the user's and may contain control characters. */
        bool control = (unsigned char)*text < ' ' || *text == 127;
        l->text[l->length++] = (char)(control ? '?' : *text);
    }
}

static void add_digits(line *l, uint64_t number, unsigned base, size_t min_digits)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0 || at + min_digits > sizeof digits - 1);
    add(l, digits + at);
}

static void add_number(line *l, uint64_t number, unsigned base)
{
    add_digits(l, number, base, 1);
}

static void write_text(const char *text, size_t length)
{
    ssize_t written = write(STDERR_FILENO, text, length);
    (void)written; /* a failure cannot be reported */
}

/* Replaces the line of progress, if there is one. */
static void write_line(line *l)
{
    if (progress_is_shown)
        write_text(wipe, sizeof wipe - 1);
    l->text[l->length++] = '\n';
    write_text(l->text, l->length);
}

/* ---- Progress of the run ------------------------------------------------------------------- */

/* "kernel scale on sip0.cube0.pe0" */
static void add_coroutine(line *l, const kb_co *co)
{
    if (kb_co_get_line(co).file)
        add(l, "kernel ");
    add(l, kb_co_name(co));
}

/* "mine.c:27", if the coroutine is a kernel. */
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
static void add_position(line *l)
{
    kb_time now = kb_sim_now(watched);
    const kb_co *runs = kb_sim_current(watched);
    const kb_co *co = runs ? runs : kb_sim_newest(watched);
    add_number(l, (uint64_t)(now / KB_NS), 10);
    add(l, ".");
    add_digits(l, (uint64_t)(now % KB_NS / KB_PS), 10, 3);
    add(l, " ns simulated");
    if (!kb_sim_is_running(watched)) {
        add(l, "; host program running");
    } else if (co) {
        add(l, "; ");
        add_coroutine(l, co);
        add(l, runs ? " runs" : " is not done");
        add_last_line(l, co, ", last seen at ");
    }
}

/* Loading OpenBLAS without memory ends in exit() or in an endless recursion of its dependencies. */
static KB_NORETURN void fail_loading(void)
{
    line l = {.length = 0};
    add(&l, "kernbench: cannot load OpenBLAS: out of memory");
    write_line(&l);
    cleanup_remove(SIGTERM);
    leave(KB_ERR_HOST);
}

/* ---- Crashes ----------------------------------------------------------------------------- */

static const struct {
    int number;
    const char *name;
    const char *meaning; /* in user code */
} crashes[] = {
    {SIGSEGV, "SIGSEGV",
     "segmentation fault (an error in its C code, such as a bad pointer or endless recursion)"},
    {SIGBUS, "SIGBUS", "bus error (an error in its C code, such as a bad pointer)"},
    {SIGFPE, "SIGFPE", "arithmetic error (an error in its C code, such as dividing by zero)"},
    {SIGILL, "SIGILL", "illegal instruction (an error in its C code, such as a missing return)"},
    {SIGABRT, "SIGABRT", "aborted (by abort() or a failed assertion)"},
};
enum { CRASHES = sizeof crashes / sizeof crashes[0] };

static size_t which_crash(int number)
{
    size_t i = 0;
    while (i < CRASHES - 1 && crashes[i].number != number)
        i++;
    return i;
}

static void report_overflow(const char *name)
{
    line l = {.length = 0};
    add(&l, "kernbench: stack overflow in ");
    add(&l, name);
    add(&l, ": its stack has ");
    add_number(&l, watched_kib, 10);
    add(&l, " KiB; increase --stack-bytes, or use less stack");
    write_line(&l);
}

/* The part of the user code: a coroutine, a thread, or the host program. */
static void add_user_code(line *l, const kb_co *co)
{
    if (co) {
        add_coroutine(l, co);
        return;
    }
    add(l, is_thread_of_user ? "a thread of the bench " : "the bench ");
    add(l, running_file ? running_file : user_file);
    if (main_is_done)
        add(l, ", in a destructor or a handler of exit(),");
}

/* With the status of the run if that failed before. */
static KB_NORETURN void exit_with_fault(void)
{
    cleanup_remove(SIGTERM);
    leave(main_is_done && main_status != 0 ? main_status : KB_ERR_FAULT);
}

static void report_user_crash(const kb_co *co, const char *meaning)
{
    line l = {.length = 0};
    add(&l, "kernbench: ");
    add_user_code(&l, co);
    add(&l, " crashed: ");
    add(&l, meaning);
    if (co)
        add_last_line(&l, co, "; last seen at ");
    write_line(&l);
}

static void report_bug(const char *name, const siginfo_t *info)
{
    line l = {.length = 0};
    add(&l, "kernbench: ");
    add(&l, name);
    if (info->si_code > 0) {
        add(&l, " at address 0x");
        add_number(&l, (uintptr_t)info->si_addr, 16);
    }
    if (user_file[0] != '\0') {
        add(&l, ": unless ");
        add(&l, user_file);
        add(&l, " corrupted the memory of the program,");
    } else {
        add(&l, ":");
    }
    add(&l, " this is a bug in KernBench; please report it with the command line");
    write_line(&l);
}

/* The handler itself crashed, as the memory that it reads is corrupted. */
static KB_NORETURN void exit_with_corruption(const char *name)
{
    bool is_of_user = user_file[0] != '\0';
    line l = {.length = 0};
    add(&l, "kernbench: ");
    add(&l, name);
    if (is_of_user) {
        add(&l, ": ");
        add(&l, user_file);
        add(&l, " corrupted the memory of the program (an error in its C code, such as an invalid "
                "free)");
    } else {
        add(&l, ": this is a bug in KernBench; please report it with the command line");
    }
    write_line(&l);
    cleanup_remove(SIGTERM);
    leave(is_of_user ? KB_ERR_FAULT : KB_ERR_BUG);
}

static void default_action(int number)
{
    bool is_for_compilers = number == SIGINT || number == SIGHUP;
    cleanup_remove(is_for_compilers ? number : SIGTERM);
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
        default_action(number); /* as without this handler */
        return;
    }
    static _Thread_local volatile sig_atomic_t depth; /* 1: in this handler */
    if (depth > 0)
        exit_with_corruption(crashes[which_crash(number)].name);
    depth = 1;
    if (data_is_loading_library())
        fail_loading();
    bool bad_address = number == SIGSEGV || number == SIGBUS;
    const char *overflown =
        watched && bad_address ? kb_sim_stack_overflow(watched, info->si_addr) : NULL;
    if (overflown) {
        report_overflow(overflown);
        exit_with_fault();
    }
    size_t which = which_crash(number);
    const kb_co *co = watched ? kb_sim_current(watched) : NULL;
    bool simulator = watched && kb_sim_is_running(watched) && !co;
    bool at_exit = main_is_done && user_file[0] != '\0';
    if ((running_file || at_exit) && !simulator) {
        report_user_crash(co, crashes[which].meaning);
        exit_with_fault();
    }
    report_bug(crashes[which].name, info);
    cleanup_remove(SIGTERM);
    leave(KB_ERR_BUG);
}

/* ---- User code that ends the process ----------------------------------------------------- */

static bool is_main_process(void)
{
    return getpid() == main_process;
}

void crash_on_exit_call(const char *function)
{
    if (user_file[0] == '\0' || !is_main_process())
        return; /* a forked process may end as it likes */
    const kb_co *co = watched ? kb_sim_current(watched) : NULL;
    line l = {.length = 0};
    add(&l, "kernbench: ");
    add_user_code(&l, co);
    add(&l, " called ");
    add(&l, function);
    add(&l, ": it must return instead");
    write_line(&l);
    exit_with_fault();
}

/*
 * exit() was called before main() returned: output is flushed, and the call reported. Or by a
 * handler of exit(), afterwards, which must not change the status.
 */
static void on_exit_call(int status, void *arg)
{
    (void)arg;
    if (!is_main_process() || (main_is_done && status == main_status))
        return;
    fflush(NULL);
    if (data_is_loading_library())
        fail_loading();
    crash_on_exit_call("exit()");
    line l = {.length = 0};
    add(&l, "kernbench: a library called exit() during the run");
    write_line(&l);
    cleanup_remove(SIGTERM);
    leave(KB_ERR_HOST);
}

int crash_finish(int status)
{
    main_status = status;
    main_is_done = 1;
    cleanup_remove(SIGTERM);
    return status;
}

void crash_exit(int status)
{
    cleanup_remove(SIGTERM);
    leave(status);
}

/* ---- Interrupts and progress ------------------------------------------------------------- */

static void on_interrupt(int number)
{
    bool is_asked_for = number == SIGINT || number == SIGTERM || number == SIGHUP;
    if (watched && is_asked_for) {
        line l = {.length = 0};
        add(&l, "kernbench: interrupted at ");
        add_position(&l);
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
    add_position(&l);
    add_rate(&l);
    write_text(wipe, sizeof wipe - 1);
    write_text(l.text, l.length);
    progress_is_shown = 1;
}

void crash_clear_progress(void)
{
    if (progress_is_shown)
        write_text(wipe, sizeof wipe - 1);
    progress_is_shown = 0;
}

void crash_show_progress(bool on)
{
    if (SANITIZED || main_process == 0 || isatty(STDERR_FILENO) != 1)
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
        crash_clear_progress();
}

/* ---- Setting up -------------------------------------------------------------------------- */

static char first_directory[PATH_MAX]; /* "": not known */

/* Resets what user code may have changed: locale, rounding mode and current directory. */
static void reset_environment(void)
{
    static locale_t plain;
    if (!plain)
        plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain)
        (void)uselocale(plain);
    (void)fesetenv(FE_DFL_ENV);
    if (first_directory[0] != '\0' && chdir(first_directory) != 0)
        first_directory[0] = '\0';
}

static void prepare_thread(void)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    KB_ASSERT(sigaltstack(&stack, NULL) == 0);
}

/*
 * Handles all signals that end a process, to remove temporary files; not those that are ignored, as
 * SIGINT is in background processes. Exceeding the limit of file sizes is an error of write().
 */
static void handle_interrupts(void)
{
    static const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,   SIGALRM, SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGXCPU, SIGVTALRM, SIGPROF, SIGPOLL};
    struct sigaction old, action = {.sa_handler = on_interrupt};
    action.sa_flags = SANITIZED ? 0 : SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        KB_ASSERT(sigaction(numbers[i], NULL, &old) == 0);
        if (old.sa_handler == SIG_DFL)
            KB_ASSERT(sigaction(numbers[i], &action, NULL) == 0);
    }
    (void)signal(SIGXFSZ, SIG_IGN);
}

bool crash_install(void (*exit_function)(int status))
{
    exit_now = exit_function;
    main_process = getpid();
    if (!getcwd(first_directory, sizeof first_directory))
        first_directory[0] = '\0';
    reset_environment();
    KB_ASSERT(on_exit(on_exit_call, NULL) == 0);
    handle_interrupts();
    if (SANITIZED)
        return false;
    struct sigaction action = {.sa_sigaction = on_crash,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    prepare_thread();
    for (size_t i = 0; i < CRASHES; i++)
        KB_ASSERT(sigaction(crashes[i].number, &action, NULL) == 0);
    return true;
}

void crash_enter_child(void)
{
    cleanup_forget();
    if (main_process == 0)
        return;
    main_process = getpid();
    descriptors_adopt();
}

void crash_watch(const kb_sim *sim, size_t stack_bytes)
{
    if (!SANITIZED && main_process != 0)
        prepare_thread();
    watched_kib = stack_bytes ? (stack_bytes + 1023) / 1024 : DEFAULT_KIB;
    watched = sim;
}

/* ---- User code --------------------------------------------------------------------------- */

/* The code of the program and of its libraries: all other code is user code. */
enum { MAX_OBJECTS = 64 };
static struct {
    uintptr_t start, end;
} objects[MAX_OBJECTS];
static size_t object_count;

static int note_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        start = from < start ? from : start;
        end = from + part->p_memsz > end ? from + part->p_memsz : end;
    }
    if (object_count < MAX_OBJECTS) {
        objects[object_count].start = start;
        objects[object_count++].end = end;
    }
    return 0;
}

void crash_note_user_file(const char *file)
{
    if (main_process == 0 || user_file[0] != '\0')
        return;
    (void)dl_iterate_phdr(note_object, NULL);
    snprintf(user_file, sizeof user_file, "%s", file);
}

bool crash_is_user_code(const void *address)
{
    if (user_file[0] == '\0')
        return false;
    for (size_t i = 0; i < object_count; i++)
        if ((uintptr_t)address >= objects[i].start && (uintptr_t)address < objects[i].end)
            return false;
    return true;
}

void crash_begin_thread(void)
{
    running_file = user_file;
    is_thread_of_user = true;
    if (!SANITIZED)
        prepare_thread();
}

static void check_after_user_code(void)
{
    static const char *const names[] = {"stdin", "stdout", "stderr"};
    reset_environment();
    int replaced = descriptors_replaced();
    if (is_main_process() && replaced == 0)
        return;
    line l = {.length = 0};
    add(&l, "kernbench: the bench ");
    add(&l, running_file);
    if (!is_main_process()) {
        add(&l, " returned in a forked process, which must end with _exit()");
    } else {
        add(&l, " closed or replaced ");
        add(&l, names[replaced]);
        add(&l, ": it must stay open and unchanged");
    }
    write_line(&l);
    exit_with_fault();
}

void crash_enter_user_code(const char *file)
{
    running_file = file;
}

void crash_leave_user_code(void)
{
    if (running_file && main_process != 0)
        check_after_user_code();
    running_file = NULL;
}
