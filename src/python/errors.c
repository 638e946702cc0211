/*
 * errors.c: errors of the engine as exceptions. The text of an error is that of the C library, with
 * the names that Python programs know.
 */
#include "errors.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

PyObject *py_kernbench_error;
PyObject *py_input_error;
static PyObject *kernel_error;
static PyObject *invalid_direction;
PyObject *py_deadlock;
PyObject *py_stopped;

static const char secondary_mark[] = "_is_consequence";

static bool make(PyObject *module, PyObject **exception, const char *path, const char *doc,
                 PyObject *bases)
{
    *exception = bases ? PyErr_NewExceptionWithDoc(path, doc, bases, NULL) : NULL;
    Py_XDECREF(bases);
    const char *name = strrchr(path, '.') + 1;
    return *exception && PyModule_AddObjectRef(module, name, *exception) == 0;
}

bool py_errors_init(PyObject *module)
{
    return make(module, &py_kernbench_error, "kernbench.KernbenchError",
                "A call of KernBench failed. Base of all its exceptions but MemoryError.",
                Py_BuildValue("(O)", PyExc_RuntimeError)) &&
           make(module, &py_input_error, "kernbench.InputError",
                "Something that KernBench was given is wrong: a machine file, a name, a value.",
                Py_BuildValue("(OO)", py_kernbench_error, PyExc_ValueError)) &&
           make(module, &kernel_error, "kernbench.KernelError",
                "A kernel made a mistake. Attributes: kernel, pe, time_ns, file, line.",
                Py_BuildValue("(O)", py_kernbench_error)) &&
           make(module, &invalid_direction, "kernbench.common.ipcq_types.IpcqInvalidDirection",
                "A kernel sends or receives in a direction that its PE does not have.",
                Py_BuildValue("(OO)", kernel_error, PyExc_ValueError)) &&
           make(
               module, &py_deadlock, "kernbench.ccl.diagnostics.IpcqDeadlock",
               "Kernels or workers wait for what cannot happen; the text has the queues' pointers.",
               Py_BuildValue("(O)", py_kernbench_error)) &&
           make(module, &py_stopped, "kernbench.KernelStopped",
                "Ends a kernel or a worker because another one failed. Not to be caught.",
                Py_BuildValue("(O)", PyExc_BaseException));
}

/* ---- Texts ------------------------------------------------------------------------------- */

static bool is_word_character(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Operations of kernels are methods of tl in Python: "tl_load" is "tl.load". */
static void rename_operations(char *text)
{
    for (char *at = strstr(text, "tl_"); at; at = strstr(at + 1, "tl_"))
        if (at == text || !is_word_character(at[-1]))
            at[2] = '.';
}

/* The message and its details, a line each. NULL with an exception set if there is no memory. */
static PyObject *text_of(const kb_error *err)
{
    const char *detail = kb_error_detail(err);
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "%s%s%s", kb_error_message(err), detail[0] ? "\n" : "", detail);
    char *bytes = kb_text_take(&text);
    if (!bytes)
        return PyErr_NoMemory();
    size_t length = strlen(bytes);
    while (length > 0 && bytes[length - 1] == '\n')
        bytes[--length] = '\0';
    rename_operations(bytes);
    PyObject *string = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "replace");
    free(bytes);
    return string;
}

/* ---- Faults of kernels ------------------------------------------------------------------- */

static bool set_attribute(PyObject *exception, const char *name, PyObject *value)
{
    bool set = value && PyObject_SetAttrString(exception, name, value) == 0;
    Py_XDECREF(value);
    return set;
}

/*
 * Takes the parts out of "kernel 'x' on sip0.cube0.pe3 at 12.345 ns, file.py:7: ...", which is how
 * the engine begins the message of a kernel's fault. False if it is another message.
 */
static bool add_place(PyObject *exception, const char *message)
{
    const char *kernel = strstr(message, "kernel '");
    const char *on = kernel ? strstr(kernel, "' on sip") : NULL;
    const char *at = on ? strstr(on, " at ") : NULL;
    const char *comma = at ? strstr(at, " ns, ") : NULL;
    if (!comma)
        return false;
    kernel += strlen("kernel '");
    on += strlen("' on ");
    const char *file = comma + strlen(" ns, ");
    const char *colon = strchr(file, ':');
    set_attribute(exception, "kernel", PyUnicode_FromStringAndSize(kernel, on - 5 - kernel));
    set_attribute(exception, "pe", PyUnicode_FromStringAndSize(on, at - on));
    set_attribute(exception, "time_ns", PyFloat_FromDouble(strtod(at + 4, NULL)));
    if (colon) {
        set_attribute(exception, "file", PyUnicode_FromStringAndSize(file, colon - file));
        set_attribute(exception, "line", PyLong_FromLong(strtol(colon + 1, NULL, 10)));
    }
    return true;
}

static PyObject *class_of_fault(const char *message)
{
    if (strstr(message, "invalid direction") ||
        strstr(message, "no queues are installed in this PE"))
        return invalid_direction;
    return strstr(message, "kernel '") ? kernel_error : py_kernbench_error;
}

static PyObject *class_of(const kb_error *err)
{
    switch (kb_error_code(err)) {
    case KB_OK:
    case KB_ERR_BUG:
        break;
    case KB_ERR_CHECK:
        return PyExc_AssertionError;
    case KB_ERR_INPUT:
        return py_input_error;
    case KB_ERR_FAULT:
        return class_of_fault(kb_error_message(err));
    case KB_ERR_DEADLOCK:
        return py_deadlock;
    case KB_ERR_HOST:
        return PyExc_MemoryError;
    }
    return py_kernbench_error;
}

PyObject *py_exception_of(kb_error *err)
{
    PyObject *class = class_of(err);
    PyObject *text = text_of(err);
    PyObject *exception = text ? PyObject_CallOneArg(class, text) : NULL;
    Py_XDECREF(text);
    if (exception && PyObject_IsSubclass(class, kernel_error) == 1 &&
        !add_place(exception, kb_error_message(err)))
        PyErr_Clear();
    if (exception && kb_error_is_secondary(err))
        set_attribute(exception, secondary_mark, Py_NewRef(Py_True));
    if (exception)
        PyErr_Clear(); /* an attribute that there was no memory for */
    kb_error_free(err);
    return exception;
}

void py_raise(kb_error *err)
{
    PyObject *exception = py_exception_of(err);
    if (exception)
        py_raise_exception(exception);
    Py_XDECREF(exception);
}

bool py_succeeded(kb_error *err)
{
    if (KB_LIKELY(!err))
        return true;
    py_raise(err);
    return false;
}

bool py_is_secondary(PyObject *exception)
{
    int has = PyObject_HasAttrString(exception, secondary_mark);
    return has == 1;
}

/* ---- Exceptions -------------------------------------------------------------------------- */

PyObject *py_take_exception(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!type)
        return NULL;
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        (void)PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

void py_raise_exception(PyObject *exception)
{
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), Py_NewRef(exception),
                  PyException_GetTraceback(exception));
}

kb_error *py_error_of(kb_code code, PyObject *exception)
{
    PyObject *text = PyObject_Str(exception);
    const char *bytes = text ? PyUnicode_AsUTF8(text) : NULL;
    PyErr_Clear();
    kb_error *err = kb_error_new(code, "%s: %s", Py_TYPE(exception)->tp_name, bytes ? bytes : "");
    Py_XDECREF(text);
    return err;
}

void py_add_note(PyObject *exception, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyObject *note = PyUnicode_FromFormatV(format, args);
    va_end(args);
#if PY_VERSION_HEX >= 0x030B0000
    PyObject *none = note ? PyObject_CallMethod(exception, "add_note", "O", note) : NULL;
    Py_XDECREF(none);
#else
    PyObject *notes = PyObject_GetAttrString(exception, "__notes__");
    if (!notes) {
        PyErr_Clear();
        notes = PyList_New(0);
        if (notes)
            (void)PyObject_SetAttrString(exception, "__notes__", notes);
    }
    if (notes && note && PyList_Check(notes))
        (void)PyList_Append(notes, note);
    Py_XDECREF(notes);
#endif
    Py_XDECREF(note);
    PyErr_Clear(); /* a note is no reason to fail */
}

PyObject *py_check_returned(PyObject *result)
{
    if (!result ||
        (!PyGen_Check(result) && !PyCoro_CheckExact(result) && !PyAsyncGen_CheckExact(result)))
        return result;
    PyObject *closed = PyObject_CallMethod(result, "close", NULL);
    PyErr_Clear(); /* an asynchronous generator has none */
    Py_XDECREF(closed);
    PyErr_Format(PyExc_TypeError,
                 "the function returned %R, and its body has not run: a kernel, worker or bench is "
                 "a plain function, without `yield` and `async`",
                 result);
    Py_DECREF(result);
    return NULL;
}
