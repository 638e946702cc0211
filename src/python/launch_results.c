/*
 * launch_results.c: results of launches as dicts. Times are in nanoseconds; those that are exact to
 * the femtosecond end in _fs.
 */
#include "launch_results.h"

#include <stdbool.h>

static bool set_time(PyObject *dict, const char *key, kb_time_sum time)
{
    PyObject *ns = PyFloat_FromDouble(kb_to_ns(time));
    bool good = ns && PyDict_SetItemString(dict, key, ns) == 0;
    Py_XDECREF(ns);
    return good;
}

static bool set_item(PyObject *dict, const char *key, PyObject *item)
{
    bool good = item && PyDict_SetItemString(dict, key, item) == 0;
    Py_XDECREF(item);
    return good;
}

static PyObject *dict_of_times(const kb_time_sum *times, int count, const char *(*name)(int))
{
    PyObject *dict = PyDict_New();
    for (int i = 0; i < count && dict; i++)
        if (!set_time(dict, name(i), times[i]))
            Py_CLEAR(dict);
    return dict;
}

static const char *name_of_unit(int unit)
{
    return kb_unit_name((kb_unit)unit);
}

static const char *name_of_cause(int cause)
{
    return kb_cause_name((kb_cause)cause);
}

PyObject *py_dict_of_causes(const kb_time_sum causes[KB_CAUSES])
{
    return dict_of_times(causes, KB_CAUSES, name_of_cause);
}

static PyObject *dict_of_result(const kb_launch_result *result)
{
    PyObject *dict = Py_BuildValue("{ss sI sI sL sL}", "name", result->name, "sip", result->sip,
                                   "pes", result->pes, "issued_fs", (long long)result->issued,
                                   "ended_fs", (long long)result->ended);
    bool good = dict && set_time(dict, "issued_ns", result->issued) &&
                set_time(dict, "ended_ns", result->ended) &&
                set_time(dict, "total_ns", (kb_time_sum)result->ended - result->issued) &&
                set_time(dict, "pe_exec_ns", result->pe_exec) &&
                set_time(dict, "held_ns", result->held) &&
                set_time(dict, "network_ns", result->network) &&
                set_item(dict, "busy", dict_of_times(result->busy, KB_UNITS, name_of_unit)) &&
                set_item(dict, "causes", py_dict_of_causes(result->causes));
    if (!good)
        Py_CLEAR(dict);
    return dict;
}

PyObject *py_list_of_results(const kb_launch_result *results, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && list; i++) {
        PyObject *dict = dict_of_result(&results[i]);
        if (dict)
            PyList_SET_ITEM(list, (Py_ssize_t)i, dict);
        else
            Py_CLEAR(list);
    }
    return list;
}
