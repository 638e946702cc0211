/*
 * lower_bound.c: the time that no algorithm can beat. Two things take time whatever the algorithm:
 *
 *   moving   what has to leave the participants, at the bandwidth that they have together. A sum of
 *            n buffers needs n - 1 transfers of each element to come about and n - 1 to be
 *            everywhere; other collectives need one of the two.
 *   adding   n - 1 additions an element, shared out evenly, at the rate of the vector engines.
 *
 * Exact: rounded up once, to the femtosecond. Ignores latencies, what launching takes, and that
 * ways may cross.
 */
#include "lower_bound.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

static const uint64_t fs_per_s = 1000000000000000;

static kb_time divide_up(wide a, wide b)
{
    wide quotient = a / b + (a % b != 0);
    return quotient > (wide)KB_FOREVER ? KB_FOREVER : (kb_time)quotient;
}

static uint64_t min_rate(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- Bandwidth out of a participant ---- */

/* The slowest link between two neighbours; UINT64_MAX if there is none. */
static uint64_t rate_between(const topo_machine *machine, uint32_t from, uint32_t to)
{
    const topo_graph *graph = topo_machine_graph(machine);
    for (uint32_t i = graph->first_out[from]; i < graph->first_out[from + 1]; i++)
        if (graph->links.items[graph->out[i]].to == to)
            return topo_link_rate(graph, graph->out[i]);
    return UINT64_MAX;
}

/* Out of the memory and through the port of a PE. */
static uint64_t out_of_pe(const ccl_bound_query *query, kb_pe pe)
{
    const topo_machine *machine = query->machine;
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t dma = topo_node_at(machine, TOPO_PE_DMA, pe.sip, pe.cube, pe.pe);
    uint32_t router =
        topo_node_at(machine, TOPO_ROUTER, pe.sip, pe.cube, topo_pe_router(machine, pe.pe));
    uint64_t port = rate_between(machine, dma, router);
    if (query->memory == KB_TCM)
        return min_rate(port, topo_machine_shape(machine)->pe.tcm_bytes_per_s);
    uint32_t slice = topo_node_at(machine, TOPO_HBM_CTRL, pe.sip, pe.cube, pe.pe);
    return min_rate(port, topo_link_rate(graph, graph->nodes.items[slice].service));
}

/* Through the ports of a SIP's cubes to its IO chiplet. */
static uint64_t out_of_cubes(const topo_machine *machine, uint32_t sip)
{
    uint32_t columns = topo_machine_shape(machine)->cube_w;
    uint32_t noc = topo_node_at(machine, TOPO_IO_NOC, sip, 0, 0);
    uint64_t sum = 0;
    for (uint32_t column = 0; column < columns; column++) {
        uint32_t inner = topo_node_at(machine, TOPO_UCIE, sip, column, TOPO_NORTH);
        uint32_t outer = topo_node_at(machine, TOPO_IO_UCIE, sip, 0, column);
        sum += min_rate(rate_between(machine, inner, outer), rate_between(machine, outer, noc));
    }
    return sum;
}

/* Where a link goes: the number of the SIP, or that of none for the switch. */
static uint32_t sip_of(const topo_graph *graph, uint32_t node)
{
    const topo_node *n = &graph->nodes.items[node];
    return n->kind == TOPO_SWITCH || n->kind == TOPO_HOST ? TOPO_NONE : n->sip;
}

/* The link by which the way to another SIP leaves this one. */
static uint32_t way_out(const topo_machine *machine, uint32_t from, uint32_t to, uint32_t *steps)
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

/*
 * By the links that its ways to the others leave by: that to the switch, or those to its neighbours
 * in the group. `seen` has room for as many links as there are others.
 */
static uint64_t out_of_sip(const ccl_bound_query *query, uint32_t rank, uint32_t *steps,
                           uint32_t *seen)
{
    const topo_machine *machine = query->machine;
    uint32_t sip = query->ranks[rank].sip, count = 0;
    uint64_t sum = 0;
    for (uint32_t other = 0; other < query->world; other++) {
        uint32_t to = query->ranks[other].sip;
        uint32_t link = to == sip ? TOPO_NONE : way_out(machine, sip, to, steps);
        bool is_new = link != TOPO_NONE;
        for (uint32_t i = 0; i < count && is_new; i++)
            is_new = seen[i] != link;
        if (!is_new)
            continue;
        seen[count++] = link;
        sum += topo_link_rate(topo_machine_graph(machine), link);
    }
    return min_rate(sum, out_of_cubes(machine, sip));
}

typedef struct outgoing {
    wide sum;      /* of all participants */
    uint64_t most; /* of one of them */
} outgoing;

static kb_error *all_outgoing(const ccl_bound_query *query, outgoing *out)
{
    *out = (outgoing){0};
    uint32_t *steps = NULL, *seen = NULL;
    if (!query->rank_is_pe) {
        steps = kb_alloc_array(topo_machine_shape(query->machine)->max_steps, sizeof *steps);
        seen = kb_alloc_array(query->world, sizeof *seen);
    }
    bool possible = query->rank_is_pe || (steps && seen);
    for (uint32_t rank = 0; rank < query->world && possible; rank++) {
        uint64_t rate = query->rank_is_pe ? out_of_pe(query, query->ranks[rank])
                                          : out_of_sip(query, rank, steps, seen);
        out->sum += rate;
        out->most = rate > out->most ? rate : out->most;
    }
    free(steps);
    free(seen);
    return possible ? NULL : kb_error_nomem();
}

/* ---- The two times ---- */

static kb_time moving_time(const ccl_bound_query *query, const outgoing *out)
{
    wide bytes = query->size, others = query->world - 1;
    switch (query->kind) {
    case KB_ALL_REDUCE:
        return divide_up(2 * others * bytes * fs_per_s, out->sum);
    case KB_ALL_GATHER:
    case KB_REDUCE_SCATTER:
    case KB_ALL_TO_ALL:
        return divide_up(others * bytes * fs_per_s, out->sum);
    case KB_GATHER:
    case KB_SCATTER: /* any participant may be the root */
        return divide_up(others * bytes * fs_per_s, (wide)out->most * query->world);
    case KB_BROADCAST:
    case KB_REDUCE:
    case KB_SEND:
    case KB_RECV:
        return divide_up(bytes * fs_per_s, out->most);
    case KB_BARRIER:
    case KB_COLLECTIVES:
        break;
    }
    return 0;
}

static kb_time adding_time(const ccl_bound_query *query)
{
    bool adds = query->kind == KB_ALL_REDUCE || query->kind == KB_REDUCE_SCATTER ||
                query->kind == KB_REDUCE;
    if (!adds)
        return 0;
    const topo_shape *shape = topo_machine_shape(query->machine);
    uint64_t pes = query->rank_is_pe ? 1 : (uint64_t)shape->cubes * shape->pes;
    wide elements = query->size / kb_dtype_bytes(query->dtype);
    wide passes = elements * (query->world - 1) * shape->pe.math_cycles[0];
    return divide_up(passes * (uint64_t)shape->pe.math_cycle_fs,
                     (wide)query->world * pes * shape->pe.math_lanes);
}

kb_error *ccl_bound_of(const ccl_bound_query *query, ccl_bound *bound)
{
    *bound = (ccl_bound){0};
    if (query->world < 2 || query->kind == KB_BARRIER)
        return NULL;
    outgoing out;
    KB_TRY(all_outgoing(query, &out));
    if (out.sum == 0)
        return NULL;
    bound->gbs = (double)out.sum / query->world / (double)TOPO_GBS;
    bound->moving = moving_time(query, &out);
    bound->adding = adding_time(query);
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
