/*
 * lower_bound.c: the time that no algorithm can beat. Any algorithm needs time for two things:
 *
 *   transfer    the bytes that must leave the participants, at the sum of their bandwidths. A sum
 *               of n buffers needs n - 1 transfers of each element to form it and n - 1 to
 *               distribute it; other collectives need one of the two.
 *   reduction   n - 1 additions per element, divided evenly, at the rate of the vector engines.
 *
 * Exact: rounded up once, to the femtosecond. Not modelled: latencies, launch times, and contention
 * of routes that cross.
 */
#include "lower_bound.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

static const uint64_t fs_per_s = 1000000000000000;

static kb_time divide_round_up(wide a, wide b)
{
    wide quotient = a / b + (a % b != 0);
    return quotient > (wide)KB_FOREVER ? KB_FOREVER : (kb_time)quotient;
}

/* ---- Outgoing bandwidth of a participant ---- */

/* The bandwidth of the link between two neighbouring nodes; UINT64_MAX if there is none. */
static uint64_t rate_between(const topo_machine *machine, uint32_t from, uint32_t to)
{
    const topo_graph *graph = topo_machine_graph(machine);
    for (uint32_t i = graph->first_out[from]; i < graph->first_out[from + 1]; i++)
        if (graph->links.items[graph->out[i]].to == to)
            return topo_link_rate(graph, graph->out[i]);
    return UINT64_MAX;
}

/* Limited by the memory and the port of the PE. */
static uint64_t pe_bandwidth(const ccl_bound_query *query, kb_pe pe)
{
    const topo_machine *machine = query->machine;
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t dma = topo_node_at(machine, TOPO_PE_DMA, pe.sip, pe.cube, pe.pe);
    uint32_t router =
        topo_node_at(machine, TOPO_ROUTER, pe.sip, pe.cube, topo_pe_router(machine, pe.pe));
    uint64_t port = rate_between(machine, dma, router);
    if (query->memory == KB_TCM)
        return kb_min(port, topo_machine_shape(machine)->pe.tcm_bytes_per_s);
    uint32_t slice = topo_node_at(machine, TOPO_HBM_CTRL, pe.sip, pe.cube, pe.pe);
    return kb_min(port, topo_link_rate(graph, graph->nodes.items[slice].service));
}

/* Of the UCIe links between the cubes of a SIP and its IO chiplet. */
static uint64_t cube_ports_bandwidth(const topo_machine *machine, uint32_t sip)
{
    uint32_t columns = topo_machine_shape(machine)->cube_w;
    uint32_t noc = topo_node_at(machine, TOPO_IO_NOC, sip, 0, 0);
    uint64_t sum = 0;
    for (uint32_t column = 0; column < columns; column++) {
        uint32_t inner = topo_node_at(machine, TOPO_UCIE, sip, column, TOPO_NORTH);
        uint32_t outer = topo_node_at(machine, TOPO_IO_UCIE, sip, 0, column);
        sum += kb_min(rate_between(machine, inner, outer), rate_between(machine, outer, noc));
    }
    return sum;
}

/* The SIP of a node; TOPO_NONE for the host and the switch. */
static uint32_t sip_of(const topo_graph *graph, uint32_t node)
{
    const topo_node *n = &graph->nodes.items[node];
    return n->kind == TOPO_SWITCH || n->kind == TOPO_HOST ? TOPO_NONE : n->sip;
}

/* The link by which the route from one SIP to another leaves the first SIP. */
static uint32_t exit_link(const topo_machine *machine, uint32_t from, uint32_t to, uint32_t *steps)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t a = topo_node_at(machine, TOPO_PE_DMA, from, 0, 0);
    uint32_t b = topo_node_at(machine, TOPO_PE_DMA, to, 0, 0);
    uint32_t count = topo_route(machine, a, b, true, steps);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t link = topo_step_link(steps[i]);
        if (sip_of(graph, graph->links.items[link].to) != from)
            return link;
    }
    return TOPO_NONE;
}

/* Of the links by which routes to the other ranks leave the SIP: the link to the switch, or the
 * links to neighbours in the group. `seen` has room for `world` links. Limited by the ports of the
 * cubes. */
static uint64_t sip_bandwidth(const ccl_bound_query *query, uint32_t rank, uint32_t *steps,
                              uint32_t *seen)
{
    const topo_machine *machine = query->machine;
    uint32_t sip = query->ranks[rank].sip, count = 0;
    uint64_t sum = 0;
    for (uint32_t other = 0; other < query->world; other++) {
        uint32_t to = query->ranks[other].sip;
        uint32_t link = to == sip ? TOPO_NONE : exit_link(machine, sip, to, steps);
        bool is_new = link != TOPO_NONE;
        for (uint32_t i = 0; i < count && is_new; i++)
            is_new = seen[i] != link;
        if (!is_new)
            continue;
        seen[count++] = link;
        sum += topo_link_rate(topo_machine_graph(machine), link);
    }
    return kb_min(sum, cube_ports_bandwidth(machine, sip));
}

typedef struct bandwidths {
    wide sum;     /* of all participants */
    uint64_t max; /* of one of them */
} bandwidths;

static kb_error *sum_bandwidths(const ccl_bound_query *query, bandwidths *out)
{
    *out = (bandwidths){0};
    uint32_t *steps = NULL, *seen = NULL;
    if (!query->rank_is_pe) {
        steps = kb_alloc_array(topo_machine_shape(query->machine)->max_steps, sizeof *steps);
        seen = kb_alloc_array(query->world, sizeof *seen);
    }
    bool possible = query->rank_is_pe || (steps && seen);
    for (uint32_t rank = 0; rank < query->world && possible; rank++) {
        uint64_t rate = query->rank_is_pe ? pe_bandwidth(query, query->ranks[rank])
                                          : sip_bandwidth(query, rank, steps, seen);
        out->sum += rate;
        out->max = rate > out->max ? rate : out->max;
    }
    free(steps);
    free(seen);
    return possible ? NULL : kb_error_nomem();
}

/* ---- The two times ---- */

static kb_time transfer_time(const ccl_bound_query *query, const bandwidths *out)
{
    wide bytes = query->size, others = query->world - 1;
    switch (query->kind) {
    case KB_ALL_REDUCE:
        return divide_round_up(2 * others * bytes * fs_per_s, out->sum);
    case KB_ALL_GATHER:
    case KB_REDUCE_SCATTER:
    case KB_ALL_TO_ALL:
        return divide_round_up(others * bytes * fs_per_s, out->sum);
    case KB_GATHER:
    case KB_SCATTER: /* any participant may be the root */
        return divide_round_up(others * bytes * fs_per_s, (wide)out->max * query->world);
    case KB_BROADCAST:
    case KB_REDUCE:
    case KB_SEND:
    case KB_RECV:
        return divide_round_up(bytes * fs_per_s, out->max);
    case KB_BARRIER:
    case KB_COLLECTIVES:
        break;
    }
    return 0;
}

static kb_time reduction_time(const ccl_bound_query *query)
{
    bool adds = query->kind == KB_ALL_REDUCE || query->kind == KB_REDUCE_SCATTER ||
                query->kind == KB_REDUCE;
    if (!adds)
        return 0;
    const topo_shape *shape = topo_machine_shape(query->machine);
    uint64_t pes = query->rank_is_pe ? 1 : (uint64_t)shape->cubes * shape->pes;
    wide elements = query->size / kb_dtype_bytes(query->dtype);
    wide passes = elements * (query->world - 1) * shape->pe.math_cycles[0];
    return divide_round_up(passes * (uint64_t)shape->pe.math_cycle_fs,
                           (wide)query->world * pes * shape->pe.math_lanes);
}

kb_error *ccl_bound_of(const ccl_bound_query *query, ccl_bound *bound)
{
    *bound = (ccl_bound){0};
    if (query->world < 2 || query->kind == KB_BARRIER)
        return NULL;
    bandwidths out;
    KB_TRY(sum_bandwidths(query, &out));
    if (out.sum == 0)
        return NULL;
    bound->gbs = (double)out.sum / query->world / (double)TOPO_GBS;
    bound->moving = transfer_time(query, &out);
    bound->adding = reduction_time(query);
    bound->time = bound->moving > bound->adding ? bound->moving : bound->adding;
    return NULL;
}

double ccl_bus_factor(kb_collective_kind kind, uint32_t world)
{
    double share = world > 0 ? (double)(world - 1) / world : 0;
    switch (kind) {
    case KB_ALL_REDUCE:
        return 2 * share;
    case KB_ALL_GATHER:
    case KB_REDUCE_SCATTER:
    case KB_ALL_TO_ALL:
    case KB_GATHER:
    case KB_SCATTER:
        return share;
    case KB_BROADCAST:
    case KB_REDUCE:
    case KB_SEND:
    case KB_RECV:
    case KB_BARRIER:
    case KB_COLLECTIVES:
        break;
    }
    return 1;
}
