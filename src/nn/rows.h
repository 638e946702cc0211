/*
 * rows.h: rows of matrices in kernels. Private to nn.
 *
 * tp_load() issues one command for each shard and concatenates the parts. A row of a matrix that is
 * split by columns over 128 PEs would take 128 commands. If all shards have the same width, rows
 * are at regular distances, and one strided command loads or stores them.
 */
#ifndef KB_NN_ROWS_H
#define KB_NN_ROWS_H

#include <stdint.h>

#include <kernbench/tl.h>

#include "tp/tp.h"

/* As tp_load() and tp_store(), with fewer commands. */
tl_tensor nn_load(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect);
void nn_store(tl_context *tl, const tp_view *view, tl_ptr tensor, tp_rect rect, tl_tensor value);

/* Columns of one row, (1, columns). If all PEs have the same number of columns, the load takes one
 * command, which loads all columns of each PE involved. */
tl_tensor nn_load_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row,
                      int64_t column, int64_t columns);

/* The value is (1, columns). Other columns of a PE are not changed: the store takes one command for
 * whole PEs, and one for each end. */
void nn_store_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row, int64_t column,
                  int64_t columns, tl_tensor value);

/* The index of this PE among all PEs of the device, and their number. */
typedef struct nn_pe {
    int64_t index, count;
} nn_pe;

/* `pes` per cube, `cubes` per device. */
nn_pe nn_find_pe(tl_context *tl, int64_t cubes, int64_t pes);

/* An I32 tensor of any shape and layout: elements [first, first + count), row by row, as (count).
 */
tl_tensor nn_load_indices(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t first,
                          int64_t count);

/* Stores a value (count, 1), for rows [first, first + count), to a tensor with an element for each
 * row, of any shape and layout. */
void nn_store_rows(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t first, int64_t count,
                   tl_tensor value);

#endif
