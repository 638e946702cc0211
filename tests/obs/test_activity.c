/* test_activity.c: amounts in bins, and slices in bounded memory. */
#include "support/expect.h"
#include "support/seed.h"

#include "base/base.h"
#include "obs/spread.h"
#include "obs/timeline.h"

static uint64_t sum_of(const obs_spread *spread, size_t row)
{
    uint64_t sum = 0;
    for (size_t bin = 0; bin < spread->bins; bin++)
        sum += obs_spread_get(spread, row, bin);
    return sum;
}

/* 100 over 1.5 ns .. 4 ns in bins of 1 ns: 0.5 / 2.5 of it, then twice 1 / 2.5. */
static void amounts_are_divided_by_overlap(void **state)
{
    (void)state;
    obs_spread spread;
    expect_ok(obs_spread_init(&spread, 2, KB_NS));
    assert_true(obs_spread_add(&spread, 1, 3 * KB_NS / 2, 4 * KB_NS, 100));
    assert_int_equal(obs_spread_get(&spread, 1, 0), 0);
    assert_int_equal(obs_spread_get(&spread, 1, 1), 20);
    assert_int_equal(obs_spread_get(&spread, 1, 2), 40);
    assert_int_equal(obs_spread_get(&spread, 1, 3), 40);
    assert_int_equal(obs_spread_get(&spread, 1, 4), 0);
    assert_int_equal(obs_spread_get(&spread, 0, 1), 0);
    assert_int_equal(obs_spread_used(&spread, 4 * KB_NS), 4);
    assert_int_equal(obs_spread_used(&spread, 4 * KB_NS + 1), 5);
    assert_true(obs_spread_add(&spread, 1, 4 * KB_NS, 4 * KB_NS, 7)); /* at an instant */
    assert_int_equal(obs_spread_get(&spread, 1, 4), 7);
    obs_spread_fini(&spread);
}

/* 256 bins of 1 ns; what ends at 257 ns needs bins of 2 ns. */
static void bins_are_merged_in_pairs(void **state)
{
    (void)state;
    obs_spread spread;
    expect_ok(obs_spread_init(&spread, 1, KB_NS));
    assert_true(obs_spread_add(&spread, 0, 0, 256 * KB_NS, 2560));
    assert_int_equal(spread.width, KB_NS);
    assert_true(obs_spread_add(&spread, 0, 256 * KB_NS, 257 * KB_NS, 3));
    assert_int_equal(spread.width, 2 * KB_NS);
    assert_int_equal(obs_spread_get(&spread, 0, 127), 20);
    assert_int_equal(obs_spread_get(&spread, 0, 128), 3);
    assert_int_equal(obs_spread_get(&spread, 0, 129), 0);
    obs_spread_fini(&spread);
}

static void amounts_add_up(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (int round = 0; round < 20; round++) {
        obs_spread spread;
        uint64_t added = 0;
        kb_time now = 0;
        expect_ok(obs_spread_init(&spread, 1, 1 + (kb_time)kb_rng_below(&rng, 5 * KB_NS)));
        for (int i = 0; i < 500; i++) {
            kb_time start = now - (kb_time)kb_rng_below(&rng, (uint64_t)now / 2 + 1);
            uint64_t amount = kb_rng_below(&rng, 1 << 20);
            now += (kb_time)kb_rng_below(&rng, (uint64_t)KB_US);
            assert_true(obs_spread_add(&spread, 0, start, now, amount));
            added += amount;
            assert_int_equal(sum_of(&spread, 0), added);
        }
        size_t used = obs_spread_used(&spread, now);
        assert_true(used > spread.bins / 2 && used <= spread.bins);
        obs_spread_fini(&spread);
    }
}

/* A million slices on three lanes: memory is bounded, and no operation or time is lost. */
static void slices_are_bounded(void **state)
{
    (void)state;
    timeline t;
    expect_ok(timeline_init(&t, 3));
    kb_time busy = 0, now = 0;
    size_t most = 0;
    enum { COUNT = 1000000 };
    for (int i = 0; i < COUNT; i++) {
        kb_time time = 10 + i % 7;
        timeline_slice slice = {.start = now,
                                .end = now + time,
                                .busy = time,
                                .longest = time,
                                .count = 1,
                                .title = (uint32_t)(i % 7)};
        assert_true(timeline_add(&t, (size_t)i % 3, &slice));
        now += 5;
        busy += time;
        most = t.count > most ? t.count : most;
    }
    assert_true(most <= t.max);
    assert_true(t.count > t.max / 8); /* and as much detail as there is room for */
    uint64_t operations = 0;
    kb_time kept = 0;
    for (size_t lane = 0; lane < 3; lane++) {
        kb_time end = 0;
        for (size_t i = 0; i < t.lanes[lane].slices.count; i++) {
            const timeline_slice *s = &t.lanes[lane].slices.items[i];
            assert_true(s->end >= end && s->start < s->end);
            assert_true(s->count == 1 || s->longest == 16 || s->count < 7);
            end = s->end;
            operations += s->count;
            kept += s->busy;
        }
    }
    assert_int_equal(operations, COUNT);
    assert_int_equal(kept, busy);
    timeline_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_divided_by_overlap),
        cmocka_unit_test(bins_are_merged_in_pairs),
        cmocka_unit_test(amounts_add_up),
        cmocka_unit_test(slices_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
