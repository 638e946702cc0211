/*
 * tune.h: finds the fastest algorithm for a size by measurement: each candidate is run timing-only
 * in a separate context on the same machine. The measurement is that of the benches ccl_*: see
 * docs/decisions/0018-one-measure.md.
 */
#ifndef KB_CCL_TUNE_H
#define KB_CCL_TUNE_H

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/config/ccl_yaml.h"

typedef struct ccl_measurement {
    size_t entry;  /* index in the configuration */
    kb_time time;  /* of one call with queues installed, until its last rank is done */
    kb_time bound; /* lower bound of any algorithm */
} ccl_measurement;

typedef struct ccl_question {
    kb_collective_kind kind;
    uint64_t bytes; /* of a rank's tensor, as nccl-tests count; see ccl_whole_size() */
    kb_dtype dtype;
    kb_reduce_op op;
    uint32_t root;         /* if the collective has one */
    const uint32_t *ranks; /* of the process group; NULL: all */
    uint32_t rank_count;
    bool best_only; /* a run that becomes slower than the best so far is stopped, and is not in
                       the results */
    /* NULL, or is called with the error of each entry that fails; valid during the call. */
    void (*on_refused)(void *self, size_t entry, const kb_error *err);
    void *self;
} ccl_question;

typedef KB_VEC(ccl_measurement) ccl_measurements;

/* Why auto does not select an entry for a call, whatever its size. */
typedef enum ccl_fitness {
    CCL_FITS,
    CCL_OTHER_COLLECTIVE, /* does not implement the collective */
    CCL_OTHER_RANKS,      /* PEs instead of SIPs, or the other way round */
    CCL_OTHER_WORLD,      /* its world_size */
    CCL_TOO_MANY_RANKS,   /* more than auto_max_ranks */
    CCL_OTHER_OPERATION,  /* reduce_shards */
    CCL_ONE_LAYOUT,       /* its mapper is not `lanes` */
    CCL_OTHER_BITS        /* ranks may get results that differ in rounding */
} ccl_fitness;

ccl_fitness ccl_entry_fitness(const ccl_entry *entry, kb_collective_kind kind, uint32_t world,
                              bool rank_is_pe);

/* The largest size up to `bytes` with a whole number of elements in each block, at least one.
 * Measurements and benches use this size. */
uint64_t ccl_whole_size(kb_collective_kind kind, uint32_t world, kb_dtype dtype, uint64_t bytes);

/* Measures all entries that compute the plain collective in any layout. Fastest first. */
KB_MUST_USE kb_error *ccl_measure(kb_context *ctx, const ccl_config *config,
                                  const ccl_question *question, ccl_measurements *results);

#endif
