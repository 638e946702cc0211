/*
 * describe.c: machines and the built-in ccl.yaml as text, YAML as values, and which calls of
 * tensors wait first.
 */
#include "describe.h"

#include <stdlib.h>
#include <string.h>

#include "ccl/ccl.h"
#include "cli/cli.h"
#include "errors.h"
#include "parse.h"
#include "rt/rt.h"
#include "topo/topo.h"

static PyObject *parse_yaml(PyObject *module, PyObject *text)
{
    (void)module;
    Py_ssize_t length;
    if (PyUnicode_Check(text)) {
        const char *utf8 = PyUnicode_AsUTF8AndSize(text, &length);
        return utf8 ? py_parse_yaml(utf8, (size_t)length) : NULL;
    }
    char *bytes;
    if (PyBytes_AsStringAndSize(text, &bytes, &length) != 0)
        return NULL;
    return py_parse_yaml(bytes, (size_t)length);
}

static PyObject *text_of_machine(const topo_source *source)
{
    topo_machine *machine;
    if (!py_succeeded(topo_machine_load(source, &machine)))
        return NULL;
    kb_text text = KB_TEXT_INIT;
    bool good = py_succeeded(effective_text(machine, &text));
    topo_machine_destroy(machine);
    PyObject *string = good ? PyUnicode_FromString(kb_text_peek(&text)) : NULL;
    kb_text_fini(&text);
    return string;
}

static PyObject *describe_machine(PyObject *module, PyObject *args)
{
    (void)module;
    const char *topology = NULL;
    PyObject *settings = NULL;
    if (!PyArg_ParseTuple(args, "|zO:describe_machine", &topology, &settings))
        return NULL;
    PyObject *kept = settings ? PySequence_Tuple(settings) : PyTuple_New(0);
    size_t count = kept ? (size_t)PyTuple_GET_SIZE(kept) : 0;
    const char **texts = kept ? kb_alloc_array(count, sizeof *texts) : NULL;
    bool good = texts;
    for (size_t i = 0; i < count && good; i++) {
        texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kept, (Py_ssize_t)i));
        good = texts[i];
    }
    PyObject *text = NULL;
    if (good)
        text = text_of_machine(
            &(topo_source){.path = topology, .settings = texts, .setting_count = count});
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    free(texts);
    Py_XDECREF(kept);
    return text;
}

static PyObject *builtin_ccl(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromStringAndSize(ccl_builtin_text, (Py_ssize_t)ccl_builtin_length);
}

/* ---- Calls that wait --------------------------------------------------------------------- */

/* Members of tensors, and the call of the engine that they make. */
static const struct {
    const char *member, *function;
} members_of_tensors[] = {
    {"numpy", "kb_tensor_to_host"},
    {"data", "kb_tensor_to_host"},
    {"__getitem__", "kb_tensor_get_slice"},
    {"__repr__", "kb_tensor_repr"},
    {"copy_", "kb_tensor_copy"},
    {"__setitem__", "kb_tensor_set_slice"},
    {"free", "kb_tensor_free"},
    {"shape", "kb_tensor_shape"},
    {"dtype", "kb_tensor_dtype"},
    {"name", "kb_tensor_name"},
    {"va", "kb_tensor_va"},
};

/* The names of the members whose call shows contents to the host, and so waits. */
static PyObject *host_read_barriers(void)
{
    PyObject *names = PyFrozenSet_New(NULL);
    for (size_t i = 0; i < sizeof members_of_tensors / sizeof members_of_tensors[0] && names; i++) {
        if (!rt_shows_contents(members_of_tensors[i].function))
            continue;
        PyObject *name = PyUnicode_FromString(members_of_tensors[i].member);
        if (!name || PySet_Add(names, name) != 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

bool py_describe_init(PyObject *module)
{
    static PyMethodDef functions[] = {
        {"parse_yaml", parse_yaml, METH_O,
         PyDoc_STR("parse_yaml(text, /)\n--\n\nYAML as dicts, lists and plain values.")},
        {"describe_machine", describe_machine, METH_VARARGS,
         PyDoc_STR("describe_machine(topology=None, settings=(), /)\n--\n\n"
                   "The complete description of a machine, as YAML.")},
        {"builtin_ccl", builtin_ccl, METH_NOARGS,
         PyDoc_STR("builtin_ccl()\n--\n\nThe ccl.yaml that is built in.")},
        {0},
    };
    PyObject *barriers = host_read_barriers();
    bool good = barriers && PyModule_AddObjectRef(module, "HOST_READ_BARRIERS", barriers) == 0;
    Py_XDECREF(barriers);
    return good && PyModule_AddFunctions(module, functions) == 0;
}
