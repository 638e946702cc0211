/*
 * context.c: contexts: making one, calls of the engine, callbacks, and the end.
 *
 * A call of the engine may run Python: kernels and workers on their coroutines, callbacks. Around
 * each call of the driver the interpreter is given up (thread_states.h), and an interrupt by the
 * user stops the engine: Python's own handler only notes it, and is asked when the call returns.
 */
#include "context.h"

#include <pythread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "errors.h"
#include "rt/rt.h"
#include "sim/sim.h"
#include "thread_states.h"

static PyTypeObject *context_type;

/* As large as those of threads: deep recursion through C in a kernel is to end in RecursionError
 * before the stack does. Only what is touched takes memory. */
enum { STACK_BYTES = 8 << 20 };

/* ---- Interrupts -------------------------------------------------------------------------- */

/* The run that a signal is to stop. Only the main thread of Python sets it. */
static struct {
    kb_sim *volatile sim;
    kb_error *volatile error;
    struct sigaction before;
} interrupted;

/* Python handles signals in its main thread alone. */
static unsigned long main_thread;

static void on_interrupt(int signal, siginfo_t *info, void *frame)
{
    kb_sim *sim = interrupted.sim;
    kb_error *error = interrupted.error;
    interrupted.error = NULL;
    if (sim && error)
        kb_sim_fail(sim, error);
    if (interrupted.before.sa_flags & SA_SIGINFO)
        interrupted.before.sa_sigaction(signal, info, frame);
    else if (interrupted.before.sa_handler != SIG_IGN && interrupted.before.sa_handler != SIG_DFL)
        interrupted.before.sa_handler(signal);
}

/* Whether SIGINT is Python's to handle, and this is the thread that it handles it in. */
static bool watch_interrupts(py_context *self)
{
    struct sigaction ours = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (interrupted.sim || !self->interruption || !self->kb ||
        PyThread_get_thread_ident() != main_thread)
        return false;
    if (sigaction(SIGINT, NULL, &interrupted.before) != 0)
        return false;
    bool handled =
        interrupted.before.sa_flags & SA_SIGINFO ||
        (interrupted.before.sa_handler != SIG_IGN && interrupted.before.sa_handler != SIG_DFL);
    if (!handled)
        return false;
    interrupted.sim = kb_context_sim(self->kb);
    interrupted.error = self->interruption;
    sigemptyset(&ours.sa_mask);
    (void)sigaction(SIGINT, &ours, NULL);
    return true;
}

static void ignore_interrupts(py_context *self)
{
    (void)sigaction(SIGINT, &interrupted.before, NULL);
    self->interruption = interrupted.error;
    interrupted.error = NULL;
    interrupted.sim = NULL;
}

/* ---- Calls of the engine ----------------------------------------------------------------- */

bool py_context_check(py_context *self)
{
    if (KB_UNLIKELY(!self->kb)) {
        PyErr_SetString(py_kernbench_error, "the context is closed");
        return false;
    }
    if (KB_UNLIKELY(py_running_tl() != NULL)) {
        PyErr_SetString(py_kernbench_error,
                        "a kernel cannot use the host's calls: it has tl alone");
        return false;
    }
    if (KB_UNLIKELY(self->depth > 0 && self->thread != PyThread_get_thread_ident())) {
        PyErr_SetString(py_kernbench_error, "the context is in use by another thread");
        return false;
    }
    return true;
}

typedef struct worker_call {
    kb_context *kb;
    py_host_fn *fn;
    void *arg;
    kb_error *err;
} worker_call;

static void make_worker_call(void *arg)
{
    worker_call *call = arg;
    call->err = call->fn(call->kb, call->arg);
}

/* On the worker's coroutine: if it is killed while it waits, its frames return by an exception. */
static bool call_from_worker(py_context *self, kb_co *co, py_host_fn *fn, void *arg, kb_error **err)
{
    worker_call call = {self->kb, fn, arg, NULL};
    PyThreadState *state = PyThreadState_Get();
    bool returned = kb_co_try(co, make_worker_call, &call);
    py_state_resume(state);
    (void)py_set_running_tl(NULL);
    *err = call.err;
    if (!returned)
        PyErr_SetString(py_stopped, "the worker is stopped, because the spawn has failed");
    return returned;
}

static void call_from_driver(py_context *self, py_host_fn *fn, void *arg, kb_error **err)
{
    py_stay stay;
    self->thread = PyThread_get_thread_ident();
    self->depth++;
    bool watched = watch_interrupts(self);
    py_tl *running = py_set_running_tl(NULL);
    py_stay_begin(&stay);
    *err = fn(self->kb, arg);
    py_stay_end(&stay);
    (void)py_set_running_tl(running);
    if (watched)
        ignore_interrupts(self);
    self->depth--;
}

static void close_context(py_context *self);

/* A signal came during the call, or a callback has raised something. */
static bool check_interruption(py_context *self, kb_error *err)
{
    bool stopped = !self->interruption;
    if (PyErr_CheckSignals() != 0) {
        PyObject *exception = py_take_exception();
        kb_error_free(err);
        close_context(self);
        py_raise_exception(exception);
        Py_DECREF(exception);
        return false;
    }
    if (stopped && !self->borrowed) {
        kb_error_free(err);
        close_context(self);
        PyErr_SetNone(PyExc_KeyboardInterrupt); /* a kernel has had the one that Python raised */
        return false;
    }
    if (!self->raised)
        return true;
    PyObject *exception = self->raised;
    self->raised = NULL;
    kb_error_free(err);
    py_raise_exception(exception);
    Py_DECREF(exception);
    return false;
}

bool py_host_call(py_context *self, py_host_fn *fn, void *arg, kb_error **err)
{
    *err = NULL;
    if (!py_context_check(self))
        return false;
    kb_co *co = kb_context_worker(self->kb);
    if (co)
        return call_from_worker(self, co, fn, arg, err);
    if (self->depth > 0) {
        PyErr_SetString(py_kernbench_error, "a callback cannot use the context");
        return false;
    }
    call_from_driver(self, fn, arg, err);
    return check_interruption(self, *err);
}

bool py_host_do(py_context *self, py_host_fn *fn, void *arg)
{
    kb_error *err;
    return py_host_call(self, fn, arg, &err) && py_succeeded(err);
}

/* ---- Callbacks --------------------------------------------------------------------------- */

static void print_line(const char *stream, const char *line)
{
    PyObject *file = PySys_GetObject(stream);
    PyObject *text = PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace");
    if (file && file != Py_None && text) {
        Py_INCREF(file);
        if (PyFile_WriteObject(text, file, Py_PRINT_RAW) == 0)
            (void)PyFile_WriteString("\n", file);
        Py_DECREF(file);
    }
    Py_XDECREF(text);
    PyErr_Clear(); /* a line that cannot be shown */
}

/* What a callback raises comes out of the call of the engine; the first counts. */
static void keep_raised(py_context *self, PyObject *result)
{
    Py_XDECREF(result);
    if (result)
        return;
    PyObject *exception = py_take_exception();
    if (self->raised)
        Py_XDECREF(exception);
    else
        self->raised = exception;
}

/* Callbacks come from inside of calls, or from calls that do not wait: these hold the interpreter.
 */
static void tell(py_context *self, PyObject *callback, const char *stream, const char *prefix,
                 const char *line)
{
    if (self->depth > 0)
        py_callback_begin();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (callback) {
        keep_raised(self, PyObject_CallFunction(callback, "s", line));
    } else {
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "%s%s", prefix, line);
        print_line(stream, kb_text_peek(&text));
        kb_text_fini(&text);
    }
    PyErr_Restore(type, value, traceback);
}

static void on_warning(void *arg, const char *line)
{
    py_context *self = arg;
    tell(self, self->on_warning, "stderr", "kernbench: warning: ", line);
}

static void on_note(void *arg, const char *line)
{
    py_context *self = arg;
    tell(self, self->on_note, "stderr", "kernbench: note: ", line);
}

static void on_ccl_trace(void *arg, const char *line)
{
    py_context *self = arg;
    tell(self, self->on_ccl_trace, "stdout", "", line);
}

static PyObject *redirect_ccl_trace(PyObject *object, PyObject *callback)
{
    py_context *self = (py_context *)object;
    if (!py_context_check(self))
        return NULL;
    Py_XSETREF(self->on_ccl_trace, Py_NewRef(callback));
    rt_redirect_ccl_trace(self->kb, on_ccl_trace, self);
    Py_RETURN_NONE;
}

static void on_op(void *arg, const kb_op *op)
{
    py_context *self = arg;
    if (self->depth > 0)
        py_callback_begin();
    PyObject *dict = Py_BuildValue(
        "{ss ss ss s(kkk) sd sd sK sK sK sz sz si}", "unit", kb_unit_name(op->unit), "name",
        op->name, "label", op->label, "pe", (unsigned long)op->pe.sip, (unsigned long)op->pe.cube,
        (unsigned long)op->pe.pe, "start_ns", kb_to_ns(op->start), "end_ns", kb_to_ns(op->end),
        "bytes", (unsigned long long)op->bytes, "flops", (unsigned long long)op->flops, "launch",
        (unsigned long long)op->launch, "direction", op->direction, "file", op->file, "line",
        op->line);
    keep_raised(self, dict ? PyObject_CallOneArg(self->on_op, dict) : NULL);
    Py_XDECREF(dict);
}

/* ---- Making one -------------------------------------------------------------------------- */

/* A sequence of str as an array to be freed; the texts stay the sequence's. */
static bool get_texts(PyObject *sequence, const char ***texts, size_t *count, PyObject **kept)
{
    *kept = PySequence_Tuple(sequence);
    if (!*kept)
        return false;
    *count = (size_t)PyTuple_GET_SIZE(*kept);
    *texts = kb_alloc_array(*count, sizeof **texts);
    if (!*texts) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < *count; i++) {
        (*texts)[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(*kept, (Py_ssize_t)i));
        if (!(*texts)[i])
            return false;
    }
    return true;
}

static bool get_races(const char *text, kb_race_check *races)
{
    static const char *const names[] = {
        [KB_RACES_WARN] = "warn", [KB_RACES_FAIL] = "fail", [KB_RACES_OFF] = "off"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *races = (kb_race_check)i;
            return true;
        }
    }
    PyErr_Format(PyExc_ValueError, "races: expected 'warn', 'fail' or 'off', found '%s'", text);
    return false;
}

static bool wants_trace(void)
{
    const char *value = getenv("KERNBENCH_CCL_TRACE");
    return value && strcmp(value, "1") == 0;
}

static void keep_callback(PyObject **slot, PyObject *callback)
{
    Py_XSETREF(*slot, callback && callback != Py_None ? Py_NewRef(callback) : NULL);
}

static kb_error *create(kb_context *unused, void *arg)
{
    (void)unused;
    py_context *self = ((void **)arg)[0];
    return kb_context_create(((void **)arg)[1], &self->kb);
}

static bool make_interruption(py_context *self)
{
    self->interruption = kb_error_new(KB_ERR_HOST, "interrupted");
    return self->interruption;
}

static int context_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"topology", "settings",    "device",  "timing_only",
                                        "debug",    "stack_bytes", "threads", "races",
                                        "ccl",      "on_warning",  "on_note", "on_ccl_trace",
                                        "on_op",    NULL};
    py_context *self = (py_context *)object;
    const char *topology = NULL, *device = NULL, *races = "warn", *ccl = NULL;
    PyObject *settings = NULL, *warning = NULL, *note = NULL, *trace = NULL, *op = NULL;
    int timing_only = 0, debug = 0;
    Py_ssize_t stack_bytes = 0;
    unsigned threads = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zO$zppnIszOOOO:Context", PY_NAMES(names),
                                     &topology, &settings, &device, &timing_only, &debug,
                                     &stack_bytes, &threads, &races, &ccl, &warning, &note, &trace,
                                     &op))
        return -1;
    if (self->kb) {
        PyErr_SetString(py_kernbench_error, "the context is made already");
        return -1;
    }
    keep_callback(&self->on_warning, warning);
    keep_callback(&self->on_note, note);
    keep_callback(&self->on_ccl_trace, trace);
    keep_callback(&self->on_op, op);
    self->stack_bytes = stack_bytes > 0 ? (size_t)stack_bytes : STACK_BYTES;
    const char **texts = NULL;
    size_t count = 0;
    PyObject *kept = NULL;
    kb_context_options options = {
        .topology = topology,
        .device = device,
        .timing_only = timing_only,
        .debug = debug,
        .on_warning = on_warning,
        .on_warning_self = self,
        .stack_bytes = self->stack_bytes,
        .threads = threads,
        .on_op = self->on_op ? on_op : NULL,
        .on_op_self = self,
        .ccl = ccl,
        .on_note = self->on_note ? on_note : NULL,
        .on_note_self = self,
        .on_ccl_trace = self->on_ccl_trace || wants_trace() ? on_ccl_trace : NULL,
        .on_ccl_trace_self = self,
    };
    bool good = get_races(races, &options.races) &&
                (!settings || get_texts(settings, &texts, &count, &kept));
    options.settings = texts;
    options.setting_count = count;
    if (good) {
        kb_error *err;
        call_from_driver(self, create, ((void *[]){self, &options}), &err);
        good = py_succeeded(err);
    }
    if (good && !make_interruption(self)) {
        PyErr_NoMemory();
        good = false;
    }
    free(texts);
    Py_XDECREF(kept);
    return good ? 0 : -1;
}

static void prepare(py_context *self)
{
    KB_RING_INIT(&self->launches);
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;
    py_context *self = (py_context *)type->tp_alloc(type, 0);
    if (self)
        prepare(self);
    return (PyObject *)self;
}

PyObject *py_context_borrow(kb_context *kb, size_t stack_bytes)
{
    py_context *self = (py_context *)context_new(context_type, NULL, NULL);
    if (!self)
        return NULL;
    self->kb = kb;
    self->borrowed = true;
    self->stack_bytes = stack_bytes;
    return (PyObject *)self;
}

void py_context_give_back(PyObject *context)
{
    close_context((py_context *)context);
}

/* ---- The end ----------------------------------------------------------------------------- */

static kb_error *destroy(kb_context *kb, void *unused)
{
    (void)unused;
    kb_context_destroy(kb);
    return NULL;
}

static void free_launches(py_context *self)
{
    while (self->launches.next != &self->launches) {
        py_launch *launch = self->launches.next;
        py_unlist_launch(launch);
        py_launch_free(launch);
    }
}

/* Kernels that are left are unwound: their frames end by an exception. */
static void close_context(py_context *self)
{
    kb_error *none;
    if (!self->kb)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!self->borrowed)
        call_from_driver(self, destroy, NULL, &none);
    self->kb = NULL;
    kb_vec_fini(&self->unnamed);
    if (!self->borrowed) {
        free_launches(self);
        py_algorithms_free(self->algorithms);
        self->algorithms = NULL;
    }
    PyErr_Restore(type, value, traceback);
}

static PyObject *context_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    if (!self->kb)
        Py_RETURN_NONE;
    if (!py_context_check(self))
        return NULL;
    if (self->depth > 0 || kb_context_worker(self->kb)) {
        PyErr_SetString(py_kernbench_error, "a worker or a callback cannot close its context");
        return NULL;
    }
    close_context(self);
    Py_RETURN_NONE;
}

static void context_finalize(PyObject *object)
{
    close_context((py_context *)object);
}

static int context_traverse(PyObject *object, visitproc visit, void *arg)
{
    py_context *self = (py_context *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->on_warning);
    Py_VISIT(self->on_note);
    Py_VISIT(self->on_ccl_trace);
    Py_VISIT(self->on_op);
    Py_VISIT(self->raised);
    for (const py_launch *launch = self->launches.next; launch != &self->launches;
         launch = launch->next) {
        int result = py_launch_traverse(launch, visit, arg);
        if (result != 0)
            return result;
    }
    return py_algorithms_traverse(self->algorithms, visit, arg);
}

static int context_clear(PyObject *object)
{
    py_context *self = (py_context *)object;
    Py_CLEAR(self->on_warning);
    Py_CLEAR(self->on_note);
    Py_CLEAR(self->on_ccl_trace);
    Py_CLEAR(self->on_op);
    Py_CLEAR(self->raised);
    return 0;
}

static void context_dealloc(PyObject *object)
{
    py_context *self = (py_context *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (PyObject_CallFinalizerFromDealloc(object) < 0)
        return;
    PyObject_GC_UnTrack(object);
    if (self->weak_references)
        PyObject_ClearWeakRefs(object);
    context_clear(object);
    free_launches(self); /* of a context that was lent */
    py_algorithms_free(self->algorithms);
    kb_error_free(self->interruption);
    kb_vec_fini(&self->unnamed);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- What it says of itself -------------------------------------------------------------- */

static PyObject *get_closed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!((py_context *)object)->kb);
}

static PyObject *get_now_fs(PyObject *object, void *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyLong_FromLongLong(kb_context_now(self->kb)) : NULL;
}

static PyObject *get_now_ns(PyObject *object, void *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyFloat_FromDouble(kb_to_ns(kb_context_now(self->kb))) : NULL;
}

static PyObject *get_timing_only(PyObject *object, void *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyBool_FromLong(kb_context_is_timing_only(self->kb)) : NULL;
}

static PyObject *get_machine(PyObject *object, void *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    if (!py_context_check(self))
        return NULL;
    kb_machine machine = kb_context_machine(self->kb);
    return Py_BuildValue("{ss sI sI sI sI sI sK sK sK}", "name", machine.name, "sips", machine.sips,
                         "cubes", machine.cubes, "cube_w", machine.cube_w, "cube_h", machine.cube_h,
                         "pes", machine.pes, "hbm_bytes", (unsigned long long)machine.hbm_bytes,
                         "tcm_bytes", (unsigned long long)machine.tcm_bytes, "sram_bytes",
                         (unsigned long long)machine.sram_bytes);
}

static PyGetSetDef members[] = {
    {"closed", get_closed, NULL, PyDoc_STR("Whether the context is closed."), NULL},
    {"now_fs", get_now_fs, NULL, PyDoc_STR("The simulated time in femtoseconds, an int."), NULL},
    {"now_ns", get_now_ns, NULL, PyDoc_STR("The simulated time in nanoseconds."), NULL},
    {"timing_only", get_timing_only, NULL, PyDoc_STR("Whether the run has no data."), NULL},
    {"machine", get_machine, NULL, PyDoc_STR("A dict of what the machine has."), NULL},
    {0},
};

static PyMemberDef offsets[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(py_context, weak_references), READONLY, NULL},
    {0},
};

static PyMethodDef own_methods[] = {
    PY_PLAIN_METHOD("close", context_close,
                    "close($self)\n--\n\nDestroys the context; its kernels and workers end."),
    {"redirect_ccl_trace", redirect_ccl_trace, METH_O,
     PyDoc_STR("redirect_ccl_trace($self, callback, /)\n--\n\nThe callback gets the lines of the "
               "queue trace from here on. Nothing if the context was made without one.")},
    {0},
};

/* ---- The type ---------------------------------------------------------------------------- */

static const char context_doc[] =
    "Context(topology=None, settings=(), *, device=None, timing_only=False, debug=False, "
    "stack_bytes=0, threads=0, races='warn', ccl=None, on_warning=None, on_note=None, "
    "on_ccl_trace=None, on_op=None)\n--\n\n"
    "A simulated machine, and everything that a program has there.";

/* Methods are in several files: one table of all of them, which stays. */
static PyMethodDef *join_methods(void)
{
    PyMethodDef *const tables[] = {own_methods,       py_tensor_methods, py_launch_methods,
                                   py_worker_methods, py_group_methods,  py_queue_methods,
                                   py_stats_methods};
    enum { TABLES = sizeof tables / sizeof tables[0] };
    size_t count = 1;
    for (size_t i = 0; i < TABLES; i++)
        for (const PyMethodDef *method = tables[i]; method->ml_name; method++)
            count++;
    PyMethodDef *all = kb_alloc_zeroed(count, sizeof *all);
    size_t made = 0;
    for (size_t i = 0; i < TABLES && all; i++)
        for (const PyMethodDef *method = tables[i]; method->ml_name; method++)
            all[made++] = *method;
    return all;
}

/* 0 if it cannot be found. */
static unsigned long find_main_thread(void)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    unsigned long number = ident ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    PyErr_Clear();
    return number;
}

bool py_context_init_type(PyObject *module)
{
    PyMethodDef *methods = join_methods();
    main_thread = find_main_thread();
    if (!methods) {
        PyErr_NoMemory();
        return false;
    }
    PyType_Slot slots[] = {
        {Py_tp_doc, (void *)(uintptr_t)context_doc},
        {Py_tp_new, context_new},
        {Py_tp_init, context_init},
        {Py_tp_dealloc, context_dealloc},
        {Py_tp_finalize, context_finalize},
        {Py_tp_traverse, context_traverse},
        {Py_tp_clear, context_clear},
        {Py_tp_methods, methods},
        {Py_tp_getset, members},
        {Py_tp_members, offsets},
        {0, NULL},
    };
    PyType_Spec spec = {.name = "kernbench._core.Context",
                        .basicsize = sizeof(py_context),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                        .slots = slots};
    context_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return context_type && PyModule_AddObjectRef(module, "Context", (PyObject *)context_type) == 0;
}
