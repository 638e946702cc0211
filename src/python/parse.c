/*
 * parse.c: YAML as dicts, lists and plain values, by the rules of YAML 1.1 that PyYAML's
 * safe_load() follows: what is quoted is a str; true, yes and on are True; 0x1F, 0o17 and 1_000 are
 * integers.
 */
#include "parse.h"

#include <yaml.h>

#include <stdlib.h>
#include <string.h>

#include "errors.h"

static PyObject *build(yaml_document_t *document, const yaml_node_t *node, int depth);

enum { MAX_DEPTH = 200 };

/* ---- Plain scalars ----------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static PyObject *constant_of(const char *text)
{
    static const char *const none[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    if (is_one_of(text, none))
        return Py_None;
    if (is_one_of(text, yes))
        return Py_True;
    return is_one_of(text, no) ? Py_False : NULL;
}

/* Digits with underscores between, without these; false if there is anything else. */
static bool copy_digits(const char *text, const char *allowed, char *copy, size_t room)
{
    size_t length = 0;
    for (; *text != '\0' && length + 1 < room; text++) {
        if (*text == '_')
            continue;
        if (!strchr(allowed, *text))
            return false;
        copy[length++] = *text;
    }
    copy[length] = '\0';
    return length > 0 && *text == '\0';
}

/* NULL without an exception if it is no integer. */
static PyObject *integer_of(const char *text)
{
    char digits[256];
    bool negative = text[0] == '-';
    const char *at = text + (text[0] == '-' || text[0] == '+');
    int base = 10;
    const char *allowed = "0123456789";
    if (strncmp(at, "0x", 2) == 0) {
        base = 16, at += 2, allowed = "0123456789abcdefABCDEF";
    } else if (strncmp(at, "0b", 2) == 0) {
        base = 2, at += 2, allowed = "01";
    } else if (at[0] == '0' && at[1] != '\0') {
        base = 8, at += 1, allowed = "01234567";
    }
    if (!copy_digits(at, allowed, digits, sizeof digits))
        return NULL;
    PyObject *number = PyLong_FromString(digits, NULL, base);
    PyObject *result = number && negative ? PyNumber_Negative(number) : Py_XNewRef(number);
    Py_XDECREF(number);
    return result;
}

/* As YAML 1.1 has it: with a point, and with an exponent that has a sign. */
static bool is_real(const char *text)
{
    const char *at = text + (*text == '-' || *text == '+');
    size_t digits = strspn(at, "0123456789_");
    if (at[digits] != '.')
        return false;
    at += digits + 1;
    size_t more = strspn(at, "0123456789_");
    if (digits + more == 0)
        return false;
    at += more;
    if (*at == '\0')
        return true;
    if ((*at != 'e' && *at != 'E') || (at[1] != '+' && at[1] != '-'))
        return false;
    size_t exponent = strspn(at + 2, "0123456789");
    return exponent > 0 && at[2 + exponent] == '\0';
}

static PyObject *real_of(const char *text)
{
    static const char *const infinite[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const nan[] = {".nan", ".NaN", ".NAN", NULL};
    const char *unsigned_text = text + (*text == '-' || *text == '+');
    if (is_one_of(unsigned_text, infinite))
        return PyFloat_FromDouble(*text == '-' ? -Py_HUGE_VAL : Py_HUGE_VAL);
    if (is_one_of(text, nan))
        return PyFloat_FromDouble(Py_NAN);
    char digits[256];
    if (!is_real(text) || !copy_digits(text, "0123456789.eE+-", digits, sizeof digits))
        return NULL;
    double number = PyOS_string_to_double(digits, NULL, NULL);
    return number == -1 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
}

static PyObject *value_of(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    size_t length = node->data.scalar.length;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && strlen(text) == length) {
        PyObject *constant = constant_of(text);
        PyObject *value = constant ? Py_NewRef(constant) : integer_of(text);
        if (!value && !PyErr_Occurred())
            value = real_of(text);
        if (value || PyErr_Occurred())
            return value;
    }
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, NULL);
}

/* ---- Collections ------------------------------------------------------------------------- */

static PyObject *list_of(yaml_document_t *document, const yaml_node_t *node, int depth)
{
    PyObject *list = PyList_New(0);
    for (const yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top && list; item++) {
        PyObject *value = build(document, yaml_document_get_node(document, *item), depth);
        if (!value || PyList_Append(list, value) != 0)
            Py_CLEAR(list);
        Py_XDECREF(value);
    }
    return list;
}

/* "<<": what a mapping does not say itself it has from another, or from several. */
static bool merge(PyObject *dict, PyObject *value)
{
    if (PyDict_Check(value))
        return PyDict_Merge(dict, value, 0) == 0;
    bool good = PyList_Check(value);
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(value); i++)
        good = PyDict_Check(PyList_GET_ITEM(value, i)) &&
               PyDict_Merge(dict, PyList_GET_ITEM(value, i), 0) == 0;
    if (!good && !PyErr_Occurred())
        PyErr_SetString(py_input_error, "YAML: '<<' merges mappings alone");
    return good;
}

static bool is_merge_key(const yaml_node_t *key)
{
    return key->type == YAML_SCALAR_NODE && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)key->data.scalar.value, "<<") == 0;
}

static PyObject *dict_of(yaml_document_t *document, const yaml_node_t *node, int depth)
{
    PyObject *dict = PyDict_New(), *merged = PyList_New(0);
    bool good = dict && merged;
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top && good; pair++) {
        const yaml_node_t *name = yaml_document_get_node(document, pair->key);
        PyObject *key = build(document, name, depth);
        PyObject *value =
            key ? build(document, yaml_document_get_node(document, pair->value), depth) : NULL;
        good = value && (is_merge_key(name) ? PyList_Append(merged, value) == 0
                                            : PyDict_SetItem(dict, key, value) == 0);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(merged); i++)
        good = merge(dict, PyList_GET_ITEM(merged, i));
    Py_XDECREF(merged);
    if (!good)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *build(yaml_document_t *document, const yaml_node_t *node, int depth)
{
    if (depth >= MAX_DEPTH) {
        PyErr_SetString(py_input_error, "YAML: nested too deeply");
        return NULL;
    }
    switch (node->type) {
    case YAML_SCALAR_NODE:
        return value_of(node);
    case YAML_SEQUENCE_NODE:
        return list_of(document, node, depth + 1);
    case YAML_MAPPING_NODE:
        return dict_of(document, node, depth + 1);
    case YAML_NO_NODE:
        break;
    }
    Py_RETURN_NONE;
}

/* ---- Documents --------------------------------------------------------------------------- */

PyObject *py_parse_yaml(const char *text, size_t length)
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (!yaml_parser_initialize(&parser))
        return PyErr_NoMemory();
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    PyObject *result = NULL;
    if (yaml_parser_load(&parser, &document)) {
        const yaml_node_t *root = yaml_document_get_root_node(&document);
        result = root ? build(&document, root, 0) : Py_NewRef(Py_None);
        yaml_document_delete(&document);
    } else {
        PyErr_Format(py_input_error, "YAML: line %zu: %s", parser.problem_mark.line + 1,
                     parser.problem ? parser.problem : "out of memory");
    }
    yaml_parser_delete(&parser);
    return result;
}
