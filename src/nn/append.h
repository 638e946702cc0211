/*
 * append.h: rotates queries and keys, and appends keys and values to a cache. Private to nn.
 *
 * All PEs take part twice. If the PEs have rows of q, each makes its own. Otherwise queries are
 * divided among them by tokens and, if that saves loads, by heads. Keys and values are divided by
 * the pages that they belong to, so that a PE writes to its own slice; if few PEs have these pages,
 * all lanes of a head take part.
 */
#ifndef KB_NN_APPEND_H
#define KB_NN_APPEND_H

#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "cache.h"
#include "rope.h"
#include "tp/tp.h"

/* Only numbers: plans are compared byte by byte. */
typedef struct nn_append_plan {
    nn_cache_layout cache;
    tp_view qkv, q;
    int64_t prompt; /* rows of a sequence */
    double scale;   /* of queries */
    kb_rope_style style;
    int64_t pairs;
    bool q_by_rows;     /* each PE has whole rows of q: it makes these */
    int64_t head_parts; /* else: in which query heads are divided */
    int64_t elements;   /* of queries or keys at a time, at most */
} nn_append_plan;

/* Without a plan: that is its user. */
const kb_kernel *nn_append_kernel(void);

#endif
