/*
 * norm.h: the plan of a norm. Private to nn.
 *
 * The work is divided in one of three ways:
 *
 *     NN_NORM_ROWS      Rows are distributed over the PEs. If there are fewer rows than PEs,
 *                       several PEs share a row: each reads all of it, and normalises some columns.
 *     NN_NORM_COLUMNS   The output is split by columns. Each PE processes its own columns, in its
 *                       own memory, and statistics of rows are exchanged (exchange.h).
 *     NN_NORM_COPIES    Each PE has a copy of the output, and normalises all rows.
 */
#ifndef KB_NN_NORM_H
#define KB_NN_NORM_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/nn.h>
#include <kernbench/tl.h>

#include "exchange.h"
#include "tp/tp.h"

typedef enum nn_norm_division { NN_NORM_ROWS, NN_NORM_COLUMNS, NN_NORM_COPIES } nn_norm_division;

/* Numbers only: plans are compared byte by byte. */
typedef struct nn_norm_plan {
    nn_norm_division division;
    nn_peers peers;
    int64_t sharing; /* ROWS: PEs of one row, the maximum */
    bool own_rows;   /* ROWS: a PE processes the rows of the output that it has */
    bool is_centred; /* LayerNorm */
    bool has_residual, has_gain, has_bias;
    bool sums_by_dot; /* the matrix engine, otherwise idle, computes sums */
    kb_quantisation quantisation;
    float eps;
    int64_t budget;     /* elements of rows in the TCM at a time */
    int64_t block_rows; /* rows at a time; equal on all PEs, which exchange statistics */
    tp_view x, residual, gain, bias, out, sum, scales;
} nn_norm_plan;

kb_kernel nn_norm_kernel(void);

#endif
