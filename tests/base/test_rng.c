/*
 * test_rng.c: known answers, bounds, and whether exponential variates are exponential.
 *
 * The known answers were computed by a separate implementation in Python with unbounded integers;
 * those of splitmix64 from 1234567 and of xoshiro256** from {1, 2, 3, 4} are also the published
 * ones.
 */
#include "support/expect.h"

#include <math.h>

#include "base/base.h"

static void splitmix64_gives_known_answers(void **state)
{
    (void)state;
    static const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u,
                                        9817491932198370423u, 4593380528125082431u,
                                        16408922859458223821u};
    uint64_t s = 1234567;
    for (size_t i = 0; i < 5; i++)
        assert_true(kb_splitmix64(&s) == expected[i]);
}

static void xoshiro_gives_known_answers(void **state)
{
    (void)state;
    static const uint64_t expected[] = {11520,
                                        0,
                                        1509978240,
                                        1215971899390074240,
                                        1216172134540287360,
                                        607988272756665600,
                                        16172922978634559625u,
                                        8476171486693032832,
                                        10595114339597558777u,
                                        2904607092377533576};
    kb_rng rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < 10; i++)
        assert_true(kb_rng_u64(&rng) == expected[i]);

    static const uint64_t from_42[] = {1546998764402558742, 6990951692964543102,
                                       12544586762248559009u, 17057574109182124193u};
    kb_rng_init(&rng, 42);
    for (size_t i = 0; i < 4; i++)
        assert_true(kb_rng_u64(&rng) == from_42[i]);
    kb_rng_init(&rng, 0);
    assert_true(kb_rng_u64(&rng) == 11091344671253066420u);
}

static void bounded_numbers_are_known_and_in_bounds(void **state)
{
    (void)state;
    static const struct {
        uint64_t bound, expected;
    } cases[] = {
        {1, 0},
        {2, 0},
        {10, 1},
        {1000, 732},
        {(uint64_t)3 << 62, 12736347171961505547u},
        {((uint64_t)1 << 63) + 1, 6865958487491340624u},
        {UINT64_MAX, 12596827927452161362u},
    };
    kb_rng rng;
    kb_rng_init(&rng, 9);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(kb_rng_below(&rng, cases[i].bound) == cases[i].expected);
    for (uint64_t bound = 1; bound < 2000; bound++) {
        for (int i = 0; i < 20; i++)
            assert_true(kb_rng_below(&rng, bound) < bound);
    }
}

/* The bound 3 * 2^62 is where taking the remainder would give the first third twice as often. */
static void bounded_numbers_are_not_biased(void **state)
{
    (void)state;
    enum { draws = 300000 };
    kb_rng rng;
    kb_rng_init(&rng, 11);
    int thirds[3] = {0};
    for (int i = 0; i < draws; i++)
        thirds[kb_rng_below(&rng, (uint64_t)3 << 62) >> 62]++;
    for (int i = 0; i < 3; i++) /* standard deviation 258 */
        assert_in_range(thirds[i], draws / 3 - 1300, draws / 3 + 1300);
    int dice[6] = {0};
    for (int i = 0; i < draws; i++)
        dice[kb_rng_below(&rng, 6)]++;
    for (int i = 0; i < 6; i++) /* standard deviation 204 */
        assert_in_range(dice[i], draws / 6 - 1000, draws / 6 + 1000);
}

static void doubles_are_known_and_in_the_unit_interval(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, 5);
    assert_true(kb_rng_double(&rng) == 0x1.275545e329532p-2);
    assert_true(kb_rng_double(&rng) == 0x1.344422b49a4c4p-1);
    assert_true(kb_rng_double(&rng) == 0x1.4c916399e1777p-1);
    enum { draws = 1000000 };
    double sum = 0;
    for (int i = 0; i < draws; i++) {
        double x = kb_rng_double(&rng);
        assert_true(x >= 0 && x < 1);
        sum += x;
    }
    assert_true(fabs(sum / draws - 0.5) < 0.0015); /* 5 standard deviations */
}

static void exponentials_give_known_answers(void **state)
{
    (void)state;
    static const double first[] = {0x1.6635cbe3d58cdp-3, 0x1.97b672da6caf4p+0, 0x1.1bf68aa4dd33ap-1,
                                   0x1.3ed31969a6ce7p-2, 0x1.e2b0142fd74b6p-1};
    kb_rng rng;
    kb_rng_init(&rng, 2024);
    for (size_t i = 0; i < 5; i++)
        assert_true(kb_rng_exponential(&rng) == first[i]);

    /* 200,000 of them bit for bit, by way of a hash: of the time with a mean of 2^57 fs, exact. */
    kb_rng_init(&rng, 2024);
    uint64_t hash = 0;
    for (int i = 0; i < 200000; i++)
        hash = hash * 0x100000001b3 ^ (uint64_t)kb_rng_exponential_time(&rng, (kb_time)1 << 57);
    assert_true(hash == 0xbc1e823f2ef62a6c);
    assert_true(kb_rng_u64(&rng) == 14146025510412795740u);
}

static void exponential_times_scale_and_saturate(void **state)
{
    (void)state;
    static const struct {
        kb_time mean, expected;
    } cases[] = {
        {0, 0},
        {1, 0},
        {1000000, 514801},
        {1000000000000000, 251089728167269},
        {100000000000000000, 214602879480399263},
    };
    kb_rng rng;
    kb_rng_init(&rng, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(kb_rng_exponential_time(&rng, cases[i].mean) == cases[i].expected);
    for (int i = 0; i < 1000; i++) {
        kb_rng copy = rng;
        bool beyond = kb_rng_exponential(&copy) > 1;
        kb_time time = kb_rng_exponential_time(&rng, INT64_MAX);
        assert_true(beyond ? time == INT64_MAX : time >= 0);
    }
}

/* The edges anew, from the equation that all layers have the same area. */
static void the_ziggurat_table_is_right(void **state)
{
    (void)state;
    static const uint64_t edges[] = {
#include "base/rng_table.inc"
    };
    enum { layers = 256 };
    assert_int_equal(sizeof edges / sizeof edges[0], layers + 1);
    assert_int_equal(edges[layers], 0);
    assert_true(edges[0] - edges[1] == (uint64_t)1 << 57);
    long double r = ldexpl((long double)edges[1], -57);
    long double area = (r + 1) * expl(-r), x = r, height = expl(-r);
    for (int i = 2; i < layers; i++) {
        height += area / x;
        x = -logl(height);
        long double stored = ldexpl((long double)edges[i], -57);
        if (fabsl(stored - x) > 1e-15L)
            fail_msg("edge %d: %.20Lf, expected %.20Lf", i, stored, x);
    }
    assert_true(fabsl(height + area / x - 1) < 1e-15L); /* the top layer ends at exp(0) */
}

/*
 * Mean, variance and third moment, and the Kolmogorov-Smirnov distance on a fine grid, which is
 * finer than the widest ends of layers. With 8 million draws a distance of 2 / sqrt(n) has a chance
 * of 0.0007; the seed is fixed, so this passes always or never. It sees an error of a tenth in
 * how the ends of the layers are cut, as they hold 1.1 % of all draws.
 */
static void exponentials_are_exponential(void **state)
{
    (void)state;
    enum { draws = 8000000, cells = 20000 };
    static unsigned counts[cells + 1];
    const double cell = 0.001;
    kb_rng rng;
    kb_rng_init(&rng, 12345);
    double sum = 0, squares = 0, cubes = 0, largest = 0;
    for (int i = 0; i < draws; i++) {
        double x = kb_rng_exponential(&rng);
        assert_true(x >= 0);
        sum += x;
        squares += x * x;
        cubes += x * x * x;
        largest = x > largest ? x : largest;
        size_t at = (size_t)(x / cell);
        counts[at < cells ? at : cells]++;
    }
    /* The n-th moment is n!, its variance ((2n)! - n!^2) / draws; five standard deviations. */
    assert_true(fabs(sum / draws - 1) < 5 * sqrt(1.0 / draws));
    assert_true(fabs(squares / draws - 2) < 5 * sqrt(20.0 / draws));
    assert_true(fabs(cubes / draws - 6) < 5 * sqrt(684.0 / draws));
    assert_true(largest > 12 && largest < 30); /* ln(8e6) = 15.9; the tail was reached */

    double worst = 0, below = 0;
    for (int i = 0; i < cells; i++) {
        below += counts[i];
        double distance = fabs(below / draws - (1 - exp(-(i + 1) * cell)));
        worst = distance > worst ? distance : worst;
    }
    assert_true(worst < 2 / sqrt(draws));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitmix64_gives_known_answers),
        cmocka_unit_test(xoshiro_gives_known_answers),
        cmocka_unit_test(bounded_numbers_are_known_and_in_bounds),
        cmocka_unit_test(bounded_numbers_are_not_biased),
        cmocka_unit_test(doubles_are_known_and_in_the_unit_interval),
        cmocka_unit_test(exponentials_give_known_answers),
        cmocka_unit_test(exponential_times_scale_and_saturate),
        cmocka_unit_test(the_ziggurat_table_is_right),
        cmocka_unit_test(exponentials_are_exponential),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
