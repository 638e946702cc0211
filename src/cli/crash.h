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
 * To be called once, by main(). False if nothing was done, because a sanitizer tells more.
 */
bool crash_install(void);

/*
 * Tells which simulator this thread runs from now on, and the stack_bytes it was created with; NULL
 * before it is destroyed.
 */
void crash_watch(const kb_sim *sim, size_t stack_bytes);

/*
 * Tells that this thread runs code of the user's, from this file, until it is called with NULL.
 * Coroutines, and what is not called by the simulator, are the user's then. Should that code end
 * the process with exit(), that is told, and the status is KB_ERR_FAULT.
 */
void crash_blame(const char *file);

/*
 * On a terminal, shows a line from time to time until it is called with false: how far the
 * simulator that is watched is, and what runs. crash_wipe() takes it away before something else is
 * printed.
 */
void crash_show_progress(bool on);
void crash_wipe(void);

#endif
