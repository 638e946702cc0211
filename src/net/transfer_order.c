/*
 * transfer_order.c: makes transfer orders. A write is one message with data. A read is a request
 * message and a response message with data. Memories spend service time on data only, not on
 * requests.
 */
#include "transfer_order.h"

#include <stdlib.h>

kb_error *net_create_for(kb_sim *sim, const topo_machine *machine, uint32_t first_source,
                         bool no_elision, net **out)
{
    net_options options = {
        .fabric = topo_machine_shape(machine)->fabric,
        .first_source = first_source,
        .no_elision = no_elision,
    };
    return net_create(sim, topo_machine_graph(machine), &options, out);
}

kb_error *net_route_buffer_init(net_route_buffer *buffer, const topo_machine *machine)
{
    uint32_t max_steps = topo_machine_shape(machine)->max_steps;
    *buffer = (net_route_buffer){
        .machine = machine,
        .request = kb_alloc_array(max_steps, sizeof *buffer->request),
        .response = kb_alloc_array(max_steps, sizeof *buffer->response),
    };
    if (buffer->request && buffer->response)
        return NULL;
    net_route_buffer_fini(buffer);
    return kb_error_nomem();
}

void net_route_buffer_fini(net_route_buffer *buffer)
{
    free(buffer->request);
    free(buffer->response);
    *buffer = (net_route_buffer){0};
}

net_order net_make_order(net_route_buffer *buffer, uint32_t from, uint32_t to, uint64_t bytes,
                         bool read)
{
    net_order order = net_make_order_by_nodes(buffer, from, to, bytes, read);
    order.request.steps = buffer->request;
    order.request.count = topo_route(buffer->machine, from, to, !read, buffer->request);
    if (read) {
        order.response.steps = buffer->response;
        order.response.count = topo_route(buffer->machine, to, from, true, buffer->response);
    }
    return order;
}
