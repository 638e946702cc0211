/*
 * parts.c: what the time of a step was spent at. Parts of a step add up to it.
 *
 * A transfer's time is that of its route on an idle fabric (the latency of each node and wire, the
 * bytes over the slowest link) and the rest, which it waited behind others; the link where is found
 * in contention.c. What is left when the transfer has ended passes the TCM of the PE, or is work of
 * the control processor that gets the message. If the path leaves a step before its end, the parts
 * that come first count: latency, waiting, bandwidth.
 */
#include "path_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- Routes ------------------------------------------------------------------------------ */

static uint32_t node_of(const explain_recorder *r, const explain_record *record)
{
    if (r->sites.items[record->site].is_control)
        return record->at;
    const topo_shape *shape = topo_machine_shape(r->machine);
    uint32_t cube = record->at / shape->pes;
    return topo_node_at(r->machine, TOPO_PE_DMA, cube / shape->cubes, cube % shape->cubes,
                        record->at % shape->pes);
}

void explain_find_route(const explain_recorder *r, const explain_record *record,
                        explain_route *route)
{
    const topo_graph *graph = topo_machine_graph(r->machine);
    uint32_t from = node_of(r, record);
    route->count = route->data = 0;
    route->slowest = TOPO_NONE;
    if (record->node == TOPO_NONE || record->node == from)
        return;
    route->count = topo_route(r->machine, from, record->node, !record->read, route->steps);
    if (record->read) {
        route->data = route->count;
        route->count +=
            topo_route(r->machine, record->node, from, true, route->steps + route->count);
    }
    for (uint32_t i = 0; i < route->count; i++) {
        route->steps[i] = topo_step_link(route->steps[i]);
        if (i >= route->data &&
            (route->slowest == TOPO_NONE ||
             topo_link_rate(graph, route->steps[i]) < topo_link_rate(graph, route->slowest)))
            route->slowest = route->steps[i];
    }
}

/* ---- Parts of a step --------------------------------------------------------------------- */

typedef struct division {
    explain_path *path;
    explain_transfers *transfers;
    explain_route route;
    kb_time latency[EXPLAIN_RESOURCES]; /* of the route in hand */
    kb_time left;                       /* of the step */
    bool failed;
} division;

static void add_part(division *d, explain_resource resource, explain_aspect aspect, kb_time time,
                     uint32_t link)
{
    time = time < d->left ? time : d->left;
    if (time <= 0)
        return;
    d->left -= time;
    d->failed |= !kb_vec_push(&d->path->parts, ((explain_part){resource, aspect, time, link}));
}

static void add_latency_of(division *d, uint32_t link)
{
    const topo_graph *graph = topo_machine_graph(d->path->machine);
    const topo_link *l = &graph->links.items[link];
    d->latency[explain_resource_of_node(&graph->nodes.items[l->to])] +=
        topo_link_overhead(graph, link);
    d->latency[EXPLAIN_WIRES] += l->wire_fs;
}

static void divide_transfer(division *d, uint32_t id, const explain_record *record)
{
    const explain_recorder *r = d->path->recorder;
    const topo_graph *graph = topo_machine_graph(d->path->machine);
    uint32_t from = node_of(r, record);
    explain_find_route(r, record, &d->route);
    if (d->route.count == 0)
        return;
    memset(d->latency, 0, sizeof d->latency);
    d->latency[explain_resource_of_node(&graph->nodes.items[from])] +=
        topo_source_overhead(graph, from);
    for (uint32_t i = 0; i < d->route.count; i++)
        add_latency_of(d, d->route.steps[i]);
    for (int is = 0; is < EXPLAIN_RESOURCES; is++)
        add_part(d, (explain_resource)is, EXPLAIN_LATENCY, d->latency[is], TOPO_NONE);
    if (record->queueing > 0 && d->left > 0) {
        explain_contention at;
        kb_error *err = explain_contention_at(d->transfers, id, &at);
        d->failed |= err != NULL;
        kb_error_free(err);
        uint32_t link = at.link == TOPO_NONE ? d->route.slowest : at.link;
        add_part(d, explain_resource_of_link(graph, link), EXPLAIN_QUEUEING, record->queueing,
                 link);
    }
    add_part(d, explain_resource_of_link(graph, d->route.slowest), EXPLAIN_BANDWIDTH,
             record->bandwidth, d->route.slowest);
}

/* The results of a product leave the array 2 R + C - 2 cycles after its last operands came in. */
static kb_time drain_of(const topo_machine *machine)
{
    const topo_pe_params *pe = &topo_machine_shape(machine)->pe;
    return (kb_time)(2 * (uint64_t)pe->gemm_rows + pe->gemm_columns - 2) * pe->gemm_cycle_fs;
}

static void divide_product(division *d, const explain_step *step, const explain_record *record)
{
    bool fills_per_fold = topo_machine_shape(d->path->machine)->pe.gemm_fill_per_fold;
    kb_time drains = record->end - drain_of(d->path->machine);
    kb_time busy_until = drains > record->start ? drains : record->start;
    add_part(d, EXPLAIN_MATRIX, EXPLAIN_WORK,
             (step->to < busy_until ? step->to : busy_until) - step->from, TOPO_NONE);
    /* If the engine, not the result, was waited for, what held it up is a port of the TCM: the next
     * product does not wait for this one's drain. */
    bool is_held_up = step->led_by == KB_REASON_UNIT && step->to < record->end && !fills_per_fold;
    if (!is_held_up)
        add_part(d, EXPLAIN_MATRIX, EXPLAIN_DRAIN, d->left, TOPO_NONE);
}

static void divide_own(division *d, const explain_step *step, const explain_record *record)
{
    const explain_site *site = &d->path->recorder->sites.items[record->site];
    bool in_tcm = record->ended == KB_REASON_TCM;
    switch (site->unit) {
    case KB_UNIT_DMA_READ:
    case KB_UNIT_DMA_WRITE:
        divide_transfer(d, step->id, record);
        add_part(d, EXPLAIN_TCM, EXPLAIN_BANDWIDTH, d->left, TOPO_NONE);
        break;
    case KB_UNIT_HOST:
        divide_transfer(d, step->id, record);
        add_part(d, EXPLAIN_LAUNCH, EXPLAIN_WORK, d->left, TOPO_NONE);
        break;
    case KB_UNIT_GEMM:
        if (!in_tcm)
            divide_product(d, step, record);
        break;
    case KB_UNIT_MATH:
        if (!in_tcm)
            add_part(d, EXPLAIN_VECTOR, EXPLAIN_WORK, d->left, TOPO_NONE);
        break;
    case KB_UNIT_IPCQ:
        add_part(d, strcmp(site->name, "recv") == 0 ? EXPLAIN_PROGRAM : EXPLAIN_SLOTS,
                 EXPLAIN_LATENCY, d->left, TOPO_NONE);
        break;
    default:
        add_part(d, EXPLAIN_ISSUE, EXPLAIN_WORK, d->left, TOPO_NONE);
    }
    add_part(d, EXPLAIN_TCM, EXPLAIN_BANDWIDTH, d->left, TOPO_NONE);
}

static void divide(division *d, const explain_step *step)
{
    d->left = step->to - step->from;
    switch ((explain_step_kind)step->kind) {
    case EXPLAIN_OWN:
        divide_own(d, step, explain_record_at(d->path->recorder, step->id));
        break;
    case EXPLAIN_START:
        add_part(d, EXPLAIN_LAUNCH, EXPLAIN_WORK, d->left, TOPO_NONE);
        break;
    case EXPLAIN_POLL:
        add_part(d, EXPLAIN_ISSUE, EXPLAIN_WORK, d->left, TOPO_NONE);
        break;
    default:
        add_part(d, EXPLAIN_PROGRAM, EXPLAIN_WORK, d->left, TOPO_NONE);
    }
    KB_ASSERT(d->left == 0 || d->failed);
}

kb_error *explain_divide_path(explain_path *path)
{
    const explain_recorder *r = path->recorder;
    division d = {.path = path};
    d.route.steps =
        kb_alloc_array(2 * (size_t)topo_machine_shape(path->machine)->max_steps, sizeof(uint32_t));
    if (!d.route.steps)
        return kb_error_nomem();
    kb_error *err = explain_transfers_create(r, &d.transfers);
    for (size_t i = 0; i < path->steps.count && !err && !d.failed; i++) {
        d.failed |= !kb_vec_push(&path->first_part, (uint32_t)path->parts.count);
        divide(&d, &path->steps.items[i]);
    }
    d.failed |= !err && !kb_vec_push(&path->first_part, (uint32_t)path->parts.count);
    explain_transfers_destroy(d.transfers);
    free(d.route.steps);
    return err ? err : d.failed ? kb_error_nomem() : NULL;
}
