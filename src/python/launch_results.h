/*
 * launch_results.h: results of launches as dicts.
 */
#ifndef KB_PYTHON_RESULTS_H
#define KB_PYTHON_RESULTS_H

#include "interpreter.h"

#include <kernbench/kernbench.h>

/* A list with a dict for each. NULL with an exception set. */
PyObject *py_list_of_results(const kb_launch_result *results, size_t count);

/* Nanoseconds by the name of the cause. */
PyObject *py_dict_of_causes(const kb_time_sum causes[KB_CAUSES]);

#endif
