/*
 * pe_index.h: the indices and names of cubes and PEs. PEs count SIP by SIP, then cube by cube:
 * those of a cube are next to each other.
 */
#ifndef KB_TOPO_PE_INDEX_H
#define KB_TOPO_PE_INDEX_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "machine.h"

static inline uint64_t topo_cube_index(const topo_shape *shape, kb_pe pe)
{
    return (uint64_t)pe.sip * shape->cubes + pe.cube;
}

static inline uint64_t topo_pe_index(const topo_shape *shape, kb_pe pe)
{
    return topo_cube_index(shape, pe) * shape->pes + pe.pe;
}

static inline kb_pe topo_pe_at(const topo_shape *shape, uint64_t index)
{
    uint64_t cube = index / shape->pes;
    return (kb_pe){.sip = (uint32_t)(cube / shape->cubes),
                   .cube = (uint32_t)(cube % shape->cubes),
                   .pe = (uint32_t)(index % shape->pes)};
}

static inline bool topo_has_pe(const topo_shape *shape, kb_pe pe)
{
    return pe.sip < shape->sips && pe.cube < shape->cubes && pe.pe < shape->pes;
}

/* "sip0.cube5.pe3", to print as topo_pe_name(pe).text. */
typedef struct topo_pe_text {
    char text[sizeof "sip4294967295.cube4294967295.pe4294967295"];
} topo_pe_text;

topo_pe_text topo_pe_name(kb_pe pe);
topo_pe_text topo_cube_name(kb_pe pe); /* "sip0.cube5" */

#endif
