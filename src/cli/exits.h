/* exits.h: ending the process: see exits.c. */
#ifndef KB_CLI_EXITS_H
#define KB_CLI_EXITS_H

#include <kernbench/kernbench.h>

/* What _exit() of the C library does. */
KB_NORETURN void exits_now(int status);

#endif
