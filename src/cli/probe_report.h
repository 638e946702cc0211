/* probe_report.h: results of the command `probe`, and printing them. */
#ifndef KB_CLI_PROBE_REPORT_H
#define KB_CLI_PROBE_REPORT_H

#include "measure/measure.h"

#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* Sizes of the sweep: 4 KiB, twice that, and so on to 1 MiB. */
enum { PROBE_SWEEP_FIRST = 4096, PROBE_SWEEP_COUNT = 9 };

/* The results of a case. */
typedef struct probe_report {
    size_t which; /* of probe_cases */
    probe_result result;
    kb_time sweep[PROBE_SWEEP_COUNT]; /* latency by size */
} probe_report;

/* Offered loads, as fractions of the capacity of the bottleneck. */
enum { PROBE_LOAD_COUNT = 12 };
extern const double probe_loads[PROBE_LOAD_COUNT];

typedef struct probe_load_report {
    size_t which;
    probe_capacity capacity;
    probe_load points[PROBE_LOAD_COUNT];
} probe_load_report;

/* All results, and how to print them. */
typedef struct probe_view {
    const topo_machine *machine;
    const cli_common *common;
    uint64_t bytes;
    uint64_t seed, transfers; /* under load */
    bool all;                 /* all cases were requested: also print which the machine lacks */
    bool details;             /* print sweep and route of every case */
    const probe_report *reports;
    const probe_load_report *load_reports; /* under load, instead */
    size_t count;
} probe_view;

/* Print as text or as JSON. */
KB_MUST_USE kb_code probe_print(const probe_view *view);
KB_MUST_USE kb_code probe_print_load(const probe_view *view);

/* What both print as JSON; NULL if out of memory. */
json_t *probe_document(const probe_view *view);

/* ---- probe_overheads.c ---- */

/* The delay of all nodes of a kind on the route, request and response. */
typedef struct probe_overhead {
    topo_kind kind;
    uint32_t count; /* of nodes with a delay on the route */
    kb_time each, total;
} probe_overhead;

/* Kinds with a delay, in descending order of total; returns how many. */
size_t probe_overheads(const topo_machine *machine, const probe_result *result,
                       probe_overhead overheads[static TOPO_KINDS]);

/* The delay of the node of a stop. */
kb_time probe_stop_overhead(const topo_machine *machine, const probe_stop *stop);

/* The delay of the link to a stop; 0 for the first stop. */
kb_time probe_stop_wire(const topo_machine *machine, const probe_stop *stop);

/* The size of a point of the sweep. */
static inline uint64_t probe_sweep_bytes(size_t point)
{
    return (uint64_t)PROBE_SWEEP_FIRST << point;
}

#endif
