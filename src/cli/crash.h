/* crash.h: what the program says when it crashes, and when it is interrupted. */
#ifndef KB_CLI_CRASH_H
#define KB_CLI_CRASH_H

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>

/*
 * From now on a crash ends the process with one line on stderr: with KB_ERR_FAULT if a coroutine of
 * the simulator that its thread watches has used up its stack, or if the crash is that of the
 * user's own code, with KB_ERR_BUG otherwise. SIGINT says how far the simulator is and what runs.
 * Signals that end the process remove temporary files first. To be called once, by main(). False if
 * crashes are left to a sanitizer, which tells more.
 */
bool crash_install(void);

/* To be called by main() at its end, with its status, which it returns: the work is done. */
int crash_finish(int status);

/* Ends the process at once, without handlers of exit(); removes temporary files. */
KB_NORETURN void crash_exit(int status);

/*
 * Tells which simulator this thread runs from now on, and the stack_bytes it was created with; NULL
 * before it is destroyed.
 */
void crash_watch(const kb_sim *sim, size_t stack_bytes);

/*
 * Tells that this thread runs code of the user's, from this file, until it is called with NULL.
 * Coroutines, and what is not called by the simulator, are the user's then. Called with NULL it
 * restores locale, rounding mode and current directory, and ends the process with KB_ERR_FAULT if
 * stdout or stderr was closed or replaced, or if this is a process that fork() made.
 */
void crash_blame(const char *file);

/*
 * Tells that the file is about to be loaded: from now until the end of the process there is code of
 * the user's in it. Should that code end the process with exit() or in another way (exits.c), in
 * whichever thread, that is told, and the status is KB_ERR_FAULT.
 */
void crash_loading(const char *file);

/* Whether a function is the user's. */
bool crash_is_user_code(const void *address);

/* To be called at the beginning of a thread that runs code of the user's. */
void crash_begin_thread(void);

/*
 * To be called by what replaces a function that ends the process. Does not return if code of the
 * user's calls it in this process.
 */
void crash_on_leave(const char *function);

/*
 * On a terminal, shows a line from time to time until it is called with false: how far the
 * simulator that is watched is, and what runs. crash_wipe() takes it away before something else is
 * printed.
 */
void crash_show_progress(bool on);
void crash_wipe(void);

#endif
