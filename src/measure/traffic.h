/*
 * traffic.h: synthetic traffic, as one offers it to networks on chip to see what they carry.
 *
 *     traffic_options options = {.pattern = TRAFFIC_UNIFORM, .level = TRAFFIC_CUBE,
 *                                .rate_ppb = 300000000, .bytes = 256, .seed = 1,
 *                                .warmup = 2 * KB_US, .measure = 10 * KB_US};
 *     traffic_result result;
 *     KB_TRY(traffic_run(machine, &options, &result));
 *
 * Every PE writes to other PEs: from its pe_dma node to theirs. Each has a random stream of its
 * own, which follows from the seed and the number of the PE, so nothing depends on the order in
 * which things are executed. All random numbers are made of integers: see rng.h.
 *
 * The latency of a transfer counts from the moment it was created, so it includes waiting at the
 * source, to the arrival of its last byte.
 */
#ifndef KB_MEASURE_TRAFFIC_H
#define KB_MEASURE_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "topo/topo.h"

/*
 * Destinations. All but the first are fixed, and defined on the coordinates of routers in the
 * grid W x H of the level; of several PEs at a router the i-th sends to the i-th of the other one.
 */
typedef enum traffic_pattern {
    TRAFFIC_UNIFORM,   /* any PE of the level, itself included */
    TRAFFIC_TRANSPOSE, /* (x, y) to (y, x); square grids */
    TRAFFIC_BITCOMP,   /* (x, y) to (W-1-x, H-1-y); sides that are powers of two */
    TRAFFIC_NEIGHBOR,  /* (x, y) to (x+1 mod W, y+1 mod H) */
    TRAFFIC_HOTSPOT,   /* all to one router */
    TRAFFIC_PATTERNS
} traffic_pattern;

/* When a PE creates its transfers, whatever is still waiting at it. */
typedef enum traffic_process {
    /*
     * In every cycle with the same probability, and never more than one. A cycle is what a packet
     * takes on the injection link, or a transfer that is smaller than a packet.
     */
    TRAFFIC_BERNOULLI,
    TRAFFIC_POISSON, /* at any time: gaps are exponential */
    TRAFFIC_PROCESSES
} traffic_process;

/* How far PEs send. For a SIP the routers of its cubes, and for the system the SIPs, make one grid.
 */
typedef enum traffic_level {
    TRAFFIC_CUBE,
    TRAFFIC_SIP,
    TRAFFIC_SYSTEM,
    TRAFFIC_LEVELS
} traffic_level;

extern const char *const traffic_pattern_names[TRAFFIC_PATTERNS];
extern const char *const traffic_process_names[TRAFFIC_PROCESSES];
extern const char *const traffic_level_names[TRAFFIC_LEVELS];

#define TRAFFIC_RATE_ONE ((uint64_t)1000000000)
#define TRAFFIC_MAX_RATE (100 * TRAFFIC_RATE_ONE)
#define TRAFFIC_MAX_BYTES ((uint64_t)1 << 40)
#define TRAFFIC_MAX_TIME KB_S

/* What is told now and then during a run. */
typedef struct traffic_progress {
    kb_time now, until; /* until: the end of the window */
    uint64_t transfers; /* that have arrived */
    uint64_t live;      /* and that have not */
} traffic_progress;

typedef struct traffic_options {
    traffic_pattern pattern;
    traffic_process process;
    traffic_level level;
    bool hot_given; /* the hot router; else the one with PEs that is nearest to the middle */
    uint32_t hot_x, hot_y;
    uint64_t
        rate_ppb;   /* offered load: parts of 10^9 of the bandwidth of a PE's link to its router */
    uint64_t bytes; /* of a transfer */
    uint64_t cycle_bytes; /* of Bernoulli arrivals: a cycle is the time of these; 0: see there */
    uint64_t seed;
    kb_time warmup;  /* from 0 to here nothing is measured; */
    kb_time measure; /* then transfers that are created in a window of this length are */
    void (*progress)(void *self, const traffic_progress *progress); /* may be NULL */
    void *self;
    struct traffic_link *links; /* unless NULL: filled in for every link of the machine */
} traffic_options;

typedef struct traffic_link {
    uint32_t link;
    uint64_t bytes;        /* in the window */
    double utilization;    /* of the window */
    kb_time_sum waited_fs; /* by all packets for it, behind other transfers */
} traffic_link;

/* Why a run ended. */
typedef enum traffic_end {
    TRAFFIC_COMPLETE, /* all transfers of the window had arrived */
    TRAFFIC_PATIENCE, /* ten windows had passed since it, and they had not */
    TRAFFIC_CROWDED   /* transfers under way would exhaust memory */
} traffic_end;

enum { TRAFFIC_BUSIEST = 10 };

typedef struct traffic_result {
    uint64_t pes;
    uint64_t bytes_per_s; /* of a PE's link to its router: loads are parts of it */
    double offered;       /* what was asked for */
    double created;       /* what came of it in the window, by chance */
    double accepted;      /* what was delivered in the window */

    /*
     * Some PE or all offer more than can be carried: their latency grows for as long as they do,
     * and says more of the window than of the machine. A window that is too short may not show it.
     * Also if transfers of the window have not arrived long after it (so `arrived` < `measured`)
     * though they could have: then the latencies are those of the ones that have, and too low.
     */
    bool saturated;
    bool
        too_short; /* the run ended before transfers could arrive: nothing is known of saturation */
    traffic_end end;
    uint64_t live;     /* transfers under way at the end */
    kb_time lone_fs;   /* the longest that one of the first few would take alone */
    uint64_t measured; /* transfers created in the window */
    uint64_t arrived;  /* of them; if none has, the latencies mean nothing */

    double mean_fs;         /* exact sum over exact count */
    kb_time p50_fs, p99_fs; /* the true ones, or up to 0.05 % more */
    kb_time max_fs;

    traffic_link busiest[TRAFFIC_BUSIEST]; /* by utilization */
    uint32_t busiest_count;

    kb_time ended_fs; /* when the last measured transfer arrived */
    uint64_t transfers, events, hops;
    double wall_s; /* of the simulation alone */
} traffic_result;

/* KB_ERR_INPUT if the machine has no such pattern, or nothing was created in the window. */
KB_MUST_USE kb_error *traffic_run(const topo_machine *machine, const traffic_options *options,
                                  traffic_result *result);

#endif
