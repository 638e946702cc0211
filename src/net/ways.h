/*
 * ways.h: orders to the transport between nodes of a machine.
 *
 *     net *fabric;
 *     KB_TRY(net_create_for(sim, machine, 0, false, &fabric));
 *     net_ways ways;
 *     KB_TRY(net_ways_init(&ways, machine));
 *     net_order order = net_ways_order(&ways, pe, slice, 4096, true);
 *     order.done = on_done;
 *     KB_TRY(net_submit(fabric, &order));
 */
#ifndef KB_NET_WAYS_H
#define KB_NET_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "topo/topo.h"
#include "transport.h"

/*
 * A fabric with the settings of the machine; its places in the order of events begin at
 * `first_source`. See net_options for no_elision.
 */
KB_MUST_USE kb_error *net_create_for(kb_sim *sim, const topo_machine *machine,
                                     uint32_t first_source, bool no_elision, net **out);

/* Room for the ways of one order at a time, so that none is allocated for each. */
typedef struct net_ways {
    const topo_machine *machine;
    uint32_t *out, *back;
} net_ways;

KB_MUST_USE kb_error *net_ways_init(net_ways *ways, const topo_machine *machine);
void net_ways_fini(net_ways *ways);

/*
 * The order of a write of `bytes` from a node to another, or of a read by `from` of bytes at `to`.
 * Its steps are in `ways`: good until that is used again.
 */
net_order net_ways_order(net_ways *ways, uint32_t from, uint32_t to, uint64_t bytes, bool read);

/* The same without steps, for an order that is only submitted: the net knows ways that were taken
 * before. */
static inline net_order net_ways_between(const net_ways *ways, uint32_t from, uint32_t to,
                                         uint64_t bytes, bool read)
{
    return (net_order){
        .machine = ways->machine,
        .from = from,
        .to = to,
        .out.bytes = read ? NET_REQUEST_BYTES : bytes,
        .back.bytes = read ? bytes : 0,
    };
}

#endif
