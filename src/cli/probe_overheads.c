/* probe_overheads.c: the delays of nodes and links on the route of a transfer. */
#include "probe_report.h"

#include <stdlib.h>

kb_time probe_stop_overhead(const topo_machine *machine, const probe_stop *stop)
{
    const topo_graph *graph = topo_machine_graph(machine);
    if (stop->link == TOPO_NONE)
        return topo_source_overhead(graph, stop->node);
    return topo_link_overhead(graph, stop->link);
}

kb_time probe_stop_wire(const topo_machine *machine, const probe_stop *stop)
{
    const topo_graph *graph = topo_machine_graph(machine);
    return stop->link == TOPO_NONE ? 0 : graph->links.items[stop->link].wire_fs;
}

/* Descending total; ties: order of kinds. */
static int compare(const void *a, const void *b)
{
    const probe_overhead *x = a, *y = b;
    if (x->total != y->total)
        return x->total < y->total ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

size_t probe_overheads(const topo_machine *machine, const probe_result *result,
                       probe_overhead overheads[static TOPO_KINDS])
{
    const topo_graph *graph = topo_machine_graph(machine);
    probe_overhead by_kind[TOPO_KINDS] = {0};
    for (size_t i = 0; i < result->stops.count; i++) {
        const probe_stop *stop = &result->stops.items[i];
        kb_time overhead = probe_stop_overhead(machine, stop);
        if (overhead == 0)
            continue;
        probe_overhead *o = &by_kind[graph->nodes.items[stop->node].kind];
        o->kind = (topo_kind)graph->nodes.items[stop->node].kind;
        o->count++;
        o->each = overhead; /* the nodes of a kind are alike */
        o->total += overhead;
    }
    size_t count = 0;
    for (size_t kind = 0; kind < TOPO_KINDS; kind++)
        if (by_kind[kind].count > 0)
            overheads[count++] = by_kind[kind];
    qsort(overheads, count, sizeof overheads[0], compare);
    return count;
}
