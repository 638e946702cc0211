/*
 * test_lazy.c: what is computed when, and what waiting costs.
 */
#include "data/data_rig.h"

static void nobody_looks_nothing_is_computed(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(10), 1), *b = apply2(&r, DATA_ADD, a, a);
    data_value *c = apply2(&r, DATA_MUL, b, a), *d = apply2(&r, DATA_MUL, c, c);
    assert_int_equal(data_get_stats(r.store).live_values, 4);
    drop(&r, b);
    drop(&r, c);
    assert_int_equal(data_get_stats(r.store).live_values, 4); /* d needs them */
    drop(&r, d);
    assert_int_equal(data_get_stats(r.store).live_values, 1);
    assert_int_equal(data_get_stats(r.store).dropped, 3);
    drop(&r, a);
    data_stats stats = data_get_stats(r.store);
    assert_int_equal(stats.dropped, 4);
    assert_int_equal(stats.computed, 0);
    assert_int_equal(stats.max_live_bytes, 0);
    rig_end(&r);
}

static void only_what_is_needed_is_computed(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(10), 3), *b = apply2(&r, DATA_ADD, a, a);
    data_value *c = apply2(&r, DATA_MUL, b, a), *d = apply2(&r, DATA_SUB, b, a);
    assert_true(item(&r, c, 0) == 18);
    assert_int_equal(data_get_stats(r.store).computed, 3);
    assert_true(item(&r, c, 9) == 18); /* once is enough */
    assert_int_equal(data_get_stats(r.store).computed, 3);
    drop(&r, a);
    assert_true(item(&r, d, 9) == 3);
    assert_int_equal(data_get_stats(r.store).computed, 4);
    /* a is gone: nothing waits for it any more. */
    assert_int_equal(data_get_stats(r.store).live_values, 3);
    assert_int_equal(data_get_stats(r.store).live_bytes, 3 * 20);
    drop(&r, b);
    drop(&r, c);
    drop(&r, d);
    assert_int_equal(data_get_stats(r.store).dropped, 0);
    rig_end(&r);
}

static void references_are_counted(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(10), 3);
    assert_ptr_equal(data_retain(a), a);
    drop(&r, a);
    assert_true(item(&r, a, 0) == 3);
    data_value *square = apply2(&r, DATA_MUL, a, a); /* the same input twice */
    drop(&r, a);
    drop(&r, NULL);
    assert_true(item(&r, square, 0) == 9);
    assert_int_equal(data_get_stats(r.store).live_values, 1);
    drop(&r, square);
    rig_end(&r);
}

/* With recursion this would need a stack as deep; nothing is ever as many as all of them. */
static void a_long_chain(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    const uint64_t links = cases(1000000);
    data_value *one = full(&r, KB_I32, KB_SHAPE(4), 1), *x = data_retain(one);
    for (uint64_t i = 0; i < links; i++) {
        data_value *next = apply2(&r, DATA_ADD, x, one);
        drop(&r, x);
        x = next;
        assert_true(data_get_stats(r.store).live_values <= 17000);
    }
    assert_true(item(&r, x, 3) == (double)(links + 1));
    /* 16 bytes each, 16 Ki of them at once. */
    assert_true(data_get_stats(r.store).max_live_bytes <= 17000 * 16);
    drop(&r, one);
    drop(&r, x);
    rig_end(&r);
}

/* As long as may wait, and dropped without being computed. */
static void a_long_chain_that_is_dropped(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *one = full(&r, KB_I32, KB_SHAPE(4), 1), *x = data_retain(one);
    for (int i = 0; i < 16000; i++) {
        data_value *next = apply2(&r, DATA_ADD, x, one);
        drop(&r, x);
        x = next;
    }
    drop(&r, one);
    drop(&r, x);
    assert_int_equal(data_get_stats(r.store).dropped, 16001);
    assert_int_equal(data_get_stats(r.store).computed, 0);
    rig_end(&r);
}

/* Chains of large values are cut by their bytes: 1 MiB may wait, and values have 64 KiB. */
static void large_values_wait_for_a_shorter_time(void **state)
{
    (void)state;
    const uint64_t limit = 1 << 20, bytes = 1 << 16;
    rig r = rig_make(1, limit);
    data_value *x = full(&r, KB_F16, KB_SHAPE(bytes / 2), 0),
               *one = full(&r, KB_F16, KB_SHAPE(1), 1);
    for (uint64_t i = 0; i < cases(200); i++) {
        data_value *next = apply(&r, DATA_ADD, KB_F16, *data_shape(x), (data_value *[]){x, one}, 0);
        drop(&r, x);
        x = next;
    }
    assert_true(item(&r, x, 0) == (double)cases(200));
    assert_true(data_get_stats(r.store).max_live_bytes <= limit + 3 * bytes);
    drop(&r, x);
    drop(&r, one);
    rig_end(&r);
}

/*
 * A kernel that reads tiles, multiplies and writes: what it has dropped waits until it is a MiB, in
 * tiles of 2, 2 and 2 KiB. What it holds does not count: it would be there anyway.
 */
static void a_loop_of_tiles(void **state)
{
    (void)state;
    const uint64_t limit = 1 << 20, tile = 32 * 32 * 2, held_bytes = 4 << 20;
    rig r = rig_make(1, limit);
    data_value *held = full(&r, KB_F16, KB_SHAPE(held_bytes / 2), 1);
    (void)bytes_of(&r, held);
    uint64_t settled = data_get_stats(r.store).settled;
    const uint64_t tiles = cases(2000);
    for (uint64_t i = 0; i < tiles; i++) {
        data_value *a = read_row(&r, KB_F16, KB_SHAPE(32, 32), 0, i * tile);
        data_value *b = read_row(&r, KB_F16, KB_SHAPE(32, 32), 1, i * tile);
        data_value *c = dot(&r, a, b, NULL, KB_F16);
        write_row(&r, 0, (32 << 20) + i * tile, c, NULL);
        drop(&r, a);
        drop(&r, b);
        drop(&r, c);
    }
    data_stats stats = data_get_stats(r.store);
    assert_true(stats.max_live_bytes <= held_bytes + limit + 4 * tile);
    assert_true(stats.settled - settled <= 1 + tiles * 3 * tile / limit);
    expect_ok(data_settle(r.store));
    assert_int_equal(data_get_stats(r.store).computed, 1 + tiles);
    drop(&r, held);
    rig_end(&r);
}

/* Nothing is computed here, but what waits to be written is kept. */
static void a_loop_of_copies(void **state)
{
    (void)state;
    const uint64_t limit = 1 << 18, tile = 1 << 12;
    rig r = rig_make(1, limit);
    for (uint64_t i = 0; i < cases(1000); i++) {
        data_value *a = read_row(&r, KB_I8, KB_SHAPE(tile), 0, i * tile);
        write_row(&r, 1, i * tile, a, NULL);
        drop(&r, a);
    }
    assert_true(data_get_stats(r.store).max_live_bytes <= limit + 2 * tile);
    expect_ok(data_settle(r.store));
    rig_end(&r);
}

/* However little each of them keeps, writes do not pile up without end: some were done. */
static void many_small_writes(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *one = full(&r, KB_I8, KB_SHAPE(1), 1);
    (void)bytes_of(&r, one);
    for (uint64_t i = 0; i < 17000; i++)
        write_row(&r, 0, i, one, NULL);
    assert_true(mem_memories_content_bytes(r.memories) > 0);
    drop(&r, one);
    expect_ok(data_settle(r.store));
    rig_end(&r);
}

/*
 * 256 KiB that a value holds, where 64 may wait: they would be there anyway, so others may go on
 * waiting for them. They no longer may when nobody else has them.
 */
static void what_somebody_holds_does_not_count(void **state)
{
    (void)state;
    rig r = rig_make(1, 1 << 16);
    data_value *held = full(&r, KB_I8, KB_SHAPE(1 << 18), 1), *greatest[20];
    (void)bytes_of(&r, held);
    data_value *dropped = apply(&r, DATA_MAX, KB_I8, KB_SHAPE(1), &held, 0);
    drop(&r, dropped); /* and so waits no more */
    for (size_t i = 0; i < 20; i++)
        greatest[i] = apply(&r, DATA_MAX, KB_I8, KB_SHAPE(1), &held, 0);
    assert_int_equal(data_get_stats(r.store).computed, 1);
    drop(&r, held);
    data_value *another = full(&r, KB_I8, KB_SHAPE(1), 1);
    assert_int_equal(data_get_stats(r.store).computed, 21);
    assert_int_equal(data_get_stats(r.store).live_bytes, 20);
    drop(&r, another);
    for (size_t i = 0; i < 20; i++)
        drop(&r, greatest[i]);
    rig_end(&r);
}

/* Nobody waits for what is held, once it is computed: a new value is no reason to compute. */
static void what_nobody_waits_for_does_not_count(void **state)
{
    (void)state;
    rig r = rig_make(1, 1 << 16);
    data_value *held = full(&r, KB_I8, KB_SHAPE(1 << 18), 1);
    (void)bytes_of(&r, held);
    for (int i = 0; i < 3; i++) {
        data_value *dropped = apply(&r, DATA_MAX, KB_I8, KB_SHAPE(1), &held, 0);
        drop(&r, dropped);
    }
    data_value *one = full(&r, KB_I8, KB_SHAPE(1), 1), *two = full(&r, KB_I8, KB_SHAPE(1), 2);
    assert_int_equal(data_get_stats(r.store).computed, 1);
    drop(&r, one);
    drop(&r, two);
    drop(&r, held);
    rig_end(&r);
}

/* Values that are still there when the store goes, computed or not, written or not. */
static void a_store_goes_with_its_values(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *a = full(&r, KB_F16, KB_SHAPE(10), 3), *b = apply2(&r, DATA_ADD, a, a);
    (void)bytes_of(&r, a);
    write_row(&r, 0, 0, b, a);
    data_store_destroy(r.store);
    data_store_destroy(NULL);
    assert_int_equal(mem_memories_content_bytes(r.memories), 0);
    mem_memories_destroy(r.memories);
    topo_machine_destroy(r.machine);
}

static void more_than_there_can_be(void **state)
{
    (void)state;
    rig r = rig_make(1, 0);
    data_value *value;
    kb_shape huge = KB_SHAPE(UINT64_MAX / 2, 3);
    expect_error(data_full(r.store, KB_F16, &huge, 1, &value), KB_ERR_HOST, "out of memory");
    assert_null(value);
#if !defined(KB_ASAN) && !defined(KB_TSAN) /* these end the program when so much is asked */
    huge.dims[0] = (uint64_t)1 << 60;      /* it can be described, and dropped, but not computed */
    huge.dims[1] = 1;
    value = full(&r, KB_I8, huge, 1);
    const void *bytes;
    expect_error(data_bytes(r.store, value, &bytes), KB_ERR_HOST, "out of memory");
    assert_null(bytes);
    drop(&r, value);
#endif
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_looks_nothing_is_computed),
        cmocka_unit_test(only_what_is_needed_is_computed),
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(a_long_chain),
        cmocka_unit_test(a_long_chain_that_is_dropped),
        cmocka_unit_test(large_values_wait_for_a_shorter_time),
        cmocka_unit_test(a_loop_of_tiles),
        cmocka_unit_test(a_loop_of_copies),
        cmocka_unit_test(many_small_writes),
        cmocka_unit_test(what_somebody_holds_does_not_count),
        cmocka_unit_test(what_nobody_waits_for_does_not_count),
        cmocka_unit_test(a_store_goes_with_its_values),
        cmocka_unit_test(more_than_there_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
