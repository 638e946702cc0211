/*
 * mock.c: kernels of collectives in Python without a machine: see kb_mock.
 */
#include "mock.h"

#include <stdlib.h>
#include <string.h>

#include <kernbench/ccl.h>

#include "base/base.h"
#include "errors.h"
#include "kernel.h"
#include "thread_states.h"

/* As those of contexts: Python needs more than kernels in C. */
enum { STACK_BYTES = 8 << 20 };

/* What a run needs, made from Python's arguments. */
typedef struct mock_call {
    kb_mock mock;
    kb_mock_edge *edges;
    PyObject *edge_list; /* keeps the directions' texts */
    py_launch *launch;
    unsigned char *data; /* all buffers, one behind the other */
    size_t buffer_bytes;
} mock_call;

static void mock_call_fini(mock_call *is)
{
    free(is->edges);
    Py_XDECREF(is->edge_list);
    py_launch_free(is->launch);
    free(is->data);
}

/* ---- Arguments ---------------------------------------------------------------------------- */

static bool get_edges(PyObject *list, mock_call *is)
{
    is->edge_list = PySequence_Tuple(list);
    if (!is->edge_list)
        return false;
    Py_ssize_t count = PyTuple_GET_SIZE(is->edge_list);
    is->edges = kb_alloc_array((size_t)count + 1, sizeof *is->edges);
    if (!is->edges) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(is->edge_list, i);
        unsigned int from, to;
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "an edge is a tuple (from rank, direction, to rank)");
            return false;
        }
        if (!PyArg_ParseTuple(item, "IsI:edge", &from, &is->edges[i].direction, &to))
            return false;
        is->edges[i].from = from;
        is->edges[i].to = to;
    }
    is->mock.edges = is->edges;
    is->mock.edge_count = (size_t)count;
    return true;
}

/* Appends a rank's buffer; all have as many bytes as the first. */
static bool add_buffer(PyObject *object, mock_call *is, size_t rank)
{
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS) != 0)
        return false;
    bool good = true;
    if (rank == 0) {
        size_t bytes;
        is->buffer_bytes = (size_t)view.len;
        is->data = kb_size_mul(is->buffer_bytes, is->mock.ranks, &bytes)
                       ? kb_alloc_array(bytes + 1, 1)
                       : NULL;
        if (!is->data)
            PyErr_NoMemory();
        good = is->data;
    }
    if (good && (size_t)view.len != is->buffer_bytes) {
        PyErr_SetString(PyExc_ValueError, "the inputs have different sizes");
        good = false;
    }
    if (good && view.len > 0)
        memcpy(is->data + rank * is->buffer_bytes, view.buf, is->buffer_bytes);
    PyBuffer_Release(&view);
    return good;
}

static bool get_inputs(PyObject *list, mock_call *is)
{
    PyObject *items = PySequence_Fast(list, "expected a list of buffers");
    if (!items)
        return false;
    bool good = (size_t)PySequence_Fast_GET_SIZE(items) == is->mock.ranks;
    if (!good)
        PyErr_Format(PyExc_ValueError, "%zd inputs for %u ranks", PySequence_Fast_GET_SIZE(items),
                     (unsigned)is->mock.ranks);
    for (size_t i = 0; i < is->mock.ranks && good; i++)
        good = add_buffer(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i), is, i);
    Py_DECREF(items);
    is->mock.elements = good ? is->buffer_bytes / kb_dtype_bytes(is->mock.dtype) : 0;
    return good;
}

/* fn(0, *args, tl=tl) */
static bool make_launch(PyObject *function, PyObject *args, mock_call *is)
{
    size_t count = (size_t)PyTuple_GET_SIZE(args) + 1;
    PyObject **items = kb_alloc_array(count, sizeof *items);
    bool *is_address = kb_alloc_zeroed(count, sizeof *is_address);
    PyObject *zero = PyLong_FromLong(0);
    if (items && is_address && zero) {
        items[0] = zero;
        for (size_t i = 1; i < count; i++)
            items[i] = PyTuple_GET_ITEM(args, (Py_ssize_t)i - 1);
        is->launch = py_launch_new(NULL, function, items, is_address, count, NULL, STACK_BYTES);
    } else {
        PyErr_NoMemory();
    }
    Py_XDECREF(zero);
    free(is_address);
    free(items);
    if (!is->launch)
        return false;
    is->launch->rank_count = PyLong_FromUnsignedLong(is->mock.ranks);
    is->launch->mock_pes_per_cube =
        is->mock.pes_per_cube > 0 ? is->mock.pes_per_cube : is->mock.ranks;
    is->launch->kernel.parameter_count = 0; /* Python has all of its arguments */
    is->mock.kernel = &is->launch->kernel;
    return is->launch->rank_count;
}

/* ---- Running ------------------------------------------------------------------------------ */

static bool run(mock_call *is)
{
    py_stay stay;
    py_tl *running = py_set_running_tl(NULL);
    py_stay_begin(&stay);
    kb_error *err = kb_mock_run(&is->mock, is->data, is->buffer_bytes * is->mock.ranks);
    py_stay_end(&stay);
    (void)py_set_running_tl(running);
    if (err)
        py_launch_raise(is->launch, err);
    return !err;
}

static PyObject *outputs_of(const mock_call *is)
{
    PyObject *list = PyList_New((Py_ssize_t)is->mock.ranks);
    for (size_t i = 0; list && i < is->mock.ranks; i++) {
        const unsigned char *from = is->data + i * is->buffer_bytes;
        PyObject *item =
            PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)is->buffer_bytes);
        if (item)
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *run_mock(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"fn",     "world", "edges",        "args",
                                        "inputs", "dtype", "pes_per_cube", NULL};
    PyObject *function, *edges, *given, *inputs, *dtype;
    unsigned int world, pes_per_cube = 0;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OIOO!OO|I:run_mock", PY_NAMES(names), &function,
                                     &world, &edges, &PyTuple_Type, &given, &inputs, &dtype,
                                     &pes_per_cube))
        return NULL;
    if (py_running_tl()) {
        PyErr_SetString(py_kernbench_error, "a kernel cannot make a mock run");
        return NULL;
    }
    mock_call is = {.mock = {.ranks = world,
                             .pes_per_cube = pes_per_cube,
                             .own_memory = true,
                             .stack_bytes = STACK_BYTES}};
    bool done = py_get_dtype(dtype, &is.mock.dtype) && get_edges(edges, &is) &&
                get_inputs(inputs, &is) && make_launch(function, given, &is) && run(&is);
    PyObject *outputs = done ? outputs_of(&is) : NULL;
    mock_call_fini(&is);
    return outputs;
}

static PyMethodDef functions[] = {
    PY_METHOD(
        "run_mock", run_mock,
        "run_mock($module, /, fn, world, edges, args, inputs, dtype, pes_per_cube=0)\n--\n\n"
        "Runs fn(0, *args, tl=tl) on all ranks without a machine, and returns their buffers.\n"
        "The input of a rank is in its memory at the rank times the input's bytes. Edges are\n"
        "(from rank, direction, to rank)."),
    {0},
};

bool py_mock_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
