/*
 * test_values.c: how long values live: handles, scopes and the TCM, of which there is 1 MiB here.
 * A value holds multiples of 64 bytes, wherever they are.
 *
 * Checks K4.
 */
#include "tl_rig.h"

enum { OUT = 1 << 20, MIB = 1 << 20 };

static rig small_tcm(void)
{
    return rig_make(one_cube("{ pe_tcm: { capacity_mib: 2, reserved_mib: 1 } }"), false);
}

/* Kernels do not run ahead: what is held is what is held at the time. */
static rig small_tcm_in_step(void)
{
    rig r;
    expect_ok(rig_try_with(&r, one_cube("{ pe_tcm: { capacity_mib: 2, reserved_mib: 1 } }"),
                           (rig_options){.window = 1}));
    return r;
}

/* How much of the TCM of this PE is free, as the host sees it while the kernel runs. */
static const rig *watched;

static uint64_t held(void)
{
    mem_stats stats = mem_memories_get_stats(watched->memories, pe0, KB_TCM);
    return stats.capacity - stats.free;
}

#define watch(r, kernel, ...) (watched = (r), time_of((r), kernel, __VA_ARGS__))

/* ---- The TCM ----------------------------------------------------------------------------- */

KB_KERNEL(hold, int n)
{
    tl_tensor a = tl_full(tl_shape(n), TL_F16, 1);
    assert_int_equal(held(), 2 * n);
    tl_tensor b = tl_full(tl_shape(1), TL_I8, 1);
    assert_int_equal(held(), 2 * n + 64);
    tl_tensor nothing = tl_full(tl_shape(0, 7), TL_F32, 1);
    assert_int_equal(held(), 2 * n + 64);
    tl_wait(b);
    tl_free(a);
    assert_int_equal(held(), 64);
    tl_free(nothing);
    tl_free(b);
    tl_free(tl_scalar(3));
    assert_int_equal(held(), 0);
    tl_full(tl_shape(n), TL_F16, 1);
}

static void values_hold_their_bytes_until_they_are_freed(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    (void)watch(&r, hold, 4096);
    expect_tcm_free(&r); /* at the end, of what was not */
    rig_fini(&r);
}

KB_KERNEL(share, tl_ptr memory)
{
    tl_tensor a = tl_load(memory, tl_shape(6), TL_F16);
    tl_tensor b = tl_reshape(a, tl_shape(2, 3));
    assert_int_equal(held(), 64); /* 12 bytes */
    tl_free(a);
    tl_wait(b);
    assert_int_equal(held(), 64); /* 12 bytes */
    tl_store(memory + OUT, tl_sum(b, 1));
    tl_tensor c = tl_reshape(b, tl_shape(3, 2));
    tl_free(b);
    tl_store(memory + OUT + 4, tl_sum(c, 1));
}

static void what_is_reshaped_shares_a_place(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    put_sequence(&r, 0, KB_F16, 6);
    (void)watch(&r, share, MEMORY);
    expect_numbers(&r, OUT, KB_F16, 3, 12, 1, 5, 9);
    expect_tcm_free(&r);
    rig_fini(&r);
}

KB_KERNEL(free_early, tl_ptr memory)
{
    tl_tensor x = tl_load(memory, tl_shape(64), TL_F32);
    tl_tensor y = tl_exp(x);
    tl_free(x);
    assert_int_equal(held(), 512);
    tl_future stored = tl_store(memory + OUT, y);
    tl_free(y);
    assert_int_equal(held(), 512);
    tl_wait(stored);
    assert_int_equal(held(), 0);
}

/* A value that was freed stays where it is while commands use it. */
static void what_is_in_use_stays(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    (void)watch(&r, free_early, MEMORY);
    expect_numbers(&r, OUT, KB_F32, 1, 1);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/*
 * 512 KiB come and go; a small value stays; and all the rest of the TCM is one more value. That
 * fits if the small one got the lowest place there was.
 */
KB_KERNEL(small_and_large, int64_t half, int64_t small, int64_t rest)
{
    TL_SCOPE {
        tl_wait(tl_full(tl_shape(half), TL_I8, 1));
    }
    tl_tensor stays = tl_full(tl_shape(small), TL_I8, 2);
    tl_wait(stays);
    tl_wait(tl_full(tl_shape(rest), TL_I8, 3));
    assert_int_equal(held(), MIB);
}

static void what_is_gone_leaves_no_hole(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    (void)watch(&r, small_and_large, MIB / 2, 64, MIB - 64);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* 384 + 256 + 384 KiB fill the TCM. Without the first and the last there is room for 768 KiB,
 * though it is not in one piece. */
KB_KERNEL(around_the_middle, int64_t kib)
{
    tl_tensor first = tl_full(tl_shape(384 * kib), TL_I8, 1);
    tl_tensor middle = tl_full(tl_shape(256 * kib), TL_I8, 2);
    tl_tensor last = tl_full(tl_shape(384 * kib), TL_I8, 3);
    tl_wait(last);
    assert_int_equal(held(), MIB);
    tl_free(first);
    tl_free(last);
    tl_wait(tl_full(tl_shape(768 * kib), TL_I8, 4));
    assert_int_equal(held(), MIB);
    tl_free(middle);
}

static void a_value_fits_if_its_bytes_fit(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    (void)watch(&r, around_the_middle, 1024);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/*
 * The first two hold 1 MiB; the third does not fit before both are free, the fourth needs 64 bytes
 * more than there are then.
 */
static kb_time seen[2];

KB_KERNEL(one_after_the_other, int64_t half, int64_t whole)
{
    tl_free(tl_full(tl_shape(half), TL_I8, 1));
    tl_free(tl_full(tl_shape(half), TL_I8, 2));
    tl_free(tl_full(tl_shape(whole - 64), TL_I8, 3));
    seen[0] = tl_now();
    tl_free(tl_full(tl_shape(65), TL_I8, 4));
    seen[1] = tl_now();
}

/*
 * 524288 elements pass 64 lanes in 8192 cycles of 1 ns, and 4 more. The first is issued at 21 and
 * ends at 8217; the second at 22, begins at 8217 and ends at 16413. Only then does the third fit,
 * which is issued at 16414 and, of 1048512 elements, ends at 16414 + 16383 + 4 = 32801. The fourth
 * takes 128 bytes of which 64 are free, so it is issued at 32802. However far the kernel runs
 * ahead.
 */
static void the_pe_cpu_waits_for_bytes(void **state)
{
    (void)state;
    for (uint32_t window = 0; window < 4; window++) {
        rig r;
        expect_ok(rig_try_with(&r, one_cube("{ pe_tcm: { capacity_mib: 2, reserved_mib: 1 } }"),
                               (rig_options){.window = window}));
        (void)time_of(&r, one_after_the_other, MIB / 2, MIB);
        assert_int_equal(seen[0], 16414 * KB_NS);
        assert_int_equal(seen[1], 32802 * KB_NS);
        expect_tcm_free(&r);
        rig_fini(&r);
    }
}

/* Three parts of 600 KiB: two do not fit, so each load waits for the one before to be stored. */
KB_KERNEL(one_at_a_time, tl_ptr memory, int64_t n)
{
    for (int i = 0; i < 3; i++) {
        tl_tensor x = tl_load(memory + i * MIB, tl_shape(n), TL_F32);
        tl_store(memory + (8 + i) * MIB, x);
        tl_free(x);
    }
}

/*
 * 614400 bytes take 3000 ns in the slice: 90.1425 + 3000 to load, 83.04 + 3000 to store. The first
 * load is issued at 21; the others when the store before them is done, 1 to issue. All three are in
 * the same place, one after the other, and none is taken for another.
 */
static void the_pe_cpu_waits_for_tcm_that_comes_back(void **state)
{
    (void)state;
    rig r = small_tcm();
    for (int i = 0; i < 3; i++)
        put(&r, (uint64_t)i * MIB, KB_F32, (const double[]){i + 1, i + 2}, 2);
    assert_int_equal(time_of(&r, one_at_a_time, MEMORY, 600 * 256),
                     20 * KB_NS + 3 * (KB_NS + 90142500 + 83040000 + 6000 * KB_NS));
    for (uint64_t i = 0; i < 3; i++)
        expect_numbers(&r, (8 + i) * MIB, KB_F32, (double)i + 1, (double)i + 2, 0);
    expect_tcm_free(&r);
    rig_fini(&r);
}

KB_KERNEL(take_too_much, int64_t n)
{
    tl_full(tl_shape(n), TL_I8, 1);
    tl_full(tl_shape(n), TL_I8, 2);
}

/* The place that is loaded for the call is there until the call is over: nothing comes back. */
KB_KERNEL(take_too_much_of_a_place, tl_ptr memory, int64_t n)
{
    ignore(tl_exp(tl_ref(memory, tl_shape(n), TL_F32)));
}

static void too_much_is_a_fault(void **state)
{
    (void)state;
    rig r = small_tcm();
    expect_fault(&r, take_too_much,
                 "tl_full: out of memory in sip0.cube0.pe0.tcm: 2097152 bytes requested, "
                 "1048576 free (capacity 1048576)",
                 2 * MIB);
    expect_fault(&r, take_too_much,
                 "tl_full: out of memory in sip0.cube0.pe0.tcm: 614400 bytes requested, 434176 "
                 "free (capacity 1048576); values of this kernel hold 614400 bytes: release "
                 "them with tl_free or TL_SCOPE",
                 600 << 10);
    expect_fault(&r, take_too_much_of_a_place,
                 "tl_exp: out of memory in sip0.cube0.pe0.tcm: 614400 bytes requested, 434176 "
                 "free (capacity 1048576); values of this kernel hold 614400 bytes: release "
                 "them with tl_free or TL_SCOPE",
                 MEMORY, 150 << 10);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* ---- Scopes ------------------------------------------------------------------------------ */

static uint64_t leave_by_return(tl_context *tl)
{
    TL_SCOPE {
        tl_wait(tl_full(tl_shape(100), TL_I8, 1));
        TL_SCOPE {
            tl_wait(tl_full(tl_shape(10), TL_I8, 1));
            return held();
        }
    }
    return 0;
}

KB_KERNEL(scopes, int n)
{
    tl_wait(tl_full(tl_shape(n), TL_I8, 1));
    TL_SCOPE {
        tl_wait(tl_full(tl_shape(n), TL_I8, 1));
        TL_SCOPE {
            tl_wait(tl_full(tl_shape(n), TL_I8, 1));
            assert_int_equal(held(), 3 * n);
        }
        assert_int_equal(held(), 2 * n);
    }
    assert_int_equal(held(), n);
    for (int i = 0; i < 3; i++)
        TL_SCOPE {
            tl_wait(tl_full(tl_shape(n), TL_I8, 1));
            if (i == 1)
                break; /* out of the scope */
            assert_int_equal(held(), 2 * n);
        }
    assert_int_equal(held(), n);
    assert_int_equal(leave_by_return(tl), n + 128 + 64);
    assert_int_equal(held(), n);
    TL_SCOPE {
        tl_wait(tl_full(tl_shape(n), TL_I8, 1));
        goto out;
    }
out:
    assert_int_equal(held(), n);
}

static void scopes_free_what_was_made_in_them(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    (void)watch(&r, scopes, 64);
    rig_fini(&r);
}

/* The sum of `times` times x, in a place at a time; and what else lives as long. */
KB_KERNEL(sum_up, tl_ptr memory, int times)
{
    tl_tensor sum = {0}, first = {0}, number = tl_scalar(5);
    TL_SCOPE {
        tl_tensor kept = tl_zeros(tl_shape(64), TL_F32);
        for (int i = 0; i < times; i++)
            TL_SCOPE {
                tl_tensor x = tl_load(memory, tl_shape(64), TL_F32);
                tl_assign(&kept, tl_add(kept, x));
                if (i == 0)
                    tl_assign(&first, x);
                tl_assign(&first, first);
                tl_wait(kept);
                assert_true(held() <= 4 * 256);
            }
        tl_assign(&sum, kept);
        tl_assign(&number, tl_scalar(6));
        tl_assign(&number, tl_full(tl_shape(1), TL_F32, 7));
    }
    tl_store(memory + OUT, sum);
    tl_store(memory + OUT + 256, number);
}

static void what_is_assigned_survives(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    put_sequence(&r, 0, KB_F32, 64);
    (void)watch(&r, sum_up, MEMORY, 10);
    expect_numbers(&r, OUT, KB_F32, 0, 10, 20, 30);
    expect_numbers(&r, OUT + 256, KB_F32, 7);
    rig_fini(&r);
}

/* The result of a product with .acc is where acc was, and lives as long. */
KB_KERNEL(accumulate, tl_ptr memory)
{
    tl_tensor acc = tl_zeros(tl_shape(4, 4), TL_F32);
    for (int i = 0; i < 3; i++)
        TL_SCOPE {
            tl_tensor one = tl_full(tl_shape(4, 4), TL_F16, 1);
            if (i == 1)
                tl_assign(&acc, tl_dot(one, one, .acc = acc)); /* the same, in more words */
            else
                acc = tl_dot(one, one, .acc = acc);
            tl_wait(acc);
            assert_int_equal(held(), 64 + 64); /* 32 bytes of the second */
        }
    assert_int_equal(held(), 64);
    tl_store(memory + OUT, acc);
}

static void acc_is_taken_over(void **state)
{
    (void)state;
    rig r = small_tcm_in_step();
    (void)watch(&r, accumulate, MEMORY);
    expect_numbers(&r, OUT, KB_F32, 12, 12);
    rig_fini(&r);
}

/* ---- Looking at values ------------------------------------------------------------------- */

/* Collatz, by a kernel that branches on what it loads. */
KB_KERNEL(count_steps, tl_ptr memory)
{
    int steps = 0;
    tl_store(memory + OUT, tl_load(memory, tl_shape(1), TL_I32));
    for (;; steps++)
        TL_SCOPE {
            tl_tensor x = tl_load(memory + OUT, tl_shape(1), TL_I32);
            int n = (int)tl_item(x);
            if (n == 1) {
                tl_store(memory + OUT + 4, tl_full(tl_shape(1), TL_I32, steps));
                return;
            }
            tl_store(memory + OUT, n % 2 ? tl_add(tl_mul(x, 3), 1) : tl_div(x, 2));
        }
}

static void a_kernel_may_branch_on_data(void **state)
{
    (void)state;
    rig r = small_tcm();
    put(&r, 0, KB_I32, (const double[]){27}, 1);
    (void)time_of(&r, count_steps, MEMORY);
    expect_numbers(&r, OUT + 4, KB_I32, 111);
    rig_fini(&r);
}

KB_KERNEL(look, tl_ptr memory)
{
    assert_true(tl_item(tl_full(tl_shape(1, 1), TL_F16, 0.5)) == 0.5);
    assert_true(tl_item(tl_scalar(4)) == 4);
    assert_true(tl_item(tl_ref(memory, tl_shape(), TL_F32)) == 3);
    tl_tensor x = tl_load(memory, tl_shape(1), TL_F32);
    kb_time before = tl_now();
    assert_true(tl_item(x) == 3);
    assert_true(tl_now() > before);
    before = tl_now();
    assert_true(tl_item(x) == 3);
    assert_true(tl_now() == before);
}

static void items_are_waited_for(void **state)
{
    (void)state;
    rig r = small_tcm();
    put(&r, 0, KB_F32, (const double[]){3}, 1);
    (void)time_of(&r, look, MEMORY);
    rig_fini(&r);
}

KB_KERNEL(wait_for_all, tl_ptr memory)
{
    tl_tensor x = tl_load(memory, tl_shape(64), TL_F32);
    tl_wait(x);
    assert_int_equal(tl_now(), 21 * KB_NS + 90142500 + 1250000);
    tl_future stored = tl_store(memory, x);
    tl_wait(stored);
    assert_int_equal(tl_now(), 22 * KB_NS + 90142500 + 83040000 + 2500000);
    tl_wait(stored);
    tl_wait((tl_future){0});
    tl_wait(tl_scalar(1));
    tl_wait(x);
    assert_int_equal(tl_now(), 22 * KB_NS + 90142500 + 83040000 + 2500000);
}

static void waiting_takes_as_long_as_it_takes(void **state)
{
    (void)state;
    rig r = small_tcm();
    (void)time_of(&r, wait_for_all, MEMORY);
    rig_fini(&r);
}

/* ---- Queues ------------------------------------------------------------------------------ */

KB_KERNEL(issue_many, tl_ptr memory, int count)
{
    tl_tensor x = tl_full(tl_shape(6400), TL_F16, 1);
    for (int i = 0; i < count; i++)
        tl_free(tl_neg(x));
    tl_store(memory, tl_full(tl_shape(1), TL_F32, kb_to_ns(tl_now())));
}

/*
 * An operation on 6400 elements takes 104. The queue holds 4 that have not begun: the first of
 * these is issued at 21 and begins, 4 more wait at 25, and the fifth of them, issued at 26, enters
 * when the second begins, at 125; then one every 104. With 6 negations, those are issued at 22 ..
 * 25, at 125 and at 229.
 */
static void the_pe_cpu_waits_while_a_queue_is_full(void **state)
{
    (void)state;
    rig r = rig_make(one_cube("{ pe_cpu: { queue_depth: 4 } }"), false);
    (void)time_of(&r, issue_many, MEMORY, 6);
    expect_numbers(&r, 0, KB_F32, 229);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_hold_their_bytes_until_they_are_freed),
        cmocka_unit_test(what_is_reshaped_shares_a_place),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(what_is_gone_leaves_no_hole),
        cmocka_unit_test(a_value_fits_if_its_bytes_fit),
        cmocka_unit_test(the_pe_cpu_waits_for_bytes),
        cmocka_unit_test(the_pe_cpu_waits_for_tcm_that_comes_back),
        cmocka_unit_test(too_much_is_a_fault),
        cmocka_unit_test(scopes_free_what_was_made_in_them),
        cmocka_unit_test(what_is_assigned_survives),
        cmocka_unit_test(acc_is_taken_over),
        cmocka_unit_test(a_kernel_may_branch_on_data),
        cmocka_unit_test(items_are_waited_for),
        cmocka_unit_test(waiting_takes_as_long_as_it_takes),
        cmocka_unit_test(the_pe_cpu_waits_while_a_queue_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
