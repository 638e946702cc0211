/*
 * sweep_plan.h: what a sweep runs: benches, axes, and the points that they span.
 *
 *     sweep_plan *plan;
 *     KB_TRY(sweep_plan_create(&plan));
 *     KB_TRY(sweep_plan_read(plan, "plan.yaml"));                      // or by hand:
 *     KB_TRY(sweep_plan_over(plan, "sip.ucie.bw_gbs=128,256"));
 *     KB_TRY(sweep_plan_finish(plan));
 *     for (size_t i = 0; i < plan->point_count; i++)
 *         KB_TRY(sweep_plan_point(plan, i, &point));
 *
 * A plan has blocks, mostly one: a bench with its own axes and parameters, and those of the plan.
 * The points of a block are the product of its axes, the last axis fastest; axes that are zipped
 * advance together. Points are not stored, only those left over by conditions are listed: a point
 * is found from its number.
 *
 *     sweep_plan.c   building and finding points        plan_file.c    YAML
 *     ranges.c       lists and ranges of values
 */
#ifndef KB_SWEEP_SWEEP_PLAN_H
#define KB_SWEEP_SWEEP_PLAN_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "expression.h"
#include "ranges.h"
#include "value.h"

enum { SWEEP_MAX_POINTS = 10000000, SWEEP_MAX_WORKERS = 4096 };

/* What an axis sets. */
typedef enum sweep_target {
    SWEEP_SETTING, /* of the machine, or of ccl.yaml: "ccl.KEY" */
    SWEEP_PARAM,   /* of the bench */
    SWEEP_TOPOLOGY,
    SWEEP_BENCH
} sweep_target;

/* A value of an axis, and what it is for a run: "key=value" for settings and parameters. */
typedef struct sweep_axis_value {
    const char *text;
    const char *setting;
    sweep_value value;
} sweep_axis_value;

typedef struct sweep_axis {
    const char *key;    /* as the user wrote it: "sip.ucie.bw_gbs", "max_bytes", "topology" */
    const char *name;   /* of what it sets: without "param." */
    const char *origin; /* for messages: "--over max_bytes", "plan.yaml:7:3: over" */
    sweep_target target;
    KB_VEC(sweep_axis_value) values;
    size_t column;
    uint32_t first_id; /* of its values: they have numbers of their own in the plan */
} sweep_axis;

/* Axes that advance together: mostly one. */
typedef struct sweep_dimension {
    KB_VEC(size_t) axes;
    size_t length;
} sweep_dimension;

typedef struct sweep_fixed {
    const char *key, *setting; /* setting: "key=value" */
    const char *origin;
} sweep_fixed;

typedef struct sweep_fixed_list {
    sweep_fixed *items;
    size_t count;
    size_t capacity;
} sweep_fixed_list;

typedef struct sweep_zips {
    sweep_texts *items;
    size_t count;
    size_t capacity;
} sweep_zips;

typedef struct sweep_block {
    const char *bench; /* NULL: an axis says it */
    sweep_fixed_list settings, params;
    KB_VEC(size_t) axes; /* of its own */
    sweep_zips zips;     /* keys of axes that advance together */
    KB_VEC(sweep_dimension) dimensions;
    uint64_t first, count; /* of its points, before conditions */
} sweep_block;

/* A condition or a derived figure. */
typedef struct sweep_formula {
    const char *name; /* of a derived figure */
    sweep_expression *expression;
} sweep_formula;

typedef struct sweep_plan {
    kb_arena arena;
    KB_VEC(sweep_axis) axes;
    KB_VEC(const char *) columns; /* keys of axes, each once */
    uint32_t value_count;         /* of all axes */
    sweep_block common;           /* what all blocks have */
    KB_VEC(sweep_block) blocks;
    KB_VEC(sweep_formula) conditions, derived;
    sweep_texts views; /* "--rows=KEY": how to show the results, as options of the command */
    uint64_t repeat;   /* runs of each point */
    const char **repeats;
    uint64_t shard, shards; /* only each shards-th point from shard on; 0: all */

    /* Of every run; NULL and 0: not given. */
    const char *topology, *device, *ccl, *store;
    sweep_texts plugins;
    bool timing_only, verify, check_races;
    double timeout_s;
    uint64_t memory_bytes, workers, stack_bytes;

    uint64_t *selected; /* numbers of points before conditions; NULL: all */
    size_t point_count;
} sweep_plan;

KB_MUST_USE kb_error *sweep_plan_create(sweep_plan **out);
void sweep_plan_destroy(sweep_plan *plan); /* NULL does nothing */

/* Reads a plan file. Comes first. */
KB_MUST_USE kb_error *sweep_plan_read(sweep_plan *plan, const char *path);
KB_MUST_USE kb_error *sweep_plan_read_text(sweep_plan *plan, const char *name, const char *text,
                                           size_t length);

/* Options of the command line. They replace what the file says of the same key. */
KB_MUST_USE kb_error *sweep_plan_bench(sweep_plan *plan, const char *bench);
KB_MUST_USE kb_error *sweep_plan_over(sweep_plan *plan, const char *text);  /* "key=a,b,c" */
KB_MUST_USE kb_error *sweep_plan_set(sweep_plan *plan, const char *text);   /* "key=value" */
KB_MUST_USE kb_error *sweep_plan_param(sweep_plan *plan, const char *text); /* "name=value" */
KB_MUST_USE kb_error *sweep_plan_zip(sweep_plan *plan, const char *text);   /* "key,key" */
KB_MUST_USE kb_error *sweep_plan_where(sweep_plan *plan, const char *text);

/* Checks that all of it fits together, and numbers the points. Comes last. */
KB_MUST_USE kb_error *sweep_plan_finish(sweep_plan *plan);

/* A point: what its run is given. To be used for one point after the other. */
typedef struct sweep_point {
    const char *bench;
    const char *topology;         /* NULL: the default machine */
    sweep_texts settings, params; /* "key=value" */
    uint32_t repeat;              /* 0: the first run */
    const char **cells;           /* for each column the value, or NULL */
    KB_VEC(uint32_t) values;      /* the numbers of the values of its axes */
} sweep_point;

void sweep_point_fini(sweep_point *point);

/* `point`: all zeros, or used before. */
KB_MUST_USE kb_error *sweep_plan_point(const sweep_plan *plan, size_t index, sweep_point *point);

/* ---- For plan_file.c ---------------------------------------------------------------------- */

sweep_target sweep_target_of(const char *key);

/* `origin` belongs to the arena, and stands in messages for the place. */
KB_MUST_USE kb_error *sweep_block_add_axis(sweep_plan *plan, sweep_block *block, const char *key,
                                           const char *origin, const sweep_texts *values);
KB_MUST_USE kb_error *sweep_block_fix(sweep_plan *plan, sweep_fixed_list *list, const char *key,
                                      const char *value, const char *origin);

#endif
