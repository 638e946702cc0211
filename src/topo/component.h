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
#include "key.h"
#include "node_graph.h"

/*
 * How long a component takes: bytes occupy it for topo_rate_time(bytes_per_s, bytes), one transfer
 * after the other, and each leaves it `latency_fs` later.
 */
typedef struct topo_timing {
    uint64_t bytes_per_s; /* of a memory, and of a UCIe port's link to another die; else 0 */
    kb_time latency_fs;
} topo_timing;

/* The parameters of a component: what its settings say, and the timing that follows. */
typedef struct topo_parameters {
    topo_timing timing;
    uint64_t raw_bytes_per_s; /* of an HBM controller, before its efficiency */
    uint64_t efficiency;      /* in parts of 10^9 */
    uint64_t bytes;           /* what the SRAM holds */
    kb_time count_fs;         /* of a control processor: see topo_control_params */
    kb_time trigger_fs;
} topo_parameters;

/*
 * A component model: its settings and its timing. Those that ship are listed in component.c. Any
 * kind of node may have several; a description names one by `impl`.
 */
typedef struct topo_component {
    const char *name; /* "builtin.switch" */
    topo_kind kind;

    /* Its settings, which are fields of topo_parameters. Those that are absent keep the values of
     * the default machine. */
    const topo_key *keys;
    size_t key_count;

    /* Sets the timing from the other parameters, and reports values that do not fit together. NULL:
     * settings are the timing itself. */
    void (*derive)(kb_config_node *settings, topo_parameters *parameters);
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
