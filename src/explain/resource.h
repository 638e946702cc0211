/*
 * resource.h: what time is spent at: the resources of a machine, as an architect would improve
 * them, and the keys of the machine file that do.
 */
#ifndef KB_EXPLAIN_RESOURCE_H
#define KB_EXPLAIN_RESOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "topo/topo.h"

typedef enum explain_resource {
    EXPLAIN_MATRIX,
    EXPLAIN_VECTOR,
    EXPLAIN_TCM,
    EXPLAIN_HBM_BANDWIDTH,
    EXPLAIN_HBM_LATENCY,
    EXPLAIN_SRAM,
    EXPLAIN_XBAR,
    EXPLAIN_NOC,
    EXPLAIN_UCIE,
    EXPLAIN_IO_NOC,
    EXPLAIN_SIP_LINKS,
    EXPLAIN_SWITCH,
    EXPLAIN_HOST_LINK,
    EXPLAIN_WIRES,
    EXPLAIN_DMA,
    EXPLAIN_CHANNELS, /* of the DMA: a capacity, never on a path itself */
    EXPLAIN_LAUNCH,
    EXPLAIN_ISSUE,
    EXPLAIN_QUEUE_DEPTH, /* capacities as well */
    EXPLAIN_SLOTS,
    EXPLAIN_PROGRAM, /* the host program, and what nothing of the machine is busy with */
    EXPLAIN_RESOURCES
} explain_resource;

const char *explain_resource_name(explain_resource resource); /* "HBM bandwidth" */
const char *explain_resource_key(explain_resource resource);  /* "hbm_bandwidth", as in JSON */

/* How time is spent there. */
typedef enum explain_aspect {
    EXPLAIN_WORK,      /* of engines and processors */
    EXPLAIN_DRAIN,     /* results on their way out of the matrix engine */
    EXPLAIN_LATENCY,   /* of nodes and wires on a route */
    EXPLAIN_BANDWIDTH, /* bytes over the slowest link of a route */
    EXPLAIN_QUEUEING,  /* waiting behind other transfers */
    EXPLAIN_ASPECTS
} explain_aspect;

const char *explain_aspect_name(explain_aspect aspect); /* "bandwidth" */

/* "HBM bandwidth", "NOC: waiting behind others". */
void explain_part_name(explain_resource resource, explain_aspect aspect, kb_text *text);

/* What the link belongs to, by its bandwidth; and what the node adds to the latency. */
explain_resource explain_resource_of_link(const topo_graph *graph, uint32_t link);
explain_resource explain_resource_of_node(const topo_node *node);

/* ---- Better ones ---- */

/*
 * The settings with this resource `numerator` / `denominator` times as good, one line each,
 * "cube.noc.bw_gbs=512": bandwidths and counts multiplied, times divided. Counts are whole: at
 * least one more. None if the machine does not have it. Those of EXPLAIN_SLOTS are of ccl.yaml.
 */
typedef struct explain_factor {
    uint32_t numerator, denominator;
} explain_factor;

void explain_better(const topo_machine *machine, explain_resource resource, explain_factor factor,
                    kb_text *settings);

#endif
