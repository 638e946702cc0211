/*
 * acts.h: what code of a user's may do to the process that it runs in. The environment says which
 * of them is done, and where: HOSTILE_ACT names the act and HOSTILE_PLACE the place.
 *
 *     ACT(NAME, STATUS, "WORDS")
 *
 * is an act, with the exit status of the program (an S before it: the signal that ends it) and
 * words on stderr. hostile.py reads these lines; it knows the places where the outcome differs.
 */
#ifndef HOSTILE_ACTS_H
#define HOSTILE_ACTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <err.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#define ACT(name, status, words) static void act_##name(void)

static char *const true_argv[] = {"true", NULL};
static char *const no_environment[] = {NULL};

/* Keeps the compiler from seeing through a mistake. */
static volatile int zero;
static int *volatile nowhere;
static volatile int depth;

/* ---- Leaving ---- */

ACT(exit, 3, "called exit(): it must return instead")
{
    exit(0);
}

ACT(_exit, 3, "called _exit(): it must return instead")
{
    _exit(0);
}

ACT(_Exit, 3, "called _Exit(): it must return instead")
{
    _Exit(0);
}

ACT(quick_exit, 3, "called quick_exit(): it must return instead")
{
    quick_exit(0);
}

ACT(errx, 3, "called exit(): it must return instead")
{
    errx(0, "leaving");
}

ACT(exit_group, 3, "called the system call exit: it must return instead")
{
    syscall(SYS_exit_group, 0);
}

ACT(raw_exit, 3, "called the system call exit: it must return instead")
{
    syscall(SYS_exit, 0);
}

ACT(pthread_exit, 3, "called pthread_exit(): it must return instead")
{
    pthread_exit(NULL);
}

ACT(daemon, 3, "called daemon(): it must return instead")
{
    (void)!daemon(1, 1);
}

ACT(execve, 3, "called execve(): it must return instead")
{
    execve("/bin/true", true_argv, no_environment);
}

ACT(execv, 3, "called execv(): it must return instead")
{
    execv("/bin/true", true_argv);
}

ACT(execvp, 3, "called execvp(): it must return instead")
{
    execvp("true", true_argv);
}

ACT(execl, 3, "called execl(): it must return instead")
{
    execl("/bin/true", "true", (char *)NULL);
}

ACT(raw_execve, 3, "called the system call execve: it must return instead")
{
    syscall(SYS_execve, "/bin/true", true_argv, no_environment);
}

static void *leave_in_thread(void *arg)
{
    (void)arg;
    _exit(0);
}

/* Another thread ends the process while this one waits. */
ACT(thread_leaves, 3, "called _exit(): it must return instead")
{
    pthread_t thread;
    pthread_create(&thread, NULL, leave_in_thread, NULL);
    pthread_join(thread, NULL);
}

/* ---- Signals ---- */

ACT(raise_term, S15, "")
{
    raise(SIGTERM);
}

ACT(raise_hup, S1, "")
{
    raise(SIGHUP);
}

ACT(raise_kill, S9, "")
{
    raise(SIGKILL);
}

ACT(raise_usr1, S10, "")
{
    raise(SIGUSR1);
}

ACT(raise_alarm, S14, "")
{
    raise(SIGALRM);
}

ACT(raise_segv, S11, "")
{
    raise(SIGSEGV);
}

/* ---- Crashes ---- */

ACT(null_pointer, 3, "crashed: segmentation fault")
{
    *nowhere = 1;
}

ACT(divide, 3, "crashed: arithmetic error")
{
    depth = 5 / zero;
}

ACT(trap, 3, "crashed: illegal instruction")
{
    __builtin_trap();
}

ACT(abort, 3, "crashed: aborted")
{
    abort();
}

ACT(double_free, 3, "crashed: aborted")
{
    char *volatile block = malloc(100);
    free(block);
    free(block);
}

static int recurse(volatile char *above)
{
    volatile char frame[1000];
    frame[0] = above[0];
    depth++;
    if (frame[0] != above[0]) /* never */
        return 0;
    return recurse(frame) + frame[0];
}

ACT(recurse, 3, "")
{
    volatile char top[1] = {0};
    depth = recurse(top);
}

static void *crash_in_thread(void *arg)
{
    (void)arg;
    *nowhere = 1;
    return NULL;
}

ACT(thread_crashes, 3, "a thread of the bench ")
{
    pthread_t thread;
    pthread_create(&thread, NULL, crash_in_thread, NULL);
    pthread_join(thread, NULL);
}

static int crash_in_c11_thread(void *arg)
{
    (void)arg;
    abort();
}

ACT(c11_thread_crashes, 3, "a thread of the bench ")
{
    thrd_t thread;
    thrd_create(&thread, crash_in_c11_thread, NULL);
    thrd_join(thread, NULL);
}

/* ---- Descriptors ---- */

ACT(fclose_stdout, 3, "closed or replaced stdout: it must stay open and unchanged")
{
    fclose(stdout);
}

ACT(close_stdout, 3, "closed or replaced stdout: it must stay open and unchanged")
{
    close(1);
}

ACT(close_stderr, 3, "")
{
    close(2);
}

ACT(close_all, 3, "")
{
    for (int i = 0; i < 100; i++)
        close(i);
}

ACT(replace_stdout, 3, "closed or replaced stdout: it must stay open and unchanged")
{
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    close(null);
}

ACT(assign_stdout, 3, "closed or replaced stdout: it must stay open and unchanged")
{
    stdout = stderr;
}

ACT(borrow_stdout, 0, "")
{
    int saved = dup(1), null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(saved, 1);
    close(saved);
    close(null);
}

/* ---- The state of the process ---- */

ACT(chdir, 0, "")
{
    (void)!chdir("/");
}

ACT(locale, 0, "")
{
    /* The first of these that the host has writes 1,5. */
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_ALL, names[i]))
            return;
}

ACT(rounding, 3, "the program has changed the rounding mode")
{
    fesetround(FE_UPWARD);
}

ACT(ignore_signals, 0, "")
{
    for (int i = 1; i < 32; i++)
        signal(i, SIG_IGN);
}

ACT(block_signals, 0, "")
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

ACT(close_stdin, 0, "")
{
    close(0);
}

/* ---- Processes and threads that are the user's business ---- */

ACT(child_leaves, 0, "")
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

ACT(child_becomes_another, 0, "")
{
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
}

/* The child goes on as if it were the program; the program itself waits for it. */
ACT(child_returns, 0, "")
{
    pid_t child = fork();
    if (child > 0)
        waitpid(child, NULL, 0);
}

ACT(system, 0, "")
{
    (void)!system("exit 3");
}

static void *run_on(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

ACT(detached_thread, 0, "")
{
    pthread_t thread;
    pthread_create(&thread, NULL, run_on, NULL);
    pthread_detach(thread);
}

ACT(nothing, 0, "")
{
}

/* ---- Choosing ---- */

static const struct {
    const char *name;
    void (*fn)(void);
} acts[] = {
#define LIST(name)                                                                                 \
    {                                                                                              \
#name, act_##name                                                                          \
    }
    LIST(exit),
    LIST(_exit),
    LIST(_Exit),
    LIST(quick_exit),
    LIST(errx),
    LIST(exit_group),
    LIST(raw_exit),
    LIST(pthread_exit),
    LIST(daemon),
    LIST(execve),
    LIST(execv),
    LIST(execvp),
    LIST(execl),
    LIST(raw_execve),
    LIST(thread_leaves),
    LIST(raise_term),
    LIST(raise_hup),
    LIST(raise_kill),
    LIST(raise_usr1),
    LIST(raise_alarm),
    LIST(raise_segv),
    LIST(null_pointer),
    LIST(divide),
    LIST(trap),
    LIST(abort),
    LIST(double_free),
    LIST(recurse),
    LIST(thread_crashes),
    LIST(c11_thread_crashes),
    LIST(fclose_stdout),
    LIST(close_stdout),
    LIST(close_stderr),
    LIST(close_all),
    LIST(replace_stdout),
    LIST(assign_stdout),
    LIST(borrow_stdout),
    LIST(chdir),
    LIST(locale),
    LIST(rounding),
    LIST(ignore_signals),
    LIST(block_signals),
    LIST(close_stdin),
    LIST(child_leaves),
    LIST(child_becomes_another),
    LIST(child_returns),
    LIST(system),
    LIST(detached_thread),
    LIST(nothing),
};

/* Does the act if this is its place. */
static void act_at(const char *place)
{
    const char *name = getenv("HOSTILE_ACT"), *wanted = getenv("HOSTILE_PLACE");
    if (!name || !wanted || strcmp(wanted, place) != 0)
        return;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(acts[i].name, name) == 0)
            acts[i].fn();
}

static void at_exit(void)
{
    act_at("atexit");
}

__attribute__((constructor)) static void construct(void)
{
    atexit(at_exit);
    act_at("constructor");
}

__attribute__((destructor)) static void destruct(void)
{
    act_at("destructor");
}

static void *in_thread(void *arg)
{
    (void)arg;
    act_at("thread");
    return NULL;
}

/* Threads have done what they do when the caller goes on. */
static inline void act_in_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
}

#endif
