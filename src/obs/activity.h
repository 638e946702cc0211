/*
 * activity.h: what a report shows of a run over its time: the bytes of each link, the causes of
 * each PE's time, slices of units, kernels and waits. An observer like trace.h, but it keeps sums
 * and slices in bounded memory (spread.h, timeline.h) until the end of the run.
 *
 *     obs_activity *activity;
 *     KB_TRY(obs_activity_create(machine, sample, self, &activity));
 *     ... obs_activity_op(activity, op) for every operation, in order of ends ...
 *     ... obs_activity_state(activity, pe, cause, start, end) for every state ...
 *     KB_TRY(obs_activity_finish(activity));
 *     ... read ...
 *     obs_activity_destroy(activity);
 */
#ifndef KB_OBS_ACTIVITY_H
#define KB_OBS_ACTIVITY_H

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "intern.h"
#include "spread.h"
#include "timeline.h"
#include "topo/topo.h"

/* Fills in the bytes that each link has carried so far; returns the current time. */
typedef kb_time obs_links_fn(void *self, uint64_t *bytes);

/* The lanes of a PE. */
typedef enum activity_unit {
    ACTIVITY_STATE,
    ACTIVITY_KERNEL,
    ACTIVITY_GEMM,
    ACTIVITY_MATH,
    ACTIVITY_DMA_READ,
    ACTIVITY_DMA_WRITE,
    ACTIVITY_SCHEDULER,
    ACTIVITY_WAIT,
    ACTIVITY_UNITS
} activity_unit;

/* Groups of causes of a PE's time, as in kb_split_time. */
typedef enum activity_group {
    ACTIVITY_COMPUTE,
    ACTIVITY_MEMORY,
    ACTIVITY_COMMUNICATION,
    ACTIVITY_IDLE,
    ACTIVITY_GROUPS
} activity_group;

activity_group obs_activity_group(kb_cause cause);

/* Launches with the same name, and the work of their PEs. */
typedef struct activity_kernel {
    uint32_t title;
    uint64_t runs;        /* of kernels: PEs times launches */
    kb_time_sum time;     /* of those */
    kb_u128 flops, bytes; /* of matrix products; moved by DMAs */
} activity_kernel;

/* Waiting of a kind: for messages from a direction, or for credits there. */
typedef struct activity_wait {
    uint32_t title;
    uint64_t count;
    kb_time_sum time;
    kb_time longest;
    uint64_t longest_pe;
} activity_wait;

typedef struct obs_activity {
    const topo_machine *machine;
    const topo_shape *shape;
    obs_links_fn *sample;
    void *self;
    uint64_t *totals, *sampled; /* bytes by link: of the last sample, and of this one */
    kb_time sampled_at;
    obs_spread links;   /* bytes, by link */
    obs_spread pes;     /* fs by PE, then group */
    uint64_t shown_pes; /* have lanes: the first ones */
    size_t lanes_per_pe;
    timeline timeline; /* lane 0 is the host's requests; then by PE and unit */
    intern texts;
    KB_VEC(activity_kernel) kernels;
    KB_VEC(activity_wait) waits;
    kb_time *wait_of_pe; /* sum by PE */
    kb_time end;         /* of the run so far */
    uint64_t ops;
    bool failed; /* out of memory */
} obs_activity;

/* The machine must stay. */
KB_MUST_USE kb_error *obs_activity_create(const topo_machine *machine, obs_links_fn *sample,
                                          void *self, obs_activity **out);
void obs_activity_destroy(obs_activity *a);

void obs_activity_op(obs_activity *a, const kb_op *op);
void obs_activity_state(obs_activity *a, uint64_t pe, kb_cause cause, kb_time start, kb_time end);

/* The last sample. Reports if memory has run out in any call. */
KB_MUST_USE kb_error *obs_activity_finish(obs_activity *a);

/* Calls with the texts of titles and places and their numbers, in no particular order. */
void obs_activity_each_text(const obs_activity *a,
                            void (*each)(void *self, uint32_t number, const char *text),
                            void *self);

const char *activity_unit_name(activity_unit unit); /* "pe_gemm" */

#endif
