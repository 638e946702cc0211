/*
 * physical_address.h: physical addresses without a machine.
 */
#ifndef KB_PYTHON_ADDRESS_H
#define KB_PYTHON_ADDRESS_H

#include "interpreter.h"

#include <stdbool.h>

/* Adds the functions to the module. */
bool py_address_init(PyObject *module);

#endif
