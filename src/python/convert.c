/*
 * convert.c: shapes, data types and numbers from Python and to it.
 */
#include "kernel.h"

#include <string.h>

/* Names that a data type has besides its own. Case does not matter. */
static const struct {
    const char *alias;
    kb_dtype dtype;
} aliases[] = {
    {"fp16", KB_F16},           {"float16", KB_F16},
    {"half", KB_F16},           {"bfloat16", KB_BF16},
    {"fp32", KB_F32},           {"float32", KB_F32},
    {"float", KB_F32},          {"int8", KB_I8},
    {"int32", KB_I32},          {"int", KB_I32},
    {"float8_e4m3", KB_F8E4M3}, {"float8_e4m3fn", KB_F8E4M3},
    {"fp8e4m3", KB_F8E4M3},     {"float8_e5m2", KB_F8E5M2},
    {"fp8e5m2", KB_F8E5M2},     {"e4m3", KB_F8E4M3},
    {"e5m2", KB_F8E5M2},
};

static PyObject *dtype_names[KB_DTYPES];

static bool find_dtype(const char *name, kb_dtype *dtype)
{
    for (int i = 0; i < KB_DTYPES; i++) {
        *dtype = (kb_dtype)i;
        if (strcasecmp(name, kb_dtype_name(*dtype)) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        *dtype = aliases[i].dtype;
        if (strcasecmp(name, aliases[i].alias) == 0)
            return true;
    }
    return false;
}

bool py_get_dtype(PyObject *object, kb_dtype *dtype)
{
    for (int i = 0; i < KB_DTYPES; i++) {
        if (object == dtype_names[i]) {
            *dtype = (kb_dtype)i;
            return true;
        }
    }
    PyObject *text = PyUnicode_Check(object) ? Py_NewRef(object)
                     : PyType_Check(object)  ? PyObject_GetAttrString(object, "__name__")
                                             : PyObject_Str(object); /* numpy.float16; its dtype */
    const char *name = text ? PyUnicode_AsUTF8(text) : NULL;
    bool found = name && find_dtype(name, dtype);
    if (name && !found)
        PyErr_Format(PyExc_ValueError,
                     "unknown dtype '%U': expected f16, bf16, f32, f8e4m3, f8e5m2, i8 or i32",
                     text);
    Py_XDECREF(text);
    return found;
}

bool py_get_integer(PyObject *object, int64_t *integer)
{
    int overflow = 0;
    if (KB_LIKELY(PyLong_CheckExact(object))) {
        *integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    } else {
        PyObject *number = PyNumber_Index(object);
        if (!number)
            return false;
        *integer = PyLong_AsLongLongAndOverflow(number, &overflow);
        Py_DECREF(number);
    }
    if (overflow != 0) {
        PyErr_SetString(PyExc_OverflowError, "a number does not fit into 64 bits");
        return false;
    }
    return *integer != -1 || !PyErr_Occurred();
}

/* A tuple or list of numbers, or one number. At most `max`. Returns how many, or -1. */
static Py_ssize_t get_numbers(PyObject *object, int64_t *numbers, Py_ssize_t max)
{
    if (PyLong_Check(object) || PyIndex_Check(object))
        return py_get_integer(object, &numbers[0]) ? 1 : -1;
    PyObject *items = PySequence_Fast(object, "a shape is a tuple of integers");
    if (!items)
        return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    if (count > max)
        PyErr_Format(PyExc_ValueError, "too many dimensions: %zd, the maximum is %zd", count, max);
    for (Py_ssize_t i = 0; i < count && count <= max; i++)
        if (!py_get_integer(PySequence_Fast_GET_ITEM(items, i), &numbers[i]))
            count = max + 1;
    Py_DECREF(items);
    return count <= max ? count : -1;
}

bool py_get_dims(PyObject *object, tl_dims *dims)
{
    Py_ssize_t count = get_numbers(object, dims->dims, TL_MAX_DIMS);
    dims->rank = (int)count;
    return count >= 0;
}

bool py_get_shape(PyObject *object, kb_shape *shape)
{
    int64_t numbers[KB_MAX_DIMS];
    Py_ssize_t count = get_numbers(object, numbers, KB_MAX_DIMS);
    *shape = (kb_shape){.rank = count > 0 ? (uint32_t)count : 0};
    for (Py_ssize_t i = 0; i < count; i++) {
        if (numbers[i] < 0) {
            PyErr_Format(PyExc_ValueError, "a shape has a negative dimension: %lld",
                         (long long)numbers[i]);
            return false;
        }
        shape->dims[i] = (uint64_t)numbers[i];
    }
    return count >= 0;
}

PyObject *py_tuple_of_dims(const tl_dims *dims)
{
    PyObject *tuple = PyTuple_New(dims->rank);
    for (int i = 0; i < dims->rank && tuple; i++) {
        PyObject *number = PyLong_FromLongLong(dims->dims[i]);
        if (!number)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

PyObject *py_string_of_dtype(kb_dtype dtype)
{
    return Py_NewRef(dtype_names[dtype]);
}

/* ---- For programs ------------------------------------------------------------------------ */

static PyObject *dtype_name(PyObject *module, PyObject *name)
{
    (void)module;
    kb_dtype dtype;
    return py_get_dtype(name, &dtype) ? py_string_of_dtype(dtype) : NULL;
}

static PyObject *dtype_bytes(PyObject *module, PyObject *name)
{
    (void)module;
    kb_dtype dtype;
    return py_get_dtype(name, &dtype) ? PyLong_FromSize_t(kb_dtype_bytes(dtype)) : NULL;
}

static PyObject *convert(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer from = {0}, to = {0};
    PyObject *from_name, *to_name;
    kb_dtype from_dtype, to_dtype;
    if (!PyArg_ParseTuple(args, "y*OOw*:convert", &from, &from_name, &to_name, &to))
        return NULL;
    bool good = py_get_dtype(from_name, &from_dtype) && py_get_dtype(to_name, &to_dtype);
    size_t count = good ? (size_t)from.len / kb_dtype_bytes(from_dtype) : 0;
    if (good && (count * kb_dtype_bytes(from_dtype) != (size_t)from.len ||
                 count * kb_dtype_bytes(to_dtype) != (size_t)to.len)) {
        PyErr_SetString(PyExc_ValueError, "the buffers have different numbers of elements");
        good = false;
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS kb_convert(to_dtype, to.buf, from_dtype, from.buf, count);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef functions[] = {
    {"dtype_name", dtype_name, METH_O,
     PyDoc_STR(
         "dtype_name(name, /)\n--\n\nThe name of a data type, of any of its aliases: 'f16'.")},
    {"dtype_bytes", dtype_bytes, METH_O,
     PyDoc_STR("dtype_bytes(name, /)\n--\n\nThe bytes of an element of a data type.")},
    {"convert", convert, METH_VARARGS,
     PyDoc_STR("convert(data, from_dtype, to_dtype, out, /)\n--\n\n"
               "Converts the numbers of a buffer into another buffer, rounding to nearest.")},
    {0},
};

bool py_convert_init(PyObject *module)
{
    for (int i = 0; i < KB_DTYPES; i++) {
        dtype_names[i] = PyUnicode_InternFromString(kb_dtype_name((kb_dtype)i));
        if (!dtype_names[i])
            return false;
    }
    return PyModule_AddFunctions(module, functions) == 0;
}
