/* board.h: a machine with its fabric and its control processors: what the tests of io share. */
#ifndef TESTS_IO_BOARD_H
#define TESTS_IO_BOARD_H

#include "support/expect.h"

#include "io/io.h"
#include "topo/random_machines.h"

typedef struct board {
    topo_machine *machine;
    kb_sim *sim;
    net *fabric;
    io *control;
} board;

/* Takes over the machine. */
static inline board board_make(topo_machine *machine, bool no_elision)
{
    const topo_shape *shape = topo_machine_shape(machine);
    net_options options = {.fabric = shape->fabric, .no_elision = no_elision};
    board b = {.machine = machine};
    expect_ok(kb_sim_create(NULL, &b.sim));
    expect_ok(net_create(b.sim, topo_machine_graph(machine), &options, &b.fabric));
    expect_ok(io_create(b.sim, machine, b.fabric, net_source_count(b.fabric), &b.control));
    return b;
}

/* Abandons what is under way. */
static inline void board_fini(board *b)
{
    kb_sim_abandon(b->sim);
    io_destroy(b->control);
    net_destroy(b->fabric);
    kb_sim_destroy(b->sim);
    topo_machine_destroy(b->machine);
}

/* One SIP of one cube with one router, and so many PEs there. */
static inline topo_machine *one_router(uint32_t pes)
{
    char text[256];
    snprintf(text, sizeof text,
             "system: { sips: { count: 1 } }\n"
             "sip: { cube_mesh: { w: 1, h: 1 } }\n"
             "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: %u } }\n",
             pes);
    return machine_of(text);
}

static inline kb_time sum_of(const net_completion *r)
{
    return r->overhead + r->wire + r->drain + r->queueing;
}

#endif
