/*
 * test_transfer_times.c: how long it takes to make, move and free tensors: numbers worked out by
 * hand on a machine with one PE, and what bandwidths allow on others. Figures are those of
 * machines/default.yaml; times are in ns.
 *
 * From the host to the PE's HBM and back, the nodes and wires on the way are
 *
 *   host  switch  pcie_ep  io_noc  ucie  ucie  router  xbar  hbm
 *    0      5       50       1      8     8      1      2    76 (at the end of a write, and at the
 *       1       1       .05     .05   .05     0     .02   .02    start of the data of a read)
 *
 * so a write has 151 of overhead and 2.19 of wire; the request of a read 75 and 2.19, and its data
 * 151 and 2.19. All is drained at 64 bytes a ns, from host to switch. To the PE's TCM it is the
 * router and then the PE's DMA, of 5: 78 and 2.15.
 *
 * A command goes the way that tests/io/test_io.c works out: with b bytes 580 + 2.25 + b / 64 +
 * 2 b / 256 until the PE has it, and 580 + 2.25 + .375 back.
 */
#include "tensors.h"

#define PS(ns) ((kb_time)((ns)*1000 + 0.5) * KB_PS)

/* The time that what is under way takes. */
static kb_time settle(kb_context *ctx)
{
    kb_time before = kb_context_now(ctx);
    expect_ok(kb_synchronize(ctx));
    return kb_context_now(ctx) - before;
}

static kb_tensor make(kb_context *ctx, kb_memory memory, uint64_t bytes, const kb_policy *policy)
{
    kb_tensor_spec spec = {.shape = KB_SHAPE(bytes),
                           .dtype = KB_I8,
                           .memory = memory,
                           .policy = policy,
                           .access = KB_UNTIMED};
    kb_tensor made;
    expect_ok(kb_empty(ctx, &spec, &made));
    return made;
}

static kb_tensor make_host(kb_context *ctx, uint64_t bytes)
{
    kb_tensor_spec spec = {.shape = KB_SHAPE(bytes), .dtype = KB_I8};
    unsigned char *data = new_bytes(bytes);
    kb_tensor made;
    expect_ok(kb_from_host(ctx, &spec, data, bytes, &made));
    free(data);
    return made;
}

/* ---- By hand ----------------------------------------------------------------------------- */

/* 6400 bytes: 151 + 2.19 + 100 to the HBM, 78 + 2.15 + 100 to the TCM. */
static void from_the_host_to_a_device(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor h = make_host(ctx, 6400);
    expect_ok(kb_tensor_copy(ctx, make(ctx, KB_HBM, 6400, NULL), h, KB_TIMED));
    assert_int_equal(settle(ctx), PS(253.19));
    expect_ok(kb_tensor_copy(ctx, make(ctx, KB_TCM, 6400, NULL), h, KB_TIMED));
    assert_int_equal(settle(ctx), PS(180.15));
    kb_context_destroy(ctx);
}

/*
 * The request is 16 bytes, .25: 75 + 2.19 + .25 and then 151 + 2.19 + 100. From the TCM twice
 * 78 + 2.15, with .25 and 100.
 */
static void from_a_device_to_the_host(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor h = make_host(ctx, 6400);
    unsigned char data[6400];
    kb_tensor x = make(ctx, KB_HBM, 6400, NULL), y = make(ctx, KB_TCM, 6400, NULL);
    expect_ok(kb_tensor_to_host(ctx, x, KB_TIMED, data, sizeof data));
    assert_int_equal(kb_context_now(ctx), PS(330.63));
    expect_ok(kb_tensor_copy(ctx, h, x, KB_TIMED)); /* does not wait for the target */
    assert_int_equal(kb_context_now(ctx), PS(330.63));
    assert_int_equal(settle(ctx), PS(330.63));
    expect_ok(kb_tensor_copy(ctx, h, y, KB_TIMED));
    assert_int_equal(settle(ctx), PS(260.55));
    kb_context_destroy(ctx);
}

/* One element of 4 bytes, and a column of 3 of them, which is one transfer of 12. */
static void elements_and_slices(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(3, 5), .dtype = KB_I32, .access = KB_UNTIMED};
    const int32_t column[3] = {1, 2, 3};
    kb_tensor x;
    double value;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_set(ctx, x, KB_TIMED, &KB_INDEX(1, 1), 1));
    assert_int_equal(settle(ctx), 153252500); /* 153.19 + .0625 */
    expect_ok(kb_tensor_fill_slice(ctx, x, KB_TIMED, &KB_SLICE({0, 3}, {2, 3}), 1));
    assert_int_equal(settle(ctx), 153377500); /* 153.19 + .1875 */
    expect_ok(
        kb_tensor_set_slice(ctx, x, KB_TIMED, &KB_SLICE({0, 3}, {2, 3}), column, sizeof column));
    assert_int_equal(settle(ctx), 153377500);
    kb_time before = kb_context_now(ctx);
    expect_ok(kb_tensor_get(ctx, x, KB_TIMED, &KB_INDEX(0, 0), &value));
    assert_int_equal(kb_context_now(ctx) - before, 77440000 + 153252500);
    char *text;
    before = kb_context_now(ctx);
    expect_ok(kb_tensor_repr(ctx, x, KB_TIMED, &text)); /* all 60 bytes: .9375 */
    free(text);
    assert_int_equal(kb_context_now(ctx) - before, 77440000 + 154127500);
    kb_context_destroy(ctx);
}

/*
 * The mapping is a command of 16 bytes, 16 for its one range, which the cube keeps, and 16 for the
 * PE: 582.25 + .75 + .1875 + .125 and 582.625 back. Unmapping needs the 16 alone: 582.25 + .25 +
 * .125 and back.
 */
static void mapping_and_unmapping(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(6400), .dtype = KB_I8};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    assert_int_equal(settle(ctx), 1165937500);
    expect_ok(kb_tensor_free(ctx, x));
    assert_int_equal(settle(ctx), 1165250 * KB_PS);
    kb_context_destroy(ctx);
}

/*
 * Only parts that are something are told of: of one byte over eight PEs that is one range, as if
 * it had been put at one PE.
 */
static void empty_shards_are_not_mapped(void **state)
{
    (void)state;
    kb_time took[2];
    for (int spread = 0; spread < 2; spread++) {
        kb_context *ctx = open_machine(THREE_SIPS);
        kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(1), .dtype = KB_I8, .policy = spread ? &policy : NULL};
        kb_tensor x;
        expect_ok(kb_empty(ctx, &spec, &x));
        took[spread] = settle(ctx);
        kb_context_destroy(ctx);
    }
    assert_int_equal(took[0], took[1]);
}

/*
 * Beside the mapping goes a command of 16 + 32 bytes to fill. It starts when the 48 bytes of the
 * mapping have left, at .75, and is at the PE 582.25 + .75 + .375 later, at 584.125. Its DMA writes
 * 2048 bytes through the crossbar: 5 + 2 + 76 of overhead, .04 of wire, and 10 at the 204.8 bytes
 * a ns of the HBM. The way back is 582.625.
 */
static void filling(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(2048), .dtype = KB_I8};
    kb_tensor x;
    expect_ok(kb_zeros(ctx, &spec, &x));
    assert_int_equal(settle(ctx), 1259790 * KB_PS);
    kb_context_destroy(ctx);
}

/*
 * A command of 16 + 32 bytes is at the PE after 583.375. It reads 2048 bytes: 5 + 2, .04 and .0625
 * for the request, 76 + 2 + 5, .04 and 10 for the data. It writes them, without the overhead of the
 * DMA again: 2 + 76, .04 and 10. The way back is 582.625.
 */
static void from_device_to_device(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor x = make(ctx, KB_HBM, 2048, NULL), y = make(ctx, KB_HBM, 2048, NULL);
    expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
    assert_int_equal(settle(ctx), 1354182500);
    kb_context_destroy(ctx);
}

/* A tensor without elements takes no time, whatever is done with it. */
static void nothing_takes_no_time(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    static const kb_policy policies[] = {
        {.cube = KB_ROW_WISE},
        {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 2},
        {0},
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        kb_tensor_spec spec = {.shape = KB_SHAPE(4, 0), .dtype = KB_F32, .policy = &policies[i]};
        kb_tensor x, y, h;
        char *text;
        expect_ok(kb_full(ctx, &spec, 1, &x));
        expect_ok(kb_empty(ctx, &spec, &y));
        expect_ok(kb_from_host(ctx, &spec, NULL, 0, &h));
        expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
        expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
        expect_ok(kb_tensor_copy(ctx, h, y, KB_TIMED));
        expect_ok(kb_tensor_to_host(ctx, y, KB_TIMED, NULL, 0));
        expect_ok(kb_tensor_repr(ctx, y, KB_TIMED, &text));
        free(text);
        expect_ok(kb_tensor_free(ctx, x));
        assert_int_equal(settle(ctx), 0);
    }
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

/* ---- What bandwidths allow --------------------------------------------------------------- */

/* 8 copies of 64 KiB all come through the host's link; reading takes one of them. */
static void each_copy_is_sent_and_one_is_read(void **state)
{
    (void)state;
    enum { BYTES = 64 << 10, COPIES = 8 };
    const kb_time one = BYTES * KB_NS / 64;
    static const kb_policy everywhere = {0};
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor h = make_host(ctx, BYTES), x = make(ctx, KB_HBM, BYTES, &everywhere);
    expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
    kb_time took = settle(ctx);
    assert_true(took > COPIES * one && took < COPIES * one + KB_US);
    expect_ok(kb_tensor_copy(ctx, h, x, KB_TIMED));
    took = settle(ctx);
    assert_true(took > one && took < one + KB_US);
    kb_context_destroy(ctx);
}

/* Shards are all under way at once: cutting a tensor up costs less than 100 ns. */
static void shards_go_together(void **state)
{
    (void)state;
    enum { BYTES = 64 << 10 };
    static const kb_policy cut = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor h = make_host(ctx, BYTES);
    kb_time took[2][2];
    for (int i = 0; i < 2; i++) {
        kb_tensor x = make(ctx, KB_HBM, BYTES, i ? &cut : NULL);
        expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
        took[i][0] = settle(ctx);
        expect_ok(kb_tensor_copy(ctx, h, x, KB_TIMED));
        took[i][1] = settle(ctx);
    }
    for (int way = 0; way < 2; way++) {
        assert_true(took[1][way] >= BYTES * KB_NS / 64);
        assert_true(took[1][way] < took[0][way] + 100 * KB_NS);
    }
    kb_context_destroy(ctx);
}

/*
 * 1 MiB from one SIP to another: 5.1 us to read at 204.8 bytes a ns, 16.4 us to send at 64. One
 * after the other that is 21.5 us; overlapping it is little more than sending.
 */
static void reading_and_writing_overlap(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor x = make(ctx, KB_HBM, BYTES, NULL);
    expect_ok(kb_ahbm_set_device(ctx, 1));
    kb_tensor y = make(ctx, KB_HBM, BYTES, NULL);
    expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
    kb_time took = settle(ctx), sending = (kb_time)BYTES * KB_NS / 64;
    assert_true(took > sending + 1165 * KB_NS);
    assert_true(took < sending + 2 * KB_US);
    kb_context_destroy(ctx);
}

/*
 * From 12 copies to 12 copies each PE copies its own: twice 64 KiB at 204.8 bytes a ns, 640 ns. If
 * all read one PE's it would be 3840. The same for a replicated source cut into shards.
 */
static void a_replicated_source_is_read_where_it_is_wanted(void **state)
{
    (void)state;
    enum { BYTES = 64 << 10 };
    static const kb_policy everywhere = {0}, cut = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_context *ctx = open_machine(TALL);
    kb_tensor x = make(ctx, KB_HBM, BYTES, &everywhere), y = make(ctx, KB_HBM, BYTES, &everywhere),
              z = make(ctx, KB_HBM, BYTES, &cut);
    expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
    kb_time took = settle(ctx);
    assert_true(took > 1165 * KB_NS + 640 * KB_NS);
    assert_true(took < 1165 * KB_NS + 640 * KB_NS + KB_US);
    expect_ok(kb_tensor_copy(ctx, z, y, KB_TIMED));
    took = settle(ctx);
    assert_true(took < 1165 * KB_NS + 640 * KB_NS / 12 + KB_US);
    kb_context_destroy(ctx);
}

/* PEs fill side by side: 12 times 20480 bytes take no longer than the 100 ns of one, but for the
 * commands. */
static void pes_fill_side_by_side(void **state)
{
    (void)state;
    kb_time took[2];
    for (int all = 0; all < 2; all++) {
        kb_context *ctx = open_machine(TALL);
        static const kb_policy everywhere = {0};
        kb_tensor_spec spec = {
            .shape = KB_SHAPE(20480), .dtype = KB_I8, .policy = all ? &everywhere : NULL};
        kb_tensor x;
        expect_ok(kb_full(ctx, &spec, 1, &x));
        took[all] = settle(ctx);
        kb_context_destroy(ctx);
    }
    assert_true(took[1] < took[0] + 200 * KB_NS);
}

/* More bytes never take less time. */
static void more_takes_longer(void **state)
{
    (void)state;
    static const kb_policy rows = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    kb_time last[4] = {0};
    kb_context *ctx = open_machine(THREE_SIPS);
    for (uint64_t bytes = 1; bytes <= 1 << 18; bytes *= 8) {
        kb_tensor h = make_host(ctx, bytes);
        kb_tensor x = make(ctx, KB_HBM, bytes, &rows), y = make(ctx, KB_HBM, bytes, NULL);
        kb_time took[4];
        expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
        took[0] = settle(ctx);
        expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
        took[1] = settle(ctx);
        expect_ok(kb_tensor_copy(ctx, h, y, KB_TIMED));
        took[2] = settle(ctx);
        kb_tensor_spec spec = {.shape = KB_SHAPE(bytes), .dtype = KB_I8, .policy = &rows};
        kb_tensor z;
        expect_ok(kb_zeros(ctx, &spec, &z));
        took[3] = settle(ctx);
        for (int i = 0; i < 4; i++) {
            assert_true(took[i] > last[i]);
            last[i] = took[i];
        }
    }
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_the_host_to_a_device),
        cmocka_unit_test(from_a_device_to_the_host),
        cmocka_unit_test(elements_and_slices),
        cmocka_unit_test(mapping_and_unmapping),
        cmocka_unit_test(empty_shards_are_not_mapped),
        cmocka_unit_test(filling),
        cmocka_unit_test(from_device_to_device),
        cmocka_unit_test(nothing_takes_no_time),
        cmocka_unit_test(each_copy_is_sent_and_one_is_read),
        cmocka_unit_test(shards_go_together),
        cmocka_unit_test(reading_and_writing_overlap),
        cmocka_unit_test(a_replicated_source_is_read_where_it_is_wanted),
        cmocka_unit_test(pes_fill_side_by_side),
        cmocka_unit_test(more_takes_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
