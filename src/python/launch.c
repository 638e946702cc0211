/*
 * launch.c: launches of kernels, and requests: work under way that can be waited for.
 */
#include "context.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "c_kernels.h"
#include "errors.h"
#include "launch_results.h"

static PyTypeObject *request_type;
static PyTypeObject *each_type;

/* ---- Launches of a context ---------------------------------------------------------------- */

void py_unlist_launch(py_launch *launch)
{
    if (!launch->next)
        return;
    KB_RING_REMOVE(launch);
    launch->next = launch->prev = NULL;
}

/* ---- One tensor for each device ----------------------------------------------------------- */

typedef struct py_each {
    PyObject_HEAD PyObject *tensors;
} py_each;

static int each_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"tensors", NULL};
    PyObject *tensors;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Each", PY_NAMES(names), &tensors))
        return -1;
    PyObject *tuple = PySequence_Tuple(tensors);
    if (!tuple)
        return -1;
    Py_XSETREF(((py_each *)object)->tensors, tuple);
    return 0;
}

static void each_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((py_each *)object)->tensors);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- Arguments --------------------------------------------------------------------------- */

/* What a launch is given, on both sides. */
typedef struct arguments {
    kb_arg *args;
    bool *is_address;
    size_t count, sent; /* of the program's positional arguments; of those that the engine has */
} arguments;

static void arguments_fini(arguments *is)
{
    for (size_t i = 0; i < is->sent; i++)
        free((void *)(uintptr_t)is->args[i].tensors);
    free(is->args);
    free(is->is_address);
}

static bool add_tensor(const py_context *self, PyObject *object, arguments *is)
{
    kb_tensor tensor;
    if (!py_get_tensor(self, object, &tensor))
        return false;
    is->args[is->sent++] = kb_arg_tensor(tensor);
    return true;
}

static bool add_each(const py_context *self, PyObject *object, arguments *is)
{
    size_t count;
    kb_tensor *tensors = py_get_tensors(self, ((py_each *)object)->tensors, &count);
    if (!tensors)
        return false;
    is->args[is->sent++] = kb_arg_tensors(tensors, count);
    return true;
}

/* A kernel in C takes numbers as well. */
static bool add_number(PyObject *object, arguments *is)
{
    int64_t integer;
    if (PyFloat_Check(object)) {
        is->args[is->sent++] = kb_arg_real(PyFloat_AS_DOUBLE(object));
        return true;
    }
    if (!PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a kernel in C takes tensors and numbers, found %.200s",
                     Py_TYPE(object)->tp_name);
        return false;
    }
    if (!py_get_integer(object, &integer))
        return false;
    is->args[is->sent++] = kb_arg_integer(integer);
    return true;
}

static bool get_arguments(const py_context *self, PyObject *args, size_t named, bool is_c,
                          arguments *is)
{
    is->count = (size_t)PyTuple_GET_SIZE(args);
    is->args = kb_alloc_zeroed(is->count + named, sizeof *is->args);
    is->is_address = kb_alloc_zeroed(is->count, sizeof *is->is_address);
    if (!is->args || !is->is_address) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < is->count; i++) {
        PyObject *object = PyTuple_GET_ITEM(args, (Py_ssize_t)i);
        bool good = true;
        is->is_address[i] = true;
        if (PyObject_TypeCheck(object, py_tensor_type))
            good = add_tensor(self, object, is);
        else if (Py_TYPE(object) == each_type)
            good = add_each(self, object, is);
        else if (is_c)
            good = add_number(object, is);
        else {
            is->is_address[i] = false;
            is->args[is->sent++] = kb_arg_integer(0);
        }
        if (!good)
            return false;
    }
    for (size_t i = 0; i < named; i++)
        is->args[is->sent++] = kb_arg_integer(0);
    return true;
}

/* ---- Launching --------------------------------------------------------------------------- */

typedef struct launch_call {
    kb_launch_options options;
    const kb_kernel *kernel;
    const arguments *args;
    kb_request request;
} launch_call;

static kb_error *launch_now(kb_context *kb, void *arg)
{
    launch_call *call = arg;
    call->options.request = &call->request;
    return kb_launch_args(kb, &call->options, call->kernel, call->args->args, call->args->sent);
}

/* The call of the engine, and the object of what it began. Takes over the launch. */
static PyObject *start(py_context *self, PyObject *name, launch_call *call, py_launch *launch)
{
    kb_error *err;
    if (launch)
        KB_RING_PUSH(&self->launches, launch);
    bool returned = py_host_call(self, launch_now, call, &err);
    if (returned && !err)
        return py_request_new(self, call->request, name, launch, true);
    if (returned)
        py_launch_raise(launch, err);
    if (launch && self->kb &&
        returned) { /* else kernels of it may be left: it goes with the context */
        py_unlist_launch(launch);
        py_launch_free(launch);
    }
    return NULL;
}

static PyObject *launch(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "fn", "args", "kwargs", "queues", NULL};
    py_context *self = (py_context *)object;
    PyObject *name, *function, *given = NULL, *named = NULL;
    unsigned long long queues = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UOO!|O!$K:launch", PY_NAMES(names), &name,
                                     &function, &PyTuple_Type, &given, &PyDict_Type, &named,
                                     &queues) ||
        !py_context_check(self))
        return NULL;
    const kb_kernel *of_c = py_kernel_of(function);
    arguments is = {0};
    launch_call call = {.options = {.name = PyUnicode_AsUTF8(name), .queues = {queues}},
                        .kernel = of_c,
                        .args = &is};
    py_launch *made = NULL;
    PyObject *request = NULL;
    size_t count_named = named && !of_c ? (size_t)PyDict_GET_SIZE(named) : 0;
    bool good = call.options.name && get_arguments(self, given, count_named, of_c, &is);
    if (good && !of_c) {
        PyObject *const *items = ((PyTupleObject *)given)->ob_item;
        made =
            py_launch_new(name, function, items, is.is_address, is.count, named, self->stack_bytes);
        good = made;
        call.kernel = made ? &made->kernel : NULL;
    } else if (good && named && PyDict_GET_SIZE(named) > 0) {
        PyErr_SetString(PyExc_TypeError, "a kernel in C has no arguments by name");
        good = false;
    }
    if (good)
        request = start(self, name, &call, made);
    arguments_fini(&is);
    return request;
}

/* ---- Requests ---------------------------------------------------------------------------- */

PyObject *py_request_new(py_context *context, kb_request request, PyObject *name, py_launch *launch,
                         bool is_launch)
{
    py_request *self = PyObject_GC_New(py_request, request_type);
    if (!self)
        return NULL;
    self->context = (py_context *)Py_NewRef((PyObject *)context);
    self->request = request;
    self->launch = launch;
    self->name = Py_NewRef(name);
    self->results = self->exception = NULL;
    self->is_launch = is_launch;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static int request_traverse(PyObject *object, visitproc visit, void *arg)
{
    py_request *self = (py_request *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->context);
    Py_VISIT(self->results);
    Py_VISIT(self->exception);
    return 0;
}

/* Its context stays: what is under way is freed there. */
static int request_clear(PyObject *object)
{
    Py_CLEAR(((py_request *)object)->exception);
    return 0;
}

/* It is done: no kernel of it can run any more. */
static void forget_request(py_request *self)
{
    if (self->request.id != 0 && self->context->kb)
        kb_error_free(kb_request_free(self->context->kb, self->request));
    self->request = (kb_request){0};
    if (self->launch && self->context->kb) {
        py_unlist_launch(self->launch);
        py_launch_free(self->launch);
    }
    self->launch = NULL; /* else it has gone with the context */
}

static void request_dealloc(PyObject *object)
{
    py_request *self = (py_request *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    kb_context *kb = self->context->kb;
    if (kb && self->request.id != 0) /* what is under way goes on, with its launch */
        kb_error_free(kb_request_free(kb, self->request));
    Py_DECREF(self->context);
    Py_DECREF(self->name);
    Py_XDECREF(self->results);
    Py_XDECREF(self->exception);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *read_results(kb_context *kb, kb_request request)
{
    size_t count;
    if (!py_succeeded(kb_launch_results(kb, request, NULL, 0, &count)))
        return NULL;
    kb_launch_result *results = kb_alloc_array(count, sizeof *results);
    if (!results)
        return PyErr_NoMemory();
    PyObject *list = NULL;
    if (py_succeeded(kb_launch_results(kb, request, results, count, &count)))
        list = py_list_of_results(results, count);
    free(results);
    return list;
}

static kb_error *wait_now(kb_context *kb, void *arg)
{
    return kb_request_wait(kb, *(kb_request *)arg, NULL);
}

/* It has ended: keeps what came of it, and forgets it. */
static void conclude(py_request *self, kb_error *err)
{
    if (err) {
        py_launch_raise(self->launch, err);
        self->exception = py_take_exception();
    } else {
        self->results =
            self->is_launch ? read_results(self->context->kb, self->request) : PyList_New(0);
        if (!self->results)
            self->exception = py_take_exception();
    }
    forget_request(self);
}

static PyObject *wait_for(PyObject *object, PyObject *what)
{
    py_context *self = (py_context *)object;
    if (Py_TYPE(what) != request_type) {
        PyErr_Format(PyExc_TypeError, "wait() takes a request, found %.200s",
                     Py_TYPE(what)->tp_name);
        return NULL;
    }
    py_request *request = (py_request *)what;
    if (request->request.id != 0) {
        kb_error *err;
        if (!py_host_call(self, wait_now, &request->request, &err))
            return NULL;
        if (request->request.id != 0) /* another worker may have waited for it too */
            conclude(request, err);
        else
            kb_error_free(err);
    }
    if (!request->exception)
        return Py_NewRef(request->results);
    py_raise_exception(request->exception);
    return NULL;
}

static PyObject *get_done(PyObject *object, void *unused)
{
    (void)unused;
    const py_request *self = (py_request *)object;
    bool done = true;
    if (self->request.id != 0 && self->context->kb &&
        !py_succeeded(kb_request_test(self->context->kb, self->request, &done)))
        return NULL;
    return PyBool_FromLong(done);
}

static PyObject *get_results(PyObject *object, void *unused)
{
    (void)unused;
    const py_request *self = (py_request *)object;
    return Py_NewRef(self->results ? self->results : Py_None);
}

static PyMemberDef request_members[] = {
    {"name", T_OBJECT, offsetof(py_request, name), READONLY, PyDoc_STR("The name of the launch.")},
    {0},
};

static PyGetSetDef request_getters[] = {
    {"done", get_done, NULL, PyDoc_STR("Whether it is done; does not wait."), NULL},
    {"results", get_results, NULL,
     PyDoc_STR("What wait() has returned: a dict for each device; None before."), NULL},
    {0},
};

bool py_launch_init_types(PyObject *module)
{
    static PyType_Slot of_requests[] = {
        {Py_tp_doc, (void *)(uintptr_t) "Work under way: Context.wait() waits for it."},
        {Py_tp_dealloc, request_dealloc},
        {Py_tp_traverse, request_traverse},
        {Py_tp_clear, request_clear},
        {Py_tp_members, request_members},
        {Py_tp_getset, request_getters},
        {0, NULL},
    };
    static PyType_Spec requests = {.name = "kernbench._core.Request",
                                   .basicsize = sizeof(py_request),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .slots = of_requests};
    static PyType_Slot of_each[] = {
        {Py_tp_doc,
         (void *)(uintptr_t) "Each(tensors)\n--\n\nAn argument of a launch on several devices: "
                             "each gets the tensor that is on it."},
        {Py_tp_new, PyType_GenericNew},
        {Py_tp_init, each_init},
        {Py_tp_dealloc, each_dealloc},
        {0, NULL},
    };
    static PyType_Spec each = {.name = "kernbench.Each",
                               .basicsize = sizeof(py_each),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = of_each};
    request_type = (PyTypeObject *)PyType_FromSpec(&requests);
    each_type = (PyTypeObject *)PyType_FromSpec(&each);
    return request_type && each_type &&
           PyModule_AddObjectRef(module, "Request", (PyObject *)request_type) == 0 &&
           PyModule_AddObjectRef(module, "Each", (PyObject *)each_type) == 0;
}

/* ---- Waiting for all --------------------------------------------------------------------- */

static kb_error *synchronize_now(kb_context *kb, void *unused)
{
    (void)unused;
    return kb_synchronize(kb);
}

static PyObject *synchronize(PyObject *object, PyObject *unused)
{
    (void)unused;
    return py_host_do((py_context *)object, synchronize_now, NULL) ? Py_NewRef(Py_None) : NULL;
}

PyMethodDef py_launch_methods[] = {
    PY_METHOD("launch", launch,
              "launch($self, name, fn, args, kwargs={}, *, queues=0)\n--\n\n"
              "Launches a kernel on every PE that has a part of a tensor among args. Does not wait "
              "for it."),
    {"wait", wait_for, METH_O,
     PyDoc_STR(
         "wait($self, request, /)\n--\n\nWaits for a request; a list with a dict for each device.")},
    PY_PLAIN_METHOD("synchronize", synchronize,
                    "synchronize($self)\n--\n\nWaits for all work under way of the caller."),
    {0},
};
