/*
 * c_kernels.h: kernels in C.
 */
#ifndef KB_PYTHON_COMPILE_H
#define KB_PYTHON_COMPILE_H

#include "interpreter.h"

#include <stdbool.h>

#include <kernbench/tl.h>

/* The kernel of a CKernel object; NULL if it is something else. */
const kb_kernel *py_kernel_of(PyObject *object);

/* Libraries that are loaded from here on find the calls of the engine. False with an exception set.
 */
bool py_export_calls(void);

bool py_compile_init(PyObject *module);

#endif
