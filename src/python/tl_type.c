/*
 * tl_type.c: `tl`, the language of kernels, and the operators of values. Each method reads its
 * arguments, makes the operation of <kernbench/tl.h> under tl_try(), and returns what that made.
 */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "operands.h"
#include "parameters.h"
#include "srcloc.h"
#include "tl/tl.h"

PyTypeObject *py_tl_type;

#define ARGUMENTS PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames

/* What most operations have in common. */
typedef struct operation {
    py_tl *self;
    tl_srcloc at;
    py_operand inputs[3];
    int count;
    tl_op op;
    int axis;
    tl_tensor result;
} operation;

static operation begin(PyObject *object)
{
    return (operation){.self = (py_tl *)object, .at = py_srcloc()};
}

static void free_released(tl_context *tl, const operation *is)
{
    (void)tl;
    if (is->self->released.count > 0)
        py_tl_free_released(is->self, is->at);
}

static PyObject *finish(operation *is, void (*call)(tl_context *tl, void *arg))
{
    if (!py_tl_perform(is->self, call, is))
        return NULL;
    return py_result(is->self, is->result);
}

/* ---- Elements ---------------------------------------------------------------------------- */

static void apply_now(tl_context *tl, void *arg)
{
    operation *is = arg;
    tl_tensor inputs[3];
    free_released(tl, is);
    for (int i = 0; i < is->count; i++)
        inputs[i] = py_use_operand(tl, is->at, &is->inputs[i]);
    is->result = tl_apply_(tl, is->at, is->op, inputs, is->axis);
    for (int i = 0; i < is->count; i++)
        py_drop_operand(tl, is->at, &is->inputs[i], inputs[i]);
}

/* Operands of which at least one has to be a value, unless the operation takes numbers alone. */
static PyObject *apply(py_tl *self, tl_op op, PyObject *const *operands, int count, int axis)
{
    operation is = {.self = self, .at = py_srcloc(), .count = count, .op = op, .axis = axis};
    if (!py_tl_check(self))
        return NULL;
    for (int i = 0; i < count; i++)
        if (!py_get_operand(self, operands[i], true, &is.inputs[i]))
            return NULL;
    return finish(&is, apply_now);
}

static bool get_axis(PyObject *object, int fallback, int *axis)
{
    *axis = fallback;
    if (!object)
        return true;
    long number = PyLong_AsLong(object);
    *axis = number < INT_MIN || number > INT_MAX ? INT_MAX : (int)number;
    return number != -1 || !PyErr_Occurred();
}

#define UNARY(name, op)                                                                            \
    static PyObject *do_##name(ARGUMENTS)                                                          \
    {                                                                                              \
        static py_parameters parameters = {.function = #name, .required = 1, .names = {"x"}};      \
        PyObject *values[PY_MAX_PARAMETERS];                                                       \
        if (!py_get_arguments(&parameters, args, nargs, kwnames, values))                          \
            return NULL;                                                                           \
        return apply((py_tl *)object, op, values, 1, 0);                                           \
    }
#define BINARY(name, op)                                                                           \
    static PyObject *do_##name(ARGUMENTS)                                                          \
    {                                                                                              \
        static py_parameters parameters = {.function = #name, .required = 2, .names = {"a", "b"}}; \
        PyObject *values[PY_MAX_PARAMETERS];                                                       \
        if (!py_get_arguments(&parameters, args, nargs, kwnames, values))                          \
            return NULL;                                                                           \
        return apply((py_tl *)object, op, values, 2, 0);                                           \
    }
#define TERNARY(name, op, first, second, third)                                                    \
    static PyObject *do_##name(ARGUMENTS)                                                          \
    {                                                                                              \
        static py_parameters parameters = {                                                        \
            .function = #name, .required = 3, .names = {first, second, third}};                    \
        PyObject *values[PY_MAX_PARAMETERS];                                                       \
        if (!py_get_arguments(&parameters, args, nargs, kwnames, values))                          \
            return NULL;                                                                           \
        return apply((py_tl *)object, op, values, 3, 0);                                           \
    }
#define ALONG(name, op)                                                                            \
    static PyObject *do_##name(ARGUMENTS)                                                          \
    {                                                                                              \
        static py_parameters parameters = {                                                        \
            .function = #name, .required = 1, .names = {"x", "axis"}};                             \
        PyObject *values[PY_MAX_PARAMETERS];                                                       \
        int axis;                                                                                  \
        if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||                        \
            !get_axis(values[1], -1, &axis))                                                       \
            return NULL;                                                                           \
        return apply((py_tl *)object, op, values, 1, axis);                                        \
    }

UNARY(exp, TL_EXP_)
UNARY(log, TL_LOG_)
UNARY(sqrt, TL_SQRT_)
UNARY(rsqrt, TL_RSQRT_)
UNARY(abs, TL_ABS_)
UNARY(neg, TL_NEG_)
UNARY(sigmoid, TL_SIGMOID_)
UNARY(tanh, TL_TANH_)
UNARY(cos, TL_COS_)
UNARY(sin, TL_SIN_)
UNARY(gelu, TL_GELU_)
UNARY(silu, TL_SILU_)
BINARY(add, TL_ADD_)
BINARY(sub, TL_SUB_)
BINARY(mul, TL_MUL_)
BINARY(div, TL_DIV_)
BINARY(maximum, TL_MAXIMUM_)
BINARY(minimum, TL_MINIMUM_)
BINARY(lt, TL_LT_)
BINARY(le, TL_LE_)
BINARY(gt, TL_GT_)
BINARY(ge, TL_GE_)
BINARY(eq, TL_EQ_)
BINARY(ne, TL_NE_)
TERNARY(fma, TL_FMA_, "a", "b", "c")
TERNARY(clamp, TL_CLAMP_, "x", "min", "max")
TERNARY(where, TL_WHERE_, "condition", "a", "b")
ALONG(sum, TL_SUM_)
ALONG(max, TL_MAX_)
ALONG(min, TL_MIN_)
ALONG(argmax, TL_ARGMAX_)
ALONG(argmin, TL_ARGMIN_)
ALONG(softmax, TL_SOFTMAX_)
ALONG(cumsum, TL_CUMSUM_)

/* ---- Operators of values ----------------------------------------------------------------- */

static PyObject *operate(tl_op op, PyObject *a, PyObject *b)
{
    bool usable = (py_is_handle(a) || PyNumber_Check(a)) && (py_is_handle(b) || PyNumber_Check(b));
    if (!usable)
        Py_RETURN_NOTIMPLEMENTED;
    py_tl *self = py_running_tl();
    if (!self) {
        PyErr_SetString(py_kernbench_error, "operators of values work in kernels alone");
        return NULL;
    }
    return apply(self, op, (PyObject *[]){a, b}, 2, 0);
}

#define OPERATOR(name, op)                                                                         \
    static PyObject *operator_##name(PyObject *a, PyObject *b)                                     \
    {                                                                                              \
        return operate(op, a, b);                                                                  \
    }
OPERATOR(add, TL_ADD_)
OPERATOR(sub, TL_SUB_)
OPERATOR(mul, TL_MUL_)
OPERATOR(div, TL_DIV_)

static PyObject *operate_alone(tl_op op, PyObject *x)
{
    py_tl *self = py_running_tl();
    if (!self) {
        PyErr_SetString(py_kernbench_error, "operators of values work in kernels alone");
        return NULL;
    }
    return apply(self, op, &x, 1, 0);
}

static PyObject *operator_neg(PyObject *x)
{
    return operate_alone(TL_NEG_, x);
}

static PyObject *operator_abs(PyObject *x)
{
    return operate_alone(TL_ABS_, x);
}

static PyObject *dot(py_tl *self, PyObject *a, PyObject *b, PyObject *acc, bool out_f32);

static PyObject *operator_matmul(PyObject *a, PyObject *b)
{
    py_tl *self = py_running_tl();
    if (!py_is_handle(a) || !py_is_handle(b))
        Py_RETURN_NOTIMPLEMENTED;
    if (!self) {
        PyErr_SetString(py_kernbench_error, "operators of values work in kernels alone");
        return NULL;
    }
    return dot(self, a, b, NULL, false);
}

/* Element by element. == and != of handles outside of kernels compare the objects. */
PyObject *py_handle_compare(PyObject *a, PyObject *b, int op)
{
    static const tl_op ops[] = {[Py_LT] = TL_LT_, [Py_LE] = TL_LE_, [Py_EQ] = TL_EQ_,
                                [Py_NE] = TL_NE_, [Py_GT] = TL_GT_, [Py_GE] = TL_GE_};
    if ((op == Py_EQ || op == Py_NE) && (!py_running_tl() || b == Py_None || a == b))
        Py_RETURN_NOTIMPLEMENTED;
    return operate(ops[op], a, b);
}

PyType_Slot py_handle_operators[] = {
    {Py_nb_add, operator_add},
    {Py_nb_subtract, operator_sub},
    {Py_nb_multiply, operator_mul},
    {Py_nb_true_divide, operator_div},
    {Py_nb_negative, operator_neg},
    {Py_nb_absolute, operator_abs},
    {Py_nb_matrix_multiply, operator_matmul},
    {0, NULL},
};

/* ---- Matrices ---------------------------------------------------------------------------- */

typedef struct dot_call {
    operation is; /* inputs: a, b, acc */
    bool has_acc, out_f32;
} dot_call;

static void dot_now(tl_context *tl, void *arg)
{
    dot_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor a = py_use_operand(tl, is->at, &is->inputs[0]);
    tl_tensor b = py_use_operand(tl, is->at, &is->inputs[1]);
    tl_dot_options options = {.b = b, .out_f32 = call->out_f32};
    if (call->has_acc)
        options.acc = py_use_operand(tl, is->at, &is->inputs[2]);
    is->result = tl_dot_(tl, is->at, a, options);
    py_drop_operand(tl, is->at, &is->inputs[0], a);
    py_drop_operand(tl, is->at, &is->inputs[1], b);
}

static PyObject *dot(py_tl *self, PyObject *a, PyObject *b, PyObject *acc, bool out_f32)
{
    dot_call call = {.is = begin((PyObject *)self), .out_f32 = out_f32};
    call.has_acc = acc && acc != Py_None;
    if (!py_tl_check(self) || !py_get_operand(self, a, false, &call.is.inputs[0]) ||
        !py_get_operand(self, b, false, &call.is.inputs[1]) ||
        (call.has_acc && !py_get_operand(self, acc, false, &call.is.inputs[2])))
        return NULL;
    if (!py_tl_perform(self, dot_now, &call))
        return NULL;
    if (acc && call.has_acc)
        ((py_handle *)acc)->is_freed = true; /* the result has its place */
    return py_result(self, call.is.result);
}

static PyObject *do_dot(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "dot", .required = 2, .names = {"a", "b", "acc", "out_f32"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    int out_f32 = values[3] ? PyObject_IsTrue(values[3]) : 0;
    return out_f32 < 0 ? NULL : dot((py_tl *)object, values[0], values[1], values[2], out_f32);
}

typedef struct composite_call {
    operation is; /* inputs: a, b */
    tl_ptr out;
    tl_dims shape;
    kb_dtype dtype;
    tl_future future;
} composite_call;

static void composite_now(tl_context *tl, void *arg)
{
    composite_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor a = py_use_operand(tl, is->at, &is->inputs[0]);
    tl_tensor b = py_use_operand(tl, is->at, &is->inputs[1]);
    tl_tensor out =
        tl_ref_(tl, is->at, call->out, call->shape, (tl_load_options){.dtype = call->dtype});
    call->future = tl_composite_(tl, is->at, TL_GEMM, a, b, out);
    tl_free_(tl, is->at, out);
    py_drop_operand(tl, is->at, &is->inputs[0], a);
    py_drop_operand(tl, is->at, &is->inputs[1], b);
}

static bool is_text(PyObject *object, const char *text)
{
    return PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, text) == 0;
}

/* The product of (m, k) and (k, n) is (m, n). */
static bool get_product_form(PyObject *a, PyObject *b, PyObject *dtype, composite_call *call)
{
    const py_handle *left = (py_handle *)a, *right = (py_handle *)b;
    if (left->shape.rank != 2 || right->shape.rank != 2) {
        PyErr_SetString(PyExc_ValueError, "composite() multiplies two matrices");
        return false;
    }
    call->shape = (tl_dims){.rank = 2, .dims = {left->shape.dims[0], right->shape.dims[1]}};
    call->dtype = left->dtype;
    return !dtype || dtype == Py_None || py_get_dtype(dtype, &call->dtype);
}

static PyObject *do_composite(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "composite", .required = 0, .names = {"op", "a", "b", "out_ptr", "dtype"}};
    PyObject *values[PY_MAX_PARAMETERS];
    composite_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) || !py_tl_check(self))
        return NULL;
    if (values[0] && !is_text(values[0], "gemm")) {
        PyErr_Format(PyExc_ValueError, "unknown composite operation %R: expected 'gemm'",
                     values[0]);
        return NULL;
    }
    if (!values[1] || !values[2] || !values[3]) {
        PyErr_SetString(PyExc_TypeError, "composite() needs a, b and out_ptr");
        return NULL;
    }
    if (!py_get_operand(self, values[1], false, &call.is.inputs[0]) ||
        !py_get_operand(self, values[2], false, &call.is.inputs[1]) ||
        !py_get_address(values[3], &call.out) ||
        !get_product_form(values[1], values[2], values[4], &call) ||
        !py_tl_perform(self, composite_now, &call))
        return NULL;
    return py_future_new(self, call.future);
}

/* ---- Memory ------------------------------------------------------------------------------ */

typedef struct memory_call {
    operation is; /* inputs: the mask; what is stored */
    tl_ptr ptr;
    tl_dims shape, strides;
    kb_dtype dtype;
    bool has_mask, reinterpret;
    double other;
    tl_future future;
} memory_call;

static void load_now(tl_context *tl, void *arg)
{
    memory_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_load_options options = {.dtype = call->dtype,
                               .strides = call->strides,
                               .other = call->other,
                               .reinterpret = call->reinterpret};
    if (call->has_mask)
        options.mask = py_use_operand(tl, is->at, &is->inputs[0]);
    is->result = tl_load_(tl, is->at, call->ptr, call->shape, options);
}

static bool get_options(py_tl *self, PyObject *strides, PyObject *mask, PyObject *reinterpret,
                        memory_call *call)
{
    if (strides && strides != Py_None && !py_get_dims(strides, &call->strides))
        return false;
    call->has_mask = mask && mask != Py_None;
    if (call->has_mask && !py_get_operand(self, mask, false, &call->is.inputs[0]))
        return false;
    int as_is = reinterpret ? PyObject_IsTrue(reinterpret) : 0;
    call->reinterpret = as_is > 0;
    return as_is >= 0;
}

static bool get_form(PyObject *shape, PyObject *dtype, tl_dims *dims, kb_dtype *type)
{
    *type = KB_F16;
    return py_get_dims(shape, dims) && (!dtype || py_get_dtype(dtype, type));
}

static PyObject *do_load(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "load",
        .required = 2,
        .names = {"ptr", "shape", "dtype", "strides", "mask", "other", "reinterpret"}};
    PyObject *values[PY_MAX_PARAMETERS];
    memory_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_tl_check(self) || !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_address(values[0], &call.ptr) ||
        !get_form(values[1], values[2], &call.shape, &call.dtype) ||
        !get_options(self, values[3], values[4], values[6], &call))
        return NULL;
    if (values[5] && (call.other = PyFloat_AsDouble(values[5])) == -1 && PyErr_Occurred())
        return NULL;
    if (!py_tl_perform(self, load_now, &call))
        return NULL;
    return py_handle_new(self, call.is.result, &call.shape, call.dtype);
}

static void store_now(tl_context *tl, void *arg)
{
    memory_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_store_options options = {.value = py_use_operand(tl, is->at, &is->inputs[1]),
                                .strides = call->strides,
                                .reinterpret = call->reinterpret};
    if (call->has_mask)
        options.mask = py_use_operand(tl, is->at, &is->inputs[0]);
    call->future = tl_store_(tl, is->at, call->ptr, options);
    py_drop_operand(tl, is->at, &is->inputs[1], options.value);
}

static PyObject *do_store(ARGUMENTS)
{
    static py_parameters parameters = {.function = "store",
                                       .required = 2,
                                       .names = {"ptr", "value", "strides", "mask", "reinterpret"}};
    PyObject *values[PY_MAX_PARAMETERS];
    memory_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_tl_check(self) || !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_address(values[0], &call.ptr) ||
        !py_get_operand(self, values[1], false, &call.is.inputs[1]) ||
        !get_options(self, values[2], values[3], values[4], &call) ||
        !py_tl_perform(self, store_now, &call))
        return NULL;
    return py_future_new(self, call.future);
}

static void ref_now(tl_context *tl, void *arg)
{
    memory_call *call = arg;
    free_released(tl, &call->is);
    call->is.result = tl_ref_(tl, call->is.at, call->ptr, call->shape,
                              (tl_load_options){.dtype = call->dtype,
                                                .strides = call->strides,
                                                .reinterpret = call->reinterpret});
}

static PyObject *do_ref(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "ref",
        .required = 2,
        .names = {"ptr", "shape", "dtype", "strides", "reinterpret"}};
    PyObject *values[PY_MAX_PARAMETERS];
    memory_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_tl_check(self) || !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_address(values[0], &call.ptr) ||
        !get_form(values[1], values[2], &call.shape, &call.dtype) ||
        !get_options(self, values[3], NULL, values[4], &call) ||
        !py_tl_perform(self, ref_now, &call))
        return NULL;
    return py_handle_of_place(self, call.is.result, &call.shape, call.dtype, (uint64_t)call.ptr,
                              NULL);
}

/* ---- Forms ------------------------------------------------------------------------------- */

typedef struct form_call {
    operation is;
    tl_dims shape;
    kb_dtype dtype;
    double number;
    int64_t begin, end;
    bool adds;
    tl_topk_result best;
} form_call;

static void cast_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor x = py_use_operand(tl, is->at, &is->inputs[0]);
    is->result = tl_cast_(tl, is->at, x, call->dtype);
    py_drop_operand(tl, is->at, &is->inputs[0], x);
}

static void transpose_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor x = py_use_operand(tl, is->at, &is->inputs[0]);
    is->result = tl_transpose_(tl, is->at, x);
    py_drop_operand(tl, is->at, &is->inputs[0], x);
}

static void reshape_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    is->result = tl_reshape_(tl, is->at, py_use_operand(tl, is->at, &is->inputs[0]), call->shape);
}

static void slice_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    is->result = tl_slice_(tl, is->at, py_use_operand(tl, is->at, &is->inputs[0]), is->axis,
                           call->begin, call->end);
}

static void full_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    free_released(tl, &call->is);
    call->is.result = tl_full_(tl, call->is.at, call->shape, call->dtype, call->number);
}

static void arange_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    free_released(tl, &call->is);
    call->is.result = tl_arange_(tl, call->is.at, call->begin, call->end);
}

static void topk_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    call->best =
        tl_topk_(tl, is->at, py_use_operand(tl, is->at, &is->inputs[0]), call->end, is->axis);
}

static void gather_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    is->result = tl_gather_(tl, is->at, py_use_operand(tl, is->at, &is->inputs[0]),
                            py_use_operand(tl, is->at, &is->inputs[1]), is->axis);
}

static void scatter_now(tl_context *tl, void *arg)
{
    form_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    is->result = tl_scatter_(tl, is->at, py_use_operand(tl, is->at, &is->inputs[0]),
                             py_use_operand(tl, is->at, &is->inputs[1]), is->axis,
                             py_use_operand(tl, is->at, &is->inputs[2]), call->adds);
}

/* The call with its first operand. */
static bool open_form(PyObject *object, PyObject *x, form_call *call)
{
    *call = (form_call){.is = begin(object)};
    return py_tl_check(call->is.self) &&
           py_get_operand(call->is.self, x, false, &call->is.inputs[0]);
}

static PyObject *do_cast(ARGUMENTS)
{
    static py_parameters parameters = {.function = "cast", .required = 2, .names = {"x", "dtype"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !open_form(object, values[0], &call) || !py_get_dtype(values[1], &call.dtype))
        return NULL;
    return finish(&call.is, cast_now);
}

static PyObject *do_transpose(ARGUMENTS)
{
    static py_parameters parameters = {.function = "transpose", .required = 1, .names = {"x"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !open_form(object, values[0], &call))
        return NULL;
    return finish(&call.is, transpose_now);
}

static PyObject *do_reshape(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "reshape", .required = 2, .names = {"x", "shape"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !open_form(object, values[0], &call) || !py_get_dims(values[1], &call.shape))
        return NULL;
    return finish(&call.is, reshape_now);
}

static PyObject *do_slice(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "slice", .required = 4, .names = {"x", "axis", "begin", "end"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !open_form(object, values[0], &call) || !get_axis(values[1], 0, &call.is.axis) ||
        !py_get_integer(values[2], &call.begin) || !py_get_integer(values[3], &call.end))
        return NULL;
    return finish(&call.is, slice_now);
}

/* full(shape, number, dtype) as in Triton, or full(shape, dtype, number). */
static PyObject *do_full(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "full", .required = 2, .names = {"shape", "value", "dtype"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call = {.is = begin(object)};
    if (!py_tl_check(call.is.self) || !py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    bool dtype_first = PyUnicode_Check(values[1]) && values[2];
    PyObject *number = dtype_first ? values[2] : values[1];
    if (!get_form(values[0], dtype_first ? values[1] : values[2], &call.shape, &call.dtype))
        return NULL;
    call.number = PyFloat_AsDouble(number);
    if (call.number == -1 && PyErr_Occurred())
        return NULL;
    return finish(&call.is, full_now);
}

static PyObject *do_zeros(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "zeros", .required = 1, .names = {"shape", "dtype"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call = {.is = begin(object)};
    if (!py_tl_check(call.is.self) ||
        !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !get_form(values[0], values[1], &call.shape, &call.dtype))
        return NULL;
    return finish(&call.is, full_now);
}

static PyObject *do_arange(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "arange", .required = 1, .names = {"begin", "end"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call = {.is = begin(object)};
    if (!py_tl_check(call.is.self) ||
        !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_integer(values[0], &call.begin))
        return NULL;
    call.end = call.begin;
    if (!values[1])
        call.begin = 0;
    else if (!py_get_integer(values[1], &call.end))
        return NULL;
    return finish(&call.is, arange_now);
}

static PyObject *do_topk(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "topk", .required = 2, .names = {"x", "k", "axis"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !open_form(object, values[0], &call) || !py_get_integer(values[1], &call.end) ||
        !get_axis(values[2], -1, &call.is.axis) || !py_tl_perform(call.is.self, topk_now, &call))
        return NULL;
    PyObject *largest = py_result(call.is.self, call.best.values);
    PyObject *indices = py_result(call.is.self, call.best.indices);
    PyObject *both = largest && indices ? PyTuple_Pack(2, largest, indices) : NULL;
    Py_XDECREF(largest);
    Py_XDECREF(indices);
    return both;
}

static PyObject *do_gather(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "gather", .required = 3, .names = {"x", "index", "axis"}};
    PyObject *values[PY_MAX_PARAMETERS];
    form_call call;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !open_form(object, values[0], &call) ||
        !py_get_operand(call.is.self, values[1], false, &call.is.inputs[1]) ||
        !get_axis(values[2], 0, &call.is.axis))
        return NULL;
    return finish(&call.is, gather_now);
}

static PyObject *scatter(PyObject *object, PyObject *const *values, bool adds)
{
    form_call call;
    if (!open_form(object, values[0], &call) ||
        !py_get_operand(call.is.self, values[1], false, &call.is.inputs[1]) ||
        !get_axis(values[2], 0, &call.is.axis) ||
        !py_get_operand(call.is.self, values[3], true, &call.is.inputs[2]))
        return NULL;
    call.adds = adds;
    return finish(&call.is, scatter_now);
}

static PyObject *do_scatter(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "scatter", .required = 4, .names = {"x", "index", "axis", "src"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    return scatter(object, values, false);
}

static PyObject *do_scatter_add(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "scatter_add", .required = 4, .names = {"x", "index", "axis", "src"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    return scatter(object, values, true);
}

/* ---- Several values ---------------------------------------------------------------------- */

typedef struct several_call {
    operation is; /* inputs: what is divided */
    tl_tensor *items;
    int64_t *sizes; /* NULL: in equal parts */
    int64_t count;
} several_call;

static void split_now(tl_context *tl, void *arg)
{
    several_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor x = py_use_operand(tl, is->at, &is->inputs[0]);
    if (call->sizes)
        tl_split_sizes_(tl, is->at, x, is->axis, call->items, call->sizes, (int)call->count);
    else
        tl_split_(tl, is->at, x, is->axis, call->items, call->count);
}

static void concat_now(tl_context *tl, void *arg)
{
    several_call *call = arg;
    free_released(tl, &call->is);
    call->is.result = tl_concat_(tl, call->is.at, call->is.axis, call->items, (size_t)call->count);
}

static PyObject *list_of_results(const several_call *call)
{
    PyObject *list = PyList_New((Py_ssize_t)call->count);
    for (int64_t i = 0; i < call->count && list; i++) {
        PyObject *item = py_result(call->is.self, call->items[i]);
        if (item)
            PyList_SET_ITEM(list, i, item);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* The parts: a count, or a list of their sizes. */
static bool get_parts(PyObject *parts, several_call *call)
{
    if (PyLong_Check(parts)) {
        if (!py_get_integer(parts, &call->count))
            return false;
        if (call->count < 0 || call->count > 1 << 16) {
            PyErr_SetString(PyExc_ValueError, "split() needs a count of parts from 1 to 65536");
            return false;
        }
    } else {
        PyObject *sizes = PySequence_Fast(parts, "split() needs a count of parts, or their sizes");
        if (!sizes)
            return false;
        call->count = PySequence_Fast_GET_SIZE(sizes);
        call->sizes = kb_alloc_array((size_t)call->count, sizeof *call->sizes);
        bool good = call->sizes;
        for (int64_t i = 0; i < call->count && good; i++)
            good = py_get_integer(PySequence_Fast_GET_ITEM(sizes, i), &call->sizes[i]);
        Py_DECREF(sizes);
        if (!good) {
            if (!PyErr_Occurred())
                PyErr_NoMemory();
            return false;
        }
    }
    call->items = kb_alloc_zeroed((size_t)call->count, sizeof *call->items);
    if (!call->items)
        PyErr_NoMemory();
    return call->items;
}

static PyObject *do_split(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "split", .required = 3, .names = {"x", "axis", "parts"}};
    PyObject *values[PY_MAX_PARAMETERS], *list = NULL;
    several_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_tl_check(self) || !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_operand(self, values[0], false, &call.is.inputs[0]) ||
        !get_axis(values[1], 0, &call.is.axis))
        return NULL;
    if (get_parts(values[2], &call) && py_tl_perform(self, split_now, &call))
        list = list_of_results(&call);
    free(call.items);
    free(call.sizes);
    return list;
}

static PyObject *do_concat(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "concat", .required = 1, .names = {"tensors", "axis"}};
    PyObject *values[PY_MAX_PARAMETERS], *result = NULL;
    several_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_tl_check(self) || !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !get_axis(values[1], 0, &call.is.axis))
        return NULL;
    PyObject *tensors = PySequence_Fast(values[0], "concat() needs a list of values");
    if (!tensors)
        return NULL;
    call.count = PySequence_Fast_GET_SIZE(tensors);
    call.items = kb_alloc_zeroed((size_t)call.count, sizeof *call.items);
    bool good = call.items;
    for (int64_t i = 0; i < call.count && good; i++) {
        py_operand operand;
        good = py_get_operand(self, PySequence_Fast_GET_ITEM(tensors, i), false, &operand);
        call.items[i] = good ? operand.tensor : (tl_tensor){0};
    }
    if (good)
        result = finish(&call.is, concat_now);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(tensors);
    free(call.items);
    return result;
}

/* ---- Queues ------------------------------------------------------------------------------ */

typedef struct queue_call {
    operation is; /* inputs: what is sent */
    const char *direction;
    bool sync, wait, any_form, answer, reinterpret;
    tl_dims shape;
    kb_dtype dtype;
    tl_ptr dst;
    tl_future future;
} queue_call;

static bool get_direction(PyObject *object, bool any, const char **direction)
{
    *direction = NULL;
    if (!object || object == Py_None) {
        if (!any)
            PyErr_SetString(PyExc_TypeError, "send() needs a direction: dir=\"E\"");
        return any;
    }
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a direction is a str, found %.200s",
                     Py_TYPE(object)->tp_name);
        return false;
    }
    *direction = PyUnicode_AsUTF8(object);
    return *direction;
}

static void send_now(tl_context *tl, void *arg)
{
    queue_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor x = py_use_operand(tl, is->at, &is->inputs[0]);
    call->future = tl_send_(tl, is->at, call->direction, x, call->sync);
    py_drop_operand(tl, is->at, &is->inputs[0], x);
}

/* What is at an address: without a shape, one row of `nbytes`. */
static bool get_source(py_tl *self, PyObject *const *values, py_operand *operand)
{
    PyObject *addr = values[2], *nbytes = values[3], *shape = values[4], *dtype = values[5];
    *operand = (py_operand){.is_made = true};
    if (!py_get_address(addr, &operand->address))
        return false;
    operand->dtype = KB_F16;
    if (dtype && !py_get_dtype(dtype, &operand->dtype))
        return false;
    int64_t bytes = 0;
    if (nbytes && nbytes != Py_None && !py_get_integer(nbytes, &bytes))
        return false;
    if (shape && shape != Py_None) {
        if (!py_get_dims(shape, &operand->shape))
            return false;
    } else {
        int64_t each = (int64_t)kb_dtype_bytes(operand->dtype);
        operand->shape = (tl_dims){.rank = 1, .dims = {bytes / each}};
    }
    operand->is_made = !py_value_at_address(self, (uint64_t)operand->address, &operand->tensor);
    return true;
}

static PyObject *send(PyObject *object, PyObject *const *values, bool sync)
{
    queue_call call = {.is = begin(object), .sync = sync};
    py_tl *self = call.is.self;
    bool has_value = values[1] && values[1] != Py_None;
    if (!py_tl_check(self) || !get_direction(values[0], false, &call.direction))
        return NULL;
    if (!has_value && !values[2]) {
        PyErr_SetString(PyExc_TypeError, "send() needs src, or src_addr with nbytes and shape");
        return NULL;
    }
    if (!(has_value ? py_get_operand(self, values[1], false, &call.is.inputs[0])
                    : get_source(self, values, &call.is.inputs[0])) ||
        !py_tl_perform(self, send_now, &call))
        return NULL;
    return py_future_new(self, call.future);
}

static PyObject *do_send(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "send",
        .required = 0,
        .names = {"dir", "src", "src_addr", "nbytes", "shape", "dtype", "space"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    return send(object, values, false);
}

static PyObject *do_send_sync(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "send_sync",
        .required = 0,
        .names = {"dir", "src", "src_addr", "nbytes", "shape", "dtype", "space"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    PyObject *future = send(object, values, true);
    Py_XDECREF(future);
    return future ? Py_NewRef(Py_None) : NULL;
}

static void recv_now(tl_context *tl, void *arg)
{
    queue_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    if (KB_LIKELY(!call->any_form)) {
        is->result =
            tl_recv_(tl, is->at, call->direction, call->shape,
                     (tl_recv_options){
                         .dtype = call->dtype, .dst = call->dst, .reinterpret = call->reinterpret},
                     call->wait);
        return;
    }
    is->result = tl_recv_any_form(tl, is->at, call->direction);
    if (call->dst == 0)
        return;
    tl_describe(tl, is->result, &call->shape, &call->dtype);
    tl_tensor value = is->result;
    (void)tl_store_(tl, is->at, call->dst, (tl_store_options){.value = value});
    is->result =
        tl_ref_(tl, is->at, call->dst, call->shape, (tl_load_options){.dtype = call->dtype});
    tl_free_(tl, is->at, value);
}

static PyObject *receive(PyObject *object, PyObject *const *values, bool wait)
{
    queue_call call = {.is = begin(object), .wait = wait, .dtype = KB_F16};
    py_tl *self = call.is.self;
    PyObject *shape = values[1], *dst = values[3];
    if (!py_tl_check(self) || !get_direction(values[0], true, &call.direction) ||
        (shape && shape != Py_None && !py_get_dims(shape, &call.shape)) ||
        (values[2] && !py_get_dtype(values[2], &call.dtype)) ||
        (dst && dst != Py_None && !py_get_address(dst, &call.dst)))
        return NULL;
    tl_ptr scratch = call.dst;
    bool to_value = py_names_value((uint64_t)scratch);
    if (to_value) /* what was there before is no longer reached by that address */
        call.dst = 0;
    call.any_form = call.shape.rank == 0;
    if (call.any_form && !wait) {
        PyErr_SetString(PyExc_ValueError, "recv_async() needs the shape of the message");
        return NULL;
    }
    if (!py_tl_perform(self, recv_now, &call))
        return NULL;
    if (to_value)
        return py_result_at(self, call.is.result, (uint64_t)scratch);
    if (call.dst == 0)
        return py_result(self, call.is.result);
    PyObject *space = values[4] && values[4] != Py_None ? values[4] : NULL;
    return py_handle_of_place(self, call.is.result, &call.shape, call.dtype, (uint64_t)call.dst,
                              space);
}

static PyObject *do_recv(ARGUMENTS)
{
    static py_parameters parameters = {.function = "recv",
                                       .required = 0,
                                       .names = {"dir", "shape", "dtype", "dst_addr", "dst_space"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    return receive(object, values, true);
}

static PyObject *do_recv_async(ARGUMENTS)
{
    static py_parameters parameters = {.function = "recv_async",
                                       .required = 0,
                                       .names = {"dir", "shape", "dtype", "dst_addr", "dst_space"}};
    PyObject *values[PY_MAX_PARAMETERS];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values))
        return NULL;
    return py_future_of_value((py_tl *)object, receive(object, values, false));
}

static void can_send_now(tl_context *tl, void *arg)
{
    queue_call *call = arg;
    call->answer = tl_can_send_(tl, call->is.at, call->direction);
}

static void can_recv_now(tl_context *tl, void *arg)
{
    queue_call *call = arg;
    call->answer = tl_can_recv_(tl, call->is.at, call->direction);
}

static PyObject *ask_direction(PyObject *object, PyObject *direction,
                               void (*ask)(tl_context *tl, void *arg))
{
    queue_call call = {.is = begin(object)};
    if (!py_tl_check(call.is.self) || !get_direction(direction, false, &call.direction) ||
        !py_tl_perform(call.is.self, ask, &call))
        return NULL;
    return PyBool_FromLong(call.answer);
}

static PyObject *do_can_send(PyObject *object, PyObject *direction)
{
    return ask_direction(object, direction, can_send_now);
}

static PyObject *do_can_recv(PyObject *object, PyObject *direction)
{
    return ask_direction(object, direction, can_recv_now);
}

/* ---- Control ----------------------------------------------------------------------------- */

typedef struct control_call {
    operation is;
    tl_future future;
    int64_t answer;
    double number, stand_in;
    int64_t *numbers;
} control_call;

/* Works also in a kernel that is being stopped: where it is does not change. */
static bool get_grid_axis(py_tl *self, PyObject *object, int *axis)
{
    if (!py_tl_check(self) || !get_axis(object, 0, axis))
        return false;
    if (*axis == 0 || *axis == 1)
        return true;
    PyErr_Format(PyExc_ValueError,
                 "invalid axis %d: expected 0 (PEs of a cube) or 1 (cubes of a SIP)", *axis);
    return false;
}

static PyObject *do_program_id(ARGUMENTS)
{
    static py_parameters parameters = {.function = "program_id", .required = 0, .names = {"axis"}};
    PyObject *values[PY_MAX_PARAMETERS];
    py_tl *self = (py_tl *)object;
    int axis;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !get_grid_axis(self, values[0], &axis))
        return NULL;
    kb_pe pe = tl_pe(self->tl);
    return PyLong_FromUnsignedLong(axis == 0 ? pe.pe : pe.cube);
}

static PyObject *do_num_programs(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "num_programs", .required = 0, .names = {"axis"}};
    PyObject *values[PY_MAX_PARAMETERS];
    py_tl *self = (py_tl *)object;
    int axis;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !get_grid_axis(self, values[0], &axis))
        return NULL;
    return PyLong_FromLongLong(tl_programs(self->tl, axis));
}

static void wait_for_value_now(tl_context *tl, void *arg)
{
    control_call *call = arg;
    tl_wait_tensor_(tl, call->is.at, call->is.inputs[0].tensor);
}

static void wait_for_future_now(tl_context *tl, void *arg)
{
    control_call *call = arg;
    tl_wait_future_(tl, call->is.at, call->future);
}

static PyObject *do_wait(PyObject *object, PyObject *what)
{
    control_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (Py_TYPE(what) != py_future_type) {
        PyErr_Format(PyExc_TypeError,
                     "wait() takes a future, found %.200s; tl.wait_value() waits for a value",
                     Py_TYPE(what)->tp_name);
        return NULL;
    }
    const py_future *future = (py_future *)what;
    call.future = future->future;
    if (!py_tl_check(self) ||
        (future->handle && !py_get_operand(self, future->handle, false, &call.is.inputs[0])) ||
        !py_tl_perform(self, future->handle ? wait_for_value_now : wait_for_future_now, &call))
        return NULL;
    return Py_NewRef(future->handle ? future->handle : Py_None);
}

static PyObject *do_wait_value(PyObject *object, PyObject *value)
{
    control_call call = {.is = begin(object)};
    py_tl *self = call.is.self;
    if (!py_tl_check(self) || !py_get_operand(self, value, false, &call.is.inputs[0]) ||
        !py_tl_perform(self, wait_for_value_now, &call))
        return NULL;
    return Py_NewRef(value);
}

static void item_now(tl_context *tl, void *arg)
{
    control_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor x = py_use_operand(tl, is->at, &is->inputs[0]);
    call->number =
        is->count > 0 ? tl_item_or_(tl, is->at, x, call->stand_in) : tl_item_(tl, is->at, x);
    py_drop_operand(tl, is->at, &is->inputs[0], x);
}

/* A number of an integer type is an int. */
static PyObject *item_of(control_call *call, PyObject *value)
{
    if (!py_tl_perform(call->is.self, item_now, call))
        return NULL;
    kb_dtype dtype = ((py_handle *)value)->dtype;
    bool whole = mem_is_integer(dtype);
    return whole ? PyLong_FromDouble(call->number) : PyFloat_FromDouble(call->number);
}

static PyObject *do_item(PyObject *object, PyObject *value)
{
    control_call call = {.is = begin(object)};
    if (!py_tl_check(call.is.self) ||
        !py_get_operand(call.is.self, value, false, &call.is.inputs[0]))
        return NULL;
    return item_of(&call, value);
}

static PyObject *do_item_or(ARGUMENTS)
{
    static py_parameters parameters = {
        .function = "item_or", .required = 2, .names = {"x", "stand_in"}};
    PyObject *values[PY_MAX_PARAMETERS];
    control_call call = {.is = begin(object)};
    call.is.count = 1;
    if (!py_tl_check(call.is.self) ||
        !py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_operand(call.is.self, values[0], false, &call.is.inputs[0]))
        return NULL;
    call.stand_in = PyFloat_AsDouble(values[1]);
    if (call.stand_in == -1 && PyErr_Occurred())
        return NULL;
    return item_of(&call, values[0]);
}

static void items_now(tl_context *tl, void *arg)
{
    control_call *call = arg;
    operation *is = &call->is;
    free_released(tl, is);
    tl_tensor x = py_use_operand(tl, is->at, &is->inputs[0]);
    tl_items_(tl, is->at, x, call->numbers, call->answer);
    py_drop_operand(tl, is->at, &is->inputs[0], x);
}

static PyObject *do_items(PyObject *object, PyObject *value)
{
    control_call call = {.is = begin(object), .answer = 1};
    if (!py_tl_check(call.is.self) ||
        !py_get_operand(call.is.self, value, false, &call.is.inputs[0]))
        return NULL;
    const tl_dims *shape = &((py_handle *)value)->shape;
    for (int i = 0; i < shape->rank; i++)
        call.answer *= shape->dims[i];
    call.numbers = kb_alloc_array((size_t)call.answer, sizeof *call.numbers);
    if (!call.numbers)
        return PyErr_NoMemory();
    PyObject *list = NULL;
    if (py_tl_perform(call.is.self, items_now, &call))
        list = PyList_New((Py_ssize_t)call.answer);
    for (int64_t i = 0; i < call.answer && list; i++) {
        PyObject *number = PyLong_FromLongLong(call.numbers[i]);
        if (number)
            PyList_SET_ITEM(list, i, number);
        else
            Py_CLEAR(list);
    }
    free(call.numbers);
    return list;
}

static PyObject *do_now(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_tl *self = (py_tl *)object;
    return py_tl_check(self) ? PyFloat_FromDouble(kb_to_ns(tl_now_(self->tl))) : NULL;
}

static void free_now(tl_context *tl, void *arg)
{
    const operation *is = arg;
    tl_free_(tl, is->at, is->inputs[0].tensor);
}

static PyObject *do_free(PyObject *object, PyObject *value)
{
    py_tl *self = (py_tl *)object;
    py_operand operand;
    if (!py_tl_check(self) || !py_get_operand(self, value, false, &operand))
        return NULL;
    py_handle *handle = (py_handle *)value;
    if (handle->owner != self) {
        PyErr_SetString(py_kernbench_error, "free() takes a value of this kernel");
        return NULL;
    }
    operation is = begin(object);
    is.inputs[0] = operand;
    if (!py_tl_perform(self, free_now, &is))
        return NULL;
    handle->is_freed = true;
    Py_RETURN_NONE;
}

static PyObject *do_cdiv(ARGUMENTS)
{
    (void)object;
    static py_parameters parameters = {.function = "cdiv", .required = 2, .names = {"a", "b"}};
    PyObject *values[PY_MAX_PARAMETERS];
    int64_t a, b;
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) ||
        !py_get_integer(values[0], &a) || !py_get_integer(values[1], &b))
        return NULL;
    if (b < 1) {
        PyErr_Format(PyExc_ValueError, "cdiv() divides by 1 or more, found %lld", (long long)b);
        return NULL;
    }
    return PyLong_FromLongLong(tl_cdiv(a, b));
}

static bool get_part(PyObject *const *values, int64_t *numbers)
{
    for (int i = 0; i < 3; i++)
        if (!py_get_integer(values[i], &numbers[i]))
            return false;
    if (numbers[1] >= 1)
        return true;
    PyErr_Format(PyExc_ValueError, "expected at least 1 part, found %lld", (long long)numbers[1]);
    return false;
}

static PyObject *do_part_begin(ARGUMENTS)
{
    (void)object;
    static py_parameters parameters = {
        .function = "part_begin", .required = 3, .names = {"n", "parts", "index"}};
    PyObject *values[PY_MAX_PARAMETERS];
    int64_t of[3];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) || !get_part(values, of))
        return NULL;
    return PyLong_FromLongLong(tl_part_begin(of[0], of[1], of[2]));
}

static PyObject *do_part_size(ARGUMENTS)
{
    (void)object;
    static py_parameters parameters = {
        .function = "part_size", .required = 3, .names = {"n", "parts", "index"}};
    PyObject *values[PY_MAX_PARAMETERS];
    int64_t of[3];
    if (!py_get_arguments(&parameters, args, nargs, kwnames, values) || !get_part(values, of))
        return NULL;
    return PyLong_FromLongLong(tl_part_size(of[0], of[1], of[2]));
}

/* ---- The type ---------------------------------------------------------------------------- */

static PyObject *get_rank(PyObject *object, void *unused)
{
    (void)unused;
    py_tl *self = (py_tl *)object;
    if (!py_tl_check(self))
        return NULL;
    if (!self->launch->rank_count) {
        PyErr_SetString(PyExc_AttributeError, "tl.rank is there in mock runs alone");
        return NULL;
    }
    kb_pe pe = tl_pe(self->tl);
    return PyLong_FromUnsignedLong(pe.cube * self->launch->mock_pes_per_cube + pe.pe);
}

static PyObject *get_world_size(PyObject *object, void *unused)
{
    (void)unused;
    py_tl *self = (py_tl *)object;
    if (!py_tl_check(self))
        return NULL;
    if (self->launch->rank_count)
        return Py_NewRef(self->launch->rank_count);
    PyErr_SetString(PyExc_AttributeError, "tl.world_size is there in mock runs alone");
    return NULL;
}

static void tl_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

#define METHOD(name, signature, doc)                                                               \
    PY_FAST_METHOD(#name, do_##name, #name signature "\n--\n\n" doc)
#define STATIC(name, signature, doc)                                                               \
    {                                                                                              \
#name, (PyCFunction)(void (*)(void))do_##name,                                             \
            METH_FASTCALL | METH_KEYWORDS | METH_STATIC, PyDoc_STR(#name signature "\n--\n\n" doc) \
    }
#define ONE(name, signature, doc)                                                                  \
    {                                                                                              \
#name, do_##name, METH_O, PyDoc_STR(#name signature "\n--\n\n" doc)                        \
    }

static PyMethodDef methods[] = {
    METHOD(program_id, "($self, axis=0)",
           "Axis 0: the PE in its cube; axis 1: the cube in its SIP."),
    METHOD(num_programs, "($self, axis=0)",
           "How many PEs of a cube (axis 0), or cubes (axis 1), run the kernel."),
    METHOD(load,
           "($self, ptr, shape, dtype='f16', strides=None, mask=None, other=0, reinterpret=False)",
           "Reads memory into the TCM. Strides are in elements."),
    METHOD(store, "($self, ptr, value, strides=None, mask=None, reinterpret=False)",
           "Writes a value to memory. Returns a future; later loads see what was stored."),
    METHOD(ref, "($self, ptr, shape, dtype='f16', strides=None, reinterpret=False)",
           "A place in memory as an operand."),
    METHOD(composite, "($self, op='gemm', a=None, b=None, out_ptr=None, dtype=None)",
           "A whole matrix product, which runs while the kernel goes on. Returns a future."),
    METHOD(dot, "($self, a, b, acc=None, out_f32=False)",
           "The product of two matrices; acc is added, and used up."),
    METHOD(add, "($self, a, b)", "a + b"),
    METHOD(sub, "($self, a, b)", "a - b"),
    METHOD(mul, "($self, a, b)", "a * b"),
    METHOD(div, "($self, a, b)", "a / b; of integers towards 0, and 0 for x / 0"),
    METHOD(maximum, "($self, a, b)", "The larger of two, element by element."),
    METHOD(minimum, "($self, a, b)", "The smaller of two, element by element."),
    METHOD(lt, "($self, a, b)", "a < b, as i8: 1 or 0."),
    METHOD(le, "($self, a, b)", "a <= b, as i8: 1 or 0."),
    METHOD(gt, "($self, a, b)", "a > b, as i8: 1 or 0."),
    METHOD(ge, "($self, a, b)", "a >= b, as i8: 1 or 0."),
    METHOD(eq, "($self, a, b)", "a == b, as i8: 1 or 0."),
    METHOD(ne, "($self, a, b)", "a != b, as i8: 1 or 0."),
    METHOD(fma, "($self, a, b, c)", "a * b + c"),
    METHOD(clamp, "($self, x, min, max)", "x between min and max."),
    METHOD(where, "($self, condition, a, b)", "a where the condition is not 0, else b."),
    METHOD(exp, "($self, x)", "The exponential function."),
    METHOD(log, "($self, x)", "The natural logarithm."),
    METHOD(sqrt, "($self, x)", "The square root."),
    METHOD(rsqrt, "($self, x)", "1 / sqrt(x)"),
    METHOD(abs, "($self, x)", "The absolute value."),
    METHOD(neg, "($self, x)", "-x"),
    METHOD(sigmoid, "($self, x)", "1 / (1 + exp(-x))"),
    METHOD(tanh, "($self, x)", "The hyperbolic tangent."),
    METHOD(cos, "($self, x)", "The cosine."),
    METHOD(sin, "($self, x)", "The sine."),
    METHOD(gelu, "($self, x)", "x * (1 + erf(x / sqrt(2))) / 2"),
    METHOD(silu, "($self, x)", "x * sigmoid(x)"),
    METHOD(sum, "($self, x, axis=-1)", "The sum along an axis, which stays with length 1."),
    METHOD(max, "($self, x, axis=-1)", "The largest along an axis, which stays with length 1."),
    METHOD(min, "($self, x, axis=-1)", "The smallest along an axis, which stays with length 1."),
    METHOD(argmax, "($self, x, axis=-1)", "The index of the largest along an axis, as i32."),
    METHOD(argmin, "($self, x, axis=-1)", "The index of the smallest along an axis, as i32."),
    METHOD(softmax, "($self, x, axis=-1)", "exp(x - max) / sum(exp(x - max)) along an axis."),
    METHOD(cumsum, "($self, x, axis=-1)", "Running sums along an axis."),
    METHOD(topk, "($self, x, k, axis=-1)", "The k largest along an axis, and their indices."),
    METHOD(cast, "($self, x, dtype)", "The same numbers in another data type."),
    METHOD(transpose, "($self, x)", "Swaps the last two axes."),
    METHOD(reshape, "($self, x, shape)", "The same elements in another shape; takes no time."),
    METHOD(slice, "($self, x, axis, begin, end)", "The elements from begin to before end."),
    METHOD(split, "($self, x, axis, parts)",
           "A list of slices: so many equal parts, or parts of these sizes."),
    METHOD(concat, "($self, tensors, axis=0)", "Values one behind the other along an axis."),
    METHOD(gather, "($self, x, index, axis)", "As torch.gather."),
    METHOD(scatter, "($self, x, index, axis, src)", "As torch.scatter."),
    METHOD(scatter_add, "($self, x, index, axis, src)", "As torch.scatter_add."),
    METHOD(full, "($self, shape, value, dtype='f16')", "A value of one number."),
    METHOD(zeros, "($self, shape, dtype='f16')", "A value of zeros."),
    METHOD(arange, "($self, begin, end)", "begin, begin + 1, .., end - 1 as i32."),
    METHOD(
        send,
        "($self, dir, src=None, src_addr=None, nbytes=None, shape=None, dtype='f16', space='tcm')",
        "Sends a value, or what is at an address, to the neighbour in a direction."),
    METHOD(
        send_sync,
        "($self, dir, src=None, src_addr=None, nbytes=None, shape=None, dtype='f16', space='tcm')",
        "The same, and waits until it has arrived."),
    METHOD(recv, "($self, dir=None, shape=(), dtype='f16', dst_addr=None, dst_space=None)",
           "Receives the next value from a direction; None: from any. shape (): the message's."),
    METHOD(recv_async, "($self, dir=None, shape=(), dtype='f16', dst_addr=None, dst_space=None)",
           "The same without waiting. Returns a future, which tl.wait() turns into the value."),
    ONE(can_send, "($self, dir, /)", "Whether the PE can send in the direction."),
    ONE(can_recv, "($self, dir, /)", "Whether the PE can receive from the direction."),
    ONE(wait, "($self, future, /)", "Waits for a future; returns the value of a receive."),
    ONE(wait_value, "($self, value, /)", "Waits until a value is there."),
    ONE(item, "($self, x, /)", "The number in a value of one element: waits for it."),
    METHOD(item_or, "($self, x, stand_in)",
           "The same; in a run without data the stand-in, after the same time."),
    ONE(items, "($self, x, /)", "All numbers of a value of integers as a list: waits for them."),
    PY_PLAIN_METHOD("now", do_now, "now($self)\n--\n\nThe simulated time in ns."),
    ONE(free, "($self, x, /)", "Gives back the value's TCM when all that uses it is done."),
    STATIC(cdiv, "(a, b)", "How often b goes into a, rounded up."),
    STATIC(part_begin, "(n, parts, index)",
           "Where part `index` begins when n rows or columns are split into so many parts."),
    STATIC(part_size, "(n, parts, index)", "And how many it has."),
    {0},
};

static PyGetSetDef members[] = {
    {"rank", get_rank, NULL, PyDoc_STR("In mock runs: the rank."), NULL},
    {"world_size", get_world_size, NULL, PyDoc_STR("In mock runs: how many ranks there are."),
     NULL},
    {0},
};

bool py_tl_init_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_doc,
         (void *)(uintptr_t) "The language of kernels: each kernel is given one as `tl`."},
        {Py_tp_dealloc, tl_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, members},
        {0, NULL},
    };
    static PyType_Spec spec = {.name = "kernbench.TL",
                               .basicsize = sizeof(py_tl),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
    py_tl_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return py_tl_type && PyModule_AddObjectRef(module, "TL", (PyObject *)py_tl_type) == 0;
}
