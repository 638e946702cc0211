/*
 * srcloc.h: the line of Python source that calls an operation.
 */
#ifndef KB_PYTHON_SRCLOC_H
#define KB_PYTHON_SRCLOC_H

#include "interpreter.h"

#include <kernbench/tl.h>

/* Of the frame that runs: computed once for each instruction. */
tl_srcloc py_srcloc(void);

/* Of the line in which an exception was raised; of the frame that runs if it does not tell. */
tl_srcloc py_srcloc_of(PyObject *exception);

/* Of a function's definition; "<python>" for what has no code. */
tl_srcloc py_srcloc_of_function(PyObject *function);

/* A text that stays as long as the process: the engine keeps names of files and kernels. NULL with
 * an exception set. */
const char *py_keep_text(PyObject *text);

#endif
