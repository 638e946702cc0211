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
    for (tp_embedding_plan *plan = state->embeddings, *next; plan; plan = next) {
        next = plan->next;
        free(plan);
    }
    for (tp_row_plan *plan = state->row_steps, *next; plan; plan = next) {
        next = plan->next;
        free(plan);
    }
    for (tp_team_queues *queues = state->queues, *next; queues; queues = next) {
        next = queues->next;
        free(queues);
    }
    tp_free_matched_ranks(state);
    for (uint32_t sip = 0; sip < kb_context_machine(state->ctx).sips; sip++)
        if (state->everywhere[sip].id != 0)
            kb_error_free(kb_tensor_free(state->ctx, state->everywhere[sip]));
    tp_free_layers(state);
    kb_vec_fini(&state->layers);
    free(state->ranks);
    free(state->everywhere);
    free(state);
}

/* Queues whose installer failed are not used: others would wait for them. */
static void workers_gone(void *self, bool failed)
{
    tp_state *state = self;
    (void)failed;
    for (tp_team_queues *queues = state->queues; queues; queues = queues->next)
        queues->unusable = !queues->installed;
    tp_forget_calls(state);
}

static const rt_hooks hooks = {.workers_gone = workers_gone, .fini = fini};

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

kb_error *tp_make_tensor(kb_context *ctx, uint32_t sip, const kb_tensor_spec *spec,
                         kb_tensor *tensor)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec is = *spec;
    is.policy = spec->policy ? spec->policy : &columns;
    bool was_set = kb_ahbm_device_is_set(ctx);
    uint32_t device = was_set ? kb_ahbm_current_device(ctx) : sip;
    if (was_set && device == sip)
        return kb_empty(ctx, &is, tensor);
    KB_TRY(kb_ahbm_set_device(ctx, sip));
    kb_error *err = kb_empty(ctx, &is, tensor);
    kb_error *back = kb_ahbm_set_device(ctx, device);
    if (!err)
        return back;
    kb_error_free(back);
    return err;
}

kb_error *tp_get_everywhere(tp_state *state, uint32_t sip, kb_tensor *tensor)
{
    static const kb_policy all = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    const kb_tensor_spec spec = {
        .name = "every PE", .dtype = KB_I8, .shape = KB_SHAPE(1), .policy = &all};
    if (state->everywhere[sip].id == 0)
        KB_TRY(tp_make_tensor(state->ctx, sip, &spec, &state->everywhere[sip]));
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

const char *tp_rank_name(int64_t rank)
{
    static const char names[TP_MAX_RANKS][4] = {"r0",  "r1",  "r2",  "r3", "r4",  "r5",
                                                "r6",  "r7",  "r8",  "r9", "r10", "r11",
                                                "r12", "r13", "r14", "r15"};
    KB_ASSERT(rank >= 0 && rank < TP_MAX_RANKS);
    return names[rank];
}

const char *tp_pace_name(int64_t round)
{
    static const char names[TP_MAX_ROUNDS][4] = {"p0",  "p1",  "p2",  "p3", "p4",  "p5",
                                                 "p6",  "p7",  "p8",  "p9", "p10", "p11",
                                                 "p12", "p13", "p14", "p15"};
    KB_ASSERT(round >= 0 && round < TP_MAX_ROUNDS);
    return names[round];
}

int64_t tp_pace_rounds(int64_t teams)
{
    int64_t rounds = 0;
    while (rounds < TP_MAX_ROUNDS && (int64_t)1 << rounds < teams)
        rounds++;
    return rounds;
}

int64_t tp_pace_back(int64_t teams, int64_t round)
{
    for (int64_t back = 0; back < tp_pace_rounds(teams); back++)
        if ((((int64_t)1 << back) + ((int64_t)1 << round)) % teams == 0)
            return back;
    return round;
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

static uint64_t slot_bytes(const kb_machine *machine, int64_t peers)
{
    uint64_t bytes = MAX_SLOT_BYTES;
    while (bytes > MIN_SLOT_BYTES &&
           bytes * SLOTS * (uint64_t)peers > machine->tcm_bytes / TCM_SHARE)
        bytes /= 2;
    return bytes;
}

typedef struct edges {
    kb_queue_edge *items;
    size_t count;
} edges;

static void add_edge(edges *all, kb_pe from, const char *direction, kb_pe to)
{
    all->items[all->count++] = (kb_queue_edge){from, direction, to};
}

/* From the first member of a team to those of other teams of its device: see pace.c. */
static void add_pace_edges(edges *all, const kb_machine *machine, const tp_team_queues *q,
                           uint32_t sip, int64_t index)
{
    int64_t teams = (int64_t)machine->cubes * machine->pes / q->team, team = index / q->team;
    if (q->sips == 1 || index % q->team != 0 || team >= teams)
        return;
    for (int64_t round = 0; round < tp_pace_rounds(teams); round++) {
        int64_t to = (team + ((int64_t)1 << round)) % teams * q->team;
        add_edge(all, pe_at(machine, sip, index), tp_pace_name(round), pe_at(machine, sip, to));
    }
}

/* From one PE to the others of its team, and to those of the same place on other devices. */
static void add_edges_of(edges *all, const kb_machine *machine, const tp_team_queues *q,
                         uint32_t sip, int64_t index)
{
    kb_pe from = pe_at(machine, sip, index);
    int64_t first = index / q->team * q->team;
    bool has_team = first + q->team <= (int64_t)machine->cubes * machine->pes;
    for (int64_t to = 0; has_team && to < q->team; to++)
        if (first + to != index)
            add_edge(all, from, tp_member_name(to), pe_at(machine, sip, first + to));
    for (uint32_t other = 0; other < q->sips; other++)
        if (q->sip + other != sip)
            add_edge(all, from, tp_rank_name(other), pe_at(machine, q->sip + other, index));
    add_pace_edges(all, machine, q, sip, index);
}

static kb_error *create_queues(tp_state *state, tp_team_queues *q)
{
    kb_machine machine = kb_context_machine(state->ctx);
    int64_t pes = (int64_t)machine.cubes * machine.pes;
    int64_t rounds = q->sips > 1 ? tp_pace_rounds(pes / q->team) : 0;
    int64_t peers = q->team - 1 + q->sips - 1 + rounds;
    edges all = {.items = kb_alloc_array((size_t)(pes * q->sips * peers), sizeof *all.items)};
    if (!all.items)
        return kb_error_nomem();
    for (uint32_t sip = q->sip; sip < q->sip + q->sips; sip++)
        for (int64_t index = 0; index < pes; index++)
            add_edges_of(&all, &machine, q, sip, index);
    const kb_queue_spec spec = {.edges = all.items,
                                .edge_count = all.count,
                                .buffer_kind = "tcm",
                                .n_slots = SLOTS,
                                .slot_bytes = slot_bytes(&machine, peers)};
    kb_error *err = kb_queues_create(state->ctx, &spec, &q->set);
    free(all.items);
    return err;
}

static tp_team_queues *find_queues(const tp_state *state, uint32_t sip, uint32_t sips, int64_t team)
{
    tp_team_queues *queues = state->queues;
    while (queues &&
           (queues->sip != sip || queues->sips != sips || queues->team != team || queues->unusable))
        queues = queues->next;
    return queues;
}

static kb_error *add_queues(tp_state *state, uint32_t sip, uint32_t sips, int64_t team,
                            tp_team_queues **out)
{
    tp_team_queues *queues = kb_alloc_zeroed(1, sizeof *queues);
    if (!queues)
        return kb_error_nomem();
    queues->sip = sip;
    queues->sips = sips;
    queues->team = team;
    kb_error *err = create_queues(state, queues);
    if (err) {
        free(queues);
        return err;
    }
    queues->next = state->queues;
    state->queues = queues;
    err = kb_queues_install(state->ctx, queues->set);
    queues->installed = !err;
    queues->unusable = err != NULL;
    *out = queues;
    return err;
}

kb_error *tp_get_team_queues(tp_state *state, uint32_t sip, uint32_t sips, int64_t team,
                             kb_queue_set *set)
{
    *set = (kb_queue_set){0};
    if (team == 1 && sips == 1)
        return NULL;
    tp_team_queues *queues = find_queues(state, sip, sips, team);
    if (!queues)
        KB_TRY(add_queues(state, sip, sips, team, &queues));
    while (!queues->installed) /* another worker installs them */
        KB_TRY(kb_cooperative_yield(state->ctx));
    *set = queues->set;
    return NULL;
}
