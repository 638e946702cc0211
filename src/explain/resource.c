/*
 * resource.c: the resources of a machine: their names, their keys, and which nodes and links belong
 * to them.
 */
#include "resource.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 10 };

typedef struct better_key {
    const char *path;
    bool is_time; /* smaller is better */
    bool is_count;
} better_key;

#define RATE(key)                                                                                  \
    {                                                                                              \
        (key), false, false                                                                        \
    }
#define TIME(key)                                                                                  \
    {                                                                                              \
        (key), true, false                                                                         \
    }
#define COUNT(key)                                                                                 \
    {                                                                                              \
        (key), false, true                                                                         \
    }

typedef struct resource_info {
    const char *name, *key;
    better_key keys[MAX_KEYS]; /* those that the machine has are changed together */
} resource_info;

static const resource_info infos[EXPLAIN_RESOURCES] = {
    [EXPLAIN_MATRIX] = {"matrix engine", "matrix", {TIME("cube.pe_gemm.cycle_ns")}},
    [EXPLAIN_VECTOR] = {"vector engine", "vector", {TIME("cube.pe_math.cycle_ns")}},
    [EXPLAIN_TCM] = {"TCM bandwidth", "tcm", {RATE("cube.pe_tcm.bw_gbs")}},
    [EXPLAIN_HBM_BANDWIDTH] = {"HBM bandwidth",
                               "hbm_bandwidth",
                               {RATE("cube.xbar_to_hbm_bw_gbs"), RATE("cube.hbm_ctrl.raw_gbs")}},
    [EXPLAIN_HBM_LATENCY] = {"HBM latency", "hbm_latency", {TIME("cube.hbm_ctrl.latency_ns")}},
    [EXPLAIN_SRAM] = {"SRAM",
                      "sram",
                      {RATE("cube.sram.bw_gbs"), RATE("cube.xbar_to_sram_bw_gbs"),
                       TIME("cube.sram.latency_ns")}},
    [EXPLAIN_XBAR] = {"crossbar",
                      "crossbar",
                      {RATE("cube.pe_to_xbar_bw_gbs"), RATE("cube.noc_to_xbar_bw_gbs"),
                       TIME("cube.xbar.overhead_ns")}},
    [EXPLAIN_NOC] = {"NOC",
                     "noc",
                     {RATE("cube.noc.bw_gbs"), RATE("cube.pe_to_noc_bw_gbs"),
                      TIME("cube.noc.router.overhead_ns")}},
    [EXPLAIN_UCIE] = {"UCIe",
                      "ucie",
                      {RATE("sip.ucie.bw_gbs"), RATE("cube.ucie_to_noc_bw_gbs"),
                       TIME("sip.ucie.overhead_ns")}},
    [EXPLAIN_IO_NOC] = {"IO chiplet",
                        "io_noc",
                        {RATE("sip.io.io_noc.bw_gbs"), TIME("sip.io.io_noc.overhead_ns")}},
    [EXPLAIN_SIP_LINKS] = {"SIP links",
                           "sip_links",
                           {RATE("system.sips.link.bw_gbs"), TIME("system.sips.link.overhead_ns")}},
    [EXPLAIN_SWITCH] = {"switch",
                        "switch",
                        {RATE("system.sip_to_switch.bw_gbs"),
                         TIME("system.components.switch.attrs.overhead_ns"),
                         TIME("sip.io.pcie_ep.overhead_ns")}},
    [EXPLAIN_HOST_LINK] = {"host link",
                           "host_link",
                           {RATE("system.host_to_switch.bw_gbs"),
                            TIME("system.components.host.attrs.overhead_ns")}},
    [EXPLAIN_WIRES] = {"wires", "wires", {TIME("system.ns_per_mm")}},
    [EXPLAIN_DMA] = {"DMA overhead", "dma", {TIME("cube.pe_dma.overhead_ns")}},
    [EXPLAIN_CHANNELS] = {"DMA channels", "dma_channels", {COUNT("cube.pe_dma.channels")}},
    [EXPLAIN_LAUNCH] = {"launch overheads",
                        "launch",
                        {TIME("sip.io.io_cpu.overhead_ns"), TIME("sip.io.io_cpu.count_ns"),
                         TIME("sip.io.io_cpu.trigger_ns"), TIME("cube.m_cpu.overhead_ns"),
                         TIME("cube.m_cpu.count_ns"), TIME("cube.m_cpu.trigger_ns"),
                         TIME("cube.pe_cpu.overhead_ns")}},
    [EXPLAIN_ISSUE] = {"command issue", "issue", {TIME("cube.pe_cpu.issue_ns")}},
    [EXPLAIN_QUEUE_DEPTH] = {"command queue depth",
                             "queue_depth",
                             {COUNT("cube.pe_cpu.queue_depth")}},
    [EXPLAIN_SLOTS] = {"slots of message queues",
                       "queue_slots",
                       {COUNT("ccl.defaults.slots_times")}},
    [EXPLAIN_PROGRAM] = {"program", "program", {{0}}},
};

const char *explain_resource_name(explain_resource resource)
{
    return infos[resource].name;
}

const char *explain_resource_key(explain_resource resource)
{
    return infos[resource].key;
}

const char *explain_aspect_name(explain_aspect aspect)
{
    static const char *const names[EXPLAIN_ASPECTS] = {"work", "drain", "latency", "bandwidth",
                                                       "queueing"};
    return names[aspect];
}

void explain_part_name(explain_resource resource, explain_aspect aspect, kb_text *text)
{
    static const char *const endings[EXPLAIN_ASPECTS] = {
        "", ": draining its results", " latency", " bandwidth", ": waiting behind other transfers"};
    const char *name = infos[resource].name, *ending = endings[aspect];
    if (resource == EXPLAIN_TCM || resource == EXPLAIN_HBM_BANDWIDTH)
        ending = aspect == EXPLAIN_QUEUEING ? endings[aspect] : "";
    else if (resource == EXPLAIN_HBM_LATENCY || resource == EXPLAIN_DMA ||
             resource == EXPLAIN_LAUNCH || resource == EXPLAIN_PROGRAM)
        ending = "";
    kb_text_printf(text, "%s%s", name, ending);
}

/* ---- Links and nodes --------------------------------------------------------------------- */

static bool joins(topo_kind a, topo_kind b, topo_kind one)
{
    return a == one || b == one;
}

explain_resource explain_resource_of_link(const topo_graph *graph, uint32_t link)
{
    const topo_link *l = &graph->links.items[link];
    topo_kind a = graph->nodes.items[l->from].kind, b = graph->nodes.items[l->to].kind;
    static const struct {
        topo_kind kind;
        explain_resource is;
    } order[] = {
        {TOPO_HBM_CTRL, EXPLAIN_HBM_BANDWIDTH},
        {TOPO_SRAM, EXPLAIN_SRAM},
        {TOPO_XBAR, EXPLAIN_XBAR},
        {TOPO_HOST, EXPLAIN_HOST_LINK},
        {TOPO_SWITCH, EXPLAIN_SWITCH},
        {TOPO_SIP_PORT, EXPLAIN_SIP_LINKS},
        {TOPO_UCIE, EXPLAIN_UCIE},
        {TOPO_IO_NOC, EXPLAIN_IO_NOC},
        {TOPO_PCIE_EP, EXPLAIN_IO_NOC},
        {TOPO_IO_UCIE, EXPLAIN_IO_NOC},
        {TOPO_ROUTER, EXPLAIN_NOC},
    };
    /* A port of a SIP hangs on the IO chiplet's own router. */
    if (joins(a, b, TOPO_SIP_PORT) && joins(a, b, TOPO_IO_NOC))
        return EXPLAIN_IO_NOC;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (joins(a, b, order[i].kind))
            return order[i].is;
    return EXPLAIN_NOC;
}

explain_resource explain_resource_of_node(const topo_node *node)
{
    static const explain_resource of[TOPO_KINDS] = {
        [TOPO_HOST] = EXPLAIN_HOST_LINK,
        [TOPO_SWITCH] = EXPLAIN_SWITCH,
        [TOPO_PCIE_EP] = EXPLAIN_SWITCH,
        [TOPO_IO_CPU] = EXPLAIN_LAUNCH,
        [TOPO_IO_NOC] = EXPLAIN_IO_NOC,
        [TOPO_IO_UCIE] = EXPLAIN_UCIE,
        [TOPO_SIP_PORT] = EXPLAIN_SIP_LINKS,
        [TOPO_ROUTER] = EXPLAIN_NOC,
        [TOPO_UCIE] = EXPLAIN_UCIE,
        [TOPO_XBAR] = EXPLAIN_XBAR,
        [TOPO_HBM_CTRL] = EXPLAIN_HBM_LATENCY,
        [TOPO_SRAM] = EXPLAIN_SRAM,
        [TOPO_M_CPU] = EXPLAIN_LAUNCH,
        [TOPO_PE_DMA] = EXPLAIN_DMA,
    };
    return of[node->kind];
}

/* ---- Better ones ------------------------------------------------------------------------- */

/* The value of the key in the machine's settings; NULL: it does not have it. */
static const char *find_value(const char *settings, const char *path)
{
    size_t length = strlen(path);
    for (const char *line = settings; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, path, length) == 0 && line[length] == '=')
            return line + length + 1;
    }
    return NULL;
}

enum { DECIMALS = 9 };
static const double unit = 1e-9; /* the smallest step of a decimal in a machine file */

/* Down to femtoseconds, bytes a second, or whole numbers; rounded, as decimals have an end. */
static void put_better(const better_key *key, const char *value, explain_factor f, kb_text *text)
{
    double is = strtod(value, NULL);
    double factor = (double)f.numerator / (double)f.denominator;
    if (key->is_count) {
        uint64_t more = (uint64_t)(is * factor);
        kb_text_printf(text, "%s=%" PRIu64 "\n", key->path,
                       (double)more > is ? more : (uint64_t)is + 1);
        return;
    }
    double better = key->is_time ? is / factor : is * factor;
    if (key->is_time && is > 0 && better < unit)
        better = 0;
    int decimals = key->is_time ? 6 : DECIMALS;
    if (strstr(key->path, "ns_per_mm"))
        decimals = DECIMALS;
    kb_text_printf(text, "%s=%.*f\n", key->path, decimals, better);
}

void explain_better(const topo_machine *machine, explain_resource resource, explain_factor factor,
                    kb_text *settings)
{
    kb_text all = KB_TEXT_INIT;
    topo_machine_print_settings(machine, &all);
    for (size_t i = 0; i < MAX_KEYS && infos[resource].keys[i].path; i++) {
        const better_key *key = &infos[resource].keys[i];
        const char *value =
            resource == EXPLAIN_SLOTS ? "1" : find_value(kb_text_peek(&all), key->path);
        if (!value || (key->is_time && strtod(value, NULL) <= 0))
            continue;
        put_better(key, value, factor, settings);
    }
    settings->failed |= all.failed;
    kb_text_fini(&all);
}
