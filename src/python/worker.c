/*
 * worker.c: devices, workers, and letting others go on. A worker runs Python on a coroutine of the
 * engine, with a thread state of its own.
 */
#include "context.h"

#include <stdlib.h>

#include "errors.h"
#include "rt/rt.h"
#include "sim/sim.h"
#include "thread_states.h"

/* Workers that run. */
typedef struct py_spawn {
    py_context *context;
    PyObject *function;
    PyObject **raised; /* by rank: what it ended with; NULL: it has not, or well */
    uint32_t count;
} py_spawn;

/* ---- Devices ----------------------------------------------------------------------------- */

static PyObject *set_device(PyObject *object, PyObject *number)
{
    py_context *self = (py_context *)object;
    unsigned long sip = PyLong_AsUnsignedLong(number);
    if (sip == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (!py_context_check(self) ||
        !py_succeeded(kb_ahbm_set_device(self->kb, sip > UINT32_MAX ? UINT32_MAX : (uint32_t)sip)))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *current_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyLong_FromUnsignedLong(kb_ahbm_current_device(self->kb))
                                  : NULL;
}

static PyObject *device_is_set(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyBool_FromLong(kb_ahbm_device_is_set(self->kb)) : NULL;
}

static PyObject *device_count(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyLong_FromUnsignedLong(kb_ahbm_device_count(self->kb)) : NULL;
}

/* ---- Workers ----------------------------------------------------------------------------- */

static bool is_root_cause(PyObject *exception)
{
    return !PyErr_GivenExceptionMatches(exception, py_stopped) && !py_is_secondary(exception);
}

/* What the engine is told of an exception that a worker ended with. */
static kb_error *report(PyObject *exception)
{
    kb_error *err = py_error_of(KB_ERR_FAULT, exception);
    if (!is_root_cause(exception))
        kb_error_set_secondary(err);
    return err;
}

static PyObject *call_function(PyObject *function, uint32_t rank)
{
    PyObject *number = PyLong_FromUnsignedLong(rank);
    PyObject *result = number ? PyObject_CallOneArg(function, number) : NULL;
    Py_XDECREF(number);
    return py_check_returned(result);
}

static kb_error *run_worker(kb_context *kb, uint32_t rank, void *arg)
{
    py_spawn *spawn = arg;
    kb_co *co = kb_context_worker(kb);
    PyThreadState *state = py_state_take(spawn->context->stack_bytes);
    if (!state)
        return kb_error_nomem();
    (void)py_set_running_tl(NULL);
    kb_error *err = NULL;
    PyObject *result = call_function(spawn->function, rank);
    if (!result) {
        PyObject *exception = py_take_exception();
        err = report(exception);
        spawn->raised[rank] = exception;
    }
    Py_XDECREF(result);
    py_state_give(state);
    if (kb_co_is_unwinding(co)) { /* its frames are gone: it ends as one without frames does */
        kb_error_free(err);
        kb_co_exit(co);
    }
    return err;
}

static kb_error *spawn_now(kb_context *kb, void *arg)
{
    py_spawn *spawn = arg;
    return kb_spawn(kb, run_worker, spawn, spawn->count);
}

/* By rank, those that are to blame, as the engine says; with an exception of another kind, that is
 * raised by itself. */
static PyObject *list_failures(const py_context *self, const py_spawn *spawn)
{
    size_t count = kb_spawn_failures(self->kb, NULL, 0);
    kb_failure *failures = kb_alloc_array(count, sizeof *failures);
    if (!failures)
        return PyErr_NoMemory();
    PyObject *dict = PyDict_New();
    if (dict)
        (void)kb_spawn_failures(self->kb, failures, count);
    for (size_t i = 0; i < count && dict; i++) {
        uint32_t rank = failures[i].rank;
        PyObject *number = PyLong_FromUnsignedLong(rank);
        PyObject *exception =
            spawn->raised[rank]
                ? Py_NewRef(spawn->raised[rank])
                : py_exception_of(kb_error_new(failures[i].code, "%s", failures[i].message));
        if (!number || !exception || PyDict_SetItem(dict, number, exception) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(number);
        Py_XDECREF(exception);
    }
    free(failures);
    return dict;
}

/* KeyboardInterrupt, SystemExit: not for the program to collect. NULL if there is none. */
static PyObject *find_exit(const py_spawn *spawn)
{
    for (uint32_t rank = 0; rank < spawn->count; rank++) {
        PyObject *raised = spawn->raised[rank];
        if (raised && !PyErr_GivenExceptionMatches(raised, py_stopped) &&
            !PyErr_GivenExceptionMatches(raised, PyExc_Exception))
            return raised;
    }
    return NULL;
}

static PyObject *conclude(const py_context *self, const py_spawn *spawn, kb_error *err)
{
    PyObject *exit = find_exit(spawn);
    bool failed = kb_spawn_failures(self->kb, NULL, 0) > 0;
    if (exit) {
        kb_error_free(err);
        py_raise_exception(exit);
        return NULL;
    }
    if (err && !failed) {
        py_raise(err);
        return NULL;
    }
    kb_error_free(err);
    return list_failures(self, spawn);
}

static PyObject *spawn(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"fn", "nprocs", NULL};
    py_context *self = (py_context *)object;
    PyObject *function, *result = NULL;
    int count = 1;
    kb_error *err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|i:spawn", PY_NAMES(names), &function,
                                     &count) ||
        !py_threads_check())
        return NULL;
    if (count < 1) {
        PyErr_Format(PyExc_ValueError, "spawn: %d workers; expected at least 1", count);
        return NULL;
    }
    py_spawn workers = {.context = self, .function = function, .count = (uint32_t)count};
    workers.raised = kb_alloc_zeroed((size_t)count, sizeof *workers.raised);
    if (!workers.raised)
        return PyErr_NoMemory();
    bool returned = py_host_call(self, spawn_now, &workers, &err);
    if (returned)
        result = conclude(self, &workers, err);
    for (int rank = 0; rank < count; rank++)
        Py_XDECREF(workers.raised[rank]);
    free(workers.raised);
    return result;
}

static PyObject *worker_rank(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    if (!py_context_check(self))
        return NULL;
    uint32_t rank = rt_caller_rank(self->kb);
    return rank == RT_DRIVER ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(rank);
}

static kb_error *yield_now(kb_context *kb, void *unused)
{
    (void)unused;
    return kb_cooperative_yield(kb);
}

static PyObject *cooperative_yield(PyObject *object, PyObject *unused)
{
    (void)unused;
    return py_host_do((py_context *)object, yield_now, NULL) ? Py_NewRef(Py_None) : NULL;
}

PyMethodDef py_worker_methods[] = {
    {"set_device", set_device, METH_O,
     PyDoc_STR("set_device($self, sip, /)\n--\n\nMakes the SIP the caller's current device.")},
    PY_PLAIN_METHOD("current_device", current_device,
                    "current_device($self)\n--\n\nThe number of the caller's current device."),
    PY_PLAIN_METHOD("device_is_set", device_is_set,
                    "device_is_set($self)\n--\n\nWhether the caller has set its device."),
    PY_PLAIN_METHOD("device_count", device_count,
                    "device_count($self)\n--\n\nHow many SIPs the machine has."),
    PY_METHOD("spawn", spawn,
              "spawn($self, fn, nprocs=1)\n--\n\n"
              "Runs fn(rank) in so many workers; a dict from the ranks that failed to exceptions."),
    PY_PLAIN_METHOD(
        "worker_rank", worker_rank,
        "worker_rank($self)\n--\n\nThe rank of the calling worker; None outside workers."),
    PY_PLAIN_METHOD("cooperative_yield", cooperative_yield,
                    "cooperative_yield($self)\n--\n\nLets the other workers go on that can."),
    {0},
};
