/*
 * lane_queues.c: queues between the PEs of a kv head that share sequences. If the split divides the
 * lanes, sequences begin at its multiples, and only lanes of one such group are connected; else
 * those that are less than `split` apart.
 */
#include "lane_queues.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "minmax.h"

enum {
    SLOTS = 4, /* two messages for each of two sequences */
    MIN_SLOT_BYTES = 256,
    MAX_SLOT_BYTES = 8192,
    TCM_SHARE = 16, /* the slots of a PE take at most this part of its TCM */
};

static bool are_connected(const nn_lane_queues *q, int64_t a, int64_t b)
{
    if (a == b)
        return false;
    if (q->lanes % q->split == 0)
        return a / q->split == b / q->split;
    int64_t distance = (b - a + q->lanes) % q->lanes;
    return distance < q->split || q->lanes - distance < q->split;
}

static int64_t count_peers(const nn_lane_queues *q)
{
    int64_t peers = 0;
    for (int64_t lane = 1; lane < q->lanes; lane++)
        peers += are_connected(q, 0, lane);
    return peers;
}

/* For the results of a part of the query heads. */
static uint64_t slot_bytes(const kb_machine *machine, const nn_cache_layout *is, int64_t peers)
{
    int64_t parts = nn_min(is->group, is->split);
    uint64_t message = (uint64_t)(tl_cdiv(is->group, parts) * is->head_dim) * 4;
    uint64_t bytes = MIN_SLOT_BYTES;
    while (bytes < message && bytes < MAX_SLOT_BYTES)
        bytes *= 2;
    while (bytes > MIN_SLOT_BYTES &&
           bytes * SLOTS * (uint64_t)peers > machine->tcm_bytes / TCM_SHARE)
        bytes /= 2;
    return bytes;
}

static kb_pe pe_at(const kb_machine *machine, uint32_t sip, int64_t index)
{
    return (kb_pe){sip, (uint32_t)(index / machine->pes), (uint32_t)(index % machine->pes)};
}

static kb_error *create_set(kb_context *ctx, nn_lane_queues *q, int64_t peers)
{
    kb_machine machine = kb_context_machine(ctx);
    size_t count = 0;
    kb_queue_edge *edges = kb_alloc_array((size_t)(q->kv_heads * q->lanes * peers), sizeof *edges);
    if (!edges)
        return kb_error_nomem();
    for (int64_t from = 0; from < q->kv_heads * q->lanes; from++)
        for (int64_t lane = 0; lane < q->lanes; lane++)
            if (are_connected(q, from % q->lanes, lane))
                edges[count++] =
                    (kb_queue_edge){pe_at(&machine, q->sip, from), q->names[lane],
                                    pe_at(&machine, q->sip, from / q->lanes * q->lanes + lane)};
    const kb_queue_spec spec = {.edges = edges,
                                .edge_count = count,
                                .buffer_kind = "tcm",
                                .n_slots = SLOTS,
                                .slot_bytes = q->slot_bytes};
    kb_error *err = kb_queues_create(ctx, &spec, &q->set);
    free(edges);
    return err;
}

static void free_queues(nn_lane_queues *q)
{
    free(q->names);
    free(q);
}

static kb_error *add_queues(kb_context *ctx, nn_lane_queues **list, const nn_lane_queues *wanted,
                            int64_t peers, nn_lane_queues **out)
{
    nn_lane_queues *q = kb_alloc_zeroed(1, sizeof *q);
    if (!q)
        return kb_error_nomem();
    *q = *wanted;
    q->names = kb_alloc_zeroed((size_t)q->lanes, sizeof *q->names);
    kb_error *err = q->names ? NULL : kb_error_nomem();
    for (int64_t lane = 0; lane < q->lanes && !err; lane++)
        snprintf(q->names[lane], sizeof q->names[lane], "l%u", (unsigned)lane % 1000000);
    if (!err)
        err = create_set(ctx, q, peers);
    if (err) {
        free_queues(q);
        return err;
    }
    q->next = *list;
    *list = q;
    err = kb_queues_install(ctx, q->set);
    q->is_installed = !err;
    q->is_unusable = err != NULL;
    *out = q;
    return err;
}

kb_error *nn_get_lane_queues(kb_context *ctx, nn_lane_queues **list, const nn_cache *cache,
                             const nn_lane_queues **queues)
{
    const nn_cache_layout *is = &cache->is;
    kb_machine machine = kb_context_machine(ctx);
    nn_lane_queues wanted = {
        .sip = cache->sip, .kv_heads = is->kv_heads, .lanes = is->lanes, .split = is->split};
    *queues = NULL;
    if (is->split == 1)
        return NULL;
    int64_t peers = count_peers(&wanted);
    wanted.slot_bytes = slot_bytes(&machine, is, peers);
    nn_lane_queues *q = *list;
    while (q &&
           (q->sip != wanted.sip || q->kv_heads != wanted.kv_heads || q->lanes != wanted.lanes ||
            q->split != wanted.split || q->slot_bytes < wanted.slot_bytes || q->is_unusable))
        q = q->next;
    if (!q)
        KB_TRY(add_queues(ctx, list, &wanted, peers, &q));
    while (!q->is_installed) /* another worker installs them */
        KB_TRY(kb_cooperative_yield(ctx));
    *queues = q;
    return NULL;
}

void nn_retire_lane_queues(nn_lane_queues *list)
{
    for (; list; list = list->next)
        list->is_unusable = !list->is_installed;
}

void nn_free_lane_queues(nn_lane_queues *list)
{
    for (nn_lane_queues *next; list; list = next) {
        next = list->next;
        free_queues(list);
    }
}
