/*
 * component.h: the implementations that a description can name with `impl`.
 *
 *     router: { impl: mine.router, overhead_ns: 0.5, arbiter: age }
 *
 * The ones that ship are called builtin.*, one for each kind of node. Others are handed over with
 * the source of the machine (topo_source), so nothing is registered for the whole process.
 */
#ifndef KB_TOPO_COMPONENT_H
#define KB_TOPO_COMPONENT_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "graph.h"

/* What the compiled machine knows of a component. */
typedef struct topo_parameters {
    kb_time overhead_fs;      /* a memory's access latency */
    uint64_t bytes_per_s;     /* of a memory: raw bandwidth * efficiency */
    uint64_t raw_bytes_per_s; /* of a memory, before its efficiency */
    uint64_t efficiency;      /* in parts of 10^9 */
    uint64_t bytes;           /* what the SRAM holds */
    kb_time count_fs;         /* of a control processor: see topo_control_params */
    kb_time trigger_fs;
} topo_parameters;

typedef struct topo_component {
    const char *name; /* "builtin.switch" */
    topo_kind kind;

    /* Reads its settings. what is in *parameters before are the values of the default machine. */
    void (*read)(kb_config_node *settings, topo_parameters *parameters);
} topo_component;

/* The components that a description may name. */
typedef struct topo_registry {
    const topo_component *const *others; /* besides the built-in ones */
    size_t other_count;
} topo_registry;

/* NULL if there is none of that name. */
const topo_component *topo_component_find(const topo_registry *registry, const char *name);

/* Offers the names of all components of a kind. */
void topo_component_offer(const topo_registry *registry, topo_kind kind, kb_suggestion *near);

/* The one that ships. A port to the cubes in the IO chiplet is a ucie; NULL for TOPO_SIP_PORT. */
const topo_component *topo_component_builtin(topo_kind kind);

#endif
