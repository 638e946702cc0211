/*
 * interrupts.h: signals that end a program, held back until it has put its things in order.
 *
 *     interrupts_hold();
 *     while (there is work && !interrupts_signal())
 *         child_wait(pool, -1, interrupts_fd(), &result);
 *     ...
 *     interrupts_release(); // ends the program if there was a signal
 *
 * Signals belong to the process, and so does the state here.
 */
#ifndef KB_CHILD_INTERRUPTS_H
#define KB_CHILD_INTERRUPTS_H

/*
 * From now on SIGINT, SIGTERM and SIGHUP are only noted, except those that are ignored. A second
 * one acts as if they were not held.
 */
void interrupts_hold(void);

/* The signal that came, 0: none. */
int interrupts_signal(void);

/* Can be read once a signal has come; -1 if the system has no descriptor left. */
int interrupts_fd(void);

/* Acts on signals as before, also on the one that came. */
void interrupts_release(void);

/* In a child process: acts on signals as before. */
void interrupts_forget(void);

#endif
