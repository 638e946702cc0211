/*
 * errors.h: errors of the engine as exceptions, and exceptions as errors of the engine.
 */
#ifndef KB_PYTHON_ERRORS_H
#define KB_PYTHON_ERRORS_H

#include "interpreter.h"

#include <stdbool.h>

#include <kernbench/kernbench.h>

extern PyObject *py_kernbench_error;
extern PyObject *py_input_error;
extern PyObject *py_deadlock;
extern PyObject *py_stopped; /* unwinds kernels and workers that are to end */

/* Makes the exceptions and adds them to the module. */
bool py_errors_init(PyObject *module);

/* The exception of an error, a new reference; frees the error. NULL with another exception set if
 * there is no memory. */
PyObject *py_exception_of(kb_error *err);

/* Raises it; frees the error. */
void py_raise(kb_error *err);

/* For calls that return an error: true if there is none, else false with the exception set. */
bool py_succeeded(kb_error *err);

/* "ValueError: the text" of an exception, as an error of the code. */
kb_error *py_error_of(kb_code code, PyObject *exception);

/* Takes the exception that is set, with its traceback in it; NULL if none is. And raises one. */
PyObject *py_take_exception(void);
void py_raise_exception(PyObject *exception);

/* Adds a line to the exception's traceback (PEP 678). */
void py_add_note(PyObject *exception, const char *format, ...) KB_PRINTF(2, 3);

/* What a kernel, worker or bench has returned; takes it over. NULL with a TypeError set if it is a
 * generator or a coroutine: then the function's body has not run. */
PyObject *py_check_returned(PyObject *result);

/* Whether the exception only passes on what went wrong in another worker. */
bool py_is_secondary(PyObject *exception);

#endif
