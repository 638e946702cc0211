/*
 * row.h: parts of one row of a matrix, in kernels. Private to nn.
 *
 * If the columns of a matrix are cut into equal parts over all PEs, the part of a row at each PE is
 * as far from the next one as all rows of a part are long. So one command moves all of them, where
 * tp_load() and tp_store() need one for each PE.
 */
#ifndef KB_NN_ROW_H
#define KB_NN_ROW_H

#include "tp/tp.h"

/* (1, columns) */
tl_tensor nn_load_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row,
                      int64_t column, int64_t columns);

/* The value is (1, columns). */
void nn_store_row(tl_context *tl, const tp_view *view, tl_ptr tensor, int64_t row, int64_t column,
                  int64_t columns, tl_tensor value);

#endif
