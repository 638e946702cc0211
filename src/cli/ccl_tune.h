/*
 * ccl_tune.h: what the files of the ccl tune command share.
 *
 *     ccl_tune.c       options; measures and shows        ccl_tune_file.c  what it writes
 *     ccl_tune_left.c  who was left out, and why
 */
#ifndef KB_CLI_CCL_TUNE_H
#define KB_CLI_CCL_TUNE_H

#include "base/base.h"
#include "ccl/ccl.h"

/* What was measured of one collective at one size. */
typedef struct tune_row {
    kb_collective_kind kind;
    uint64_t bytes;
    ccl_measurements results; /* the fastest first */
} tune_row;

typedef KB_VEC(tune_row) tune_rows; /* by collective, and then by size */

/* An entry that can do the collective, and was not measured. */
typedef struct tune_left_out {
    kb_collective_kind kind;
    size_t entry;
    char *why; /* one line; owned */
} tune_left_out;

typedef struct tune_results {
    tune_rows rows;
    KB_VEC(tune_left_out) left_out; /* by collective */
    bool failed;                    /* no memory to note who was left out */
    kb_collective_kind kind;        /* what is being measured */
    uint64_t bytes;
    kb_ccl_info ranks; /* of the process group */
} tune_results;

void tune_results_fini(tune_results *results);

/* Notes the entries that are none to choose for the collective that is being measured. */
void tune_note_unfit(tune_results *results, const ccl_config *config);

/* Notes one that fails at the size that is being measured, unless it did before. `self` are the
 * results. */
void tune_note_refused(void *self, size_t entry, const kb_error *err);

/* Of whom they are. */
typedef struct tune_subject {
    uint64_t machine; /* its hash */
    uint32_t world;
} tune_subject;

/*
 * Writes a ccl.yaml: the text of `source` (NULL: the one that is built in), with a section `tuned`
 * that says what is the best of each size. What it says of other machines, worlds and collectives
 * stays.
 */
KB_MUST_USE kb_error *tune_write(const char *path, const char *source, const ccl_config *config,
                                 const tune_subject *subject, const tune_rows *rows);

#endif
