/*
 * lane_queues.h: queues between the PEs of a kv head that share sequences. Private to nn.
 */
#ifndef KB_NN_LANE_QUEUES_H
#define KB_NN_LANE_QUEUES_H

#include "cache.h"

/* Directions for this number of lanes. Plans of kernels have their address. */
typedef struct nn_lane_names {
    struct nn_lane_names *next;
    int64_t lanes;
    nn_lane_name names[];
} nn_lane_names;

/* Installs the queues of the cache and sets their names; none if no sequence is split. New names
 * are added to the list. */
KB_MUST_USE kb_error *nn_set_lane_queues(kb_context *ctx, nn_lane_names **list, nn_cache *cache);

void nn_free_lane_names(nn_lane_names *list);

#endif
