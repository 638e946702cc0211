/* test_rate.c: the time of bytes, worked out by hand and by plain 128-bit arithmetic. Checks T1 and
 * T2. */
#include "support/expect.h"
#include "support/seed.h"

#include "topo/topo.h"

__extension__ typedef unsigned __int128 wide;

/* ceil(bytes * 10^15 / rate). */
static wide plain_time(uint64_t rate, uint64_t bytes)
{
    wide product = (wide)bytes * 1000000000000000u;
    return product / rate + (product % rate != 0);
}

static void times_worked_out_by_hand(void **state)
{
    (void)state;
    /* 256 bytes at 256 GB/s: 1 ns. */
    assert_int_equal(topo_rate_time(256 * TOPO_GBS, 256), KB_NS);
    /* 256 bytes at 204.8 GB/s: 1.25 ns. */
    assert_int_equal(topo_rate_time(2048 * TOPO_GBS / 10, 256), 1250 * KB_PS);
    /* 1 byte at 3 GB/s: 333,333.3 fs, up to 333,334. */
    assert_int_equal(topo_rate_time(3 * TOPO_GBS, 1), 333334);
    assert_int_equal(topo_rate_time(3 * TOPO_GBS, 3), KB_NS);
    assert_int_equal(topo_rate_time(64 * TOPO_GBS, 0), 0);
    /* 1 GiB at 64 GB/s: 1073741824 / 64 ns. */
    assert_int_equal(topo_rate_time(64 * TOPO_GBS, 1u << 30), (kb_time)(1u << 30) / 64 * KB_NS);
    /* A byte a femtosecond, and a byte a second. */
    assert_int_equal(topo_rate_time(TOPO_RATE_MAX, 12345), 12345);
    assert_int_equal(topo_rate_time(1, 1), KB_S);
}

static void what_does_not_fit_is_forever(void **state)
{
    (void)state;
    assert_true(topo_rate_time(1, 9223) == 9223 * KB_S);
    assert_true(topo_rate_time(1, 9224) == KB_FOREVER);
    assert_true(topo_rate_time(1, UINT64_MAX) == KB_FOREVER);
    assert_true(topo_rate_time(TOPO_RATE_MAX, INT64_MAX) == KB_FOREVER);
    assert_true(topo_rate_time(TOPO_RATE_MAX, INT64_MAX - 1) == INT64_MAX - 1);

    /* At a byte a second a packet of 9224 bytes takes more than the clock has; one of 5000 does
     * not, but the second one ends too late, and so does a short one behind it. */
    topo_pace slow = topo_pace_make(1, 9224);
    assert_true(topo_pace_time(&slow, 0, 9224) == KB_FOREVER);
    assert_true(topo_pace_time(&slow, 1, 9224) == KB_FOREVER);
    assert_true(topo_pace_time(&slow, 0, 100) == 100 * KB_S);
    assert_true(topo_pace_time(&slow, 1, 100) == KB_FOREVER);
    topo_pace pace = topo_pace_make(1, 5000);
    assert_true(topo_pace_time(&pace, 0, 5000) == 5000 * KB_S);
    assert_true(topo_pace_time(&pace, 1, 4000) == 4000 * KB_S);
    assert_true(topo_pace_time(&pace, 1, 4999) == KB_FOREVER);
}

static uint64_t random_rate(kb_rng *rng)
{
    static const uint64_t usual[] = {64, 256, 512, 8, 100};
    switch (kb_rng_below(rng, 4)) {
    case 0:
        return usual[kb_rng_below(rng, 5)] * TOPO_GBS;
    case 1:
        return 204800000000;
    case 2:
        return 1 + kb_rng_below(rng, TOPO_RATE_MAX);
    default:
        return 1000000 + kb_rng_below(rng, 1000 * TOPO_GBS);
    }
}

static void times_agree_with_plain_arithmetic(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(2));
    for (int round = 0; round < 200000; round++) {
        uint64_t rate = random_rate(&rng);
        uint64_t bytes = kb_rng_below(&rng, (uint64_t)1 << kb_rng_below(&rng, 50));
        wide expected = plain_time(rate, bytes);
        kb_time got = topo_rate_time(rate, bytes);
        assert_true(got == (expected > (wide)KB_FOREVER ? KB_FOREVER : (kb_time)expected));
    }
}

/* A packet takes T(end) - T(start), whatever the rate, the size and its place in the transfer. */
static void packets_agree_with_plain_arithmetic(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 8, 64, 256, 300, 4096, 1u << 20};
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    for (int round = 0; round < 200000; round++) {
        uint64_t rate = 1000000 + random_rate(&rng) / 2, size = sizes[kb_rng_below(&rng, 7)];
        topo_pace pace = topo_pace_make(rate, size);
        uint64_t index = kb_rng_below(&rng, (uint64_t)1 << kb_rng_below(&rng, 24));
        uint64_t bytes = kb_rng_below(&rng, 3) ? size : 1 + kb_rng_below(&rng, size);
        wide end = plain_time(rate, index * size + bytes), start = plain_time(rate, index * size);
        if (end > (wide)KB_FOREVER)
            continue;
        assert_true(topo_pace_time(&pace, index, bytes) == (kb_time)(end - start));
    }
}

/* However a transfer is cut, its packets take together what it takes as a whole. */
static void packets_add_up_to_the_whole(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(4));
    for (int round = 0; round < 2000; round++) {
        uint64_t rate = 1000000 + random_rate(&rng) / 2, total = 1 + kb_rng_below(&rng, 1 << 18);
        uint64_t size = 1 + kb_rng_below(&rng, 5000);
        topo_pace pace = topo_pace_make(rate, size);
        kb_time sum = 0;
        for (uint64_t index = 0; index * size < total; index++) {
            uint64_t left = total - index * size;
            sum += topo_pace_time(&pace, index, left < size ? left : size);
        }
        assert_int_equal(sum, topo_rate_time(rate, total));
    }
}

/* 1000 bytes at 100 GB/s take 10 ns: a quarter of 40 ns, all of 10 ns, and no more than all of 5.
 * At 3 GB/s a byte takes 333333.3 fs, so 333334. */
static void utilization_is_the_time_of_the_bytes(void **state)
{
    (void)state;
    const uint64_t gbs = 1000000000;
    assert_true(topo_utilization(100 * gbs, 1000, 40 * KB_NS) == 0.25);
    assert_true(topo_utilization(100 * gbs, 1000, 10 * KB_NS) == 1);
    assert_true(topo_utilization(100 * gbs, 1000, 5 * KB_NS) == 1);
    assert_true(topo_utilization(3 * gbs, 1, 1000000) == 0.333334);
    assert_true(topo_utilization(100 * gbs, 0, KB_NS) == 0);
    assert_true(topo_utilization(100 * gbs, 1000, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_worked_out_by_hand),
        cmocka_unit_test(what_does_not_fit_is_forever),
        cmocka_unit_test(times_agree_with_plain_arithmetic),
        cmocka_unit_test(packets_agree_with_plain_arithmetic),
        cmocka_unit_test(packets_add_up_to_the_whole),
        cmocka_unit_test(utilization_is_the_time_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
