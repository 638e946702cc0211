/*
 * run.h: what the files of the run command share.
 *
 *     run.c          options; one run from beginning to end
 *     plugin.c       which bench is meant; benches in files of the user's
 *     run_figures.c  what came of a run, in figures
 *     run_text.c     for people          run_json.c  for programs
 *     run_trace.c    as a trace
 */
#ifndef KB_CLI_RUN_H
#define KB_CLI_RUN_H

#include "rt/rt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "classes.h"
#include "options.h"

/* ---- Figures ----------------------------------------------------------------------------- */

/* What the units of a kind did, on all PEs. */
typedef struct run_unit {
    kb_time busy;    /* sum of the times of their operations */
    kb_time at_work; /* time with at least one, summed over PEs */
    uint64_t count, bytes, flops;
} run_unit;

/* A link, and how many there are of its kind that carried as many bytes. */
typedef struct run_link {
    uint32_t link; /* of them the one that waited most */
    size_t kind;
    uint64_t bytes;
    kb_time busy;       /* that the bytes take */
    double utilization; /* of the whole run */
    kb_time waited;
    uint64_t alike; /* the others */
} run_link;

typedef struct run_kind {
    const link_class *kind;
    uint64_t bytes;
    double mean, max; /* utilization */
    kb_time waited;
} run_kind;

/* Where the run stands under its roofline: of all PEs that ran kernels, over the time they did. */
typedef struct run_roofline {
    double tflops;        /* achieved, by the matrix engines */
    double peak_tflops;   /* of these */
    double gbs, peak_gbs; /* moved by DMAs; and what the PEs' own slices can give */
    double intensity;     /* flops a byte moved by DMAs; infinite if they moved none */
    double ridge;         /* the intensity from which on the peak is the lower bound */
    double roof_tflops;   /* min(peak, bandwidth * intensity) */
    double slots;         /* of the arrays: the share that had work while they were at it */
} run_roofline;

enum { RUN_BUSIEST = 8 }; /* links that are shown */

typedef struct run_figures {
    const topo_machine *machine;
    kb_time sim;         /* how long the run took */
    kb_split_time split; /* of that time: adds up to it */
    kb_time outside;     /* of its communication: when no kernel ran */
    kb_time kernel_time; /* in which at least one kernel ran */
    kb_time pe_time;     /* of kernels, summed over PEs */
    uint64_t pes;        /* that ran kernels */
    const kb_launch_result *launches;
    size_t launch_count;
    run_unit units[KB_UNITS];
    uint64_t busiest_pe; /* its number, and the unit of it that was most at work; */
    kb_unit busiest_unit;
    kb_time busiest_time;   /* 0 if none was */
    KB_VEC(run_link) links; /* those that carried something; the busiest first */
    link_classes classes;
    KB_VEC(run_kind) kinds; /* those that carried something; the one with the busiest link first */
    run_roofline roofline;
    uint64_t events, hops, link_bytes;
    tl_stand_ins stand_ins;
} run_figures;

/* The context must stay as long as the figures. */
KB_MUST_USE kb_error *run_figures_init(run_figures *f, kb_context *ctx);
void run_figures_fini(run_figures *f);

/* Divides `whole` in the proportion of the parts of `by`, so that they add up to it exactly. */
kb_split_time run_divide(kb_time whole, const kb_split_time *by);

/* One sentence: what bound the run. */
void run_verdict(const run_figures *f, kb_text *text);

/* ---- Printing ---------------------------------------------------------------------------- */

typedef struct run_view {
    const cli_common *common;
    const kb_bench_spec *spec;
    const kb_bench *bench;
    const run_figures *figures;
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
