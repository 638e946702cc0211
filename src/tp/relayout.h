/*
 * relayout.h: copies a rectangle of one tensor to another of the same device, in any layouts,
 * optionally with a change of dtype and a bias. A kernel runs on the PEs that have the destination.
 */
#ifndef KB_TP_RELAYOUT_H
#define KB_TP_RELAYOUT_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "matrix_view.h"

typedef struct tp_relayout_spec {
    const char *name; /* of the launch, for reports */
    kb_tensor to, from;
    tp_rect at;                    /* of `to`, as a matrix; all zeros: all of it */
    int64_t from_row, from_column; /* the element of `from` that becomes the first one there */
    int64_t fold;                  /* 0, or: `from` has blocks of `fold` columns, which are side by
                                      side in `to` and one below the other in `from` */
    kb_tensor bias;                /* (columns of `to`), added to each row; {0}: none */
    kb_stream stream;              /* 0: the default stream */
    kb_request *request;           /* NULL: the call waits */
} tp_relayout_spec;

/* `to` and `from` may be the same tensor if the rectangle has the same position in both, and one
 * copy or a copy on every PE. */
KB_MUST_USE kb_error *tp_relayout(kb_context *ctx, const tp_relayout_spec *spec);

#endif
