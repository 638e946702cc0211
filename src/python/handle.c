/*
 * handle.c: TensorHandle and Future: values of kernels as Python objects.
 *
 * A value is in the TCM of its PE until its object is gone. The object cannot free it there: the
 * interpreter may destroy it at any time, also while another kernel runs. So it is noted, and the
 * next operation of its kernel frees it, at the same simulated time.
 */
#include "kernel.h"

#include <string.h>
#include <structmember.h>

#include "base/base.h"
#include "srcloc.h"

PyTypeObject *py_handle_type;
PyTypeObject *py_future_type;

static PyObject *name_tcm, *name_hbm;

/* ---- Addresses of values ----------------------------------------------------------------- */

/* Beyond all virtual and physical addresses; below it, the part of a value's number that is not
 * its kernel's. */
enum { NUMBER_BITS = 42, MARK_BIT = 62 };

/* Values have no address in the simulated machine. They are given numbers that are addresses of
 * nothing, so that a program can name a value by the number while it is alive. */
static uint64_t address_of_value(tl_tensor value)
{
    return UINT64_C(1) << MARK_BIT | (value.id & ((UINT64_C(1) << NUMBER_BITS) - 1));
}

bool py_names_value(uint64_t address)
{
    return address >> MARK_BIT == 1;
}

bool py_name_value(py_tl *tl, uint64_t address, PyObject *handle)
{
    if (!tl->named && !(tl->named = PyDict_New()))
        return false;
    PyObject *key = PyLong_FromUnsignedLongLong(address);
    bool done = key && PyDict_SetItem(tl->named, key, handle) == 0;
    Py_XDECREF(key);
    return done;
}

/* Borrowed; NULL if nothing was received there. */
static PyObject *find_named(const py_tl *tl, uint64_t address)
{
    PyObject *key = tl->named ? PyLong_FromUnsignedLongLong(address) : NULL;
    PyObject *found = key ? PyDict_GetItem(tl->named, key) : NULL;
    Py_XDECREF(key);
    return found;
}

bool py_value_at_address(const py_tl *tl, uint64_t address, tl_tensor *value)
{
    if (!py_names_value(address))
        return false;
    PyObject *named = find_named(tl, address);
    uint64_t number = address & ((UINT64_C(1) << NUMBER_BITS) - 1);
    *value =
        named ? ((py_handle *)named)->value : (tl_tensor){.id = tl_kernel_bits(tl->tl) | number};
    return true;
}

/* ---- Made by operations ------------------------------------------------------------------ */

static py_handle *new_handle(py_tl *owner, tl_tensor value, const tl_dims *shape, kb_dtype dtype)
{
    py_handle *self = PyObject_New(py_handle, py_handle_type);
    if (!self)
        return NULL;
    self->owner = (py_tl *)Py_NewRef((PyObject *)owner);
    self->value = value;
    self->shape = *shape;
    self->dtype = dtype;
    self->is_freed = self->is_place = false;
    self->address = 0;
    self->space = self->id = self->data = NULL;
    self->shape_given = self->dtype_given = self->nbytes_given = self->bytes = NULL;
    return self;
}

PyObject *py_handle_new(py_tl *owner, tl_tensor value, const tl_dims *shape, kb_dtype dtype)
{
    return (PyObject *)new_handle(owner, value, shape, dtype);
}

PyObject *py_handle_of_place(py_tl *owner, tl_tensor value, const tl_dims *shape, kb_dtype dtype,
                             uint64_t address, PyObject *space)
{
    py_handle *self = new_handle(owner, value, shape, dtype);
    if (!self)
        return NULL;
    self->is_place = true;
    self->address = address;
    self->space = Py_NewRef(space ? space : name_hbm);
    return (PyObject *)self;
}

/* ---- Made by programs -------------------------------------------------------------------- */

static int handle_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"id",     "addr", "shape", "dtype",
                                        "nbytes", "data", "space", NULL};
    py_handle *self = (py_handle *)object;
    PyObject *id, *addr, *shape, *dtype = NULL, *nbytes = NULL, *data = Py_None, *space = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OOOO:TensorHandle", PY_NAMES(names), &id,
                                     &addr, &shape, &dtype, &nbytes, &data, &space))
        return -1;
    int64_t address = 0;
    if (addr != Py_None && !py_get_integer(addr, &address))
        return -1;
    if (!py_get_dims(shape, &self->shape))
        return -1;
    self->dtype = KB_F16;
    if (dtype && !py_get_dtype(dtype, &self->dtype))
        return -1;
    self->address = (uint64_t)address;
    self->is_place = true;
    uint64_t elements = 1;
    for (int i = 0; i < self->shape.rank; i++)
        elements *= (uint64_t)self->shape.dims[i];
    PyObject *computed = PyLong_FromUnsignedLongLong(elements * kb_dtype_bytes(self->dtype));
    Py_XSETREF(self->nbytes_given,
               nbytes && nbytes != Py_None ? Py_NewRef(nbytes) : Py_XNewRef(computed));
    Py_XDECREF(computed);
    Py_XSETREF(self->id, Py_NewRef(id));
    Py_XSETREF(self->data, Py_NewRef(data));
    Py_XSETREF(self->space, Py_NewRef(space ? space : name_tcm));
    Py_XSETREF(self->shape_given,
               PyTuple_Check(shape) ? Py_NewRef(shape) : py_tuple_of_dims(&self->shape));
    Py_XSETREF(self->dtype_given, dtype ? Py_NewRef(dtype) : py_string_of_dtype(self->dtype));
    return self->shape_given && self->nbytes_given ? 0 : -1;
}

static void handle_dealloc(PyObject *object)
{
    py_handle *self = (py_handle *)object;
    PyTypeObject *type = Py_TYPE(object);
    py_tl *owner = self->owner;
    if (owner) {
        /* Without memory to note it, it stays until the kernel ends. */
        if (owner->tl && !self->is_freed)
            (void)!kb_vec_push(&owner->released, self->value);
        Py_DECREF(owner);
    }
    Py_XDECREF(self->space);
    Py_XDECREF(self->id);
    Py_XDECREF(self->data);
    Py_XDECREF(self->shape_given);
    Py_XDECREF(self->dtype_given);
    Py_XDECREF(self->nbytes_given);
    Py_XDECREF(self->bytes);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- What it says of itself -------------------------------------------------------------- */

static PyObject *get_shape(PyObject *object, void *unused)
{
    (void)unused;
    const py_handle *self = (py_handle *)object;
    return self->shape_given ? Py_NewRef(self->shape_given) : py_tuple_of_dims(&self->shape);
}

static PyObject *get_dtype(PyObject *object, void *unused)
{
    (void)unused;
    const py_handle *self = (py_handle *)object;
    return self->dtype_given ? Py_NewRef(self->dtype_given) : py_string_of_dtype(self->dtype);
}

static PyObject *get_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    const py_handle *self = (py_handle *)object;
    if (self->nbytes_given)
        return Py_NewRef(self->nbytes_given);
    uint64_t bytes = kb_dtype_bytes(self->dtype);
    for (int i = 0; i < self->shape.rank; i++)
        bytes *= (uint64_t)self->shape.dims[i];
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *get_addr(PyObject *object, void *unused)
{
    (void)unused;
    const py_handle *self = (py_handle *)object;
    return PyLong_FromUnsignedLongLong(
        self->is_place || self->address ? self->address : address_of_value(self->value));
}

static PyObject *get_space(PyObject *object, void *unused)
{
    (void)unused;
    const py_handle *self = (py_handle *)object;
    return Py_NewRef(self->space ? self->space : name_tcm);
}

static PyObject *get_id(PyObject *object, void *unused)
{
    (void)unused;
    const py_handle *self = (py_handle *)object;
    return self->id ? Py_NewRef(self->id)
                    : PyUnicode_FromFormat("v%llu", (unsigned long long)self->value.id);
}

/* numpy's name of a data type; bf16 and f8 leave as integers of their size. */
static const char *numpy_name(kb_dtype dtype)
{
    static const char *const names[KB_DTYPES] = {
        [KB_F16] = "float16",  [KB_BF16] = "uint16", [KB_F32] = "float32", [KB_F8E4M3] = "uint8",
        [KB_F8E5M2] = "uint8", [KB_I8] = "int8",     [KB_I32] = "int32"};
    return names[dtype];
}

/* An array of the shape over the bytes, which it takes over. */
static PyObject *make_array(PyObject *bytes, const tl_dims *shape, kb_dtype dtype)
{
    PyObject *numpy = bytes ? PyImport_ImportModule("numpy") : NULL;
    PyObject *flat =
        numpy ? PyObject_CallMethod(numpy, "frombuffer", "Os", bytes, numpy_name(dtype)) : NULL;
    PyObject *dims = flat ? py_tuple_of_dims(shape) : NULL;
    PyObject *array = dims ? PyObject_CallMethod(flat, "reshape", "O", dims) : NULL;
    Py_XDECREF(dims);
    Py_XDECREF(flat);
    Py_XDECREF(numpy);
    Py_XDECREF(bytes);
    return array;
}

/* The numbers of any array as bytes in the dtype: raw where the array has it, else rounded. */
static PyObject *convert_array(PyObject *data, kb_dtype dtype)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", data) : NULL;
    PyObject *type = array ? PyObject_GetAttrString(array, "dtype") : NULL;
    PyObject *name = type ? PyObject_GetAttrString(type, "name") : NULL;
    PyObject *bytes = NULL;
    if (name && PyUnicode_CompareWithASCIIString(name, numpy_name(dtype)) == 0) {
        bytes = PyObject_CallMethod(array, "tobytes", NULL);
    } else if (name) {
        PyObject *wide = PyObject_CallMethod(array, "astype", "s", "float32");
        PyObject *floats = wide ? PyObject_CallMethod(wide, "tobytes", NULL) : NULL;
        size_t count = floats ? (size_t)PyBytes_GET_SIZE(floats) / sizeof(float) : 0;
        bytes = floats
                    ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * kb_dtype_bytes(dtype)))
                    : NULL;
        if (bytes)
            kb_convert(dtype, PyBytes_AS_STRING(bytes), KB_F32, PyBytes_AS_STRING(floats), count);
        Py_XDECREF(floats);
        Py_XDECREF(wide);
    }
    Py_XDECREF(name);
    Py_XDECREF(type);
    Py_XDECREF(array);
    Py_XDECREF(numpy);
    return bytes;
}

bool py_handle_get_bytes(py_handle *handle, const void **bytes)
{
    uint64_t wanted = kb_dtype_bytes(handle->dtype);
    for (int i = 0; i < handle->shape.rank; i++)
        wanted *= (uint64_t)handle->shape.dims[i];
    if (!handle->bytes)
        handle->bytes = convert_array(handle->data, handle->dtype);
    if (!handle->bytes)
        return false;
    *bytes = PyBytes_AS_STRING(handle->bytes);
    if ((uint64_t)PyBytes_GET_SIZE(handle->bytes) == wanted)
        return true;
    PyErr_SetString(PyExc_ValueError, "the data of a TensorHandle has another size than its shape");
    return false;
}

typedef struct read_call {
    py_tl *self;
    tl_srcloc at;
    tl_tensor value;
    void *data;
    bool known;
} read_call;

static void read_value(tl_context *tl, void *arg)
{
    read_call *call = arg;
    call->known = tl_read_value(tl, call->at, call->value, call->data);
}

/* The numbers of a value, once they are there; None in a run without data. */
static PyObject *read_data(py_handle *self)
{
    if (!py_tl_check(self->owner))
        return NULL;
    uint64_t bytes = kb_dtype_bytes(self->dtype);
    for (int i = 0; i < self->shape.rank; i++)
        bytes *= (uint64_t)self->shape.dims[i];
    PyObject *copy = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (!copy)
        return NULL;
    read_call call = {self->owner, py_srcloc(), self->value, PyByteArray_AS_STRING(copy), false};
    bool done = py_tl_perform(self->owner, read_value, &call);
    if (done && call.known)
        return make_array(copy, &self->shape, self->dtype);
    Py_DECREF(copy);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *get_data(PyObject *object, void *unused)
{
    (void)unused;
    py_handle *self = (py_handle *)object;
    if (!self->owner)
        return Py_NewRef(self->data ? self->data : Py_None);
    return self->is_place ? Py_NewRef(Py_None) : read_data(self);
}

static int set_data(PyObject *object, PyObject *data, void *unused)
{
    (void)unused;
    py_handle *self = (py_handle *)object;
    if (self->owner) {
        PyErr_SetString(PyExc_AttributeError, "the value of a kernel cannot be changed");
        return -1;
    }
    Py_XSETREF(self->data, Py_NewRef(data ? data : Py_None));
    Py_CLEAR(self->bytes);
    return 0;
}

static PyObject *handle_repr(PyObject *object)
{
    PyObject *shape = get_shape(object, NULL), *dtype = get_dtype(object, NULL);
    PyObject *space = get_space(object, NULL), *addr = get_addr(object, NULL);
    PyObject *text = NULL;
    if (shape && dtype && space && addr)
        text = PyUnicode_FromFormat("TensorHandle(shape=%S, dtype=%R, space=%R, addr=%S)", shape,
                                    dtype, space, addr);
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    Py_XDECREF(space);
    Py_XDECREF(addr);
    return text;
}

static PyGetSetDef handle_members[] = {
    {"id", get_id, NULL, PyDoc_STR("What names the value in messages."), NULL},
    {"addr", get_addr, NULL,
     PyDoc_STR(
         "The address in memory; of a value in the TCM a number that names it while it lives."),
     NULL},
    {"shape", get_shape, NULL, PyDoc_STR("A tuple: the length of each axis."), NULL},
    {"dtype", get_dtype, NULL, PyDoc_STR("The data type: 'f16'."), NULL},
    {"nbytes", get_nbytes, NULL, PyDoc_STR("The size in bytes."), NULL},
    {"data", get_data, set_data,
     PyDoc_STR(
         "The numbers as an ndarray: waits until they are there, as tl.item() does. None in a "
         "timing-only run."),
     NULL},
    {"space", get_space, NULL, PyDoc_STR("The memory: 'tcm', 'hbm' or 'sram'."), NULL},
    {0},
};

static const char handle_doc[] =
    "TensorHandle(id, addr, shape, dtype, nbytes, data=None, space='tcm')\n--\n\n"
    "A value of a kernel: what tl.load() and other operations return. It never changes.\n\n"
    "A program may make one to name what is at an address, for example to send it.";

static bool make_handle_type(void)
{
    PyType_Slot own[] = {
        {Py_tp_doc, (void *)(uintptr_t)handle_doc},
        {Py_tp_new, PyType_GenericNew},
        {Py_tp_init, handle_init},
        {Py_tp_dealloc, handle_dealloc},
        {Py_tp_repr, handle_repr},
        {Py_tp_getset, handle_members},
        {Py_tp_richcompare, py_handle_compare},
        {Py_tp_hash, _Py_HashPointer},
    };
    enum { OWN = sizeof own / sizeof own[0], MAX_SLOTS = 48 };
    PyType_Slot slots[MAX_SLOTS];
    size_t count = OWN;
    memcpy(slots, own, sizeof own);
    for (const PyType_Slot *slot = py_handle_operators; slot->slot; slot++)
        slots[count++] = *slot;
    KB_ASSERT(count < MAX_SLOTS);
    slots[count] = (PyType_Slot){0, NULL};
    PyType_Spec spec = {.name = "kernbench.common.pe_commands.TensorHandle",
                        .basicsize = sizeof(py_handle),
                        .flags = Py_TPFLAGS_DEFAULT,
                        .slots = slots};
    py_handle_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_handle_type;
}

/* ---- Futures ----------------------------------------------------------------------------- */

static PyObject *new_future(py_tl *owner, tl_future future, PyObject *handle)
{
    py_future *self = PyObject_New(py_future, py_future_type);
    if (!self) {
        Py_XDECREF(handle);
        return NULL;
    }
    self->owner = (py_tl *)Py_NewRef((PyObject *)owner);
    self->future = future;
    self->handle = handle;
    return (PyObject *)self;
}

PyObject *py_future_new(py_tl *owner, tl_future future)
{
    return new_future(owner, future, NULL);
}

PyObject *py_future_of_value(py_tl *owner, PyObject *handle)
{
    return handle ? new_future(owner, (tl_future){0}, handle) : NULL;
}

static void future_dealloc(PyObject *object)
{
    py_future *self = (py_future *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->handle);
    type->tp_free(object);
    Py_DECREF(type);
}

static bool make_future_type(void)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t) "Something under way: tl.wait() waits for it."},
        {Py_tp_dealloc, future_dealloc},
        {0, NULL},
    };
    static PyType_Spec spec = {.name = "kernbench.Future",
                               .basicsize = sizeof(py_future),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
    py_future_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_future_type;
}

bool py_handle_init_types(PyObject *module)
{
    name_tcm = PyUnicode_InternFromString("tcm");
    name_hbm = PyUnicode_InternFromString("hbm");
    return name_tcm && name_hbm && make_handle_type() && make_future_type() &&
           PyModule_AddObjectRef(module, "TensorHandle", (PyObject *)py_handle_type) == 0 &&
           PyModule_AddObjectRef(module, "Future", (PyObject *)py_future_type) == 0;
}
