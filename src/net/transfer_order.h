/*
 * transfer_order.h: transfer orders between nodes of a machine.
 *
 *     net *fabric;
 *     KB_TRY(net_create_for(sim, machine, 0, false, &fabric));
 *     net_route_buffer routes;
 *     KB_TRY(net_route_buffer_init(&routes, machine));
 *     net_order order = net_make_order(&routes, pe, slice, 4096, true);
 *     order.done = on_done;
 *     KB_TRY(net_submit(fabric, &order));
 */
#ifndef KB_NET_ORDER_H
#define KB_NET_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "topo/topo.h"
#include "transport.h"

/*
 * Creates a fabric with the settings of the machine. Its source ids begin at `first_source`. See
 * net_options for no_elision.
 */
KB_MUST_USE kb_error *net_create_for(kb_sim *sim, const topo_machine *machine,
                                     uint32_t first_source, bool no_elision, net **out);

/* Holds the route steps of one order at a time, so that orders need no allocation. */
typedef struct net_route_buffer {
    const topo_machine *machine;
    uint32_t *request, *response;
} net_route_buffer;

KB_MUST_USE kb_error *net_route_buffer_init(net_route_buffer *buffer, const topo_machine *machine);
void net_route_buffer_fini(net_route_buffer *buffer);

/*
 * Returns an order to write `bytes` from node `from` to node `to`, or to read them at `to`. Its
 * route steps lie in `buffer` and are valid until the buffer is used again.
 */
net_order net_make_order(net_route_buffer *buffer, uint32_t from, uint32_t to, uint64_t bytes,
                         bool read);

/* The same without route steps, for an order that is only submitted: net_submit() finds the route
 * in its route cache. */
static inline net_order net_make_order_by_nodes(const net_route_buffer *buffer, uint32_t from,
                                                uint32_t to, uint64_t bytes, bool read)
{
    return (net_order){
        .machine = buffer->machine,
        .from = from,
        .to = to,
        .request.bytes = read ? NET_REQUEST_BYTES : bytes,
        .response.bytes = read ? bytes : 0,
    };
}

#endif
