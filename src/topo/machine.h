/*
 * machine.h: a machine compiled from its description.
 *
 *     topo_machine *machine;
 *     KB_TRY(topo_machine_load(&(topo_source){.path = "mine.yaml"}, &machine));
 *     uint32_t from = topo_node_at(machine, TOPO_PE_DMA, 0, 5, 3);
 *     uint32_t to = topo_node_at(machine, TOPO_HBM_CTRL, 1, 0, 0);
 *     uint32_t steps[...];      // topo_machine_shape(machine)->max_steps
 *     uint32_t count = topo_route(machine, from, to, true, steps);
 *     topo_machine_destroy(machine);
 *
 * A machine never changes once it is compiled, and may be shared by threads.
 */
#ifndef KB_TOPO_MACHINE_H
#define KB_TOPO_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "component.h"
#include "node_graph.h"
#include "route.h"

typedef struct topo_machine topo_machine;

/* Where a description comes from. All zeros is the default machine. */
typedef struct topo_source {
    const char *path; /* a file, or else the name of a built-in machine; NULL: "default" */
    const char *text; /* unless NULL: the description itself, which `path` stands for in messages */
    size_t length;
    const char *const *settings; /* "cube.noc.w=8": override the file's */
    size_t setting_count;
    topo_registry registry; /* components that `impl` may name besides the built-in ones */
} topo_source;

KB_MUST_USE kb_error *topo_machine_load(const topo_source *source, topo_machine **machine);
/* An error if a setting names a key that the machine of that source does not have. Values are not
 * looked at, except those that select components with keys of their own. */
KB_MUST_USE kb_error *topo_check_settings(const topo_source *source);

void topo_machine_destroy(topo_machine *machine);

/* The settings that leave the machine as it was: one line each, ready to print; NULL if none does.
 */
const char *topo_machine_idle_settings(const topo_machine *machine);

/* The built-in machines: names, and texts with their comments. Ends with a NULL name. */
typedef struct topo_builtin {
    const char *name;
    const char *text;
    size_t length;
} topo_builtin;
extern const topo_builtin topo_builtins[];

typedef enum topo_sip_pattern {
    TOPO_RING_1D,
    TOPO_TORUS_2D,
    TOPO_MESH_2D_NO_WRAP
} topo_sip_pattern;

/* The units of a PE. Classes of vector operations: moves and sums, divisions, exponentials. */
enum { TOPO_MATH_CLASSES = 4 };

typedef struct topo_pe_params {
    kb_time cpu_overhead_fs; /* from a launch's arrival to the first instruction */
    kb_time cpu_issue_fs;    /* to issue a command */
    uint32_t queue_depth;    /* commands that a unit holds before the pe_cpu waits */
    uint32_t dma_channels;   /* transfers under way at a time, each direction */
    uint32_t gemm_rows, gemm_columns;
    kb_time gemm_cycle_fs;
    bool gemm_fill_per_fold; /* else once a command */
    uint32_t math_lanes;
    kb_time math_cycle_fs;
    uint32_t math_cycles[TOPO_MATH_CLASSES]; /* of a class, for each pass over the lanes */
    uint32_t math_latency_cycles;
    uint64_t tcm_bytes_per_s; /* each direction */
} topo_pe_params;

/* What a control processor does with messages, and how long it takes: none delays another. */
typedef struct topo_control_params {
    kb_time decode_fs;  /* to take a command apart and send its parts on */
    kb_time count_fs;   /* to count a completion of a recorded command */
    kb_time trigger_fs; /* to start a recorded command */
} topo_control_params;

/* How the fabric moves packets; docs/decisions/0006-transport.md. */
typedef struct topo_fabric_params {
    uint32_t packet_bytes; /* maximum size of a packet */
    uint32_t vcs;          /* virtual channels of each class in a port */
    uint32_t depth_bytes;  /* buffer space of a channel, beside packets on the link */
    bool serial_ports;     /* a port sends one packet at a time, from one of its channels */
} topo_fabric_params;

/* What the description says, in numbers. */
typedef struct topo_shape {
    uint32_t sips;
    topo_sip_pattern sip_pattern;
    uint32_t sip_w, sip_h; /* sips x 1 for a ring */
    bool sip_links;        /* direct links along the pattern; else SIPs meet at the switch */
    uint32_t cube_w, cube_h, cubes; /* of a SIP */
    uint32_t noc_w, noc_h;
    uint32_t pes;                           /* of a cube */
    uint64_t pe_count;                      /* of the machine */
    uint64_t hbm_bytes;                     /* of a cube */
    uint64_t slice_bytes;                   /* of a PE's slice */
    uint64_t sram_bytes;                    /* of a cube */
    uint64_t tcm_bytes, tcm_reserved_bytes; /* of a PE, and what its scheduler keeps of it */
    topo_fabric_params fabric;
    topo_control_params io_cpu, m_cpu;
    topo_pe_params pe;
    uint32_t max_steps; /* no route has more */
} topo_shape;

const topo_shape *topo_machine_shape(const topo_machine *machine);
const topo_graph *topo_machine_graph(const topo_machine *machine);
const char *topo_machine_name(const topo_machine *machine); /* of the description, for reports */
uint64_t topo_machine_hash(const topo_machine *machine);    /* of all that it says but the name */

/*
 * Appends all that the description says, key by key, as "system.sips.count=2" with a line end each:
 * a complete description of the machine. Keys of which there is no default are left out where the
 * machine does not have them. cube.pe_layout is a mapping.
 */
void topo_machine_print_settings(const topo_machine *machine, kb_text *text);

/* The implementation that the description names for a kind of node; NULL for TOPO_SIP_PORT. */
const topo_component *topo_machine_component(const topo_machine *machine, topo_kind kind);

/*
 * The node with these coordinates (0 where they mean nothing), or TOPO_NONE if the machine has none
 * such.
 */
uint32_t topo_node_at(const topo_machine *machine, topo_kind kind, uint32_t sip, uint32_t cube,
                      uint32_t index);

/* The router that a PE is attached to: y * noc_w + x. */
uint32_t topo_pe_router(const topo_machine *machine, uint32_t pe);

/* Appends "sip0.cube5.pe3.pe_dma"; and for a link "sip0.cube0.xbar>sip0.cube0.sram". */
void topo_node_name(const topo_machine *machine, uint32_t node, kb_text *text);
void topo_link_name(const topo_machine *machine, uint32_t link, kb_text *text);
const char *topo_kind_name(topo_kind kind);
const char *topo_sip_pattern_name(topo_sip_pattern pattern);

/*
 * Writes the route between two nodes and returns the number of steps. `data`: memories at the ends
 * serve what is carried; false for requests, which only arrive there.
 *
 * Ends may be hosts, IO CPUs, PCIe endpoints, M CPUs, PEs' DMAs and memories, in any pair.
 */
uint32_t topo_route(const topo_machine *machine, uint32_t from, uint32_t to, bool data,
                    uint32_t *steps);

#endif
