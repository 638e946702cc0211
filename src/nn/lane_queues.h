/*
 * lane_queues.h: queues between the PEs of a kv head that share sequences. Private to nn.
 */
#ifndef KB_NN_LANE_QUEUES_H
#define KB_NN_LANE_QUEUES_H

#include "cache.h"

typedef char nn_lane_name[8];

/* Queues on one device for caches of this form. They live as long as the context. */
typedef struct nn_lane_queues {
    struct nn_lane_queues *next;
    uint32_t sip;
    int64_t kv_heads, lanes, split;
    uint64_t slot_bytes;
    kb_queue_set set;
    bool is_installed, is_unusable;
    nn_lane_name *names; /* of the queue to a lane */
} nn_lane_queues;

/*
 * The queues of a cache, installed; NULL if it needs none. `list` has those that there are.
 */
KB_MUST_USE kb_error *nn_get_lane_queues(kb_context *ctx, nn_lane_queues **list,
                                         const nn_cache *cache, const nn_lane_queues **queues);

/* Workers have ended: queues whose installation did not end are not used. */
void nn_retire_lane_queues(nn_lane_queues *list);
void nn_free_lane_queues(nn_lane_queues *list);

#endif
