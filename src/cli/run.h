/*
 * run.h: what the files of the run command share.
 *
 *     run.c           options; one run from beginning to end
 *     plugin.c        which bench is meant; benches in files of the user's
 *     run_stats.c   what came of a run, in figures: time, units, kernels
 *     run_links.c     the same of links            run_roofline.c  and of the roofline
 *     run_verdict.c   what bound the run, in a sentence
 *     run_text.c      for people                   run_json.c      for programs
 *     run_profile.c   the profile by source line, for both
 *     run_trace.c     as a trace
 */
#ifndef KB_CLI_RUN_H
#define KB_CLI_RUN_H

#include "rt/rt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "obs/obs.h"
#include "oplog/oplog.h"
#include "options.h"
#include "sim/sim.h"

/* ---- Figures ----------------------------------------------------------------------------- */

/* What the units of a kind did, on all PEs. */
typedef struct run_unit {
    kb_time_sum busy;    /* of the times of their operations */
    kb_time_sum at_work; /* time with at least one, over PEs */
    uint64_t count, bytes, flops;
} run_unit;

/* A link, and how many there are of its kind that carried as many bytes. */
typedef struct run_link {
    uint32_t link; /* of them the one that waited most */
    size_t kind;
    uint64_t bytes;
    kb_time busy;       /* that the bytes take */
    double utilization; /* of the whole run */
    kb_time_sum waited; /* by packets */
    double queue;       /* packets that waited, on average over the run */
    uint64_t alike;     /* the others */
} run_link;

/* The links of a kind. Those that take part carried something, or join devices that work. */
typedef struct run_kind {
    const link_class *kind;
    kb_u128 bytes;
    uint64_t active;  /* links that take part */
    double mean, max; /* utilization of these */
    kb_time_sum waited;
    double queue; /* packets that waited for a link, on average over these links and the run */
} run_kind;

/* The launches of a name. */
typedef struct run_kernel {
    const char *name;
    size_t first; /* of its launches */
    uint64_t launches;
    uint32_t sips; /* different ones */
    uint64_t pes;  /* the most of each SIP, summed */
    kb_time total_min, total_max, exec_min, exec_max;
    kb_time_sum total_sum, exec_sum, network_sum, held_sum;
} run_kernel;

/* What bounds the kernels from above. */
typedef enum run_roof {
    RUN_MATRIX_ROOF,
    RUN_VECTOR_ROOF,
    RUN_MEMORY_ROOF,
    RUN_REMOTE_ROOF
} run_roof;

/* Where the run stands under its roofs: of all PEs that ran kernels, over the time they did. */
typedef struct run_roofline {
    double tflops;             /* achieved, by the matrix engines */
    double peak_tflops;        /* of these */
    double slots;              /* of the arrays: the share that had work while they were occupied */
    double occupied;           /* the share of the time that they were */
    double vector_tflops;      /* achieved, by the vector engines */
    double vector_peak_tflops; /* of these, with one operation a lane and cycle */
    double vector_busy;        /* the share of the time that they were busy */
    double gbs, peak_gbs;      /* of local memory; and what the PEs' own HBM slices can give */
    double remote_gbs;         /* of memory of other cubes and SIPs, and of other PEs' TCM */
    double remote_busy;        /* the busiest link of the fabric: its share of the time */
    double intensity;          /* matrix flops a byte of local memory; infinite if there is none */
    double ridge;              /* the intensity from which on the matrix peak is the lower bound */
    double roof_tflops;        /* min(peak, bandwidth * intensity) */
    run_roof roof;             /* the lowest: it takes the largest part of the time, */
    double of_roof;            /* which is this */
} run_roofline;

/* What the time of a run goes to: a kb_cause while kernels run, and these while none does. */
enum {
    RUN_LAUNCHES = KB_CAUSES, /* launches are under way */
    RUN_REQUESTS,             /* no launch, but other requests: copies, mappings, queues */
    RUN_NOTHING,
    RUN_CAUSES
};

typedef enum run_group {
    RUN_COMPUTE,
    RUN_MEMORY,
    RUN_COMMUNICATION,
    RUN_IDLE,
    RUN_GROUPS
} run_group;

run_group run_group_of(int cause);
const char *run_cause_label(int cause); /* "stalled on local memory" */
const char *run_cause_key(int cause);   /* "local_memory", as in JSON */

enum { RUN_BUSIEST = 8 }; /* links that are shown */

typedef struct run_stats {
    const topo_machine *machine;
    kb_time sim;                    /* how long the run took */
    kb_time_sum causes[RUN_CAUSES]; /* of that time: adds up to it */
    kb_split_time split;            /* the same in groups */
    kb_timeline timeline;           /* what they come from */
    uint64_t pes;                   /* that ran kernels */
    const kb_launch_result *launches;
    size_t launch_count;
    KB_VEC(run_kernel) kernels; /* by name; the one that took most time first */
    run_unit units[KB_UNITS];
    uint64_t busiest_pe; /* its number, and the unit of it that was most at work; */
    kb_unit busiest_unit;
    kb_time busiest_time;   /* 0 if none was */
    KB_VEC(run_link) links; /* those that carried something; the busiest first */
    link_classes classes;
    KB_VEC(run_kind) kinds; /* those that carried something; the one with the busiest link first */
    run_roofline roofline;
    const kb_profile *profile; /* NULL if none was asked for */
    uint64_t events, hops;
    net_train_stats trains;
    pe_stats engines;
    kb_u128 link_bytes;
    tl_stand_ins stand_ins;
} run_stats;

/* The context must stay as long as the figures. */
KB_MUST_USE kb_error *run_stats_init(run_stats *f, kb_context *ctx);
void run_stats_fini(run_stats *f);

static inline double run_share(kb_time_sum part, kb_time_sum whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* ---- run_links.c ---- */

/* What the figures have of links. */
KB_MUST_USE kb_error *run_links_gather(run_stats *f, net *fabric, kb_oplog *log);

/* Links that what a PE waits for passes. */
typedef enum run_way {
    RUN_LOCAL_MEMORY, /* the memories of cubes */
    RUN_IN_SIP,       /* between PEs and cubes of a SIP */
    RUN_FABRIC,       /* the same, and between SIPs */
    RUN_ANY
} run_way;

/* The links that remote bytes of kernels can pass: launches alone use those between SIPs if no
 * kernel reaches another SIP. */
run_way run_remote_way(const run_stats *f);

/* The busiest link of the way; NULL if none carried anything. */
const run_link *run_busiest(const run_stats *f, run_way way);

/* ---- run_roofline.c ---- */

KB_MUST_USE kb_error *run_roofline_gather(run_stats *f);

/* ---- run_verdict.c ---- */

/* A sentence or two: what bound the run. */
void run_verdict(const run_stats *f, kb_text *text);

/* ---- run_profile.c ---- */

KB_MUST_USE kb_code run_profile_print(const run_stats *f, bool all);

/* If there is a profile: an array of jansson's, NULL for want of memory. */
struct json_t *run_profile_json(const run_stats *f);

/* ---- Printing ---------------------------------------------------------------------------- */

typedef struct run_view {
    const cli_common *common;
    const kb_bench_spec *spec;
    const kb_bench *bench;
    const run_stats *stats;
    bool timing_only;
    bool by_itself; /* timing-only because the bench says so */
    bool verify, verbose;
    double wall_s;
    const char *trace;       /* NULL if there is none */
    const kb_error *failure; /* how the run ended; NULL: well */
} run_view;

KB_MUST_USE kb_code run_print_text(const run_view *view);
KB_MUST_USE kb_code run_print_json(const run_view *view);

/* Something a second; 0 if no time has passed. */
static inline double run_per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

#endif
