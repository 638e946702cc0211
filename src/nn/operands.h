/* operands.h: the matrices of attention, which have a row for each token. Private to nn. */
#ifndef KB_NN_OPERANDS_H
#define KB_NN_OPERANDS_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "cache.h"
#include "tp/tp.h"

typedef struct nn_operand {
    const char *function, *name; /* for messages */
    kb_tensor tensor;
    bool by_cube;       /* see tp/view.h */
    bool is_written;    /* then it cannot be replicated */
    int64_t columns;    /* that it must have */
    int64_t or_columns; /* or these; 0: no others */
} nn_operand;

/* Its view. An error unless it is on the cache's device, in the cache's dtype, with rows that the
 * sequences of the cache divide. */
KB_MUST_USE kb_error *nn_view_operand(kb_context *ctx, const nn_cache *cache,
                                      const nn_operand *operand, tp_view *view);

/* An error if the cache has no such layer, or the scale is not finite. */
KB_MUST_USE kb_error *nn_check_call(const char *function, const nn_cache *cache, uint32_t layer,
                                    double scale);

/* An error if more tokens are added to a sequence than it has rows. */
KB_MUST_USE kb_error *nn_check_added(const char *function, const nn_cache *cache, int64_t prompt);

#endif
