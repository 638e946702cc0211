/*
 * operands.c: operands of operations: values of the kernel, numbers, and places in memory that a
 * program has named by a TensorHandle of its own.
 */
#include "operands.h"

#include <string.h>

#include "errors.h"
#include "tl/tl.h"

/* One that a program made names what is at its address. */
static bool get_place(py_tl *self, const py_handle *handle, py_operand *operand)
{
    tl_tensor value;
    if (handle->data && handle->data != Py_None) {
        PyErr_SetString(PyExc_ValueError, "a TensorHandle with data of its own is no value of this "
                                          "kernel: store the numbers in a tensor and name its "
                                          "address (data=None)");
        return false;
    }
    if (py_value_at_address(self, handle->address, &value)) {
        operand->tensor = value;
        return true;
    }
    operand->is_place = true;
    operand->address = (tl_ptr)handle->address;
    operand->shape = handle->shape;
    operand->dtype = handle->dtype;
    return true;
}

static bool get_number(PyObject *object, py_operand *operand)
{
    double number = PyFloat_AsDouble(object);
    if (number == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "expected a TensorHandle or a number, found %.200s",
                         Py_TYPE(object)->tp_name);
        return false;
    }
    operand->tensor = tl_scalar(number);
    return true;
}

bool py_get_operand(py_tl *self, PyObject *object, bool numbers, py_operand *operand)
{
    operand->is_place = false;
    if (KB_LIKELY(py_is_handle(object))) {
        const py_handle *handle = (py_handle *)object;
        operand->tensor = handle->value;
        return KB_LIKELY(handle->owner != NULL) || get_place(self, handle, operand);
    }
    if (numbers)
        return get_number(object, operand);
    PyErr_Format(PyExc_TypeError, "expected a TensorHandle, found %.200s",
                 Py_TYPE(object)->tp_name);
    return false;
}

bool py_get_address(PyObject *object, tl_ptr *address)
{
    if (KB_LIKELY(PyLong_CheckExact(object)) || PyIndex_Check(object))
        return py_get_integer(object, address);
    PyErr_Format(PyExc_TypeError, "expected an address (an int), found %.200s",
                 Py_TYPE(object)->tp_name);
    return false;
}

tl_tensor py_use_operand(tl_context *tl, tl_srcloc at, const py_operand *operand)
{
    if (KB_LIKELY(!operand->is_place))
        return operand->tensor;
    return tl_ref_(tl, at, operand->address, operand->shape,
                   (tl_load_options){.dtype = operand->dtype});
}

void py_drop_operand(tl_context *tl, tl_srcloc at, const py_operand *operand, tl_tensor tensor)
{
    if (KB_UNLIKELY(operand->is_place))
        tl_free_(tl, at, tensor);
}

PyObject *py_result(py_tl *self, tl_tensor value)
{
    tl_dims shape;
    kb_dtype dtype;
    tl_describe(self->tl, value, &shape, &dtype);
    return py_handle_new(self, value, &shape, dtype);
}
