/*
 * test_prefill_plan.c: the division of prefill attention: each block has one PE, PEs have the same
 * work, and everything in use at a time fits in the TCM.
 */
#include "nn/prefill.h"

#include "support/expect.h"

/* ---- Heads ---- */

/* Each head is in one share of each of its lanes, on as many PEs. */
static void each_head_has_its_lanes(void **unused)
{
    (void)unused;
    for (int64_t pes = 1; pes <= 20; pes++)
        for (int64_t heads = 1; heads <= 45; heads++) {
            const nn_cache_layout is = {.pes = pes, .kv_heads = heads};
            int64_t lanes[45] = {0}, expected[45] = {0}, working = 0;
            for (int64_t pe = 0; pe < pes; pe++) {
                nn_head_share share;
                int64_t round = 0;
                for (; nn_get_head_share(&is, pe, round, &share); round++)
                    for (int64_t i = 0; i < share.heads; i++) {
                        assert_true(share.lane >= 0 && share.lane < share.lanes);
                        lanes[share.first_head + i] += (int64_t)1 << share.lane;
                        expected[share.first_head + i] = ((int64_t)1 << share.lanes) - 1;
                    }
                working += round == tl_cdiv(heads, pes);
            }
            for (int64_t head = 0; head < heads; head++)
                assert_int_equal(lanes[head], expected[head]);
            assert_true(8 * working >= 7 * pes || heads % pes == 0);
        }
}

/* ---- Blocks ---- */

/* Causal work of one sequence: no lane has more than its part and the shortest blocks. */
static void lanes_have_the_same_work(void **unused)
{
    (void)unused;
    for (int64_t lanes = 1; lanes <= 32; lanes++)
        for (int64_t count = 1; count <= 200; count += 7) {
            int64_t work[32] = {0}, sum = 0, most = 0;
            for (int64_t k = 0; k < count; k++) {
                int64_t lane = nn_lane_of_block(lanes, 0, count, k);
                assert_true(lane >= 0 && lane < lanes);
                work[lane] += k + 1;
                sum += k + 1;
            }
            for (int64_t lane = 0; lane < lanes; lane++)
                most = work[lane] > most ? work[lane] : most;
            int64_t longest_left = count % (2 * lanes);
            int64_t longest = count < lanes ? count : longest_left;
            assert_true(most <= tl_cdiv(sum, lanes) + longest);
        }
}

/* Sequences shorter than a turn go on where the one before ended. */
static void short_sequences_take_turns(void **unused)
{
    (void)unused;
    int64_t blocks[8] = {0}, before = 0;
    for (int i = 0; i < 16; i++, before += 3)
        for (int64_t k = 0; k < 3; k++)
            blocks[nn_lane_of_block(8, before, 3, k)]++;
    for (int lane = 0; lane < 8; lane++)
        assert_int_equal(blocks[lane], 6);
}

/* ---- Sizes ---- */

static nn_prefill_plan size_for(int64_t head_dim, int64_t page_tokens, int64_t tcm_bytes)
{
    const tp_pe_params pe = {.hbm_bytes_per_ns = 200, .vector_per_ns = 64, .tcm_bytes = tcm_bytes};
    nn_prefill_plan plan = {.cache = {.head_dim = head_dim,
                                      .page_tokens = page_tokens,
                                      .lanes = 16,
                                      .split = 16,
                                      .dtype = KB_BF16}};
    assert_true(nn_size_prefill(&plan, &pe, 10));
    return plan;
}

/* On the default machine a block has 128 rows, and the keys of 2,048 tokens are one chunk. */
static void sizes_follow_from_the_memory(void **unused)
{
    (void)unused;
    nn_prefill_plan plan = size_for(128, 128, 12 << 20);
    assert_int_equal(plan.rows, 128);
    assert_int_equal(plan.tile, 128);
    assert_true(plan.chunk >= 2048);
    plan = size_for(128, 16, 12 << 20); /* pages are joined */
    assert_int_equal(plan.tile, 128);
    plan = size_for(128, 512, 12 << 20); /* and divided */
    assert_int_equal(plan.tile, 256);
    /* 64 KiB, as in the random tests of attention: several chunks for 400 keys. */
    plan = size_for(16, 16, 64 << 10);
    assert_true(plan.chunk > 0 && plan.chunk < 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_head_has_its_lanes),
        cmocka_unit_test(lanes_have_the_same_work),
        cmocka_unit_test(short_sequences_take_turns),
        cmocka_unit_test(sizes_follow_from_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
