/*
 * queue_cache.c: see queue_cache.h. A set is in the list before it is installed, so that other
 * workers wait for it and do not create a second one.
 */
#include "queue_cache.h"

#include <stdlib.h>
#include <string.h>

#include "tp_state.h"

struct tp_queues {
    tp_queues *next;
    tp_queue_spec spec;
    kb_queue_set set;
    bool is_installed, is_unusable;
};

void tp_add_edge(tp_edges *edges, kb_pe from, const char *name, kb_pe to)
{
    KB_ASSERT(edges->count < edges->capacity);
    edges->items[edges->count++] = (kb_queue_edge){from, name, to};
}

kb_pe tp_pe_at(const kb_machine *machine, uint32_t sip, int64_t index)
{
    return (kb_pe){sip, (uint32_t)(index / machine->pes), (uint32_t)(index % machine->pes)};
}

enum {
    SLOTS = 4,      /* of a queue */
    TCM_SHARE = 16, /* the slots of a PE take at most 1 / TCM_SHARE of its TCM */
};

bool tp_slots_fit(const kb_machine *machine, uint64_t peers, uint64_t slot_bytes)
{
    return slot_bytes * SLOTS * peers <= machine->tcm_bytes / TCM_SHARE;
}

uint64_t tp_choose_slot_bytes(const kb_machine *machine, uint64_t peers, uint64_t min, uint64_t max)
{
    uint64_t bytes = max;
    while (bytes > min && !tp_slots_fit(machine, peers, bytes))
        bytes /= 2;
    return bytes;
}

static kb_error *create(kb_context *ctx, const tp_queue_spec *spec, kb_queue_set *set)
{
    kb_machine machine = kb_context_machine(ctx);
    tp_edges edges = {.items = kb_alloc_array(spec->max_edges, sizeof *edges.items),
                      .capacity = spec->max_edges};
    if (!edges.items)
        return kb_error_nomem();
    spec->add_edges(spec, &machine, &edges);
    const kb_queue_spec queues = {.edges = edges.items,
                                  .edge_count = edges.count,
                                  .buffer_kind = "tcm",
                                  .n_slots = SLOTS,
                                  .slot_bytes = spec->slot_bytes};
    kb_error *err = kb_queues_create(ctx, &queues, set);
    free(edges.items);
    return err;
}

static kb_error *add(tp_state *state, const tp_queue_spec *spec, tp_queues **out)
{
    tp_queues *queues = kb_alloc_zeroed(1, sizeof *queues);
    if (!queues)
        return kb_error_nomem();
    queues->spec = *spec;
    kb_error *err = create(state->ctx, spec, &queues->set);
    if (err) {
        free(queues);
        return err;
    }
    queues->next = state->queues;
    state->queues = queues;
    err = kb_queues_install(state->ctx, queues->set);
    queues->is_installed = !err;
    queues->is_unusable = err != NULL;
    *out = queues;
    return err;
}

static bool is_like(const tp_queues *queues, const tp_queue_spec *spec)
{
    return queues->spec.add_edges == spec->add_edges &&
           memcmp(queues->spec.key, spec->key, sizeof spec->key) == 0 &&
           queues->spec.slot_bytes >= spec->slot_bytes;
}

kb_error *tp_get_queues(kb_context *ctx, const tp_queue_spec *spec, kb_queue_set *set)
{
    tp_state *state;
    KB_TRY(tp_get_state(ctx, &state));
    tp_queues *queues = state->queues;
    while (queues && (queues->is_unusable || !is_like(queues, spec)))
        queues = queues->next;
    if (!queues)
        KB_TRY(add(state, spec, &queues));
    while (!queues->is_installed) /* another worker installs them */
        KB_TRY(kb_cooperative_yield(ctx));
    *set = queues->set;
    return NULL;
}

void tp_retire_queues(tp_state *state)
{
    for (tp_queues *queues = state->queues; queues; queues = queues->next)
        queues->is_unusable = !queues->is_installed;
}

void tp_free_queues(tp_state *state)
{
    for (tp_queues *queues = state->queues, *next; queues; queues = next) {
        next = queues->next;
        free(queues);
    }
}
