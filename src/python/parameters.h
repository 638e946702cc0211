/*
 * parameters.h: arguments of methods that are called often. PyArg_ParseTupleAndKeywords() needs a
 * tuple and a dict, which are made anew for each call.
 */
#ifndef KB_PYTHON_PARAMETERS_H
#define KB_PYTHON_PARAMETERS_H

#include "interpreter.h"

#include <stdbool.h>

enum { PY_MAX_PARAMETERS = 9 };

/* Names of parameters in their order; the first `required` must be given. */
typedef struct py_parameters {
    const char *function;
    Py_ssize_t required;
    const char *names[PY_MAX_PARAMETERS + 1]; /* ends with NULL */
    PyObject *interned[PY_MAX_PARAMETERS];    /* the same, made at the first call */
    Py_ssize_t count;
} py_parameters;

/* Fills `values` by the order of the parameters: NULL for those that are not given. False with a
 * TypeError set. */
bool py_get_arguments(py_parameters *parameters, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames, PyObject **values);

#endif
