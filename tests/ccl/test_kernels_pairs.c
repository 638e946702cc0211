/* test_kernels_pairs.c: one_shot, pairs_gather, pairs_scatter, pairs_all_to_all, pairs_send. */
#include "mocking.h"

static const struct pair_case {
    const kb_ccl_algorithm *algorithm;
    kb_collective_kind kind;
} cases[] = {
    {&ccl_one_shot_algorithm, KB_ALL_REDUCE},
    {&ccl_pairs_gather_algorithm, KB_GATHER},
    {&ccl_pairs_scatter_algorithm, KB_SCATTER},
    {&ccl_pairs_all_to_all_algorithm, KB_ALL_TO_ALL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void test_worlds(void **state)
{
    (void)state;
    for (size_t c = 0; c < CASES; c++)
        play_in_worlds((scene){.algorithm = cases[c].algorithm,
                               .kind = cases[c].kind,
                               .topology = "pairs",
                               .pes = 17,
                               .dtype = KB_F16});
}

static void test_ops(void **state)
{
    (void)state;
    play_all_ops((scene){.algorithm = &ccl_one_shot_algorithm,
                         .topology = "pairs",
                         .world = 6,
                         .pes = 6,
                         .elements = 100});
}

/* Circles that do not go in the order of ranks; every root. */
static void test_lanes(void **state)
{
    (void)state;
    for (size_t c = 0; c < CASES; c++)
        for (uint32_t root = 0; root < 6; root++)
            play(&(scene){.algorithm = cases[c].algorithm,
                          .kind = cases[c].kind,
                          .mapper = "lanes",
                          .topology = "pairs",
                          .sips = KB_SIPS_TORUS,
                          .sip_links = true,
                          .sip_w = 3,
                          .sip_h = 2,
                          .pes = 2,
                          .dtype = KB_F32,
                          .root = root,
                          .elements = 45});
}

/* From rank 0 to another; the rest has nothing to do with it. */
static void test_send(void **state)
{
    (void)state;
    for (uint32_t to = 1; to < 6; to++)
        for (size_t k = 0; k < RAGGED_SIZES; k++)
            play(&(scene){.algorithm = &ccl_pairs_send_algorithm,
                          .kind = KB_SEND,
                          .mapper = "lanes",
                          .topology = "pairs",
                          .sips = KB_SIPS_TORUS,
                          .sip_links = true,
                          .sip_w = 3,
                          .sip_h = 2,
                          .dtype = KB_BF16,
                          .root = to,
                          .elements = ragged_sizes[k]});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_worlds),
    cmocka_unit_test(test_ops),
    cmocka_unit_test(test_lanes),
    cmocka_unit_test(test_send),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
