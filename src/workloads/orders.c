/*
 * orders.c: a write is one leg that carries data; a read is a leg that carries a request, and one
 * back that carries the data. Memories serve data alone: requests only arrive there.
 */
#include "orders.h"

#include <stdlib.h>

kb_error *workload_net(kb_sim *sim, const topo_machine *machine, net **out)
{
    const topo_shape *shape = topo_machine_shape(machine);
    net_options options = {
        .packet_bytes = shape->packet_bytes,
        .vcs = shape->vcs,
        .depth_bytes = shape->depth_bytes,
        .serial_ports = shape->serial_ports,
    };
    return net_create(sim, topo_machine_graph(machine), &options, out);
}

kb_error *workload_route_init(workload_route *route, const topo_machine *machine)
{
    uint32_t max_steps = topo_machine_shape(machine)->max_steps;
    *route = (workload_route){
        .machine = machine,
        .out = kb_alloc_array(max_steps, sizeof *route->out),
        .back = kb_alloc_array(max_steps, sizeof *route->back),
    };
    if (route->out && route->back)
        return NULL;
    workload_route_fini(route);
    return kb_error_nomem();
}

void workload_route_fini(workload_route *route)
{
    free(route->out);
    free(route->back);
    *route = (workload_route){0};
}

net_order workload_order(workload_route *route, uint32_t from, uint32_t to, uint64_t bytes,
                         bool read)
{
    net_order order = {.from = from};
    order.out = (net_leg){
        .steps = route->out,
        .count = topo_route(route->machine, from, to, !read, route->out),
        .bytes = read ? NET_REQUEST_BYTES : bytes,
    };
    if (read) {
        order.back = (net_leg){
            .steps = route->back,
            .count = topo_route(route->machine, to, from, true, route->back),
            .bytes = bytes,
        };
    }
    return order;
}

kb_error *workload_submit(net *n, workload_route *route, uint32_t from, uint32_t to, uint64_t bytes,
                          bool read, bool plain, net_done_fn *done, void *self, uint64_t arg)
{
    net_order order = workload_order(route, from, to, bytes, read);
    order.plain = plain;
    order.done = done;
    order.self = self;
    order.arg = arg;
    return net_submit(n, &order);
}
