/*
 * parameters.c: finds the arguments of a call by position and by name. Names in a call are interned
 * strings, so comparing pointers finds them in most cases.
 */
#include "parameters.h"

#include <string.h>

#include "base/base.h"

static bool intern_names(py_parameters *is)
{
    Py_ssize_t count = 0;
    for (; is->names[count]; count++) {
        is->interned[count] = PyUnicode_InternFromString(is->names[count]);
        if (!is->interned[count])
            return false;
    }
    is->count = count;
    return true;
}

static Py_ssize_t find(const py_parameters *is, PyObject *name)
{
    for (Py_ssize_t i = 0; i < is->count; i++)
        if (is->interned[i] == name)
            return i;
    for (Py_ssize_t i = 0; i < is->count; i++)
        if (PyUnicode_Compare(is->interned[i], name) == 0)
            return i;
    return -1;
}

static bool set_by_name(const py_parameters *is, PyObject *name, PyObject *value, PyObject **values)
{
    Py_ssize_t index = find(is, name);
    if (index >= 0 && !values[index]) {
        values[index] = value;
        return true;
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError,
                     index < 0 ? "%s() got an unexpected keyword argument '%U'"
                               : "%s() got multiple values for argument '%U'",
                     is->function, name);
    return false;
}

bool py_get_arguments(py_parameters *is, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                      PyObject **values)
{
    if (KB_UNLIKELY(is->count == 0) && !intern_names(is))
        return false;
    if (KB_UNLIKELY(nargs > is->count)) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments, %zd were given",
                     is->function, is->count, nargs);
        return false;
    }
    Py_ssize_t i = 0;
    for (; i < nargs; i++)
        values[i] = args[i];
    for (; i < is->count; i++)
        values[i] = NULL;
    Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < named; k++)
        if (!set_by_name(is, PyTuple_GET_ITEM(kwnames, k), args[nargs + k], values))
            return false;
    for (i = 0; i < is->required; i++) {
        if (!values[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", is->function,
                         is->names[i]);
            return false;
        }
    }
    return true;
}
