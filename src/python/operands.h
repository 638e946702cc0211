/*
 * operands.h: what operations of kernels are given and what they return.
 */
#ifndef KB_PYTHON_OPERANDS_H
#define KB_PYTHON_OPERANDS_H

#include "kernel.h"

/* What an operand is before the call of the engine: a value, a number, or what a program has named
 * by a handle of its own: a place or numbers, of which the call makes a reference or a value. */
typedef struct py_operand {
    tl_tensor tensor;
    bool is_made;      /* by the call, which frees it */
    const void *bytes; /* the numbers; NULL: it is a place */
    tl_ptr address;
    tl_dims shape;
    kb_dtype dtype;
} py_operand;

/* From Python: a handle; or a number, if `numbers` are allowed. False with an exception set. */
bool py_get_operand(py_tl *self, PyObject *object, bool numbers, py_operand *operand);

/* What names memory in a call: an integer, or what int() makes one. */
bool py_get_address(PyObject *object, tl_ptr *address);

/* In the call of the engine: the tensor, and the end of what it was made for. */
tl_tensor py_use_operand(tl_context *tl, tl_srcloc at, const py_operand *operand);
void py_drop_operand(tl_context *tl, tl_srcloc at, const py_operand *operand, tl_tensor tensor);

/* A new handle of a value that the kernel has made. */
PyObject *py_result(py_tl *self, tl_tensor value);

/* The same; from here on the value is what the address names in this kernel. */
PyObject *py_result_at(py_tl *self, tl_tensor value, uint64_t address);

#endif
