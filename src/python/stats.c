/*
 * stats.c: what took simulated time in a context.
 */
#include "context.h"

#include <string.h>

#include "errors.h"
#include "launch_results.h"
#include "rt/rt.h"

static bool find_unit(const char *name, kb_unit *unit)
{
    for (int i = 0; i < KB_UNITS; i++) {
        *unit = (kb_unit)i;
        if (strcmp(kb_unit_name(*unit), name) == 0)
            return true;
    }
    PyErr_Format(PyExc_ValueError, "unknown unit '%s': expected a name such as 'pe_gemm'", name);
    return false;
}

static PyObject *dict_of_total(const kb_op_total *total)
{
    return Py_BuildValue("{sK sd sK sK}", "count", (unsigned long long)total->count, "busy_ns",
                         kb_to_ns(total->busy), "bytes", (unsigned long long)total->bytes, "flops",
                         (unsigned long long)total->flops);
}

static PyObject *op_total(PyObject *object, PyObject *args)
{
    py_context *self = (py_context *)object;
    const char *unit_name, *name = NULL;
    kb_unit unit;
    if (!PyArg_ParseTuple(args, "s|z:op_total", &unit_name, &name) || !py_context_check(self) ||
        !find_unit(unit_name, &unit))
        return NULL;
    kb_op_total total = kb_context_op_total(self->kb, unit, name);
    return dict_of_total(&total);
}

static PyObject *unit_totals(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    PyObject *dict = py_context_check(self) ? PyDict_New() : NULL;
    for (int i = 0; i < KB_UNITS && dict; i++) {
        kb_op_total total = kb_context_op_total(self->kb, (kb_unit)i, NULL);
        PyObject *item = dict_of_total(&total);
        if (!item || PyDict_SetItemString(dict, kb_unit_name((kb_unit)i), item) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(item);
    }
    return dict;
}

static PyObject *kernel_time(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    return py_context_check(self) ? PyFloat_FromDouble(kb_to_ns(kb_context_kernel_time(self->kb)))
                                  : NULL;
}

static PyObject *results(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    if (!py_context_check(self))
        return NULL;
    rt_stats stats = rt_get_stats(self->kb);
    return py_list_of_results(stats.launches, stats.launch_count);
}

/* Where the time of PEs went, in all launches that are done. */
static PyObject *breakdown(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_context *self = (py_context *)object;
    if (!py_context_check(self))
        return NULL;
    rt_stats stats = rt_get_stats(self->kb);
    kb_time_sum causes[KB_CAUSES] = {0};
    for (size_t i = 0; i < stats.launch_count; i++)
        for (int cause = 0; cause < KB_CAUSES; cause++)
            causes[cause] += stats.launches[i].causes[cause];
    return py_dict_of_causes(causes);
}

PyMethodDef py_stats_methods[] = {
    {"op_total", op_total, METH_VARARGS,
     PyDoc_STR("op_total($self, unit, name=None, /)\n--\n\n"
               "All operations of a unit so far: a dict of count, busy_ns, bytes, flops.")},
    PY_PLAIN_METHOD("unit_totals", unit_totals,
                    "unit_totals($self)\n--\n\nThe same for each unit: a dict of dicts."),
    PY_PLAIN_METHOD("kernel_time_ns", kernel_time,
                    "kernel_time_ns($self)\n--\n\nThe time in which at least one kernel ran."),
    PY_PLAIN_METHOD("results", results,
                    "results($self)\n--\n\nA dict for each launch that is done, and device."),
    PY_PLAIN_METHOD("breakdown", breakdown,
                    "breakdown($self)\n--\n\nNanoseconds of PEs by what they went to."),
    {0},
};
