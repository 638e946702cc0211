/*
 * ways.c: a write is one leg that carries data; a read is a leg that carries a request, and one
 * back that carries the data. Memories serve data alone: requests only arrive there.
 */
#include "ways.h"

#include <stdlib.h>

kb_error *net_create_for(kb_sim *sim, const topo_machine *machine, uint32_t first_source,
                         bool no_elision, net **out)
{
    const topo_shape *shape = topo_machine_shape(machine);
    net_options options = {
        .packet_bytes = shape->packet_bytes,
        .vcs = shape->vcs,
        .depth_bytes = shape->depth_bytes,
        .serial_ports = shape->serial_ports,
        .first_source = first_source,
        .no_elision = no_elision,
    };
    return net_create(sim, topo_machine_graph(machine), &options, out);
}

kb_error *net_ways_init(net_ways *ways, const topo_machine *machine)
{
    uint32_t max_steps = topo_machine_shape(machine)->max_steps;
    *ways = (net_ways){
        .machine = machine,
        .out = kb_alloc_array(max_steps, sizeof *ways->out),
        .back = kb_alloc_array(max_steps, sizeof *ways->back),
    };
    if (ways->out && ways->back)
        return NULL;
    net_ways_fini(ways);
    return kb_error_nomem();
}

void net_ways_fini(net_ways *ways)
{
    free(ways->out);
    free(ways->back);
    *ways = (net_ways){0};
}

net_order net_ways_order(net_ways *ways, uint32_t from, uint32_t to, uint64_t bytes, bool read)
{
    net_order order = net_ways_between(ways, from, to, bytes, read);
    order.out.steps = ways->out;
    order.out.count = topo_route(ways->machine, from, to, !read, ways->out);
    if (read) {
        order.back.steps = ways->back;
        order.back.count = topo_route(ways->machine, to, from, true, ways->back);
    }
    return order;
}
