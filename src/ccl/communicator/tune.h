/*
 * tune.h: which algorithm is the best for a size, by measuring: each candidate is run, timing-only,
 * in a context of its own on the same machine. What is measured is what the benches ccl_* time: see
 * docs/decisions/0018-one-measure.md.
 */
#ifndef KB_CCL_TUNE_H
#define KB_CCL_TUNE_H

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/config/config.h"

typedef struct ccl_measurement {
    size_t entry;  /* of the config */
    kb_time time;  /* of one call, once queues are installed: until its last rank is done */
    kb_time bound; /* no algorithm can be faster */
} ccl_measurement;

typedef struct ccl_question {
    kb_collective_kind kind;
    uint64_t bytes; /* of a rank's tensor, as nccl-tests count; see ccl_whole_size() */
    kb_dtype dtype;
    kb_reduce_op op;
    uint32_t root;         /* where the collective has one */
    const uint32_t *ranks; /* of the process group; NULL: all */
    uint32_t rank_count;
    bool best_only; /* those that turn out to be slower than another are not run to their end, and
                       not in the results */
    /* NULL, or gets what an entry says that does not work; valid during the call. */
    void (*on_refused)(void *self, size_t entry, const kb_error *err);
    void *self;
} ccl_question;

typedef KB_VEC(ccl_measurement) ccl_measurements;

/* Why an entry is none to choose for a call, whatever its size. */
typedef enum ccl_fitness {
    CCL_FITS,
    CCL_OTHER_COLLECTIVE, /* it cannot do this one */
    CCL_OTHER_RANKS,      /* PEs instead of SIPs, or the other way round */
    CCL_OTHER_WORLD,      /* its world_size */
    CCL_TOO_MANY_RANKS,   /* more than auto_max_ranks */
    CCL_OTHER_OPERATION,  /* reduce_shards */
    CCL_ONE_LAYOUT,       /* its mapper does not take all PEs of a SIP, each for its part */
    CCL_OTHER_BITS        /* ranks may get results that differ in rounding */
} ccl_fitness;

ccl_fitness ccl_entry_fitness(const ccl_entry *entry, kb_collective_kind kind, uint32_t world,
                              bool rank_is_pe);

/* The largest size up to `bytes` that has as many whole elements for each rank as it needs; at
 * least one element each. That is what is measured, and what benches run. */
uint64_t ccl_whole_size(kb_collective_kind kind, uint32_t world, kb_dtype dtype, uint64_t bytes);

/* Of all entries that can do it in any layout and mean the same (see auto), the fastest first. */
KB_MUST_USE kb_error *ccl_measure(kb_context *ctx, const ccl_config *config,
                                  const ccl_question *question, ccl_measurements *results);

#endif
