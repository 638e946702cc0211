/* test_kernels_toys.c: hello_send, ring, mesh, tree. Checks Q7. */
#include "mocking.h"

static void test_ring(void **state)
{
    (void)state;
    scene is = {.algorithm = &ccl_ring_algorithm, .topology = "ring_1d", .pes = 17};
    play_in_worlds(is);
    is.topology = "ring_1d_unidir";
    is.elements = 37;
    for (is.world = 2; is.world < 6; is.world++)
        play_all_ops(is);
}

static void test_tree(void **state)
{
    (void)state;
    scene is = {.algorithm = &ccl_tree_algorithm, .topology = "tree_binary", .pes = 8, .cube_w = 3};
    play_in_worlds(is);
    is.elements = 37;
    is.world = 7;
    play_all_ops(is);
}

static void play_mesh(uint32_t w, uint32_t h, bool says_so)
{
    scene is = {.algorithm = &ccl_mesh_algorithm,
                .topology = "mesh_2d",
                .world = w * h,
                .pes = 4,
                .cube_w = 5,
                .dtype = KB_F32};
    if (says_so) {
        is.settings[0] = (ccl_setting){"w", w};
        is.settings[1] = (ccl_setting){"h", h};
    }
    for (size_t k = 0; k < RAGGED_SIZES; k++) {
        is.elements = ragged_sizes[k];
        play(&is);
    }
    is.elements = 37;
    if (w != h)
        play_all_ops(is);
}

static void test_mesh(void **state)
{
    (void)state;
    for (uint32_t side = 1; side <= 4; side++)
        play_mesh(side, side, false);
    play_mesh(2, 3, true);
    play_mesh(5, 1, true);
    play_mesh(1, 4, true);
    play_mesh(5, 3, true);
}

/* A ring of three in f32 where the order matters: 1 + 2^-24 is 1 again, but 2^-24 + 2^-24 + 1 is
 * not. So `ring`, in which each begins with its own, says same_bits = false for good reason. */
static void test_bits(void **state)
{
    (void)state;
    assert_false(ccl_ring_algorithm.same_bits);
    assert_false(ccl_mesh_algorithm.same_bits);
    assert_false(ccl_intercube_algorithm.same_bits);
    stage s;
    bool differ = false;
    for (uint64_t seed = 0; seed < 20 && !differ; seed++) {
        expect_ok(stage_try(&s, &(scene){.algorithm = &ccl_ring_algorithm,
                                         .topology = "ring_1d",
                                         .world = 5,
                                         .pes = 5,
                                         .dtype = KB_BF16,
                                         .elements = 64,
                                         .seed = seed}));
        differ = memcmp(s.bytes, s.bytes + 128, 128) != 0;
        stage_fini(&s);
    }
    assert_true(differ);
}

/* Everybody has what its neighbour had. */
static void test_hello_send(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= 9; world++) {
        stage s;
        expect_ok(stage_try(&s, &(scene){.algorithm = &ccl_hello_send_algorithm,
                                         .topology = "ring_1d",
                                         .world = world,
                                         .pes = 3,
                                         .cube_w = 3,
                                         .dtype = KB_F16,
                                         .elements = 100}));
        for (uint32_t rank = 0; rank < world; rank++)
            assert_memory_equal(s.after + rank * 100, s.before + (rank + world - 1) % world * 100,
                                100 * sizeof(double));
        stage_fini(&s);
    }
}

static void test_chunk_size(void **state)
{
    (void)state;
    for (int64_t chunk = 1; chunk < 60; chunk += 7) /* a slot holds 32 */
        play(&(scene){.algorithm = &ccl_ring_algorithm,
                      .topology = "ring_1d",
                      .world = 3,
                      .pes = 3,
                      .dtype = KB_F16,
                      .elements = 67,
                      .settings = {{"chunk_size", chunk}}});
}

static void test_mesh_that_is_none(void **state)
{
    (void)state;
    stage s;
    expect_error(stage_try(&s, &(scene){.algorithm = &ccl_mesh_algorithm,
                                        .topology = "mesh_2d",
                                        .world = 6,
                                        .pes = 6,
                                        .elements = 8}),
                 KB_ERR_INPUT, "6 participants are not a square: set w and h in the entry");
    stage_fini(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ring),
    cmocka_unit_test(test_tree),
    cmocka_unit_test(test_mesh),
    cmocka_unit_test(test_bits),
    cmocka_unit_test(test_hello_send),
    cmocka_unit_test(test_chunk_size),
    cmocka_unit_test(test_mesh_that_is_none),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
