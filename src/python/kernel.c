/*
 * kernel.c: running a kernel in Python on the coroutine of the engine, from its first line to its
 * end or the exception that it ends with.
 *
 * An error of the engine is final for its kernel. What the kernel's Python code does with the
 * exception changes nothing but what the program is told: the first exception of each kernel is
 * kept, and the one that the launch failed with is raised where the launch is waited for.
 */
#include "kernel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "srcloc.h"
#include "thread_states.h"

static _Thread_local py_tl *running;

py_tl *py_running_tl(void)
{
    return running;
}

py_tl *py_set_running_tl(py_tl *tl)
{
    py_tl *before = running;
    running = tl;
    return before;
}

/* ---- Faults ------------------------------------------------------------------------------ */

/* Keeps the exception with the message that the engine has for it; takes over the message. */
static void keep_fault(py_launch *launch, PyObject *exception, char *message)
{
    py_fault fault = {Py_NewRef(exception), message};
    if (message && kb_vec_push(&launch->faults, fault))
        return;
    Py_DECREF(exception);
    free(message);
}

static char *copy_of_message(const kb_error *err)
{
    return strdup(kb_error_message(err));
}

/* Whether the error is this kernel's own, and not what stops it because another one failed. */
static bool is_own_fault(const py_tl *self, const kb_error *err)
{
    if (kb_error_code(err) != KB_ERR_FAULT)
        return false;
    char place[96];
    snprintf(place, sizeof place, "' on %s at ", topo_pe_name(tl_pe(self->tl)).text);
    const char *message = kb_error_message(err);
    return strncmp(message, "kernel '", 8) == 0 && strstr(message, place);
}

/* Raises what ended the kernel; frees the error. */
static void raise_error(py_tl *self, kb_error *err)
{
    if (self->failed || !is_own_fault(self, err)) {
        PyErr_SetString(py_stopped, kb_error_message(err));
        kb_error_free(err);
        return;
    }
    self->failed = true;
    char *message = copy_of_message(err);
    PyObject *exception = py_exception_of(err);
    if (!exception) {
        free(message);
        return;
    }
    keep_fault(self->launch, exception, message);
    py_raise_exception(exception);
    Py_DECREF(exception);
}

void py_launch_keep(py_launch *launch, PyObject *exception, const kb_error *err)
{
    keep_fault(launch, exception, copy_of_message(err));
}

static const py_fault *find_fault(const py_launch *launch, const kb_error *err)
{
    for (size_t i = 0; launch && i < launch->faults.count; i++)
        if (strstr(kb_error_message(err), launch->faults.items[i].message))
            return &launch->faults.items[i];
    return NULL;
}

bool py_launch_has_fault(const py_launch *launch, const kb_error *err)
{
    return find_fault(launch, err);
}

void py_launch_raise(const py_launch *launch, kb_error *err)
{
    const py_fault *cause = find_fault(launch, err);
    if (!cause && launch && launch->faults.count > 0 && kb_error_code(err) == KB_ERR_FAULT)
        cause = &launch->faults.items[0];
    if (!cause) {
        py_raise(err);
        return;
    }
    kb_error_free(err);
    py_raise_exception(cause->exception);
}

/* ---- Operations -------------------------------------------------------------------------- */

bool py_tl_check(py_tl *self)
{
    if (KB_LIKELY(self == running && self->tl))
        return true;
    PyErr_SetString(py_kernbench_error,
                    self->tl ? "this tl belongs to another kernel than the one that runs"
                             : "the kernel of this tl or value has ended");
    return false;
}

bool py_tl_perform(py_tl *self, void (*call)(tl_context *tl, void *arg), void *arg)
{
    kb_error *err = tl_try(self->tl, call, arg);
    py_state_resume(self->state);
    running = self;
    if (KB_LIKELY(!err))
        return true;
    raise_error(self, err);
    return false;
}

void py_tl_free_released(py_tl *self, tl_srcloc at)
{
    while (self->released.count > 0)
        tl_free_(self->tl, at, self->released.items[--self->released.count]);
}

/* ---- The end of a kernel ------------------------------------------------------------------ */

typedef struct raise_call {
    tl_srcloc at;
    const char *text;
} raise_call;

static void raise_in_kernel(tl_context *tl, void *arg)
{
    const raise_call *call = arg;
    tl_raise_(tl, call->at, "%s", call->text);
}

/* The function has raised this. Unless an operation has failed before, that is the kernel's fault
 * from here on. */
static void fail_with(py_tl *self, PyObject *exception)
{
    if (self->failed || PyErr_GivenExceptionMatches(exception, py_stopped))
        return;
    kb_pe pe = tl_pe(self->tl);
    double now = kb_to_ns(tl_now_(self->tl));
    kb_error *text = py_error_of(KB_ERR_FAULT, exception);
    raise_call call = {py_srcloc_of(exception), kb_error_message(text)};
    kb_error *err = tl_try(self->tl, raise_in_kernel, &call);
    py_state_resume(self->state);
    kb_error_free(text);
    if (is_own_fault(self, err)) {
        char time[32];
        snprintf(time, sizeof time, "%.3f", now);
        py_add_note(exception, "raised in kernel '%s' on %s at %s ns", self->launch->kernel.name,
                    topo_pe_name(pe).text, time);
        keep_fault(self->launch, exception, copy_of_message(err));
    }
    kb_error_free(err);
}

/* ---- The call of a kernel ---------------------------------------------------------------- */

static py_tl *new_tl(tl_context *tl, py_launch *launch, PyThreadState *state)
{
    py_tl *self = PyObject_New(py_tl, py_tl_type);
    if (!self)
        return NULL;
    self->tl = tl;
    self->state = state;
    self->launch = launch;
    memset(&self->released, 0, sizeof self->released);
    self->failed = false;
    self->named = NULL;
    return self;
}

enum { FEW_ARGUMENTS = 24 };

/* Room for the arguments of a call; NULL with an exception set. */
static PyObject **take_room(PyObject **few, size_t count)
{
    PyObject **room = count <= FEW_ARGUMENTS ? few : kb_alloc_array(count, sizeof *room);
    if (!room)
        PyErr_NoMemory();
    return room;
}

/* Calls the function with these arguments, of which it takes over all but the last: tl. */
static PyObject *call_with(const py_launch *launch, PyObject **args, size_t positional,
                           PyObject *names)
{
    size_t count = positional + (size_t)PyTuple_GET_SIZE(names) - 1;
    PyObject *result = PyObject_Vectorcall(launch->function, args, positional, names);
    while (count > 0)
        Py_DECREF(args[--count]);
    return KB_LIKELY(result == Py_None) ? result : py_check_returned(result);
}

/* The program's arguments, the addresses, and tl. */
static PyObject *call_launched(py_tl *self, const py_launch *launch, const tl_arg *numbers)
{
    PyObject *few[FEW_ARGUMENTS];
    size_t count = launch->arg_count + (size_t)PyTuple_GET_SIZE(launch->names), made = 0;
    PyObject **args = take_room(few, count), *result = NULL;
    if (!args)
        return NULL;
    for (; made < count - 1; made++) {
        args[made] = launch->args[made] ? Py_NewRef(launch->args[made])
                                        : PyLong_FromLongLong((int64_t)numbers[made]);
        if (!args[made])
            break;
    }
    if (made == count - 1) {
        args[made] = (PyObject *)self;
        result = call_with(launch, args, launch->arg_count, launch->names);
    } else {
        while (made > 0)
            Py_DECREF(args[--made]);
    }
    if (args != few)
        free(args);
    return result;
}

/* The address, the variant's arguments, and tl. */
static PyObject *call_variant(py_tl *self, const py_launch *launch, const tl_arg *numbers)
{
    PyObject *few[FEW_ARGUMENTS];
    PyObject *variant = PyList_GET_ITEM(launch->variants, (Py_ssize_t)numbers[1]);
    size_t more = (size_t)PyTuple_GET_SIZE(variant);
    PyObject **args = take_room(few, more + 2), *result = NULL;
    if (!args)
        return NULL;
    args[0] = PyLong_FromLongLong((int64_t)numbers[0]);
    for (size_t i = 0; i < more; i++)
        args[i + 1] = Py_NewRef(PyTuple_GET_ITEM(variant, (Py_ssize_t)i));
    args[more + 1] = (PyObject *)self;
    if (args[0])
        result = call_with(launch, args, more + 1, launch->names);
    if (args != few)
        free(args);
    return result;
}

static PyObject *call_function(py_tl *self, const py_launch *launch, const tl_arg *args)
{
    return launch->variants ? call_variant(self, launch, args) : call_launched(self, launch, args);
}

/* No value or tl of the kernel can be used from here on. */
static void end_tl(py_tl *self)
{
    Py_CLEAR(self->named);
    self->tl = NULL;
    self->state = NULL;
    self->launch = NULL;
    kb_vec_fini(&self->released);
    Py_DECREF(self);
}

static void run_kernel(tl_context *tl, const tl_arg *args)
{
    py_launch *launch = tl_user_(tl);
    PyThreadState *state = py_state_take(launch->stack_bytes);
    py_tl *self = state ? new_tl(tl, launch, state) : NULL;
    if (!self) {
        if (state) {
            PyErr_Clear();
            py_state_give(state);
        }
        tl_raise_(tl, (tl_srcloc){launch->kernel.file, launch->kernel.line}, "out of memory");
    }
    running = self;
    PyObject *result = call_function(self, launch, args);
    if (!result) {
        PyObject *exception = py_take_exception();
        fail_with(self, exception);
        Py_DECREF(exception);
    }
    Py_XDECREF(result);
    end_tl(self);
    running = NULL;
    py_state_give(state);
}

/* ---- What is launched -------------------------------------------------------------------- */

/* The name of the launch, which messages show; without one, that of the function. */
static const char *name_of(PyObject *name, PyObject *function)
{
    PyObject *found = name ? Py_NewRef(name) : PyObject_GetAttrString(function, "__name__");
    PyErr_Clear();
    if (!found || !PyUnicode_Check(found)) {
        Py_XDECREF(found);
        found = PyUnicode_FromString(Py_TYPE(function)->tp_name);
    }
    const char *kept = found ? py_keep_text(found) : NULL;
    Py_XDECREF(found);
    return kept;
}

/* The engine reads what a parameter takes from its text. Arguments that Python keeps are numbers to
 * it, as they would be of a kernel in C: a launch takes as long as its arguments are. */
static char *parameters_of(const bool *is_address, size_t count, size_t all)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "");
    for (size_t i = 0; i < all; i++)
        kb_text_printf(&text, "%s%s argument_%zu", i > 0 ? ", " : "",
                       i < count && is_address[i] ? "tl_ptr" : "int64_t", i);
    return kb_text_take(&text);
}

/* The names of the arguments by name, and "tl". */
static PyObject *names_of(PyObject *kwargs)
{
    Py_ssize_t count = kwargs ? PyDict_GET_SIZE(kwargs) : 0, at = 0, i = 0;
    PyObject *names = PyTuple_New(count + 1), *key, *value;
    while (names && kwargs && PyDict_Next(kwargs, &at, &key, &value))
        PyTuple_SET_ITEM(names, i++, Py_NewRef(key));
    PyObject *tl = PyUnicode_InternFromString("tl");
    if (!names || !tl) {
        Py_XDECREF(names);
        Py_XDECREF(tl);
        return NULL;
    }
    PyTuple_SET_ITEM(names, i, tl);
    return names;
}

static bool fill_launch(py_launch *launch, PyObject *name, PyObject *function,
                        PyObject *const *args, const bool *is_address, size_t count,
                        PyObject *kwargs)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    size_t named = kwargs ? (size_t)PyDict_GET_SIZE(kwargs) : 0;
    tl_srcloc loc = py_srcloc_of_function(function);
    launch->function = Py_NewRef(function);
    launch->args = kb_alloc_zeroed(count + named, sizeof *launch->args);
    launch->arg_count = count;
    launch->names = names_of(kwargs);
    if (!launch->args || !launch->names)
        return false;
    for (size_t i = 0; i < count; i++)
        launch->args[i] = is_address[i] ? NULL : Py_NewRef(args[i]);
    for (size_t i = count; kwargs && PyDict_Next(kwargs, &at, &key, &value); i++)
        launch->args[i] = Py_NewRef(value);
    launch->kernel = (kb_kernel){.name = name_of(name, function),
                                 .parameters = parameters_of(is_address, count, count + named),
                                 .parameter_count = count + named,
                                 .file = loc.file,
                                 .line = loc.line,
                                 .run = run_kernel,
                                 .user = launch};
    return launch->kernel.name && launch->kernel.parameters;
}

py_launch *py_launch_new(PyObject *name, PyObject *function, PyObject *const *args,
                         const bool *is_address, size_t count, PyObject *kwargs, size_t stack_bytes)
{
    if (!py_threads_check())
        return NULL;
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "a kernel is a function: found %R", function);
        return NULL;
    }
    py_launch *launch = kb_alloc_zeroed(1, sizeof *launch);
    if (!launch) {
        PyErr_NoMemory();
        return NULL;
    }
    launch->stack_bytes = stack_bytes;
    if (fill_launch(launch, name, function, args, is_address, count, kwargs))
        return launch;
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    py_launch_free(launch);
    return NULL;
}

/* How many positional parameters the function has, without tl; 0 if that is not known. */
static size_t count_parameters(PyObject *function)
{
    PyObject *code = PyObject_GetAttrString(function, "__code__");
    PyErr_Clear();
    int count = code && PyCode_Check(code) ? ((PyCodeObject *)code)->co_argcount : 0;
    Py_XDECREF(code);
    return count > 0 ? (size_t)count - 1 : 0;
}

bool py_launch_take_variants(py_launch *launch)
{
    size_t count = count_parameters(launch->function);
    count = count < 2 ? 2 : count;
    char *parameters = parameters_of((const bool[]){true}, 1, count);
    launch->variants = PyList_New(0);
    if (!parameters || !launch->variants) {
        free(parameters);
        return false;
    }
    free((char *)(uintptr_t)launch->kernel.parameters);
    launch->kernel.parameters = parameters;
    launch->kernel.parameter_count = count;
    return true;
}

static size_t all_args(const py_launch *launch)
{
    return launch->arg_count + (launch->names ? (size_t)PyTuple_GET_SIZE(launch->names) - 1 : 0);
}

void py_launch_free(py_launch *launch)
{
    if (!launch)
        return;
    for (size_t i = 0; launch->args && i < all_args(launch); i++)
        Py_XDECREF(launch->args[i]);
    for (size_t i = 0; i < launch->faults.count; i++) {
        Py_DECREF(launch->faults.items[i].exception);
        free(launch->faults.items[i].message);
    }
    kb_vec_fini(&launch->faults);
    free(launch->args);
    free((char *)(uintptr_t)launch->kernel.parameters);
    Py_XDECREF(launch->function);
    Py_XDECREF(launch->names);
    Py_XDECREF(launch->rank_count);
    Py_XDECREF(launch->variants);
    free(launch);
}

int py_launch_traverse(const py_launch *launch, visitproc visit, void *arg)
{
    for (size_t i = 0; launch->args && i < all_args(launch); i++)
        Py_VISIT(launch->args[i]);
    for (size_t i = 0; i < launch->faults.count; i++)
        Py_VISIT(launch->faults.items[i].exception);
    Py_VISIT(launch->function);
    Py_VISIT(launch->variants);
    return 0;
}
