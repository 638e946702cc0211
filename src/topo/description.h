/*
 * description.h: what a description says, in numbers. Private to topo.
 *
 * Reading fills a description that holds defaults already, so a file may leave out every key. The
 * defaults are those of machines/default.yaml, which alone must be complete.
 */
#ifndef KB_TOPO_DESCRIPTION_H
#define KB_TOPO_DESCRIPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "component.h"
#include "machine.h"

enum {
    TOPO_MAX_NAME = 63,
    TOPO_MAX_SIPS = 4096,
    TOPO_MAX_SIDE = 64, /* of a mesh of cubes or of routers */
    TOPO_MAX_PES = 4096 /* of a cube */
};

/* A pair of links, one in each direction. */
typedef struct topo_wire {
    uint64_t bytes_per_s;
    uint64_t length_nm;
} topo_wire;

typedef struct topo_part {
    const topo_component *impl;
    topo_parameters is;
} topo_part;

typedef enum topo_corner { TOPO_NW, TOPO_NE, TOPO_SW, TOPO_SE, TOPO_CORNERS } topo_corner;

extern const char *const topo_corner_names[TOPO_CORNERS];

typedef struct topo_description {
    char name[TOPO_MAX_NAME + 1];

    uint64_t wire_delay; /* ns a mm, in parts of 10^9 */
    uint32_t sips, sip_w, sip_h;
    topo_sip_pattern sip_pattern;
    bool sip_links;
    topo_wire host_to_switch, sip_to_switch, sip_to_sip;

    topo_fabric_params fabric;

    uint32_t cube_w, cube_h;
    uint64_t cube_pitch_nm;
    topo_wire io; /* io_noc to what it joins */

    uint32_t noc_w, noc_h;
    topo_wire noc;          /* router to router */
    uint32_t pe_per_router; /* 0: PEs are at the corners */
    uint32_t pe_per_corner;
    uint32_t corner_count;
    topo_corner corners[TOPO_CORNERS];
    uint32_t pes;
    uint64_t xbar_length_nm; /* of every link of the crossbar */
    uint64_t ucie_to_noc, pe_to_noc, pe_to_xbar, noc_to_xbar, xbar_to_hbm, xbar_to_sram;
    uint64_t hbm_bytes;
    uint64_t tcm_bytes, tcm_reserved_bytes; /* the second is less */
    topo_pe_params pe;

    topo_part parts[TOPO_KINDS];
} topo_description;

/* Reads a whole file; what is wrong is noted there, and *description holds usable values anyway.
 */
void topo_description_read(topo_description *description, kb_config *config,
                           const topo_registry *registry);

/* The values of machines/default.yaml. */
KB_MUST_USE kb_error *topo_description_default(topo_description *description);

/* Of all that it says but the name: equal for equal machines, on every computer. */
uint64_t topo_description_hash(const topo_description *description);

/* See topo_machine_print_settings(). */
void topo_description_print(const topo_description *description, kb_text *text);

#endif
