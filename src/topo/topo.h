/* topo.h: machines: from a description in YAML to a graph with routes. For the folders above. */
#ifndef KB_TOPO_TOPO_H
#define KB_TOPO_TOPO_H

#include "topo/component.h"
#include "topo/machine.h"
#include "topo/node_graph.h"
#include "topo/pe_index.h"
#include "topo/rate.h"
#include "topo/route.h"

#endif
