/*
 * test_tree_streams.c: the all-reduce `streams`, which has a PE for each stage of each tree: the
 * assignment of PEs, and correct results on real machines, because its PEs work on each other's
 * memory.
 */
#include "trial.h"

#include "ccl/algorithms/algorithms.h"
#include "ccl/graph/plan.h"
#include "support/seed.h"

#define LINKS                                                                                      \
    "system.sips.link.bw_gbs=100", "system.sips.link.length_mm=50",                                \
        "system.sips.link.overhead_ns=20"

/* ---- Who does what ---- */

enum { COLUMNS = 4, ROWS = 4, EACH = 8, PLACES = COLUMNS * ROWS * EACH, MAX_SIPS = 16 };

typedef struct plan {
    kb_ccl_scope scope;
    kb_pe ranks[MAX_SIPS];
    kb_ccl_participants participants;
    kb_ccl_graph graph;
} plan;

static kb_error *plan_init(plan *p, kb_sip_pattern pattern, uint32_t w, uint32_t h, kb_machine m)
{
    *p = (plan){.scope = {.machine = m,
                          .sips = pattern,
                          .sip_w = w,
                          .sip_h = h,
                          .sip_links = true,
                          .world = w * h,
                          .entry = "mine"}};
    p->scope.machine.sips = w * h;
    p->scope.machine.cubes = m.cube_w * m.cube_h;
    p->scope.ranks = p->ranks;
    kb_arena_init(&p->graph.names);
    for (uint32_t rank = 0; rank < w * h; rank++)
        p->ranks[rank].sip = rank;
    for (uint32_t lane = 0; lane < p->scope.machine.cubes * m.pes; lane++)
        for (uint32_t rank = 0; rank < w * h; rank++)
            expect_ok(kb_ccl_add_participant(&p->participants, lane, rank,
                                             (kb_pe){rank, lane / m.pes, lane % m.pes}));
    return ccl_streams_algorithm.connect(&p->scope, &p->participants, &p->graph);
}

static void plan_fini(plan *p)
{
    ccl_participants_fini(&p->participants);
    ccl_graph_fini(&p->graph);
}

/* Directions are named after their tree: "sums3_0", "results3_1", "on3_2". */
static uint32_t tree_of(const char *direction)
{
    return (uint32_t)strtoul(direction + strcspn(direction, "0123456789"), NULL, 10);
}

/* Each PE is in one tree, sends to one other SIP at most, and takes part in sums or in results. */
static void check_stations(const plan *p)
{
    static struct {
        uint32_t tree;
        bool used, leaves, sums;
    } pes[MAX_SIPS][PLACES];
    memset(pes, 0, sizeof pes);
    for (size_t i = 0; i < p->graph.edges.count; i++) {
        const ipcq_edge *e = &p->graph.edges.items[i];
        const kb_pe ends[] = {e->from, e->to};
        for (int k = 0; k < 2; k++) {
            uint32_t place = ends[k].cube * EACH + ends[k].pe, tree = tree_of(e->direction);
            bool sums = e->direction[0] == 's' ||
                        (k == 0 && e->direction[0] == 'r' && e->from.sip == e->to.sip);
            assert_true(place < PLACES);
            if (pes[ends[k].sip][place].used) {
                assert_int_equal(pes[ends[k].sip][place].tree, tree);
                assert_int_equal(pes[ends[k].sip][place].sums, sums);
            }
            pes[ends[k].sip][place].used = true;
            pes[ends[k].sip][place].tree = tree;
            pes[ends[k].sip][place].sums = sums;
        }
        if (e->from.sip == e->to.sip)
            continue;
        uint32_t place = e->from.cube * EACH + e->from.pe;
        assert_false(pes[e->from.sip][place].leaves);
        pes[e->from.sip][place].leaves = true;
    }
}

/* All that leaves by a column of cubes goes to the same SIP. */
static void check_columns(const plan *p)
{
    uint32_t to[MAX_SIPS][COLUMNS];
    memset(to, 0xff, sizeof to);
    for (size_t i = 0; i < p->graph.edges.count; i++) {
        const ipcq_edge *e = &p->graph.edges.items[i];
        uint32_t *seen = &to[e->from.sip][e->from.cube % COLUMNS];
        if (e->from.sip == e->to.sip)
            continue;
        if (*seen != UINT32_MAX && *seen != e->to.sip)
            fail_msg("column %u of sip%u sends to sip%u and sip%u", e->from.cube % COLUMNS,
                     e->from.sip, *seen, e->to.sip);
        *seen = e->to.sip;
    }
}

/* Each link carries as much as any other, each way. */
static void check_links(const plan *p, uint32_t streams)
{
    uint32_t load[MAX_SIPS][MAX_SIPS] = {0};
    for (size_t i = 0; i < p->graph.edges.count; i++) {
        const ipcq_edge *e = &p->graph.edges.items[i];
        load[e->from.sip][e->to.sip] += e->from.sip != e->to.sip;
    }
    for (uint32_t a = 0; a < MAX_SIPS; a++)
        for (uint32_t b = 0; b < MAX_SIPS; b++)
            if (load[a][b] > 0)
                assert_int_equal(load[a][b], streams);
}

/*
 * The least number of trees from 12 on that is even, n-1 of m links each: 12 on 2 x 2 (3 of 4), 14
 * on 3 x 2 (5 of 7), 12 on 3 x 3 (8 of 12), 16 on 4 x 4 (15 of 24): so many streams on each link.
 */
static void a_pe_has_one_station_and_a_column_one_link(void **state)
{
    (void)state;
    static const struct {
        uint32_t w, h, streams;
    } cases[] = {{2, 2, 9}, {3, 2, 10}, {3, 3, 8}, {4, 4, 10}, {5, 1, 12}};
    kb_machine m = {.cube_w = COLUMNS, .cube_h = ROWS, .pes = EACH};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plan p;
        expect_ok(plan_init(&p, KB_SIPS_MESH, cases[i].w, cases[i].h, m));
        check_stations(&p);
        check_columns(&p);
        check_links(&p, cases[i].streams);
        plan_fini(&p);
    }
}

/* The SIP in the middle of 3 x 3 has four links, so a tree takes up to five of its PEs. */
static void there_have_to_be_pes_enough(void **state)
{
    (void)state;
    plan p;
    expect_ok(plan_init(&p, KB_SIPS_MESH, 3, 3, (kb_machine){.cube_w = 1, .cube_h = 1, .pes = 5}));
    check_stations(&p);
    plan_fini(&p);
    expect_error(
        plan_init(&p, KB_SIPS_MESH, 3, 3, (kb_machine){.cube_w = 2, .cube_h = 1, .pes = 2}),
        KB_ERR_INPUT, "streams needs a PE for each link of a SIP and one more");
    plan_fini(&p);
}

static void all_pes_have_to_take_part(void **state)
{
    (void)state;
    plan p;
    kb_machine m = {.cube_w = 2, .cube_h = 1, .pes = 4};
    expect_ok(plan_init(&p, KB_SIPS_MESH, 2, 2, m));
    ccl_participants_fini(&p.participants);
    p.participants = (kb_ccl_participants){0};
    for (uint32_t rank = 0; rank < 4; rank++)
        expect_ok(kb_ccl_add_participant(&p.participants, 0, rank, p.ranks[rank]));
    expect_error(ccl_streams_algorithm.connect(&p.scope, &p.participants, &p.graph), KB_ERR_INPUT,
                 "streams needs all PEs of the ranks' SIPs: mapper: lanes");
    plan_fini(&p);
}

/* ---- What comes of it ---- */

static void try_one(kb_rng *rng, kb_context *ctx, uint32_t world, uint64_t elements)
{
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32, KB_I32};
    kb_machine machine = kb_context_machine(ctx);
    trial t = {.kind = KB_ALL_REDUCE,
               .op = (kb_reduce_op)below(rng, KB_REDUCE_OPS),
               .algorithm = "streams",
               .world = world,
               .block = elements,
               .memory = one_in(rng, 4) ? KB_TCM : KB_HBM};
    t.dtype = dtypes[below(rng, t.op == KB_AVG ? 3 : 4)];
    trial_draw(&t, rng, &machine, one_in(rng, 3));
    trial_spawn(&t, ctx);
    trial_fini(&t);
}

/* Elements: none, fewer than there are trees or PEs, and such that tiles go across the parts of
 * PEs.
 */
static void sums_are_right(uint32_t sips, uint32_t w, uint32_t h, const char *const *more)
{
    static const uint64_t sizes[] = {0, 1, 5, 77, 1000, 5003};
    kb_context *ctx = open_sips(sips, w, h, more, (kb_context_options){.threads = 1});
    kb_rng rng;
    kb_rng_init(&rng, test_seed(sips));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        try_one(&rng, ctx, sips, sizes[i]);
    kb_context_destroy(ctx);
}

static void on_machines(void **state)
{
    (void)state;
    static const char *const mesh_2x2[] = {"system.sips.topology=mesh_2d_no_wrap", LINKS, NULL};
    static const char *const mesh_3x2[] = {"system.sips.topology=mesh_2d_no_wrap",
                                           "system.sips.w=3", "system.sips.h=2", LINKS, NULL};
    static const char *const torus_3x2[] = {"system.sips.topology=torus_2d", "system.sips.w=3",
                                            "system.sips.h=2", LINKS, NULL};
    sums_are_right(1, 1, 1, NULL);
    sums_are_right(3, 2, 1, NULL); /* at the switch */
    sums_are_right(4, 1, 1, mesh_2x2);
    sums_are_right(6, 3, 2, mesh_3x2);
    sums_are_right(6, 2, 1, torus_3x2);
}

/* A slot of few elements: then the streams of a tree are many tiles. */
static void with_small_slots(void **state)
{
    (void)state;
    static const char *const mesh[] = {"system.sips.topology=mesh_2d_no_wrap", LINKS,
                                       "ccl.defaults.slot_size=32", "ccl.defaults.n_slots=1", NULL};
    sums_are_right(4, 2, 1, mesh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pe_has_one_station_and_a_column_one_link),
        cmocka_unit_test(there_have_to_be_pes_enough),
        cmocka_unit_test(all_pes_have_to_take_part),
        cmocka_unit_test(on_machines),
        cmocka_unit_test(with_small_slots),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
