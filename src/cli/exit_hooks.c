/*
 * exit_hooks.c: interposes the functions of the C library that end the process or start a thread.
 *
 * The program exports these names, and the dynamic linker finds them before those of the C library.
 * So a bench that calls _exit(0) calls this one, and crash_on_exit_call() reports a fault.
 * Otherwise they call the functions of the C library. Not intercepted: system calls in assembly
 * language, and functions that user code looked up in the C library.
 *
 * A forked process of user code may call all of them. Only the program has this file: in other
 * processes commands run without it.
 */
#include "exit_hooks.h"

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
#include "data/data.h"

#define EXPORTED __attribute__((visibility("default")))

/* The interposed functions. */
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
    memcpy(function, &found, sizeof found); /* C has no cast from object to function pointer */
}

/*
 * Not on the first call: dlsym() waits for a thread that is loading a library, and constructors of
 * that library may wait for the calling thread.
 */
__attribute__((constructor)) static void find_all(void)
{
#define FIND(name) find(#name, &real.name##_);
    EVERY_FUNCTION(FIND)
}

/* Constructors of libraries may call before find_all() has run. */
#define REAL(name) (*(real.name##_ ? real.name##_ : (find_all(), real.name##_)))

/* ---- Exits ------------------------------------------------------------------------------- */

void exit_hooks_exit(int status)
{
    REAL(_exit)(status);
    __builtin_unreachable();
}

EXPORTED void _exit(int status)
{
    crash_on_exit_call("_exit()");
    exit_hooks_exit(status);
}

EXPORTED void _Exit(int status)
{
    crash_on_exit_call("_Exit()");
    exit_hooks_exit(status);
}

EXPORTED void quick_exit(int status)
{
    crash_on_exit_call("quick_exit()");
    REAL(quick_exit)(status);
    __builtin_unreachable();
}

EXPORTED void exit(int status)
{
    /* If a library of the program calls it, a handler of exit() reports it. */
    if (!data_is_loading_library() && crash_is_user_code(__builtin_return_address(0))) {
        fflush(NULL);
        crash_on_exit_call("exit()");
    }
    REAL(exit)(status);
    __builtin_unreachable();
}

static bool is_first_thread(void)
{
    return gettid() == getpid();
}

/* The process would continue without its first thread, and end with status 0. */
EXPORTED void pthread_exit(void *retval)
{
    if (is_first_thread())
        crash_on_exit_call("pthread_exit()");
    REAL(pthread_exit)(retval);
    __builtin_unreachable();
}

/* Ends this process and continues in a child. */
EXPORTED int daemon(int nochdir, int noclose)
{
    crash_on_exit_call("daemon()");
    return REAL(daemon)(nochdir, noclose);
}

static void check_syscall(long number)
{
    if (number == SYS_exit_group || (number == SYS_exit && is_first_thread()))
        crash_on_exit_call("the system call exit");
    if (number == SYS_execve || number == SYS_execveat)
        crash_on_exit_call("the system call execve");
}

EXPORTED long syscall(long sysno, ...)
{
    enum { ARGUMENTS = 6 };
    long a[ARGUMENTS];
    va_list args;
    va_start(args, sysno);
    for (int i = 0; i < ARGUMENTS; i++)
        a[i] = va_arg(args, long); /* NOLINT(clang-analyzer-valist.Uninitialized) */
    va_end(args);
    check_syscall(sysno);
    return REAL(syscall)(sysno, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- exec -------------------------------------------------------------------------------- */

EXPORTED int execve(const char *path, char *const argv[], char *const envp[])
{
    crash_on_exit_call("execve()");
    return REAL(execve)(path, argv, envp);
}

EXPORTED int execv(const char *path, char *const argv[])
{
    crash_on_exit_call("execv()");
    return REAL(execv)(path, argv);
}

EXPORTED int execvp(const char *file, char *const argv[])
{
    crash_on_exit_call("execvp()");
    return REAL(execvp)(file, argv);
}

EXPORTED int execvpe(const char *file, char *const argv[], char *const envp[])
{
    crash_on_exit_call("execvpe()");
    return REAL(execvpe)(file, argv, envp);
}

EXPORTED int fexecve(int fd, char *const argv[], char *const envp[])
{
    crash_on_exit_call("fexecve()");
    return REAL(fexecve)(fd, argv, envp);
}

EXPORTED int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags)
{
    crash_on_exit_call("execveat()");
    return REAL(execveat)(fd, path, argv, envp, flags);
}

/* The analyzer does not see that va_start() was called. */
/* NOLINTBEGIN(clang-analyzer-valist.Uninitialized) */

typedef enum list_call { EXECL, EXECLP, EXECLE } list_call;

static size_t count_words(const char *first, va_list words)
{
    size_t count = 0;
    for (const char *word = first; word; word = va_arg(words, const char *))
        count++;
    return count;
}

/* Calls exec with the arguments of a variadic call, for EXECLE with the environment after NULL. */
static int exec_words(list_call call, const char *path, const char *first, va_list words)
{
    va_list counted;
    va_copy(counted, words);
    char **argv = __builtin_alloca((count_words(first, counted) + 1) * sizeof *argv);
    va_end(counted);
    memcpy(&argv[0], &first, sizeof argv[0]);
    for (size_t i = 0; argv[i]; i++)
        argv[i + 1] = va_arg(words, char *);
    if (call == EXECLE)
        return REAL(execve)(path, argv, va_arg(words, char *const *));
    return call == EXECL ? REAL(execv)(path, argv) : REAL(execvp)(path, argv);
}

EXPORTED int execl(const char *path, const char *arg, ...)
{
    crash_on_exit_call("execl()");
    va_list words;
    va_start(words, arg);
    int result = exec_words(EXECL, path, arg, words);
    va_end(words);
    return result;
}

EXPORTED int execlp(const char *file, const char *arg, ...)
{
    crash_on_exit_call("execlp()");
    va_list words;
    va_start(words, arg);
    int result = exec_words(EXECLP, file, arg, words);
    va_end(words);
    return result;
}

EXPORTED int execle(const char *path, const char *arg, ...)
{
    crash_on_exit_call("execle()");
    va_list words;
    va_start(words, arg);
    int result = exec_words(EXECLE, path, arg, words);
    va_end(words);
    return result;
}

/* NOLINTEND(clang-analyzer-valist.Uninitialized) */

/* ---- Threads of user code ---------------------------------------------------------------- */

#if !defined(KB_ASAN) && !defined(KB_TSAN) /* which interpose these functions themselves */

typedef struct thread_start {
    void *(*fn)(void *);
    int (*int_fn)(void *); /* of thrd_create() */
    void *arg;
} thread_start;

/* Frees `start`. */
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

EXPORTED int pthread_create(pthread_t *newthread, const pthread_attr_t *attr,
                            void *(*start_routine)(void *), void *arg)
{
    if (!crash_is_user_code((const void *)(uintptr_t)start_routine))
        return REAL(pthread_create)(newthread, attr, start_routine, arg);
    thread_start *start = new_start((thread_start){.fn = start_routine, .arg = arg});
    int error = start ? REAL(pthread_create)(newthread, attr, run_thread, start) : EAGAIN;
    if (error != 0)
        free(start);
    return error;
}

EXPORTED int thrd_create(thrd_t *thr, thrd_start_t func, void *arg)
{
    if (!crash_is_user_code((const void *)(uintptr_t)func))
        return REAL(thrd_create)(thr, func, arg);
    thread_start *start = new_start((thread_start){.int_fn = func, .arg = arg});
    int error = start ? REAL(thrd_create)(thr, run_int_thread, start) : thrd_nomem;
    if (error != thrd_success)
        free(start);
    return error;
}

#endif
