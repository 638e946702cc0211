/*
 * gemm_plan.h: how a matrix product goes through a small memory: in which pieces, in which order,
 * and what of it stays. Nothing here takes simulated time or knows of addresses.
 *
 *     gemm_plan plan;
 *     KB_TRY(gemm_plan_make(params, &problem, &plan));
 *     gemm_step step;
 *     for (gemm_cursor at = {0}; gemm_plan_next(&plan, &at, &step);)
 *         load what it loads, multiply, give back what it frees, store what is complete
 *
 *                  n
 *              +---+---+     c is cut into tiles. A tile is the sum of products over slices of k,
 *            k | b |   |     one after the other. A slice is cut into strips of columns: a step is
 *              +---+---+     one strip of one slice of one tile.
 *       k      +---+---+
 *     +---+    | c |   |     All tiles of a row, then the next row; or by columns. A part of a or b
 *     | a | m  +---+---+     is loaded by the step that needs it, or it stays from the first tile
 *     +---+    |   |   |     that needs it to the last.
 *     |   |    +---+---+
 *     +---+                  The first and the last tile have shorter slices and narrower strips.
 *
 * Slices are whole multiples of the array's rows and strips of its columns, so that cutting adds no
 * padding to what the whole product has.
 */
#ifndef KB_PE_GEMM_PLAN_H
#define KB_PE_GEMM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "topo/topo.h"

/* c (m, n) = a (m, k) * b (k, n). */
typedef struct gemm_problem {
    uint64_t m, k, n;                   /* at least 1 */
    uint32_t a_bytes, b_bytes, c_bytes; /* of an element */
    bool a_streams, b_streams;          /* it is in memory; else it is there and takes no space */
    uint64_t space;                     /* bytes that may be used */
    uint64_t bytes_per_s;               /* of the memory, about */
    kb_time latency;                    /* of a read, about */
} gemm_problem;

typedef struct gemm_plan {
    uint64_t m, k, n;
    uint64_t tile_rows, tile_columns, slice, strip; /* at most */
    uint64_t fold, width;                           /* of which slices and strips are multiples */
    uint64_t ramp;     /* the first and the last slice of the product are about so long */
    bool rows_first;   /* all tiles of a row, then the next row; else by columns */
    bool keeps_a;      /* what is loaded of a stays as long as it is needed */
    bool keeps_b;      /* the same */
    uint32_t a_bytes;  /* of an element, 0 if it does not stream */
    uint32_t b_bytes;  /* the same */
    uint32_t c_bytes;  /* of an element */
    uint64_t loaded;   /* bytes, all in all */
    uint64_t stored;   /* the same */
    uint64_t estimate; /* of the time in fs, without latencies: to compare plans with */
} gemm_plan;

enum { GEMM_SUM_BYTES = 4 }; /* f32 */

/* KB_ERR_FAULT if not even the least tile fits: the message says what it takes. */
KB_MUST_USE kb_error *gemm_plan_make(const topo_pe_params *params, const gemm_problem *problem,
                                     gemm_plan *plan);

typedef struct gemm_step {
    uint64_t row, rows, column, columns; /* of c */
    uint64_t depth, depths;              /* of k */
    uint64_t a_loaded, b_loaded;         /* bytes that have to come first, and need space */
    uint64_t a_freed, b_freed;           /* bytes that are not needed after it */
    uint64_t sums; /* bytes of space for sums that it begins, if it is the first for its part of c;
                      they are free again when that is stored: gemm_sum_space() */
    bool is_first; /* of its part of c: nothing is there to add to */
    bool is_last;  /* the sums are complete */
} gemm_step;

/* A position in a plan; all zeros is the beginning. */
typedef struct gemm_cursor {
    uint64_t outer, inner, depth, column;
} gemm_cursor;

/* The next step, or false after the last one. */
bool gemm_plan_next(const gemm_plan *plan, gemm_cursor *at, gemm_step *step);

/* Bytes of space for the sums of a block of c. */
uint64_t gemm_sum_space(const gemm_plan *plan, uint64_t rows, uint64_t columns);

#endif
