/*
 * test_instant.c: runs without time: the same numbers, the same mistakes, no units, and no kernel
 * that waits although it would not with units.
 */
#include "queue_rig.h"

enum { X = 0, Y = 1 << 16, OUT = 1 << 20 };

static const ipcq_settings no_rings = {.buffer = KB_TCM};
static const rig_options instant = {.instant = true};

static rig instant_rig(void)
{
    rig r;
    expect_ok(rig_try_with(&r, one_cube(NULL), instant));
    return r;
}

/* ---- Numbers ---- */

KB_KERNEL(everything, tl_ptr memory, int n)
{
    tl_tensor a = tl_load(memory + X, tl_shape(n, n), TL_F32);
    tl_tensor row = tl_reshape(tl_arange(0, n), tl_shape(n, 1));
    tl_tensor b = tl_load(memory + Y, tl_shape(n, n), TL_F32, .strides = tl_strides(1, n),
                          .mask = tl_lt(row, n - 2), .other = 0.5);
    tl_composite(TL_GEMM, tl_ref(memory + X, tl_shape(n, n), TL_F32), b,
                 tl_ref(memory + OUT, tl_shape(n, n), TL_F32));
    tl_tensor back = tl_load(memory + OUT, tl_shape(n, n), TL_F32);
    tl_tensor acc = tl_dot(a, b);
    acc = tl_dot(a, a, .acc = acc);
    tl_future stored =
        tl_store(memory + OUT + 4 * n * n, tl_softmax(tl_mul(acc, 0.001), 1), .mask = tl_gt(a, 3));
    tl_wait(stored);
    tl_wait(back);
    if (tl_item(tl_sum(tl_sum(tl_sub(back, tl_dot(a, b)), 0), 1)) == 0)
        tl_store(memory + OUT + 8 * n * n, tl_exp(tl_mul(back, 0.0001)));
    tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, (double)tl_now()));
}

static void numbers_are_those_of_a_run_with_time(void **state)
{
    (void)state;
    enum { SIDE = 16, COUNT = 3 * SIDE * SIDE };
    double numbers[2][COUNT];
    for (int i = 0; i < 2; i++) {
        rig r;
        expect_ok(rig_try_with(&r, one_cube(NULL), (rig_options){.instant = i}));
        put_sequence(&r, X, KB_F32, SIDE * SIDE);
        put_sequence(&r, Y, KB_F32, SIDE * SIDE);
        ending e = run(&r, everything, MEMORY, SIDE);
        expect_ok(e.err);
        if (i == 1) {
            tl_outcome nothing = {0};
            assert_memory_equal(&e.outcome, &nothing, sizeof nothing);
            assert_int_equal(kb_sim_now(r.sim), 0);
            assert_true(get_one(&r, OUT, KB_F32) == 0); /* tl_now() */
        }
        get(&r, OUT, KB_F32, numbers[i], COUNT);
        expect_tcm_free(&r);
        rig_fini(&r);
    }
    for (int i = 1; i < COUNT; i++)
        assert_true(numbers[0][i] == numbers[1][i]);
    assert_true(numbers[0][2 * SIDE * SIDE] > 1);
}

KB_KERNEL(too_much, tl_ptr memory, int n)
{
    (void)memory;
    ignore(tl_zeros(tl_shape(n), TL_F32));
    ignore(tl_zeros(tl_shape(n), TL_F32));
}

static void the_tcm_is_as_small_as_it_is(void **state)
{
    (void)state;
    rig r = instant_rig();
    expect_fault(&r, too_much,
                 "tl_full: out of memory in sip0.cube0.pe0.tcm: 8388608 bytes requested, "
                 "4194304 free (capacity 12582912); values of this kernel hold 8388608 bytes: "
                 "release them with tl_free or TL_SCOPE",
                 MEMORY, 2 << 20);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* ---- What waits for a receive ---- */

/*
 * The operations on what is to come are issued first. Stores and loads of the same bytes keep their
 * order, and so do sends, though some wait and others need not.
 */
KB_KERNEL(in_order, tl_ptr memory)
{
    double me = (double)tl_program_id(0);
    tl_tensor after = tl_full(tl_shape(4), TL_F32, -1);
    tl_tensor last = tl_full(tl_shape(4), TL_F32, 100 + me);
    tl_tensor first = tl_recv_async("W", tl_shape(4), TL_F32);
    tl_tensor aside = tl_recv_async("E", tl_shape(4), TL_F32, .dst = memory + OUT + 2048);
    tl_send("E", tl_full(tl_shape(4), TL_F32, me));
    tl_store(memory + OUT, tl_add(first, 10));
    tl_tensor back = tl_load(memory + OUT, tl_shape(4), TL_F32);
    tl_store(memory + OUT, after);
    tl_tensor elsewhere = tl_load(memory + OUT + 4096, tl_shape(4), TL_F32);
    tl_future passed_on = tl_send("W", tl_mul(back, 2));
    tl_send("W", last);
    tl_tensor third = tl_recv("E", tl_shape(4), TL_F32);
    tl_wait(passed_on);
    tl_wait(elsewhere);
    tl_store(memory + OUT + 512, aside);
    tl_store(memory + OUT + 1024, third);
    tl_store(memory + OUT + 1536, back);
}

static void what_waits_keeps_its_order(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig r = i ? ring_with(4, &no_rings, instant) : ring_of(4, &small_slots);
        (void)run_all(&r, 4, in_order, MEMORY);
        for (uint32_t pe = 0; pe < 4; pe++) {
            uint32_t next = (pe + 1) % 4, before = (pe + 3) % 4;
            assert_true(number_at(&r, pe, OUT, KB_F32) == -1);
            assert_true(number_at(&r, pe, OUT + 512, KB_F32) == 2 * (10 + pe));
            assert_true(number_at(&r, pe, OUT + 2048, KB_F32) == 2 * (10 + pe));
            assert_true(number_at(&r, pe, OUT + 1024, KB_F32) == 100 + next);
            assert_true(number_at(&r, pe, OUT + 1536, KB_F32) == 10 + before);
        }
        rig_fini(&r);
    }
}

/* A product of what is to come, in memory: who reads it, who writes over it. */
KB_KERNEL(product_in_order, tl_ptr memory)
{
    tl_tensor sent = tl_full(tl_shape(4, 4), TL_F32, (double)tl_program_id(0) + 1);
    tl_tensor ones = tl_full(tl_shape(4, 4), TL_F32, 1);
    tl_tensor out = tl_ref(memory + OUT, tl_shape(4, 4), TL_F32);
    tl_tensor x = tl_recv_async("W", tl_shape(4, 4), TL_F32);
    tl_future made = tl_composite(TL_GEMM, x, ones, out);
    tl_composite(TL_GEMM, out, ones, tl_ref(memory + OUT + 256, tl_shape(4, 4), TL_F32));
    tl_send_sync("E", sent);
    tl_store(memory + OUT, ones);
    tl_wait(made);
}

static void products_keep_their_order(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig r = i ? ring_with(4, &no_rings, instant) : ring_of(4, &small_slots);
        (void)run_all(&r, 4, product_in_order, MEMORY);
        for (uint32_t pe = 0; pe < 4; pe++) {
            assert_true(number_at(&r, pe, OUT, KB_F32) == 1);
            assert_true(number_at(&r, pe, OUT + 256, KB_F32) == 16 * ((pe + 3) % 4 + 1));
        }
        rig_fini(&r);
    }
}

KB_KERNEL(long_chain, tl_ptr memory)
{
    int64_t me = tl_program_id(0);
    if (me > 0) {
        tl_tensor x = tl_recv_async("from", tl_shape(1), TL_F32);
        tl_store(memory + OUT, x);
        if (tl_can_send("to"))
            tl_send("to", tl_add(x, 1));
        return;
    }
    /* All others have returned when this goes off. */
    tl_wait(tl_recv_async("wake", tl_shape(1), TL_F32));
    tl_send("to", tl_zeros(tl_shape(1), TL_F32));
}

KB_KERNEL(wake, tl_ptr memory)
{
    (void)memory;
    tl_send("wake", tl_zeros(tl_shape(1), TL_F32));
}

/* What one kernel passes on makes the next pass it on, and so on, through 60 kernels that are over
 * but for that. */
static void messages_run_through_kernels_that_have_returned(void **state)
{
    (void)state;
    enum { PES = 64 };
    rig r;
    expect_ok(
        rig_try_with(&r, one_cube("{ pe_layout: { pe_per_router: 4 }, hbm_gib: 64 }"), instant));
    ipcq_edge edges[2 * PES];
    size_t count = 0;
    for (uint32_t i = 0; i + 2 < PES; i++) {
        edges[count++] = (ipcq_edge){pe_at(i), "to", pe_at(i + 1)};
        edges[count++] = (ipcq_edge){pe_at(i + 1), "from", pe_at(i)};
    }
    edges[count++] = (ipcq_edge){pe_at(PES - 1), "wake", pe_at(0)};
    expect_ok(connect_try(&r, edges, count, &no_rings));
    ending ends[PES];
    const tl_arg args[] = {MEMORY};
    for (uint32_t i = 0; i < PES; i++)
        expect_ok(start_on(&r, pe_at(i), i + 1 < PES ? &long_chain : &wake, args, &ends[i]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (uint32_t i = 0; i < PES; i++) {
        assert_int_equal(ends[i].done, 1);
        expect_ok(ends[i].err);
        if (i > 0 && i + 1 < PES)
            assert_true(number_at(&r, i, OUT, KB_F32) == i - 1);
    }
    rig_fini(&r);
}

KB_KERNEL(place_comes_back, tl_ptr memory, int n)
{
    if (tl_program_id(0) == 0) {
        tl_send("E", tl_full(tl_shape(n), TL_F32, 2));
        return;
    }
    tl_tensor x = tl_recv_async("W", tl_shape(n), TL_F32);
    tl_store(memory + OUT, x);
    tl_free(x);
    tl_store(memory + OUT + 4 * n, tl_full(tl_shape(n), TL_F32, 4)); /* waits for its place */
}

static void a_kernel_waits_for_tcm_that_will_come_back(void **state)
{
    (void)state;
    rig r = ring_with(2, &no_rings, instant);
    uint64_t n = 2 << 20;
    ending ends[2];
    const tl_arg args[] = {MEMORY, (tl_arg)n};
    for (uint32_t i = 2; i-- > 0;) /* the receiver first */
        expect_ok(start_on(&r, pe_at(i), &place_comes_back, args, &ends[i]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (int i = 0; i < 2; i++)
        expect_ok(ends[i].err);
    assert_true(number_at(&r, 1, OUT + 4 * (n - 1), KB_F32) == 2);
    assert_true(number_at(&r, 1, OUT + 8 * n - 4, KB_F32) == 4);
    rig_fini(&r);
}

/* ---- Ends ---- */

KB_KERNEL(disagree, tl_ptr memory, int async, int sends_first)
{
    if (tl_program_id(0) == !sends_first) {
        tl_send("E", tl_zeros(tl_shape(3), TL_F32));
        tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, 1)); /* if it comes to that */
        ignore(tl_recv("W", tl_shape(1), TL_F32));
        return;
    }
    if (!async)
        ignore(tl_recv("W", tl_shape(1), TL_F32));
    tl_tensor x = tl_recv_async("W", tl_shape(1), TL_F32);
    tl_store(memory + OUT, tl_add(x, 1));
    tl_wait(x);
}

/* Ends the whole launch as soon as one kernel of it has failed, as the runtime does. */
typedef struct launch {
    rig *r;
    int done;
    kb_error *errors[2];
} launch;

static void on_done_of_launch(void *self, uint64_t arg, const tl_outcome *outcome, kb_error *err)
{
    (void)outcome;
    launch *l = self;
    l->done++;
    l->errors[arg] = err;
    if (err)
        tl_runner_abort(l->r->runner, 1, err);
}

/* The one that sends may be in the middle of its call when the other fails by it. */
static void a_kernel_that_fails_may_end_the_one_that_made_it_fail(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        rig r = i & 4 ? ring_of(2, &small_slots) : ring_with(2, &no_rings, instant);
        launch l = {.r = &r};
        const tl_arg args[] = {MEMORY, i & 1, (i & 2) != 0};
        for (uint32_t pe = 0; pe < 2; pe++)
            expect_ok(tl_runner_start(r.runner, &(tl_run){.kernel = &disagree,
                                                          .args = args,
                                                          .label = "test",
                                                          .launch = 1,
                                                          .pe = pe_at(pe),
                                                          .programs = {2, 1},
                                                          .queues = r.set,
                                                          .done = on_done_of_launch,
                                                          .self = &l,
                                                          .arg = pe}));
        expect_ok(kb_sim_run(r.sim, KB_FOREVER));
        assert_int_equal(l.done, 2);
        for (int pe = 0; pe < 2; pe++) {
            const char *said = kb_error_message(l.errors[pe]);
            assert_non_null(strstr(said, "expected (1) f32, but sip0.cube0.pe"));
            kb_error_free(l.errors[pe]);
        }
        assert_true(number_at(&r, (i & 2) != 0, OUT, KB_F32) == 0);
        rig_fini(&r);
    }
}

KB_KERNEL(wait_for_each_other, tl_ptr memory, int how)
{
    tl_tensor x = tl_zeros(tl_shape(1), TL_F32);
    if (how == 0) /* in the kernel, in the DMA, or in the vector engine */
        ignore(tl_recv("W", tl_shape(1), TL_F32));
    else if (how == 1)
        tl_store(memory, tl_recv_async("W", tl_shape(1), TL_F32));
    else
        ignore(tl_neg(tl_recv_async("W", tl_shape(1), TL_F32)));
    tl_send("E", how == 2 ? tl_neg(x) : x);
}

static void a_deadlock_is_one_here_too(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        rig r = i < 3 ? ring_with(2, &no_rings, instant) : ring_of(2, &small_slots);
        ending ends[2];
        kb_error *err = run_on(&r, 2, &wait_for_each_other, (const tl_arg[]){MEMORY, i % 3}, ends);
        assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
        kb_error_free(err);
        assert_int_equal(ends[0].done + ends[1].done, 0);
        kb_text text = KB_TEXT_INIT;
        assert_true(ipcq_print_waits(r.queues, &text));
        assert_non_null(strstr(kb_text_peek(&text),
                               "cycle: sip0.cube0.pe0 (W) > sip0.cube0.pe1 (W) > sip0.cube0.pe0"));
        kb_text_fini(&text);
        rig_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_a_run_with_time),
        cmocka_unit_test(the_tcm_is_as_small_as_it_is),
        cmocka_unit_test(what_waits_keeps_its_order),
        cmocka_unit_test(products_keep_their_order),
        cmocka_unit_test(messages_run_through_kernels_that_have_returned),
        cmocka_unit_test(a_kernel_waits_for_tcm_that_will_come_back),
        cmocka_unit_test(a_kernel_that_fails_may_end_the_one_that_made_it_fail),
        cmocka_unit_test(a_deadlock_is_one_here_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
