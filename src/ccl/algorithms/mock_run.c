/*
 * mock_run.c: runs kernels without a machine model. Commands complete when they are issued
 * (tl_runner_options.instant) and queues are unbounded, so no simulated time passes. Results,
 * unknown directions and deadlocks are those of a real run.
 *
 * Kernels ask for their location, so there is a machine: the smallest one with enough PEs. Ranks
 * fill one cube after the other. All PEs have their own buffer at the same virtual address, or all
 * buffers of a SIP are consecutive (`sliced`). The TCM has the size of the default machine.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/graph/plan.h"
#include "tl/tl.h"

enum { MAX_CUBES_A_ROW = 64 };

#define BUFFER MEM_VA_BASE

typedef struct mock_run {
    const kb_mock *mock;
    uint64_t buffer_bytes;     /* of one rank */
    uint32_t pes, cubes, sips; /* per cube, per SIP, in total */
    topo_machine *machine;
    kb_sim *sim;
    mem_memories *memories;
    mem_mmu **mmus; /* by SIP */
    data_store *store;
    ipcq *queues;
    ipcq_set *set;
    tl_runner *runner;
    kb_ccl_arguments *args; /* by rank */
    kb_error *fault;        /* the first error of a kernel */
} mock_run;

static kb_pe pe_of(const mock_run *run, uint32_t rank)
{
    uint32_t cube = rank / run->pes;
    return (kb_pe){.sip = cube / run->cubes, .cube = cube % run->cubes, .pe = rank % run->pes};
}

static kb_location buffer_of(const mock_run *run, uint32_t rank)
{
    return (kb_location){.memory = KB_HBM,
                         .pe = pe_of(run, rank),
                         .offset = run->mock->own_memory ? rank * run->buffer_bytes : 0};
}

/* ---- The machine ------------------------------------------------------------------------- */

static kb_error *load_machine(mock_run *run)
{
    uint32_t w = run->cubes < MAX_CUBES_A_ROW ? run->cubes : MAX_CUBES_A_ROW;
    char text[256];
    int length =
        snprintf(text, sizeof text,
                 "system: { sips: { count: %" PRIu32 " } }\n"
                 "sip: { cube_mesh: { w: %" PRIu32 ", h: %" PRIu32 " } }\n"
                 "cube: { noc: { w: 1, h: 1 }, pe_layout: { pe_per_router: %" PRIu32 " } }\n",
                 run->sips, w, (run->cubes + w - 1) / w, run->pes);
    return topo_machine_load(&(topo_source){.path = "mock", .text = text, .length = (size_t)length},
                             &run->machine);
}

/* All of each PE's slice of the HBM, from address 0 on. */
static kb_error *map_own_memory(const mock_run *run, uint32_t sip, kb_location *copies)
{
    uint32_t each = run->cubes * run->pes;
    uint64_t bytes = topo_machine_shape(run->machine)->slice_bytes;
    if (run->buffer_bytes > bytes / run->mock->ranks)
        return kb_error_new(KB_ERR_INPUT,
                            "mock: %" PRIu32 " buffers of %" PRIu64
                            " bytes do not fit into the %" PRIu64 " bytes of a PE's memory",
                            run->mock->ranks, run->buffer_bytes, bytes);
    for (uint32_t i = 0; i < each; i++)
        copies[i] = (kb_location){.memory = KB_HBM, .pe = pe_of(run, sip * each + i)};
    mem_extent all = {.bytes = bytes, .copy_count = each};
    mem_mapping_spec spec = {.name = "memory",
                             .bytes = bytes,
                             .extents = &all,
                             .extent_count = 1,
                             .copies = copies,
                             .copy_count = each};
    mem_mapping_id id;
    KB_TRY(mem_mmu_add(run->mmus[sip], &spec, &id));
    for (uint32_t i = 0; i < each; i++)
        mem_mmu_install(run->mmus[sip], id, copies[i].pe.cube, copies[i].pe.pe);
    return NULL;
}

/* One address with a copy for each PE of the SIP, or a slice for each PE. */
static kb_error *map_buffers(const mock_run *run, uint32_t sip, kb_location *copies,
                             mem_extent *extents)
{
    uint32_t each = run->cubes * run->pes, first = sip * each;
    uint32_t count = run->mock->ranks - first < each ? run->mock->ranks - first : each;
    bool sliced = run->mock->sliced;
    extents[0] = (mem_extent){.bytes = run->buffer_bytes, .copy_count = count};
    for (uint32_t i = 0; i < count; i++) {
        copies[i] = buffer_of(run, first + i);
        if (sliced)
            extents[i] = (mem_extent){.offset = i * run->buffer_bytes,
                                      .bytes = run->buffer_bytes,
                                      .first_copy = i,
                                      .copy_count = 1};
    }
    mem_mapping_spec spec = {.name = "buffer",
                             .va = BUFFER + (sliced ? first * run->buffer_bytes : 0),
                             .bytes = run->buffer_bytes * (sliced ? count : 1),
                             .extents = extents,
                             .extent_count = sliced ? count : 1,
                             .copies = copies,
                             .copy_count = count};
    mem_mapping_id id;
    KB_TRY(mem_mmu_add(run->mmus[sip], &spec, &id));
    for (uint32_t i = 0; i < count; i++)
        mem_mmu_install(run->mmus[sip], id, copies[i].pe.cube, copies[i].pe.pe);
    return NULL;
}

static kb_error *make_mmus(mock_run *run)
{
    const topo_shape *shape = topo_machine_shape(run->machine);
    size_t pes = (size_t)run->cubes * run->pes;
    kb_location *copies = kb_alloc_array(pes, sizeof *copies);
    mem_extent *extents = kb_alloc_array(pes, sizeof *extents);
    run->mmus = kb_alloc_zeroed(run->sips, sizeof *run->mmus);
    kb_error *err = copies && extents && run->mmus ? NULL : kb_error_nomem();
    for (uint32_t sip = 0; sip < run->sips && !err; sip++) {
        err = mem_mmu_create(sip, shape->cubes, shape->pes, &run->mmus[sip]);
        if (!err && run->mock->own_memory)
            err = map_own_memory(run, sip, copies);
        else if (!err && run->buffer_bytes > 0)
            err = map_buffers(run, sip, copies, extents);
    }
    free(extents);
    free(copies);
    return err;
}

static kb_error *make_memories(mock_run *run)
{
    KB_TRY(mem_memories_create(run->machine, TOPO_NONE, &run->memories));
    KB_TRY(make_mmus(run));
    return data_store_create(&(data_options){.memories = run->memories, .threads = 1}, &run->store);
}

/* ---- Queues ------------------------------------------------------------------------------ */

struct kb_mock_graph {
    const mock_run *run;
    KB_VEC(ipcq_edge) edges;
    kb_arena names;
};

kb_error *kb_mock_connect(kb_mock_graph *graph, uint32_t from, const char *direction, uint32_t to)
{
    const mock_run *run = graph->run;
    if (from >= run->mock->ranks || to >= run->mock->ranks)
        return kb_error_new(KB_ERR_INPUT,
                            "mock: direction '%s' leads from rank %" PRIu32 " to %" PRIu32
                            ", but ranks are 0 to %" PRIu32,
                            direction, from, to, run->mock->ranks - 1);
    ipcq_edge edge = {pe_of(run, from), kb_arena_strdup(&graph->names, direction), pe_of(run, to)};
    return edge.direction && kb_vec_push(&graph->edges, edge) ? NULL : kb_error_nomem();
}

/* The connections of the list and of the function. */
static kb_error *list_edges(const kb_mock *mock, kb_mock_graph *graph)
{
    for (size_t i = 0; i < mock->edge_count; i++)
        KB_TRY(kb_mock_connect(graph, mock->edges[i].from, mock->edges[i].direction,
                               mock->edges[i].to));
    for (uint32_t rank = 0; mock->neighbours && rank < mock->ranks; rank++)
        KB_TRY(mock->neighbours(mock->self, rank, graph));
    return NULL;
}

static kb_error *plan_edges(const mock_run *run, ipcq_plan *plan)
{
    kb_mock_graph graph = {.run = run};
    kb_arena_init(&graph.names);
    kb_error *err = list_edges(run->mock, &graph);
    if (!err)
        err = ipcq_plan_init(plan, graph.edges.items, graph.edges.count,
                             &(ipcq_settings){.buffer = KB_TCM});
    kb_vec_fini(&graph.edges);
    kb_arena_fini(&graph.names);
    return err;
}

static kb_error *plan_topology(const mock_run *run, ipcq_plan *plan)
{
    const kb_mock *mock = run->mock;
    ccl_registry registry;
    KB_TRY(ccl_registry_init(&registry, NULL, 0));
    kb_pe *pes = kb_alloc_array(mock->ranks, sizeof *pes);
    if (!pes)
        return kb_error_nomem();
    for (uint32_t rank = 0; rank < mock->ranks; rank++)
        pes[rank] = pe_of(run, rank);
    const ccl_pe_topology over = {
        .name = mock->topology, .pes = pes, .count = mock->ranks, .w = mock->w, .h = mock->h};
    kb_error *err =
        ccl_plan_topology(&registry, run->machine, &over, &(ipcq_settings){.buffer = KB_TCM}, plan);
    free(pes);
    return err ? kb_error_wrap(err, "mock") : NULL;
}

static kb_error *make_plan(const mock_run *run, ipcq_plan *plan)
{
    const kb_mock *mock = run->mock;
    int given = (mock->edge_count > 0) + (mock->topology != NULL) + (mock->neighbours != NULL);
    if (given > 1)
        return kb_error_new(KB_ERR_INPUT, "mock: more than one of edges, topology and neighbours");
    return mock->topology ? plan_topology(run, plan) : plan_edges(run, plan);
}

static kb_error *make_queues(mock_run *run)
{
    ipcq_plan plan;
    KB_TRY(ipcq_create(&(ipcq_options){.sim = run->sim,
                                       .machine = run->machine,
                                       .memories = run->memories,
                                       .store = run->store},
                       &run->queues));
    KB_TRY(make_plan(run, &plan));
    kb_error *err = ipcq_set_create(run->queues, &plan, &run->set);
    ipcq_plan_fini(&plan);
    if (err)
        return err;
    size_t count;
    const ipcq_member *participants = ipcq_set_members(run->set, &count);
    for (size_t i = 0; i < count; i++)
        KB_TRY(ipcq_install(run->set, participants[i].pe));
    return NULL;
}

/* ---- Running ----------------------------------------------------------------------------- */

static void on_done(void *self, uint64_t rank, const tl_outcome *outcome, kb_error *err)
{
    mock_run *run = self;
    (void)rank;
    (void)outcome;
    if (!err)
        return;
    if (run->fault)
        kb_error_free(err);
    else
        run->fault = err;
    kb_sim_stop(run->sim);
}

static kb_error *start_rank(mock_run *run, uint32_t rank)
{
    const kb_mock *mock = run->mock;
    kb_ccl_arguments *args = &run->args[rank];
    if (mock->arguments)
        mock->arguments(mock->self, rank, mock->own_memory ? rank * run->buffer_bytes : BUFFER,
                        args);
    if (args->count != mock->kernel->parameter_count)
        return kb_error_new(KB_ERR_INPUT, "mock: kernel '%s' expects %zu argument%s, found %zu",
                            mock->kernel->name, mock->kernel->parameter_count,
                            kb_plural(mock->kernel->parameter_count), args->count);
    if (args->count > KB_CCL_MAX_ARGUMENTS)
        return kb_error_new(KB_ERR_INPUT, "mock: kernel '%s' was given more than %d arguments",
                            mock->kernel->name, KB_CCL_MAX_ARGUMENTS);
    bool one_cube = run->cubes == 1 && run->sips == 1;
    return tl_runner_start(run->runner,
                           &(tl_run){.kernel = mock->kernel,
                                     .args = args->items,
                                     .label = "mock",
                                     .launch = 1,
                                     .pe = pe_of(run, rank),
                                     .programs = {one_cube ? mock->ranks : run->pes, run->cubes},
                                     .queues = run->set,
                                     .done = on_done,
                                     .self = run,
                                     .arg = rank});
}

/* Messages that were not received are an error, as in a collective. */
static kb_error *check_unreceived(const mock_run *run)
{
    kb_text left = KB_TEXT_INIT;
    kb_error *err = NULL;
    if (ipcq_print_unreceived(run->set, &left))
        err = kb_error_new(KB_ERR_FAULT, "mock: kernel '%s': %s", run->mock->kernel->name,
                           kb_text_peek(&left));
    kb_text_fini(&left);
    return err;
}

static kb_error *run_kernels(mock_run *run)
{
    KB_TRY(tl_runner_create(&(tl_runner_options){.sim = run->sim,
                                                 .machine = run->machine,
                                                 .memories = run->memories,
                                                 .mmus = run->mmus,
                                                 .store = run->store,
                                                 .queues = run->queues,
                                                 .instant = true},
                            &run->runner));
    run->args = kb_alloc_zeroed(run->mock->ranks, sizeof *run->args);
    if (!run->args)
        return kb_error_nomem();
    for (uint32_t rank = 0; rank < run->mock->ranks; rank++)
        KB_TRY(start_rank(run, rank));
    kb_error *err = kb_sim_run(run->sim, KB_FOREVER);
    if (run->fault) { /* a deadlock of other kernels is a consequence */
        kb_error_free(err);
        err = run->fault;
        run->fault = NULL;
    }
    if (kb_error_code(err) == KB_ERR_DEADLOCK)
        err = ipcq_explain_deadlock(run->queues, err);
    return err || run->mock->own_memory ? err : check_unreceived(run);
}

static kb_error *run_mock(mock_run *run, unsigned char *data)
{
    KB_TRY(load_machine(run));
    KB_TRY(kb_sim_create(&(kb_sim_options){.stack_bytes = run->mock->stack_bytes}, &run->sim));
    KB_TRY(make_memories(run));
    KB_TRY(make_queues(run));
    for (uint32_t rank = 0; rank < run->mock->ranks; rank++) {
        kb_location at = buffer_of(run, rank);
        KB_TRY(mem_memories_write(run->memories, &at, data + rank * run->buffer_bytes,
                                  run->buffer_bytes));
    }
    KB_TRY(run_kernels(run));
    KB_TRY(data_settle(run->store));
    for (uint32_t rank = 0; rank < run->mock->ranks; rank++) {
        kb_location at = buffer_of(run, rank);
        mem_memories_read(run->memories, &at, data + rank * run->buffer_bytes, run->buffer_bytes);
    }
    return NULL;
}

static void mock_run_fini(mock_run *run)
{
    if (run->sim)
        kb_sim_abandon(run->sim);
    tl_runner_destroy(run->runner);
    free(run->args);
    kb_error_free(run->fault);
    ipcq_destroy(run->queues);
    data_store_destroy(run->store);
    for (uint32_t sip = 0; run->mmus && sip < run->sips; sip++)
        mem_mmu_destroy(run->mmus[sip]);
    free(run->mmus);
    mem_memories_destroy(run->memories);
    kb_sim_destroy(run->sim);
    topo_machine_destroy(run->machine);
}

kb_error *kb_mock_run(const kb_mock *mock, void *data, size_t bytes)
{
    size_t expected;
    if (mock->ranks == 0)
        return kb_error_new(KB_ERR_INPUT, "mock: the number of ranks is 0");
    if (!kb_size_mul(mock->elements, kb_dtype_bytes(mock->dtype), &expected) ||
        !kb_size_mul(expected, mock->ranks, &expected) || expected != bytes)
        return kb_error_new(KB_ERR_INPUT,
                            "mock: %" PRIu32 " buffers of %" PRIu64 " elements of %s expected, "
                            "but the data has %zu bytes",
                            mock->ranks, mock->elements, kb_dtype_name(mock->dtype), bytes);
    uint32_t pes = mock->pes_per_cube ? mock->pes_per_cube : mock->ranks;
    uint32_t all_cubes = (mock->ranks - 1) / pes + 1;
    uint32_t cubes = mock->cubes_per_sip ? mock->cubes_per_sip : all_cubes;
    mock_run run = {.mock = mock,
                    .buffer_bytes = bytes / mock->ranks,
                    .pes = pes,
                    .cubes = cubes,
                    .sips = (all_cubes - 1) / cubes + 1};
    kb_error *err = run_mock(&run, data);
    mock_run_fini(&run);
    return err;
}
