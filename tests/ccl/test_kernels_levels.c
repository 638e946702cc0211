/* test_kernels_levels.c: hierarchical and intercube, which also reduce the shards of a SIP. */
#include "mocking.h"

static void play_sizes(scene is)
{
    for (size_t k = 0; k < RAGGED_SIZES; k++) {
        is.elements = ragged_sizes[k];
        is.seed = k;
        play(&is);
    }
}

/* ---- hierarchical ---- */

static void play_levels(uint32_t sips, uint32_t cubes, uint32_t pes)
{
    play_sizes((scene){.algorithm = &ccl_hierarchical_algorithm,
                       .mapper = "all_pes",
                       .topology = "hierarchical_3level",
                       .sip_w = sips,
                       .cube_w = cubes,
                       .pes = pes,
                       .dtype = KB_F16});
}

static void test_hierarchical(void **state)
{
    (void)state;
    play_levels(1, 1, 1);
    play_levels(2, 2, 4);
    for (uint32_t n = 2; n <= 9; n++) {
        play_levels(1, 1, n);
        play_levels(1, n, 1);
        play_levels(n, 1, 1);
    }
    play_levels(1, 1, 16);
    play_levels(3, 4, 2);
    play_levels(5, 2, 3);
    play_all_ops((scene){.algorithm = &ccl_hierarchical_algorithm,
                         .mapper = "all_pes",
                         .topology = "hierarchical_3level",
                         .sip_w = 2,
                         .cube_w = 2,
                         .pes = 3,
                         .elements = 37});
}

static void test_hierarchical_of_some_pes(void **state)
{
    (void)state;
    stage s;
    expect_error(stage_try(&s, &(scene){.algorithm = &ccl_hierarchical_algorithm,
                                        .mapper = "leader_only",
                                        .topology = "hierarchical_3level",
                                        .sip_w = 1,
                                        .cube_w = 2,
                                        .elements = 1}),
                 KB_ERR_INPUT,
                 "hierarchical needs all PEs of all ranks in one group: mapper: all_pes and "
                 "rank: sip");
    stage_fini(&s);
}

/* ---- intercube ---- */

static scene cubes(uint32_t w, uint32_t h)
{
    return (scene){.algorithm = &ccl_intercube_algorithm,
                   .mapper = "cube_leaders",
                   .cube_w = w,
                   .cube_h = h,
                   .dtype = KB_F32};
}

static void test_intercube_meshes(void **state)
{
    (void)state;
    static const uint32_t meshes[][2] = {{1, 1}, {1, 4}, {4, 1}, {3, 2}, {2, 3}, {4, 4}, {2, 2}};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++)
        play_sizes(cubes(meshes[i][0], meshes[i][1]));
    scene is = cubes(3, 2);
    is.sip_w = 2;
    is.elements = 37;
    play_all_ops(is);
}

static void test_every_root(void **state)
{
    (void)state;
    for (int64_t root = 0; root < 6; root++) {
        scene is = cubes(3, 2);
        is.sip_w = 2;
        is.elements = 37;
        is.settings[0] = (ccl_setting){"root_cube", root};
        play(&is);
    }
}

static void test_sip_patterns(void **state)
{
    (void)state;
    static const kb_sip_pattern patterns[] = {KB_SIPS_TORUS, KB_SIPS_MESH};
    for (uint32_t n = 2; n <= 9; n++) {
        scene is = cubes(2, 1);
        is.sip_w = n;
        play_sizes(is);
    }
    for (int i = 0; i < 2; i++)
        for (uint32_t w = 1; w <= 4; w++)
            for (uint32_t h = 1; h <= 3; h++) {
                scene is = cubes(2, 2);
                is.sips = patterns[i];
                is.sip_w = w;
                is.sip_h = h;
                is.elements = 37;
                play(&is);
            }
}

static void test_root_out_of_range(void **state)
{
    (void)state;
    scene is = cubes(3, 2);
    is.elements = 8;
    for (int64_t root = -1; root <= 6; root += 7) {
        stage s;
        char message[96];
        snprintf(message, sizeof message, "root_cube is %d, but cubes are 0 to 5", (int)root);
        is.settings[0] = (ccl_setting){"root_cube", root};
        expect_error(stage_try(&s, &is), KB_ERR_INPUT, message);
        stage_fini(&s);
    }
}

static void test_needs_cube_leaders(void **state)
{
    (void)state;
    scene is = cubes(3, 2);
    is.mapper = "leader_only";
    stage s;
    expect_error(stage_try(&s, &is), KB_ERR_INPUT,
                 "intercube needs PE 0 of every cube of all ranks in one group: mapper: "
                 "cube_leaders and rank: sip");
    stage_fini(&s);
}

static bool has_edge(const stage *s, kb_pe from, const char *direction, kb_pe *to)
{
    for (size_t i = 0; i < s->graph.edges.count; i++) {
        const ipcq_edge *edge = &s->graph.edges.items[i];
        *to = edge->to;
        if (number_of(s, edge->from) == number_of(s, from) &&
            strcmp(edge->direction, direction) == 0)
            return true;
    }
    return false;
}

/* On a mesh of 2 x 2 SIPs of 2 x 2 cubes nothing leads out of an edge, every cube is joined to the
 * same cube of other SIPs, and a single SIP has no global directions. */
static void test_edges(void **state)
{
    (void)state;
    scene is = cubes(2, 2);
    is.sips = KB_SIPS_MESH;
    is.sip_w = is.sip_h = 2;
    is.elements = 1;
    stage s;
    kb_pe to = {0};
    expect_ok(stage_try(&s, &is));
    static const struct {
        kb_pe from;
        const char *direction;
        bool exists;
        kb_pe to;
    } cases[] = {
        {{0, 0, 0}, "E", true, {0, 1, 0}},
        {{0, 0, 0}, "S", true, {0, 2, 0}},
        {{0, 0, 0}, "N", false, {0}},
        {{0, 0, 0}, "W", false, {0}},
        {{0, 3, 0}, "W", true, {0, 2, 0}},
        {{0, 3, 0}, "N", true, {0, 1, 0}},
        {{0, 3, 0}, "E", false, {0}},
        {{0, 3, 0}, "S", false, {0}},
        {{0, 1, 0}, "global_E", true, {1, 1, 0}},
        {{0, 1, 0}, "global_S", true, {2, 1, 0}},
        {{0, 1, 0}, "global_W", false, {0}},
        {{0, 1, 0}, "global_N", false, {0}},
        {{3, 2, 0}, "global_W", true, {2, 2, 0}},
        {{3, 2, 0}, "global_N", true, {1, 2, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(has_edge(&s, cases[i].from, cases[i].direction, &to), cases[i].exists);
        if (cases[i].exists)
            assert_int_equal(number_of(&s, to), number_of(&s, cases[i].to));
    }
    stage_fini(&s);
    is.sip_w = is.sip_h = 1;
    expect_ok(stage_try(&s, &is));
    for (size_t i = 0; i < s.graph.edges.count; i++)
        assert_null(strstr(s.graph.edges.items[i].direction, "global"));
    stage_fini(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_hierarchical),       cmocka_unit_test(test_hierarchical_of_some_pes),
    cmocka_unit_test(test_intercube_meshes),   cmocka_unit_test(test_every_root),
    cmocka_unit_test(test_sip_patterns),       cmocka_unit_test(test_root_out_of_range),
    cmocka_unit_test(test_needs_cube_leaders), cmocka_unit_test(test_edges),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
