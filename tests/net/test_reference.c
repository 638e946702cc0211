/*
 * test_reference.c: the transport does what the plain one of reference.c does, to the femtosecond:
 * every booking, every completion, every figure of a link, and the order in which transfers end.
 *
 * Much of the traffic has all its times in whole picoseconds, so that much happens at one instant
 * and the order within it counts.
 *
 * Checks N5.
 */
#include "net/reference.h"
#include "support/seed.h"

static void compare(uint64_t seed, const chance *how, bool no_elision)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    scenario s;
    scenario_random(&s, &rng, how);
    s.options.no_elision = no_elision;
    outcome *real = scenario_run(&s);
    outcome *reference = reference_run(&s);
    char what[80];
    (void)snprintf(what, sizeof what, "seed %ju%s", (uintmax_t)seed,
                   no_elision ? ", no elision" : "");
    outcomes_are_equal(real, reference, what);
    outcome_free(real);
    outcome_free(reference);
    scenario_fini(&s);
}

static void compare_many(uint64_t first, uint64_t count, const chance *how)
{
    count = scenario_cases(count);
    for (uint64_t seed = first; seed < first + count; seed++) {
        compare(seed, how, false);
        if (seed % 8 == 0)
            compare(seed, how, true);
    }
}

static void equal_with_few_orders_and_ties(void **state)
{
    (void)state;
    compare_many(1000000, 10000, &(chance){.ties = true, .most_orders = 5});
}

static void equal_with_many_orders_and_ties(void **state)
{
    (void)state;
    compare_many(2000000, 2000, &(chance){.ties = true, .most_orders = 40});
}

static void equal_with_orders_that_follow_others(void **state)
{
    (void)state;
    compare_many(3000000, 4000, &(chance){.ties = true, .chained = true, .most_orders = 20});
}

static void equal_with_decimal_rates(void **state)
{
    (void)state;
    compare_many(4000000, 2000, &(chance){.most_orders = 20});
    compare_many(5000000, 1000, &(chance){.chained = true, .most_orders = 20});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_with_few_orders_and_ties),
        cmocka_unit_test(equal_with_many_orders_and_ties),
        cmocka_unit_test(equal_with_orders_that_follow_others),
        cmocka_unit_test(equal_with_decimal_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
