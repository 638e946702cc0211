/*
 * describe.h: what the engine knows as text: machines, ccl.yaml, the table of calls.
 */
#ifndef KB_PYTHON_DESCRIBE_H
#define KB_PYTHON_DESCRIBE_H

#include "interpreter.h"

#include <stdbool.h>

/* Adds the functions to the module. */
bool py_describe_init(PyObject *module);

#endif
