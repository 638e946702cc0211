/*
 * probe.h: predefined transfers that show what a machine's fabric can do.
 *
 *     probe *p;
 *     KB_TRY(probe_create(machine, &p));
 *     probe_result result;
 *     KB_TRY(probe_measure(p, 0, 4096, &result));
 *     ...
 *     probe_result_fini(&result);
 *     probe_destroy(p);
 *
 * Each case is a transfer that has the machine to itself, run through the simulator. probe_load
 * runs many at once.
 */
#ifndef KB_MEASURE_PROBE_H
#define KB_MEASURE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "net/net.h"
#include "topo/topo.h"

typedef enum probe_target {
    PROBE_NEAR_CUBE, /* from the host to the HBM of the cube that is nearest to it, in SIP 0 */
    PROBE_FAR_CUBE,
    PROBE_OWN_SLICE, /* these from PE 0 of cube 0 of SIP 0 */
    PROBE_OTHER_SLICE,
    PROBE_SRAM,
    PROBE_NEAR_REMOTE_CUBE,
    PROBE_FAR_REMOTE_CUBE,
    PROBE_REMOTE_SIP
} probe_target;

typedef struct probe_case {
    const char *name;
    const char *what; /* a phrase: "the host writes to ..." */
    probe_target target;
    bool read;
} probe_case;

extern const probe_case probe_cases[];
extern const size_t probe_case_count;

/* Why the machine does not have the case: "its SIPs have one cube each"; NULL if it has it. */
const char *probe_missing(const topo_machine *machine, size_t which);

typedef struct probe probe;

KB_MUST_USE kb_error *probe_create(const topo_machine *machine, probe **out);
void probe_destroy(probe *p);

/* A node on the way, and when the head of the first packet got there. */
typedef struct probe_stop {
    uint32_t node;
    uint32_t link; /* that it came over; TOPO_NONE for the first one */
    bool back;     /* on the way back of a read */
    kb_time at;    /* since it was issued; of the last stop, when the last byte was there */
} probe_stop;

typedef struct probe_result {
    uint32_t from, to;
    uint64_t bytes;
    net_completion completion; /* issued is 0 */
    uint32_t bottleneck;       /* the slowest link that the data pass, the first one of equals */
    KB_VEC(probe_stop) stops;
} probe_result;

/* Runs a case that the machine has. On failure there is nothing to fini. */
KB_MUST_USE kb_error *probe_measure(probe *p, size_t which, uint64_t bytes, probe_result *result);
void probe_result_fini(probe_result *result);

/* ---- Under load -------------------------------------------------------------------------- */

/*
 * All PEs of cube 0 do what the case's PE does, each with a slice of its own at the target: PE i
 * with slice i, and with slice i - 1 where it is to be another one's of the same cube; or the host
 * alone does it, with as many transfers under way as come up. Each source issues transfers at
 * random: gaps are exponential, and do not depend on how transfers fare.
 */
typedef struct probe_load_options {
    uint64_t bytes;     /* of a transfer */
    uint64_t transfers; /* approximate number, over all sources */
    double offered;     /* 1 is as much as the bottleneck can carry */
    uint64_t seed;
} probe_load_options;

/* What the case can carry at most. */
typedef struct probe_capacity {
    uint32_t sources;
    uint32_t bottleneck; /* the link that is full first, the first one of equals */
    double gbs;          /* of data, over all sources, when it is full */
} probe_capacity;

KB_MUST_USE kb_error *probe_capacity_of(const topo_machine *machine, size_t which, uint64_t bytes,
                                        probe_capacity *capacity);

/* The first fifth of the run is not counted: the fabric fills. */
typedef struct probe_load {
    uint64_t transfers;          /* counted */
    double offered_gbs;          /* issued in the time that is counted */
    double accepted_gbs;         /* done in it */
    kb_time mean, p50, p99, max; /* latencies of those issued in it */
    kb_time wait;                /* the mean of them, less what the same transfers take alone */
    double utilization;          /* of the bottleneck */
    kb_time_sum waited;          /* by packets for the bottleneck, behind other transfers */
} probe_load;

KB_MUST_USE kb_error *probe_run_load(const topo_machine *machine, size_t which,
                                     const probe_load_options *options, probe_load *load);

#endif
