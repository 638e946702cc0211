/*
 * physical_address.c: physical addresses without a machine.
 */
#include "physical_address.h"

#include <string.h>

#include <kernbench/kernbench.h>

#include "errors.h"

static const char *const range_names[KB_PA_RANGES] = {
    [KB_PA_HBM] = "hbm",
    [KB_PA_SRAM] = "sram",
    [KB_PA_M_CPU] = "m_cpu",
    [KB_PA_TCM] = "tcm",
    [KB_PA_IPCQ] = "ipcq",
    [KB_PA_SCRATCHPAD] = "scratchpad",
    [KB_PA_REGISTERS] = "registers",
    [KB_PA_STATUS] = "status",
    [KB_PA_RESERVED] = "reserved",
};

static bool get_range(const char *name, kb_pa_range *range)
{
    for (int i = 0; i < KB_PA_RANGES; i++) {
        if (strcmp(range_names[i], name) == 0) {
            *range = (kb_pa_range)i;
            return true;
        }
    }
    py_raise(kb_error_new(KB_ERR_INPUT, "unknown range of physical addresses: '%s'", name));
    return false;
}

/* A field that is not negative. */
static bool get_field(PyObject *object, const char *name, uint64_t limit, uint64_t *field)
{
    PyObject *number = PyNumber_Index(object);
    if (!number)
        return false;
    *field = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    bool good = !PyErr_Occurred();
    if (!good && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return false;
    PyErr_Clear();
    if (good && *field <= limit)
        return true;
    py_raise(kb_error_new(KB_ERR_INPUT, "%s is out of range for a physical address", name));
    return false;
}

static PyObject *pa_encode(PyObject *module, PyObject *args)
{
    PyObject *rack, *sip, *cube, *pe, *offset;
    const char *range;
    uint64_t numbers[4], address;
    kb_pa_fields fields = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOsOO:pa_encode", &rack, &sip, &cube, &range, &pe, &offset) ||
        !get_range(range, &fields.range) || !get_field(rack, "rack", UINT32_MAX, &numbers[0]) ||
        !get_field(sip, "sip", UINT32_MAX, &numbers[1]) ||
        !get_field(cube, "cube", UINT32_MAX, &numbers[2]) ||
        !get_field(pe, "pe", UINT32_MAX, &numbers[3]) ||
        !get_field(offset, "offset", UINT64_MAX, &fields.offset))
        return NULL;
    fields.rack = (uint32_t)numbers[0];
    fields.sip = (uint32_t)numbers[1];
    fields.cube = (uint32_t)numbers[2];
    fields.pe = (uint32_t)numbers[3];
    if (!py_succeeded(kb_pa_encode(&fields, &address)))
        return NULL;
    return PyLong_FromUnsignedLongLong(address);
}

static PyObject *pa_decode(PyObject *module, PyObject *object)
{
    uint64_t address;
    kb_pa_fields fields;
    (void)module;
    if (!get_field(object, "the address", UINT64_MAX, &address) ||
        !py_succeeded(kb_pa_decode(address, &fields)))
        return NULL;
    return Py_BuildValue("(kkkskK)", (unsigned long)fields.rack, (unsigned long)fields.sip,
                         (unsigned long)fields.cube, range_names[fields.range],
                         (unsigned long)fields.pe, (unsigned long long)fields.offset);
}

static PyObject *pa_name(PyObject *module, PyObject *object)
{
    uint64_t address;
    char name[KB_NAME_BYTES];
    (void)module;
    if (!get_field(object, "the address", UINT64_MAX, &address) ||
        !py_succeeded(kb_pa_name(address, name)))
        return NULL;
    return PyUnicode_FromString(name);
}

static PyMethodDef functions[] = {
    {"pa_encode", pa_encode, METH_VARARGS,
     PyDoc_STR("pa_encode(rack, sip, cube, kind, pe, offset, /)\n--\n\n"
               "A physical address. Kinds: hbm, sram, m_cpu, tcm, ipcq, scratchpad, registers, "
               "status, reserved.")},
    {"pa_decode", pa_decode, METH_O,
     PyDoc_STR("pa_decode(address, /)\n--\n\n"
               "What a physical address means: (rack, sip, cube, kind, pe, offset).")},
    {"pa_name", pa_name, METH_O,
     PyDoc_STR("pa_name(address, /)\n--\n\n"
               "A physical address as text: 'sip1.cube0.pe3.tcm+0x1234'.")},
    {0},
};

bool py_address_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
