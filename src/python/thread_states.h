/*
 * thread_states.h: thread states of the interpreter. Each coroutine that runs Python has one of its
 * own, because a thread state describes one C stack: its frames, the exception being handled, the
 * depth of recursion. See docs/decisions/0033-python.md.
 */
#ifndef KB_PYTHON_THREADS_H
#define KB_PYTHON_THREADS_H

#include "interpreter.h"

#include <stdbool.h>
#include <stddef.h>

/* The program while it is in a call of the engine. */
typedef struct py_stay {
    PyThreadState *own;    /* the caller's */
    PyThreadState *driver; /* of the call around it; NULL: this is the outermost */
} py_stay;

/* Before and after a call of the engine outside of its coroutines. In between, other Python threads
 * may run until a coroutine runs Python. */
void py_stay_begin(py_stay *stay);
void py_stay_end(const py_stay *stay);

/* A coroutine begins to run Python: its thread state becomes the current one. NULL with nothing
 * changed if there is no memory. */
PyThreadState *py_state_take(size_t stack_bytes);

/* It will not run Python any more. */
void py_state_give(PyThreadState *state);

/* A coroutine goes on: after each call of the engine that may have run others. */
void py_state_resume(PyThreadState *state);

/* The engine calls back, from wherever. The current thread state is then the driver's. */
void py_callback_begin(void);

/* Refuses interpreters on which coroutines cannot run Python: false with an exception set. */
bool py_threads_check(void);

bool py_threads_init(void);

#endif
