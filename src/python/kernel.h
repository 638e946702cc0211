/*
 * kernel.h: kernels in Python: what is launched, the `tl` that a kernel is given, the values that
 * its operations make.
 */
#ifndef KB_PYTHON_KERNEL_H
#define KB_PYTHON_KERNEL_H

#include "interpreter.h"

#include <stdbool.h>

#include <kernbench/tl.h>

#include "base/base.h"
#include "tl/tl.h"

/* ---- What is launched -------------------------------------------------------------------- */

/* A kernel that failed: the exception, and the engine's message about it, to find it by. */
typedef struct py_fault {
    PyObject *exception;
    char *message;
} py_fault;

/*
 * A function with its arguments, the user object of a kb_kernel. It stays until no kernel of the
 * launch can run any more: until its request is done, or the context is destroyed. Those of a
 * context are listed.
 */
typedef struct py_launch py_launch;
struct py_launch {
    py_launch *next, *prev;
    kb_kernel kernel;
    PyObject *function;
    PyObject **args;      /* NULL where the engine's argument of the next number goes */
    size_t arg_count;     /* without those by name */
    PyObject *names;      /* of the arguments by name, which come last, and of `tl` */
    PyObject *rank_count; /* tl.world_size; NULL: not in a mock run */
    uint32_t mock_pes_per_cube;
    PyObject
        *variants; /* a list of tuples: the engine says which one follows the address; or NULL */
    size_t stack_bytes;
    KB_VEC(py_fault) faults;
};

/*
 * `args` are the positional arguments, of which `is_address` says which the engine supplies;
 * `kwargs` is a dict or NULL. The name is that of messages, NULL: the function's. NULL with an
 * exception set if it cannot be.
 */
py_launch *py_launch_new(PyObject *name, PyObject *function, PyObject *const *args,
                         const bool *is_address, size_t count, PyObject *kwargs,
                         size_t stack_bytes);
void py_launch_free(py_launch *launch);
int py_launch_traverse(const py_launch *launch, visitproc visit, void *arg);

/* From here on the engine gives the address, and which of the launch's variants the further
 * arguments are; then as many zeros as make the number of parameters. False with an exception set.
 */
bool py_launch_take_variants(py_launch *launch);

/* Keeps an exception that the engine has as an error; whether an error is of one that was kept. */
void py_launch_keep(py_launch *launch, PyObject *exception, const kb_error *err);
bool py_launch_has_fault(const py_launch *launch, const kb_error *err);

/* Raises what a launch failed with: the exception of the kernel if it is one's of Python. Frees the
 * error. */
void py_launch_raise(const py_launch *launch, kb_error *err);

/* ---- tl ---------------------------------------------------------------------------------- */

typedef struct py_tl {
    PyObject_HEAD tl_context *tl; /* NULL: the kernel has ended */
    PyThreadState *state;
    py_launch *launch;
    KB_VEC(tl_tensor) released; /* values whose objects are gone; freed by the next operation */
    bool failed;                /* its error has been raised */
    PyObject *named;            /* a dict from addresses to values received there; NULL: none */
} py_tl;

extern PyTypeObject *py_tl_type;

/* The one of the kernel that runs on this thread; NULL: none does. Borrowed. */
py_tl *py_running_tl(void);

/* Another one does, or none: returns the one before. Around a call of the engine by the driver,
 * which may be a kernel of another context that destroys this one; and after one by a worker. */
py_tl *py_set_running_tl(py_tl *tl);

/* Makes a call that contains operations. False with an exception set if one failed. */
bool py_tl_perform(py_tl *self, void (*call)(tl_context *tl, void *arg), void *arg);

/* Whether operations of this object can be called here: else false with an exception set. */
bool py_tl_check(py_tl *self);

/* Frees the values whose objects are gone. In py_tl_perform(). */
void py_tl_free_released(py_tl *self, tl_srcloc at);

/* ---- Values ------------------------------------------------------------------------------ */

/*
 * A TensorHandle: a value or a place of a kernel, or made by a program: then it has no owner, and
 * names what is at its address.
 */
typedef struct py_handle {
    PyObject_HEAD py_tl *owner; /* NULL: made by a program */
    tl_tensor value;
    bool is_freed; /* by tl.free(), or as acc of a product */
    tl_dims shape;
    kb_dtype dtype;
    bool is_place;          /* in memory, at `address` */
    uint64_t address;       /* of a value: see address_of_value() in handle.c */
    PyObject *space;        /* a str; NULL: "tcm" */
    PyObject *id;           /* of one that a program made; else NULL */
    PyObject *data;         /* the same */
    PyObject *shape_given;  /* the same */
    PyObject *dtype_given;  /* the same */
    PyObject *nbytes_given; /* the same */
    PyObject *bytes;        /* of the data, made when it is first needed */
} py_handle;

typedef struct py_future {
    PyObject_HEAD py_tl *owner;
    PyObject *handle; /* of a receive: the value; else NULL */
    tl_future future;
} py_future;

extern PyTypeObject *py_handle_type;
extern PyTypeObject *py_future_type;

bool py_handle_init_types(PyObject *module);
bool py_tl_init_type(PyObject *module);

/* Of a value that an operation made; of a place. NULL with an exception set. */
PyObject *py_handle_new(py_tl *owner, tl_tensor value, const tl_dims *shape, kb_dtype dtype);
PyObject *py_handle_of_place(py_tl *owner, tl_tensor value, const tl_dims *shape, kb_dtype dtype,
                             uint64_t address, PyObject *space);
PyObject *py_future_new(py_tl *owner, tl_future future);
PyObject *py_future_of_value(py_tl *owner, PyObject *handle);

static inline bool py_is_handle(PyObject *object)
{
    return Py_TYPE(object) == py_handle_type || PyObject_TypeCheck(object, py_handle_type);
}

bool py_names_value(uint64_t address);

/* From here on the address names the value of this handle. False with an exception set. */
bool py_name_value(py_tl *tl, uint64_t address, PyObject *handle);

/* The numbers of a handle that has data of its own, in its dtype. False with an exception set. */
bool py_handle_get_bytes(py_handle *handle, const void **bytes);

bool py_value_at_address(const py_tl *tl, uint64_t address, tl_tensor *value);

/* Operators of handles are operations of the kernel that runs: tl_type.c. */
extern PyType_Slot py_handle_operators[];
PyObject *py_handle_compare(PyObject *a, PyObject *b, int op);

/* ---- Conversions ------------------------------------------------------------------------- */

/* From Python, with an exception set if it cannot be. */
bool py_get_dtype(PyObject *object, kb_dtype *dtype);
bool py_get_dims(PyObject *object, tl_dims *dims);
bool py_get_shape(PyObject *object, kb_shape *shape);
bool py_get_integer(PyObject *object, int64_t *integer);

/* To Python. */
PyObject *py_tuple_of_dims(const tl_dims *dims);
PyObject *py_string_of_dtype(kb_dtype dtype);

bool py_convert_init(PyObject *module);

#endif
