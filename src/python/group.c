/*
 * group.c: the process group, groups of its ranks, and collectives.
 */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "algorithms.h"
#include "ccl/ccl.h"
#include "errors.h"
#include "rt/rt.h"

/* ---- The process group ------------------------------------------------------------------- */

static kb_error *init_now(kb_context *kb, void *backend)
{
    return kb_distributed_init_process_group(kb, backend);
}

static PyObject *init_process_group(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"backend", "ccl", "modules", "settings", NULL};
    py_context *self = (py_context *)object;
    const char *backend = "ahbm", *file = NULL;
    PyObject *modules = NULL, *settings = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|szO!O:init_process_group", PY_NAMES(names),
                                     &backend, &file, &PyDict_Type, &modules, &settings) ||
        !py_context_check(self))
        return NULL;
    bool reads = (file || modules || settings) && !kb_distributed_is_initialized(self->kb);
    if (reads && !py_algorithms_load(self, file, modules, settings))
        return NULL;
    return py_host_do(self, init_now, (void *)(uintptr_t)backend) ? Py_NewRef(Py_None) : NULL;
}

static kb_error *destroy_now(kb_context *kb, void *unused)
{
    (void)unused;
    return kb_distributed_destroy_process_group(kb);
}

static PyObject *destroy_process_group(PyObject *object, PyObject *unused)
{
    (void)unused;
    return py_host_do((py_context *)object, destroy_now, NULL) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *is_initialized(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyBool_FromLong(kb_distributed_is_initialized(self->kb)) : NULL;
}

static PyObject *get_rank(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    uint32_t rank;
    if (!py_context_check(self) || !py_succeeded(kb_distributed_get_rank(self->kb, &rank)))
        return NULL;
    return PyLong_FromUnsignedLong(rank);
}

static PyObject *get_world_size(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    uint32_t size;
    if (!py_context_check(self) || !py_succeeded(kb_distributed_get_world_size(self->kb, &size)))
        return NULL;
    return PyLong_FromUnsignedLong(size);
}

static PyObject *get_backend(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    const char *backend;
    if (!py_context_check(self) || !py_succeeded(kb_distributed_get_backend(self->kb, &backend)))
        return NULL;
    return PyUnicode_FromString(backend);
}

/* ---- Groups ------------------------------------------------------------------------------ */

typedef struct group_call {
    uint32_t *ranks;
    size_t count;
    kb_group group;
} group_call;

static kb_error *new_group_now(kb_context *kb, void *arg)
{
    group_call *call = arg;
    return kb_distributed_new_group(kb, call->ranks, call->count, &call->group);
}

static PyObject *new_group(PyObject *object, PyObject *list)
{
    PyObject *items = PySequence_Fast(list, "new_group() takes a list of ranks");
    if (!items)
        return NULL;
    group_call call = {.count = (size_t)PySequence_Fast_GET_SIZE(items)};
    call.ranks = kb_alloc_array(call.count, sizeof *call.ranks);
    bool good = call.ranks;
    if (!good)
        PyErr_NoMemory();
    for (size_t i = 0; i < call.count && good; i++) {
        int64_t rank;
        good = py_get_integer(PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i), &rank);
        call.ranks[i] = good && rank >= 0 && rank < UINT32_MAX ? (uint32_t)rank : UINT32_MAX;
    }
    Py_DECREF(items);
    good = good && py_host_do((py_context *)object, new_group_now, &call);
    free(call.ranks);
    return good ? PyLong_FromUnsignedLongLong(call.group.id) : NULL;
}

static bool get_group(PyObject *object, kb_group *group)
{
    group->id = PyLong_AsUnsignedLongLong(object);
    return group->id != (unsigned long long)-1 || !PyErr_Occurred();
}

static PyObject *group_rank(PyObject *object, PyObject *number)
{
    py_context *self = (py_context *)object;
    kb_group group;
    uint32_t rank;
    if (!get_group(number, &group) || !py_context_check(self) ||
        !py_succeeded(kb_distributed_get_group_rank(self->kb, group, &rank)))
        return NULL;
    return rank == UINT32_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(rank);
}

static PyObject *group_size(PyObject *object, PyObject *number)
{
    py_context *self = (py_context *)object;
    kb_group group;
    uint32_t size;
    if (!get_group(number, &group) || !py_context_check(self) ||
        !py_succeeded(kb_distributed_get_group_size(self->kb, group, &size)))
        return NULL;
    return PyLong_FromUnsignedLong(size);
}

/* ---- Collectives ------------------------------------------------------------------------- */

static bool find_name(const char *what, const char *text, int count, const char *(*name)(int),
                      int *found)
{
    for (*found = 0; *found < count; ++*found)
        if (strcmp(name(*found), text) == 0)
            return true;
    PyErr_Format(PyExc_NotImplementedError, "there is no %s '%s'", what, text);
    return false;
}

static const char *name_of_collective(int kind)
{
    return kb_collective_name((kb_collective_kind)kind);
}

static const char *name_of_op(int op)
{
    return kb_reduce_op_name((kb_reduce_op)op);
}

static kb_error *collective_now(kb_context *kb, void *arg)
{
    const kb_collective *call = arg;
    if (call->kind == KB_BARRIER)
        return kb_distributed_barrier(kb, &call->options);
    return kb_distributed_call(kb, call);
}

/* Makes the call; what kernels of algorithms in Python raised comes out of it. */
static PyObject *call_engine(py_context *self, kb_collective *call, bool wait, PyObject *name)
{
    kb_request work = {0};
    kb_error *err;
    call->options.work = wait ? NULL : &work;
    if (!py_host_call(self, collective_now, call, &err))
        return NULL;
    if (err) {
        py_algorithms_raise(self, err);
        return NULL;
    }
    return wait ? Py_NewRef(Py_None) : py_request_new(self, work, name, NULL, false);
}

static PyObject *collective(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"kind",  "inputs",    "outputs", "op", "root",
                                        "group", "algorithm", "wait",    NULL};
    py_context *self = (py_context *)object;
    PyObject *name, *inputs = NULL, *outputs = NULL, *result = NULL;
    const char *op_name = "sum", *algorithm = NULL;
    unsigned root = 0;
    unsigned long long group = 0;
    int wait = 1, kind, op;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|OOsIKzp:collective", PY_NAMES(names), &name,
                                     &inputs, &outputs, &op_name, &root, &group, &algorithm, &wait))
        return NULL;
    const char *kind_name = PyUnicode_AsUTF8(name);
    if (!kind_name ||
        !find_name("collective", kind_name, KB_COLLECTIVES, name_of_collective, &kind) ||
        !find_name("reduction", op_name, KB_REDUCE_OPS, name_of_op, &op))
        return NULL;
    size_t input_count = 0, output_count = 0;
    kb_tensor *in = NULL, *out = NULL;
    bool good = (!inputs || (in = py_get_tensors(self, inputs, &input_count))) &&
                (!outputs || (out = py_get_tensors(self, outputs, &output_count)));
    kb_collective call = {.kind = (kb_collective_kind)kind,
                          .inputs = kind == KB_RECV   ? NULL
                                    : input_count > 0 ? in
                                                      : out,
                          .outputs = kind == KB_SEND    ? NULL
                                     : output_count > 0 ? out
                                                        : in,
                          .count = input_count > output_count ? input_count : output_count,
                          .op = (kb_reduce_op)op,
                          .root = root,
                          .options = {.group = {group}, .algorithm = algorithm}};
    if (good && input_count > 0 && output_count > 0 && input_count != output_count) {
        PyErr_SetString(PyExc_ValueError, "collective: as many inputs as outputs are needed");
        good = false;
    }
    if (good)
        result = call_engine(self, &call, wait, name);
    free(in);
    free(out);
    return result;
}

/* ---- What ccl.yaml chooses --------------------------------------------------------------- */

static PyObject *names_of(unsigned collectives)
{
    PyObject *list = PyList_New(0);
    for (int kind = 0; kind < KB_COLLECTIVES && list; kind++) {
        PyObject *name =
            collectives >> kind & 1 ? PyUnicode_FromString(name_of_collective(kind)) : NULL;
        if (name && PyList_Append(list, name) != 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *ccl_info(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    kb_ccl_info info;
    if (!py_context_check(self) || !py_succeeded(kb_ccl_get_info(self->kb, &info)))
        return NULL;
    PyObject *collectives = names_of(info.collectives);
    if (!collectives)
        return NULL;
    return Py_BuildValue("{ss sN ss sL sI sO sO ss}", "algorithm", info.algorithm, "collectives",
                         collectives, "validator", info.validator, "n_elem", (long long)info.n_elem,
                         "world", info.world, "rank_is_pe", info.rank_is_pe ? Py_True : Py_False,
                         "reduce_shards", info.reduce_shards ? Py_True : Py_False, "op",
                         kb_reduce_op_name(info.op));
}

static PyObject *load_ccl(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"ccl", "modules", "settings", NULL};
    py_context *self = (py_context *)object;
    const char *file = NULL;
    PyObject *modules = NULL, *settings = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zO!O:load_ccl", PY_NAMES(names), &file,
                                     &PyDict_Type, &modules, &settings) ||
        !py_context_check(self) || !py_algorithms_load(self, file, modules, settings))
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef py_group_methods[] = {
    PY_METHOD(
        "init_process_group", init_process_group,
        "init_process_group($self, backend='ahbm', ccl=None, modules=None, settings=None)\n--\n\n"
        "Initialises the process group with what a ccl.yaml says. modules: algorithms in "
        "Python by the names that the file uses."),
    PY_PLAIN_METHOD("destroy_process_group", destroy_process_group,
                    "destroy_process_group($self)\n--\n\nRemoves the queues and leaves the group."),
    PY_PLAIN_METHOD("is_initialized", is_initialized,
                    "is_initialized($self)\n--\n\nWhether the caller is in a process group."),
    PY_PLAIN_METHOD("rank", get_rank, "rank($self)\n--\n\nThe caller's rank."),
    PY_PLAIN_METHOD("world_size", get_world_size,
                    "world_size($self)\n--\n\nHow many ranks there are."),
    PY_PLAIN_METHOD("backend", get_backend, "backend($self)\n--\n\nThe name of the backend."),
    {"new_group", new_group, METH_O,
     PyDoc_STR(
         "new_group($self, ranks, /)\n--\n\nA group of these ranks; a number that names it.")},
    {"group_rank", group_rank, METH_O,
     PyDoc_STR("group_rank($self, group, /)\n--\n\nThe caller's rank in the group, or None.")},
    {"group_size", group_size, METH_O,
     PyDoc_STR("group_size($self, group, /)\n--\n\nHow many ranks the group has.")},
    PY_METHOD("collective", collective,
              "collective($self, kind, inputs=[], outputs=[], op='sum', root=0, group=0, "
              "algorithm=None, wait=True)\n--\n\n"
              "A collective by its name: 'all_reduce'. A request if it does not wait."),
    PY_PLAIN_METHOD("ccl_info", ccl_info, "ccl_info($self)\n--\n\nWhat ccl.yaml chooses, a dict."),
    PY_METHOD("load_ccl", load_ccl,
              "load_ccl($self, ccl=None, modules=None)\n--\n\n"
              "Reads a ccl.yaml for collectives and queues from here on. Not in a process group."),
    {0},
};
