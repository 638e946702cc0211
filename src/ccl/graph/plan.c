/*
 * plan.c: makes plans. The mapper selects the participants, the topology (or the algorithm)
 * connects them, and ipcq_plan_init() pairs the directions.
 *
 * Invariant: a plan contains only PEs of the machine, each at most once; it connects only
 * participants; and its queues fit into their memory. Mistakes of mappers and topologies of plugins
 * are found here.
 */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The ranks --------------------------------------------------------------------------- */

uint32_t ccl_plan_world(const ccl_entry *entry, const topo_machine *machine, uint32_t only_sip)
{
    const topo_shape *shape = topo_machine_shape(machine);
    uint32_t sips = only_sip == TOPO_NONE ? shape->sips : 1;
    uint32_t all = entry->rank_is_pe ? sips * shape->cubes * shape->pes : sips;
    return entry->world_size > 0 && (entry->rank_is_pe || entry->world_size < all)
               ? entry->world_size
               : all;
}

/* The number of a PE of the machine, in the order of (SIP, cube, PE). */
static kb_error *too_few_pes(uint32_t world, uint64_t pes, const char *where)
{
    return kb_error_new(KB_ERR_INPUT, "rank: pe needs %" PRIu32 " PE%s, but %s has %" PRIu64, world,
                        kb_plural(world), where, pes);
}

/* The k-th rank of a SIP is its k-th PE. */
static kb_error *assign_pes_by_sip(const topo_shape *shape, const uint32_t *sips, uint32_t world,
                                   kb_pe *ranks)
{
    size_t pes = (size_t)shape->cubes * shape->pes;
    size_t *used = kb_alloc_zeroed(shape->sips, sizeof *used);
    if (!used)
        return kb_error_nomem();
    kb_error *err = NULL;
    for (uint32_t rank = 0; rank < world && !err; rank++) {
        size_t *of_sip = &used[sips[rank]];
        if (*of_sip == pes)
            err = too_few_pes(world, pes, "a SIP");
        else
            ranks[rank] = topo_pe_at(shape, sips[rank] * pes + (*of_sip)++);
    }
    free(used);
    return err;
}

static kb_error *choose_ranks(const ccl_entry *entry, const topo_shape *shape, const uint32_t *sips,
                              uint32_t world, kb_pe *ranks)
{
    if (entry->rank_is_pe && world > shape->pe_count)
        return too_few_pes(world, shape->pe_count, "the machine");
    for (uint32_t rank = 0; sips && rank < world; rank++)
        if (sips[rank] >= shape->sips)
            return kb_error_new(KB_ERR_INPUT,
                                "rank %" PRIu32 " is on SIP %" PRIu32
                                ", but the machine has %" PRIu32,
                                rank, sips[rank], shape->sips);
    if (entry->rank_is_pe && sips)
        return assign_pes_by_sip(shape, sips, world, ranks);
    KB_ASSERT(entry->rank_is_pe || sips);
    for (uint32_t rank = 0; rank < world; rank++)
        ranks[rank] = entry->rank_is_pe ? topo_pe_at(shape, rank) : (kb_pe){.sip = sips[rank]};
    return NULL;
}

/* ---- The scope --------------------------------------------------------------------------- */

static kb_sip_pattern pattern_of(const topo_shape *shape)
{
    switch (shape->sip_pattern) {
    case TOPO_TORUS_2D:
        return KB_SIPS_TORUS;
    case TOPO_MESH_2D_NO_WRAP:
        return KB_SIPS_MESH;
    case TOPO_RING_1D:
        break;
    }
    return KB_SIPS_RING;
}

static kb_ccl_scope scope_of(const ccl_entry *entry, const topo_machine *machine, uint32_t world,
                             const kb_pe *ranks)
{
    const topo_shape *shape = topo_machine_shape(machine);
    return (kb_ccl_scope){
        .machine = {.name = topo_machine_name(machine),
                    .sips = shape->sips,
                    .cubes = shape->cubes,
                    .cube_w = shape->cube_w,
                    .cube_h = shape->cube_h,
                    .pes = shape->pes,
                    .hbm_bytes = shape->slice_bytes,
                    .tcm_bytes = shape->tcm_bytes - shape->tcm_reserved_bytes,
                    .sram_bytes = shape->sram_bytes},
        .sips = pattern_of(shape),
        .sip_w = shape->sip_w,
        .sip_h = shape->sip_h,
        .sip_links = shape->sip_links,
        .world = world,
        .rank_is_pe = entry->rank_is_pe,
        .ranks = ranks,
        .entry = entry->name,
        .settings = entry,
        .compiled = machine,
    };
}

/* Checks the settings of the entry against the machine. */
static kb_error *check_entry(const ccl_entry *entry, const topo_shape *shape)
{
    if (!entry->rank_is_pe && entry->world_size > shape->sips)
        return kb_error_new(KB_ERR_INPUT,
                            "world_size %" PRIu32 " with rank: sip exceeds the machine's %" PRIu32
                            " SIP%s",
                            entry->world_size, shape->sips, kb_plural(shape->sips));
    return NULL;
}

/* ---- Checks of participants, connections and queue memory --------------------------------- */

static kb_error *check_participant(const ccl_plan *plan, const topo_shape *shape,
                                   const kb_ccl_participant *participant, bool *takes_part)
{
    const char *mapper = plan->entry->mapper->name;
    kb_pe pe = participant->pe;
    if (!topo_has_pe(shape, pe))
        return kb_error_new(KB_ERR_INPUT,
                            "mapper '%s' selects %s, "
                            "which the machine does not have",
                            mapper, topo_pe_name(pe).text);
    if (participant->rank >= plan->scope.world)
        return kb_error_new(KB_ERR_INPUT,
                            "mapper '%s' selects rank %" PRIu32
                            ", but the number of ranks is %" PRIu32,
                            mapper, participant->rank, plan->scope.world);
    if (takes_part[topo_pe_index(shape, pe)])
        return kb_error_new(KB_ERR_INPUT, "%s is in the plan twice", topo_pe_name(pe).text);
    takes_part[topo_pe_index(shape, pe)] = true;
    return NULL;
}

static kb_error *check_participants(const ccl_plan *plan, const topo_shape *shape, bool *takes_part)
{
    if (plan->participants.subgroups.count == 0)
        return kb_error_new(KB_ERR_INPUT, "mapper '%s' selects no PEs", plan->entry->mapper->name);
    for (size_t i = 0; i < plan->participants.subgroups.count; i++) {
        const ccl_subgroup *subgroup = &plan->participants.subgroups.items[i];
        for (size_t k = 0; k < subgroup->participants.count; k++)
            KB_TRY(check_participant(plan, shape, &subgroup->participants.items[k], takes_part));
    }
    return NULL;
}

static kb_error *check_graph(const kb_ccl_graph *graph, const topo_shape *shape,
                             const bool *takes_part)
{
    for (size_t i = 0; i < graph->edges.count; i++) {
        const ipcq_edge *edge = &graph->edges.items[i];
        bool from = topo_has_pe(shape, edge->from) && takes_part[topo_pe_index(shape, edge->from)];
        bool to = topo_has_pe(shape, edge->to) && takes_part[topo_pe_index(shape, edge->to)];
        kb_pe outsider = from ? edge->to : edge->from;
        if (!from || !to)
            return kb_error_new(KB_ERR_INPUT,
                                "direction %s of %s: "
                                "%s is not in the plan",
                                edge->direction, topo_pe_name(edge->from).text,
                                topo_pe_name(outsider).text);
    }
    return NULL;
}

/* Whether the queues of two PEs are in the same memory. */
static bool share_memory(kb_memory memory, kb_pe a, kb_pe b)
{
    return a.sip == b.sip && a.cube == b.cube && (a.pe == b.pe || memory == KB_SRAM);
}

static uint64_t memory_size(const topo_shape *shape, kb_memory memory)
{
    return memory == KB_TCM   ? shape->tcm_bytes - shape->tcm_reserved_bytes
           : memory == KB_HBM ? shape->slice_bytes
                              : shape->sram_bytes;
}

/* Checks against the size of the memory. Whether other allocations leave enough space is known only
 * when the queues are installed. */
static kb_error *check_memory(const topo_shape *shape, const ipcq_settings *s, kb_pe pe,
                              uint64_t queue_count)
{
    const char *name = s->buffer == KB_TCM ? "TCM" : s->buffer == KB_HBM ? "HBM slice" : "SRAM";
    uint64_t capacity = memory_size(shape, s->buffer);
    if (queue_count == 0 || s->n_slots == 0 || queue_count <= capacity / s->n_slots / s->slot_bytes)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "the slots that %s needs, %" PRIu32 " of %" PRIu64
                        " bytes for each direction, are "
                        "more than its %s of %" PRIu64 " bytes",
                        topo_pe_name(pe).text, s->n_slots, s->slot_bytes, name, capacity);
}

/* The number of queues in the memory of this end, counted up to it. `queue_count` is the number at
 * the end before it; ends are sorted by memory. */
static uint64_t count_queue(const ipcq_plan *queues, size_t number, uint64_t queue_count)
{
    const ipcq_plan_end *end = &queues->ends.items[number];
    if (number > 0 && !share_memory(queues->settings.buffer, end[-1].pe, end->pe))
        queue_count = 0;
    return queue_count + (end->from != IPCQ_NONE);
}

static kb_error *check_queue_memory(const topo_shape *shape, const ipcq_plan *queues)
{
    uint64_t queue_count = 0;
    for (size_t i = 0; i < queues->ends.count; i++) {
        queue_count = count_queue(queues, i, queue_count);
        KB_TRY(check_memory(shape, &queues->settings, queues->ends.items[i].pe, queue_count));
    }
    return NULL;
}

/* Halves the slot size until the queues leave an eighth of their memory free. */
static void fit_slots(const topo_shape *shape, ipcq_plan *queues)
{
    ipcq_settings *s = &queues->settings;
    uint64_t queue_count = 0, max = 0, capacity = memory_size(shape, s->buffer) / 8 * 7;
    for (size_t i = 0; i < queues->ends.count; i++) {
        queue_count = count_queue(queues, i, queue_count);
        max = queue_count > max ? queue_count : max;
    }
    while (max > 0 && s->slot_bytes >= (uint64_t)2 * CCL_MIN_SLOT_BYTES &&
           max > capacity / s->n_slots / s->slot_bytes)
        s->slot_bytes /= 2;
}

/* ---- Plans ------------------------------------------------------------------------------- */

/* The topology `pairs` has as many connections as participants squared: queues that cannot fit are
 * refused before the connections are made. */
static kb_error *check_pairs(const ccl_plan *plan, const topo_shape *shape)
{
    const ccl_entry *entry = plan->entry;
    const ipcq_settings settings = ccl_queue_settings(entry);
    bool pairs = entry->topology && strcmp(entry->topology->name, "pairs") == 0;
    for (size_t i = 0; i < plan->participants.subgroups.count && pairs && !entry->fit_slots; i++) {
        const ccl_subgroup *subgroup = &plan->participants.subgroups.items[i];
        if (subgroup->participants.count > 0)
            KB_TRY(check_memory(shape, &settings, subgroup->participants.items[0].pe,
                                subgroup->participants.count - 1));
    }
    return NULL;
}

static bool contains_name(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

static bool is_shipped(const kb_ccl_topology *topology)
{
    for (const kb_ccl_topology *const *t = ccl_topologies; *t; t++)
        if (*t == topology)
            return true;
    return false;
}

/* A kernel on a graph without its directions would send nothing, or compute something else. */
static kb_error *check_topology(const ccl_entry *entry)
{
    const char *const *fitting = entry->algorithm->topologies;
    if (!fitting || !entry->topology || !is_shipped(entry->topology) ||
        contains_name(fitting, entry->topology->name))
        return NULL;
    kb_text names = KB_TEXT_INIT;
    for (size_t i = 0; fitting[i]; i++)
        kb_text_printf(&names, "%s%s", i > 0 ? " or " : "", fitting[i]);
    kb_error *err =
        kb_error_new(KB_ERR_INPUT, "module %s needs topology %s, not %s", entry->algorithm->name,
                     kb_text_peek(&names), entry->topology->name);
    kb_text_fini(&names);
    return err;
}

static kb_error *make_graph(const ccl_plan *plan, kb_ccl_graph *graph)
{
    const ccl_entry *entry = plan->entry;
    kb_error *err = NULL;
    if (entry->algorithm->shares_work && entry->rank_is_pe)
        return kb_error_new(KB_ERR_INPUT,
                            "%s distributes the work of a rank over its PEs: it needs rank: "
                            "sip, found rank: pe",
                            entry->algorithm->name);
    if (entry->topology)
        err = entry->topology->connect(&plan->scope, &plan->participants, graph);
    else if (entry->algorithm->connect)
        err = entry->algorithm->connect(&plan->scope, &plan->participants, graph);
    return err && entry->topology ? kb_error_wrap(err, "topology %s", entry->topology->name) : err;
}

ipcq_settings ccl_queue_settings(const ccl_entry *entry)
{
    return (ipcq_settings){
        .buffer = entry->buffer,
        .polls = entry->polls,
        .n_slots = entry->n_slots,
        .slot_bytes = entry->slot_bytes,
        .credit_bytes = entry->credit_bytes,
    };
}

static kb_error *connect_participants(ccl_plan *plan, const topo_shape *shape,
                                      const bool *takes_part)
{
    const ipcq_settings settings = ccl_queue_settings(plan->entry);
    kb_ccl_graph graph = {0};
    kb_arena_init(&graph.names);
    kb_error *err = check_pairs(plan, shape);
    if (!err)
        err = make_graph(plan, &graph);
    if (!err)
        err = check_graph(&graph, shape, takes_part);
    plan->edge_count = graph.edges.count;
    if (!err)
        err = ipcq_plan_init(&plan->queues, graph.edges.items, graph.edges.count, &settings);
    ccl_graph_fini(&graph);
    KB_TRY(err);
    if (plan->entry->fit_slots)
        fit_slots(shape, &plan->queues);
    return check_queue_memory(shape, &plan->queues);
}

static kb_error *map_and_connect(ccl_plan *plan, const topo_machine *machine)
{
    const topo_shape *shape = topo_machine_shape(machine);
    KB_TRY(check_entry(plan->entry, shape));
    KB_TRY(check_topology(plan->entry));
    KB_TRY(plan->entry->mapper->map(&plan->scope, &plan->participants));
    bool *takes_part = kb_alloc_zeroed(shape->pe_count, sizeof *takes_part);
    if (!takes_part)
        return kb_error_nomem();
    kb_error *err = check_participants(plan, shape, takes_part);
    if (!err)
        err = connect_participants(plan, shape, takes_part);
    free(takes_part);
    return err;
}

/* Takes over the ranks, and an error from choosing them. */
static kb_error *make_plan(const ccl_entry *entry, const topo_machine *machine, kb_pe *ranks,
                           uint32_t world, kb_error *err, ccl_plan *plan)
{
    *plan =
        (ccl_plan){.entry = entry, .scope = scope_of(entry, machine, world, ranks), .ranks = ranks};
    if (!err)
        err = map_and_connect(plan, machine);
    if (!err)
        return NULL;
    ccl_plan_fini(plan);
    return kb_error_wrap(err, "algorithm '%s'", entry->name);
}

kb_error *ccl_plan_make(const ccl_entry *entry, const topo_machine *machine, const uint32_t *sips,
                        uint32_t world, ccl_plan *plan)
{
    kb_pe *ranks = kb_alloc_array(world, sizeof *ranks);
    if (!ranks)
        return kb_error_nomem();
    kb_error *err = choose_ranks(entry, topo_machine_shape(machine), sips, world, ranks);
    return make_plan(entry, machine, ranks, world, err, plan);
}

kb_error *ccl_plan_make_for(const ccl_entry *entry, const topo_machine *machine, const kb_pe *ranks,
                            uint32_t world, ccl_plan *plan)
{
    kb_pe *copy = kb_alloc_array(world, sizeof *copy);
    if (!copy)
        return kb_error_nomem();
    for (uint32_t rank = 0; rank < world; rank++) {
        KB_ASSERT(topo_has_pe(topo_machine_shape(machine), ranks[rank]));
        copy[rank] = ranks[rank];
    }
    return make_plan(entry, machine, copy, world, NULL, plan);
}

ipcq_plan ccl_plan_take_queues(ccl_plan *plan)
{
    ipcq_plan queues = plan->queues;
    plan->queues = (ipcq_plan){0};
    ccl_plan_fini(plan);
    return queues;
}

/* ---- Queues without an algorithm ---------------------------------------------------------- */

static kb_error *unknown_topology(const ccl_registry *registry, const char *name)
{
    kb_suggestion near;
    ccl_named named;
    kb_suggestion_init(&near, name);
    for (ccl_cursor at = {0}; ccl_registry_next(registry, CCL_TOPOLOGY, &at, &named);)
        kb_suggestion_offer(&near, named.name);
    return kb_error_new(KB_ERR_INPUT, "unknown topology '%s'%s", name,
                        kb_suggestion_full(&near, ""));
}

static kb_error *check_pes(const topo_shape *shape, const ccl_pe_topology *over)
{
    if (over->count == 0 || over->count > shape->pe_count)
        return kb_error_new(KB_ERR_INPUT, "topology '%s' over %zu PEs: expected 1 to %" PRIu64,
                            over->name, over->count, (uint64_t)shape->pe_count);
    for (size_t i = 0; i < over->count; i++) {
        kb_pe pe = over->pes[i];
        if (!topo_has_pe(shape, pe))
            return kb_error_new(KB_ERR_INPUT, "PE %zu: the machine has no %s", i,
                                topo_pe_name(pe).text);
    }
    return NULL;
}

/* Uses a temporary entry whose ranks are the PEs. */
kb_error *ccl_plan_topology(const ccl_registry *registry, const topo_machine *machine,
                            const ccl_pe_topology *over, const ipcq_settings *settings,
                            ipcq_plan *plan)
{
    static const kb_ccl_algorithm no_algorithm = {.name = "queues"};
    ccl_setting sides[] = {{"w", over->w}, {"h", over->h}};
    ccl_entry entry = {
        .name = "queues",
        .algorithm = &no_algorithm,
        .topology = ccl_find_topology(registry, over->name),
        .mapper = ccl_find_mapper(registry, "leader_only"),
        .rank_is_pe = true,
        .buffer = settings->buffer,
        .polls = settings->polls,
        .n_slots = settings->n_slots,
        .slot_bytes = settings->slot_bytes,
        .credit_bytes = settings->credit_bytes,
    };
    entry.settings.items = sides;
    entry.settings.count = over->w > 0 || over->h > 0 ? 2 : 0;
    if (!entry.topology)
        return unknown_topology(registry, over->name);
    KB_TRY(check_pes(topo_machine_shape(machine), over));
    ccl_plan made;
    KB_TRY(ccl_plan_make_for(&entry, machine, over->pes, (uint32_t)over->count, &made));
    *plan = ccl_plan_take_queues(&made);
    return NULL;
}

kb_error *ccl_plan_edges(const topo_machine *machine, const ipcq_edge *edges, size_t count,
                         const ipcq_settings *settings, ipcq_plan *plan)
{
    const topo_shape *shape = topo_machine_shape(machine);
    for (size_t i = 0; i < count; i++) {
        kb_pe pe = topo_has_pe(shape, edges[i].from) ? edges[i].to : edges[i].from;
        if (!topo_has_pe(shape, pe))
            return kb_error_new(KB_ERR_INPUT, "edge %zu (%s): the machine has no %s", i,
                                edges[i].direction ? edges[i].direction : "without direction",
                                topo_pe_name(pe).text);
        if (!edges[i].direction || edges[i].direction[0] == '\0')
            return kb_error_new(KB_ERR_INPUT, "edge %zu has no direction", i);
    }
    KB_TRY(ipcq_plan_init(plan, edges, count, settings));
    kb_error *err = check_queue_memory(shape, plan);
    if (err)
        ipcq_plan_fini(plan);
    return err;
}

void ccl_plan_fini(ccl_plan *plan)
{
    ipcq_plan_fini(&plan->queues);
    ccl_participants_fini(&plan->participants);
    free(plan->ranks);
    *plan = (ccl_plan){0};
}
