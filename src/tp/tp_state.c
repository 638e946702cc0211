/*
 * tp_state.c: the state of tensor parallelism in a context, created at the first call: plans,
 * queues between PEs, and a small tensor on each device that launches use to address all PEs.
 */
#include "tp_state.h"

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
    tp_free_queues(state);
    tp_free_matched_ranks(state);
    for (uint32_t sip = 0; sip < kb_context_machine(state->ctx).sips; sip++)
        if (state->all_pes[sip].id != 0)
            kb_error_free(kb_tensor_free(state->ctx, state->all_pes[sip]));
    tp_free_layers(state);
    kb_vec_fini(&state->layers);
    free(state->ranks);
    free(state->all_pes);
    free(state);
}

static void workers_gone(void *self, bool failed)
{
    tp_state *state = self;
    (void)failed;
    tp_retire_queues(state);
    tp_forget_calls(state);
}

static const rt_hooks hooks = {.workers_gone = workers_gone, .fini = fini};

kb_error *tp_get_state(kb_context *ctx, tp_state **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_TP);
    if (*out)
        return NULL;
    tp_state *state = kb_alloc_zeroed(1, sizeof *state);
    kb_tensor *all_pes = kb_alloc_zeroed(kb_context_machine(ctx).sips, sizeof *all_pes);
    if (!state || !all_pes) {
        free(state);
        free(all_pes);
        return kb_error_nomem();
    }
    state->ctx = ctx;
    state->all_pes = all_pes;
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

kb_error *tp_get_all_pes_tensor(tp_state *state, uint32_t sip, kb_tensor *tensor)
{
    static const kb_policy all = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    const kb_tensor_spec spec = {
        .name = "every PE", .dtype = KB_I8, .shape = KB_SHAPE(1), .policy = &all};
    if (state->all_pes[sip].id == 0)
        KB_TRY(tp_make_tensor(state->ctx, sip, &spec, &state->all_pes[sip]));
    *tensor = state->all_pes[sip];
    return NULL;
}

/* ---- Names of queues ---- */

const char *tp_team_queue_name(int64_t index)
{
    static const char names[TP_MAX_TEAM][4] = {
        "m0",  "m1",  "m2",  "m3",  "m4",  "m5",  "m6",  "m7",  "m8",  "m9",  "m10",
        "m11", "m12", "m13", "m14", "m15", "m16", "m17", "m18", "m19", "m20", "m21",
        "m22", "m23", "m24", "m25", "m26", "m27", "m28", "m29", "m30", "m31"};
    KB_ASSERT(index >= 0 && index < TP_MAX_TEAM);
    return names[index];
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

/* ---- Queues of teams ---- */

enum { MAX_SLOT_BYTES = 8192, MIN_SLOT_BYTES = 256 };

/* Indices of tp_queue_spec.key. */
enum { FIRST_SIP, SIPS, TEAM };

/* From the first PE of a team to those of other teams of its device: see pace.c. */
static void add_pace_edges(const tp_queue_spec *spec, const kb_machine *machine, uint32_t sip,
                           int64_t index, tp_edges *edges)
{
    int64_t size = spec->key[TEAM], team = index / size;
    int64_t teams = (int64_t)machine->cubes * machine->pes / size;
    if (spec->key[SIPS] == 1 || index % size != 0 || team >= teams)
        return;
    for (int64_t round = 0; round < tp_pace_rounds(teams); round++) {
        int64_t to = (team + ((int64_t)1 << round)) % teams * size;
        tp_add_edge(edges, tp_pe_at(machine, sip, index), tp_pace_name(round),
                    tp_pe_at(machine, sip, to));
    }
}

/* From one PE to the others of its team, and to those of the same index on other devices. */
static void add_edges_of(const tp_queue_spec *spec, const kb_machine *machine, uint32_t sip,
                         int64_t index, tp_edges *edges)
{
    kb_pe from = tp_pe_at(machine, sip, index);
    int64_t team = spec->key[TEAM], first = index / team * team;
    bool has_team = first + team <= (int64_t)machine->cubes * machine->pes;
    for (int64_t to = 0; has_team && to < team; to++)
        if (first + to != index)
            tp_add_edge(edges, from, tp_team_queue_name(to), tp_pe_at(machine, sip, first + to));
    for (int64_t rank = 0; rank < spec->key[SIPS]; rank++) {
        uint32_t other = (uint32_t)(spec->key[FIRST_SIP] + rank);
        if (other != sip)
            tp_add_edge(edges, from, tp_rank_name(rank), tp_pe_at(machine, other, index));
    }
    add_pace_edges(spec, machine, sip, index, edges);
}

static void add_team_edges(const tp_queue_spec *spec, const kb_machine *machine, tp_edges *edges)
{
    for (int64_t rank = 0; rank < spec->key[SIPS]; rank++)
        for (int64_t index = 0; index < (int64_t)machine->cubes * machine->pes; index++)
            add_edges_of(spec, machine, (uint32_t)(spec->key[FIRST_SIP] + rank), index, edges);
}

kb_error *tp_get_team_queues(tp_state *state, uint32_t sip, uint32_t sips, int64_t team,
                             kb_queue_set *set)
{
    kb_machine machine = kb_context_machine(state->ctx);
    int64_t pes = (int64_t)machine.cubes * machine.pes;
    int64_t rounds = sips > 1 ? tp_pace_rounds(pes / team) : 0;
    uint64_t peers = (uint64_t)(team - 1 + sips - 1 + rounds);
    *set = (kb_queue_set){0};
    if (team == 1 && sips == 1)
        return NULL;
    const tp_queue_spec spec = {
        .add_edges = add_team_edges,
        .key = {[FIRST_SIP] = sip, [SIPS] = sips, [TEAM] = team},
        .max_edges = (size_t)pes * sips * peers,
        .slot_bytes = tp_choose_slot_bytes(&machine, peers, MIN_SLOT_BYTES, MAX_SLOT_BYTES)};
    return tp_get_queues(state->ctx, &spec, set);
}
