/*
 * test_placement.c: placements worked out by hand, shapes, and what is refused.
 * For placements at random see test_placement_laws.c.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "mem/placement.h"

typedef struct shard {
    uint32_t cube, pe;
    uint64_t offset_bytes, nbytes, pe_offset;
    uint64_t row, rows, column, columns;
} shard;

static void expect_shards(kb_shape shape, kb_dtype dtype, const kb_policy *policy, uint32_t cubes,
                          uint32_t pes, uint64_t copies, const shard *shards, size_t count)
{
    mem_placement p;
    expect_ok(mem_placement_init(&p, &shape, dtype, policy, cubes, pes));
    assert_int_equal(p.copies, copies);
    assert_int_equal(p.shards.count, count);
    for (size_t i = 0; i < count; i++) {
        const mem_shard *s = &p.shards.items[i];
        uint32_t last = s->box.rank - 1;
        assert_int_equal(s->cube, shards[i].cube);
        assert_int_equal(s->pe, shards[i].pe);
        assert_int_equal(s->offset_bytes, shards[i].offset_bytes);
        assert_int_equal(s->nbytes, shards[i].nbytes);
        assert_int_equal(s->pe_offset, shards[i].pe_offset);
        assert_int_equal(s->box.start[0], shards[i].row);
        assert_int_equal(s->box.size[0], shards[i].rows);
        assert_int_equal(s->box.start[last], shards[i].column);
        assert_int_equal(s->box.size[last], shards[i].columns);
    }
    mem_placement_fini(&p);
}

#define EXPECT_SHARDS(shape, dtype, policy, cubes, pes, copies, ...)                               \
    expect_shards(shape, dtype, policy, cubes, pes, copies, (shard[]){__VA_ARGS__},                \
                  sizeof((shard[]){__VA_ARGS__}) / sizeof(shard))

/* ---- Splits ------------------------------------------------------------------------------ */

static void without_a_policy_all_of_it_is_at_the_first_pe(void **state)
{
    (void)state;
    EXPECT_SHARDS(KB_SHAPE(3, 5), KB_F16, NULL, 16, 8, 1, {0, 0, 0, 30, 0, 0, 3, 0, 5});
}

/* 10 columns of 2 f16 over 4 PEs: 3, 3, 2, 2. Each part is stored without gaps. */
static void columns_are_shared_out_with_the_larger_parts_first(void **state)
{
    (void)state;
    kb_policy policy = {.pe = KB_COLUMN_WISE, .num_cubes = 1};
    EXPECT_SHARDS(KB_SHAPE(2, 10), KB_F16, &policy, 3, 4, 1, {0, 0, 0, 12, 0, 0, 2, 0, 3},
                  {0, 1, 12, 12, 0, 0, 2, 3, 3}, {0, 2, 24, 8, 0, 0, 2, 6, 2},
                  {0, 3, 32, 8, 0, 0, 2, 8, 2});
}

static void rows_are_shared_out_with_the_larger_parts_first(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_ROW_WISE, .num_pes = 1};
    EXPECT_SHARDS(KB_SHAPE(5, 3), KB_F32, &policy, 3, 4, 1, {0, 0, 0, 24, 0, 0, 2, 0, 3},
                  {1, 0, 24, 24, 0, 2, 2, 0, 3}, {2, 0, 48, 12, 0, 4, 1, 0, 3});
}

/* 5 rows over 2 cubes are 3 and 2, 3 columns over the 2 PEs of each are 2 and 1. */
static void cubes_come_first_and_then_the_pes_of_each(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    EXPECT_SHARDS(KB_SHAPE(5, 3), KB_I8, &policy, 2, 2, 1, {0, 0, 0, 6, 0, 0, 3, 0, 2},
                  {0, 1, 6, 3, 0, 0, 3, 2, 1}, {1, 0, 9, 4, 0, 3, 2, 0, 2},
                  {1, 1, 13, 2, 0, 3, 2, 2, 1});
}

/* 7 columns: 4 and 3 for the cubes, and of these 2, 1, 1 and 1, 1, 1 for the PEs. */
static void both_levels_may_split_the_same_axis(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    EXPECT_SHARDS(KB_SHAPE(1, 7), KB_I8, &policy, 2, 3, 1, {0, 0, 0, 2, 0, 0, 1, 0, 2},
                  {0, 1, 2, 1, 0, 0, 1, 2, 1}, {0, 2, 3, 1, 0, 0, 1, 3, 1},
                  {1, 0, 4, 1, 0, 0, 1, 4, 1}, {1, 1, 5, 1, 0, 0, 1, 5, 1},
                  {1, 2, 6, 1, 0, 0, 1, 6, 1});
}

static void replicated_cubes_have_the_same_parts_at_the_same_offsets(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE};
    EXPECT_SHARDS(KB_SHAPE(2, 3), KB_F16, &policy, 3, 2, 3, {0, 0, 0, 8, 0, 0, 2, 0, 2},
                  {0, 1, 8, 4, 0, 0, 2, 2, 1}, {1, 0, 0, 8, 0, 0, 2, 0, 2},
                  {1, 1, 8, 4, 0, 0, 2, 2, 1}, {2, 0, 0, 8, 0, 0, 2, 0, 2},
                  {2, 1, 8, 4, 0, 0, 2, 2, 1});
}

static void replicated_pes_have_all_of_what_the_cube_has(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_REPLICATE};
    EXPECT_SHARDS(KB_SHAPE(3, 2), KB_F16, &policy, 2, 2, 2, {0, 0, 0, 8, 0, 0, 2, 0, 2},
                  {0, 1, 0, 8, 0, 0, 2, 0, 2}, {1, 0, 8, 4, 0, 2, 1, 0, 2},
                  {1, 1, 8, 4, 0, 2, 1, 0, 2});
}

static void replicated_on_both_levels_everybody_has_everything(void **state)
{
    (void)state;
    kb_policy policy = {.num_pes = 2};
    EXPECT_SHARDS(KB_SHAPE(3, 2), KB_F32, &policy, 2, 9, 4, {0, 0, 0, 24, 0, 0, 3, 0, 2},
                  {0, 1, 0, 24, 0, 0, 3, 0, 2}, {1, 0, 0, 24, 0, 0, 3, 0, 2},
                  {1, 1, 0, 24, 0, 0, 3, 0, 2});
}

/* 2 rows for 4 PEs: the last two are where they would begin. */
static void who_gets_nothing_has_an_empty_shard(void **state)
{
    (void)state;
    kb_policy policy = {.pe = KB_ROW_WISE, .num_cubes = 1};
    EXPECT_SHARDS(KB_SHAPE(2, 3), KB_F16, &policy, 1, 4, 1, {0, 0, 0, 6, 0, 0, 1, 0, 3},
                  {0, 1, 6, 6, 0, 1, 1, 0, 3}, {0, 2, 12, 0, 0, 2, 0, 0, 3},
                  {0, 3, 12, 0, 0, 2, 0, 0, 3});
}

/* One row over 2 cubes: the second has none for its PEs to share. */
static void the_pes_of_an_empty_cube_have_empty_shards(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    EXPECT_SHARDS(KB_SHAPE(1, 3), KB_F16, &policy, 2, 2, 1, {0, 0, 0, 4, 0, 0, 1, 0, 2},
                  {0, 1, 4, 2, 0, 0, 1, 2, 1}, {1, 0, 6, 0, 0, 1, 0, 0, 2},
                  {1, 1, 6, 0, 0, 1, 0, 2, 1});
}

static void an_empty_tensor_is_split_into_empty_shards(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    EXPECT_SHARDS(KB_SHAPE(3, 0), KB_F16, &policy, 2, 1, 1, {0, 0, 0, 0, 0, 0, 2, 0, 0},
                  {1, 0, 0, 0, 0, 2, 1, 0, 0});
}

static void what_is_between_the_first_and_the_last_axis_stays_together(void **state)
{
    (void)state;
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE, .num_pes = 2, .num_cubes = 1};
    mem_placement p;
    expect_ok(mem_placement_init(&p, &KB_SHAPE(2, 5, 7, 4), KB_F16, &policy, 9, 9));
    assert_int_equal(p.bytes, 560);
    assert_int_equal(p.shards.count, 2);
    for (uint32_t pe = 0; pe < 2; pe++) {
        const mem_shard *s = &p.shards.items[pe];
        assert_int_equal(s->offset_bytes, pe * 280);
        assert_int_equal(s->nbytes, 280);
        assert_int_equal(s->box.rank, 4);
        assert_int_equal(s->box.start[1], 0);
        assert_int_equal(s->box.size[1], 5);
        assert_int_equal(s->box.start[2], 0);
        assert_int_equal(s->box.size[2], 7);
        assert_int_equal(s->box.start[3], pe * 2);
        assert_int_equal(s->box.size[3], 2);
    }
    mem_placement_fini(&p);
}

/* ---- Tiles ------------------------------------------------------------------------------- */

/*
 * 3 x 5 in tiles of 2 x 2: the tiles are 2 x 2, 2 x 2, 2 x 1 and below them 1 x 2, 1 x 2, 1 x 1.
 * Along the columns first, over 2 cubes of 2 PEs:
 *
 *     tile          0   1   2   3   4   5
 *     elements      4   4   2   2   2   1
 *     offset        0   4   8  10  12  14
 *     cube.pe      0.0 0.1 1.0 1.1 0.0 0.1
 */
static void column_major_tiles_go_along_the_last_axis_first(void **state)
{
    (void)state;
    kb_policy policy = {.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 2, .tile_columns = 2};
    EXPECT_SHARDS(KB_SHAPE(3, 5), KB_I8, &policy, 2, 2, 1, {0, 0, 0, 4, 0, 0, 2, 0, 2},
                  {0, 0, 12, 2, 4, 2, 1, 2, 2}, {0, 1, 4, 4, 0, 0, 2, 2, 2},
                  {0, 1, 14, 1, 4, 2, 1, 4, 1}, {1, 0, 8, 2, 0, 0, 2, 4, 1},
                  {1, 1, 10, 2, 0, 2, 1, 0, 2});
}

/*
 * The same along the rows first:
 *
 *     tile          0   1   2   3   4   5
 *     elements      4   2   4   2   2   1
 *     offset        0   4   6  10  12  14
 */
static void row_major_tiles_go_along_the_first_axis_first(void **state)
{
    (void)state;
    kb_policy policy = {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 2};
    EXPECT_SHARDS(KB_SHAPE(3, 5), KB_I8, &policy, 2, 2, 1, {0, 0, 0, 4, 0, 0, 2, 0, 2},
                  {0, 0, 12, 2, 4, 0, 2, 4, 1}, {0, 1, 4, 2, 0, 2, 1, 0, 2},
                  {0, 1, 14, 1, 2, 2, 1, 4, 1}, {1, 0, 6, 4, 0, 0, 2, 2, 2},
                  {1, 1, 10, 2, 0, 2, 1, 2, 2});
}

static void pes_without_a_tile_have_no_shard(void **state)
{
    (void)state;
    kb_policy policy = {.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 9, .tile_columns = 1};
    EXPECT_SHARDS(KB_SHAPE(2, 2), KB_F16, &policy, 16, 8, 1, {0, 0, 0, 4, 0, 0, 2, 0, 1},
                  {0, 1, 4, 4, 0, 0, 2, 1, 1});
    policy.num_pes = 1;
    EXPECT_SHARDS(KB_SHAPE(2, 2), KB_F16, &policy, 16, 8, 1, {0, 0, 0, 4, 0, 0, 2, 0, 1},
                  {1, 0, 4, 4, 0, 0, 2, 1, 1});
    policy.num_cubes = 1;
    EXPECT_SHARDS(KB_SHAPE(2, 2), KB_F16, &policy, 16, 8, 1, {0, 0, 0, 4, 0, 0, 2, 0, 1},
                  {0, 0, 4, 4, 4, 0, 2, 1, 1});
}

static void an_empty_tensor_has_no_tiles(void **state)
{
    (void)state;
    kb_policy policy = {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 2};
    expect_shards(KB_SHAPE(0, 5), KB_F16, &policy, 2, 2, 1, NULL, 0);
    expect_shards(KB_SHAPE(5, 0), KB_F16, &policy, 2, 2, 1, NULL, 0);
    expect_shards(KB_SHAPE(5, 0, 5), KB_F16, &policy, 2, 2, 1, NULL, 0);
}

static void a_tile_may_be_larger_than_any_tensor(void **state)
{
    (void)state;
    for (kb_tiling tiling = KB_TILED_COLUMN_MAJOR; tiling <= KB_TILED_ROW_MAJOR; tiling++) {
        kb_policy policy = {.tiling = tiling, .tile_rows = UINT64_MAX, .tile_columns = UINT64_MAX};
        EXPECT_SHARDS(KB_SHAPE(3, 4), KB_F16, &policy, UINT32_MAX, UINT32_MAX, 1,
                      {0, 0, 0, 24, 0, 0, 3, 0, 4});
    }
}

/* ---- Shapes ------------------------------------------------------------------------------ */

static void expect_shape(kb_shape shape, const char *text)
{
    kb_text out = KB_TEXT_INIT;
    kb_text_puts(&out, "x");
    mem_shape_print(&shape, &out);
    assert_string_equal(kb_text_peek(&out) + 1, text);
    kb_text_fini(&out);
}

static void shapes_print_as_tuples(void **state)
{
    (void)state;
    expect_shape((kb_shape){0}, "()");
    expect_shape(KB_SHAPE(4), "(4,)");
    expect_shape(KB_SHAPE(4, 8), "(4, 8)");
    expect_shape(KB_SHAPE(0, UINT64_MAX, 1), "(0, 18446744073709551615, 1)");
    expect_shape(KB_SHAPE(1, 2, 3, 4, 5, 6, 7, 8), "(1, 2, 3, 4, 5, 6, 7, 8)");
    expect_shape((kb_shape){9, {1, 2, 3, 4, 5, 6, 7, 8}}, "(1, 2, 3, 4, 5, 6, 7, 8, ...)");
}

static void shapes_are_equal_if_all_dimensions_are(void **state)
{
    (void)state;
    kb_shape a = KB_SHAPE(4, 8);
    a.dims[2] = 77; /* not a dimension */
    assert_true(mem_shape_equal(&a, &KB_SHAPE(4, 8)));
    assert_false(mem_shape_equal(&a, &KB_SHAPE(4, 9)));
    assert_false(mem_shape_equal(&a, &KB_SHAPE(5, 8)));
    assert_false(mem_shape_equal(&a, &KB_SHAPE(4)));
    assert_false(mem_shape_equal(&a, &KB_SHAPE(4, 8, 77)));
    assert_false(mem_shape_equal(&KB_SHAPE(8), &KB_SHAPE(1, 8)));
    assert_true(mem_shape_equal(&(kb_shape){0}, &(kb_shape){0}));
}

static void a_normal_shape_has_two_dimensions_at_least(void **state)
{
    (void)state;
    kb_shape n = mem_shape_normal(&(kb_shape){0});
    assert_true(mem_shape_equal(&n, &KB_SHAPE(1, 1)));
    n = mem_shape_normal(&KB_SHAPE(7));
    assert_true(mem_shape_equal(&n, &KB_SHAPE(1, 7)));
    n = mem_shape_normal(&KB_SHAPE(7, 1));
    assert_true(mem_shape_equal(&n, &KB_SHAPE(7, 1)));
    n = mem_shape_normal(&KB_SHAPE(2, 3, 4));
    assert_true(mem_shape_equal(&n, &KB_SHAPE(2, 3, 4)));
}

static void expect_elements(kb_shape shape, kb_dtype dtype, uint64_t elements)
{
    uint64_t found = 77;
    expect_ok(mem_shape_elements(&shape, dtype, &found));
    assert_int_equal(found, elements);
}

static void refuse_elements(kb_shape shape, kb_dtype dtype, const char *message)
{
    uint64_t found = 77;
    expect_error(mem_shape_elements(&shape, dtype, &found), KB_ERR_INPUT, message);
}

/* 2^48 bytes are too many, whatever the dimensions; nothing is nothing, whatever they are. */
static void elements_are_counted_as_far_as_48_bits_of_bytes(void **state)
{
    (void)state;
    expect_elements((kb_shape){0}, KB_F32, 1);
    expect_elements(KB_SHAPE(7), KB_F32, 7);
    expect_elements(KB_SHAPE(2, 3, 4), KB_F32, 24);
    expect_elements(KB_SHAPE(UINT64_MAX, UINT64_MAX, 0), KB_F32, 0);
    expect_elements(KB_SHAPE(0, UINT64_MAX), KB_F32, 0);
    expect_elements(KB_SHAPE((1ull << 48) - 1), KB_I8, (1ull << 48) - 1);
    expect_elements(KB_SHAPE((1ull << 46) - 1), KB_F32, (1ull << 46) - 1);
    refuse_elements(KB_SHAPE(1ull << 48), KB_I8,
                    "tensor too large: shape (281474976710656,) and dtype i8 take 2^48 bytes "
                    "or more");
    refuse_elements(KB_SHAPE(1ull << 23, 1ull << 23), KB_F32,
                    "tensor too large: shape (8388608, 8388608) and dtype f32 take 2^48 bytes "
                    "or more");
    refuse_elements(KB_SHAPE(1ull << 32, 1ull << 32), KB_F16,
                    "tensor too large: shape (4294967296, 4294967296) and dtype f16 take 2^48 "
                    "bytes or more");
    refuse_elements(KB_SHAPE(UINT64_MAX), KB_I8,
                    "tensor too large: shape (18446744073709551615,) and dtype i8 take 2^48 "
                    "bytes or more");
    refuse_elements((kb_shape){.rank = 9}, KB_I8, "too many dimensions: 9, the maximum is 8");
    refuse_elements((kb_shape){.rank = UINT32_MAX}, KB_I8,
                    "too many dimensions: 4294967295, the maximum is 8");
    refuse_elements(KB_SHAPE(1), KB_DTYPES, "invalid dtype 7: the maximum is 6 (i32)");
}

/* ---- What is refused --------------------------------------------------------------------- */

static void refuse(kb_shape shape, kb_dtype dtype, kb_policy policy, const char *message)
{
    mem_placement p = {.bytes = 77};
    expect_error(mem_placement_init(&p, &shape, dtype, &policy, 16, 8), KB_ERR_INPUT, message);
    assert_int_equal(p.shards.count, 0);
    mem_placement_fini(&p);
}

static void a_bad_shape_is_refused(void **state)
{
    (void)state;
    refuse(KB_SHAPE(1ull << 48), KB_I8, (kb_policy){0},
           "tensor too large: shape (281474976710656,) and dtype i8 take 2^48 bytes or more");
    refuse((kb_shape){.rank = 9}, KB_I8, (kb_policy){0},
           "too many dimensions: 9, the maximum is 8");
    refuse(KB_SHAPE(1), (kb_dtype)77, (kb_policy){0}, "invalid dtype 77: the maximum is 6 (i32)");
}

static void more_cubes_or_pes_than_there_are_are_refused(void **state)
{
    (void)state;
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.num_cubes = 17},
           "the policy requests 17 cubes, but a SIP of this machine has 16: request fewer, or "
           "0 for all");
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.num_pes = 9},
           "the policy requests 9 PEs, but a cube of this machine has 8: request fewer, or 0 "
           "for all");
    refuse(
        KB_SHAPE(4), KB_F16,
        (kb_policy){.num_pes = 9, .tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1, .tile_columns = 1},
        "the policy requests 9 PEs, but a cube of this machine has 8: request fewer, or 0 for "
        "all");
}

static void unknown_ways_are_refused(void **state)
{
    (void)state;
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.cube = (kb_split)3},
           "the policy splits over the cubes by an invalid mode (3): use KB_REPLICATE, "
           "KB_COLUMN_WISE or KB_ROW_WISE");
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.pe = (kb_split)-1},
           "the policy splits over the PEs by an invalid mode (4294967295): use KB_REPLICATE, "
           "KB_COLUMN_WISE or KB_ROW_WISE");
    refuse(KB_SHAPE(4), KB_F16,
           (kb_policy){.tiling = (kb_tiling)3, .tile_rows = 1, .tile_columns = 1},
           "the policy has an invalid tiling (3): use KB_NOT_TILED, KB_TILED_COLUMN_MAJOR or "
           "KB_TILED_ROW_MAJOR");
}

static void tiles_and_splits_exclude_each_other(void **state)
{
    (void)state;
    static const char both[] = "the policy is both tiled and split: set both splits to "
                               "KB_REPLICATE";
    kb_policy tiled = {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1, .tile_columns = 1};
    kb_policy policy = tiled;
    policy.cube = KB_ROW_WISE;
    refuse(KB_SHAPE(4), KB_F16, policy, both);
    policy = tiled;
    policy.pe = KB_COLUMN_WISE;
    refuse(KB_SHAPE(4), KB_F16, policy, both);
}

static void tiles_have_a_size_and_others_have_none(void **state)
{
    (void)state;
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 3},
           "the policy has tiles of 3 x 0: both sizes must be at least 1");
    refuse(KB_SHAPE(0), KB_F16, (kb_policy){.tiling = KB_TILED_COLUMN_MAJOR, .tile_columns = 3},
           "the policy has tiles of 0 x 3: both sizes must be at least 1");
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.tile_rows = 3},
           "the policy has tiles of 3 x 0 but no tiling: choose one, or leave both sizes 0");
    refuse(KB_SHAPE(4), KB_F16, (kb_policy){.tile_columns = 3},
           "the policy has tiles of 0 x 3 but no tiling: choose one, or leave both sizes 0");
}

static void too_many_shards_are_refused(void **state)
{
    (void)state;
    refuse(KB_SHAPE((1 << 22) + 1), KB_F16,
           (kb_policy){.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1, .tile_columns = 1},
           "the policy cuts the tensor into 4194305 shards, the maximum is 4194304: use larger "
           "tiles, or fewer PEs");
    refuse(KB_SHAPE(1 << 20, 1 << 20), KB_F16,
           (kb_policy){.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = 1},
           "the policy cuts the tensor into 1099511627776 shards, the maximum is 4194304: use "
           "larger tiles, or fewer PEs");
    mem_placement p;
    expect_error(
        mem_placement_init(&p, &KB_SHAPE(4), KB_F16, &(kb_policy){0}, UINT32_MAX, UINT32_MAX),
        KB_ERR_INPUT,
        "the policy cuts the tensor into 18446744065119617025 shards, the maximum is 4194304: "
        "use larger tiles, or fewer PEs");
    mem_placement_fini(&p);
}

static void ask_a_machine_without_cubes(void)
{
    mem_placement p;
    kb_error_free(mem_placement_init(&p, &KB_SHAPE(1), KB_F16, NULL, 0, 1));
}

static void ask_a_machine_without_pes(void)
{
    mem_placement p;
    kb_error_free(mem_placement_init(&p, &KB_SHAPE(1), KB_F16, NULL, 1, 0));
}

static void a_machine_without_pes_is_a_bug(void **state)
{
    (void)state;
    expect_abort(ask_a_machine_without_cubes, "cubes > 0");
    expect_abort(ask_a_machine_without_pes, "pes > 0");
}

static void place_and_refuse(void)
{
    static const kb_policy policies[] = {
        {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE},
        {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 1, .tile_columns = 1},
        {.num_pes = 9},
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        mem_placement p;
        kb_error *err = mem_placement_init(&p, &KB_SHAPE(5, 6), KB_F16, &policies[i], 16, 8);
        if (err)
            assert_true(kb_error_code(err) == KB_ERR_HOST || policies[i].num_pes == 9);
        kb_error_free(err);
        mem_placement_fini(&p);
    }
    uint64_t elements;
    kb_error *err = mem_shape_elements(&KB_SHAPE(UINT64_MAX, 2), KB_F16, &elements);
    if (kb_error_code(err) == KB_ERR_HOST)
        kb_error_free(err);
    else
        expect_error(err, KB_ERR_INPUT,
                     "tensor too large: shape (18446744073709551615, 2) and dtype f16 take "
                     "2^48 bytes or more");
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    failing_alloc_try_all(place_and_refuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_policy_all_of_it_is_at_the_first_pe),
        cmocka_unit_test(columns_are_shared_out_with_the_larger_parts_first),
        cmocka_unit_test(rows_are_shared_out_with_the_larger_parts_first),
        cmocka_unit_test(cubes_come_first_and_then_the_pes_of_each),
        cmocka_unit_test(both_levels_may_split_the_same_axis),
        cmocka_unit_test(replicated_cubes_have_the_same_parts_at_the_same_offsets),
        cmocka_unit_test(replicated_pes_have_all_of_what_the_cube_has),
        cmocka_unit_test(replicated_on_both_levels_everybody_has_everything),
        cmocka_unit_test(who_gets_nothing_has_an_empty_shard),
        cmocka_unit_test(the_pes_of_an_empty_cube_have_empty_shards),
        cmocka_unit_test(an_empty_tensor_is_split_into_empty_shards),
        cmocka_unit_test(what_is_between_the_first_and_the_last_axis_stays_together),
        cmocka_unit_test(column_major_tiles_go_along_the_last_axis_first),
        cmocka_unit_test(row_major_tiles_go_along_the_first_axis_first),
        cmocka_unit_test(pes_without_a_tile_have_no_shard),
        cmocka_unit_test(an_empty_tensor_has_no_tiles),
        cmocka_unit_test(a_tile_may_be_larger_than_any_tensor),
        cmocka_unit_test(shapes_print_as_tuples),
        cmocka_unit_test(shapes_are_equal_if_all_dimensions_are),
        cmocka_unit_test(a_normal_shape_has_two_dimensions_at_least),
        cmocka_unit_test(elements_are_counted_as_far_as_48_bits_of_bytes),
        cmocka_unit_test(a_bad_shape_is_refused),
        cmocka_unit_test(more_cubes_or_pes_than_there_are_are_refused),
        cmocka_unit_test(unknown_ways_are_refused),
        cmocka_unit_test(tiles_and_splits_exclude_each_other),
        cmocka_unit_test(tiles_have_a_size_and_others_have_none),
        cmocka_unit_test(too_many_shards_are_refused),
        cmocka_unit_test(a_machine_without_pes_is_a_bug),
        cmocka_unit_test(without_memory_it_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
