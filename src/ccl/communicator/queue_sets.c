/*
 * queue_sets.c: queue sets for ordinary launches: from an entry of ccl.yaml, a topology by name
 * over given PEs, or a list of connections. Values that the specification leaves out are those of
 * the entry, or of `defaults` in ccl.yaml.
 */
#include "communicator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char function[] = "kb_queues_create";

/* ---- Buffers and slots ---- */

static kb_error *read_buffer(const char *word, kb_memory *memory)
{
    static const char *const names[] = {"tcm", "hbm", "sram"};
    static const kb_memory memories[] = {KB_TCM, KB_HBM, KB_SRAM};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(word, names[i]) != 0)
            continue;
        *memory = memories[i];
        return NULL;
    }
    kb_suggestion near;
    kb_suggestion_search(&near, word, names, sizeof names / sizeof names[0]);
    return kb_error_new(KB_ERR_INPUT, "unknown buffer_kind '%s'%s", word,
                        kb_suggestion_hint(&near, ""));
}

/* Overrides the entry with the values of the specification. */
static kb_error *shape_queues(const kb_queue_spec *spec, ccl_entry *entry)
{
    if (spec->buffer_kind)
        KB_TRY(read_buffer(spec->buffer_kind, &entry->buffer));
    if (spec->n_slots > CCL_MAX_SLOTS)
        return kb_error_new(KB_ERR_INPUT, "n_slots is %" PRIu32 ": expected 1 to %d", spec->n_slots,
                            CCL_MAX_SLOTS);
    if (spec->slot_bytes > 0 &&
        (spec->slot_bytes < CCL_MIN_SLOT_BYTES || spec->slot_bytes > CCL_MAX_SLOT_BYTES))
        return kb_error_new(KB_ERR_INPUT, "slot_bytes is %" PRIu64 ": expected %d to %d",
                            spec->slot_bytes, CCL_MIN_SLOT_BYTES, CCL_MAX_SLOT_BYTES);
    if (spec->n_slots > 0)
        entry->n_slots = ccl_slots(spec->n_slots, entry->slots_times);
    entry->slot_bytes = spec->slot_bytes > 0 ? spec->slot_bytes : entry->slot_bytes;
    return NULL;
}

/* ---- Plans from the three kinds of specification ---- */

/* The plan of the entry for all its ranks; ranks that are SIPs are the first SIPs. */
static kb_error *plan_entry(const ccl_state *state, const ccl_entry *entry, ccl_plan *plan)
{
    uint32_t only = rt_only_sip(state->ctx);
    uint32_t world = ccl_plan_world(entry, state->machine, only);
    if (entry->rank_is_pe && only == TOPO_NONE)
        return ccl_plan_make(entry, state->machine, NULL, world, plan);
    uint32_t *sips = kb_alloc_array(world, sizeof *sips);
    if (!sips)
        return kb_error_nomem();
    for (uint32_t rank = 0; rank < world; rank++)
        sips[rank] = only == TOPO_NONE ? rank : only;
    kb_error *err = ccl_plan_make(entry, state->machine, sips, world, plan);
    free(sips);
    return err;
}

static kb_error *plan_algorithm(const ccl_state *state, const kb_queue_spec *spec, ipcq_plan *plan)
{
    const ccl_entry *found = ccl_config_find(&state->config, spec->algorithm);
    if (!found)
        return ccl_no_such_entry(&state->config, spec->algorithm);
    ccl_entry entry = *found;
    entry.world_size = spec->world > 0 ? spec->world : entry.world_size;
    KB_TRY(shape_queues(spec, &entry));
    ccl_plan made;
    KB_TRY(plan_entry(state, &entry, &made));
    *plan = ccl_plan_take_queues(&made);
    return NULL;
}

static kb_error *plan_topology(const ccl_state *state, const kb_queue_spec *spec, ipcq_plan *plan)
{
    ccl_entry entry = state->config.automatic;
    KB_TRY(shape_queues(spec, &entry));
    ipcq_settings settings = ccl_queue_settings(&entry);
    const ccl_pe_topology over = {.name = spec->topology,
                                  .pes = spec->pes,
                                  .count = spec->pe_count,
                                  .w = spec->w,
                                  .h = spec->h};
    return ccl_plan_topology(&state->registry, state->machine, &over, &settings, plan);
}

static kb_error *plan_edges(const ccl_state *state, const kb_queue_spec *spec, ipcq_plan *plan)
{
    ccl_entry entry = state->config.automatic;
    KB_TRY(shape_queues(spec, &entry));
    ipcq_edge *edges = kb_alloc_array(spec->edge_count, sizeof *edges);
    if (!edges)
        return kb_error_nomem();
    for (size_t i = 0; i < spec->edge_count; i++)
        edges[i] = (ipcq_edge){spec->edges[i].from, spec->edges[i].direction, spec->edges[i].to};
    ipcq_settings settings = ccl_queue_settings(&entry);
    kb_error *err = ccl_plan_edges(state->machine, edges, spec->edge_count, &settings, plan);
    free(edges);
    return err;
}

/* ---- Sets ---- */

static kb_error *check_spec(const kb_queue_spec *spec)
{
    int given = (spec->algorithm != NULL) + (spec->topology != NULL) + (spec->edge_count > 0);
    if (given == 1)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "%s of algorithm, topology and edges: expected exactly one",
                        given == 0 ? "none" : "more than one");
}

static kb_error *make_plan(const ccl_state *state, const kb_queue_spec *spec, ipcq_plan *plan)
{
    if (spec->algorithm)
        return plan_algorithm(state, spec, plan);
    return spec->topology ? plan_topology(state, spec, plan) : plan_edges(state, spec, plan);
}

static kb_error *create(kb_context *ctx, const kb_queue_spec *spec, ipcq_set **queues)
{
    ccl_state *state;
    ipcq_plan plan;
    KB_TRY(check_spec(spec));
    KB_TRY(ccl_get_state(ctx, &state));
    KB_TRY(make_plan(state, spec, &plan));
    kb_error *err = ipcq_set_create(rt_queues(ctx), &plan, queues);
    ipcq_plan_fini(&plan);
    return err;
}

kb_error *kb_queues_create(kb_context *ctx, const kb_queue_spec *spec, kb_queue_set *set)
{
    ipcq_set *queues;
    *set = (kb_queue_set){0};
    kb_error *err = create(ctx, spec, &queues);
    if (err)
        return kb_error_wrap(err, "%s", function);
    err = rt_add_queue_set(ctx, queues, set);
    if (err)
        ipcq_set_destroy(queues);
    return err;
}
