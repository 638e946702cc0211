/*
 * context.h: contexts, tensors and requests as Python objects.
 */
#ifndef KB_PYTHON_CONTEXT_H
#define KB_PYTHON_CONTEXT_H

#include "interpreter.h"

#include <stdbool.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "kernel.h"

typedef struct py_algorithms py_algorithms;

typedef struct py_context {
    PyObject_HEAD kb_context *kb; /* NULL: closed */
    bool borrowed;                /* the kb_context is another's to destroy */
    size_t stack_bytes;
    PyObject *on_warning, *on_note, *on_ccl_trace, *on_op; /* NULL: none */
    PyObject *raised; /* by one of these; raised when the call returns. NULL: nothing */
    PyObject *weak_references;
    py_launch launches;        /* head of the list of those that may still run */
    KB_VEC(kb_tensor) unnamed; /* tensors whose objects are gone */
    py_algorithms *algorithms; /* in Python, for collectives; NULL: none */
    kb_error *interruption;    /* that a signal fails the run with; NULL: used */
    unsigned long thread;      /* that is in a call */
    int depth;                 /* of calls by the driver: 0 or 1 */
} py_context;

/* A base for classes of tensors: what names one in a context. */
typedef struct py_tensor {
    PyObject_HEAD py_context *context; /* NULL: not deployed */
    kb_tensor tensor;                  /* id 0: freed, or not deployed */
    PyObject *weak_references;
} py_tensor;

typedef struct py_request {
    PyObject_HEAD py_context *context;
    kb_request request; /* id 0: done, and freed */
    py_launch *launch;  /* of a kernel in Python; NULL: of something else */
    PyObject *name;
    PyObject *results;   /* of a launch that is done; else NULL */
    PyObject *exception; /* that it failed with; else NULL */
    bool is_launch;
} py_request;

extern PyTypeObject *py_tensor_type;

/* ---- Calls of the engine ----------------------------------------------------------------- */

typedef kb_error *py_host_fn(kb_context *kb, void *arg);

/*
 * Makes a call of the engine that may wait, from the driver or a worker. Python may run in it:
 * kernels, workers, callbacks. True if it returned, with its error in *err; false with an exception
 * set if it could not be made, was interrupted, or the worker is being stopped.
 */
bool py_host_call(py_context *self, py_host_fn *fn, void *arg, kb_error **err);

/* The same; raises the call's error too. */
bool py_host_do(py_context *self, py_host_fn *fn, void *arg);

/* Whether calls that do not wait can be made: false with an exception set if not. */
bool py_context_check(py_context *self);

/* The context of a kb_context that runs a bench: it does not destroy it. */
PyObject *py_context_borrow(kb_context *kb, size_t stack_bytes);
void py_context_give_back(PyObject *context);

/* ---- Tensors ----------------------------------------------------------------------------- */

/* Of an object that is a tensor of this context. False with an exception set. */
bool py_get_tensor(const py_context *self, PyObject *object, kb_tensor *tensor);

/* A list of tensors, or None for none, as an array to be freed. NULL with an exception set. */
kb_tensor *py_get_tensors(const py_context *self, PyObject *list, size_t *count);

extern PyMethodDef py_tensor_methods[]; /* of contexts, about tensors: tensor.c */
extern PyMethodDef py_launch_methods[]; /* launch.c */
extern PyMethodDef py_worker_methods[]; /* worker.c */
extern PyMethodDef py_group_methods[];  /* group.c */
extern PyMethodDef py_queue_methods[];  /* queues.c */
extern PyMethodDef py_stats_methods[];  /* stats.c */

bool py_tensor_init_type(PyObject *module);
bool py_launch_init_types(PyObject *module);
bool py_context_init_type(PyObject *module);

/* Frees the tensors whose objects are gone. */
void py_free_unnamed(py_context *self);

/* ---- Launches ---------------------------------------------------------------------------- */

/* A request of the engine, which it takes over. NULL with an exception set. */
PyObject *py_request_new(py_context *context, kb_request request, PyObject *name, py_launch *launch,
                         bool is_launch);

void py_unlist_launch(py_launch *launch);

/* ---- Workers ----------------------------------------------------------------------------- */

void py_algorithms_free(py_algorithms *is);
int py_algorithms_traverse(const py_algorithms *is, visitproc visit, void *arg);

#endif
