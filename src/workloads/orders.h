/*
 * orders.h: transfers between the nodes of a machine, for programs that make traffic.
 *
 *     net *fabric;
 *     KB_TRY(workload_net(sim, machine, &fabric));
 *     workload_route route;
 *     KB_TRY(workload_route_init(&route, machine));
 *     KB_TRY(workload_submit(fabric, &route, pe, slice, 4096, true, false, on_done, me, 0));
 */
#ifndef KB_WORKLOADS_ORDERS_H
#define KB_WORKLOADS_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "net/net.h"
#include "topo/topo.h"

/* A fabric with the settings of the machine. */
KB_MUST_USE kb_error *workload_net(kb_sim *sim, const topo_machine *machine, net **out);

/* Room for the routes of one order at a time, so that none is allocated for each. */
typedef struct workload_route {
    const topo_machine *machine;
    uint32_t *out, *back;
} workload_route;

KB_MUST_USE kb_error *workload_route_init(workload_route *route, const topo_machine *machine);
void workload_route_fini(workload_route *route);

/*
 * The order of a write of `bytes` from a node to another, or of a read by `from` of bytes at `to`.
 * Its steps are in `route`: good until that is used again.
 */
net_order workload_order(workload_route *route, uint32_t from, uint32_t to, uint64_t bytes,
                         bool read);

KB_MUST_USE kb_error *workload_submit(net *n, workload_route *route, uint32_t from, uint32_t to,
                                      uint64_t bytes, bool read, bool plain, net_done_fn *done,
                                      void *self, uint64_t arg);

#endif
