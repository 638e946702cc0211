/* test_validators.c: valid layouts, and the errors for invalid ones. */
#include "plans.h"

/* A machine of 2 SIPs of 2 cubes of 4 PEs. */
#define SMALL                                                                                      \
    {                                                                                              \
        .sips = 2, .cubes = 2, .cube_w = 2, .cube_h = 1, .pes = 4                                  \
    }
static const kb_pe sips[] = {{0, 0, 0}, {1, 0, 0}};
static const kb_ccl_scope by_sip = {.machine = SMALL, .world = 2, .ranks = sips};

typedef struct layout_of {
    kb_shard shards[32];
    kb_ccl_layout is;
} layout_of;

static void add(layout_of *l, uint32_t sip, uint32_t cube, uint32_t pe, uint64_t bytes)
{
    kb_shard shard = {.sip = sip, .cube = cube, .pe = pe, .nbytes = bytes};
    l->shards[l->is.shard_count++] = shard;
    l->is.shards = l->shards;
}

/* A shard on each of the first PEs of the first cubes. */
static layout_of layout(uint32_t rank, uint32_t sip, uint32_t cubes, uint32_t pes)
{
    layout_of l = {.is = {.tensor = "x", .rank = rank}};
    for (uint32_t cube = 0; cube < cubes; cube++)
        for (uint32_t pe = 0; pe < pes; pe++)
            add(&l, sip, cube, pe, 16);
    l.is.shards = l.shards;
    return l;
}

/* NULL: they will do. */
static void expect(const char *validator, const kb_ccl_scope *scope, const layout_of *a,
                   const layout_of *b, const char *message)
{
    ccl_registry registry = shipped();
    kb_ccl_layout layouts[2] = {a->is, b ? b->is : a->is};
    layouts[0].shards = a->shards;
    layouts[1].shards = b ? b->shards : a->shards;
    kb_error *err = ccl_find_validator(&registry, validator)->check(scope, layouts, b ? 2 : 1);
    if (message)
        expect_error(err, KB_ERR_INPUT, message);
    else
        expect_ok(err);
}

static void test_single_shard(void **state)
{
    (void)state;
    layout_of first = layout(0, 0, 1, 1), second = layout(1, 1, 1, 1);
    expect("single_shard_per_rank", &by_sip, &first, &second, NULL);
    add(&second, 1, 1, 3, 0); /* nothing there */
    expect("single_shard_per_rank", &by_sip, &first, &second, NULL);
    layout_of wide = layout(1, 1, 2, 4);
    expect("single_shard_per_rank", &by_sip, &first, &wide,
           "tensor 'x' of rank 1 has 1 shard on sip1.cube0.pe1, but exactly one shard per rank, "
           "on PE 0 of cube 0, is needed; the policy for it: .num_cubes = 1, .num_pes = 1");
    layout_of elsewhere = {.is = {.tensor = "y", .rank = 0}};
    add(&elsewhere, 0, 1, 0, 4);
    expect("single_shard_per_rank", &by_sip, &elsewhere, NULL,
           "tensor 'y' of rank 0 has no shard on sip0.cube0.pe0, but exactly one shard per "
           "rank, on PE 0 of cube 0, is needed; the policy for it: .num_cubes = 1, .num_pes = 1");
    layout_of two = layout(0, 0, 1, 1);
    add(&two, 0, 0, 0, 4);
    expect("single_shard_per_rank", &by_sip, &two, NULL,
           "tensor 'x' of rank 0 has 2 shards on sip0.cube0.pe0, but exactly one shard per "
           "rank, on PE 0 of cube 0, is needed; the policy for it: .num_cubes = 1, .num_pes = 1");
    layout_of on_host = {.is = {.tensor = "h", .rank = 0}};
    expect("single_shard_per_rank", &by_sip, &on_host, NULL,
           "tensor 'h' of rank 0 is on the host, but exactly one shard per rank, on PE 0 of "
           "cube 0, is needed; the policy for it: .num_cubes = 1, .num_pes = 1");
}

/* Ranks that are PEs have a part each of one tensor for a device, or are asked about one by one. */
static void test_single_shard_of_pes(void **state)
{
    (void)state;
    kb_pe ranks[16];
    for (uint32_t i = 0; i < 16; i++)
        ranks[i] = (kb_pe){i / 8, i / 4 % 2, i % 4};
    kb_ccl_scope scope = {.machine = SMALL, .world = 3, .ranks = ranks, .rank_is_pe = true};
    layout_of three = layout(0, 0, 1, 3), one = layout(0, 0, 1, 1), all = layout(0, 0, 2, 4);
    expect("single_shard_per_rank", &scope, &three, NULL, NULL);
    expect("single_shard_per_rank", &scope, &one, NULL, NULL);
    expect("single_shard_per_rank", &scope, &all, NULL,
           "tensor 'x' of rank 0 has 1 shard on sip0.cube0.pe3, but exactly one shard on each PE "
           "that is a rank is needed; the policy for it: .cube = KB_COLUMN_WISE, .pe = "
           "KB_COLUMN_WISE, .num_cubes = 1, .num_pes = 3");
    scope.world = 6;
    expect("single_shard_per_rank", &scope, &all, NULL,
           "tensor 'x' of rank 0 has 1 shard on sip0.cube1.pe2, but exactly one shard on each PE "
           "that is a rank is needed; the policy for it: .cube = KB_COLUMN_WISE, .pe = "
           "KB_COLUMN_WISE, with a world_size that is a multiple of the 4 PEs of a cube");
    scope.world = 16;
    layout_of second = layout(8, 1, 2, 4);
    expect("single_shard_per_rank", &scope, &all, &second, NULL);
    expect("single_shard_per_rank", &scope, &three, NULL,
           "tensor 'x' of rank 0 has no shard on sip0.cube0.pe3, but exactly one shard on each PE "
           "that is a rank is needed; the policy for it: .cube = KB_COLUMN_WISE, .pe = "
           "KB_COLUMN_WISE");
}

static void test_shard_per_cube(void **state)
{
    (void)state;
    layout_of first = layout(0, 0, 2, 1), second = layout(1, 1, 2, 1);
    expect("shard_per_cube", &by_sip, &first, &second, NULL);
    layout_of short_of = layout(1, 1, 1, 1);
    expect("shard_per_cube", &by_sip, &first, &short_of,
           "tensor 'x' of rank 1 has no shard on sip1.cube1.pe0, but one shard on PE 0 of every "
           "cube is needed; the policy for it: .cube = KB_ROW_WISE, .num_pes = 1");
    layout_of wide = layout(0, 0, 2, 2);
    expect("shard_per_cube", &by_sip, &wide, NULL,
           "tensor 'x' of rank 0 has 1 shard on sip0.cube0.pe1, but one shard on PE 0 of every "
           "cube is needed; the policy for it: .cube = KB_ROW_WISE, .num_pes = 1");
}

static void test_multi_pe(void **state)
{
    (void)state;
    layout_of first = layout(0, 0, 2, 4), second = layout(1, 1, 2, 4);
    expect("multi_pe_sip_local", &by_sip, &first, &second, NULL);
    layout_of one = layout(1, 1, 1, 1);
    expect("multi_pe_sip_local", &by_sip, &first, &one,
           "tensor 'x' of rank 1 has no shard on sip1.cube0.pe1, but one shard on every PE of the "
           "SIP is needed; the policy for it: .cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_shard),
        cmocka_unit_test(test_single_shard_of_pes),
        cmocka_unit_test(test_shard_per_cube),
        cmocka_unit_test(test_multi_pe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
