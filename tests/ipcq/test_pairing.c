/* test_pairing.c: which directions are joined: by hand, and random graphs against a slow pairing.
 */
#include "ipcq_rig.h"
#include "support/seed.h"

#include <inttypes.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static ipcq_plan plan_of(const ipcq_edge *edges, size_t count)
{
    ipcq_plan plan;
    expect_ok(ipcq_plan_init(&plan, edges, count, &mostly));
    return plan;
}

static size_t find(const ipcq_plan *plan, uint32_t n, const char *direction)
{
    for (size_t i = 0; i < plan->ends.count; i++)
        if (plan->ends.items[i].pe.pe == n && strcmp(plan->ends.items[i].direction, direction) == 0)
            return i;
    fail_msg("pe%u has no %s", n, direction);
    return IPCQ_NONE;
}

/* What pe `from` sends by `a` arrives at pe `to` in `b`. */
static void expect_joined(const ipcq_plan *plan, uint32_t from, const char *a, uint32_t to,
                          const char *b)
{
    size_t sender = find(plan, from, a), receiver = find(plan, to, b);
    assert_int_equal(plan->ends.items[sender].to, receiver);
    assert_int_equal(plan->ends.items[receiver].from, sender);
}

static void expect_both_ways(const ipcq_plan *plan, uint32_t x, const char *a, uint32_t y,
                             const char *b)
{
    expect_joined(plan, x, a, y, b);
    expect_joined(plan, y, b, x, a);
}

static void expect_refused(const ipcq_edge *edges, size_t count, const char *message)
{
    ipcq_plan plan;
    expect_error(ipcq_plan_init(&plan, edges, count, &mostly), KB_ERR_INPUT, message);
    assert_int_equal(plan.ends.count, 0);
}

/* ---- By hand ----------------------------------------------------------------------------- */

static void a_ring_pairs_opposites(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(2, "E", 0), edge(0, "E", 1), edge(0, "W", 2),
                               edge(1, "E", 2), edge(1, "W", 0), edge(2, "W", 1)};
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    assert_int_equal(plan.ends.count, 6);
    for (uint32_t n = 0; n < 3; n++)
        expect_both_ways(&plan, n, "E", (n + 1) % 3, "W");
    /* By PE, and in the order of the edges. */
    const char *names[] = {"E", "W", "E", "W", "E", "W"};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(plan.ends.items[i].pe.pe, i / 2);
        assert_string_equal(plan.ends.items[i].direction, names[i]);
    }
    ipcq_plan_fini(&plan);
}

static void in_a_ring_of_two_both_directions_lead_to_one_peer(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    assert_int_equal(plan.ends.count, 4);
    expect_both_ways(&plan, 0, "E", 1, "W");
    expect_both_ways(&plan, 0, "W", 1, "E");
    ipcq_plan_fini(&plan);
}

static void all_opposites_are_known(void **state)
{
    (void)state;
    /* The second of each PE comes first, so that pairing in order would get them wrong. */
    const char *const pairs[][2] = {
        {"E", "W"}, {"N", "S"}, {"global_E", "global_W"}, {"global_N", "global_S"}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        const char *a = pairs[i][0], *b = pairs[i][1];
        const ipcq_edge edges[] = {edge(0, a, 1), edge(0, b, 1), edge(1, a, 0), edge(1, b, 0)};
        ipcq_plan plan = plan_of(edges, COUNT(edges));
        expect_both_ways(&plan, 0, a, 1, b);
        expect_both_ways(&plan, 0, b, 1, a);
        ipcq_plan_fini(&plan);
    }
}

static void trees_pair_what_points_back(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "child_left", 1), edge(0, "child_right", 2),
                               edge(1, "parent", 0),     edge(2, "parent", 0),
                               edge(1, "child_left", 3), edge(3, "parent", 1)};
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    assert_int_equal(plan.ends.count, 6);
    expect_both_ways(&plan, 0, "child_left", 1, "parent");
    expect_both_ways(&plan, 0, "child_right", 2, "parent");
    expect_both_ways(&plan, 1, "child_left", 3, "parent");
    ipcq_plan_fini(&plan);
}

/* x, y and E of pe0 lead to pe1; back lead W, p and q. E is for W, whatever the order. */
static void several_directions_to_one_peer_pair_in_order(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(1, "p", 0), edge(0, "x", 1), edge(1, "W", 0),
                               edge(0, "E", 1), edge(0, "y", 1), edge(1, "q", 0)};
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    expect_both_ways(&plan, 0, "E", 1, "W");
    expect_both_ways(&plan, 0, "x", 1, "p");
    expect_both_ways(&plan, 0, "y", 1, "q");
    ipcq_plan_fini(&plan);
}

/* E of pe0 leads to pe1, whose W leads elsewhere: that is not its opposite. */
static void an_opposite_that_leads_elsewhere_is_none(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "E", 1), edge(1, "W", 2), edge(1, "back", 0),
                               edge(2, "E", 1)};
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    expect_both_ways(&plan, 0, "E", 1, "back");
    expect_both_ways(&plan, 1, "W", 2, "E");
    ipcq_plan_fini(&plan);
}

static void a_one_way_ring_receives_by_the_name_that_was_sent_by(void **state)
{
    (void)state;
    for (uint32_t pes = 2; pes <= 5; pes++) {
        ipcq_edge edges[5];
        for (uint32_t n = 0; n < pes; n++)
            edges[n] = edge(n, "E", (n + 1) % pes);
        ipcq_plan plan = plan_of(edges, pes);
        assert_int_equal(plan.ends.count, pes);
        for (uint32_t n = 0; n < pes; n++)
            expect_joined(&plan, n, "E", (n + 1) % pes, "E");
        ipcq_plan_fini(&plan);
    }
}

/* The last one of a chain has no direction of its own: one is made, behind those of its PE. */
static void what_cannot_be_answered_gets_an_end_that_only_receives(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "E", 1), edge(2, "up", 1), edge(1, "N", 3), edge(3, "S", 1)};
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    const char *of_pe1[] = {"N", "E", "up"};
    assert_int_equal(plan.ends.count, 6);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(plan.ends.items[1 + i].direction, of_pe1[i]);
    expect_joined(&plan, 0, "E", 1, "E");
    expect_joined(&plan, 2, "up", 1, "up");
    assert_int_equal(plan.ends.items[find(&plan, 1, "up")].to, IPCQ_NONE);
    assert_int_equal(plan.ends.items[find(&plan, 0, "E")].from, IPCQ_NONE);
    expect_both_ways(&plan, 1, "N", 3, "S");
    ipcq_plan_fini(&plan);
}

/* pe0 has two directions to pe1, which has one back. */
static void what_is_left_over_goes_one_way(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "x", 1), edge(0, "y", 1), edge(1, "z", 0)};
    ipcq_plan plan = plan_of(edges, COUNT(edges));
    expect_both_ways(&plan, 0, "x", 1, "z");
    expect_joined(&plan, 0, "y", 1, "y");
    ipcq_plan_fini(&plan);
}

static void an_empty_plan_is_one(void **state)
{
    (void)state;
    ipcq_plan plan = plan_of(NULL, 0);
    assert_int_equal(plan.ends.count, 0);
    ipcq_plan_fini(&plan);
    ipcq_plan_fini(&plan);
}

/* ---- Refused ----------------------------------------------------------------------------- */

static void what_is_ambiguous_is_refused(void **state)
{
    (void)state;
    /* E of pe1 receives from W of pe2 already. */
    const ipcq_edge taken[] = {edge(0, "E", 1), edge(1, "E", 2), edge(2, "W", 1)};
    expect_refused(taken, COUNT(taken),
                   "direction E of sip0.cube0.pe0 leads to sip0.cube0.pe1, which has no "
                   "direction back: its messages would be received by E, which receives from "
                   "direction W of sip0.cube0.pe2");
    /* Both would be received by E, which leads elsewhere, or is made. */
    const ipcq_edge two[] = {edge(0, "E", 1), edge(2, "E", 1), edge(1, "E", 3)};
    for (size_t count = 2; count <= 3; count++)
        expect_refused(two, count,
                       "direction E of sip0.cube0.pe2 leads to sip0.cube0.pe1, which has no "
                       "direction back: its messages would be received by E, which receives "
                       "from direction E of sip0.cube0.pe0");
}

static void mistakes_are_named(void **state)
{
    (void)state;
    const ipcq_edge twice[] = {edge(0, "E", 1), edge(0, "N", 3), edge(0, "E", 2)};
    expect_refused(twice, 3,
                   "sip0.cube0.pe0 has direction E twice: to sip0.cube0.pe1 and to sip0.cube0.pe2");
    ipcq_edge itself = {{1, 2, 3}, "E", {1, 2, 3}};
    expect_refused(&itself, 1, "direction E of sip1.cube2.pe3 is connected to itself");
    for (int i = 0; i < 2; i++) {
        ipcq_edge nameless = {{1, 2, 3}, i == 0 ? "" : NULL, {1, 2, 4}};
        expect_refused(&nameless, 1,
                       "missing direction name: sip1.cube2.pe3 to sip1.cube2.pe4 "
                       "has none");
    }
}

static void settings_are_checked(void **state)
{
    (void)state;
    const struct {
        ipcq_settings settings;
        const char *message;
    } cases[] = {
        {{KB_VIRTUAL, false, 4, 64, 16},
         "invalid memory of receive rings: expected TCM, HBM "
         "or SRAM"},
        {{KB_TCM, false, 4, 0, 16}, "invalid slot size: expected at least 1 byte"},
        {{KB_TCM, false, 4, 64, 0}, "invalid credit size: expected at least 1 byte"},
        {{KB_TCM, false, 4, (uint64_t)1 << 62, 16},
         "4 slots of 4611686018427387904 bytes exceed the maximum size of a receive ring"},
        {{KB_TCM, false, 3, (uint64_t)3 << 61, 16},
         "3 slots of 6917529027641081856 bytes exceed the maximum size of a receive ring"},
    };
    const ipcq_edge edges[] = TWO_PES;
    ipcq_plan plan;
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_error(ipcq_plan_init(&plan, edges, 4, &cases[i].settings), KB_ERR_INPUT,
                     cases[i].message);
    ipcq_settings mock = {0};
    expect_ok(ipcq_plan_init(&plan, edges, 4, &mock));
    ipcq_plan_fini(&plan);
}

/* ---- Random ------------------------------------------------------------------------------ */

enum { MAX_EDGES = 80 };

/* The same by looking at everything again and again. `to[i]` is the edge that receives what edge i
 * sends: that edge's end, or with MADE added an end that was made for edge i. */
enum { MADE = 1000 };

static bool same_pe(kb_pe a, kb_pe b)
{
    return a.sip == b.sip && a.cube == b.cube && a.pe == b.pe;
}

static bool points_back(const ipcq_edge *a, const ipcq_edge *b)
{
    return same_pe(a->to, b->from) && same_pe(b->to, a->from);
}

static bool are_opposite(const char *a, const char *b)
{
    const char *const pairs[][2] = {{"E", "W"}, {"W", "E"}, {"N", "S"}, {"S", "N"}};
    for (size_t i = 0; i < COUNT(pairs); i++)
        if (strcmp(a, pairs[i][0]) == 0 && strcmp(b, pairs[i][1]) == 0)
            return true;
    return false;
}

/* False if it is to be refused. */
static bool pair_slowly(const ipcq_edge *edges, int count, int *to)
{
    int from[MAX_EDGES];
    for (int i = 0; i < count; i++)
        to[i] = from[i] = -1;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < count; i++)
            for (int k = 0; k < count && to[i] < 0; k++)
                if (to[k] < 0 && points_back(&edges[i], &edges[k]) &&
                    (round == 1 || are_opposite(edges[i].direction, edges[k].direction))) {
                    to[i] = from[i] = k;
                    to[k] = from[k] = i;
                }
    for (int i = 0; i < count; i++) {
        if (to[i] >= 0)
            continue;
        to[i] = MADE + i;
        for (int k = 0; k < count; k++) {
            bool same_name = strcmp(edges[i].direction, edges[k].direction) == 0;
            if (same_name && same_pe(edges[i].to, edges[k].from)) {
                if (from[k] >= 0)
                    return false;
                to[i] = k;
                from[k] = i;
            } else if (same_name && k < i && to[k] == MADE + k &&
                       same_pe(edges[i].to, edges[k].to)) {
                return false;
            }
        }
    }
    return true;
}

static int random_edges(kb_rng *rng, ipcq_edge *edges)
{
    static const char *const names[] = {"E", "W", "N", "S", "x", "y", "z", "parent"};
    uint32_t pes = between(rng, 2, 9), most = between(rng, 1, MAX_EDGES);
    int count = 0;
    for (uint32_t i = 0; i < most; i++) {
        ipcq_edge fresh = {{0, between(rng, 0, 1), between(rng, 0, pes / 2)},
                           names[between(rng, 0, COUNT(names) - 1)],
                           {0, between(rng, 0, 1), between(rng, 0, pes / 2)}};
        bool usable = !same_pe(fresh.from, fresh.to);
        for (int k = 0; k < count && usable; k++)
            usable = !same_pe(edges[k].from, fresh.from) || edges[k].direction != fresh.direction;
        if (usable)
            edges[count++] = fresh;
    }
    return count;
}

/* The end of the plan that an edge begins at, or that was made for it. */
static size_t end_of_edge(const ipcq_plan *plan, kb_pe at, const char *direction)
{
    for (size_t i = 0; i < plan->ends.count; i++)
        if (same_pe(plan->ends.items[i].pe, at) &&
            strcmp(plan->ends.items[i].direction, direction) == 0)
            return i;
    return IPCQ_NONE;
}

static void check_plan(const ipcq_plan *plan, const ipcq_edge *edges, int count, const int *to)
{
    size_t made = 0;
    for (int i = 0; i < count; i++) {
        const ipcq_edge *there = to[i] < MADE ? &edges[to[i]] : NULL;
        made += !there;
        size_t sender = end_of_edge(plan, edges[i].from, edges[i].direction);
        size_t receiver = there ? end_of_edge(plan, there->from, there->direction)
                                : end_of_edge(plan, edges[i].to, edges[i].direction);
        assert_int_equal(plan->ends.items[sender].to, receiver);
        assert_int_equal(plan->ends.items[receiver].from, sender);
    }
    assert_int_equal(plan->ends.count, (size_t)count + made);
}

static void random_graphs_pair_as_a_slow_pairing_does(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    int refused = 0, accepted = 0;
    for (int round = 0; round < 1500; round++) {
        ipcq_edge edges[MAX_EDGES];
        int to[MAX_EDGES], count = random_edges(&rng, edges);
        ipcq_plan plan;
        kb_error *err = ipcq_plan_init(&plan, edges, (size_t)count, &mostly);
        if (!pair_slowly(edges, count, to)) {
            assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
            kb_error_free(err);
            refused++;
            continue;
        }
        expect_ok(err);
        check_plan(&plan, edges, count, to);
        ipcq_plan_fini(&plan);
        accepted++;
    }
    assert_true(refused > 100 && accepted > 100);
}

/* 512 PEs that all have a direction to each of 64 others: something quadratic would take minutes.
 */
static void large_plans_are_made(void **state)
{
    (void)state;
    enum { PES = 512, EACH = 64 };
    const size_t count = (size_t)PES * EACH;
    ipcq_edge *edges = calloc(count, sizeof *edges);
    char names[EACH][8];
    assert_non_null(edges);
    for (uint32_t k = 0; k < EACH; k++)
        snprintf(names[k], sizeof names[k], "to%u", k);
    for (uint32_t n = 0; n < PES; n++)
        for (uint32_t k = 0; k < EACH; k++) {
            uint32_t half = k % (EACH / 2) + 1, far = k < EACH / 2 ? half : PES - half;
            edges[n * EACH + k] = edge(n, names[k], (n + far) % PES);
        }
    ipcq_plan plan = plan_of(edges, count);
    assert_int_equal(plan.ends.count, count);
    for (size_t i = 0; i < plan.ends.count; i++) {
        assert_int_equal(plan.ends.items[plan.ends.items[i].to].from, i);
        assert_int_equal(plan.ends.items[i].to, plan.ends.items[i].from);
    }
    expect_both_ways(&plan, 7, "to2", 10, "to34"); /* 3 on, and 3 back */
    ipcq_plan_fini(&plan);
    free(edges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_pairs_opposites),
        cmocka_unit_test(in_a_ring_of_two_both_directions_lead_to_one_peer),
        cmocka_unit_test(all_opposites_are_known),
        cmocka_unit_test(trees_pair_what_points_back),
        cmocka_unit_test(several_directions_to_one_peer_pair_in_order),
        cmocka_unit_test(an_opposite_that_leads_elsewhere_is_none),
        cmocka_unit_test(a_one_way_ring_receives_by_the_name_that_was_sent_by),
        cmocka_unit_test(what_cannot_be_answered_gets_an_end_that_only_receives),
        cmocka_unit_test(what_is_left_over_goes_one_way),
        cmocka_unit_test(an_empty_plan_is_one),
        cmocka_unit_test(what_is_ambiguous_is_refused),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(random_graphs_pair_as_a_slow_pairing_does),
        cmocka_unit_test(large_plans_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
