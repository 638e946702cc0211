/*
 * test_plan.c: plans of entries on machines: participants, their order, their connections, and
 * errors.
 */
#include "plans.h"
#include "support/seed.h"

/* "0.1.2": where participants stand, subgroup by subgroup, with a space between and "| " before the
 * next. */
static void append_members(const ccl_plan *plan, kb_text *text)
{
    for (uint32_t i = 0; i < kb_ccl_subgroup_count(&plan->participants); i++) {
        uint32_t count;
        const kb_ccl_participant *participants = kb_ccl_subgroup(&plan->participants, i, &count);
        for (uint32_t k = 0; k < count; k++)
            kb_text_printf(text, "%s%s%u.%u.%u", text->length > 0 ? " " : "",
                           i > 0 && k == 0 ? "| " : "", participants[k].pe.sip,
                           participants[k].pe.cube, participants[k].pe.pe);
    }
}

static void expect_members(const ccl_entry *entry, const topo_machine *machine,
                           const uint32_t *sips, uint32_t world, const char *expected)
{
    ccl_plan plan;
    kb_text text = KB_TEXT_INIT;
    expect_ok(ccl_plan_make(entry, machine, sips, world, &plan));
    append_members(&plan, &text);
    assert_string_equal(kb_text_peek(&text), expected);
    kb_text_fini(&text);
    ccl_plan_fini(&plan);
}

static void expect_refused(const ccl_entry *entry, const topo_machine *machine, const char *message)
{
    ccl_plan plan;
    expect_error(plan_all(entry, machine, &plan), KB_ERR_INPUT, message);
}

/* 3 SIPs of 2 x 1 cubes of 2 PEs. */
static topo_machine *small_machine(void)
{
    return machine_of("system: { sips: { count: 3 } }\n"
                      "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                      "cube:\n"
                      "  noc: { k: 2 }\n"
                      "  pe_layout: { pe_per_corner: 1, corners: [NW, SE] }\n");
}

static const uint32_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

/* ---- Who takes part ---------------------------------------------------------------------- */

static void test_mappers(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    expect_members(&entry, machine, in_order, 3, "0.0.0 1.0.0 2.0.0");
    entry.mapper = mapper_of("all_pes");
    expect_members(&entry, machine, in_order, 2, "0.0.0 0.0.1 0.1.0 0.1.1 1.0.0 1.0.1 1.1.0 1.1.1");
    entry.mapper = mapper_of("cube_leaders");
    expect_members(&entry, machine, in_order, 3, "0.0.0 0.1.0 1.0.0 1.1.0 2.0.0 2.1.0");
    entry.mapper = mapper_of("lanes");
    expect_members(&entry, machine, in_order, 2,
                   "0.0.0 1.0.0 | 0.0.1 1.0.1 | 0.1.0 1.1.0 | 0.1.1 1.1.1");
    topo_machine_destroy(machine);
}

/* A group may have some of the SIPs, in any order: ranks are by the group. */
static void test_groups(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    static const uint32_t some[] = {2, 0};
    expect_members(&entry, machine, some, 2, "2.0.0 0.0.0");
    entry.mapper = mapper_of("lanes");
    ccl_plan plan;
    expect_ok(ccl_plan_make(&entry, machine, some, 2, &plan));
    uint32_t count;
    const kb_ccl_participant *participants = kb_ccl_subgroup(&plan.participants, 3, &count);
    assert_int_equal(count, 2);
    assert_int_equal(participants[0].rank, 0);
    assert_int_equal(participants[0].pe.sip, 2);
    assert_int_equal(participants[1].rank, 1);
    ccl_plan_fini(&plan);
    topo_machine_destroy(machine);
}

static void test_ranks_that_are_pes(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    entry.rank_is_pe = true;
    static const char *const mappers[] = {"leader_only", "all_pes", "lanes"};
    for (size_t i = 0; i < 3; i++) {
        entry.mapper = mapper_of(mappers[i]);
        expect_members(&entry, machine, NULL, 6, "0.0.0 0.0.1 0.1.0 0.1.1 1.0.0 1.0.1");
    }
    /* those of one device, as with --device */
    static const uint32_t last[] = {2, 2, 2};
    expect_members(&entry, machine, last, 3, "2.0.0 2.0.1 2.1.0");
    /* any, as in a group */
    static const kb_pe pes[] = {{1, 1, 1}, {0, 0, 1}};
    ccl_plan plan;
    expect_ok(ccl_plan_make_for(&entry, machine, pes, 2, &plan));
    kb_text text = KB_TEXT_INIT;
    append_members(&plan, &text);
    assert_string_equal(kb_text_peek(&text), "1.1.1 0.0.1");
    kb_text_fini(&text);
    ccl_plan_fini(&plan);
    topo_machine_destroy(machine);
}

static void test_world(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    assert_int_equal(ccl_plan_world(&entry, machine, TOPO_NONE), 3);
    assert_int_equal(ccl_plan_world(&entry, machine, 1), 1);
    entry.world_size = 2;
    assert_int_equal(ccl_plan_world(&entry, machine, TOPO_NONE), 2);
    assert_int_equal(ccl_plan_world(&entry, machine, 1), 1);
    entry.rank_is_pe = true;
    entry.world_size = 0;
    assert_int_equal(ccl_plan_world(&entry, machine, TOPO_NONE), 12);
    assert_int_equal(ccl_plan_world(&entry, machine, 2), 4);
    entry.world_size = 7;
    assert_int_equal(ccl_plan_world(&entry, machine, TOPO_NONE), 7);
    topo_machine_destroy(machine);
}

/* ---- Rings around SIPs ------------------------------------------------------------------- */

static topo_machine *grid(const char *pattern, uint32_t w, uint32_t h, bool links)
{
    char text[300];
    snprintf(text, sizeof text,
             "system: { sips: { w: %u, h: %u, topology: %s%s } }\n"
             "sip: { cube_mesh: { w: 1, h: 1 } }\n"
             "cube:\n  noc: { k: 1 }\n  pe_layout: { pe_per_router: 1 }\n",
             w, h, pattern, links ? ", link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 }" : "");
    return machine_of(text);
}

static void test_orders(void **state)
{
    (void)state;
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("lanes");
    topo_machine *torus = grid("torus_2d", 3, 2, true);
    expect_members(&entry, torus, in_order, 6, "0.0.0 1.0.0 2.0.0 5.0.0 4.0.0 3.0.0");
    /* some of them are no grid, but may have a cycle, here with the link around the upper row */
    expect_members(&entry, torus, in_order, 5, "0.0.0 3.0.0 4.0.0 1.0.0 2.0.0");
    static const uint32_t backwards[] = {4, 3, 0};
    expect_members(&entry, torus, backwards, 3, "4.0.0 3.0.0 0.0.0");
    topo_machine_destroy(torus);
    topo_machine *mesh = grid("mesh_2d_no_wrap", 2, 3, true);
    expect_members(&entry, mesh, in_order, 6, "0.0.0 1.0.0 3.0.0 5.0.0 4.0.0 2.0.0");
    topo_machine_destroy(mesh);
    topo_machine *odd = grid("mesh_2d_no_wrap", 3, 3, true);
    expect_members(&entry, odd, in_order, 9,
                   "0.0.0 1.0.0 2.0.0 5.0.0 4.0.0 3.0.0 6.0.0 7.0.0 8.0.0");
    topo_machine_destroy(odd);
    topo_machine *switched = grid("torus_2d", 3, 2, false);
    expect_members(&entry, switched, in_order, 6, "0.0.0 1.0.0 2.0.0 3.0.0 4.0.0 5.0.0");
    topo_machine_destroy(switched);
}

/* All steps but the one around are to a neighbour. */
static void test_snake_is_short(void **state)
{
    (void)state;
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("lanes");
    for (uint32_t w = 1; w <= 5; w++) {
        for (uint32_t h = 1; h <= 4; h++) {
            topo_machine *machine = grid("mesh_2d_no_wrap", w, h, true);
            ccl_plan plan;
            uint32_t count;
            expect_ok(plan_all(&entry, machine, &plan));
            const kb_ccl_participant *participants = kb_ccl_subgroup(&plan.participants, 0, &count);
            assert_int_equal(count, w * h);
            for (uint32_t i = 1; i < count; i++) {
                uint32_t a = participants[i - 1].pe.sip, b = participants[i].pe.sip;
                int dx = abs((int)(a % w) - (int)(b % w)), dy = abs((int)(a / w) - (int)(b / w));
                assert_int_equal(dx + dy, 1);
            }
            ccl_plan_fini(&plan);
            topo_machine_destroy(machine);
        }
    }
}

/* ---- Queues ------------------------------------------------------------------------------ */

static void test_queues(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    entry.polls = true;
    ccl_plan plan;
    expect_ok(plan_all(&entry, machine, &plan));
    assert_int_equal(plan.edge_count, 6);
    assert_int_equal(plan.queues.ends.count, 6);
    assert_true(plan.queues.settings.polls);
    assert_int_equal(plan.queues.settings.n_slots, 4);
    assert_int_equal(plan.queues.settings.slot_bytes, 4096);
    assert_int_equal(plan.queues.settings.credit_bytes, 16);
    /* E of SIP 0 arrives by W at SIP 1 */
    const ipcq_plan_end *east = &plan.queues.ends.items[0];
    assert_string_equal(east->direction, "E");
    assert_string_equal(plan.queues.ends.items[east->to].direction, "W");
    assert_int_equal(plan.queues.ends.items[east->to].pe.sip, 1);
    assert_string_equal(plan.scope.entry, "mine");
    assert_int_equal(plan.scope.machine.cube_w, 2);
    assert_int_equal(plan.scope.world, 3);
    ccl_plan_fini(&plan);
    topo_machine_destroy(machine);
}

static void test_settings(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    assert_true(kb_vec_push(&entry.settings, ((ccl_setting){"kernel_depth", 7})));
    ccl_plan plan;
    expect_ok(plan_all(&entry, machine, &plan));
    assert_int_equal(kb_ccl_setting(&plan.scope, "kernel_depth", 1), 7);
    assert_int_equal(kb_ccl_setting(&plan.scope, "kernel_width", -1), -1);
    ccl_plan_fini(&plan);
    kb_vec_fini(&entry.settings);
    topo_machine_destroy(machine);
}

/* Each mapper with each topology that makes sense with it, on machines of any shape. */
static void test_any_machine(void **state)
{
    (void)state;
    static const char *const topologies[] = {"ring_1d", "tree_binary", "hierarchical_3level",
                                             "sip_links"};
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    for (int i = 0; i < 30; i++) {
        char *text = random_description(&rng);
        topo_machine *machine = machine_of(text);
        for (const kb_ccl_mapper *const *mapper = ccl_mappers; *mapper; mapper++) {
            for (size_t k = 0; k < 4; k++) {
                ccl_entry entry = an_entry();
                entry.mapper = *mapper;
                entry.rank_is_pe = *mapper == mapper_of("pe_ring");
                entry.topology = topology_of(topologies[k]);
                entry.slot_bytes = 64;
                ccl_plan plan;
                expect_ok(plan_all(&entry, machine, &plan));
                ccl_plan_fini(&plan);
            }
        }
        topo_machine_destroy(machine);
        free(text);
    }
}

/* ---- What makes no sense ------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    entry.world_size = 4;
    expect_refused(&entry, machine,
                   "algorithm 'mine': world_size 4 with rank: sip exceeds the machine's 3 SIPs");
    entry.rank_is_pe = true;
    entry.world_size = 13;
    expect_refused(&entry, machine,
                   "algorithm 'mine': rank: pe needs 13 PEs, but the machine has 12");
    static const uint32_t first[] = {0, 0, 0, 0, 0};
    ccl_plan plan;
    expect_error(ccl_plan_make(&entry, machine, first, 5, &plan), KB_ERR_INPUT,
                 "algorithm 'mine': rank: pe needs 5 PEs, but a SIP has 4");
    entry.world_size = 0;
    entry.mapper = mapper_of("cube_leaders");
    expect_refused(&entry, machine,
                   "algorithm 'mine': mapper cube_leaders takes PE 0 of every cube of a rank, but "
                   "here a rank is a PE: it needs rank: sip");
    entry = an_entry();
    entry.topology = topology_of("mesh_2d");
    expect_refused(&entry, machine,
                   "algorithm 'mine': topology mesh_2d: 3 participants are not a square: set w and "
                   "h in the entry");
    ccl_registry registry = shipped();
    ccl_setting root = {"root_cube", 2};
    entry = an_entry();
    entry.algorithm = ccl_find_algorithm(&registry, "intercube");
    entry.topology = NULL;
    entry.mapper = mapper_of("cube_leaders");
    entry.settings.items = &root;
    entry.settings.count = 1;
    expect_refused(&entry, machine, "algorithm 'mine': root_cube is 2, but cubes are 0 to 1");
    entry = an_entry();
    entry.algorithm = ccl_find_algorithm(&registry, "streams");
    entry.topology = NULL;
    entry.rank_is_pe = true;
    expect_refused(&entry, machine,
                   "algorithm 'mine': streams distributes the work of a rank over its PEs: it "
                   "needs rank: sip, found rank: pe");
    entry = an_entry();
    expect_error(ccl_plan_make(&entry, machine, first, 2, &plan), KB_ERR_INPUT,
                 "algorithm 'mine': sip0.cube0.pe0 is in the plan twice");
    static const uint32_t far[] = {0, 3};
    expect_error(ccl_plan_make(&entry, machine, far, 2, &plan), KB_ERR_INPUT,
                 "algorithm 'mine': rank 1 is on SIP 3, but the machine has 3");
    topo_machine_destroy(machine);
}

/* The TCM has 12 MiB beside what the scheduler keeps: two rings of 6 MiB fit, and no byte more. */
static void test_rings_that_do_not_fit(void **state)
{
    (void)state;
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    entry.slot_bytes = 6 << 18;
    ccl_plan plan;
    expect_ok(plan_all(&entry, machine, &plan));
    ccl_plan_fini(&plan);
    entry.slot_bytes++;
    expect_refused(&entry, machine,
                   "algorithm 'mine': the slots that sip0.cube0.pe0 needs, 4 of 1572865 bytes for "
                   "each direction, are more than its TCM of 12582912 bytes");
    entry.buffer = KB_HBM;
    expect_ok(plan_all(&entry, machine, &plan));
    ccl_plan_fini(&plan);
    /* the PEs of a cube share its SRAM: two of them have four rings, 4 * 4 * 2 MiB = 32 MiB */
    entry.buffer = KB_SRAM;
    entry.mapper = mapper_of("all_pes");
    entry.slot_bytes = 2 << 20;
    expect_ok(plan_all(&entry, machine, &plan));
    ccl_plan_fini(&plan);
    entry.slot_bytes++;
    expect_refused(&entry, machine,
                   "algorithm 'mine': the slots that sip0.cube0.pe1 needs, 4 of 2097153 bytes for "
                   "each direction, are more than its SRAM of 33554432 bytes");
    topo_machine_destroy(machine);
}

/*
 * 33 SIPs have 32 queues a PE in pairs: 4 slots of 98304 bytes each are the 12 MiB of its TCM.
 * Slots that may be smaller are halved until an eighth of it is left.
 */
static void test_slots_that_fit(void **state)
{
    (void)state;
    topo_machine *machine = machine_of("system: { sips: { count: 33 } }\n"
                                       "sip: { cube_mesh: { w: 1, h: 1 } }\n");
    ccl_entry entry = an_entry();
    entry.topology = topology_of("pairs");
    entry.slot_bytes = 98304;
    ccl_plan plan;
    expect_ok(plan_all(&entry, machine, &plan));
    assert_int_equal(plan.queues.settings.slot_bytes, 98304);
    ccl_plan_fini(&plan);
    entry.slot_bytes++;
    expect_refused(&entry, machine,
                   "algorithm 'mine': the slots that sip0.cube0.pe0 needs, 4 of "
                   "98305 bytes for each direction, are more than its TCM of 12582912 bytes");
    entry.fit_slots = true;
    const struct {
        uint64_t asked, got;
    } sizes[] = {{4096, 4096},   {86016, 86016}, /* 7/8 of it */
                 {86017, 43008}, {98304, 49152}, {98305, 49152}, {64 << 20, 65536}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        entry.slot_bytes = sizes[i].asked;
        expect_ok(plan_all(&entry, machine, &plan));
        assert_int_equal(plan.queues.settings.slot_bytes, sizes[i].got);
        ccl_plan_fini(&plan);
    }
    /* 65536 slots of 16 bytes for each of 32 queues are 32 MiB. */
    entry.n_slots = 65536;
    entry.slot_bytes = 16;
    expect_refused(&entry, machine,
                   "algorithm 'mine': the slots that sip0.cube0.pe0 needs, 65536 of 16 bytes for "
                   "each direction, are more than its TCM of 12582912 bytes");
    topo_machine_destroy(machine);
}

/* ---- Mistakes of plugins ------------------------------------------------------------------- */

static kb_error *map_nowhere(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    (void)scope;
    return kb_ccl_add_participant(participants, 0, 0, (kb_pe){0, 2, 0});
}

static kb_error *map_unknown_rank(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    return kb_ccl_add_participant(participants, 0, scope->world, (kb_pe){0});
}

static kb_error *map_idle(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    (void)scope;
    (void)participants;
    return NULL;
}

static kb_error *connect_stranger(const kb_ccl_scope *scope,
                                  const kb_ccl_participants *participants, kb_ccl_graph *graph)
{
    (void)scope;
    (void)participants;
    return kb_ccl_connect(graph, (kb_pe){0}, "E", (kb_pe){0, 1, 1});
}

static kb_error *connect_twice(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                               kb_ccl_graph *graph)
{
    KB_TRY(topology_of("ring_1d")->connect(scope, participants, graph));
    return topology_of("ring_1d")->connect(scope, participants, graph);
}

static void test_directions(void **state)
{
    (void)state;
    static const char longest[] = "abcdefghijklmnopqrstuvwxyz!#~01"; /* 31 characters */
    static const struct {
        const char *name, *message;
    } bad[] = {
        {NULL, "a direction of sip1.cube2.pe3 has no name"},
        {"", "a direction of sip1.cube2.pe3 has no name"},
        {"abcdefghijklmnopqrstuvwxyz!#~012",
         "direction 'abcdefghijklmnopqrstuvwxyz!#~01...' of sip1.cube2.pe3: a name has at most 31 "
         "characters, but this has 32"},
        {"go east", "direction 'go east' of sip1.cube2.pe3: a name is made of printable ASCII "
                    "characters, without spaces"},
        {"\x7f", "direction '\\x7f' of sip1.cube2.pe3: a name is made of printable ASCII "
                 "characters, without spaces"},
        {"gr\xc3\xbc\xc3\x9f", "direction 'gr\xc3\xbc\xc3\x9f' of sip1.cube2.pe3: a name is "
                               "made of printable ASCII characters, without spaces"},
    };
    kb_ccl_graph graph = {0};
    kb_arena_init(&graph.names);
    kb_pe from = {1, 2, 3}, to = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(kb_ccl_connect(&graph, from, bad[i].name, to), KB_ERR_INPUT, bad[i].message);
    assert_int_equal(graph.edges.count, 0);
    expect_ok(kb_ccl_connect(&graph, from, longest, to));
    assert_string_equal(graph.edges.items[0].direction, longest);
    ccl_graph_fini(&graph);
}

static void test_plugins(void **state)
{
    (void)state;
    static const kb_ccl_mapper nowhere = {.name = "nowhere", .map = map_nowhere};
    static const kb_ccl_mapper unknown_rank = {.name = "unknown_rank", .map = map_unknown_rank};
    static const kb_ccl_mapper idle = {.name = "idle", .map = map_idle};
    static const kb_ccl_topology stranger = {.name = "stranger", .connect = connect_stranger};
    static const kb_ccl_algorithm twice = {.name = "twice", .connect = connect_twice};
    topo_machine *machine = small_machine();
    ccl_entry entry = an_entry();
    entry.mapper = &nowhere;
    expect_refused(
        &entry, machine,
        "algorithm 'mine': mapper 'nowhere' selects sip0.cube2.pe0, which the machine does not "
        "have");
    entry.mapper = &idle;
    expect_refused(&entry, machine, "algorithm 'mine': mapper 'idle' selects no PEs");
    entry.mapper = &unknown_rank;
    expect_refused(
        &entry, machine,
        "algorithm 'mine': mapper 'unknown_rank' selects rank 3, but the number of ranks "
        "is 3");
    entry = an_entry();
    entry.topology = &stranger;
    expect_refused(&entry, machine,
                   "algorithm 'mine': direction E of sip0.cube0.pe0: sip0.cube1.pe1 is not in "
                   "the plan");
    entry.topology = NULL;
    entry.algorithm = &twice;
    expect_refused(&entry, machine,
                   "algorithm 'mine': sip0.cube0.pe0 has direction E twice: to sip1.cube0.pe0 and "
                   "to sip1.cube0.pe0");
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mappers),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_ranks_that_are_pes),
        cmocka_unit_test(test_world),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_snake_is_short),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_any_machine),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rings_that_do_not_fit),
        cmocka_unit_test(test_slots_that_fit),
        cmocka_unit_test(test_directions),
        cmocka_unit_test(test_plugins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
