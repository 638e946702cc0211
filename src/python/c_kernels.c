/*
 * c_kernels.c: kernels in C: loads a library that kernbench.compile_c() has made. It has the
 * kernels of a file in a table, and calls what this extension exports.
 */
#include "c_kernels.h"

#include <dlfcn.h>
#include <stddef.h>
#include <structmember.h>

#include "errors.h"

typedef struct py_ckernel {
    PyObject_HEAD const kb_kernel *kernel; /* of a library that stays loaded */
} py_ckernel;

static PyTypeObject *ckernel_type;

const kb_kernel *py_kernel_of(PyObject *object)
{
    return Py_TYPE(object) == ckernel_type ? ((py_ckernel *)object)->kernel : NULL;
}

static PyObject *get_name(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((py_ckernel *)object)->kernel->name);
}

static PyObject *get_parameters(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((py_ckernel *)object)->kernel->parameters);
}

static PyObject *ckernel_repr(PyObject *object)
{
    const kb_kernel *kernel = ((py_ckernel *)object)->kernel;
    return PyUnicode_FromFormat("CKernel('%s(%s)')", kernel->name, kernel->parameters);
}

/* Libraries find the calls of the engine in this one. */
bool py_export_calls(void)
{
    static bool done;
    Dl_info info;
    if (done)
        return true;
    if (dladdr(&ckernel_type, &info) == 0 || !info.dli_fname ||
        !dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)) {
        PyErr_Format(PyExc_OSError, "cannot export the calls of KernBench: %s", dlerror());
        return false;
    }
    done = true;
    return true;
}

/* A dict from names to kernels. */
static PyObject *load_kernels(PyObject *module, PyObject *path)
{
    (void)module;
    const char *file = PyUnicode_Check(path) ? PyUnicode_AsUTF8(path) : NULL;
    if (!file || !py_export_calls()) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "load_kernels() takes the path of a library");
        return NULL;
    }
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return PyErr_Format(py_input_error, "cannot load %s: %s", file, dlerror());
    const kb_kernel *const *kernels = dlsym(library, "kernbench_kernels");
    if (!kernels)
        return PyErr_Format(py_input_error, "%s has no table of kernels", file);
    PyObject *dict = PyDict_New();
    for (; *kernels && dict; kernels++) {
        py_ckernel *kernel = PyObject_New(py_ckernel, ckernel_type);
        if (kernel)
            kernel->kernel = *kernels;
        if (!kernel || PyDict_SetItemString(dict, (*kernels)->name, (PyObject *)kernel) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(kernel);
    }
    return dict;
}

bool py_compile_init(PyObject *module)
{
    static PyGetSetDef members[] = {
        {"name", get_name, NULL, PyDoc_STR("The name of the kernel."), NULL},
        {"parameters", get_parameters, NULL, PyDoc_STR("Its parameters as they are written."),
         NULL},
        {0},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t) "A kernel in C, to be launched as one in Python is."},
        {Py_tp_repr, ckernel_repr},
        {Py_tp_getset, members},
        {0, NULL},
    };
    static PyType_Spec spec = {.name = "kernbench.CKernel",
                               .basicsize = sizeof(py_ckernel),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
    static PyMethodDef functions[] = {
        {"load_kernels", load_kernels, METH_O,
         PyDoc_STR("load_kernels(path, /)\n--\n\nThe kernels of a compiled library, by name.")},
        {0},
    };
    ckernel_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return ckernel_type &&
           PyModule_AddObjectRef(module, "CKernel", (PyObject *)ckernel_type) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}
