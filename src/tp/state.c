/*
 * state.c: one object of the context, made at the first call that needs it: plans, queues between
 * PEs, and a small tensor on each device that launches are addressed by.
 */
#include "state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void fini(void *self)
{
    tp_state *state = self;
    for (tp_matmul_plan *plan = state->matmuls, *next; plan; plan = next) {
        next = plan->next;
        free(plan);
    }
    for (tp_relayout_plan *plan = state->relayouts, *next; plan; plan = next) {
        next = plan->next;
        free(plan);
    }
    for (tp_team_queues *queues = state->queues, *next; queues; queues = next) {
        next = queues->next;
        free(queues);
    }
    free(state->everywhere);
    free(state);
}

static const rt_hooks hooks = {.fini = fini};

kb_error *tp_get_state(kb_context *ctx, tp_state **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_TP);
    if (*out)
        return NULL;
    tp_state *state = kb_alloc_zeroed(1, sizeof *state);
    kb_tensor *everywhere = kb_alloc_zeroed(kb_context_machine(ctx).sips, sizeof *everywhere);
    if (!state || !everywhere) {
        free(state);
        free(everywhere);
        return kb_error_nomem();
    }
    state->ctx = ctx;
    state->everywhere = everywhere;
    rt_set_layer(ctx, RT_LAYER_TP, &hooks, state);
    *out = state;
    return NULL;
}

kb_error *tp_get_everywhere(tp_state *state, uint32_t sip, kb_tensor *tensor)
{
    if (state->everywhere[sip].id == 0) {
        static const kb_policy all = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
        const kb_tensor_spec spec = {
            .name = "every PE", .dtype = KB_I8, .shape = KB_SHAPE(1), .policy = &all};
        uint32_t device = kb_ahbm_current_device(state->ctx);
        KB_TRY(kb_ahbm_set_device(state->ctx, sip));
        kb_error *err = kb_empty(state->ctx, &spec, &state->everywhere[sip]);
        kb_error *back = kb_ahbm_set_device(state->ctx, device);
        if (err) {
            kb_error_free(back);
            return err;
        }
        KB_TRY(back);
    }
    *tensor = state->everywhere[sip];
    return NULL;
}

/* ---- Queues ---- */

const char *tp_member_name(int64_t member)
{
    static const char names[TP_MAX_TEAM][4] = {
        "m0",  "m1",  "m2",  "m3",  "m4",  "m5",  "m6",  "m7",  "m8",  "m9",  "m10",
        "m11", "m12", "m13", "m14", "m15", "m16", "m17", "m18", "m19", "m20", "m21",
        "m22", "m23", "m24", "m25", "m26", "m27", "m28", "m29", "m30", "m31"};
    KB_ASSERT(member >= 0 && member < TP_MAX_TEAM);
    return names[member];
}

static kb_pe pe_at(const kb_machine *machine, uint32_t sip, int64_t index)
{
    return (kb_pe){sip, (uint32_t)(index / machine->pes), (uint32_t)(index % machine->pes)};
}

enum {
    SLOTS = 4,
    MAX_SLOT_BYTES = 8192,
    MIN_SLOT_BYTES = 256,
    TCM_SHARE = 16, /* the slots of a PE take at most this part of its TCM */
};

static uint64_t slot_bytes(const kb_machine *machine, int64_t team)
{
    uint64_t bytes = MAX_SLOT_BYTES;
    while (bytes > MIN_SLOT_BYTES &&
           bytes * SLOTS * (uint64_t)(team - 1) > machine->tcm_bytes / TCM_SHARE)
        bytes /= 2;
    return bytes;
}

static kb_error *create_queues(tp_state *state, uint32_t sip, int64_t team, kb_queue_set *set)
{
    kb_machine machine = kb_context_machine(state->ctx);
    int64_t teams = (int64_t)machine.cubes * machine.pes / team;
    size_t count = (size_t)(teams * team * (team - 1)), next = 0;
    kb_queue_edge *edges = kb_alloc_array(count, sizeof *edges);
    if (!edges)
        return kb_error_nomem();
    for (int64_t first = 0; first < teams * team; first += team)
        for (int64_t from = 0; from < team; from++)
            for (int64_t to = 0; to < team; to++)
                if (from != to)
                    edges[next++] =
                        (kb_queue_edge){pe_at(&machine, sip, first + from), tp_member_name(to),
                                        pe_at(&machine, sip, first + to)};
    const kb_queue_spec spec = {.edges = edges,
                                .edge_count = count,
                                .buffer_kind = "tcm",
                                .n_slots = SLOTS,
                                .slot_bytes = slot_bytes(&machine, team)};
    kb_error *err = kb_queues_create(state->ctx, &spec, set);
    free(edges);
    return err;
}

static tp_team_queues *find_queues(const tp_state *state, uint32_t sip, int64_t team)
{
    tp_team_queues *queues = state->queues;
    while (queues && (queues->sip != sip || queues->team != team))
        queues = queues->next;
    return queues;
}

static kb_error *add_queues(tp_state *state, uint32_t sip, int64_t team, tp_team_queues **out)
{
    tp_team_queues *queues = kb_alloc_zeroed(1, sizeof *queues);
    if (!queues)
        return kb_error_nomem();
    queues->sip = sip;
    queues->team = team;
    kb_error *err = create_queues(state, sip, team, &queues->set);
    if (err) {
        free(queues);
        return err;
    }
    queues->next = state->queues;
    state->queues = queues;
    err = kb_queues_install(state->ctx, queues->set);
    queues->installed = !err;
    *out = queues;
    return err;
}

kb_error *tp_get_team_queues(tp_state *state, uint32_t sip, int64_t team, kb_queue_set *set)
{
    *set = (kb_queue_set){0};
    if (team == 1)
        return NULL;
    tp_team_queues *queues = find_queues(state, sip, team);
    if (!queues)
        KB_TRY(add_queues(state, sip, team, &queues));
    while (!queues->installed) /* another worker installs them */
        KB_TRY(kb_cooperative_yield(state->ctx));
    *set = queues->set;
    return NULL;
}
