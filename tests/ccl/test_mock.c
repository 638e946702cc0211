/* test_mock.c: mock runs of kernels that are defined here, and the errors of those that fail. */
#include "support/expect.h"

#include <kernbench/ccl.h>

static void add_address(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args)
{
    (void)self;
    (void)rank;
    kb_ccl_add_address(args, address);
}

static void add_address_and_rank(void *self, uint32_t rank, uint64_t address,
                                 kb_ccl_arguments *args)
{
    (void)self;
    kb_ccl_add_address(args, address);
    kb_ccl_add_integer(args, rank);
}

static const kb_mock_edge pair[] = {{0, "E", 1}, {0, "W", 1}, {1, "E", 0}, {1, "W", 0}};

/* ---- What comes out ---- */

KB_KERNEL(swap, tl_ptr mine)
{
    tl_send("E", tl_load(mine, tl_shape(3), TL_F32));
    tl_store(mine, tl_recv("W", tl_shape(3), TL_F32));
}

static void test_in_and_out(void **state)
{
    (void)state;
    float data[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const float swapped[2][3] = {{4, 5, 6}, {1, 2, 3}};
    kb_mock mock = {.kernel = &swap,
                    .ranks = 2,
                    .edges = pair,
                    .edge_count = 4,
                    .dtype = KB_F32,
                    .elements = 3,
                    .arguments = add_address};
    expect_ok(kb_mock_run(&mock, data, sizeof data));
    assert_memory_equal(data, swapped, sizeof data);
}

/* Custom neighbours: only 2 sends to 0. Buffers without a store keep their input. */
KB_KERNEL(one_way, tl_ptr mine)
{
    if (tl_can_send("out"))
        tl_send("out", tl_load(mine, tl_shape(1), TL_F32));
    if (tl_can_recv("out"))
        tl_store(mine, tl_recv(TL_ANY, tl_shape(1), TL_F32));
}

static void test_custom_neighbours(void **state)
{
    (void)state;
    float data[3] = {1, 2, 3};
    kb_mock_edge edge = {2, "out", 0};
    kb_mock mock = {.kernel = &one_way,
                    .ranks = 3,
                    .edges = &edge,
                    .edge_count = 1,
                    .dtype = KB_F32,
                    .elements = 1,
                    .arguments = add_address};
    expect_ok(kb_mock_run(&mock, data, sizeof data));
    assert_true(data[0] == 3 && data[1] == 2 && data[2] == 3);
}

KB_KERNEL(say_where, tl_ptr mine)
{
    double number = (double)(tl_program_id(0) + 100 * tl_program_id(1) + 1000 * tl_num_programs(0) +
                             100000 * tl_num_programs(1));
    tl_store(mine, tl_full(tl_shape(1), TL_F32, number));
}

static void expect_places(uint32_t pes, uint32_t cubes, uint32_t ranks, const float *expected)
{
    float data[32] = {0};
    kb_mock mock = {.kernel = &say_where,
                    .ranks = ranks,
                    .pes_per_cube = pes,
                    .cubes_per_sip = cubes,
                    .dtype = KB_F32,
                    .elements = 1,
                    .arguments = add_address};
    expect_ok(kb_mock_run(&mock, data, ranks * sizeof(float)));
    assert_memory_equal(data, expected, ranks * sizeof(float));
}

static void test_places(void **state)
{
    (void)state;
    expect_places(0, 0, 3, (const float[]){103000, 103001, 103002});
    expect_places(2, 0, 5, (const float[]){302000, 302001, 302100, 302101, 302200});
    expect_places(1, 2, 5, (const float[]){201000, 201100, 201000, 201100, 201000});
    expect_places(16, 0, 2, (const float[]){102000, 102001});
}

/* Each rank reads what is around its buffer, and sends what nobody receives. */
KB_KERNEL(look_around, tl_ptr mine, int rank)
{
    tl_ptr first = mine - 4 * rank;
    tl_tensor sum = tl_full(tl_shape(1), TL_F32, 0);
    for (int i = 0; i < 4; i++)
        sum = tl_add(sum, tl_load(first + 4 * i, tl_shape(1), TL_F32));
    tl_send("E", sum);
    tl_store(first + 400, sum);
    if (rank > 0)
        tl_store(mine, tl_add(tl_load(first + 400, tl_shape(1), TL_F32), first == 0));
}

static void test_own_memory(void **state)
{
    (void)state;
    float data[3] = {1, 2, 3};
    const kb_mock_edge ring[] = {{0, "E", 1}, {1, "E", 2}, {2, "E", 0}};
    kb_mock mock = {.kernel = &look_around,
                    .ranks = 3,
                    .pes_per_cube = 2,
                    .edges = ring,
                    .edge_count = 3,
                    .dtype = KB_F32,
                    .elements = 1,
                    .own_memory = true,
                    .stack_bytes = 1 << 20,
                    .arguments = add_address_and_rank};
    expect_ok(kb_mock_run(&mock, data, sizeof data));
    assert_true(data[0] == 1 && data[1] == 3 && data[2] == 4);
}

/* More ranks than a row of cubes has. */
KB_KERNEL(count_up, tl_ptr mine, int rank)
{
    if (rank > 0)
        tl_store(mine, tl_add(tl_recv("W", tl_shape(1), TL_I32), 1));
    if (tl_can_send("E"))
        tl_send("E", tl_load(mine, tl_shape(1), TL_I32));
}

static void test_many_ranks(void **state)
{
    (void)state;
    enum { RANKS = 600 };
    static kb_mock_edge edges[2 * RANKS];
    static int32_t data[RANKS];
    for (uint32_t i = 0; i + 1 < RANKS; i++) {
        edges[2 * i] = (kb_mock_edge){i, "E", i + 1};
        edges[2 * i + 1] = (kb_mock_edge){i + 1, "W", i};
    }
    kb_mock mock = {.kernel = &count_up,
                    .ranks = RANKS,
                    .edges = edges,
                    .edge_count = 2 * RANKS - 2,
                    .dtype = KB_I32,
                    .elements = 1,
                    .arguments = add_address_and_rank};
    expect_ok(kb_mock_run(&mock, data, sizeof data));
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(data[i], i);
}

/* Ways to say what is connected: each rank gets what its W neighbour has, from its own slice. */
KB_KERNEL(take_from_west, tl_ptr base)
{
    tl_ptr mine = base + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * 8;
    tl_send("E", tl_load(mine, tl_shape(2), TL_F32));
    tl_store(mine, tl_recv("W", tl_shape(2), TL_F32));
}

static kb_error *join_ring(void *self, uint32_t rank, kb_mock_graph *graph)
{
    const uint32_t *ranks = self;
    KB_TRY(kb_mock_connect(graph, rank, "E", (rank + 1) % *ranks));
    return kb_mock_connect(graph, rank, "W", (rank + *ranks - 1) % *ranks);
}

static void test_rings_in_slices(void **state)
{
    (void)state;
    uint32_t ranks = 10;
    float data[20];
    kb_mock by_name = {.kernel = &take_from_west,
                       .ranks = ranks,
                       .pes_per_cube = 2, /* 5 cubes, the last SIP has one */
                       .topology = "ring_1d",
                       .dtype = KB_F32,
                       .elements = 2,
                       .sliced = true,
                       .arguments = add_address};
    kb_mock by_function = by_name;
    by_function.topology = NULL;
    by_function.neighbours = join_ring;
    by_function.self = &ranks;
    const kb_mock *mocks[] = {&by_name, &by_function};
    for (size_t m = 0; m < 2; m++) {
        for (int i = 0; i < 20; i++)
            data[i] = (float)i;
        expect_ok(kb_mock_run(mocks[m], data, sizeof data));
        for (int i = 0; i < 20; i++)
            assert_true(data[i] == (float)((i + 18) % 20));
    }
    by_name.neighbours = join_ring;
    expect_error(kb_mock_run(&by_name, data, sizeof data), KB_ERR_INPUT,
                 "mock: more than one of edges, topology and neighbours");
    by_name.neighbours = NULL;
    by_name.topology = "rang_1d";
    expect_error(kb_mock_run(&by_name, data, sizeof data), KB_ERR_INPUT,
                 "mock: unknown topology 'rang_1d': expected ring_1d, ring_1d_unidir, mesh_2d, "
                 "torus_2d, mesh_2d_no_wrap, tree_binary, hierarchical_3level, pairs or sip_links; "
                 "did you mean 'ring_1d'?");
}

static void test_no_elements(void **state)
{
    (void)state;
    kb_mock_edge edge = {0, "out", 1};
    kb_mock mock = {.kernel = &one_way, .ranks = 1, .edges = &edge, .arguments = add_address};
    char nothing;
    expect_ok(kb_mock_run(&mock, &nothing, 0));
}

/* ---- What goes wrong ---- */

/* Its message begins with the kernel and the PE. */
static void expect_failure(const kb_kernel *kernel, kb_code code, const char *text,
                           const char *detail)
{
    float data[2][3] = {{0}};
    kb_mock mock = {.kernel = kernel,
                    .ranks = 2,
                    .edges = pair,
                    .edge_count = 4,
                    .dtype = KB_F32,
                    .elements = 3,
                    .arguments = add_address};
    kb_error *err = kb_mock_run(&mock, data, sizeof data);
    if (!strstr(kb_error_message(err), text) || !strstr(kb_error_detail(err), detail))
        fail_msg("expected '%s' and '%s', found '%s' and '%s'", text, detail, kb_error_message(err),
                 kb_error_detail(err));
    assert_int_equal(kb_error_code(err), code);
    kb_error_free(err);
}

KB_KERNEL(goes_north, tl_ptr mine)
{
    tl_send("N", tl_load(mine, tl_shape(3), TL_F32));
}

KB_KERNEL(expects_more, tl_ptr mine)
{
    tl_send("E", tl_load(mine, tl_shape(2), TL_F32));
    tl_store(mine, tl_recv("W", tl_shape(3), TL_F32));
}

KB_KERNEL(receives_first, tl_ptr mine)
{
    tl_tensor value = tl_recv("W", tl_shape(3), TL_F32);
    tl_send("E", value);
    tl_store(mine, value);
}

KB_KERNEL(sends_twice, tl_ptr mine)
{
    for (int i = 0; i < 2; i++)
        tl_send("E", tl_load(mine, tl_shape(3), TL_F32));
    tl_store(mine, tl_recv("W", tl_shape(3), TL_F32));
}

KB_KERNEL(goes_too_far, tl_ptr mine)
{
    tl_store(mine + 8, tl_zeros(tl_shape(2), TL_F32));
}

static void test_failures(void **state)
{
    (void)state;
    expect_failure(&goes_north, KB_ERR_FAULT, "invalid direction 'N' on this PE: expected E, W",
                   "");
    expect_failure(&expects_more, KB_ERR_FAULT, "(3)", "");
    expect_failure(&receives_first, KB_ERR_DEADLOCK,
                   "2 coroutines blocked: sip0.cube0.pe0 waits for sip0.cube0.pe1 (W), which waits "
                   "for sip0.cube0.pe0 (W)",
                   "\n"
                   "cycle: sip0.cube0.pe0 (W) > sip0.cube0.pe1 (W) > sip0.cube0.pe0");
    expect_failure(&sends_twice, KB_ERR_FAULT,
                   "mock: kernel 'sends_twice': 2 messages were never received: sip0.cube0.pe0 has "
                   "1 in W from sip0.cube0.pe1, sip0.cube0.pe1 has 1 in W from sip0.cube0.pe0",
                   "");
    expect_failure(&goes_too_far, KB_ERR_FAULT, "goes_too_far", "");
}

static void test_wrong_calls(void **state)
{
    (void)state;
    float data[4] = {0};
    kb_mock mock = {.kernel = &swap,
                    .ranks = 2,
                    .edges = pair,
                    .edge_count = 4,
                    .dtype = KB_F32,
                    .elements = 3,
                    .arguments = add_address};
    expect_error(kb_mock_run(&mock, data, sizeof data), KB_ERR_INPUT,
                 "mock: 2 buffers of 3 elements of f32 expected, but the data has 16 bytes");
    mock.elements = 2;
    mock.arguments = add_address_and_rank;
    expect_error(kb_mock_run(&mock, data, sizeof data), KB_ERR_INPUT,
                 "mock: kernel 'swap' expects 1 argument, found 2");
    mock.arguments = add_address;
    mock.edges = &(kb_mock_edge){0, "E", 2};
    mock.edge_count = 1;
    expect_error(kb_mock_run(&mock, data, sizeof data), KB_ERR_INPUT,
                 "mock: direction 'E' leads from rank 0 to 2, but ranks are 0 to 1");
    mock.ranks = 0;
    expect_error(kb_mock_run(&mock, data, 0), KB_ERR_INPUT, "mock: the number of ranks is 0");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_in_and_out),  cmocka_unit_test(test_custom_neighbours),
    cmocka_unit_test(test_places),      cmocka_unit_test(test_own_memory),
    cmocka_unit_test(test_many_ranks),  cmocka_unit_test(test_rings_in_slices),
    cmocka_unit_test(test_no_elements), cmocka_unit_test(test_failures),
    cmocka_unit_test(test_wrong_calls),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
