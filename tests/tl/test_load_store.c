/*
 * test_load_store.c: load, store and ref: strides, masks, the order of what touches the same bytes,
 * and that a value does not change when its memory does. For figures see test_kernels.c.
 */
#include "tl_rig.h"

enum { X = 0, Y = 1 << 16, OUT = 2 << 16 };

/* ---- Strides ----------------------------------------------------------------------------- */

KB_KERNEL(gather, tl_ptr memory)
{
    /* A block of 2 x 3 at (1, 2) of a matrix with 10 columns, and its columns as rows. */
    tl_ptr corner = memory + X + (1 * 10 + 2) * 4;
    tl_store(memory + OUT, tl_load(corner, tl_shape(2, 3), TL_F32, .strides = tl_strides(10, 1)));
    tl_store(memory + OUT + 24,
             tl_load(corner, tl_shape(3, 2), TL_F32, .strides = tl_strides(1, 10)));
    /* A row three times. */
    tl_store(memory + OUT + 48,
             tl_load(corner, tl_shape(3, 2), TL_F32, .strides = tl_strides(0, 1)));
}

static void loads_may_have_strides(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F32, 100);
    (void)time_of(&r, gather, MEMORY);
    expect_numbers(&r, OUT, KB_F32, 12, 13, 14, 22, 23, 24);
    expect_numbers(&r, OUT + 24, KB_F32, 12, 22, 13, 23, 14, 24);
    expect_numbers(&r, OUT + 48, KB_F32, 12, 13, 12, 13, 12, 13);
    rig_fini(&r);
}

KB_KERNEL(scatter, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(2, 3), TL_F16);
    tl_store(memory + OUT, x, .strides = tl_strides(8, 2));
}

static void stores_may_have_strides(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F16, 6);
    put(&r, OUT, KB_F16, (const double[]){9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 14);
    (void)time_of(&r, scatter, MEMORY);
    expect_numbers(&r, OUT, KB_F16, 0, 9, 1, 9, 2, 9, 9, 9, 3, 9, 4, 9, 5, 9);
    rig_fini(&r);
}

/* ---- Masks ------------------------------------------------------------------------------- */

/* n numbers of which `count` are there, from the last of the memory that is mapped. */
KB_KERNEL(load_to_the_end, tl_ptr memory, int count, double other)
{
    tl_ptr last = memory + (tl_ptr)MEMORY_BYTES - count * 4;
    tl_tensor mask = tl_lt(tl_arange(0, 64), count);
    tl_tensor x = tl_load(last, tl_shape(64), TL_F32, .mask = mask, .other = other);
    tl_store(memory + OUT, x);
    tl_store(last, tl_add(x, 1), .mask = mask);
}

static void what_a_mask_of_numbers_leaves_out_need_not_be_there(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, MEMORY_BYTES - 12, KB_F32, (const double[]){1, 2, 3}, 3);
    (void)time_of(&r, load_to_the_end, MEMORY, 3, -5);
    expect_numbers(&r, OUT, KB_F32, 1, 2, 3, -5, -5);
    expect_numbers(&r, OUT + 63 * 4, KB_F32, -5);
    expect_numbers(&r, MEMORY_BYTES - 12, KB_F32, 2, 3, 4);
    rig_fini(&r);
}

KB_KERNEL(load_some, tl_ptr memory, int count, bool of_data)
{
    tl_tensor limit =
        of_data ? tl_load(memory + Y, tl_shape(1), TL_I32) : tl_full(tl_shape(1), TL_I32, count);
    tl_tensor mask = tl_lt(tl_arange(0, 1024), limit);
    tl_wait(mask);
    kb_time start = tl_now();
    tl_wait(tl_load(memory + X, tl_shape(1024), TL_F32, .mask = mask));
    tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, kb_to_ns(tl_now() - start)));
}

/*
 * 512 numbers of f32 are 2048 bytes: 1 + 90.1425 + 10 if the mask is known; with a mask of data all
 * 4096 bytes are moved: 10 more.
 */
static void what_a_mask_of_numbers_leaves_out_is_not_moved(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, Y, KB_I32, (const double[]){512}, 1);
    (void)time_of(&r, load_some, MEMORY, 512, false);
    expect_numbers(&r, OUT, KB_F32, (double)101.1425f);
    (void)time_of(&r, load_some, MEMORY, 512, true);
    expect_numbers(&r, OUT, KB_F32, (double)111.1425f);
    rig_fini(&r);
}

/* Where x is positive, it is y that is loaded, and x that is stored over it. */
KB_KERNEL(mask_by_data, tl_ptr memory, int rows)
{
    tl_tensor x = tl_load(memory + X, tl_shape(rows, 3), TL_F16);
    tl_tensor positive = tl_gt(x, 0);
    tl_tensor y = tl_load(memory + Y, tl_shape(rows, 3), TL_F16, .mask = positive, .other = 7);
    tl_store(memory + OUT, y);
    tl_store(memory + Y, x, .mask = positive);
}

static void masks_of_data_choose_elements(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, X, KB_F16, (const double[]){1, -1, 2, -2, 0, 3}, 6);
    put(&r, Y, KB_F16, (const double[]){10, 11, 12, 13, 14, 15}, 6);
    (void)time_of(&r, mask_by_data, MEMORY, 2);
    expect_numbers(&r, OUT, KB_F16, 10, 7, 12, 7, 7, 15);
    expect_numbers(&r, Y, KB_F16, 1, 11, 2, 13, 14, 3);
    rig_fini(&r);
}

KB_KERNEL(mask_rows_and_columns, tl_ptr memory, int rows, int columns)
{
    tl_tensor row = tl_lt(tl_reshape(tl_arange(0, 4), tl_shape(4, 1)), rows);
    tl_tensor column = tl_lt(tl_arange(0, 4), columns);
    tl_tensor data = tl_load(memory + Y, tl_shape(4, 1), TL_F32);
    tl_tensor x = tl_load(memory + X, tl_shape(4, 4), TL_F32, .mask = tl_mul(row, column));
    tl_store(memory + OUT, x);
    tl_store(memory + OUT + 64, x, .mask = column);
    tl_store(memory + OUT + 128, x, .mask = data);
    tl_store(memory + OUT + 192, x, .mask = tl_scalar(0));
    tl_store(memory + OUT + 256, tl_load(memory + X, tl_shape(4, 4), TL_F32, .mask = data));
}

static void masks_broadcast(void **state)
{
    (void)state;
    rig r = rig_default();
    double nines[64];
    for (int i = 0; i < 64; i++)
        nines[i] = 9;
    put_sequence(&r, X, KB_F32, 16);
    put(&r, Y, KB_F32, (const double[]){0, 0.5, 0, -1}, 4);
    put(&r, OUT, KB_F32, nines, 64);
    (void)time_of(&r, mask_rows_and_columns, MEMORY, 3, 2);
    expect_numbers(&r, OUT, KB_F32, 0, 1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0, 0, 0, 0, 0);
    expect_numbers(&r, OUT + 64, KB_F32, 0, 1, 9, 9, 4, 5, 9, 9, 8, 9, 9, 9, 0, 0, 9, 9);
    expect_numbers(&r, OUT + 128, KB_F32, 9, 9, 9, 9, 4, 5, 0, 0, 9, 9, 9, 9, 0, 0, 0, 0);
    expect_numbers(&r, OUT + 192, KB_F32, 9, 9, 9, 9);
    expect_numbers(&r, OUT + 256, KB_F32, 0, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0, 12, 13, 14, 15);
    rig_fini(&r);
}

/* ---- Places in memory -------------------------------------------------------------------- */

KB_KERNEL(add_places, tl_ptr memory)
{
    tl_tensor x = tl_ref(memory + X, tl_shape(2, 2), TL_F16);
    tl_tensor row = tl_ref(memory + X, tl_shape(2, 2), TL_F16, .strides = tl_strides(0, 1));
    tl_store(memory + OUT, tl_add(x, row));
    tl_store(memory + OUT + 8, tl_sum(x, 1));
    tl_store(memory + OUT + 12, row);
    tl_wait(x); /* nothing makes it */
    tl_free(x);
}

static void a_place_in_memory_is_loaded_when_it_is_an_operand(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F16, 4);
    (void)time_of(&r, add_places, MEMORY);
    expect_numbers(&r, OUT, KB_F16, 0, 2, 2, 4, 1, 5, 0, 1, 0, 1);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* ---- In order ---------------------------------------------------------------------------- */

KB_KERNEL(store_then_load, tl_ptr memory)
{
    tl_tensor one = tl_full(tl_shape(64), TL_F32, 1);
    tl_wait(one);
    tl_store(memory + X, one);
    tl_tensor back = tl_load(memory + X + 4, tl_shape(32), TL_F32);
    tl_store(memory + OUT, back);
}

/*
 * The tensor is there at 20 + 1 + 5, the store begins after 1 more and takes 83.04 + 1.25, until
 * 111.29; the load waits for it: 90.1425 + .625, until 202.0575; the last store takes 83.04 + .625.
 */
static void a_load_sees_what_was_stored_before(void **state)
{
    (void)state;
    rig r = rig_default();
    assert_int_equal(time_of(&r, store_then_load, MEMORY), 285722500);
    expect_numbers(&r, OUT, KB_F32, 1, 1);
    rig_fini(&r);
}

KB_KERNEL(load_then_store, tl_ptr memory)
{
    tl_tensor two = tl_full(tl_shape(64), TL_F32, 2);
    tl_tensor old = tl_load(memory + X, tl_shape(64), TL_F32);
    tl_store(memory + X, two);
    tl_tensor fresh = tl_load(memory + X, tl_shape(64), TL_F32);
    tl_store(memory + OUT, tl_sub(old, fresh));
    tl_store(memory + OUT + 256, old);
}

/* What was loaded stays what it was, although its memory is another's since. */
static void a_load_does_not_see_what_is_stored_after_it(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F32, 64);
    (void)time_of(&r, load_then_store, MEMORY);
    expect_numbers(&r, OUT, KB_F32, -2, -1, 0, 1, 2, 3);
    expect_numbers(&r, OUT + 256, KB_F32, 0, 1, 2, 3);
    expect_numbers(&r, X, KB_F32, 2, 2, 2);
    rig_fini(&r);
}

KB_KERNEL(increment_in_place, tl_ptr memory, int times)
{
    for (int i = 0; i < times; i++)
        TL_SCOPE {
            tl_store(memory + X, tl_add(tl_load(memory + X, tl_shape(8), TL_F32), 1));
        }
}

static void a_loop_through_memory_means_what_it_says(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, increment_in_place, MEMORY, 20);
    expect_numbers(&r, X, KB_F32, 20, 20, 20, 20, 20, 20, 20, 20, 0);
    rig_fini(&r);
}

KB_KERNEL(copy, tl_ptr from, tl_ptr to, double plus)
{
    tl_store(to, tl_add(tl_load(from, tl_shape(16), TL_F32), plus));
}

/*
 * A later kernel has the same TCM and writes over what an earlier one read and wrote, before
 * anybody has looked at what the earlier one made.
 */
static void a_later_kernel_changes_nothing_of_an_earlier_one(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F32, 16);
    ending e[3];
    const tl_arg first[] = {MEMORY + X, MEMORY + OUT, 100}, second[] = {MEMORY + Y, MEMORY + X, 5},
                 third[] = {MEMORY + X, MEMORY + Y, 1};
    expect_ok(start_on(&r, pe0, &copy, first, &e[0]));
    expect_ok(start_on(&r, pe0, &copy, second, &e[1]));
    expect_ok(start_on(&r, pe0, &copy, third, &e[2]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (int i = 0; i < 3; i++)
        expect_ok(e[i].err);
    expect_numbers(&r, OUT, KB_F32, 100, 101, 102, 103);
    expect_numbers(&r, X, KB_F32, 5, 5, 5);
    expect_numbers(&r, Y, KB_F32, 6, 6, 6);
    rig_fini(&r);
}

KB_KERNEL(load_and_compute, tl_ptr memory)
{
    tl_tensor a = tl_load(memory + X, tl_shape(4096), TL_F16);
    tl_wait(a);
    tl_tensor b = tl_load(memory + Y, tl_shape(4096), TL_F16);
    ignore(tl_exp(a));
    tl_wait(b);
    tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, kb_to_ns(tl_now())));
}

/*
 * a is there at 21 + 90.1425 + 40 = 151.1425. Then b is issued at 152.1425 and there 130.1425
 * later, at 282.285; a is at work from 153.1425 on for 64 * 8 + 4 = 516, until 669.1425. The tensor
 * of the time comes after it: 5 more; and its store takes 83.04 and 4 / 204.8 = .01953125 of drain.
 */
static void loading_overlaps_with_computing(void **state)
{
    (void)state;
    rig r = rig_default();
    assert_int_equal(time_of(&r, load_and_compute, MEMORY), 757202032);
    expect_numbers(&r, OUT, KB_F32, (double)282.285f);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_may_have_strides),
        cmocka_unit_test(stores_may_have_strides),
        cmocka_unit_test(what_a_mask_of_numbers_leaves_out_need_not_be_there),
        cmocka_unit_test(what_a_mask_of_numbers_leaves_out_is_not_moved),
        cmocka_unit_test(masks_of_data_choose_elements),
        cmocka_unit_test(masks_broadcast),
        cmocka_unit_test(a_place_in_memory_is_loaded_when_it_is_an_operand),
        cmocka_unit_test(a_load_sees_what_was_stored_before),
        cmocka_unit_test(a_load_does_not_see_what_is_stored_after_it),
        cmocka_unit_test(a_loop_through_memory_means_what_it_says),
        cmocka_unit_test(a_later_kernel_changes_nothing_of_an_earlier_one),
        cmocka_unit_test(loading_overlaps_with_computing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
