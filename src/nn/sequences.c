/* sequences.c: reads records of sequences, some at a time. A small batch is read
 * once. */
#include "sequences.h"

const nn_sequence *nn_get_sequence(tl_context *tl, nn_sequences *sequences, int64_t index)
{
    int64_t at = index - sequences->first, left = sequences->batch - index;
    if (at >= 0 && at < sequences->count)
        return &sequences->items[at];
    sequences->first = index;
    sequences->count = kb_min(left, NN_RECORDS_AT_A_TIME);
    tl_tensor loaded = nn_load_records(tl, sequences->records, index, sequences->count);
    nn_read_records(tl, loaded, index, sequences->count, sequences->items);
    return &sequences->items[0];
}

int64_t nn_count_added(tl_context *tl, nn_sequences *sequences)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < sequences->batch; i++)
        tokens += nn_get_sequence(tl, sequences, i)->added;
    return tokens;
}
