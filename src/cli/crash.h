/*
 * crash.h: reports of crashes and interrupts, and of user code that ends the process.
 *
 * Unless crash_install() was called, the other functions change nothing of the process, so commands
 * can run in a process of another program.
 */
#ifndef KB_CLI_CRASH_H
#define KB_CLI_CRASH_H

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>

/*
 * Installs signal handlers. A crash then ends the process with one line on stderr: with
 * KB_ERR_FAULT if a coroutine of the watched simulator overflowed its stack, or if user code
 * crashed, else with KB_ERR_BUG. SIGINT prints the simulated time and what runs. Signals that end
 * the process remove temporary files first. Called once, by main(). False if crashes are left to a
 * sanitizer, which reports more.
 *
 * `exit_now` is the _exit() of the C library (exit_hooks.h).
 */
bool crash_install(void (*exit_now)(int status));

/* Called at the end of main() with the exit status, which it returns. */
int crash_finish(int status);

/*
 * Called in a process that the program has forked, after stdout and stderr were redirected: it runs
 * user code like the first process. Temporary files of that stay.
 */
void crash_enter_child(void);

/* Ends the process at once, without handlers of exit(); removes temporary files. */
KB_NORETURN void crash_exit(int status);

/* Sets the simulator that this thread runs, and its stack_bytes; NULL before it is destroyed. */
void crash_watch(const kb_sim *sim, size_t stack_bytes);

/*
 * From enter to leave this thread runs user code from the file: coroutines, and all code outside
 * the simulator. Without a file (NULL) nothing is user code. Leaving restores locale, rounding mode
 * and current directory, and ends the process with KB_ERR_FAULT if stdout or stderr was closed or
 * replaced, or if this is a forked process.
 */
void crash_enter_user_code(const char *file);
void crash_leave_user_code(void);

/*
 * Called before the file is loaded: from then until the end of the process it has user code. If
 * that code ends the process, by exit() or otherwise (exit_hooks.c) and in any thread, this is
 * reported, and the status is KB_ERR_FAULT.
 */
void crash_note_user_file(const char *file);

/* Whether the address is in user code. */
bool crash_is_user_code(const void *address);

/* Called at the start of a thread of user code. */
void crash_begin_thread(void);

/* Called by hooks of functions that end the process. Does not return if user code called it, unless
 * in a forked process. */
void crash_on_exit_call(const char *function);

/*
 * Prints a line of progress from time to time on a terminal, until called with false: the simulated
 * time of the watched simulator, and what runs. crash_clear_progress() removes the line before
 * other output.
 */
void crash_show_progress(bool on);
void crash_clear_progress(void);

#endif
