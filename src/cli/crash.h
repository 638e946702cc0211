/* crash.h: what the program says when it crashes. */
#ifndef KB_CLI_CRASH_H
#define KB_CLI_CRASH_H

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>

/*
 * From now on a crash ends the process with one line on stderr: with KB_ERR_FAULT if a coroutine of
 * the simulator that its thread watches has used up its stack, with KB_ERR_BUG otherwise. To be
 * called once, by main(). False if nothing was done, because a sanitizer tells more of a crash.
 */
bool crash_install(void);

/*
 * Tells which simulator this thread runs from now on, and the stack_bytes it was created with; NULL
 * before it is destroyed.
 */
void crash_watch(const kb_sim *sim, size_t stack_bytes);

#endif
