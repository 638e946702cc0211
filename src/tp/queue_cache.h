/*
 * queue_cache.h: queue sets that the context keeps, also for the folders above. The first call that
 * needs a set creates and installs it; later calls with the same specification use it.
 */
#ifndef KB_TP_QUEUE_CACHE_H
#define KB_TP_QUEUE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/* ---- Edges ---- */

typedef struct tp_edges {
    kb_queue_edge *items;
    size_t count, capacity;
} tp_edges;

/* The caller ensures that there is room: see tp_queue_spec.max_edges. The set copies the name. */
void tp_add_edge(tp_edges *edges, kb_pe from, const char *name, kb_pe to);

/* PE `index` of a device, counted by (cube, pe). */
kb_pe tp_pe_at(const kb_machine *machine, uint32_t sip, int64_t index);

/* ---- Slots, in the TCM ---- */

/* Whether slots of this size fit into the share of the TCM for queues, if each PE has this number
 * of peers. */
bool tp_slots_fit(const kb_machine *machine, uint64_t peers, uint64_t slot_bytes);

/* `max`, halved until slots of this size fit, but not below `min`. */
uint64_t tp_choose_slot_bytes(const kb_machine *machine, uint64_t peers, uint64_t min,
                              uint64_t max);

/* ---- Sets ---- */

enum { TP_QUEUE_KEY = 4 };

typedef struct tp_queue_spec tp_queue_spec;
struct tp_queue_spec {
    /* Adds all edges of the set. It depends on the key and `names` alone. */
    void (*add_edges)(const tp_queue_spec *spec, const kb_machine *machine, tp_edges *edges);
    int64_t key[TP_QUEUE_KEY]; /* parameters of the edges; unused ones are 0 */
    size_t max_edges;
    uint64_t slot_bytes;
    const void *names; /* of directions, if add_edges() has none of its own */
};

/* An installed set with these edges and slots of at least this size. Waits if another worker is
 * installing it. */
KB_MUST_USE kb_error *tp_get_queues(kb_context *ctx, const tp_queue_spec *spec, kb_queue_set *set);

#endif
