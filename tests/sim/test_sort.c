/*
 * test_sort.c: kb_sort_u128() sorts.
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
    kb_u128 a = *(const kb_u128 *)left;
    kb_u128 b = *(const kb_u128 *)right;
    return a < b ? -1 : a > b;
}

/* Sorts a copy in both ways. What lies behind the words must not be touched. */
static void expect_sorted(const kb_u128 *input, uint32_t count)
{
    static kb_u128 words[MOST + 1], scratch[MOST + 1], expected[MOST];
    const kb_u128 fence = (kb_u128)0xfe2ce << 64 | 0xfe2ce;
    memcpy(words, input, count * sizeof *words);
    memcpy(expected, input, count * sizeof *words);
    memset(scratch, 0xa5, sizeof scratch);
    words[count] = scratch[count] = fence;
    kb_sort_u128(words, scratch, count);
    qsort(expected, count, sizeof *expected, compare);
    for (uint32_t i = 0; i < count; i++) {
        if (words[i] != expected[i])
            fail_msg("size %u: word %u is wrong", count, i);
    }
    assert_true(words[count] == fence && scratch[count] == fence);
}

static kb_u128 number(uint64_t high, uint64_t low)
{
    return (kb_u128)high << 64 | low;
}

typedef void fill_fn(kb_u128 *words, uint32_t count, kb_rng *rng);

static void for_all_sizes(fill_fn *fill)
{
    static kb_u128 input[MOST];
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    for (uint32_t count = 0; count <= MOST; count += count < EVERY_SIZE_TO ? 1 : SIZE_STEP) {
        fill(input, count, &rng);
        expect_sorted(input, count);
    }
    fill(input, MOST, &rng);
    expect_sorted(input, MOST);
}

static void fill_random(kb_u128 *words, uint32_t count, kb_rng *rng)
{
    for (uint32_t i = 0; i < count; i++)
        words[i] = number(kb_rng_u64(rng), kb_rng_u64(rng));
}

/* Equal high halves are as frequent as different ones, and so are equal numbers. */
static void fill_with_ties(kb_u128 *words, uint32_t count, kb_rng *rng)
{
    for (uint32_t i = 0; i < count; i++)
        words[i] = number(kb_rng_below(rng, 8), kb_rng_below(rng, 8) << 60);
}

static void fill_ascending(kb_u128 *words, uint32_t count, kb_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < count; i++)
        words[i] = number(i / 3, i % 3);
}

static void fill_descending(kb_u128 *words, uint32_t count, kb_rng *rng)
{
    (void)rng;
    for (uint32_t i = 0; i < count; i++)
        words[i] = number((count - i) / 3, (count - i) % 3);
}

static void fill_equal(kb_u128 *words, uint32_t count, kb_rng *rng)
{
    kb_u128 word = number(kb_rng_u64(rng), kb_rng_u64(rng));
    for (uint32_t i = 0; i < count; i++)
        words[i] = word;
}

/* One to seven ascending runs of random lengths and offsets, so that they interleave. */
static void fill_runs(kb_u128 *words, uint32_t count, kb_rng *rng)
{
    uint64_t runs = 1 + kb_rng_below(rng, 7);
    uint64_t value = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kb_rng_below(rng, count) < runs)
            value = kb_rng_below(rng, 100);
        value += kb_rng_below(rng, 3);
        words[i] = number(value >> 5, value << 59);
    }
}

/* In order but for one number that belongs to the other end: both ways. */
static void fill_one_astray(kb_u128 *words, uint32_t count, kb_rng *rng)
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
            kb_u128 words[digits];
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
