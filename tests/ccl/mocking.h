/*
 * mocking.h: runs an algorithm on a group of ranks as a mock run, and compares with expected
 * results.
 *
 * Participants, connections and arguments are made as in a real run, by shipped mappers and
 * topologies and the algorithm's functions. The buffer of each PE has its input, followed by its
 * output unless the collective works in place. Expected results are computed in double precision,
 * subgroup by subgroup.
 */
#ifndef TESTS_CCL_MOCKING_H
#define TESTS_CCL_MOCKING_H

#include "support/expect.h"
#include "support/seed.h"

#include <float.h>
#include <math.h>

#include "ccl/algorithms/algorithms.h"
#include "ccl/ccl.h"

typedef struct scene {
    const kb_ccl_algorithm *algorithm;
    const char *mapper, *topology; /* NULL: leader_only, and none */
    kb_sip_pattern sips;
    uint32_t sip_w, sip_h; /* 0: 1 */
    uint32_t cube_w, cube_h, pes;
    uint32_t world;        /* rank: pe, if it is not 0 */
    const uint32_t *group; /* SIPs of the ranks; NULL: all in order */
    uint32_t group_size;
    kb_collective_kind kind;
    kb_reduce_op op;
    kb_dtype dtype;
    uint64_t elements; /* of a PE in a block */
    uint32_t root;
    uint64_t slot_bytes; /* 0: 64 */
    bool sip_links;
    ccl_setting settings[4];
    uint64_t seed;
} scene;

/* ---- Making it --------------------------------------------------------------------------- */

typedef struct stage {
    scene is;
    uint64_t slot_bytes;
    ccl_entry entry;
    kb_ccl_scope scope;
    kb_pe ranks[64];
    kb_ccl_participants participants;
    kb_ccl_graph graph;
    kb_mock mock;
    kb_mock_edge *edges;
    uint64_t inputs, outputs; /* elements of each PE's */
    double *before, *after;   /* by PE: its buffer */
    unsigned char *bytes;     /* of all buffers afterwards */
    kb_error *refused;
} stage;

static inline const kb_ccl_mapper *mapper_named(const char *name)
{
    for (size_t i = 0; ccl_mappers[i]; i++)
        if (strcmp(ccl_mappers[i]->name, name) == 0)
            return ccl_mappers[i];
    fail_msg("no mapper %s", name);
    return NULL;
}

static inline const kb_ccl_topology *topology_named(const char *name)
{
    for (size_t i = 0; ccl_topologies[i]; i++)
        if (strcmp(ccl_topologies[i]->name, name) == 0)
            return ccl_topologies[i];
    fail_msg("no topology %s", name);
    return NULL;
}

static inline uint32_t at_least_one(uint32_t number)
{
    return number > 0 ? number : 1;
}

static inline void set_scope(stage *s)
{
    scene *is = &s->is;
    kb_machine machine = {.name = "mock",
                          .sips = at_least_one(is->sip_w) * at_least_one(is->sip_h),
                          .cube_w = at_least_one(is->cube_w),
                          .cube_h = at_least_one(is->cube_h),
                          .pes = at_least_one(is->pes),
                          .tcm_bytes = 12 << 20};
    machine.cubes = machine.cube_w * machine.cube_h;
    s->scope = (kb_ccl_scope){.machine = machine,
                              .sips = is->sips,
                              .sip_w = at_least_one(is->sip_w),
                              .sip_h = at_least_one(is->sip_h),
                              .sip_links = is->sip_links,
                              .world = is->world   ? is->world
                                       : is->group ? is->group_size
                                                   : machine.sips,
                              .rank_is_pe = is->world > 0,
                              .ranks = s->ranks,
                              .entry = "mine",
                              .settings = &s->entry};
    assert_true(s->scope.world <= 64);
    uint32_t each = machine.cubes * machine.pes;
    for (uint32_t r = 0; r < s->scope.world; r++)
        s->ranks[r] = is->world
                          ? (kb_pe){r / each, r / machine.pes % machine.cubes, r % machine.pes}
                          : (kb_pe){.sip = is->group ? is->group[r] : r};
}

static inline uint32_t number_of(const stage *s, kb_pe pe)
{
    return (pe.sip * s->scope.machine.cubes + pe.cube) * s->scope.machine.pes + pe.pe;
}

static inline bool has_input_blocks(kb_collective_kind kind)
{
    return kind == KB_REDUCE_SCATTER || kind == KB_SCATTER || kind == KB_ALL_TO_ALL;
}

static inline bool has_output_blocks(kb_collective_kind kind)
{
    return kind == KB_ALL_GATHER || kind == KB_GATHER || kind == KB_ALL_TO_ALL;
}

static inline void set_sizes(stage *s)
{
    uint64_t n = s->is.elements, world = s->scope.world;
    s->inputs = has_input_blocks(s->is.kind) ? n * world : n;
    s->outputs = has_output_blocks(s->is.kind) ? n * world : n;
    if (!has_input_blocks(s->is.kind) && !has_output_blocks(s->is.kind))
        s->outputs = 0; /* in place */
    s->mock.elements = s->inputs + s->outputs;
}

/* What the algorithm is told of a PE, by its number. */
static inline void add_arguments(void *self, uint32_t number, uint64_t address,
                                 kb_ccl_arguments *args)
{
    stage *s = self;
    kb_ccl_call call = {.scope = &s->scope,
                        .kind = s->is.kind,
                        .op = s->is.op,
                        .dtype = s->is.dtype,
                        .root = s->is.root,
                        .slot_bytes = s->slot_bytes,
                        .n_slots = 4};
    for (uint32_t c = 0; c < s->participants.subgroups.count; c++) {
        uint32_t size, ranks[64];
        const kb_ccl_participant *subgroup = kb_ccl_subgroup(&s->participants, c, &size);
        for (uint32_t i = 0; i < size && i < 64; i++)
            ranks[i] = subgroup[i].rank;
        for (uint32_t i = 0; i < size; i++) {
            if (number_of(s, subgroup[i].pe) != number)
                continue;
            uint64_t size_of_input = s->inputs * kb_dtype_bytes(s->is.dtype);
            kb_ccl_target target = {.pe = subgroup[i].pe,
                                    .rank = subgroup[i].rank,
                                    .subgroup = c,
                                    .index = i,
                                    .subgroup_size = size,
                                    .ranks = size <= 64 ? ranks : NULL,
                                    .input = address,
                                    .output = address + (s->outputs ? size_of_input : 0),
                                    .elements = s->is.elements};
            if (s->is.kind == KB_SEND) { /* rank 0 sends to the root, others receive from it */
                call.kind = target.rank == 0 ? KB_SEND : KB_RECV;
                call.root = target.rank == 0 ? s->is.root : 0;
                target.elements =
                    target.rank == 0 || target.rank == s->is.root ? s->is.elements : 0;
            }
            kb_error *err = s->is.algorithm->arguments(&call, &target, args);
            if (err && s->refused)
                kb_error_free(err);
            else if (err)
                s->refused = err;
            return;
        }
    }
    fail_msg("PE %u is not in the plan", number);
}

static inline kb_error *join_members(stage *s)
{
    const char *mapper = s->is.mapper ? s->is.mapper : "leader_only";
    KB_TRY(mapper_named(mapper)->map(&s->scope, &s->participants));
    kb_arena_init(&s->graph.names);
    if (s->is.topology)
        return topology_named(s->is.topology)->connect(&s->scope, &s->participants, &s->graph);
    return s->is.algorithm->connect(&s->scope, &s->participants, &s->graph);
}

static inline double random_number(kb_rng *rng, const scene *is)
{
    double number = (double)kb_rng_below(rng, 2001) / 1000 - 1; /* -1 to 1 */
    if (is->dtype == KB_I32)
        return is->op == KB_PROD ? (number < 0 ? -1 : 2) : rint(number * 1000);
    return is->op == KB_PROD ? 1 + number / 8 : number;
}

static inline void set_buffers(stage *s)
{
    uint64_t n = s->mock.elements, ranks = s->mock.ranks, size = kb_dtype_bytes(s->is.dtype);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(s->is.seed + 1));
    s->before = calloc(n * ranks + 1, sizeof *s->before);
    s->after = calloc(n * ranks + 1, sizeof *s->after);
    s->bytes = calloc(n * ranks + 1, size);
    assert_true(s->before && s->after && s->bytes);
    for (uint64_t i = 0; i < n * ranks; i++) {
        mem_number_set(s->is.dtype, s->bytes + i * size, random_number(&rng, &s->is));
        s->before[i] = mem_number_get(s->is.dtype, s->bytes + i * size);
    }
}

/* An error, or what is in the buffers afterwards. */
static inline kb_error *stage_try(stage *s, const scene *is)
{
    *s = (stage){.is = *is, .slot_bytes = is->slot_bytes ? is->slot_bytes : 64};
    for (int i = 0; i < 4 && is->settings[i].key; i++)
        assert_true(kb_vec_push(&s->entry.settings, is->settings[i]));
    set_scope(s);
    KB_TRY(join_members(s));
    s->edges = calloc(s->graph.edges.count + 1, sizeof *s->edges);
    assert_non_null(s->edges);
    for (size_t i = 0; i < s->graph.edges.count; i++) {
        const ipcq_edge *edge = &s->graph.edges.items[i];
        s->edges[i] =
            (kb_mock_edge){number_of(s, edge->from), edge->direction, number_of(s, edge->to)};
    }
    s->mock = (kb_mock){.kernel = is->algorithm->kernel,
                        .pes_per_cube = s->scope.machine.pes,
                        .cubes_per_sip = s->scope.machine.cubes,
                        .edges = s->edges,
                        .edge_count = s->graph.edges.count,
                        .dtype = is->dtype,
                        .arguments = add_arguments,
                        .self = s};
    for (size_t c = 0; c < s->participants.subgroups.count; c++)
        s->mock.ranks += (uint32_t)s->participants.subgroups.items[c].participants.count;
    set_sizes(s);
    set_buffers(s);
    uint64_t size = kb_dtype_bytes(is->dtype), all = s->mock.elements * s->mock.ranks;
    kb_error *err = kb_mock_run(&s->mock, s->bytes, all * size);
    if (s->refused) {
        kb_error_free(err);
        return s->refused;
    }
    for (uint64_t i = 0; i < all; i++)
        s->after[i] = mem_number_get(is->dtype, s->bytes + i * size);
    return err;
}

static inline void stage_fini(stage *s)
{
    kb_vec_fini(&s->entry.settings);
    ccl_participants_fini(&s->participants);
    ccl_graph_fini(&s->graph);
    free(s->edges);
    free(s->before);
    free(s->after);
    free(s->bytes);
}

/* ---- What it should be ------------------------------------------------------------------- */

static inline const double *input_of(const stage *s, const kb_ccl_participant *participant)
{
    return s->before + number_of(s, participant->pe) * s->mock.elements;
}

static inline uint64_t output_at(const stage *s, const kb_ccl_participant *participant)
{
    return number_of(s, participant->pe) * s->mock.elements + (s->outputs ? s->inputs : 0);
}

static inline double epsilon_of(kb_dtype dtype)
{
    return dtype == KB_F32 ? 0x1p-23 : dtype == KB_F16 ? 0x1p-10 : dtype == KB_BF16 ? 0x1p-7 : 0;
}

typedef struct expected {
    double number, tolerance;
} expected;

/* Element `index` of all inputs of a subgroup as one. Sums of n values are off by n roundings at
 * most, each of at most half a unit of the largest sum there can be. */
static inline expected reduced(const stage *s, const kb_ccl_participant *subgroup, uint32_t count,
                               uint64_t index)
{
    double sum = 0, size = 0, product = 1, max = -DBL_MAX, min = DBL_MAX;
    for (uint32_t i = 0; i < count; i++) {
        double number = input_of(s, &subgroup[i])[index];
        sum += number;
        size += fabs(number);
        product *= number;
        max = fmax(max, number);
        min = fmin(min, number);
    }
    double off = count > 1 ? count * epsilon_of(s->is.dtype) : 0;
    switch (s->is.op) {
    case KB_MAX:
        return (expected){max, 0};
    case KB_MIN:
        return (expected){min, 0};
    case KB_PROD:
        return (expected){product, off * fabs(product)};
    case KB_AVG:
        if (s->is.dtype == KB_I32)
            return (expected){trunc(sum / count), 0};
        return (expected){sum / count, off * size / count};
    case KB_SUM:
    case KB_REDUCE_OPS:
        break;
    }
    return (expected){sum, off * size};
}

static inline const kb_ccl_participant *with_rank(const kb_ccl_participant *subgroup, uint32_t rank)
{
    while (subgroup->rank != rank)
        subgroup++;
    return subgroup;
}

/* Element `index` of the output of a participant. */
static inline expected expected_at(const stage *s, const kb_ccl_participant *subgroup,
                                   uint32_t count, const kb_ccl_participant *participant,
                                   uint64_t index)
{
    uint64_t n = s->is.elements, block = index / n, rest = index % n;
    expected own = {input_of(s, participant)[rest], 0};
    switch (s->is.kind) {
    case KB_ALL_REDUCE:
        return reduced(s, subgroup, count, index);
    case KB_REDUCE:
        return participant->rank == s->is.root ? reduced(s, subgroup, count, index) : own;
    case KB_REDUCE_SCATTER:
        return reduced(s, subgroup, count, participant->rank * n + index);
    case KB_BROADCAST:
        return (expected){input_of(s, with_rank(subgroup, s->is.root))[index], 0};
    case KB_ALL_GATHER:
        return (expected){input_of(s, with_rank(subgroup, (uint32_t)block))[rest], 0};
    case KB_GATHER:
        if (participant->rank != s->is.root) /* what was there */
            return (expected){s->before[output_at(s, participant) + index], 0};
        return (expected){input_of(s, with_rank(subgroup, (uint32_t)block))[rest], 0};
    case KB_SCATTER:
        return (expected){
            input_of(s, with_rank(subgroup, s->is.root))[participant->rank * n + index], 0};
    case KB_ALL_TO_ALL:
        return (expected){
            input_of(s, with_rank(subgroup, (uint32_t)block))[participant->rank * n + rest], 0};
    case KB_SEND:
        return participant->rank == s->is.root
                   ? (expected){input_of(s, with_rank(subgroup, 0))[index], 0}
                   : own;
    case KB_RECV:
    case KB_BARRIER:
    case KB_COLLECTIVES:
        break;
    }
    fail_msg("no such collective");
    return own;
}

static inline void check_member(const stage *s, const kb_ccl_participant *subgroup, uint32_t count,
                                const kb_ccl_participant *participant)
{
    uint64_t outputs = s->outputs ? s->outputs : s->inputs;
    for (uint64_t i = 0; i < outputs; i++) {
        expected e = expected_at(s, subgroup, count, participant, i);
        double got = s->after[output_at(s, participant) + i];
        if (!(fabs(got - e.number) <= e.tolerance))
            fail_msg(
                "%s, world %u of %u sips, subgroup of %u, %s %s, %zu elements: rank %u (sip %u, "
                "cube %u, pe %u), element %zu is %.9g, not %.9g (+- %.2g)",
                s->is.algorithm->name, s->scope.world, s->scope.machine.sips, count,
                kb_dtype_name(s->is.dtype), kb_reduce_op_name(s->is.op), (size_t)s->is.elements,
                participant->rank, participant->pe.sip, participant->pe.cube, participant->pe.pe,
                (size_t)i, got, e.number, e.tolerance);
    }
}

static inline void check_bits(const stage *s, const kb_ccl_participant *subgroup, uint32_t count)
{
    uint64_t size = kb_dtype_bytes(s->is.dtype);
    for (uint32_t i = 1; i < count; i++)
        assert_memory_equal(s->bytes + output_at(s, &subgroup[i]) * size,
                            s->bytes + output_at(s, &subgroup[0]) * size, s->is.elements * size);
}

/* Runs it, and checks all that came out. */
static inline void play(const scene *is)
{
    stage s;
    expect_ok(stage_try(&s, is));
    for (uint32_t c = 0; c < s.participants.subgroups.count; c++) {
        uint32_t count;
        const kb_ccl_participant *subgroup = kb_ccl_subgroup(&s.participants, c, &count);
        for (uint32_t i = 0; i < count && is->elements > 0; i++)
            check_member(&s, subgroup, count, &subgroup[i]);
        if (is->algorithm->same_bits && is->kind == KB_ALL_REDUCE && is->elements > 0)
            check_bits(&s, subgroup, count);
    }
    stage_fini(&s);
}

/* The same with every dtype and operation. */
static inline void play_all_ops(scene is)
{
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32, KB_I32};
    for (int d = 0; d < 4; d++)
        for (int op = 0; op < KB_REDUCE_OPS; op++) {
            is.dtype = dtypes[d];
            is.op = (kb_reduce_op)op;
            is.seed = (uint64_t)(d * KB_REDUCE_OPS + op);
            play(&is);
        }
}

/* Sizes around those of a tile, which is 32 elements of f16 or 16 of f32 unless a test has other
 * slots: with nothing, with less than there are participants, not a multiple of anything. */
static const uint64_t ragged_sizes[] = {0, 1, 17, 33, 100};
enum { RAGGED_SIZES = sizeof ragged_sizes / sizeof ragged_sizes[0] };

static const uint32_t many_worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17};
enum { MANY_WORLDS = sizeof many_worlds / sizeof many_worlds[0] };

/* Every world with every size, where ranks are PEs; the large worlds with one size. */
static inline void play_in_worlds(scene is)
{
    for (uint32_t i = 0; i < MANY_WORLDS; i++)
        for (uint32_t k = many_worlds[i] > 9 ? RAGGED_SIZES - 1 : 0; k < RAGGED_SIZES; k++) {
            is.world = many_worlds[i];
            is.elements = ragged_sizes[k];
            is.root = is.world / 3;
            is.seed = i * RAGGED_SIZES + k;
            play(&is);
        }
}

#endif
