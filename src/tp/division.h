/*
 * plan.h: how a matrix product is shared out to the PEs of a device.
 *
 *                 n                  The product is cut into m_parts x n_parts rectangles. A *team*
 *            +----+----+             of PEs makes one: each member has a part of k, multiplies, and
 *          k | w  |    |             sends its partial sums (f32) to the members that add them up
 *            +----+----+             and store the result. PE i of the device, counted by (cube,
 *            |    |    |             pe), is member i % team of rectangle i / team.
 *      k     +----+----+
 *    +---+   +----+----+             Members go through their rectangle by *groups* of strips of
 *    | x | m |out |    |             columns, and for each group through k by chunks, so that sums
 *    +---+   +----+----+             of one group travel while the next one is multiplied.
 */
#ifndef KB_TP_PLAN_H
#define KB_TP_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "view.h"

/* What a PE of the machine can do. */
typedef struct tp_pe_params {
    int64_t pes, cubes; /* of a cube; of a device */
    int64_t array_rows, array_columns;
    int64_t fill_cycles; /* from the last input of a product to its last result */
    double cycle_ns;
    double hbm_bytes_per_ns; /* of a slice */
    double noc_bytes_per_ns; /* of a PE's port */
    double vector_per_ns;    /* elements that the vector engine adds */
    int64_t tcm_bytes;
} tp_pe_params;

tp_pe_params tp_get_pe_params(kb_context *ctx);

/* out (m, n) = x (m, k) * w (k, n) */
typedef struct tp_problem {
    int64_t m, k, n; /* at least 1 */
    kb_dtype x, w;
    bool gated; /* columns are cut between pairs only */
    bool norm;  /* x is normalised on its way */
    bool x_by_cube;
} tp_problem;

/* Who makes what. Sizes are of the largest part. */
typedef struct tp_grid {
    int64_t m_size, k_size, n_size;
    int64_t m_parts, n_parts, team;
} tp_grid;

/* How a member goes through its part. */
typedef struct tp_steps {
    int64_t block;  /* rows at a time */
    int64_t chunk;  /* of k, a multiple of the array's rows */
    int64_t strip;  /* columns, a multiple of the array's columns */
    int64_t strips; /* in a group, at most */
    int64_t chunks; /* groups of equal size if sums go to other ranks; else 0 */
    bool keeps_x;   /* x stays in the TCM for all groups of a block */
    bool local_x;   /* it comes from the PE's own cube */
} tp_steps;

enum {
    TP_MAX_TEAM = 32,
    TP_MAX_CHUNKS = 256, /* of a member */
    TP_MAX_STRIPS = 8,   /* in a group */
    TP_MAX_RANKS = 16,   /* that a kernel adds up sums of */
    TP_MAX_ROUNDS = 16,  /* in which teams tell each other how far they are */
};

/*
 * The grid that should be the fastest. If the weights are laid out for a grid (kept_k and kept_n:
 * the sizes of its parts of k and n; else 0), that grid, with as many parts of m as is best.
 */
tp_grid tp_choose_grid(const tp_pe_params *pe, const tp_problem *is, int64_t kept_k,
                       int64_t kept_n);

/* `chunks`: groups of columns for sums over ranks, 0 if there are none. */
tp_steps tp_choose_steps(const tp_pe_params *pe, const tp_problem *is, const tp_grid *grid,
                         int64_t chunks);

/* Strips of the next group, of a rectangle with `strips` of them, of which `done` are in the
 * `groups` before. */
int64_t tp_next_strips(const tp_steps *steps, int64_t strips, int64_t done, int64_t groups);

/* Groups of a member whose part has the full size. */
int64_t tp_count_groups(const tp_grid *grid, const tp_steps *steps);

#endif
