/*
 * test_sort.c: kb_sort_u64() sorts.
 *
 * Law: for every input the result is what qsort() makes of it. The inputs are those that a natural
 * merge sort could get wrong: ordered, reversed, equal, few runs and random ones, of every size up
 * to 300 and of some up to 2000, with differences in the low and in the high half of the numbers.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "base/base.h"
#include "sim/sort.h"

enum { MOST = 2000, EVERY_SIZE_TO = 300, SIZE_STEP = 137 };

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Sorts a copy in both ways. What lies behind the words must not be touched. */
static void expect_sorted(const uint64_t *input, uint32_t count)
{
    static uint64_t words[MOST + 1], scratch[MOST + 1], expected[MOST];
    const uint64_t fence = (uint64_t)0xfe2ce << 32 | 0xfe2ce;
    memcpy(words, input, count * sizeof *words);
    memcpy(expected, input, count * sizeof *words);
    memset(scratch, 0xa5, sizeof scratch);
    words[count] = scratch[count] = fence;
    kb_sort_u64(words, scratch, count);
    qsort(expected, count, sizeof *expected, compare);
    for (uint32_t i = 0; i < count; i++) {
        if (words[i] != expected[i])
            fail_msg("size %u: word %u is wrong", count, i);
    }
    assert_true(words[count] == fence && scratch[count] == fence);
}

static uint64_t number(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

static uint32_t below(kb_rng *rng, uint32_t limit)
{
    return (uint32_t)kb_rng_below(rng, limit);
}

typedef void fill_fn(uint64_t *words, uint32_t count, kb_rng *rng);

static void for_all_sizes(fill_fn *fill)
{
    static uint64_t input[MOST];
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    for (uint32_t count = 0; count <= MOST; count += count < EVERY_SIZE_TO ? 1 : SIZE_STEP) {
        fill(input, count, &rng);
        expect_sorted(input, count);
    }
    fill(input, MOST, &rng);
    expect_sorted(input, MOST);
}

static void fill_random(uint64_t *words, uint32_t count, kb_rng *rng)
{
    for (uint32_t i = 0; i < count; i++)
        words[i] = kb_rng_u64(rng);
}

/* Equal high halves are as frequent as different ones, and so are equal numbers. */
static void fill_with_ties(uint64_t *words, uint32_t count, kb_rng *rng)
{
    for (uint32_t i = 0; i < count; i++)
        words[i] = number(below(rng, 8), below(rng, 8) << 28);
}

static void fill_ascending(uint64_t *words, uint32_t count, kb_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < count; i++)
        words[i] = number(i / 3, i % 3);
}

static void fill_descending(uint64_t *words, uint32_t count, kb_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < count; i++)
        words[i] = number((count - i) / 3, (count - i) % 3);
}

static void fill_equal(uint64_t *words, uint32_t count, kb_rng *rng)
{
    uint64_t word = kb_rng_u64(rng);
    for (uint32_t i = 0; i < count; i++)
        words[i] = word;
}

/* One to seven ascending runs of random lengths and offsets, so that they interleave. */
static void fill_runs(uint64_t *words, uint32_t count, kb_rng *rng)
{
    uint32_t runs = 1 + below(rng, 7);
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (below(rng, count) < runs)
            value = below(rng, 100);
        value += below(rng, 3);
        words[i] = number(value >> 5, value << 27);
    }
}

/* In order but for one number that belongs to the other end: both ways. */
static void fill_one_astray(uint64_t *words, uint32_t count, kb_rng *rng)
{
    for (uint32_t i = 0; i < count; i++)
        words[i] = number(1, i);
    if (count)
        words[kb_rng_below(rng, count)] = count % 2 ? number(0, 0) : number(2, 0);
}

static void random_numbers_are_sorted(void **state)
{
    (void)state;
    for_all_sizes(fill_random);
}

static void ties_are_sorted(void **state)
{
    (void)state;
    for_all_sizes(fill_with_ties);
}

static void ascending_numbers_stay(void **state)
{
    (void)state;
    for_all_sizes(fill_ascending);
}

static void descending_numbers_are_turned_round(void **state)
{
    (void)state;
    for_all_sizes(fill_descending);
}

static void equal_numbers_are_kept(void **state)
{
    (void)state;
    for_all_sizes(fill_equal);
}

static void runs_are_merged(void **state)
{
    (void)state;
    for (int repeat = 0; repeat < 5; repeat++)
        for_all_sizes(fill_runs);
}

static void one_astray_is_put_right(void **state)
{
    (void)state;
    for_all_sizes(fill_one_astray);
}

/* All sequences of up to five of five numbers: each input is a number in base five. */
static void every_short_input_is_sorted(void **state)
{
    (void)state;
    enum { digits = 5 };
    uint32_t inputs = 1;
    for (uint32_t count = 0; count <= digits; count++, inputs *= digits) {
        for (uint32_t code = 0; code < inputs; code++) {
            uint64_t words[digits];
            uint32_t rest = code;
            for (uint32_t i = 0; i < count; i++, rest /= digits)
                words[i] = number(rest % digits, 7);
            expect_sorted(words, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_are_sorted),
        cmocka_unit_test(ties_are_sorted),
        cmocka_unit_test(ascending_numbers_stay),
        cmocka_unit_test(descending_numbers_are_turned_round),
        cmocka_unit_test(equal_numbers_are_kept),
        cmocka_unit_test(runs_are_merged),
        cmocka_unit_test(one_astray_is_put_right),
        cmocka_unit_test(every_short_input_is_sorted),
    };
    return cmocka_run_group_tests_name("sort", tests, NULL, NULL);
}
