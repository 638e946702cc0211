/*
 * ccl_tune.h: results of the command `ccl tune`.
 *
 *     cmd_ccl_tune.c       options; measures and prints
 *     ccl_tune_excluded.c  entries that were not measured, and the reasons
 *     ccl_tune_file.c      writes ccl.yaml
 */
#ifndef KB_CLI_CCL_TUNE_H
#define KB_CLI_CCL_TUNE_H

#include "base/base.h"
#include "ccl/ccl.h"

/* The times of one collective at one size. */
typedef struct tune_row {
    kb_collective_kind kind;
    uint64_t bytes;
    ccl_measurements results; /* the fastest first */
} tune_row;

typedef KB_VEC(tune_row) tune_rows; /* by collective, and then by size */

/* An entry that implements the collective, and was not measured. */
typedef struct tune_excluded {
    kb_collective_kind kind;
    size_t entry;
    char *reason; /* one line; owned */
} tune_excluded;

typedef struct tune_results {
    tune_rows rows;
    KB_VEC(tune_excluded) excluded; /* by collective */
    bool failed;                    /* out of memory in a call that cannot return an error */
    kb_collective_kind kind;        /* being measured, */
    uint64_t bytes;                 /* at this size */
    kb_ccl_info ranks;              /* of the process group */
} tune_results;

void tune_results_fini(tune_results *results);

/* Excludes the entries that auto cannot select for the collective that is being measured. */
void tune_exclude_unfit(tune_results *results, const ccl_config *config);

/* Excludes an entry that failed at the size that is being measured. `self` are the results. */
void tune_exclude_failed(void *self, size_t entry, const kb_error *err);

/* What the results are valid for. */
typedef struct tune_subject {
    uint64_t machine; /* its hash */
    uint32_t world;
} tune_subject;

/*
 * Writes a ccl.yaml: the text of `source` (NULL: the built-in one), with a section `tuned` that has
 * the fastest entry by size. Keeps results of other machines, worlds and collectives.
 */
KB_MUST_USE kb_error *tune_write(const char *path, const char *source, const ccl_config *config,
                                 const tune_subject *subject, const tune_rows *rows);

#endif
