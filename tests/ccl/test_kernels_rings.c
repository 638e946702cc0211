/* test_kernels_rings.c: ring_rsag, ring_reduce_scatter, ring_all_gather, ring_broadcast,
 * ring_reduce. */
#include "mocking.h"

/* Ranks are PEs: one subgroup. */
static scene ring_of(const kb_ccl_algorithm *algorithm, kb_collective_kind kind, uint32_t world)
{
    return (scene){.algorithm = algorithm,
                   .kind = kind,
                   .topology = "ring_1d",
                   .world = world,
                   .pes = 17,
                   .dtype = KB_F16};
}

static void play_everything(const kb_ccl_algorithm *algorithm, kb_collective_kind kind)
{
    play_in_worlds(ring_of(algorithm, kind, 0));
    scene is = ring_of(algorithm, kind, 5);
    is.elements = 67;
    play_all_ops(is);
    is.topology = "ring_1d_unidir";
    is.settings[0] = (ccl_setting){"kernel_ways", 2}; /* but there is only one */
    play(&is);
}

static void test_ring_rsag(void **state)
{
    (void)state;
    play_everything(&ccl_ring_rsag_algorithm, KB_ALL_REDUCE);
}

static void test_ring_reduce_scatter(void **state)
{
    (void)state;
    play_everything(&ccl_ring_reduce_scatter_algorithm, KB_REDUCE_SCATTER);
}

static void test_ring_all_gather(void **state)
{
    (void)state;
    play_everything(&ccl_ring_all_gather_algorithm, KB_ALL_GATHER);
}

static void test_ring_broadcast(void **state)
{
    (void)state;
    play_everything(&ccl_ring_broadcast_algorithm, KB_BROADCAST);
}

static void test_ring_reduce(void **state)
{
    (void)state;
    play_everything(&ccl_ring_reduce_algorithm, KB_REDUCE);
}

/* Every number of pieces, slices of every size, one way and both: chunks end anywhere in a slice.
 */
static void test_pieces(void **state)
{
    (void)state;
    for (int64_t pieces = 1; pieces <= 5; pieces++)
        for (int64_t slice = 3; slice <= 17; slice += 7)
            for (int64_t ways = 1; ways <= 2; ways++) {
                scene is = ring_of(&ccl_ring_rsag_algorithm, KB_ALL_REDUCE, 4);
                is.elements = 103;
                is.settings[0] = (ccl_setting){"kernel_pieces", pieces};
                is.settings[1] = (ccl_setting){"kernel_slice", slice};
                is.settings[2] = (ccl_setting){"kernel_ways", ways};
                is.seed = (uint64_t)(pieces * 32 + slice);
                play(&is);
            }
    for (int64_t pieces = 1; pieces <= 5; pieces++) {
        scene is = ring_of(&ccl_ring_reduce_scatter_algorithm, KB_REDUCE_SCATTER, 4);
        is.elements = 53;
        is.settings[0] = (ccl_setting){"kernel_pieces", pieces};
        is.settings[1] = (ccl_setting){"chunk_size", 7};
        play(&is);
        is.algorithm = &ccl_ring_all_gather_algorithm;
        is.kind = KB_ALL_GATHER;
        play(&is);
    }
}

/* Every root. */
static void test_roots(void **state)
{
    (void)state;
    for (uint32_t root = 0; root < 6; root++) {
        scene is = ring_of(&ccl_ring_broadcast_algorithm, KB_BROADCAST, 6);
        is.elements = 70;
        is.root = root;
        play(&is);
        is.algorithm = &ccl_ring_reduce_algorithm;
        is.kind = KB_REDUCE;
        play(&is);
    }
}

/* On a torus subgroups go through the SIPs along the links, not in the order of ranks. */
static void test_lanes(void **state)
{
    (void)state;
    static const struct {
        const kb_ccl_algorithm *algorithm;
        kb_collective_kind kind;
    } cases[] = {
        {&ccl_ring_rsag_algorithm, KB_ALL_REDUCE},
        {&ccl_ring_reduce_scatter_algorithm, KB_REDUCE_SCATTER},
        {&ccl_ring_all_gather_algorithm, KB_ALL_GATHER},
        {&ccl_ring_broadcast_algorithm, KB_BROADCAST},
        {&ccl_ring_reduce_algorithm, KB_REDUCE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t h = 1; h <= 4; h++) {
            scene is = {.algorithm = cases[i].algorithm,
                        .kind = cases[i].kind,
                        .mapper = "lanes",
                        .topology = "ring_1d",
                        .sips = KB_SIPS_TORUS,
                        .sip_links = true,
                        .sip_w = 4,
                        .sip_h = h,
                        .cube_w = 2,
                        .pes = 2,
                        .dtype = KB_F32,
                        .elements = 45,
                        .root = 2};
            play(&is);
        }
}

/* Blocks of more than 16 ranks are only possible in the order of ranks. */
static void test_order_of_many(void **state)
{
    (void)state;
    uint32_t ranks[17];
    for (uint32_t i = 0; i < 17; i++)
        ranks[i] = 16 - i;
    ccl_entry entry = {0};
    kb_ccl_scope scope = {
        .machine.tcm_bytes = 1 << 20, .world = 17, .entry = "mine", .settings = &entry};
    kb_ccl_call call = {
        .scope = &scope, .kind = KB_ALL_GATHER, .dtype = KB_F16, .slot_bytes = 4096};
    kb_ccl_target target = {.subgroup_size = 17, .ranks = ranks, .elements = 1};
    kb_ccl_arguments args = {0};
    expect_error(ccl_ring_all_gather_algorithm.arguments(&call, &target, &args), KB_ERR_INPUT,
                 "all_gather needs groups in rank order if they have more than 16 participants, "
                 "here 17");
    args.count = 0;
    target.subgroup_size = 16;
    expect_ok(ccl_ring_all_gather_algorithm.arguments(&call, &target, &args));
    assert_int_equal(args.count, ccl_ring_all_gather_algorithm.kernel->parameter_count);
    args.count = 0;
    target.subgroup_size = 17;
    target.ranks = NULL;
    expect_ok(ccl_ring_all_gather_algorithm.arguments(&call, &target, &args));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ring_rsag),       cmocka_unit_test(test_ring_reduce_scatter),
    cmocka_unit_test(test_ring_all_gather), cmocka_unit_test(test_ring_broadcast),
    cmocka_unit_test(test_ring_reduce),     cmocka_unit_test(test_pieces),
    cmocka_unit_test(test_roots),           cmocka_unit_test(test_lanes),
    cmocka_unit_test(test_order_of_many),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
