/* exit_hooks.h: ending the process: see exit_hooks.c. */
#ifndef KB_CLI_EXIT_HOOKS_H
#define KB_CLI_EXIT_HOOKS_H

#include <kernbench/kernbench.h>

/* The _exit() of the C library. */
KB_NORETURN void exit_hooks_exit(int status);

#endif
