/*
 * mock.h: kernels of collectives in Python without a machine.
 */
#ifndef KB_PYTHON_MOCK_H
#define KB_PYTHON_MOCK_H

#include "interpreter.h"

#include <stdbool.h>

/* Adds the function to the module. */
bool py_mock_init(PyObject *module);

#endif
