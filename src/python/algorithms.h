/*
 * algorithms.h: algorithms of collectives in Python.
 */
#ifndef KB_PYTHON_ALGORITHMS_H
#define KB_PYTHON_ALGORITHMS_H

#include "context.h"

/* Reads a ccl.yaml (NULL: the one that is built in) for what comes from here on, with further
 * settings (a list of str, or NULL). `modules`: a dict from names to modules, or NULL. False with
 * an exception set. */
bool py_algorithms_load(py_context *self, const char *file, PyObject *modules, PyObject *settings);

/* Raises what a collective failed with: the exception of a kernel, if it is one's. Frees the error.
 */
void py_algorithms_raise(const py_context *self, kb_error *err);

#endif
