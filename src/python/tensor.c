/*
 * tensor.c: tensors. The object names a tensor of a context; a class for programs is made from it
 * in Python.
 *
 * A tensor whose object is gone keeps its memory until an allocation finds none: then those without
 * an object are freed. So it does not depend on when objects go what takes simulated time.
 */
#include "context.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "errors.h"
#include "rt/rt.h"

PyTypeObject *py_tensor_type;

/* ---- The object -------------------------------------------------------------------------- */

static int tensor_traverse(PyObject *object, visitproc visit, void *arg)
{
    py_tensor *self = (py_tensor *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->context);
    return 0;
}

static int tensor_clear(PyObject *object)
{
    py_tensor *self = (py_tensor *)object;
    py_context *context = self->context;
    if (context && context->kb && self->tensor.id != 0)
        (void)!kb_vec_push(&context->unnamed, self->tensor); /* else it goes with the context */
    self->tensor = (kb_tensor){0};
    Py_CLEAR(self->context);
    return 0;
}

static void tensor_dealloc(PyObject *object)
{
    py_tensor *self = (py_tensor *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weak_references)
        PyObject_ClearWeakRefs(object);
    (void)tensor_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *get_id(PyObject *object, void *unused)
{
    (void)unused;
    const py_tensor *self = (py_tensor *)object;
    bool alive = self->context && self->context->kb;
    return PyLong_FromUnsignedLongLong(alive ? self->tensor.id : 0);
}

static PyObject *get_context(PyObject *object, void *unused)
{
    (void)unused;
    const py_tensor *self = (py_tensor *)object;
    return Py_NewRef(self->context ? (PyObject *)self->context : Py_None);
}

static PyGetSetDef tensor_members[] = {
    {"_id", get_id, NULL, PyDoc_STR("What names the tensor; 0: it is not deployed, or freed."),
     NULL},
    {"_context", get_context, NULL, PyDoc_STR("The context that it is in, or None."), NULL},
    {0},
};

static PyMemberDef tensor_offsets[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(py_tensor, weak_references), READONLY, NULL},
    {0},
};

bool py_tensor_init_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t) "Names a tensor of a context. A base for classes."},
        {Py_tp_new, PyType_GenericNew},
        {Py_tp_dealloc, tensor_dealloc},
        {Py_tp_traverse, tensor_traverse},
        {Py_tp_clear, tensor_clear},
        {Py_tp_getset, tensor_members},
        {Py_tp_members, tensor_offsets},
        {0, NULL},
    };
    static PyType_Spec spec = {.name = "kernbench._core.Tensor",
                               .basicsize = sizeof(py_tensor),
                               .flags =
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               .slots = slots};
    py_tensor_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_tensor_type &&
           PyModule_AddObjectRef(module, "Tensor", (PyObject *)py_tensor_type) == 0;
}

bool py_get_tensor(const py_context *self, PyObject *object, kb_tensor *tensor)
{
    if (!PyObject_TypeCheck(object, py_tensor_type)) {
        PyErr_Format(PyExc_TypeError, "expected a Tensor, found %.200s", Py_TYPE(object)->tp_name);
        return false;
    }
    const py_tensor *is = (py_tensor *)object;
    if (is->context != self || is->tensor.id == 0) {
        PyObject *name = PyObject_GetAttrString(object, "name");
        PyErr_Clear();
        PyErr_Format(py_kernbench_error, "tensor %R is not deployed%s", name ? name : Py_None,
                     is->context && is->context != self ? " in this context" : "");
        Py_XDECREF(name);
        return false;
    }
    *tensor = is->tensor;
    return true;
}

kb_tensor *py_get_tensors(const py_context *self, PyObject *list, size_t *count)
{
    PyObject *items = PySequence_Fast(list, "expected a list of tensors");
    if (!items)
        return NULL;
    *count = (size_t)PySequence_Fast_GET_SIZE(items);
    kb_tensor *tensors = kb_alloc_array(*count, sizeof *tensors);
    bool good = tensors;
    if (!tensors)
        PyErr_NoMemory();
    for (size_t i = 0; i < *count && good; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i);
        tensors[i] = (kb_tensor){0};
        good = item == Py_None || py_get_tensor(self, item, &tensors[i]);
    }
    Py_DECREF(items);
    if (!good) {
        free(tensors);
        return NULL;
    }
    return tensors;
}

/* ---- Deploying --------------------------------------------------------------------------- */

static bool get_split(PyObject *object, kb_split *split)
{
    static const char *const names[] = {
        [KB_REPLICATE] = "replicate", [KB_COLUMN_WISE] = "column_wise", [KB_ROW_WISE] = "row_wise"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, names[i]) == 0) {
            *split = (kb_split)i;
            return true;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "unknown policy %R: expected 'replicate', 'column_wise' or 'row_wise'", object);
    return false;
}

static bool get_tiling(const char *text, kb_tiling *tiling)
{
    if (!text || strcmp(text, "none") == 0)
        *tiling = KB_NOT_TILED;
    else if (strcmp(text, "column") == 0)
        *tiling = KB_TILED_COLUMN_MAJOR;
    else if (strcmp(text, "row") == 0)
        *tiling = KB_TILED_ROW_MAJOR;
    else {
        PyErr_Format(PyExc_ValueError, "unknown tiling '%s': expected 'column' or 'row'", text);
        return false;
    }
    return true;
}

static bool get_memory(const char *text, kb_memory *memory)
{
    if (strcmp(text, "hbm") == 0)
        *memory = KB_HBM;
    else if (strcmp(text, "tcm") == 0)
        *memory = KB_TCM;
    else {
        PyErr_Format(PyExc_ValueError, "unknown memory '%s': expected 'hbm' or 'tcm'", text);
        return false;
    }
    return true;
}

/* The arguments of deploy() and plan_shards(): these differ in the first one alone. */
typedef struct deployment {
    kb_tensor_spec spec;
    kb_policy policy;
    double fill;
    bool fills;
    kb_tensor made;
} deployment;

static bool get_deployment(PyObject *shape, PyObject *dtype, PyObject *kwargs, deployment *is)
{
    static const char *const names[] = {
        "name",         "cube",  "pe",     "num_cubes", "num_pes", "tiling", "tile_rows",
        "tile_columns", "whole", "memory", "fill",      "timed",   "index",  NULL};
    PyObject *cube = NULL, *pe = NULL, *fill = Py_None;
    const char *name = NULL, *tiling = NULL, *memory = "hbm";
    unsigned long long rows = 0, columns = 0;
    int whole = 0, timed = 1, index = 0;
    PyObject *none = PyTuple_New(0);
    *is = (deployment){0};
    bool good = none && PyArg_ParseTupleAndKeywords(
                            none, kwargs, "|$zOOIIzKKpsOpp:deploy", PY_NAMES(names), &name, &cube,
                            &pe, &is->policy.num_cubes, &is->policy.num_pes, &tiling, &rows,
                            &columns, &whole, &memory, &fill, &timed, &index);
    Py_XDECREF(none);
    if (!good || (cube && !get_split(cube, &is->policy.cube)) ||
        (pe && !get_split(pe, &is->policy.pe)) || !get_tiling(tiling, &is->policy.tiling) ||
        !get_memory(memory, &is->spec.memory) || !py_get_dtype(dtype, &is->spec.dtype) ||
        !py_get_shape(shape, &is->spec.shape))
        return false;
    is->policy.tile_rows = rows;
    is->policy.tile_columns = columns;
    is->spec.name = name;
    is->spec.policy = whole ? NULL : &is->policy;
    is->spec.access = timed ? KB_TIMED : KB_UNTIMED;
    is->spec.is_index = index;
    is->fills = fill != Py_None;
    is->fill = is->fills ? PyFloat_AsDouble(fill) : 0;
    return !(is->fill == -1 && PyErr_Occurred());
}

static kb_error *make_tensor(kb_context *kb, void *arg)
{
    deployment *is = arg;
    if (!is->fills)
        return kb_empty(kb, &is->spec, &is->made);
    if (is->fill == 0)
        return kb_zeros(kb, &is->spec, &is->made);
    return kb_full(kb, &is->spec, is->fill, &is->made);
}

static kb_error *free_all(kb_context *kb, void *arg)
{
    py_context *self = arg;
    kb_error *err = NULL;
    while (self->unnamed.count > 0 && !err)
        err = kb_tensor_free(kb, self->unnamed.items[--self->unnamed.count]);
    return err;
}

static PyObject *deploy(PyObject *object, PyObject *args, PyObject *kwargs)
{
    py_context *self = (py_context *)object;
    PyObject *target, *shape, *dtype;
    deployment is;
    if (!PyArg_ParseTuple(args, "O!OO:deploy", py_tensor_type, &target, &shape, &dtype) ||
        !get_deployment(shape, dtype, kwargs, &is))
        return NULL;
    py_tensor *tensor = (py_tensor *)target;
    if (tensor->tensor.id != 0) {
        PyErr_SetString(py_kernbench_error, "the tensor is deployed already");
        return NULL;
    }
    kb_error *err;
    if (!py_host_call(self, make_tensor, &is, &err))
        return NULL;
    if (kb_error_code(err) == KB_ERR_FAULT && self->unnamed.count > 0) {
        kb_error_free(err); /* it may have been for lack of memory */
        if (!py_host_do(self, free_all, self) || !py_host_call(self, make_tensor, &is, &err))
            return NULL;
    }
    if (!py_succeeded(err))
        return NULL;
    Py_XSETREF(tensor->context, (py_context *)Py_NewRef(object));
    tensor->tensor = is.made;
    Py_RETURN_NONE;
}

static kb_error *free_tensor(kb_context *kb, void *arg)
{
    return kb_tensor_free(kb, *(kb_tensor *)arg);
}

static PyObject *free_one(PyObject *object, PyObject *target)
{
    py_context *self = (py_context *)object;
    kb_tensor tensor;
    if (!py_get_tensor(self, target, &tensor) || !py_host_do(self, free_tensor, &tensor))
        return NULL;
    ((py_tensor *)target)->tensor = (kb_tensor){0};
    Py_RETURN_NONE;
}

/* ---- Shards ------------------------------------------------------------------------------ */

static PyObject *tuple_of_shard(const kb_shard *shard, uint64_t pa)
{
    return Py_BuildValue("(IIIKKK)", shard->sip, shard->cube, shard->pe, (unsigned long long)pa,
                         (unsigned long long)shard->nbytes,
                         (unsigned long long)shard->offset_bytes);
}

/* Machines that are larger than the format of physical addresses have none. */
static kb_error *address_of_shard(kb_context *kb, kb_tensor tensor, size_t index, uint64_t *pa)
{
    kb_location location;
    KB_TRY(kb_tensor_shard_location(kb, tensor, index, &location));
    return kb_location_to_pa(kb, location, pa);
}

static bool append(PyObject *list, PyObject *item)
{
    bool good = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return good;
}

static PyObject *list_shards(PyObject *object, PyObject *target)
{
    py_context *self = (py_context *)object;
    kb_tensor tensor;
    size_t count;
    if (!py_context_check(self) || !py_get_tensor(self, target, &tensor) ||
        !py_succeeded(kb_tensor_shard_count(self->kb, tensor, &count)))
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < count && list; i++) {
        kb_shard shard;
        uint64_t pa = 0;
        bool good = py_succeeded(kb_tensor_shard(self->kb, tensor, i, &shard));
        if (good && shard.nbytes > 0)
            kb_error_free(address_of_shard(self->kb, tensor, i, &pa));
        good = good && append(list, tuple_of_shard(&shard, pa));
        if (!good)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *plan_shards(PyObject *object, PyObject *args, PyObject *kwargs)
{
    py_context *self = (py_context *)object;
    PyObject *shape, *dtype;
    deployment is;
    size_t count;
    if (!PyArg_ParseTuple(args, "OO:plan_shards", &shape, &dtype) ||
        !get_deployment(shape, dtype, kwargs, &is) || !py_context_check(self) ||
        !py_succeeded(kb_plan_shards(self->kb, &is.spec, NULL, 0, &count)))
        return NULL;
    kb_shard *shards = kb_alloc_array(count, sizeof *shards);
    if (!shards)
        return PyErr_NoMemory();
    PyObject *list = NULL;
    if (py_succeeded(kb_plan_shards(self->kb, &is.spec, shards, count, &count)))
        list = PyList_New(0);
    for (size_t i = 0; i < count && list; i++)
        if (!append(list, tuple_of_shard(&shards[i], 0)))
            Py_CLEAR(list);
    free(shards);
    return list;
}

static PyObject *get_va(PyObject *object, PyObject *target)
{
    py_context *self = (py_context *)object;
    kb_tensor tensor;
    uint64_t va;
    if (!py_context_check(self) || !py_get_tensor(self, target, &tensor) ||
        !py_succeeded(kb_tensor_va(self->kb, tensor, &va)))
        return NULL;
    return PyLong_FromUnsignedLongLong(va);
}

static PyObject *get_device(PyObject *object, PyObject *target)
{
    py_context *self = (py_context *)object;
    kb_tensor tensor;
    uint32_t sip;
    if (!py_context_check(self) || !py_get_tensor(self, target, &tensor) ||
        !py_succeeded(kb_tensor_device(self->kb, tensor, &sip)))
        return NULL;
    return PyLong_FromUnsignedLong(sip);
}

/* ---- Contents ---------------------------------------------------------------------------- */

/* A transfer of a tensor's contents, or of a slice. */
typedef struct transfer {
    kb_tensor tensor, other;
    kb_access access;
    kb_slice slice;
    bool sliced;
    Py_buffer data;
    double value;
} transfer;

static bool get_slice(PyObject *object, transfer *is)
{
    is->sliced = object && object != Py_None;
    if (!is->sliced)
        return true;
    PyObject *ranges = PySequence_Fast(object, "a slice is a tuple of (start, stop)");
    if (!ranges)
        return false;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(ranges);
    bool good = count <= KB_MAX_DIMS;
    if (!good)
        PyErr_SetString(PyExc_ValueError, "the slice has too many axes");
    is->slice.rank = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count && good; i++) {
        unsigned long long start, stop;
        good = PyArg_ParseTuple(PySequence_Fast_GET_ITEM(ranges, i), "KK", &start, &stop);
        is->slice.ranges[i] = (kb_span){start, stop};
    }
    Py_DECREF(ranges);
    return good;
}

static kb_error *read_now(kb_context *kb, void *arg)
{
    const transfer *is = arg;
    return kb_tensor_get_slice(kb, is->tensor, is->access, is->sliced ? &is->slice : NULL,
                               is->data.buf, (size_t)is->data.len);
}

static kb_error *write_now(kb_context *kb, void *arg)
{
    const transfer *is = arg;
    return kb_tensor_set_slice(kb, is->tensor, is->access, is->sliced ? &is->slice : NULL,
                               is->data.buf, (size_t)is->data.len);
}

static kb_error *fill_now(kb_context *kb, void *arg)
{
    const transfer *is = arg;
    return kb_tensor_fill_slice(kb, is->tensor, is->access, is->sliced ? &is->slice : NULL,
                                is->value);
}

static kb_error *copy_now(kb_context *kb, void *arg)
{
    const transfer *is = arg;
    return kb_tensor_copy(kb, is->tensor, is->other, is->access);
}

static PyObject *move_contents(PyObject *object, PyObject *args, PyObject *kwargs, bool writes)
{
    static const char *const names[] = {"tensor", "buffer", "timed", "slice", NULL};
    py_context *self = (py_context *)object;
    PyObject *target, *buffer, *slice = NULL;
    int timed = 1;
    transfer is = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$pO", PY_NAMES(names), &target, &buffer,
                                     &timed, &slice) ||
        !py_get_tensor(self, target, &is.tensor) || !get_slice(slice, &is))
        return NULL;
    is.access = timed ? KB_TIMED : KB_UNTIMED;
    int flags = writes ? PyBUF_C_CONTIGUOUS : PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE;
    if (PyObject_GetBuffer(buffer, &is.data, flags) != 0)
        return NULL;
    bool done = py_host_do(self, writes ? write_now : read_now, &is);
    PyBuffer_Release(&is.data);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *read_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    return move_contents(object, args, kwargs, false);
}

static PyObject *write_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    return move_contents(object, args, kwargs, true);
}

static PyObject *fill_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"tensor", "value", "timed", "slice", NULL};
    py_context *self = (py_context *)object;
    PyObject *target, *slice = NULL;
    int timed = 1;
    transfer is = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Od|$pO:fill", PY_NAMES(names), &target,
                                     &is.value, &timed, &slice) ||
        !py_get_tensor(self, target, &is.tensor) || !get_slice(slice, &is))
        return NULL;
    is.access = timed ? KB_TIMED : KB_UNTIMED;
    return py_host_do(self, fill_now, &is) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *copy_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"to", "from_", "timed", NULL};
    py_context *self = (py_context *)object;
    PyObject *to, *from;
    int timed = 1;
    transfer is = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$p:copy", PY_NAMES(names), &to, &from,
                                     &timed) ||
        !py_get_tensor(self, to, &is.tensor) || !py_get_tensor(self, from, &is.other))
        return NULL;
    is.access = timed ? KB_TIMED : KB_UNTIMED;
    return py_host_do(self, copy_now, &is) ? Py_NewRef(Py_None) : NULL;
}

/* ---- Memory ------------------------------------------------------------------------------ */

/* Bytes at an address, which is virtual or physical. */
typedef struct memory_access {
    uint64_t address;
    Py_buffer data;
    bool writes;
} memory_access;

static kb_error *access_now(kb_context *kb, void *arg)
{
    const memory_access *is = arg;
    return rt_access_address(kb, is->address, is->data.buf, (size_t)is->data.len, is->writes);
}

static PyObject *access_memory(PyObject *object, PyObject *args, bool writes)
{
    py_context *self = (py_context *)object;
    PyObject *buffer;
    const char *space = "hbm";
    unsigned long long address;
    memory_access is = {.writes = writes};
    if (!PyArg_ParseTuple(args, "KO|s", &address, &buffer, &space))
        return NULL;
    is.address = address;
    int flags = writes ? PyBUF_C_CONTIGUOUS : PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE;
    if (PyObject_GetBuffer(buffer, &is.data, flags) != 0)
        return NULL;
    bool done = py_host_do(self, access_now, &is);
    PyBuffer_Release(&is.data);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *read_memory(PyObject *object, PyObject *args)
{
    return access_memory(object, args, false);
}

static PyObject *write_memory(PyObject *object, PyObject *args)
{
    return access_memory(object, args, true);
}

/* ---- The table --------------------------------------------------------------------------- */

PyMethodDef py_tensor_methods[] = {
    PY_METHOD("deploy", deploy,
              "deploy($self, tensor, shape, dtype, *, name=None, cube='replicate', pe='replicate', "
              "num_cubes=0, num_pes=0, tiling=None, tile_rows=0, tile_columns=0, whole=False, "
              "memory='hbm', fill=None, timed=True, index=False)\n--\n\n"
              "Gives the tensor memory on the current device."),
    {"free", free_one, METH_O,
     PyDoc_STR("free($self, tensor, /)\n--\n\nFrees the tensor's memory.")},
    {"shards", list_shards, METH_O,
     PyDoc_STR("shards($self, tensor, /)\n--\n\n"
               "A list of (sip, cube, pe, pa, nbytes, offset_bytes).")},
    PY_METHOD("plan_shards", plan_shards,
              "plan_shards($self, shape, dtype, **policy)\n--\n\n"
              "The shards that deploy() would make on the current device; pa is 0."),
    {"va", get_va, METH_O, PyDoc_STR("va($self, tensor, /)\n--\n\nThe virtual address.")},
    {"device", get_device, METH_O,
     PyDoc_STR("device($self, tensor, /)\n--\n\nThe number of its SIP.")},
    PY_METHOD("read", read_tensor,
              "read($self, tensor, buffer, *, timed=True, slice=None)\n--\n\n"
              "Reads the elements into the buffer, after the caller's work is done."),
    PY_METHOD("write", write_tensor,
              "write($self, tensor, buffer, *, timed=True, slice=None)\n--\n\n"
              "Writes the elements; does not wait."),
    PY_METHOD("fill", fill_tensor,
              "fill($self, tensor, value, *, timed=True, slice=None)\n--\n\n"
              "Sets all elements to one number; does not wait."),
    PY_METHOD("copy", copy_tensor,
              "copy($self, to, from_, *, timed=True)\n--\n\nCopies from device to device."),
    {"read_memory", read_memory, METH_VARARGS,
     PyDoc_STR("read_memory($self, address, buffer, space='hbm', /)\n--\n\n"
               "Reads what is at a virtual or physical address, in no time.")},
    {"write_memory", write_memory, METH_VARARGS,
     PyDoc_STR("write_memory($self, address, buffer, space='hbm', /)\n--\n\n"
               "Writes to a virtual or physical address, in no time.")},
    {0},
};
