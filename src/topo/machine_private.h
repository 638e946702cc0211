/* machine_private.h: what a compiled machine is made of. Private to topo. */
#ifndef KB_TOPO_MACHINE_PRIVATE_H
#define KB_TOPO_MACHINE_PRIVATE_H

#include "description.h"
#include "layout.h"
#include "machine.h"
#include "node_graph.h"

struct topo_machine {
    topo_graph graph;
    topo_layout layout;
    topo_shape shape;
    topo_description description;
    uint64_t hash;
    char *idle_settings; /* NULL if there are none */
};

/* Makes the graph of a machine whose description and layout are set. */
KB_MUST_USE kb_error *topo_compile(topo_machine *machine);

/* Whether every node can be reached from the host, and the host from every node. */
KB_MUST_USE kb_error *topo_check_reach(const topo_machine *machine);

/* An upper bound of the steps of a route. */
uint32_t topo_max_steps(const topo_layout *layout);

#endif
