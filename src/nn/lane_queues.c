/*
 * lane_queues.c: queues between the PEs of a kv head that share sequences. If the split divides the
 * lanes, sequences begin at multiples of it, and only the lanes of one such group are connected;
 * otherwise lanes at a distance of less than `split`.
 */
#include "lane_queues.h"

#include <stdio.h>
#include <stdlib.h>

enum { MIN_SLOT_BYTES = 256, MAX_SLOT_BYTES = 8192 };

/* Indices of tp_queue_spec.key. */
enum { SIP, KV_HEADS, LANES, SPLIT };

static bool are_connected(int64_t lanes, int64_t split, int64_t a, int64_t b)
{
    if (a == b)
        return false;
    if (lanes % split == 0)
        return a / split == b / split;
    int64_t distance = (b - a + lanes) % lanes;
    return distance < split || lanes - distance < split;
}

static int64_t count_peers(const nn_cache_layout *layout)
{
    int64_t peers = 0;
    for (int64_t lane = 1; lane < layout->lanes; lane++)
        peers += are_connected(layout->lanes, layout->split, 0, lane);
    return peers;
}

/* For the results of one part of the query heads. */
static uint64_t slot_bytes(const kb_machine *machine, const nn_cache_layout *layout, int64_t peers)
{
    int64_t parts = kb_min(layout->group, layout->split);
    uint64_t message = (uint64_t)(tl_cdiv(layout->group, parts) * layout->head_dim) * 4;
    uint64_t bytes = MIN_SLOT_BYTES;
    while (bytes < message && bytes < MAX_SLOT_BYTES)
        bytes *= 2;
    return tp_choose_slot_bytes(machine, (uint64_t)peers, MIN_SLOT_BYTES, bytes);
}

static void add_edges(const tp_queue_spec *spec, const kb_machine *machine, tp_edges *edges)
{
    const nn_lane_name *names = spec->names;
    uint32_t sip = (uint32_t)spec->key[SIP];
    int64_t lanes = spec->key[LANES];
    for (int64_t from = 0; from < spec->key[KV_HEADS] * lanes; from++)
        for (int64_t lane = 0; lane < lanes; lane++)
            if (are_connected(lanes, spec->key[SPLIT], from % lanes, lane))
                tp_add_edge(edges, tp_pe_at(machine, sip, from), names[lane],
                            tp_pe_at(machine, sip, from / lanes * lanes + lane));
}

static kb_error *get_names(nn_lane_names **list, int64_t lanes, const nn_lane_name **out)
{
    nn_lane_names *names = *list;
    while (names && names->lanes != lanes)
        names = names->next;
    if (!names) {
        names = kb_alloc_zeroed(1, sizeof *names + (size_t)lanes * sizeof names->names[0]);
        if (!names)
            return kb_error_nomem();
        for (int64_t lane = 0; lane < lanes; lane++)
            snprintf(names->names[lane], sizeof names->names[lane], "l%u",
                     (unsigned)lane % 1000000);
        names->lanes = lanes;
        names->next = *list;
        *list = names;
    }
    *out = (const nn_lane_name *)names->names;
    return NULL;
}

kb_error *nn_set_lane_queues(kb_context *ctx, nn_lane_names **list, nn_cache *cache)
{
    const nn_cache_layout *layout = &cache->layout;
    kb_machine machine = kb_context_machine(ctx);
    cache->queues = (kb_queue_set){0};
    cache->lane_names = NULL;
    if (layout->split == 1)
        return NULL;
    int64_t peers = count_peers(layout);
    KB_TRY(get_names(list, layout->lanes, &cache->lane_names));
    const tp_queue_spec spec = {.add_edges = add_edges,
                                .key = {[SIP] = cache->sip,
                                        [KV_HEADS] = layout->kv_heads,
                                        [LANES] = layout->lanes,
                                        [SPLIT] = layout->split},
                                .max_edges = (size_t)(layout->kv_heads * layout->lanes * peers),
                                .slot_bytes = slot_bytes(&machine, layout, peers),
                                .names = cache->lane_names};
    return tp_get_queues(ctx, &spec, &cache->queues);
}

void nn_free_lane_names(nn_lane_names *list)
{
    for (nn_lane_names *next; list; list = next) {
        next = list->next;
        free(list);
    }
}
