/*
 * thread_states.c: thread states: one for each coroutine that runs Python, recycled.
 *
 * The engine switches coroutines without asking Python. So nothing is done when a coroutine is
 * left; when its call of the engine returns, it makes its own thread state the current one again.
 * Invariant: while Python code runs on a coroutine, the coroutine's thread state is current.
 *
 * The driver gives the interpreter up when it calls the engine. The first coroutine that runs
 * Python takes it, and it is kept until the driver's call returns.
 */
#include "thread_states.h"

#if PY_VERSION_HEX < 0x030C0000
/* PyGILState_Ensure() compares the current thread state with the thread's slot, and waits for ever
 * if they differ. Up to 3.11 a swap leaves the slot as it was, and only this header names it. */
#define Py_BUILD_CORE 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wcast-qual"
#include <internal/pycore_runtime.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE
#endif

#include <pthread.h>

#include "base/base.h"

/* C stack that one level of recursion through C may take: that of list.sort(), which takes most. */
enum { BYTES_PER_C_CALL = 7 << 10 };

/* Unused ones beyond this number are deleted: tools that list threads show them. */
enum { MAX_UNUSED = 64 };

/* Of each thread of the program: contexts of two threads know nothing of each other. */
static _Thread_local PyThreadState *driver;  /* in a call of the engine; NULL: in none */
static _Thread_local PyThreadState *current; /* while it is; NULL: the interpreter was given up */

/* Those that no coroutine has. Guarded by the GIL. */
static KB_VEC(PyThreadState *) unused;

static void follow(PyThreadState *state)
{
#if PY_VERSION_HEX < 0x030C0000
    (void)PyThread_tss_set(&_PyRuntime.gilstate.autoTSSkey, state);
#else
    (void)state; /* a swap sets the slot */
#endif
}

void py_state_resume(PyThreadState *state)
{
    if (KB_LIKELY(current == state))
        return;
    follow(state); /* first: a debug build of Python checks that a swap agrees with the slot */
    if (current)
        (void)PyThreadState_Swap(state);
    else
        PyEval_RestoreThread(state);
    current = state;
}

void py_stay_begin(py_stay *stay)
{
    *stay = (py_stay){.own = PyThreadState_Get(), .driver = driver};
    driver = stay->own;
    current = NULL;
    (void)PyEval_SaveThread();
}

void py_stay_end(const py_stay *stay)
{
    py_state_resume(stay->own);
    driver = stay->driver;
    if (!driver)
        current = NULL;
}

void py_callback_begin(void)
{
    py_state_resume(driver);
}

/* ---- Of coroutines ----------------------------------------------------------------------- */

/* What would overflow the coroutine's stack is to be a RecursionError before. Before 3.12 the limit
 * of the interpreter counts calls of C too, and its default fits into the stacks of kernels. */
static void limit_recursion(PyThreadState *state, size_t stack_bytes)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_HAS_COROUTINES
    int limit = (int)(stack_bytes / BYTES_PER_C_CALL);
    if (state->c_recursion_remaining > limit)
        state->c_recursion_remaining = limit;
#else
    (void)state, (void)stack_bytes;
#endif
}

/* A debugger or a profiler of the driver sees kernels and workers too. The state is current. */
static void inherit_tracing(const PyThreadState *from, const PyThreadState *to)
{
    if (KB_UNLIKELY(from->c_tracefunc != to->c_tracefunc))
        PyEval_SetTrace(from->c_tracefunc, from->c_traceobj);
    if (KB_UNLIKELY(from->c_profilefunc != to->c_profilefunc))
        PyEval_SetProfile(from->c_profilefunc, from->c_profileobj);
}

PyThreadState *py_state_take(size_t stack_bytes)
{
    if (!current)
        py_callback_begin(); /* a list that the GIL guards */
    PyThreadState *state = unused.count > 0 ? unused.items[--unused.count]
                                            : PyThreadState_New(PyInterpreterState_Main());
    if (!state)
        return NULL;
    py_state_resume(state);
    limit_recursion(state, stack_bytes);
    inherit_tracing(driver, state);
    return state;
}

/* What a thread leaves behind when it ends: its thread-local data and its context variables. */
static void forget_locals(PyThreadState *state)
{
    if (KB_UNLIKELY(state->c_tracefunc != NULL))
        PyEval_SetTrace(NULL, NULL);
    if (KB_UNLIKELY(state->c_profilefunc != NULL))
        PyEval_SetProfile(NULL, NULL);
    Py_CLEAR(state->dict);
    if (state->context) {
        Py_CLEAR(state->context);
        state->context_ver++;
    }
}

void py_state_give(PyThreadState *state)
{
    forget_locals(state);
    py_state_resume(driver);
    if (unused.count < MAX_UNUSED && kb_vec_push(&unused, state))
        return;
    PyThreadState_Clear(state);
    PyThreadState_Delete(state);
}

/* ---- The interpreter --------------------------------------------------------------------- */

/* After a fork the interpreter frees all thread states but the one that forked. */
static void forget_unused(void)
{
    unused.count = 0;
}

bool py_threads_check(void)
{
    if (PY_HAS_COROUTINES)
        return true;
    PyErr_SetString(PyExc_RuntimeError,
                    "kernels and workers in Python need CPython 3.10 to 3.13: from 3.14 on the "
                    "interpreter ends the process when it runs on the stack of a coroutine; C "
                    "kernels (kernbench.compile_c) and host programs work");
    return false;
}

bool py_threads_init(void)
{
    static bool done;
    if (!done && pthread_atfork(NULL, NULL, forget_unused) != 0) {
        PyErr_NoMemory();
        return false;
    }
    done = true;
    return true;
}
