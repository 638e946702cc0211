/*
 * command_line.h: the command line inside Python.
 */
#ifndef KB_PYTHON_CLI_H
#define KB_PYTHON_CLI_H

#include "interpreter.h"

#include <stdbool.h>

/* Adds the function to the module. */
bool py_cli_init(PyObject *module);

#endif
