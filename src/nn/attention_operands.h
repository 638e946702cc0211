/* attention_operands.h: the matrices of attention, which have a row for each token. Private to nn.
 */
#ifndef KB_NN_OPERANDS_H
#define KB_NN_OPERANDS_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "cache.h"
#include "layer.h"

typedef struct nn_operand {
    const char *name; /* for messages */
    kb_tensor tensor;
    bool by_cube;       /* see tp/matrix_view.h */
    bool is_written;    /* must not be replicated */
    int64_t tokens;     /* of each sequence; 0: any number */
    int64_t columns;    /* required */
    int64_t or_columns; /* also allowed; 0: none */
} nn_operand;

/* Starts a call with a cache, whose device all tensors must be on. An error if the cache has no
 * such layer, or the scale is not finite. */
KB_MUST_USE kb_error *nn_begin_call(kb_context *ctx, const char *function, const nn_cache *cache,
                                    uint32_t layer, double scale, nn_call *call);

/* The view of an operand. It must have the cache's dtype and the same number of rows for each
 * sequence of the cache. */
KB_MUST_USE kb_error *nn_view_operand(nn_call *call, const nn_cache *cache,
                                      const nn_operand *operand, tp_view *view);

/* An error if more tokens are added to a sequence than it has rows. */
KB_MUST_USE kb_error *nn_check_added(const nn_call *call, const nn_cache *cache, int64_t tokens);

#endif
