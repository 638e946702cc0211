/* probe_private.h: what probe.c and probe_load.c share. */
#ifndef KB_MEASURE_PROBE_PRIVATE_H
#define KB_MEASURE_PROBE_PRIVATE_H

#include <stdint.h>

#include "net/net.h"
#include "probe.h"

typedef struct probe_ends {
    uint32_t from, to;
} probe_ends;

/* The ends of a case that the machine has. PE `source` stands for PE 0. */
probe_ends probe_find_ends(net_route_buffer *routes, size_t which, uint32_t source);

/* How many such ends there are. */
uint32_t probe_source_count(const topo_machine *machine, size_t which);

#endif
