/* test_kernels_trees.c: the kernel that streams along many trees. */
#include "mocking.h"

static scene trees_on(kb_sip_pattern pattern, uint32_t w, uint32_t h)
{
    return (scene){.algorithm = &ccl_trees_algorithm,
                   .mapper = "lanes",
                   .sips = pattern,
                   .sip_links = true,
                   .sip_w = w,
                   .sip_h = h,
                   .dtype = KB_F16};
}

static void test_patterns(void **state)
{
    (void)state;
    static const kb_sip_pattern patterns[] = {KB_SIPS_TORUS, KB_SIPS_MESH};
    for (uint32_t n = 1; n <= 9; n++) {
        scene is = trees_on(KB_SIPS_RING, n, 1);
        is.elements = 700;
        play(&is);
    }
    for (int i = 0; i < 2; i++)
        for (uint32_t w = 2; w <= 4; w++)
            for (uint32_t h = 1; h <= 4; h += w == 4 ? 3 : 1) {
                scene is = trees_on(patterns[i], w, h);
                is.elements = 300;
                play(&is);
            }
}

/* One lane has 16 channels, 6 have 3 each, 16 and more one. Elements are few, or not a multiple of
 * channels and tiles. */
static void test_lanes(void **state)
{
    (void)state;
    for (uint32_t pes = 1; pes <= 17; pes += pes == 1 ? 5 : 11)
        for (size_t k = 0; k < RAGGED_SIZES; k += 2) {
            scene is = trees_on(KB_SIPS_TORUS, 3, 2);
            is.pes = pes;
            is.elements = ragged_sizes[k];
            is.seed = k;
            play(&is);
        }
}

static void test_ops(void **state)
{
    (void)state;
    scene is = trees_on(KB_SIPS_RING, 5, 1);
    is.elements = 500;
    is.pes = 2;
    play_all_ops(is);
}

static void test_ahead(void **state)
{
    (void)state;
    for (int64_t ahead = 0; ahead <= 20; ahead += 10) {
        scene is = trees_on(KB_SIPS_MESH, 4, 1);
        is.pes = 16;
        is.elements = 320; /* 10 tiles */
        is.settings[0] = (ccl_setting){"kernel_ahead", ahead};
        play(&is);
    }
}

/* Through the switch, and where ranks are PEs. */
static void test_without_links(void **state)
{
    (void)state;
    scene is = trees_on(KB_SIPS_RING, 6, 1);
    is.sip_links = false;
    is.elements = 333;
    play(&is);
    is = (scene){.algorithm = &ccl_trees_algorithm,
                 .mapper = "lanes",
                 .world = 12,
                 .pes = 12,
                 .dtype = KB_F32,
                 .elements = 333};
    play(&is);
}

static void test_needs_lanes(void **state)
{
    (void)state;
    scene is = trees_on(KB_SIPS_RING, 3, 1);
    is.mapper = "all_pes";
    is.pes = 2;
    is.elements = 1;
    stage s;
    expect_error(stage_try(&s, &is), KB_ERR_INPUT,
                 "trees needs one PE of each rank in every group: mapper: lanes or leader_only");
    stage_fini(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_patterns),      cmocka_unit_test(test_lanes),
    cmocka_unit_test(test_ops),           cmocka_unit_test(test_ahead),
    cmocka_unit_test(test_without_links), cmocka_unit_test(test_needs_lanes),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
