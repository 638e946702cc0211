/*
 * interpreter.h: Python's header, and what every file of this folder needs to know of the
 * interpreter. The project's warnings do not apply to Python's header.
 */
#ifndef KB_PYTHON_INTERPRETER_H
#define KB_PYTHON_INTERPRETER_H

#define PY_SSIZE_T_CLEAN
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#include <Python.h>
#pragma GCC diagnostic pop

/* From 3.14 on the interpreter checks its stack pointer against the bounds of the thread's stack,
 * and ends the process on the stack of a coroutine. */
#define PY_HAS_COROUTINES (PY_VERSION_HEX >= 0x030A0000 && PY_VERSION_HEX < 0x030E0000)

/* For PyArg_ParseTupleAndKeywords(), which does not write to the names but takes them as if it did.
 */
#define PY_NAMES(names) ((char **)(uintptr_t)(names))

/* A method that takes positional and keyword arguments, for PyMethodDef. */
#define PY_METHOD(name, function, doc)                                                             \
    {                                                                                              \
        (name), (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS,             \
            PyDoc_STR(doc)                                                                         \
    }
#define PY_FAST_METHOD(name, function, doc)                                                        \
    {                                                                                              \
        (name), (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS,            \
            PyDoc_STR(doc)                                                                         \
    }
#define PY_PLAIN_METHOD(name, function, doc)                                                       \
    {                                                                                              \
        (name), (PyCFunction)(function), METH_NOARGS, PyDoc_STR(doc)                               \
    }

#endif
