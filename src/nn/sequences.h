/* sequences.h: the sequences of a batch of any size, as kernels read them. Private to nn. */
#ifndef KB_NN_SEQUENCES_H
#define KB_NN_SEQUENCES_H

#include <stdint.h>

#include <kernbench/tl.h>

#include "cache.h"

/* A cache of the records that were read last. */
typedef struct nn_sequences {
    tl_ptr records;
    int64_t batch;
    int64_t first, count;
    nn_sequence items[NN_RECORDS_AT_A_TIME];
} nn_sequences;

/*
 * The sequence. If its record is not cached, reads it and the following ones, and waits for them.
 */
const nn_sequence *nn_get_sequence(tl_context *tl, nn_sequences *sequences, int64_t index);

/* The number of added tokens of all sequences. */
int64_t nn_count_added(tl_context *tl, nn_sequences *sequences);

#endif
