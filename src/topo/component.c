/*
 * component.c: the component models that ship, and finding one by name.
 *
 * A model is a row of `builtins`, with the keys of its settings. The transport treats all nodes
 * that are not memories alike.
 */
#include "component.h"

#include <string.h>

static const topo_key overhead_keys[] = {
    {.path = "overhead_ns", TOPO_NS(topo_parameters, timing.latency_fs)},
};

static const topo_key control_keys[] = {
    {.path = "overhead_ns", TOPO_NS(topo_parameters, timing.latency_fs)},
    {.path = "count_ns", TOPO_NS(topo_parameters, count_fs)},
    {.path = "trigger_ns", TOPO_NS(topo_parameters, trigger_fs)},
};

static const topo_key ucie_keys[] = {
    {.path = "overhead_ns", TOPO_NS(topo_parameters, timing.latency_fs)},
    {.path = "bw_gbs", TOPO_GB_S(topo_parameters, timing.bytes_per_s)},
};

static const topo_key hbm_keys[] = {
    {.path = "latency_ns", TOPO_NS(topo_parameters, timing.latency_fs)},
    {.path = "raw_gbs", TOPO_GB_S(topo_parameters, raw_bytes_per_s), .inherited = true},
    {.path = "efficiency", TOPO_SHARE(topo_parameters, efficiency)},
};

static const topo_key sram_keys[] = {
    {.path = "latency_ns", TOPO_NS(topo_parameters, timing.latency_fs)},
    {.path = "bw_gbs", TOPO_GB_S(topo_parameters, timing.bytes_per_s)},
    {.path = "capacity_mib", TOPO_MIB(topo_parameters, bytes)},
};

/* Bandwidths are whole bytes a second: the fraction is dropped. */
static void derive_hbm(kb_config_node *settings, topo_parameters *parameters)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)parameters->raw_bytes_per_s * parameters->efficiency;
    parameters->timing.bytes_per_s = (uint64_t)(product / (wide)TOPO_GIGA);
    if (parameters->timing.bytes_per_s < TOPO_RATE_MIN)
        kb_config_problem(topo_key_nearest(settings, "efficiency"),
                          "expected raw_gbs * efficiency to be at least 0.001");
}

#define KEYS(array) .keys = (array), .key_count = sizeof(array) / sizeof((array)[0])

static const topo_component builtins[] = {
    {.name = "builtin.host", .kind = TOPO_HOST, KEYS(overhead_keys)},
    {.name = "builtin.switch", .kind = TOPO_SWITCH, KEYS(overhead_keys)},
    {.name = "builtin.pcie_ep", .kind = TOPO_PCIE_EP, KEYS(overhead_keys)},
    {.name = "builtin.io_cpu", .kind = TOPO_IO_CPU, KEYS(control_keys)},
    {.name = "builtin.io_noc", .kind = TOPO_IO_NOC, KEYS(overhead_keys)},
    {.name = "builtin.router", .kind = TOPO_ROUTER, KEYS(overhead_keys)},
    {.name = "builtin.ucie", .kind = TOPO_UCIE, KEYS(ucie_keys)},
    {.name = "builtin.xbar", .kind = TOPO_XBAR, KEYS(overhead_keys)},
    {.name = "builtin.hbm_ctrl", .kind = TOPO_HBM_CTRL, KEYS(hbm_keys), .derive = derive_hbm},
    {.name = "builtin.sram", .kind = TOPO_SRAM, KEYS(sram_keys)},
    {.name = "builtin.m_cpu", .kind = TOPO_M_CPU, KEYS(control_keys)},
    {.name = "builtin.pe_dma", .kind = TOPO_PE_DMA, KEYS(overhead_keys)},
};

enum { builtin_count = sizeof builtins / sizeof builtins[0] };

static const topo_component *component_at(const topo_registry *registry, size_t i)
{
    return i < builtin_count ? &builtins[i] : registry->others[i - builtin_count];
}

const topo_component *topo_component_find(const topo_registry *registry, const char *name)
{
    for (size_t i = 0; i < builtin_count + registry->other_count; i++) {
        const topo_component *component = component_at(registry, i);
        if (strcmp(component->name, name) == 0)
            return component;
    }
    return NULL;
}

void topo_component_offer(const topo_registry *registry, topo_kind kind, kb_suggestion *near)
{
    for (size_t i = 0; i < builtin_count + registry->other_count; i++)
        if (component_at(registry, i)->kind == kind)
            kb_suggestion_offer(near, component_at(registry, i)->name);
}

const topo_component *topo_component_builtin(topo_kind kind)
{
    if (kind == TOPO_IO_UCIE)
        kind = TOPO_UCIE;
    for (size_t i = 0; i < builtin_count; i++)
        if (builtins[i].kind == kind)
            return &builtins[i];
    return NULL;
}
