/*
 * division.h: how a matrix product is divided among the PEs of a device.
 *
 *                 n                  The product is split into m_parts x n_parts rectangles. A
 *            +----+----+             *team* of PEs computes each: a PE has a part of k,
 *          k | w  |    |             multiplies, and sends its partial sums (f32) to the PEs of
 *            +----+----+             the team that add them up and store the result. PE i of the
 *            |    |    |             device, counted by (cube, pe), is PE i % team of the team of
 *      k     +----+----+             rectangle i / team.
 *    +---+   +----+----+
 *    | x | m |out |    |             A PE goes through the rectangle by *groups* of strips of
 *    +---+   +----+----+             columns, and for each group through k by chunks, so that sums
 *                                    of one group are exchanged during products of the next.
 */
#ifndef KB_TP_DIVISION_H
#define KB_TP_DIVISION_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "matrix_view.h"

/* The performance of a PE of the machine. */
typedef struct tp_pe_params {
    int64_t pes, cubes; /* per cube; per device */
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
    bool gated; /* columns are split between pairs only */
    bool norm;  /* x is normalised in the kernel */
    bool x_by_cube;
} tp_problem;

/* The rectangles and parts of k. Sizes are those of the largest part. */
typedef struct tp_grid {
    int64_t m_size, k_size, n_size;
    int64_t m_parts, n_parts, team;
} tp_grid;

/* The order in which a PE computes its part. */
typedef struct tp_steps {
    int64_t block;  /* rows at a time */
    int64_t chunk;  /* of k, a multiple of the array's rows */
    int64_t strip;  /* columns, a multiple of the array's columns */
    int64_t strips; /* in a group, at most */
    int64_t chunks; /* groups of equal size if sums go to other ranks; else 0 */
    bool keeps_x;   /* x stays in the TCM for all groups of a block */
    bool local_x;   /* x is in the PE's own cube */
} tp_steps;

enum {
    TP_MAX_TEAM = 32,
    TP_MAX_CHUNKS = 256, /* of a PE */
    TP_MAX_STRIPS = 8,   /* in a group */
    TP_MAX_RANKS = 16,   /* in a sum over ranks */
    TP_MAX_ROUNDS = 16,  /* of the barrier of teams, see pace.c */
};

/* The grid that is expected to be the fastest. If the weights are laid out for a grid (kept_k and
 * kept_n: the sizes of its parts of k and n; else 0), only the number of parts of m is chosen. */
tp_grid tp_choose_grid(const tp_pe_params *pe, const tp_problem *problem, int64_t kept_k,
                       int64_t kept_n);

/* `chunks`: groups of columns for sums over ranks, 0: none. */
tp_steps tp_choose_steps(const tp_pe_params *pe, const tp_problem *problem, const tp_grid *grid,
                         int64_t chunks);

/* The number of strips of the next group. The rectangle has `strips` strips, of which `done` are in
 * the `groups` groups before. */
int64_t tp_next_strips(const tp_steps *steps, int64_t strips, int64_t done, int64_t groups);

/* The number of groups of a PE whose part has the full size. */
int64_t tp_count_groups(const tp_grid *grid, const tp_steps *steps);

#endif
