/*
 * parse.h: YAML for programs in Python, without PyYAML.
 */
#ifndef KB_PYTHON_PARSE_H
#define KB_PYTHON_PARSE_H

#include "interpreter.h"

/* The document as dicts, lists, str, int, float, bool and None. NULL with an exception set. */
PyObject *py_parse_yaml(const char *text, size_t length);

#endif
