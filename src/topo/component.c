/*
 * component.c: the components that ship, and finding one by name.
 *
 * All that they differ in here is which settings they take: the transport treats all nodes that are
 * no memories alike.
 */
#include "component.h"

#include <string.h>

#include "quantity.h"

static void read_overhead(kb_config_node *settings, topo_parameters *parameters)
{
    topo_read_time(settings, "overhead_ns", &parameters->overhead_fs);
}

static void read_control(kb_config_node *settings, topo_parameters *parameters)
{
    read_overhead(settings, parameters);
    topo_read_time(settings, "count_ns", &parameters->count_fs);
    topo_read_time(settings, "trigger_ns", &parameters->trigger_fs);
}

static void read_hbm(kb_config_node *settings, topo_parameters *parameters)
{
    __extension__ typedef unsigned __int128 wide;
    static const uint64_t whole = 1000000000;
    topo_read_time(settings, "latency_ns", &parameters->overhead_fs);
    topo_read_bandwidth(settings, "raw_gbs", &parameters->raw_bytes_per_s);
    topo_read_share(settings, "efficiency", &parameters->efficiency);
    /* Bandwidths are whole bytes a second: what is left of one is dropped. */
    wide product = (wide)parameters->raw_bytes_per_s * parameters->efficiency;
    parameters->bytes_per_s = (uint64_t)(product / whole);
    if (parameters->bytes_per_s < TOPO_RATE_MIN)
        kb_config_problem(topo_blame(settings, "efficiency", NULL),
                          "expected raw_gbs * efficiency to be at least 0.001");
}

static void read_sram(kb_config_node *settings, topo_parameters *parameters)
{
    topo_read_time(settings, "latency_ns", &parameters->overhead_fs);
    topo_read_bandwidth(settings, "bw_gbs", &parameters->bytes_per_s);
    topo_read_bytes(settings, "capacity_mib", 20, &parameters->bytes);
}

static const topo_component builtins[] = {
    {.name = "builtin.host", .kind = TOPO_HOST, .read = read_overhead},
    {.name = "builtin.switch", .kind = TOPO_SWITCH, .read = read_overhead},
    {.name = "builtin.pcie_ep", .kind = TOPO_PCIE_EP, .read = read_overhead},
    {.name = "builtin.io_cpu", .kind = TOPO_IO_CPU, .read = read_control},
    {.name = "builtin.io_noc", .kind = TOPO_IO_NOC, .read = read_overhead},
    {.name = "builtin.router", .kind = TOPO_ROUTER, .read = read_overhead},
    {.name = "builtin.ucie", .kind = TOPO_UCIE, .read = read_overhead},
    {.name = "builtin.xbar", .kind = TOPO_XBAR, .read = read_overhead},
    {.name = "builtin.hbm_ctrl", .kind = TOPO_HBM_CTRL, .read = read_hbm},
    {.name = "builtin.sram", .kind = TOPO_SRAM, .read = read_sram},
    {.name = "builtin.m_cpu", .kind = TOPO_M_CPU, .read = read_control},
    {.name = "builtin.pe_dma", .kind = TOPO_PE_DMA, .read = read_overhead},
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
