/*
 * output.h: what C prints on stdout and stderr goes to sys.stdout and sys.stderr.
 */
#ifndef KB_PYTHON_OUTPUT_H
#define KB_PYTHON_OUTPUT_H

#include "interpreter.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct py_output {
    FILE *out, *err;                 /* that stand in for the program's */
    FILE *program_out, *program_err; /* NULL: the output is redirected already */
    PyObject *raised;                /* by sys.stdout or sys.stderr: the first; NULL: nothing */
} py_output;

/* From here on, until the end, stdout and stderr are Python's. False with an exception set. */
bool py_output_begin(py_output *output);

/* False with an exception set if something could not be written. */
bool py_output_end(py_output *output);

#endif
