/*
 * run.h: the statistics and the summary of a run.
 *
 *     cmd_run.c       the command: options, trace, what is printed
 *     run_once.c      one run, for all commands that make runs
 *     plugin.c        finds the bench; compiles and loads files of users
 *     run_stats.c     statistics of time, units and kernels
 *     run_links.c     of links                     run_roofline.c  the roofline
 *     run_verdict.c   what bound the run, in a sentence
 *     run_text.c      the summary as text          run_json.c      and as JSON
 *     run_tables.c    tables of both               run_profile.c   the profile by source line
 *     run_trace.c     the trace
 */
#ifndef KB_CLI_RUN_H
#define KB_CLI_RUN_H

#include "rt/rt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"
#include "columns.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "oplog/oplog.h"
#include "options.h"
#include "sim/sim.h"

/* ---- Statistics -------------------------------------------------------------------------- */

/* The units of a kind, of all PEs. */
typedef struct run_unit {
    kb_time_sum busy;    /* sum of the times of operations */
    kb_time_sum at_work; /* time with at least one operation, summed over PEs */
    uint64_t count, bytes, flops;
} run_unit;

/* Links of one kind that carried the same number of bytes. */
typedef struct run_link {
    uint32_t link; /* the one with the longest waiting time */
    size_t kind;
    uint64_t bytes;
    kb_time busy;       /* transmission time of the bytes */
    double utilization; /* over the run */
    kb_time_sum waited; /* sum over packets */
    double queue;       /* waiting packets, mean over the run */
    uint64_t alike;     /* how many others */
} run_link;

/* The links of a kind. Active links carried something, or connect devices that are active. */
typedef struct run_kind {
    const link_class *kind;
    kb_u128 bytes;
    uint64_t active;
    double mean, max; /* utilization of active links */
    kb_time_sum waited;
    double queue; /* waiting packets, mean over active links and the run */
} run_kind;

/* Launches with the same name. */
typedef struct run_kernel {
    const char *name;
    size_t first; /* index of the first launch */
    uint64_t launches;
    uint32_t sips; /* distinct SIPs */
    uint64_t pes;  /* maximum of a launch, summed over SIPs */
    kb_time total_min, total_max, exec_min, exec_max;
    kb_time_sum total_sum, exec_sum, network_sum, held_sum;
} run_kernel;

/* Upper bounds of the performance of kernels. */
typedef enum run_roof {
    RUN_MATRIX_ROOF,
    RUN_VECTOR_ROOF,
    RUN_MEMORY_ROOF,
    RUN_REMOTE_ROOF
} run_roof;

/* The roofline of all PEs that ran kernels, over the time in which kernels ran. */
typedef struct run_roofline {
    double tflops;             /* achieved by the matrix engines */
    double peak_tflops;        /* of the matrix engines */
    double slots;              /* utilized share of array slots while the arrays are occupied */
    double occupied;           /* share of the time in which the arrays are occupied */
    double vector_tflops;      /* achieved by the vector engines */
    double vector_peak_tflops; /* of the vector engines, with one operation per lane and cycle */
    double vector_busy;        /* share of the time in which the vector engines are busy */
    double gbs, peak_gbs;      /* achieved of local memory; peak of the PEs' own HBM slices */
    bool links_limit;          /* that peak is one of the links to the slices, which are slower */
    double remote_gbs;         /* of memory of other cubes and SIPs, and of other PEs' TCM */
    double remote_busy;        /* utilization of the busiest link of the fabric */
    double intensity;          /* matrix FLOP per byte of local memory; infinite without bytes */
    double ridge;              /* intensity from which on the matrix peak is the lower roof */
    double roof_tflops;        /* min(peak, bandwidth * intensity) */
    run_roof roof;             /* the lowest roof */
    double of_roof;            /* achieved share of it */
} run_roofline;

/* Causes of a run's time: a kb_cause while kernels run, and these while no kernel runs. */
enum {
    RUN_LAUNCHES = KB_CAUSES, /* launches are in progress */
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

/* Sorts the causes that are not 0 in descending order of time; ties: in the order of causes.
 * Returns how many. */
size_t run_sort_causes(const kb_time_sum *causes, int count, int *order);

enum { RUN_BUSIEST = 8 }; /* links in the summary */

typedef struct run_stats {
    const topo_machine *machine;
    kb_time sim;                    /* simulated time of the run */
    kb_time_sum causes[RUN_CAUSES]; /* add up to that time */
    kb_split_time split;            /* causes by group */
    kb_timeline timeline;           /* the source of the causes */
    uint64_t pes;                   /* PEs that ran kernels */
    const kb_launch_result *launches;
    size_t launch_count;
    KB_VEC(run_kernel) kernels; /* by name, in descending order of time */
    run_unit units[KB_UNITS];
    uint64_t busiest_pe; /* number of the PE with the busiest unit */
    kb_unit busiest_unit;
    kb_time busiest_time;   /* 0 if no unit was busy */
    KB_VEC(run_link) links; /* that carried something, in descending order of utilization */
    link_classes classes;
    KB_VEC(run_kind) kinds; /* the same, in descending order of their busiest link */
    run_roofline roofline;
    const kb_profile *profile; /* NULL unless requested */
    uint64_t events, hops;
    net_train_stats trains;
    pe_stats engines;
    kb_u128 link_bytes;
    tl_stand_ins stand_ins;
} run_stats;

/* The context must live as long as the statistics. */
KB_MUST_USE kb_error *run_stats_init(run_stats *s, kb_context *ctx);
void run_stats_fini(run_stats *s);

static inline double run_share(kb_time_sum part, kb_time_sum whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* ---- run_links.c ---- */

/* Collects the statistics of links. */
KB_MUST_USE kb_error *run_collect_links(run_stats *s, net *fabric, kb_oplog *log);

/* Sets of links, by what a PE waits for. */
typedef enum run_link_set {
    RUN_LOCAL_MEMORY, /* the memories of cubes */
    RUN_IN_SIP,       /* between PEs and cubes of a SIP */
    RUN_FABRIC,       /* the same, and between SIPs */
    RUN_ANY
} run_link_set;

/* The links on routes of remote accesses of kernels: without those between SIPs if only launches
 * use them. */
run_link_set run_remote_links(const run_stats *s);

/* The busiest link of the set; NULL if none carried anything. */
const run_link *run_find_busiest(const run_stats *s, run_link_set set);

/* ---- run_roofline.c ---- */

KB_MUST_USE kb_error *run_compute_roofline(run_stats *s);

/* ---- run_verdict.c ---- */

/* Appends one or two sentences: what bound the run. */
void run_verdict(const run_stats *s, kb_text *text);

/* The cause that its first sentence names. */
int run_verdict_cause(const run_stats *s);

/* ---- Printing ---------------------------------------------------------------------------- */

typedef struct run_view {
    const cli_list *settings; /* of the machine and of collectives, as they were given */
    const kb_bench_spec *spec;
    const kb_bench *bench;
    const run_stats *stats;
    bool timing_only;
    bool by_bench; /* timing-only because the bench requires it */
    bool verify;
    bool verbose, quiet;     /* of text */
    double wall_s;           /* of the bench */
    bool shows_profile;      /* there is one */
    const char *trace;       /* NULL if there is none */
    const char *report;      /* the same */
    const kb_error *failure; /* how the run failed; NULL if it did not */
} run_view;

KB_MUST_USE kb_code run_print_text(const run_view *view);

/* The document of --json; NULL if out of memory. */
json_t *run_document(const run_view *view);

/* Tables of a run_view. */
extern const cli_rows run_units, run_busiest_links, run_links_by_kind;

/* How many kinds of links the text omits. */
size_t run_count_omitted_kinds(const run_view *view);

/* The profile; there must be one. */
KB_MUST_USE kb_code run_print_profile(const run_view *view);
json_t *run_profile_json(const run_view *view); /* NULL if out of memory */

/* Events per second; 0 if no time has passed. */
static inline double run_per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

#endif
