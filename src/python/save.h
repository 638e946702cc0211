/*
 * save.h: _core.save_run().
 */
#ifndef KB_PYTHON_SAVE_H
#define KB_PYTHON_SAVE_H

#include "interpreter.h"

#include <stdbool.h>

bool py_save_init(PyObject *module);

#endif
