/*
 * save.c: runs that a Python program made, kept in a store as `run --save` keeps them.
 */
#include "save.h"

#include <jansson.h>
#include <stdlib.h>

#include "errors.h"
#include "store/store.h"

static kb_error *read_id(void *self, const store_row *row)
{
    PyObject **id = self;
    *id = PyUnicode_FromString(row->id);
    return NULL;
}

/* The id of the new run. NULL with an exception set. */
static PyObject *add_to_store(const char *path, const store_run *run)
{
    store *s = NULL;
    int64_t number;
    PyObject *id = NULL;
    kb_error *err = store_open(path, STORE_WRITE, &s);
    if (!err)
        err = store_add(s, run, &number);
    if (!err)
        err = store_each_run(s, &(store_filter){.run = number}, read_id, &id);
    store_close(s);
    if (py_succeeded(err))
        return id;
    Py_XDECREF(id);
    return NULL;
}

/* The texts of a sequence, to be freed; they are those of the tuple. NULL with an exception set. */
static const char **get_texts(PyObject *tuple)
{
    size_t count = (size_t)PyTuple_GET_SIZE(tuple);
    const char **texts = kb_alloc_array(count, sizeof *texts);
    if (!texts)
        PyErr_NoMemory();
    for (size_t i = 0; texts && i < count; i++) {
        texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i));
        if (!texts[i]) {
            free(texts);
            return NULL;
        }
    }
    return texts;
}

static PyObject *save_run(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static const char *const names[] = {"path",    "document",  "bench",        "bench_file",
                                        "command", "directory", "machine_name", "machine_hash",
                                        "machine", "settings",  "wall_s",       NULL};
    const char *path, *document;
    PyObject *settings;
    store_run run = {.status = STORE_OK};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss$szzzzzzO!d:save_run", PY_NAMES(names), &path,
                                     &document, &run.bench, &run.bench_file, &run.command,
                                     &run.directory, &run.machine_name, &run.machine_hash,
                                     &run.machine_yaml, &PyTuple_Type, &settings, &run.wall_s))
        return NULL;
    json_error_t error;
    json_t *root = json_loads(document, 0, &error);
    if (!root) {
        PyErr_Format(PyExc_ValueError, "save_run: the document is no JSON: %s", error.text);
        return NULL;
    }
    const char **texts = get_texts(settings);
    run.settings = (store_strings){texts, (size_t)PyTuple_GET_SIZE(settings)};
    run.document = root;
    PyObject *id = texts ? add_to_store(path, &run) : NULL;
    free(texts);
    json_decref(root);
    return id;
}

bool py_save_init(PyObject *module)
{
    static PyMethodDef functions[] = {
        PY_METHOD("save_run", save_run,
                  "save_run(path, document, *, bench, bench_file, command, directory, "
                  "machine_name, machine_hash, machine, settings, wall_s)\n--\n\n"
                  "Adds a run that ended well to a store; returns its id. document: JSON text as "
                  "of run --json; machine: its complete file."),
        {0},
    };
    return PyModule_AddFunctions(module, functions) == 0;
}
