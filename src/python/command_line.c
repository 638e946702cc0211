/*
 * command_line.c: the command line inside Python: all commands of the program, and benches in
 * Python as a bench of `run`, which makes the context and prints what came of it.
 */
#include "command_line.h"

#include <stdlib.h>
#include <string.h>

#include "c_kernels.h"
#include "cli/cli.h"
#include "context.h"
#include "errors.h"
#include "output.h"
#include "thread_states.h"

/* Of the kernels and workers of a bench in Python: as those of contexts. */
enum { STACK_BYTES = 8 << 20 };

/* A bench in Python while it runs. The context stays until the engine's is gone: kernels that are
 * unwound with that are still its own. */
typedef struct python_bench {
    PyObject *function;
    PyObject *context;
    PyObject *exit; /* KeyboardInterrupt or SystemExit: for the caller; NULL: none */
} python_bench;

static python_bench *running;

/* The exit status of what a bench raises. */
static kb_code code_of(PyObject *exception)
{
    if (PyErr_GivenExceptionMatches(exception, PyExc_AssertionError))
        return KB_ERR_CHECK;
    if (PyErr_GivenExceptionMatches(exception, py_deadlock))
        return KB_ERR_DEADLOCK;
    if (PyErr_GivenExceptionMatches(exception, py_input_error))
        return KB_ERR_INPUT;
    if (PyErr_GivenExceptionMatches(exception, PyExc_MemoryError))
        return KB_ERR_HOST;
    return KB_ERR_FAULT;
}

static kb_error *report(PyObject *exception)
{
    bool exits = !PyErr_GivenExceptionMatches(exception, PyExc_Exception);
    kb_error *err = py_error_of(exits ? KB_ERR_FAULT : code_of(exception), exception);
    if (exits) {
        running->exit = exception;
        return err;
    }
    PyErr_Display((PyObject *)Py_TYPE(exception), exception, PyException_GetTraceback(exception));
    Py_DECREF(exception);
    return err;
}

/* A bench in Python is right if it raises nothing: it compares results by itself. */
static kb_error *run_bench(kb_bench *bench)
{
    py_callback_begin();
    running->context = py_context_borrow(kb_bench_context(bench), STACK_BYTES);
    PyObject *result =
        running->context ? PyObject_CallOneArg(running->function, running->context) : NULL;
    PyObject *exception = result ? NULL : py_take_exception();
    kb_error *err = exception ? report(exception) : NULL;
    Py_XDECREF(result);
    if (running->context)
        py_context_give_back(running->context);
    if (!err && kb_bench_verifies(bench))
        kb_bench_confirm(bench);
    return err;
}

/* The words as C has them, behind the name of the program; to be freed. NULL with an exception set.
 */
static char **get_words(PyObject *tuple, int *count)
{
    Py_ssize_t given = PyTuple_GET_SIZE(tuple);
    char **words = kb_alloc_zeroed((size_t)given + 2, sizeof *words);
    if (!words) {
        PyErr_NoMemory();
        return NULL;
    }
    static char program[] = "kernbench";
    words[0] = program;
    for (Py_ssize_t i = 0; i < given; i++) {
        PyObject *word = PyTuple_GET_ITEM(tuple, i);
        const char *text = PyUnicode_Check(word) ? PyUnicode_AsUTF8(word) : NULL;
        if (!text) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError, "an argument is a str, found %R", word);
            free(words);
            return NULL;
        }
        words[i + 1] = (char *)(uintptr_t)text;
    }
    *count = (int)given + 1;
    return words;
}

static const char *name_of_bench(char **words, int count)
{
    const char *name = "bench";
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(words[i], "--bench") == 0)
            name = words[i + 1];
    for (int i = 1; i < count; i++)
        if (strncmp(words[i], "--bench=", 8) == 0)
            name = words[i] + 8;
    return name;
}

static kb_code call_engine(char **words, int count, bool has_bench)
{
    kb_bench_spec spec = {
        .name = name_of_bench(words, count), .summary = "a bench in Python", .run = run_bench};
    py_stay stay;
    py_tl *before = py_set_running_tl(NULL);
    py_stay_begin(&stay);
    kb_code code = cli_dispatch_bench(count, words, has_bench ? &spec : NULL, STACK_BYTES);
    fflush(stdout);
    fflush(stderr);
    py_stay_end(&stay);
    (void)py_set_running_tl(before);
    return code;
}

static PyObject *run_words(PyObject *tuple, PyObject *function)
{
    int count;
    py_output output;
    python_bench bench = {.function = function}, *around = running;
    char **words = get_words(tuple, &count);
    if (!words)
        return NULL;
    if (!py_export_calls() || !py_output_begin(&output)) {
        free(words);
        return NULL;
    }
    running = &bench;
    kb_code code = call_engine(words, count, function);
    running = around;
    free(words);
    Py_XDECREF(bench.context);
    bool written = py_output_end(&output);
    if (bench.exit) {
        PyErr_Clear();
        py_raise_exception(bench.exit);
        Py_DECREF(bench.exit);
        return NULL;
    }
    return written ? PyLong_FromLong((long)code) : NULL;
}

static PyObject *run_cli(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static const char *const names[] = {"argv", "bench", NULL};
    PyObject *argv, *function = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:run_cli", PY_NAMES(names), &argv,
                                     &function))
        return NULL;
    PyObject *tuple = PySequence_Tuple(argv);
    if (!tuple)
        return NULL;
    PyObject *code = run_words(tuple, function == Py_None ? NULL : function);
    Py_DECREF(tuple);
    return code;
}

bool py_cli_init(PyObject *module)
{
    static PyMethodDef functions[] = {
        PY_METHOD("run_cli", run_cli,
                  "run_cli(argv, bench=None)\n--\n\n"
                  "Runs a command line in this process; its exit status. bench: a function that "
                  "gets a Context, which is then the bench of `run`."),
        {0},
    };
    return PyModule_AddFunctions(module, functions) == 0;
}
