/*
 * test_tl_alloc.c: whichever allocation of the host fails, a run of kernels ends with that error or
 * without any, and leaves nothing.
 */
#include "queue_rig.h"

#include "support/failing_alloc.h"

enum { X = 0, Y = 1 << 16, OUT = 2 << 16 };

static topo_machine *machine, *two_pes;

KB_KERNEL(everything, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(8, 8), TL_F16, .strides = tl_strides(9, 1));
    tl_tensor limit = tl_lt(tl_arange(0, 8), 5);
    tl_tensor y = tl_load(memory + Y, tl_shape(8, 8), TL_F16, .mask = limit, .other = 1);
    TL_SCOPE {
        tl_tensor z = tl_softmax(tl_add(x, tl_reshape(y, tl_shape(8, 8))), 1);
        tl_store(memory + OUT, z, .mask = tl_gt(z, x));
        tl_free(z);
    }
    TL_SCOPE {
        tl_topk_result top = tl_topk(x, 3, 1);
        tl_tensor parts[2];
        tl_split(y, 1, parts, 2);
        tl_tensor joined = tl_concat(1, parts[0], parts[1], x, parts[0], x, parts[1], y, y);
        tl_store(memory + OUT + 1024, tl_gather(tl_cumsum(joined, 0), top.indices, 1));
        tl_store(memory + OUT + 2048, tl_scatter_add(x, tl_argmax(y, 1), 1, top.values));
        tl_store(memory + OUT + 3072,
                 tl_scatter(tl_slice(x, 0, 1, 8), tl_zeros(tl_shape(7, 1), TL_I32), 1, 2));
    }
    tl_tensor acc = tl_zeros(tl_shape(8, 8), TL_F32);
    acc = tl_dot(x, tl_ref(memory + Y, tl_shape(8, 8), TL_F16), .acc = acc);
    tl_composite(TL_GEMM, tl_ref(memory + X, tl_shape(8, 8), TL_F16), y,
                 tl_ref(memory + OUT + 256, tl_shape(8, 8), TL_F16));
    if (tl_item(tl_sum(tl_sum(acc, 0), 1)) == 0)
        tl_store(memory + OUT + 512, acc);
}

KB_KERNEL(careless, tl_ptr memory)
{
    ignore(tl_add(tl_load(memory, tl_shape(4), TL_F16), tl_arange(0, 5)));
}

KB_KERNEL(talk, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(16), TL_F32);
    tl_tensor posted = tl_recv_async("W", tl_shape(16), TL_F32);
    tl_tensor there = tl_recv_async("W", tl_shape(8), TL_F32, .dst = memory + OUT);
    tl_send_sync("E", x);
    tl_send("E", tl_ref(memory + X, tl_shape(8), TL_F32));
    tl_store(memory + OUT + 512, tl_add(posted, 1));
    tl_store(memory + OUT + 1024, there);
    tl_send("W", tl_arange(0, 4));
    ignore(tl_recv(TL_ANY, tl_shape(4), TL_I32));
    tl_send("E", x);
    ignore(tl_recv("W", tl_shape(2), TL_F32)); /* which is wrong */
}

static kb_error *go(rig *r, const kb_kernel *kernel)
{
    const tl_arg args[] = {MEMORY};
    ending e[2] = {{0}, {0}};
    KB_TRY(start_on(r, pe0, kernel, args, &e[0]));
    KB_TRY(start_on(r, pe0, kernel, args, &e[1]));
    kb_error *err = kb_sim_run(r->sim, KB_FOREVER);
    assert_true(err || (e[0].done && e[1].done));
    for (int i = 0; i < 2; i++)
        if (!err)
            err = e[i].err;
        else
            kb_error_free(e[i].err);
    return err;
}

static void see_op(void *self, const kb_op *op)
{
    (void)self;
    for (size_t i = 0; i < op->access_count; i++)
        assert_string_equal(op->accesses[i].tensor, "memory");
}

static void run_everything_while(bool watched)
{
    rig r;
    kb_error *err = rig_try(&r, machine, false);
    if (!err && watched) {
        kb_oplog_watch(r.log, see_op, NULL);
        kb_oplog_give_ids(r.log);
    }
    if (!err)
        err = go(&r, &everything);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    rig_drop(&r);
}

static void run_everything(void)
{
    run_everything_while(false);
}

static void run_everything_watched(void)
{
    run_everything_while(true);
}

static void run_careless(void)
{
    rig r;
    kb_error *err = rig_try(&r, machine, false);
    if (!err)
        err = go(&r, &careless);
    assert_non_null(err);
    if (kb_error_code(err) != KB_ERR_FAULT)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    rig_drop(&r);
}

static void run_talk(const ipcq_settings *settings, rig_options options)
{
    rig r;
    ending ends[2] = {{0}, {0}};
    kb_error *err = rig_try_with(&r, two_pes, options);
    if (!err)
        err = ring_try(&r, 2, settings);
    if (!err)
        err = run_on(&r, 2, &talk, (const tl_arg[]){MEMORY}, ends);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    else
        assert_true(ends[0].err && ends[1].err);
    kb_error_free(err);
    kb_error_free(ends[0].err);
    kb_error_free(ends[1].err);
    rig_drop(&r);
}

static void run_talk_with_time(void)
{
    run_talk(&(ipcq_settings){.buffer = KB_HBM, .n_slots = 2, .slot_bytes = 32, .credit_bytes = 16},
             (rig_options){0});
}

static void run_talk_without_time(void)
{
    run_talk(&(ipcq_settings){.buffer = KB_TCM}, (rig_options){.instant = true});
}

static void any_allocation_may_fail_between_pes(void **state)
{
    (void)state;
    failing_alloc_try_all(run_talk_with_time);
    failing_alloc_try_all(run_talk_without_time);
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    failing_alloc_try_all(run_everything);
    failing_alloc_try_all(run_everything_watched);
}

static void any_allocation_may_fail_on_the_way_to_a_fault(void **state)
{
    (void)state;
    failing_alloc_try_all(run_careless);
}

static int load_machine(void **state)
{
    (void)state;
    machine = one_cube("{ pe_layout: { pe_per_router: 1 }, noc: { w: 1, h: 1 } }");
    two_pes = one_cube("{ pe_layout: { pe_per_router: 2 }, noc: { w: 1, h: 1 } }");
    return 0;
}

static int unload_machine(void **state)
{
    (void)state;
    topo_machine_destroy(two_pes);
    topo_machine_destroy(machine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(any_allocation_may_fail_on_the_way_to_a_fault),
        cmocka_unit_test(any_allocation_may_fail_between_pes),
    };
    return cmocka_run_group_tests(tests, load_machine, unload_machine);
}
