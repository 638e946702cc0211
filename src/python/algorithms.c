/*
 * algorithms.c: a module in Python as an algorithm of collectives. It has
 *
 *     def kernel(t_ptr, *args, tl)               what runs on each PE; t_ptr: the tensor
 *     def kernel_args(world_size, n_elem)        a tuple: its arguments
 *     def neighbors(rank, world_size)            optional: {direction: rank} of a rank
 *     TOPO_NAME_TO_KIND = {"ring_1d": 0, ...}    optional: then the arguments get more:
 *                                                sip_rank, kind, width and height
 *
 * A module by the name of one that ships takes its place: it has the same mapper, layout and
 * connections, and another kernel. Other modules have one PE a rank.
 *
 * The engine passes numbers to kernels. A kernel of a module is given two: the address, and which
 * of the tuples that were made for the call is its own.
 */
#include "algorithms.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ccl/ccl.h"
#include "errors.h"
#include "parse.h"
#include "rt/rt.h"
#include "thread_states.h"

typedef struct py_algorithm {
    kb_ccl_algorithm algorithm;                /* what the engine has */
    py_launch *launch;                         /* of all calls: its variants are the tuples */
    PyObject *kernel_args, *kinds, *neighbors; /* the last two may be NULL */
    char *name;
} py_algorithm;

struct py_algorithms {
    py_algorithms *before; /* that were loaded before: their kernels may still run */
    py_algorithm *items;
    size_t count;
    const kb_ccl_algorithm **list; /* ends with NULL */
    kb_ccl_plugin plugin;
};

static py_algorithm *algorithm_of(const kb_ccl_algorithm *algorithm)
{
    return (py_algorithm *)((char *)(uintptr_t)algorithm - offsetof(py_algorithm, algorithm));
}

/* ---- Arguments --------------------------------------------------------------------------- */

/* An exception of a module's function: the engine is told its text, and the call raises it. */
static kb_error *refuse(py_algorithm *is)
{
    PyObject *exception = py_take_exception();
    kb_error *err = py_error_of(KB_ERR_INPUT, exception);
    py_launch_keep(is->launch, exception, err);
    Py_DECREF(exception);
    return err;
}

static const char *name_of_pattern(kb_sip_pattern pattern)
{
    static const char *const names[] = {[KB_SIPS_RING] = "ring_1d",
                                        [KB_SIPS_TORUS] = "torus_2d",
                                        [KB_SIPS_MESH] = "mesh_2d_no_wrap"};
    return names[pattern];
}

/* The rank of the SIP, the kind of topology, and its sides: 0 for a ring. */
static PyObject *add_topology(const py_algorithm *is, PyObject *args, const kb_ccl_call *call,
                              const kb_ccl_target *target)
{
    const kb_ccl_scope *scope = call->scope;
    bool ring = scope->sips == KB_SIPS_RING;
    PyObject *kind = PyMapping_GetItemString(is->kinds, name_of_pattern(scope->sips));
    PyObject *more = kind ? Py_BuildValue("(INII)", target->rank, kind, ring ? 0 : scope->sip_w,
                                          ring ? 0 : scope->sip_h)
                          : NULL;
    PyObject *all = more ? PySequence_Concat(args, more) : NULL;
    Py_XDECREF(more);
    return all;
}

static PyObject *make_tuple(const py_algorithm *is, const kb_ccl_call *call,
                            const kb_ccl_target *target)
{
    PyObject *made = PyObject_CallFunction(is->kernel_args, "IK", call->scope->world,
                                           (unsigned long long)target->elements);
    PyObject *args = made ? PySequence_Tuple(made) : NULL;
    Py_XDECREF(made);
    if (!args || !is->kinds)
        return args;
    PyObject *all = add_topology(is, args, call, target);
    Py_DECREF(args);
    return all;
}

/* Its number among the tuples of the algorithm. -1 with an exception set. */
static Py_ssize_t number_of(py_launch *launch, PyObject *args)
{
    Py_ssize_t count = PyList_GET_SIZE(launch->variants);
    for (Py_ssize_t i = count; i-- > 0;) {
        int same = PyObject_RichCompareBool(PyList_GET_ITEM(launch->variants, i), args, Py_EQ);
        if (same != 0)
            return same > 0 ? i : -1;
    }
    return PyList_Append(launch->variants, args) == 0 ? count : -1;
}

/* Where the tensor is: of ranks that are PEs, what all of the device have. */
static uint64_t address_of(const kb_ccl_call *call, const kb_ccl_target *target)
{
    if (!call->scope->rank_is_pe)
        return target->whole;
    uint32_t first = target->rank;
    while (first > 0 && call->scope->ranks[first - 1].sip == target->pe.sip)
        first--;
    return target->output - (target->rank - first) * target->elements * kb_dtype_bytes(call->dtype);
}

static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args)
{
    py_algorithm *is = algorithm_of(call->scope->settings->algorithm);
    py_callback_begin();
    PyObject *tuple = make_tuple(is, call, target);
    Py_ssize_t number = tuple ? number_of(is->launch, tuple) : -1;
    Py_XDECREF(tuple);
    kb_error *err = number < 0 ? refuse(is) : NULL;
    if (err)
        return err;
    kb_ccl_add_address(args, address_of(call, target));
    kb_ccl_add_integer(args, number);
    while (args->count < is->algorithm.kernel->parameter_count)
        kb_ccl_add_integer(args, 0);
    return NULL;
}

/* ---- Connections ------------------------------------------------------------------------- */

static bool connect_rank(PyObject *map, const kb_ccl_participant *participants, uint32_t count,
                         uint32_t rank, kb_ccl_graph *graph, kb_error **err)
{
    Py_ssize_t at = 0;
    PyObject *direction, *peer;
    if (!PyDict_Check(map)) {
        PyErr_Format(PyExc_TypeError, "neighbors() returns a dict {direction: rank}, found %R",
                     map);
        return false;
    }
    while (PyDict_Next(map, &at, &direction, &peer)) {
        int64_t to;
        const char *name = PyUnicode_AsUTF8(direction);
        if (!name || !py_get_integer(peer, &to))
            return false;
        if (to < 0 || to >= count) {
            PyErr_Format(PyExc_ValueError, "neighbors(): %R of rank %u leads to rank %R of %u",
                         direction, rank, peer, count);
            return false;
        }
        *err = kb_ccl_connect(graph, participants[rank].pe, name, participants[to].pe);
        if (*err)
            return true;
    }
    return true;
}

static kb_error *connect_subgroup(py_algorithm *is, const kb_ccl_participant *participants,
                                  uint32_t count, kb_ccl_graph *graph)
{
    kb_error *err = NULL;
    for (uint32_t rank = 0; rank < count && !err; rank++) {
        PyObject *map = PyObject_CallFunction(is->neighbors, "II", rank, count);
        if (!map || !connect_rank(map, participants, count, rank, graph, &err))
            err = refuse(is);
        Py_XDECREF(map);
    }
    return err;
}

static kb_error *connect(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                         kb_ccl_graph *graph)
{
    py_algorithm *is = algorithm_of(scope->settings->algorithm);
    py_callback_begin();
    kb_error *err = NULL;
    for (uint32_t subgroup = 0; subgroup < kb_ccl_subgroup_count(participants) && !err;
         subgroup++) {
        uint32_t count;
        const kb_ccl_participant *ranks = kb_ccl_subgroup(participants, subgroup, &count);
        err = connect_subgroup(is, ranks, count, graph);
    }
    return err;
}

/* ---- Making them ------------------------------------------------------------------------- */

/* NULL if the module has none. */
static PyObject *optional(PyObject *module, const char *name)
{
    PyObject *value = PyObject_GetAttrString(module, name);
    PyErr_Clear();
    if (value == Py_None)
        Py_CLEAR(value);
    return value;
}

/* The file as dicts. NULL with an exception set. */
static PyObject *read_config(const char *path)
{
    if (!path)
        return py_parse_yaml(ccl_builtin_text, ccl_builtin_length);
    kb_text text = KB_TEXT_INIT;
    char part[4096];
    FILE *file = fopen(path, "r");
    if (!file)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;)
        kb_text_append(&text, part, got);
    fclose(file);
    PyObject *config =
        text.failed ? PyErr_NoMemory() : py_parse_yaml(kb_text_peek(&text), text.length);
    kb_text_fini(&text);
    return config;
}

/* Borrowed; NULL without an exception if it is not there. */
static PyObject *member(PyObject *dict, const char *key)
{
    return dict && PyDict_Check(dict) ? PyDict_GetItemString(dict, key) : NULL;
}

/* Whether an entry with the module has a topology. The engine refuses one for algorithms that have
 * connections of their own. */
static bool has_topology(PyObject *config, PyObject *module)
{
    Py_ssize_t at = 0;
    PyObject *name, *entry, *entries = member(config, "algorithms");
    while (entries && PyDict_Check(entries) && PyDict_Next(entries, &at, &name, &entry)) {
        PyObject *of = member(entry, "module"), *topology = member(entry, "topology");
        bool same = of && PyUnicode_Check(of) && PyUnicode_Compare(of, module) == 0;
        bool none = !topology || !PyUnicode_Check(topology) ||
                    PyUnicode_CompareWithASCIIString(topology, "none") == 0;
        if (same && !none)
            return true;
    }
    return false;
}

/* What it has of the algorithm that ships under its name. */
static kb_ccl_algorithm form_of(const py_algorithm *is, const char *name, bool has_topology)
{
    ccl_registry shipped;
    kb_error_free(ccl_registry_init(&shipped, NULL, 0));
    const kb_ccl_algorithm *found = ccl_find_algorithm(&shipped, name);
    if (found)
        return *found;
    /* Without a topology of its entry, it has the connections of the cubes and SIPs. */
    kb_ccl_algorithm form = *ccl_find_algorithm(&shipped, "intercube");
    form.collectives = 1 << KB_ALL_REDUCE;
    if (!is->kinds || has_topology) {
        form.mapper = NULL;
        form.reduce_shards = false;
    }
    return form;
}

static bool fill(py_context *self, py_algorithm *is, PyObject *config, PyObject *name,
                 PyObject *module)
{
    const char *text = PyUnicode_AsUTF8(name);
    PyObject *kernel = text ? PyObject_GetAttrString(module, "kernel") : NULL;
    is->kernel_args = kernel ? PyObject_GetAttrString(module, "kernel_args") : NULL;
    if (!is->kernel_args) {
        Py_XDECREF(kernel);
        return false;
    }
    is->kinds = optional(module, "TOPO_NAME_TO_KIND");
    is->neighbors = optional(module, "neighbors");
    const bool is_address = true;
    is->launch = py_launch_new(NULL, kernel, &kernel, &is_address, 1, NULL, self->stack_bytes);
    Py_DECREF(kernel);
    is->name = strdup(text);
    if (!is->launch || !is->name || !py_launch_take_variants(is->launch)) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return false;
    }
    bool topology = has_topology(config, name);
    is->algorithm = form_of(is, text, topology);
    is->algorithm.name = is->name;
    is->algorithm.summary = "a module in Python";
    is->algorithm.kernel = &is->launch->kernel;
    is->algorithm.arguments = arguments;
    is->algorithm.by_name_only = false;
    if (is->neighbors) {
        is->algorithm.connect = connect;
        is->algorithm.topologies = NULL;
    } else if (topology) {
        is->algorithm.connect = NULL;
    }
    return true;
}

static py_algorithms *make(py_context *self, PyObject *config, PyObject *modules)
{
    py_algorithms *made = kb_alloc_zeroed(1, sizeof *made);
    size_t count = (size_t)PyDict_GET_SIZE(modules);
    Py_ssize_t at = 0;
    PyObject *name, *module;
    if (!made) {
        PyErr_NoMemory();
        return NULL;
    }
    made->items = kb_alloc_zeroed(count, sizeof *made->items);
    made->list = kb_alloc_zeroed(count + 1, sizeof *made->list);
    bool good = made->items && made->list;
    if (!good)
        PyErr_NoMemory();
    while (good && PyDict_Next(modules, &at, &name, &module)) {
        py_algorithm *is = &made->items[made->count];
        made->list[made->count++] = &is->algorithm;
        good = fill(self, is, config, name, module);
    }
    made->plugin.algorithms = made->list;
    if (good)
        return made;
    py_algorithms_free(made);
    return NULL;
}

void py_algorithms_free(py_algorithms *is)
{
    while (is) {
        py_algorithms *before = is->before;
        for (size_t i = 0; i < is->count; i++) {
            py_launch_free(is->items[i].launch);
            Py_XDECREF(is->items[i].kernel_args);
            Py_XDECREF(is->items[i].kinds);
            Py_XDECREF(is->items[i].neighbors);
            free(is->items[i].name);
        }
        free(is->items);
        free(is->list);
        free(is);
        is = before;
    }
}

int py_algorithms_traverse(const py_algorithms *is, visitproc visit, void *arg)
{
    for (; is; is = is->before) {
        for (size_t i = 0; i < is->count; i++) {
            Py_VISIT(is->items[i].kernel_args);
            Py_VISIT(is->items[i].kinds);
            Py_VISIT(is->items[i].neighbors);
            int result =
                is->items[i].launch ? py_launch_traverse(is->items[i].launch, visit, arg) : 0;
            if (result != 0)
                return result;
        }
    }
    return 0;
}

/* ---- Loading ----------------------------------------------------------------------------- */

static const char **get_settings(PyObject *list, size_t *count, PyObject **kept)
{
    *kept = list ? PySequence_Tuple(list) : PyTuple_New(0);
    *count = *kept ? (size_t)PyTuple_GET_SIZE(*kept) : 0;
    const char **texts = *kept ? kb_alloc_array(*count, sizeof *texts) : NULL;
    for (size_t i = 0; i < *count && texts; i++) {
        texts[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(*kept, (Py_ssize_t)i));
        if (!texts[i]) {
            free(texts);
            return NULL;
        }
    }
    if (!texts && !PyErr_Occurred())
        PyErr_NoMemory();
    return texts;
}

bool py_algorithms_load(py_context *self, const char *file, PyObject *modules, PyObject *settings)
{
    py_algorithms *made = NULL;
    PyObject *kept = NULL;
    size_t count;
    if (modules && PyDict_GET_SIZE(modules) > 0) {
        PyObject *config = read_config(file);
        made = config ? make(self, config, modules) : NULL;
        Py_XDECREF(config);
        if (!made)
            return false;
    }
    const char **texts = get_settings(settings, &count, &kept);
    const kb_ccl_plugin *plugin = made ? &made->plugin : NULL;
    bool good = texts &&
                py_succeeded(ccl_reload(self->kb, &(rt_ccl_options){.file = file,
                                                                    .settings = texts,
                                                                    .setting_count = count,
                                                                    .plugins = &plugin,
                                                                    .plugin_count = made ? 1 : 0}));
    free(texts);
    Py_XDECREF(kept);
    if (!good) {
        py_algorithms_free(made);
        return false;
    }
    if (made) {
        made->before = self->algorithms;
        self->algorithms = made;
    }
    return true;
}

void py_algorithms_raise(const py_context *self, kb_error *err)
{
    for (const py_algorithms *is = self->algorithms; is; is = is->before) {
        for (size_t i = 0; i < is->count; i++) {
            if (py_launch_has_fault(is->items[i].launch, err)) {
                py_launch_raise(is->items[i].launch, err);
                return;
            }
        }
    }
    py_raise(err);
}
