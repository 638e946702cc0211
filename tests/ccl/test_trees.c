/* test_trees.c: trees over SIPs span them along their links, and use all links evenly. */
#include "sip_grid.h"

#include <math.h>

#include "ccl/graph/trees.h"

/* Whether the machine has a link between two SIPs; a row of two has one, which does not wrap. */
static bool are_joined(const kb_ccl_scope *scope, uint32_t a, uint32_t b)
{
    uint32_t w = scope->sip_w, h = scope->sip_h;
    uint32_t ax = a % w, ay = a / w, bx = b % w, by = b / w;
    bool wraps = scope->sips != KB_SIPS_MESH;
    uint32_t dx = ax > bx ? ax - bx : bx - ax, dy = ay > by ? ay - by : by - ay;
    bool beside = dx == 1 || (wraps && w > 2 && dx == w - 1);
    bool above = dy == 1 || (wraps && h > 2 && dy == h - 1);
    return (dy == 0 && beside) || (dx == 0 && above);
}

/* Every rank reaches the root, in steps along links; returns how far the farthest is. */
static uint32_t check_tree(const kb_ccl_scope *scope, const ccl_tree *tree)
{
    uint32_t deepest = 0;
    assert_true(tree->root < scope->world);
    assert_int_equal(tree->parent[tree->root], tree->root);
    for (uint32_t rank = 0; rank < scope->world; rank++) {
        uint32_t steps = 0;
        for (uint32_t at = rank; at != tree->root; at = tree->parent[at]) {
            assert_true(tree->parent[at] < scope->world);
            if (scope->sip_links)
                assert_true(
                    are_joined(scope, scope->ranks[at].sip, scope->ranks[tree->parent[at]].sip));
            assert_true(++steps < scope->world);
        }
        deepest = steps > deepest ? steps : deepest;
    }
    return deepest;
}

/* How many trees the most used link is in. */
static uint32_t largest_load(const kb_ccl_scope *scope, const ccl_trees *trees, uint32_t *links)
{
    static uint32_t load[MAX_SIPS][MAX_SIPS];
    memset(load, 0, sizeof load);
    uint32_t largest = 0;
    for (size_t t = 0; t < trees->items.count; t++)
        for (uint32_t rank = 0; rank < scope->world; rank++) {
            uint32_t parent = trees->items.items[t].parent[rank];
            uint32_t *l = rank < parent ? &load[rank][parent] : &load[parent][rank];
            if (rank != parent && ++*l > largest)
                largest = *l;
        }
    *links = 0;
    for (uint32_t a = 0; a < scope->world; a++)
        for (uint32_t b = a + 1; b < scope->world; b++)
            *links += are_joined(scope, a, b);
    return largest;
}

/* With as many trees, each of n-1 of the links, the best would be (n-1) / links of them on each.
 * They are within 4 % of that, or the next whole number. */
static void check_packing(kb_sip_pattern pattern, uint32_t w, uint32_t h, uint32_t count)
{
    grid g;
    ccl_trees trees;
    uint32_t links;
    grid_init(&g, pattern, w, h);
    expect_ok(ccl_trees_init(&trees, &g.scope, count));
    assert_int_equal(trees.items.count, count);
    for (uint32_t i = 0; i < count; i++)
        check_tree(&g.scope, &trees.items.items[i]);
    uint32_t load = largest_load(&g.scope, &trees, &links);
    double best = (double)count * (w * h - 1) / links;
    if (w * h > 1 && load > ceil(1.04 * best))
        fail_msg("%u x %u of pattern %d, %u trees: %u on a link, at best %.1f", w, h, (int)pattern,
                 count, load, best);
    ccl_trees_fini(&trees);
}

static void test_rings(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 32; n++)
        for (uint32_t count = 64; count <= 256; count *= 2)
            check_packing(KB_SIPS_RING, n, 1, count);
}

static void test_grids(void **state)
{
    (void)state;
    static const kb_sip_pattern patterns[] = {KB_SIPS_TORUS, KB_SIPS_MESH};
    for (int i = 0; i < 2; i++)
        for (uint32_t w = 1; w <= 6; w++)
            for (uint32_t h = 1; h <= 6; h++)
                check_packing(patterns[i], w, h, 64);
    for (int i = 0; i < 2; i++) {
        check_packing(patterns[i], 2, 16, 128);
        check_packing(patterns[i], 16, 2, 100);
        check_packing(patterns[i], 8, 8, 64);
        check_packing(patterns[i], 12, 12, 77);
    }
}

/* The root of a path is in its middle. */
static void test_roots_are_in_the_middle(void **state)
{
    (void)state;
    grid g;
    ccl_trees trees;
    grid_init(&g, KB_SIPS_MESH, 9, 1);
    expect_ok(ccl_trees_init(&trees, &g.scope, 1));
    assert_int_equal(trees.items.items[0].root, 4);
    assert_int_equal(check_tree(&g.scope, &trees.items.items[0]), 4);
    ccl_trees_fini(&trees);
}

/* Through a switch: along the ring of the ranks, whatever SIPs these are. */
static void test_switch(void **state)
{
    (void)state;
    grid g;
    ccl_trees trees;
    grid_init(&g, KB_SIPS_TORUS, 4, 4);
    g.scope.sip_links = false;
    g.scope.world = 5;
    expect_ok(ccl_trees_init(&trees, &g.scope, 10));
    uint32_t used[5] = {0};
    for (uint32_t t = 0; t < 10; t++) {
        check_tree(&g.scope, &trees.items.items[t]);
        for (uint32_t rank = 0; rank < 5; rank++) {
            uint32_t parent = trees.items.items[t].parent[rank];
            if (parent == rank)
                continue;
            assert_true((rank + 1) % 5 == parent || (parent + 1) % 5 == rank);
            used[(rank + 1) % 5 == parent ? rank : parent]++;
        }
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(used[i], 8); /* 10 trees of 4 links on 5 */
    ccl_trees_fini(&trees);
}

/* Some of the SIPs: only links among these. */
static void test_groups(void **state)
{
    (void)state;
    grid g;
    ccl_trees trees;
    grid_init(&g, KB_SIPS_MESH, 3, 3);
    g.scope.world = 4;
    static const uint32_t square[] = {8, 7, 5, 4};
    for (int i = 0; i < 4; i++)
        g.ranks[i].sip = square[i];
    expect_ok(ccl_trees_init(&trees, &g.scope, 4));
    for (int i = 0; i < 4; i++)
        check_tree(&g.scope, &trees.items.items[i]);
    ccl_trees_fini(&trees);
    g.ranks[3].sip = 0;
    expect_error(ccl_trees_init(&trees, &g.scope, 4), KB_ERR_INPUT,
                 "the direct links do not connect all SIPs of the group");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rings),
    cmocka_unit_test(test_grids),
    cmocka_unit_test(test_roots_are_in_the_middle),
    cmocka_unit_test(test_switch),
    cmocka_unit_test(test_groups),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
