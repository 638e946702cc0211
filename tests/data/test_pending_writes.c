/*
 * test_pending_writes.c: values and memory: a value is what was there when it was read, whatever
 * happens to the place later; memory gets what it was given, in order.
 *
 * Checks K1 and K7.
 */
#include "data/data_rig.h"
#include "support/seed.h"

static double first_in_memory(rig *r, kb_dtype dtype, uint32_t pe, uint64_t offset)
{
    unsigned char bytes[4];
    mem_memories_read(r->memories, &(kb_location){KB_HBM, {0, 0, pe}, offset}, bytes,
                      kb_dtype_bytes(dtype));
    return mem_number_get(dtype, bytes);
}

/* A ring slot, or scratch: read, then used for something else, before anything is computed. */
static void a_value_keeps_what_was_read(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *one = full(&r, KB_F16, KB_SHAPE(8), 1), *two = full(&r, KB_F16, KB_SHAPE(8), 2);
    write_row(&r, 0, 0, one, NULL);
    data_value *read = read_row(&r, KB_F16, KB_SHAPE(8), 0, 0);
    data_value *sum = apply2(&r, DATA_ADD, read, one); /* not computed yet */
    write_row(&r, 0, 0, two, NULL);
    expect_ok(data_settle(r.store));
    assert_true(first_in_memory(&r, KB_F16, 0, 0) == 2);
    assert_true(item(&r, sum, 7) == 2);
    assert_true(item(&r, read, 7) == 1);
    drop(&r, read);
    read = read_row(&r, KB_F16, KB_SHAPE(8), 0, 0);
    assert_true(item(&r, read, 0) == 2);
    drop(&r, one);
    drop(&r, two);
    drop(&r, read);
    drop(&r, sum);
    rig_end(&r);
}

/* One input from a place that is used again, and one that lives on; other shapes and dtypes too. */
static void reuse_by_another_shape_changes_nothing(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F32, KB_SHAPE(4), 3), *b = full(&r, KB_F32, KB_SHAPE(4), 4);
    write_row(&r, 0, 0, a, NULL);
    write_row(&r, 0, 4096, b, NULL);
    data_value *slot = read_row(&r, KB_F32, KB_SHAPE(4), 0, 0);
    data_value *scratch = read_row(&r, KB_F32, KB_SHAPE(4), 0, 4096);
    data_value *product = apply2(&r, DATA_MUL, slot, scratch);
    data_value *bytes = full(&r, KB_I8, KB_SHAPE(5000), -1);
    write_row(&r, 0, 2, bytes, NULL); /* over both */
    drop(&r, slot);
    drop(&r, scratch);
    expect_ok(data_settle(r.store));
    for (uint64_t i = 0; i < 4; i++)
        assert_true(item(&r, product, i) == 12);
    drop(&r, a);
    drop(&r, b);
    drop(&r, product);
    drop(&r, bytes);
    rig_end(&r);
}

/* Received, and sent on to a second place and a third, before it is computed. */
static void forwarding_what_is_not_computed(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(100), 1), *sum = apply2(&r, DATA_ADD, a, a);
    write_row(&r, 0, 0, sum, NULL);
    write_row(&r, 1, 0, sum, NULL);
    assert_int_equal(data_get_stats(r.store).computed, 0);
    drop(&r, a);
    drop(&r, sum);
    data_value *there = read_row(&r, KB_F16, KB_SHAPE(100), 1, 0); /* settles */
    assert_int_equal(data_get_stats(r.store).settled, 1);
    assert_int_equal(data_get_stats(r.store).computed, 2);
    write_row(&r, 0, 512, there, NULL);
    drop(&r, there);
    expect_ok(data_settle(r.store));
    assert_int_equal(data_get_stats(r.store).settled, 1); /* it was computed */
    assert_true(first_in_memory(&r, KB_F16, 0, 0) == 2);
    assert_true(first_in_memory(&r, KB_F16, 0, 512 + 198) == 2);
    rig_end(&r);
}

static void writes_happen_in_order(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    for (int i = 0; i < 10; i++) {
        data_value *value = full(&r, KB_I32, KB_SHAPE(10), i);
        write_row(&r, 0, (uint64_t)i * 8, value, NULL); /* each overlaps the next four */
        drop(&r, value);
    }
    expect_ok(data_settle(r.store));
    for (int i = 0; i < 10; i++)
        assert_true(first_in_memory(&r, KB_I32, 0, (uint64_t)i * 8) == i);
    assert_true(first_in_memory(&r, KB_I32, 0, 9 * 8 + 36) == 9);
    rig_end(&r);
}

/* What is elsewhere, in the same memory or at the same offset of another one, need not wait. */
static void reading_elsewhere_does_not_settle(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(16), 5);
    write_row(&r, 0, 1024, a, NULL);
    write_row(&r, 0, 4096, a, NULL);
    data_value *before = read_row(&r, KB_F16, KB_SHAPE(512), 0, 0);
    data_value *between = read_row(&r, KB_F16, KB_SHAPE(16), 0, 2048);
    data_value *other = read_row(&r, KB_F16, KB_SHAPE(16), 1, 1024);
    data_value *nothing = read_row(&r, KB_F16, KB_SHAPE(0), 0, 1030);
    assert_int_equal(data_get_stats(r.store).computed, 0);
    data_value *edge = read_row(&r, KB_F16, KB_SHAPE(1), 0, 1024 + 30);
    assert_int_equal(data_get_stats(r.store).computed, 1);
    assert_true(item(&r, edge, 0) == 5);
    data_value *all[] = {a, before, between, other, nothing, edge};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(&r, all[i]);
    rig_end(&r);
}

/* ---- Masks ------------------------------------------------------------------------------- */

static void a_mask_leaves_what_was_there(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    enum { count = 3000 };
    static const kb_dtype masks[] = {KB_I8, KB_F16, KB_I32};
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        double numbers[count];
        for (int i = 0; i < count; i++) /* runs of all lengths; -0 is 0, 0.5 is not */
            numbers[i] = kb_rng_below(&r.rng, 3) == 0 ? -0.0 : masks[m] == KB_F16 ? 0.5 : -1;
        data_value *old = full(&r, KB_F32, KB_SHAPE(count), 7);
        data_value *mask = value_of_numbers(&r, masks[m], KB_SHAPE(count), numbers);
        data_value *new = full(&r, KB_F32, KB_SHAPE(count), 8);
        write_row(&r, 0, 100, old, NULL);
        write_row(&r, 0, 100, new, mask);
        drop(&r, mask);
        data_value *got = read_row(&r, KB_F32, KB_SHAPE(count), 0, 100);
        for (uint64_t i = 0; i < count; i++)
            assert_true(item(&r, got, i) == (numbers[i] != 0 ? 8 : 7));
        drop(&r, old);
        drop(&r, new);
        drop(&r, got);
    }
    rig_end(&r);
}

/* Two rows of three in memory, out of an array of 4 by 5; the mask says which. */
static void a_mask_of_a_rectangle(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    double numbers[20], chosen[20];
    for (int i = 0; i < 20; i++) {
        numbers[i] = i;
        chosen[i] = i % 2;
    }
    data_value *value = value_of_numbers(&r, KB_I8, KB_SHAPE(4, 5), numbers);
    data_value *mask = value_of_numbers(&r, KB_I8, KB_SHAPE(4, 5), chosen);
    mem_rect rect = {
        .at = {KB_HBM, {0, 0, 0}, 10}, .stride = 8, .row = 1, .rows = 2, .column = 2, .bytes = 3};
    expect_ok(data_write(r.store, &rect, 1, 5, value, mask));
    drop(&r, value);
    drop(&r, mask);
    expect_ok(data_settle(r.store));
    /* Row 1 is 7 8 9 and row 2 is 12 13 14. */
    static const double expected[] = {7, 0, 9, 0, 0, 0, 0, 0, 0, 13, 0, 0};
    for (uint64_t i = 0; i < 12; i++)
        assert_true(first_in_memory(&r, KB_I8, 0, 10 + i) == expected[i]);
    rig_end(&r);
}

/* ---- Rectangles -------------------------------------------------------------------------- */

static void what_no_rectangle_covers_is_something_else(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *ones = full(&r, KB_F16, KB_SHAPE(6), 1);
    write_row(&r, 0, 0, ones, NULL);
    /* The upper left 2 by 2 of 3 by 4, rows 6 bytes apart, and one element at the lower right. */
    mem_rect rects[] = {
        {.at = {KB_HBM, {0, 0, 0}, 0}, .stride = 6, .rows = 2, .bytes = 4},
        {.at = {KB_HBM, {0, 0, 0}, 4}, .row = 2, .rows = 1, .column = 6, .bytes = 2}};
    data_value *got;
    expect_ok(
        data_read(r.store, &(data_source){KB_F16, KB_SHAPE(3, 4), 8, rects, 2, -HUGE_VAL}, &got));
    for (uint64_t i = 0; i < 12; i++) {
        bool covered = i == 0 || i == 1 || i == 4 || i == 5 || i == 11;
        assert_true(item(&r, got, i) == (covered ? 1 : -HUGE_VAL));
    }
    drop(&r, ones);
    drop(&r, got);
    rig_end(&r);
}

/* Reads and writes at random, lazily and with memory settled at once: the same comes out. */
static void random_programs(void **state)
{
    (void)state;
    enum { cells = 64, values = 8 };
    for (uint64_t seed = 0; seed < cases(60); seed++) {
        rig r = rig_make(1, 4000); /* so little that much is computed early */
        kb_rng_init(&r.rng, test_seed(seed));
        int32_t memory[cells] = {0}, model[values][4] = {{0}};
        data_value *live[values];
        for (int i = 0; i < values; i++)
            live[i] = full(&r, KB_I32, KB_SHAPE(4), 0);
        for (int step = 0; step < 300; step++) {
            size_t to = kb_rng_below(&r.rng, values), a = kb_rng_below(&r.rng, values);
            size_t b = kb_rng_below(&r.rng, values), cell = kb_rng_below(&r.rng, cells - 3);
            data_value *made = NULL;
            int32_t numbers[4];
            switch (kb_rng_below(&r.rng, 5)) {
            case 0:
                made = read_row(&r, KB_I32, KB_SHAPE(4), 0, cell * 4);
                memcpy(numbers, memory + cell, sizeof numbers);
                break;
            case 1:
                write_row(&r, 0, cell * 4, live[a], NULL);
                memcpy(memory + cell, model[a], sizeof numbers);
                break;
            case 2:
                write_row(&r, 0, cell * 4, live[a], live[b]);
                for (int i = 0; i < 4; i++)
                    memory[cell + (size_t)i] = model[b][i] ? model[a][i] : memory[cell + (size_t)i];
                break;
            case 3:
                made = full(&r, KB_I32, KB_SHAPE(4), step);
                for (int i = 0; i < 4; i++)
                    numbers[i] = step;
                break;
            default:
                made = apply2(&r, DATA_SUB, live[a], live[b]);
                for (int i = 0; i < 4; i++)
                    numbers[i] = (int32_t)((uint32_t)model[a][i] - (uint32_t)model[b][i]);
            }
            if (made) {
                drop(&r, live[to]);
                live[to] = made;
                memcpy(model[to], numbers, sizeof numbers);
            }
            if (kb_rng_below(&r.rng, 20) == 0)
                assert_memory_equal(bytes_of(&r, live[a]), model[a], sizeof model[a]);
        }
        data_value *all = read_row(&r, KB_I32, KB_SHAPE(cells), 0, 0);
        assert_memory_equal(bytes_of(&r, all), memory, sizeof memory);
        drop(&r, all);
        for (int i = 0; i < values; i++) {
            assert_memory_equal(bytes_of(&r, live[i]), model[i], sizeof model[i]);
            drop(&r, live[i]);
        }
        expect_ok(data_settle(r.store));
        rig_end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_keeps_what_was_read),
        cmocka_unit_test(reuse_by_another_shape_changes_nothing),
        cmocka_unit_test(forwarding_what_is_not_computed),
        cmocka_unit_test(writes_happen_in_order),
        cmocka_unit_test(reading_elsewhere_does_not_settle),
        cmocka_unit_test(a_mask_leaves_what_was_there),
        cmocka_unit_test(a_mask_of_a_rectangle),
        cmocka_unit_test(what_no_rectangle_covers_is_something_else),
        cmocka_unit_test(random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
