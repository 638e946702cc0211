/*
 * queues.c: sets of queues between PEs, as methods of contexts. A set is named by its number.
 */
#include "context.h"

#include <stdlib.h>

#include "base/base.h"
#include "errors.h"

/* ---- PEs ---------------------------------------------------------------------------------- */

/* A tuple (sip, cube, pe). */
static PyObject *tuple_of_pe(kb_pe pe)
{
    return Py_BuildValue("(kkk)", (unsigned long)pe.sip, (unsigned long)pe.cube,
                         (unsigned long)pe.pe);
}

static bool get_number(PyObject *object, uint32_t *number)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(object);
    if (value == (unsigned long long)-1 && PyErr_Occurred())
        return false;
    if (value > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%R is too large", object);
        return false;
    }
    *number = (uint32_t)value;
    return true;
}

static bool get_pe(PyObject *object, kb_pe *pe)
{
    PyObject *items = PySequence_Fast(object, "a PE is (sip, cube, pe)");
    if (!items)
        return false;
    bool good = PySequence_Fast_GET_SIZE(items) == 3;
    if (!good)
        PyErr_SetString(PyExc_ValueError, "a PE is (sip, cube, pe)");
    good = good && get_number(PySequence_Fast_GET_ITEM(items, 0), &pe->sip) &&
           get_number(PySequence_Fast_GET_ITEM(items, 1), &pe->cube) &&
           get_number(PySequence_Fast_GET_ITEM(items, 2), &pe->pe);
    Py_DECREF(items);
    return good;
}

/* ---- Creating ----------------------------------------------------------------------------- */

/* A specification with the arrays that it points to. `edges` keeps the directions' texts. */
typedef struct creation {
    kb_queue_spec spec;
    PyObject *edge_list;
    kb_queue_edge *edges;
    kb_pe *pes;
    kb_queue_set set;
} creation;

static void creation_fini(creation *is)
{
    Py_XDECREF(is->edge_list);
    free(is->edges);
    free(is->pes);
}

/* (from, direction, to); the direction's text lives as long as the item. */
static bool get_edge(PyObject *item, kb_queue_edge *edge)
{
    PyObject *from, *to;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "an edge is a tuple (from PE, direction, to PE)");
        return false;
    }
    return PyArg_ParseTuple(item, "OsO:edge", &from, &edge->direction, &to) &&
           get_pe(from, &edge->from) && get_pe(to, &edge->to);
}

static bool get_edges(PyObject *list, creation *is)
{
    is->edge_list = PySequence_Tuple(list);
    if (!is->edge_list)
        return false;
    Py_ssize_t count = PyTuple_GET_SIZE(is->edge_list);
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "no edges: expected at least one");
        return false;
    }
    is->edges = kb_alloc_array((size_t)count, sizeof *is->edges);
    if (!is->edges) {
        PyErr_NoMemory();
        return false;
    }
    is->spec.edges = is->edges;
    is->spec.edge_count = (size_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!get_edge(PyTuple_GET_ITEM(is->edge_list, i), &is->edges[i]))
            return false;
    return true;
}

static bool get_pes(PyObject *list, creation *is)
{
    PyObject *items = PySequence_Fast(list, "expected a list of PEs");
    if (!items)
        return false;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    is->pes = kb_alloc_array((size_t)count + 1, sizeof *is->pes);
    bool good = is->pes != NULL;
    if (!good)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && good; i++)
        good = get_pe(PySequence_Fast_GET_ITEM(items, i), &is->pes[i]);
    is->spec.pes = is->pes;
    is->spec.pe_count = (size_t)count;
    Py_DECREF(items);
    return good;
}

static kb_error *create_now(kb_context *kb, void *arg)
{
    creation *is = arg;
    return kb_queues_create(kb, &is->spec, &is->set);
}

static PyObject *queues_create(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"edges",   "topology",   "pes",   "w",
                                        "h",       "algorithm",  "world", "buffer_kind",
                                        "n_slots", "slot_bytes", NULL};
    py_context *self = (py_context *)object;
    creation is = {0};
    PyObject *edges = Py_None, *pes = Py_None;
    int w = 0, h = 0, world = 0, n_slots = 0;
    long long slot_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OzOiiziziL:queues_create", PY_NAMES(names),
                                     &edges, &is.spec.topology, &pes, &w, &h, &is.spec.algorithm,
                                     &world, &is.spec.buffer_kind, &n_slots, &slot_bytes))
        return NULL;
    if (w < 0 || h < 0 || world < 0 || n_slots < 0 || slot_bytes < 0) {
        PyErr_Format(
            py_input_error,
            "queues: a size is negative: w %d, h %d, world %d, n_slots %d, slot_bytes %lld", w, h,
            world, n_slots, slot_bytes);
        return NULL;
    }
    is.spec.w = (uint32_t)w;
    is.spec.h = (uint32_t)h;
    is.spec.world = (uint32_t)world;
    is.spec.n_slots = (uint32_t)n_slots;
    is.spec.slot_bytes = (uint64_t)slot_bytes;
    bool done = (edges == Py_None || get_edges(edges, &is)) &&
                (pes == Py_None || get_pes(pes, &is)) && py_host_do(self, create_now, &is);
    creation_fini(&is);
    return done ? PyLong_FromUnsignedLongLong(is.set.id) : NULL;
}

/* ---- Installing and removing --------------------------------------------------------------- */

static bool get_set(PyObject *object, kb_queue_set *set)
{
    set->id = PyLong_AsUnsignedLongLong(object);
    return !PyErr_Occurred();
}

static kb_error *install_now(kb_context *kb, void *arg)
{
    return kb_queues_install(kb, *(kb_queue_set *)arg);
}

static PyObject *queues_install(PyObject *object, PyObject *number)
{
    kb_queue_set set;
    if (!get_set(number, &set) || !py_host_do((py_context *)object, install_now, &set))
        return NULL;
    return Py_NewRef(Py_None);
}

static kb_error *remove_now(kb_context *kb, void *arg)
{
    return kb_queues_remove(kb, *(kb_queue_set *)arg);
}

static PyObject *queues_remove(PyObject *object, PyObject *number)
{
    kb_queue_set set;
    if (!get_set(number, &set) || !py_host_do((py_context *)object, remove_now, &set))
        return NULL;
    return Py_NewRef(Py_None);
}

/* ---- Looking ------------------------------------------------------------------------------- */

typedef struct listing {
    kb_queue_set set;
    kb_queue_info *infos;
    size_t count;
} listing;

static kb_error *list_now(kb_context *kb, void *arg)
{
    listing *is = arg;
    KB_TRY(kb_queues_list(kb, is->set, NULL, 0, &is->count));
    is->infos = kb_alloc_array(is->count + 1, sizeof *is->infos);
    if (!is->infos)
        return kb_error_nomem();
    return kb_queues_list(kb, is->set, is->infos, is->count, &is->count);
}

/* A PE as a tuple if there is one, else None. */
static PyObject *peer_of(bool is_there, kb_pe pe)
{
    return is_there ? tuple_of_pe(pe) : Py_NewRef(Py_None);
}

/* The physical address of a ring. None: there is none, or it has none. */
static PyObject *ring_of(const py_context *self, const kb_queue_info *info)
{
    uint64_t pa;
    if (!info->can_receive)
        return Py_NewRef(Py_None);
    kb_error *err = kb_location_to_pa(self->kb, info->ring, &pa);
    kb_error_free(err);
    return err ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(pa);
}

static PyObject *dict_of_info(const py_context *self, const kb_queue_info *info)
{
    return Py_BuildValue(
        "{s:N,s:s,s:N,s:N,s:N,s:N,s:N,s:K,s:K,s:K,s:K,s:K}", "pe", tuple_of_pe(info->pe),
        "direction", info->direction, "can_send", PyBool_FromLong(info->can_send), "can_receive",
        PyBool_FromLong(info->can_receive), "to", peer_of(info->can_send, info->to), "from_",
        peer_of(info->can_receive, info->from), "ring", ring_of(self, info), "ring_bytes",
        (unsigned long long)info->ring_bytes, "my_head", (unsigned long long)info->my_head,
        "my_tail", (unsigned long long)info->my_tail, "peer_head_cache",
        (unsigned long long)info->peer_head_cache, "peer_tail_cache",
        (unsigned long long)info->peer_tail_cache);
}

static PyObject *list_of_infos(const py_context *self, const listing *is)
{
    PyObject *list = PyList_New((Py_ssize_t)is->count);
    for (size_t i = 0; list && i < is->count; i++) {
        PyObject *item = dict_of_info(self, &is->infos[i]);
        if (item)
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *queues_list(PyObject *object, PyObject *number)
{
    py_context *self = (py_context *)object;
    listing is = {0};
    if (!get_set(number, &is.set))
        return NULL;
    PyObject *list = py_host_do(self, list_now, &is) ? list_of_infos(self, &is) : NULL;
    free(is.infos);
    return list;
}

typedef struct dump {
    kb_queue_set set;
    kb_text text;
} dump;

static void add_line(void *self, const char *line)
{
    kb_text_printf(self, "%s\n", line);
}

static kb_error *dump_now(kb_context *kb, void *arg)
{
    dump *is = arg;
    KB_TRY(kb_queues_dump(kb, is->set, add_line, &is->text));
    return is->text.failed ? kb_error_nomem() : NULL;
}

static PyObject *queues_dump(PyObject *object, PyObject *args)
{
    unsigned long long number = 0;
    if (!PyArg_ParseTuple(args, "|K:queues_dump", &number))
        return NULL;
    dump is = {.set = {number}, .text = KB_TEXT_INIT};
    bool done = py_host_do((py_context *)object, dump_now, &is);
    PyObject *text = done ? PyUnicode_FromString(kb_text_peek(&is.text)) : NULL;
    kb_text_fini(&is.text);
    return text;
}

PyMethodDef py_queue_methods[] = {
    PY_METHOD(
        "queues_create", queues_create,
        "queues_create($self, /, *, edges=None, topology=None, pes=None, w=0, h=0,\n"
        "              algorithm=None, world=0, buffer_kind=None, n_slots=0, slot_bytes=0)\n"
        "--\n\n"
        "Plans queues, as a list of (from PE, direction, to PE), by a topology over PEs, or as\n"
        "an entry of ccl.yaml has them. Returns the number of the set."),
    {"queues_install", queues_install, METH_O,
     PyDoc_STR("queues_install($self, number, /)\n--\n\nInstalls a set in its PEs, and waits.")},
    {"queues_remove", queues_remove, METH_O,
     PyDoc_STR("queues_remove($self, number, /)\n--\n\nRemoves a set from its PEs, and waits.")},
    {"queues_list", queues_list, METH_O,
     PyDoc_STR("queues_list($self, number, /)\n--\n\n"
               "The directions of all PEs of a set, with where their queues stand.")},
    {"queues_dump", queues_dump, METH_VARARGS,
     PyDoc_STR("queues_dump($self, number=0, /)\n--\n\nThe same as text; 0: of all sets.")},
    {0},
};
