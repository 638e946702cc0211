/* probe.h: what the files of the probe command share. */
#ifndef KB_CLI_PROBE_H
#define KB_CLI_PROBE_H

#include "measure/measure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* Sizes of the sweep: 4 KiB, twice that, and so on to 1 MiB. */
enum { PROBE_SWEEP_FIRST = 4096, PROBE_SWEEP_COUNT = 9 };

/* A case that was measured. */
typedef struct probe_report {
    size_t which; /* of probe_cases */
    probe_result result;
    kb_time sweep[PROBE_SWEEP_COUNT]; /* what these sizes take */
} probe_report;

/* Offered loads, as shares of what the bottleneck can carry. */
enum { PROBE_LOAD_COUNT = 12 };
extern const double probe_loads[PROBE_LOAD_COUNT];

typedef struct probe_load_report {
    size_t which;
    probe_capacity capacity;
    probe_load points[PROBE_LOAD_COUNT];
} probe_load_report;

/* How the results are to be printed. */
typedef struct probe_view {
    const topo_machine *machine;
    const cli_common *common; /* that the machine was made with */
    uint64_t bytes;
    uint64_t seed, transfers; /* under load */
    bool json;
    bool quiet;
    bool details; /* sweep and route of every case */
} probe_view;

/* Both tell of all cases, and of those that the machine has not if `all` were asked for. */
KB_MUST_USE kb_code probe_print(const probe_view *view, const probe_report *reports, size_t count,
                                bool all);
KB_MUST_USE kb_code probe_print_load(const probe_view *view, const probe_load_report *reports,
                                     size_t count, bool all);

KB_MUST_USE kb_code probe_print_json(const probe_view *view, const probe_report *reports,
                                     size_t count, bool all);
KB_MUST_USE kb_code probe_print_load_json(const probe_view *view, const probe_load_report *reports,
                                          size_t count, bool all);

/* What the nodes of a kind add to a transfer, on both legs. */
typedef struct probe_overhead {
    topo_kind kind;
    uint32_t count; /* of times that such a node was passed and added something */
    kb_time each, total;
} probe_overhead;

/* Those that add something, the largest total first; how many there are. */
size_t probe_overheads(const probe_view *view, const probe_result *result,
                       probe_overhead overheads[static TOPO_KINDS]);

/* What the node of a stop adds. */
kb_time probe_stop_overhead(const probe_view *view, const probe_stop *stop);

/* The wire of the link to a stop; 0 for the first one. */
kb_time probe_stop_wire(const probe_view *view, const probe_stop *stop);

/* Bytes of a point of the sweep. */
static inline uint64_t probe_sweep_bytes(size_t point)
{
    return (uint64_t)PROBE_SWEEP_FIRST << point;
}

#endif
