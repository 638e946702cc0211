/* test_ipcq_alloc.c: every allocation may fail, and then nothing is left behind and nothing is
 * lost. */
#include "ipcq_rig.h"

#include "support/failing_alloc.h"

static topo_machine *machine;
static kb_memory buffer;

static void ignore(void *self, const kb_op *op)
{
    (void)self;
    (void)op;
}

/* Only messages and the log need memory here; without any for the log the run fails. */
static kb_error *exchange(rig *r)
{
    ipcq_end *east = end_of(r, 0, "E");
    for (int i = 0; i < 3; i++) {
        ipcq_message *message = ipcq_message_new(east, 1);
        if (!message)
            return kb_error_nomem();
        assert_true(has_credit(r, east));
        send_next(message);
        assert_true(take_now(r, end_of(r, 1, "W")));
        KB_TRY(kb_sim_run(r->sim, kb_sim_now(r->sim) + KB_US));
    }
    return NULL;
}

/* Reports say what they can. */
static void look(rig *r)
{
    taker a = taker_of(r, 0, end_of(r, 0, "W")), b = taker_of(r, 1, end_of(r, 1, "E"));
    kb_text text = KB_TEXT_INIT;
    post(&a);
    post(&b);
    assert_true(ipcq_print_waits(r->queues, &text));
    ipcq_print_pointers(r->set, &text);
    kb_text_fini(&text);
    kb_error *err = ipcq_explain_deadlock(r->queues, kb_error_new(KB_ERR_DEADLOCK, "stuck"));
    assert_non_null(err);
    kb_error_free(err);
    ipcq_withdraw(&a.receive);
    ipcq_withdraw(&b.receive);
}

static kb_error *use(rig *r)
{
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.buffer = buffer;
    settings.n_slots = 1;
    KB_TRY(rig_try(r, machine, false));
    kb_oplog_watch(r->log, ignore, NULL);
    kb_error *err = try_set(r, edges, 4, &settings, &r->set);
    if (err) { /* nothing is reserved */
        mem_stats stats = mem_memories_get_stats(r->memories, pe(1), buffer);
        assert_int_equal(stats.free, stats.capacity);
        return err;
    }
    for (uint32_t n = 0; n < 2; n++) {
        size_t count;
        err = ipcq_install(r->set, pe(n));
        assert_int_equal(ipcq_set_members(r->set, &count)[n].installed, !err);
        KB_TRY(err);
    }
    look(r);
    return exchange(r);
}

static void try_it(void)
{
    rig r = {0};
    kb_error *err = use(&r);
    assert_int_equal(kb_error_code(err), err ? KB_ERR_HOST : KB_OK);
    kb_error_free(err);
    r.machine = NULL; /* for the next time */
    rig_fini(&r);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    machine = one_router(2);
    for (int m = KB_HBM; m <= KB_SRAM; m++) {
        buffer = (kb_memory)m;
        failing_alloc_try_all(try_it);
    }
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
