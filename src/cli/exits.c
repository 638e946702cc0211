/*
 * exits.c: the calls of the C library that end the process, or begin a thread, as code of the
 * user's sees them.
 *
 * The program exports these names, and the dynamic linker finds them before those of the C library.
 * So a bench that calls _exit(0) comes here, and crash_on_leave() makes a fault of it. Otherwise
 * each does what the C library does. What is not seen here: system calls in assembly language, and
 * functions that the user's code has looked up in the C library itself.
 *
 * A process that the user's code has made with fork() may call all of them.
 */
#include "exits.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include "base/base.h"
#include "crash.h"

#define EXPORTED __attribute__((visibility("default")))

/* The functions that this file hides. */
#define EVERY_FUNCTION(X)                                                                          \
    X(_exit)                                                                                       \
    X(exit)                                                                                        \
    X(quick_exit)                                                                                  \
    X(pthread_exit)                                                                                \
    X(daemon)                                                                                      \
    X(syscall)                                                                                     \
    X(execve)                                                                                      \
    X(execv)                                                                                       \
    X(execvp)                                                                                      \
    X(execvpe)                                                                                     \
    X(fexecve)                                                                                     \
    X(execveat)                                                                                    \
    X(pthread_create)                                                                              \
    X(thrd_create)

#define MEMBER(name) __typeof__(&(name)) name##_;
static struct {
    EVERY_FUNCTION(MEMBER)
} real;

static void find(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    KB_ASSERT(found);
    memcpy(function, &found, sizeof found); /* C has no conversion for this */
}

/*
 * Not when they are first called: dlsym() waits for a thread that loads a library, and the
 * constructors of that library may wait for a thread that makes the call.
 */
__attribute__((constructor)) static void find_all(void)
{
#define FIND(name) find(#name, &real.name##_);
    EVERY_FUNCTION(FIND)
}

/* Constructors of libraries come before those of the program. */
#define REAL(name) (*(real.name##_ ? real.name##_ : (find_all(), real.name##_)))

/* ---- Exits ------------------------------------------------------------------------------- */

void exits_now(int status)
{
    REAL(_exit)(status);
    __builtin_unreachable();
}

EXPORTED void _exit(int status)
{
    crash_on_leave("_exit()");
    exits_now(status);
}

EXPORTED void _Exit(int status)
{
    crash_on_leave("_Exit()");
    exits_now(status);
}

EXPORTED void quick_exit(int status)
{
    crash_on_leave("quick_exit()");
    REAL(quick_exit)(status);
    __builtin_unreachable();
}

EXPORTED void exit(int status)
{
    /* A library of the program may call it, too: then a handler of exit() tells. */
    if (crash_is_user_code(__builtin_return_address(0))) {
        fflush(NULL); /* what was printed is not lost */
        crash_on_leave("exit()");
    }
    REAL(exit)(status);
    __builtin_unreachable();
}

static bool is_first_thread(void)
{
    return gettid() == getpid();
}

/* The process would go on without its first thread, and at last end with status 0. */
EXPORTED void pthread_exit(void *result)
{
    if (is_first_thread())
        crash_on_leave("pthread_exit()");
    REAL(pthread_exit)(result);
    __builtin_unreachable();
}

/* Ends this process, and goes on in another. */
EXPORTED int daemon(int keep_directory, int keep_descriptors)
{
    crash_on_leave("daemon()");
    return REAL(daemon)(keep_directory, keep_descriptors);
}

static void check_syscall(long number)
{
    if (number == SYS_exit_group || (number == SYS_exit && is_first_thread()))
        crash_on_leave("the system call exit");
    if (number == SYS_execve || number == SYS_execveat)
        crash_on_leave("the system call execve");
}

EXPORTED long syscall(long number, ...)
{
    enum { ARGUMENTS = 6 };
    long a[ARGUMENTS];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < ARGUMENTS; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    check_syscall(number);
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- Becoming another program ------------------------------------------------------------ */

EXPORTED int execve(const char *path, char *const argv[], char *const envp[])
{
    crash_on_leave("execve()");
    return REAL(execve)(path, argv, envp);
}

EXPORTED int execv(const char *path, char *const argv[])
{
    crash_on_leave("execv()");
    return REAL(execv)(path, argv);
}

EXPORTED int execvp(const char *file, char *const argv[])
{
    crash_on_leave("execvp()");
    return REAL(execvp)(file, argv);
}

EXPORTED int execvpe(const char *file, char *const argv[], char *const envp[])
{
    crash_on_leave("execvpe()");
    return REAL(execvpe)(file, argv, envp);
}

EXPORTED int fexecve(int descriptor, char *const argv[], char *const envp[])
{
    crash_on_leave("fexecve()");
    return REAL(fexecve)(descriptor, argv, envp);
}

EXPORTED int execveat(int directory, const char *path, char *const argv[], char *const envp[],
                      int flags)
{
    crash_on_leave("execveat()");
    return REAL(execveat)(directory, path, argv, envp, flags);
}

static size_t count_words(const char *first, va_list args)
{
    size_t count = 0;
    for (const char *word = first; word; word = va_arg(args, const char *))
        count++;
    return count;
}

/* Makes `argv` of the words of a variadic call, up to and with NULL; `rest` is behind them. */
#define COLLECT(argv, first, rest)                                                                 \
    va_list rest;                                                                                  \
    va_start(rest, first);                                                                         \
    char **argv = __builtin_alloca((count_words(first, rest) + 1) * sizeof *argv);                 \
    va_end(rest);                                                                                  \
    va_start(rest, first);                                                                         \
    memcpy(&argv[0], &(first), sizeof argv[0]);                                                    \
    for (size_t i = 0; argv[i]; i++)                                                               \
    argv[i + 1] = va_arg(rest, char *)

EXPORTED int execl(const char *path, const char *first, ...)
{
    crash_on_leave("execl()");
    COLLECT(argv, first, rest);
    va_end(rest);
    return execv(path, argv);
}

EXPORTED int execlp(const char *file, const char *first, ...)
{
    crash_on_leave("execlp()");
    COLLECT(argv, first, rest);
    va_end(rest);
    return execvp(file, argv);
}

EXPORTED int execle(const char *path, const char *first, ...)
{
    crash_on_leave("execle()");
    COLLECT(argv, first, rest);
    char *const *envp = va_arg(rest, char *const *);
    va_end(rest);
    return execve(path, argv, envp);
}

/* ---- Threads of the user's --------------------------------------------------------------- */

#if !defined(KB_ASAN) && !defined(KB_TSAN) /* which have their own */

typedef struct thread_start {
    void *(*fn)(void *);
    int (*int_fn)(void *); /* of thrd_create() */
    void *arg;
} thread_start;

/* Takes the start over. */
static thread_start begin(void *start)
{
    thread_start s = *(thread_start *)start;
    free(start);
    crash_begin_thread();
    return s;
}

static void *run_thread(void *start)
{
    thread_start s = begin(start);
    return s.fn(s.arg);
}

static int run_int_thread(void *start)
{
    thread_start s = begin(start);
    return s.int_fn(s.arg);
}

static thread_start *new_start(thread_start s)
{
    thread_start *start = malloc(sizeof *start);
    if (start)
        *start = s;
    return start;
}

EXPORTED int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                            void *arg)
{
    if (!crash_is_user_code((const void *)(uintptr_t)fn))
        return REAL(pthread_create)(thread, attr, fn, arg);
    thread_start *start = new_start((thread_start){.fn = fn, .arg = arg});
    int error = start ? REAL(pthread_create)(thread, attr, run_thread, start) : EAGAIN;
    if (error != 0)
        free(start);
    return error;
}

EXPORTED int thrd_create(thrd_t *thread, thrd_start_t fn, void *arg)
{
    if (!crash_is_user_code((const void *)(uintptr_t)fn))
        return REAL(thrd_create)(thread, fn, arg);
    thread_start *start = new_start((thread_start){.int_fn = fn, .arg = arg});
    int error = start ? REAL(thrd_create)(thread, run_int_thread, start) : thrd_nomem;
    if (error != thrd_success)
        free(start);
    return error;
}

#endif
