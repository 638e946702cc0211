/*
 * operands.c: operands of operations: values of the kernel, numbers, and places in memory that a
 * program has named by a TensorHandle of its own.
 */
#include "operands.h"

#include <string.h>

#include "errors.h"
#include "tl/tl.h"

/* One that a program made has numbers of its own, or names what is at its address. */
static bool get_made(py_tl *self, py_handle *handle, py_operand *operand)
{
    bool has_data = handle->data && handle->data != Py_None;
    if (!has_data && py_value_at_address(self, handle->address, &operand->tensor))
        return true;
    operand->is_made = true;
    operand->bytes = NULL;
    operand->address = (tl_ptr)handle->address;
    operand->shape = handle->shape;
    operand->dtype = handle->dtype;
    return !has_data || py_handle_get_bytes(handle, &operand->bytes);
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
    operand->is_made = false;
    if (KB_LIKELY(py_is_handle(object))) {
        py_handle *handle = (py_handle *)object;
        operand->tensor = handle->value;
        return KB_LIKELY(handle->owner != NULL) || get_made(self, handle, operand);
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
    if (KB_LIKELY(!operand->is_made))
        return operand->tensor;
    if (operand->bytes)
        return tl_value_of_bytes(tl, at, operand->shape, operand->dtype, operand->bytes);
    return tl_ref_(tl, at, operand->address, operand->shape,
                   (tl_load_options){.dtype = operand->dtype});
}

void py_drop_operand(tl_context *tl, tl_srcloc at, const py_operand *operand, tl_tensor tensor)
{
    if (KB_UNLIKELY(operand->is_made))
        tl_free_(tl, at, tensor);
}

PyObject *py_result(py_tl *self, tl_tensor value)
{
    tl_dims shape;
    kb_dtype dtype;
    tl_describe(self->tl, value, &shape, &dtype);
    return py_handle_new(self, value, &shape, dtype);
}

PyObject *py_result_at(py_tl *self, tl_tensor value, uint64_t address)
{
    PyObject *result = py_result(self, value);
    if (!result)
        return NULL;
    ((py_handle *)result)->address = address;
    if (py_name_value(self, address, result))
        return result;
    Py_DECREF(result);
    return NULL;
}
