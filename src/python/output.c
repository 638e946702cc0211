/*
 * output.c: stdout and stderr of C as Python's. The C library's `stdout` is a variable: a stream
 * that passes on what is written to it takes its place for as long as the engine prints.
 *
 * Python's streams are looked up at each write, so that a program may replace them at any time.
 */
#include "output.h"

#include <errno.h>

#include "errors.h"
#include "thread_states.h"

static py_output *current; /* whose streams stand in; the process has one stdout */

static bool write_text(const char *stream, const char *bytes, size_t length)
{
    PyObject *file = PySys_GetObject(stream);
    if (!file || file == Py_None)
        return true;
    Py_INCREF(file);
    PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "replace");
    bool written = text && PyFile_WriteObject(text, file, Py_PRINT_RAW) == 0;
    Py_XDECREF(text);
    Py_DECREF(file);
    return written;
}

static ssize_t write_to(const char *stream, const char *bytes, size_t length)
{
    py_callback_begin();
    if (write_text(stream, bytes, length))
        return (ssize_t)length;
    PyObject *exception = py_take_exception();
    if (current->raised)
        Py_XDECREF(exception);
    else
        current->raised = exception;
    errno = EIO;
    return 0;
}

static ssize_t write_out(void *unused, const char *bytes, size_t length)
{
    (void)unused;
    return write_to("stdout", bytes, length);
}

static ssize_t write_err(void *unused, const char *bytes, size_t length)
{
    (void)unused;
    return write_to("stderr", bytes, length);
}

bool py_output_begin(py_output *output)
{
    *output = (py_output){0};
    if (current)
        return true;
    output->out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_out});
    output->err = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_err});
    if (!output->out || !output->err) {
        if (output->out)
            fclose(output->out);
        PyErr_NoMemory();
        return false;
    }
    setvbuf(output->out, NULL, _IOLBF, 0);
    setvbuf(output->err, NULL, _IOLBF, 0);
    fflush(stdout);
    output->program_out = stdout;
    output->program_err = stderr;
    stdout = output->out;
    stderr = output->err;
    current = output;
    return true;
}

/* The streams are written by the thread that has begun this, in a call of the engine or not. */
bool py_output_end(py_output *output)
{
    if (!output->program_out)
        return true;
    py_stay stay;
    py_stay_begin(&stay);
    fflush(stdout);
    fflush(stderr);
    stdout = output->program_out;
    stderr = output->program_err;
    fclose(output->out);
    fclose(output->err);
    py_stay_end(&stay);
    current = NULL;
    if (!output->raised)
        return true;
    py_raise_exception(output->raised);
    Py_CLEAR(output->raised);
    return false;
}
