/*
 * srcloc.c: lines of source. An operation of a kernel is given its line for messages and profiles.
 * To find it in the table of a code object takes longer than most operations do, so it is kept in a
 * cache that is indexed by code object and instruction.
 */
#include "srcloc.h"

#include <frameobject.h>
#include <stdint.h>

#include "base/base.h"

enum { CACHE_BITS = 12, CACHE_SIZE = 1 << CACHE_BITS };

/* A direct-mapped cache: an entry holds on to its code object, so that no other has its address. */
typedef struct entry {
    PyCodeObject *code;
    int instruction;
    tl_srcloc loc;
} entry;

static entry cache[CACHE_SIZE];
static PyObject *kept_texts; /* a dict from a text to itself */

static const tl_srcloc unknown = {"<python>", 0};

const char *py_keep_text(PyObject *text)
{
    if (!kept_texts && !(kept_texts = PyDict_New()))
        return NULL;
    PyObject *kept = PyDict_SetDefault(kept_texts, text, text);
    return kept ? PyUnicode_AsUTF8(kept) : NULL;
}

static tl_srcloc locate(PyCodeObject *code, int instruction)
{
    const char *file = py_keep_text(code->co_filename);
    int line = PyCode_Addr2Line(code, instruction);
    if (file)
        return (tl_srcloc){file, line > 0 ? line : code->co_firstlineno};
    PyErr_Clear();
    return unknown;
}

static size_t slot_of(const PyCodeObject *code, int instruction)
{
    uint64_t hash = ((uintptr_t)code >> 4) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)instruction;
    return (size_t)((hash * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - CACHE_BITS));
}

static int instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    return frame->f_lasti * (int)sizeof(_Py_CODEUNIT);
#endif
}

tl_srcloc py_srcloc(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (KB_UNLIKELY(!frame))
        return unknown;
    PyCodeObject *code = PyFrame_GetCode(frame);
    int instruction = instruction_of(frame);
    entry *is = &cache[slot_of(code, instruction)];
    if (KB_UNLIKELY(is->code != code || is->instruction != instruction)) {
        tl_srcloc loc = locate(code, instruction);
        PyCodeObject *old = is->code;
        *is = (entry){(PyCodeObject *)Py_NewRef((PyObject *)code), instruction, loc};
        Py_XDECREF(old);
    }
    tl_srcloc loc = is->loc;
    Py_DECREF(code);
    return loc;
}

tl_srcloc py_srcloc_of(PyObject *exception)
{
    PyObject *traceback = PyException_GetTraceback(exception);
    if (!traceback)
        return py_srcloc();
    PyTracebackObject *last = (PyTracebackObject *)traceback;
    while (last->tb_next)
        last = last->tb_next;
    PyCodeObject *code = PyFrame_GetCode(last->tb_frame);
    tl_srcloc loc = locate(code, last->tb_lasti);
    Py_DECREF(code);
    Py_DECREF(traceback);
    return loc;
}

tl_srcloc py_srcloc_of_function(PyObject *function)
{
    PyObject *code = PyObject_GetAttrString(function, "__code__");
    tl_srcloc loc = unknown;
    if (code && PyCode_Check(code)) {
        PyCodeObject *is = (PyCodeObject *)code;
        const char *file = py_keep_text(is->co_filename);
        if (file)
            loc = (tl_srcloc){file, is->co_firstlineno};
    }
    Py_XDECREF(code);
    PyErr_Clear();
    return loc;
}
