/*
 * layout.h: which number every node and link has. Private to topo.
 *
 * Nodes and links are numbered in the order in which compile.c makes them:
 *
 *     host, switch, then SIP by SIP: the IO chiplet, then cube by cube
 *
 * All cubes are made alike but for their ports at the border of the mesh, which come last; and all
 * SIPs are alike but for their ports to other SIPs, which come last in the IO chiplet. So a number
 * is the sum of three offsets, and no route needs a search or a table that grows with the machine.
 */
#ifndef KB_TOPO_LAYOUT_H
#define KB_TOPO_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "description.h"
#include "node_graph.h"

/* Coordinates in a mesh; x grows to the east, y to the south. */
typedef struct topo_point {
    uint16_t x, y;
} topo_point;

static inline topo_side topo_opposite(topo_side side)
{
    return (topo_side)(((unsigned)side + 2) % TOPO_SIDES);
}

/* Links of a cube's port: to its router and back, and to the port across. */
enum { TOPO_PORT_IN, TOPO_PORT_OUT, TOPO_PORT_ACROSS, TOPO_PORT_LINKS };
/* Links of a PE. */
enum { TOPO_PE_TO_NOC, TOPO_NOC_TO_PE, TOPO_PE_TO_XBAR, TOPO_XBAR_TO_PE, TOPO_PE_LINKS };
/* Links of a memory. */
enum { TOPO_XBAR_TO_MEMORY, TOPO_MEMORY_TO_XBAR, TOPO_MEMORY_SERVICE, TOPO_MEMORY_LINKS };
/* Links of a router that has PEs, to the crossbar. */
enum { TOPO_NOC_TO_XBAR, TOPO_XBAR_TO_NOC, TOPO_GATE_LINKS };
/* Links of the M CPU. */
enum { TOPO_M_CPU_TO_NOC, TOPO_NOC_TO_M_CPU, TOPO_M_CPU_LINKS };
/* Links of an IO chiplet, before those of its columns. */
enum {
    TOPO_EP_TO_SWITCH,
    TOPO_SWITCH_TO_EP,
    TOPO_EP_TO_IO_NOC,
    TOPO_IO_NOC_TO_EP,
    TOPO_IO_CPU_TO_NOC,
    TOPO_NOC_TO_IO_CPU,
    TOPO_IO_LINKS
};
/* Links of a port to other SIPs: from the io_noc to it, and on to the io_noc of the neighbour. */
enum { TOPO_SIP_PORT_TO, TOPO_SIP_PORT_ACROSS, TOPO_SIP_PORT_LINKS };
/* Links of the host. */
enum { TOPO_HOST_TO_SWITCH, TOPO_SWITCH_TO_HOST, TOPO_HOST_LINKS };
/* Nodes of the system, and of an IO chiplet before those of its columns. */
enum { TOPO_NODE_HOST, TOPO_NODE_SWITCH, TOPO_SYSTEM_NODES };
enum { TOPO_NODE_EP, TOPO_NODE_IO_CPU, TOPO_NODE_IO_NOC, TOPO_IO_NODES };

/* A cube of a SIP; numbers count from the first of the SIP's cubes. TOPO_NONE: no such port. */
typedef struct topo_cube_layout {
    uint32_t first_node, first_link;
    uint32_t port_node[TOPO_SIDES];
    uint32_t port_link[TOPO_SIDES];
    topo_point at;
} topo_cube_layout;

typedef struct topo_sip_layout {
    uint32_t io_node, io_link;     /* the first of its IO chiplet */
    uint32_t cube_node, cube_link; /* the first of its cubes */
    uint32_t port_node[TOPO_SIDES];
    uint32_t port_link[TOPO_SIDES];
    topo_point at;
} topo_sip_layout;

typedef struct topo_pe_layout {
    topo_point at;
    uint16_t gate; /* its router's number among those that have PEs */
} topo_pe_layout;

typedef struct topo_layout {
    uint32_t sip_count, sip_w, sip_h;
    bool sip_links;
    bool sip_wraps_x, sip_wraps_y; /* there is a link from the last to the first */
    uint32_t cube_count, cube_w, cube_h;
    uint32_t noc_w, noc_h;
    uint32_t pe_count, gate_count;

    /* From a cube's first node. */
    uint32_t xbar_node, memory_node, m_cpu_node, pe_node; /* memories: the slices, then the SRAM */
    /* From a cube's first link. Links of the NOC are in order of the router that is further
     * north-west. */
    uint32_t east_link, west_link, south_link, north_link;
    uint32_t gate_link, memory_link, m_cpu_link, pe_link;

    topo_point port_at[TOPO_SIDES]; /* the routers of the ports */
    topo_point m_cpu_at;

    uint32_t node_count, link_count;
    topo_sip_layout *sips;
    topo_cube_layout *cubes;
    topo_pe_layout *pes;
} topo_layout;

/* The links that a machine would have, which may be more than is possible. */
uint64_t topo_layout_count_links(const topo_description *description);

KB_MUST_USE kb_error *topo_layout_init(topo_layout *layout, const topo_description *description);
void topo_layout_fini(topo_layout *layout);

/* The side of the mesh of SIPs is connected there: the SIP across, or TOPO_NONE. */
uint32_t topo_layout_sip_across(const topo_layout *layout, uint32_t sip, topo_side side);

/* The same for cubes; TOPO_NONE too where the IO chiplet is. */
uint32_t topo_layout_cube_across(const topo_layout *layout, uint32_t cube, topo_side side);

#endif
