/*
 * append.h: rotates queries and keys, and appends keys and values to a cache. Private to nn.
 *
 * The work has two parts, each divided among all PEs. Queries: if the PEs have rows of q, each
 * computes its own rows; otherwise queries are divided by tokens and, if that saves loads, by
 * heads. Keys and values are divided by pages, so that a PE writes to its own slice; if few PEs
 * have these pages, all lanes of a head share them.
 */
#ifndef KB_NN_APPEND_H
#define KB_NN_APPEND_H

#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "cache.h"
#include "rope.h"
#include "tp/tp.h"

/* Numbers only: plans are compared byte by byte. */
typedef struct nn_append_plan {
    nn_cache_layout cache;
    tp_view qkv, q;
    int64_t prompt; /* rows of a sequence */
    double scale;   /* of queries */
    kb_rope_style style;
    int64_t pairs;
    bool q_by_rows;     /* each PE has whole rows of q and computes these */
    int64_t head_parts; /* else: the number of parts of the query heads */
    int64_t elements;   /* of a piece of queries or keys, the maximum */
} nn_append_plan;

/* Without the plan, which is to be set as user pointer. */
const kb_kernel *nn_append_kernel(void);

#endif
