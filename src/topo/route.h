/*
 * route.h: a route through the machine, link by link.
 *
 * A step is a link and the phase that the packet is in when it has passed it; the phase and the
 * direction (request or response) make the class of channels that the packet waits in, and they are
 * why the fabric cannot deadlock (docs/decisions/0007-routing.md).
 */
#ifndef KB_TOPO_ROUTE_H
#define KB_TOPO_ROUTE_H

#include <stdint.h>

typedef enum topo_phase {
    TOPO_BEFORE,  /* on the way to the destination's cube */
    TOPO_AFTER,   /* in the destination's cube */
    TOPO_WRAPPED, /* on a ring of SIPs, having passed its wrap-around */
} topo_phase;

enum { TOPO_PHASE_BITS = 2 };

static inline uint32_t topo_step(uint32_t link, topo_phase phase)
{
    return link << TOPO_PHASE_BITS | (uint32_t)phase;
}

static inline uint32_t topo_step_link(uint32_t step)
{
    return step >> TOPO_PHASE_BITS;
}

static inline topo_phase topo_step_phase(uint32_t step)
{
    return (topo_phase)(step & ((1u << TOPO_PHASE_BITS) - 1));
}

#endif
