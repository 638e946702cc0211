/*
 * module.c: the extension kernbench._core.
 *
 *     thread_states.c     thread states of coroutines   errors.c          errors as exceptions
 *     kernel.c            kernels in Python             srcloc.c          lines of source
 *     tl_type.c           tl, and operators of values   operands.c        what operations take
 *     handle.c            values                        parameters.c      arguments of methods
 *     convert.c           shapes, data types            c_kernels.c       kernels in C
 *     context.c           contexts, calls of the engine tensor.c          tensors
 *     launch.c            launches, requests            launch_results.c  their results
 *     worker.c            devices, workers              group.c           groups, collectives
 *     algorithms.c        algorithms in Python          queues.c          queues between PEs
 *     stats.c             what took time                mock.c            kernels, no machine
 *     parse.c             YAML                          output.c          what the engine prints
 *     describe.c          machines, files as text       command_line.c    the command line
 *     physical_address.c  physical addresses            save.c            runs in a store
 *
 * docs/decisions/0033-python.md has the reasons.
 */
#include "c_kernels.h"
#include "command_line.h"
#include "context.h"
#include "describe.h"
#include "errors.h"
#include "kernel.h"
#include "mock.h"
#include "physical_address.h"
#include "save.h"
#include "thread_states.h"

static PyObject *running_kernel(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    py_tl *tl = py_running_tl();
    return Py_NewRef(tl ? (PyObject *)tl : Py_None);
}

static PyMethodDef functions[] = {
    PY_PLAIN_METHOD("now_kernel", running_kernel,
                    "now_kernel()\n--\n\nThe tl of the kernel that runs, or None."),
    {0},
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        .m_name = "kernbench._core",
        .m_doc =
            PyDoc_STR("The engine of KernBench for Python. Programs use the package kernbench."),
        .m_size = -1,
        .m_methods = functions,
    };
    PyObject *module = PyModule_Create(&definition);
    bool good = module && py_threads_init() && py_errors_init(module) && py_convert_init(module) &&
                py_handle_init_types(module) && py_tl_init_type(module) &&
                py_tensor_init_type(module) && py_launch_init_types(module) &&
                py_context_init_type(module) && py_compile_init(module) &&
                py_describe_init(module) && py_address_init(module) && py_mock_init(module) &&
                py_cli_init(module) && py_save_init(module) &&
                PyModule_AddStringConstant(module, "version", kb_version()) == 0;
    if (!good)
        Py_CLEAR(module);
    return module;
}
