/*
 * node_graph.h: a machine as the transport sees it: nodes that delay, and directed links that are
 * occupied. Dense arrays, indexed by small integers.
 *
 * A memory (an HBM slice, the SRAM) is a node with a *service link* from itself to itself: reads
 * and writes pass it once each, which makes it the one server that they share, and the access
 * latency is charged at its end. So the latency behind a link is its wire and the overhead of the
 * node it ends in, except that a memory's overhead is charged behind its service link alone.
 *
 *     topo_graph graph = {0};
 *     uint32_t a = topo_graph_add_node(&graph, (topo_node){.overhead_fs = 5 * KB_NS});
 *     uint32_t b = topo_graph_add_node(&graph, (topo_node){0});
 *     uint32_t ab = topo_graph_add_link(&graph, a, b, 256 * TOPO_GBS, 25 * KB_PS);
 *     KB_TRY(topo_graph_finish(&graph));
 *     ...
 *     topo_graph_fini(&graph);
 */
#ifndef KB_TOPO_NODE_GRAPH_H
#define KB_TOPO_NODE_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "rate.h"

#define TOPO_NONE UINT32_MAX

/* One GB/s in bytes a second. */
#define TOPO_GBS ((uint64_t)1000000000)

/* Of topo_fabric_params. */
enum { TOPO_MAX_PACKET_BYTES = 1 << 20, TOPO_MAX_VCS = 63, TOPO_MAX_DEPTH_BYTES = 1 << 25 };

/* A link has two source ids in the order of events, and these are 24 bits (kb_source). */
#define TOPO_MAX_LINKS ((1u << 23) - 1)

typedef enum topo_kind {
    TOPO_HOST,
    TOPO_SWITCH,
    TOPO_PCIE_EP,
    TOPO_IO_CPU,
    TOPO_IO_NOC,
    TOPO_IO_UCIE,  /* index: the column of cubes it serves */
    TOPO_SIP_PORT, /* of a direct link between SIPs; index: a topo_side */
    TOPO_ROUTER,   /* index: y * width + x */
    TOPO_UCIE,     /* index: a topo_side */
    TOPO_XBAR,
    TOPO_HBM_CTRL, /* index: the slice, which is the PE it belongs to */
    TOPO_SRAM,
    TOPO_M_CPU,
    TOPO_PE_DMA, /* index: the PE */
    TOPO_KINDS
} topo_kind;

typedef enum topo_side { TOPO_NORTH, TOPO_EAST, TOPO_SOUTH, TOPO_WEST, TOPO_SIDES } topo_side;

typedef struct topo_node {
    kb_time overhead_fs;
    uint32_t service; /* a memory's link to itself, TOPO_NONE for others */
    uint16_t sip;     /* 0 for host and switch */
    uint16_t cube;    /* in its SIP; 0 for what is in none */
    uint16_t index;   /* among those of its kind there */
    uint8_t kind;     /* a topo_kind */
} topo_node;

typedef struct topo_link {
    uint32_t from, to;
    uint32_t rate; /* index into the graph's rates */
    kb_time wire_fs;
} topo_link;

typedef struct topo_graph {
    KB_VEC(topo_node) nodes;
    KB_VEC(topo_link) links;
    KB_VEC(uint64_t) rates; /* the different bandwidths, in bytes a second */
    uint32_t *first_out; /* links out of node n: out[first_out[n]] .. out[first_out[n + 1]] - 1 */
    uint32_t *out;
    bool failed; /* memory ran out while it was built; finish says so */
} topo_graph;

/* Both return the new index, which means nothing once memory has run out. */
uint32_t topo_graph_add_node(topo_graph *graph, topo_node node);
uint32_t topo_graph_add_link(topo_graph *graph, uint32_t from, uint32_t to, uint64_t bytes_per_s,
                             kb_time wire_fs);

/* Makes the node a memory with that bandwidth. Its overhead is the access latency from then on. */
void topo_graph_add_service(topo_graph *graph, uint32_t node, uint64_t bytes_per_s);

/* Makes the lists of outgoing links. Nothing is added afterwards. */
KB_MUST_USE kb_error *topo_graph_finish(topo_graph *graph);
void topo_graph_fini(topo_graph *graph);

static inline uint64_t topo_link_rate(const topo_graph *graph, uint32_t link)
{
    return graph->rates.items[graph->links.items[link].rate];
}

/* Whether the node is a control processor. The transport does not charge the overhead of these: it
 * depends on what they do with a message, so src/io charges it. */
static inline bool topo_is_control(const topo_node *node)
{
    return node->kind == TOPO_IO_CPU || node->kind == TOPO_M_CPU;
}

/* What the node behind the link adds to what passes it. */
static inline kb_time topo_link_overhead(const topo_graph *graph, uint32_t link)
{
    uint32_t to = graph->links.items[link].to;
    const topo_node *node = &graph->nodes.items[to];
    bool charged = node->service == TOPO_NONE || node->service == link;
    return charged && !topo_is_control(node) ? node->overhead_fs : 0;
}

/* What a transfer that starts at the node waits before its first link. */
static inline kb_time topo_source_overhead(const topo_graph *graph, uint32_t node)
{
    const topo_node *source = &graph->nodes.items[node];
    bool charged = source->service == TOPO_NONE && !topo_is_control(source);
    return charged ? source->overhead_fs : 0;
}

#endif
