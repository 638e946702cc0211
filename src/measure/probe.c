/*
 * probe.c: lone transfers. One simulator and one fabric serve all of them, one after the other: an
 * idle fabric is as good as a new one.
 *
 * Near and far are counted in links. Of equally near cubes the first is taken, of equally far ones
 * the last.
 */
#include "probe.h"

#include <stdlib.h>

#include "probe_private.h"

const probe_case probe_cases[] = {
    {"h2d-near", "the host writes to HBM of the nearest cube of SIP 0", PROBE_NEAR_CUBE, false},
    {"h2d-far", "the host writes to HBM of the farthest cube of SIP 0", PROBE_FAR_CUBE, false},
    {"d2h-near", "the host reads HBM of the nearest cube of SIP 0", PROBE_NEAR_CUBE, true},
    {"d2h-far", "the host reads HBM of the farthest cube of SIP 0", PROBE_FAR_CUBE, true},
    {"pe-local-hbm", "a PE reads its own slice of HBM", PROBE_OWN_SLICE, true},
    {"pe-local-hbm-write", "a PE writes to its own slice of HBM", PROBE_OWN_SLICE, false},
    {"pe-other-slice", "a PE reads another slice of its cube", PROBE_OTHER_SLICE, true},
    {"pe-other-slice-write", "a PE writes to another slice of its cube", PROBE_OTHER_SLICE, false},
    {"pe-sram", "a PE reads the SRAM of its cube", PROBE_SRAM, true},
    {"pe-sram-write", "a PE writes to the SRAM of its cube", PROBE_SRAM, false},
    {"pe-remote-cube-near", "a PE reads HBM of the nearest other cube", PROBE_NEAR_REMOTE_CUBE,
     true},
    {"pe-remote-cube-near-write", "a PE writes to HBM of the nearest other cube",
     PROBE_NEAR_REMOTE_CUBE, false},
    {"pe-remote-cube-far", "a PE reads HBM of the farthest cube of its SIP", PROBE_FAR_REMOTE_CUBE,
     true},
    {"pe-remote-cube-far-write", "a PE writes to HBM of the farthest cube of its SIP",
     PROBE_FAR_REMOTE_CUBE, false},
    {"pe-remote-sip", "a PE reads HBM of the same cube of the nearest other SIP", PROBE_REMOTE_SIP,
     true},
    {"pe-remote-sip-write", "a PE writes to HBM of the same cube of the nearest other SIP",
     PROBE_REMOTE_SIP, false},
};
const size_t probe_case_count = sizeof probe_cases / sizeof probe_cases[0];

const char *probe_missing(const topo_machine *machine, size_t which)
{
    const topo_shape *shape = topo_machine_shape(machine);
    switch (probe_cases[which].target) {
    case PROBE_OTHER_SLICE:
        return shape->pes < 2 ? "its cubes have one slice each" : NULL;
    case PROBE_FAR_CUBE:
    case PROBE_NEAR_REMOTE_CUBE:
    case PROBE_FAR_REMOTE_CUBE:
        return shape->cubes < 2 ? "its SIPs have one cube each" : NULL;
    case PROBE_REMOTE_SIP:
        return shape->sips < 2 ? "it has one SIP" : NULL;
    default:
        return NULL;
    }
}

/* ---- Ends -------------------------------------------------------------------------------- */

static uint32_t hops(net_route_buffer *routes, uint32_t from, uint32_t to)
{
    return topo_route(routes->machine, from, to, true, routes->request);
}

/* The slice in the nearest or farthest cube of SIP 0. `first`: the first cube that counts. */
static uint32_t slice_by_hops(net_route_buffer *routes, uint32_t from, uint32_t first,
                              uint32_t slice, bool far)
{
    uint32_t best = TOPO_NONE, best_hops = 0;
    for (uint32_t cube = first; cube < topo_machine_shape(routes->machine)->cubes; cube++) {
        uint32_t to = topo_node_at(routes->machine, TOPO_HBM_CTRL, 0, cube, slice);
        uint32_t count = hops(routes, from, to);
        if (best == TOPO_NONE || (far ? count >= best_hops : count < best_hops)) {
            best = to;
            best_hops = count;
        }
    }
    return best;
}

static uint32_t slice_of_other_sip(net_route_buffer *routes, uint32_t from, uint32_t slice)
{
    uint32_t best = TOPO_NONE, best_hops = 0;
    for (uint32_t sip = 1; sip < topo_machine_shape(routes->machine)->sips; sip++) {
        uint32_t to = topo_node_at(routes->machine, TOPO_HBM_CTRL, sip, 0, slice);
        uint32_t count = hops(routes, from, to);
        if (best == TOPO_NONE || count < best_hops) {
            best = to;
            best_hops = count;
        }
    }
    return best;
}

static bool starts_at_host(size_t which)
{
    probe_target target = probe_cases[which].target;
    return target == PROBE_NEAR_CUBE || target == PROBE_FAR_CUBE;
}

uint32_t probe_source_count(const topo_machine *machine, size_t which)
{
    return starts_at_host(which) ? 1 : topo_machine_shape(machine)->pes;
}

static uint32_t find_target(net_route_buffer *routes, size_t which, uint32_t from, uint32_t source)
{
    uint32_t pes = topo_machine_shape(routes->machine)->pes;
    switch (probe_cases[which].target) {
    case PROBE_NEAR_CUBE:
        return slice_by_hops(routes, from, 0, 0, false);
    case PROBE_FAR_CUBE:
        return slice_by_hops(routes, from, 0, 0, true);
    case PROBE_OWN_SLICE:
        return topo_node_at(routes->machine, TOPO_HBM_CTRL, 0, 0, source);
    case PROBE_OTHER_SLICE: /* the one before, so that every slice has one visitor */
        return topo_node_at(routes->machine, TOPO_HBM_CTRL, 0, 0, (source + pes - 1) % pes);
    case PROBE_SRAM:
        return topo_node_at(routes->machine, TOPO_SRAM, 0, 0, 0);
    case PROBE_NEAR_REMOTE_CUBE:
        return slice_by_hops(routes, from, 1, source, false);
    case PROBE_FAR_REMOTE_CUBE:
        return slice_by_hops(routes, from, 1, source, true);
    case PROBE_REMOTE_SIP:
        return slice_of_other_sip(routes, from, source);
    }
    return TOPO_NONE;
}

probe_ends probe_find_ends(net_route_buffer *routes, size_t which, uint32_t source)
{
    topo_kind kind = starts_at_host(which) ? TOPO_HOST : TOPO_PE_DMA;
    uint32_t from = topo_node_at(routes->machine, kind, 0, 0, source);
    probe_ends ends = {.from = from, .to = find_target(routes, which, from, source)};
    KB_ASSERT(ends.from != TOPO_NONE && ends.to != TOPO_NONE);
    return ends;
}

/* ---- Making ------------------------------------------------------------------------------ */

struct probe {
    const topo_machine *machine;
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
};

kb_error *probe_create(const topo_machine *machine, probe **out)
{
    *out = NULL;
    probe *p = kb_alloc_zeroed(1, sizeof *p);
    if (!p)
        return kb_error_nomem();
    p->machine = machine;
    kb_error *err = kb_sim_create(NULL, &p->sim);
    if (!err)
        err = net_create_for(p->sim, machine, 0, false, &p->fabric);
    if (!err)
        err = net_route_buffer_init(&p->routes, machine);
    if (err) {
        probe_destroy(p);
        return err;
    }
    *out = p;
    return NULL;
}

void probe_destroy(probe *p)
{
    if (!p)
        return;
    if (p->sim)
        kb_sim_abandon(p->sim);
    net_route_buffer_fini(&p->routes);
    net_destroy(p->fabric);
    kb_sim_destroy(p->sim);
    free(p);
}

/* ---- Measuring --------------------------------------------------------------------------- */

typedef struct observer {
    probe_result *result;
    const topo_graph *graph;
    kb_time issued;
    bool back; /* the way back has begun */
    bool failed;
} observer;

static void add_stop(observer *o, probe_stop stop)
{
    if (!kb_vec_push(&o->result->stops, stop))
        o->failed = true;
}

/* The first packet starts on a link: its head will be at the end of it one wire later. */
static void on_booking(void *self, const net_booking *booking)
{
    observer *o = self;
    if (booking->packet != 0)
        return;
    const topo_link *link = &o->graph->links.items[booking->link];
    if (booking->is_response && !o->back) {
        /* The request was there when its last byte was, and then the answer began. */
        o->back = true;
        probe_stop *turn = &o->result->stops.items[o->result->stops.count - 1];
        turn->at = booking->ready_at - o->issued - topo_source_overhead(o->graph, link->from);
    }
    add_stop(o, (probe_stop){.node = link->to,
                             .link = booking->link,
                             .back = booking->is_response,
                             .at = kb_time_add(booking->start, link->wire_fs) - o->issued});
}

static void on_done(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    observer *o = self;
    o->result->completion = *completion;
    o->result->completion.issued = 0;
    o->result->completion.ended -= completion->issued;
    o->result->stops.items[o->result->stops.count - 1].at = completion->ended - completion->issued;
}

static uint32_t slowest_link(const topo_graph *graph, const net_message *message)
{
    uint32_t slowest = topo_step_link(message->steps[0]);
    for (uint32_t i = 1; i < message->count; i++) {
        uint32_t link = topo_step_link(message->steps[i]);
        if (topo_link_rate(graph, link) < topo_link_rate(graph, slowest))
            slowest = link;
    }
    return slowest;
}

kb_error *probe_measure(probe *p, size_t which, uint64_t bytes, probe_result *result)
{
    KB_ASSERT(!probe_missing(p->machine, which));
    probe_ends ends = probe_find_ends(&p->routes, which, 0);
    *result = (probe_result){.from = ends.from, .to = ends.to, .bytes = bytes};
    const topo_graph *graph = topo_machine_graph(p->machine);
    observer o = {.result = result, .graph = graph, .issued = kb_sim_now(p->sim)};
    net_order order =
        net_make_order(&p->routes, ends.from, ends.to, bytes, probe_cases[which].read);
    order.done = on_done;
    order.self = &o;
    result->bottleneck =
        slowest_link(graph, order.response.bytes > 0 ? &order.response : &order.request);

    /* Room for all stops, so that on_done has one to write to. */
    if (!kb_vec_reserve(&result->stops, (size_t)order.request.count + order.response.count + 1))
        return kb_error_nomem();
    add_stop(&o, (probe_stop){.node = ends.from, .link = TOPO_NONE});
    net_watch(p->fabric, on_booking, &o);
    kb_error *err = net_submit(p->fabric, &order);
    if (!err)
        err = kb_sim_run(p->sim, KB_FOREVER);
    net_watch(p->fabric, NULL, NULL);
    KB_ASSERT(!o.failed);
    if (err)
        probe_result_fini(result);
    return err;
}

void probe_result_fini(probe_result *result)
{
    kb_vec_fini(&result->stops);
}
