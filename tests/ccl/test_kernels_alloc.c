/* test_kernels_alloc.c: every allocation fails in turn while trees are packed and joined, and in a
 * mock run. */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "ccl/algorithms/algorithms.h"
#include "ccl/graph/plan.h"
#include "ccl/graph/trees.h"

static void expect_done_or_no_memory(kb_error *err)
{
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
}

static void join(const kb_ccl_algorithm *algorithm, kb_sip_pattern sips, uint32_t pes)
{
    static const kb_pe ranks[4] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}};
    kb_ccl_scope scope = {.machine = {.cubes = 1, .cube_w = 1, .cube_h = 1, .pes = pes},
                          .sips = sips,
                          .sip_w = 2,
                          .sip_h = 2,
                          .sip_links = true,
                          .world = 4,
                          .ranks = ranks,
                          .entry = "mine"};
    kb_ccl_participants participants = {0};
    kb_ccl_graph graph = {0};
    kb_arena_init(&graph.names);
    kb_error *err = NULL;
    for (uint32_t i = 0; i < 4 * pes && !err; i++)
        err = kb_ccl_add_participant(&participants, i / 4, i % 4, (kb_pe){i % 4, 0, i / 4});
    if (!err)
        err = algorithm->connect(&scope, &participants, &graph);
    ccl_participants_fini(&participants);
    ccl_graph_fini(&graph);
    expect_done_or_no_memory(err);
}

static void join_trees(void)
{
    join(&ccl_trees_algorithm, KB_SIPS_TORUS, 1);
}

static void join_streams(void)
{
    join(&ccl_streams_algorithm, KB_SIPS_MESH, 3);
}

static void test_trees(void **state)
{
    (void)state;
    failing_alloc_try_all(join_trees);
}

static void test_streams(void **state)
{
    (void)state;
    failing_alloc_try_all(join_streams);
}

KB_KERNEL(swap, tl_ptr mine)
{
    tl_send("E", tl_load(mine, tl_shape(3), TL_F32));
    tl_store(mine, tl_recv("W", tl_shape(3), TL_F32));
}

static void add_address(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args)
{
    (void)self;
    (void)rank;
    kb_ccl_add_address(args, address);
}

static void run_mock(void)
{
    static const kb_mock_edge pair[] = {{0, "E", 1}, {0, "W", 1}, {1, "E", 0}, {1, "W", 0}};
    float data[2][3] = {{1, 2, 3}, {4, 5, 6}};
    kb_mock mock = {.kernel = &swap,
                    .ranks = 2,
                    .pes_per_cube = 1,
                    .cubes_per_sip = 1,
                    .edges = pair,
                    .edge_count = 4,
                    .dtype = KB_F32,
                    .elements = 3,
                    .arguments = add_address};
    kb_error *err = kb_mock_run(&mock, data, sizeof data);
    assert_true(data[1][2] == (err ? 6.0f : 3.0f)); /* nothing has changed after an error */
    expect_done_or_no_memory(err);
}

static void test_mock(void **state)
{
    (void)state;
    failing_alloc_try_all(run_mock);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_trees),
    cmocka_unit_test(test_streams),
    cmocka_unit_test(test_mock),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
