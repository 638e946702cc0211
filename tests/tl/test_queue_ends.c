/*
 * test_queue_ends.c: kernels with queues that end early, by a mistake or because others end them,
 * and those that would wait for ever.
 */
#include "queue_rig.h"

enum { OUT = 1 << 20 };

/* ---- Mistakes ---- */

static int line; /* that is to be named */

/* "kernel 'name' on sip0.cube0.peN at T ns, test_queue_ends.c:LINE: text" */
static void expect_said(kb_error *err, const char *kernel, uint32_t pe, const char *when,
                        const char *text)
{
    char expected[400];
    snprintf(expected, sizeof expected,
             "kernel '%s' on sip0.cube0.pe%u at %s ns, test_queue_ends.c:%d: %s", kernel, pe, when,
             line, text);
    expect_error(err, KB_ERR_FAULT, expected);
}

KB_KERNEL(mistaken, tl_ptr memory, int which)
{
    const char *from = NULL;
    tl_tensor x = tl_full(tl_shape(1), TL_F32, 1);
    switch (which) {
    case 0:
        tl_send("N", x);
        break;
    case 1:
        tl_send("down", x);
        break;
    case 2:
        ignore(tl_recv("up", tl_shape(1), TL_F32));
        break;
    case 3:
        tl_send(TL_ANY, x);
        break;
    case 4:
        tl_send("up", tl_scalar(1));
        break;
    case 5:
        ignore(tl_recv_async("down", tl_shape(1), TL_F32, .from = &from));
        break;
    case 6:
        ignore(tl_recv("down", tl_shape(-1), TL_F32));
        break;
    case 7:
        ignore(tl_recv("down", tl_shape(1 << 22), TL_F32));
        break;
    case 8:
        ignore(tl_recv(TL_ANY, tl_shape(4), TL_F32, .dst = memory - 4096));
        break;
    default:
        ignore(tl_recv("", tl_shape(1), (kb_dtype)99));
    }
}

static const char *const mistakes[] = {
    "tl_send: invalid direction 'N' on this PE: expected up, down",
    "tl_send: cannot send in direction 'down': it is receive-only",
    "tl_recv: cannot receive from direction 'up': it is send-only",
    "tl_send: TL_ANY is for receiving only: name a direction",
    "tl_send: a plain number has no shape: make it a tensor with tl_full",
    "tl_recv_async: the direction is not known yet: use tl_recv with .from",
    "tl_recv: shape (-1) has a negative dimension",
    "tl_recv: out of memory in sip0.cube0.pe0.tcm: 16777216 bytes requested, ",
    "tl_recv: the MMU",
    "tl_recv: invalid dtype 99",
};

static void mistakes_are_told(void **state)
{
    (void)state;
    rig r = rig_default();
    const ipcq_edge one_way[] = {{pe_at(0), "up", pe_at(1)}, {pe_at(2), "down", pe_at(0)}};
    expect_ok(connect_try(&r, one_way, 2, &small_slots));
    uint64_t before = tcm_free_at(&r, 0);
    for (int which = 0; which < 10; which++) {
        ending e = run(&r, mistaken, MEMORY, which);
        assert_int_equal(kb_error_code(e.err), KB_ERR_FAULT);
        const char *said = strstr(kb_error_message(e.err), "tl_");
        assert_non_null(said);
        if (strncmp(said, mistakes[which], strlen(mistakes[which])) != 0)
            fail_msg("'%s' is not '%s'", said, mistakes[which]);
        kb_error_free(e.err);
        assert_int_equal(tcm_free_at(&r, 0), before);
    }
    rig_fini(&r);
}

KB_KERNEL(lonely, tl_ptr memory, int which)
{
    (void)memory;
    if (which == 0)
        tl_send("E", tl_full(tl_shape(1), TL_F32, 1));
    else
        ignore(tl_recv(which == 1 ? "E" : TL_ANY, tl_shape(1), TL_F32));
}

static void kernels_without_queues_cannot_use_them(void **state)
{
    (void)state;
    rig r = rig_default();
    expect_fault(&r, lonely,
                 "tl_send: no queues are installed in this PE: kb_queues_create() and "
                 "kb_queues_install() give an ordinary launch its directions",
                 MEMORY, 0);
    for (int which = 1; which < 3; which++)
        expect_fault(&r, lonely,
                     "tl_recv: no queues are installed in this PE: kb_queues_create() and "
                     "kb_queues_install() give an ordinary launch its directions",
                     MEMORY, which);
    const ipcq_edge others[] = {{pe_at(1), "E", pe_at(2)}};
    expect_ok(connect_try(&r, others, 1, &small_slots));
    expect_fault(&r, lonely, "tl_send: invalid direction 'E': this PE has no queues", MEMORY, 0);
    expect_fault(&r, lonely, "tl_recv: this PE has no directions to receive from", MEMORY, 2);
    rig_fini(&r);
}

/* ---- What arrives is something else ---- */

KB_KERNEL(disagree, tl_ptr memory, int late, int async, int to_memory, int dtype)
{
    if (tl_program_id(0) == 0) {
        tl_send("E", tl_full(tl_shape(16), TL_F32, 1));
        return;
    }
    if (late) /* the message is there */
        tl_wait(tl_load(memory, tl_shape(100), TL_F32));
    tl_ptr dst = to_memory ? memory + OUT : 0;
    if (!async) {
        line = __LINE__ + 1;
        ignore(tl_recv("W", tl_shape(8), (kb_dtype)dtype, .dst = dst));
        return;
    }
    for (int i = 0; i < 2; i++) {
        line = __LINE__ + 1; /* though the kernel is elsewhere when the message comes */
        tl_tensor x = tl_recv_async("W", tl_shape(4, 4), (kb_dtype)dtype, .dst = dst);
        tl_store(memory + OUT + 4096, tl_add(x, 1));
        tl_wait(x);
    }
}

static void what_disagrees_is_told(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        bool late = i & 1, async = i & 2, to_memory = i & 4, timing_only = i & 8;
        ipcq_settings settings = small_slots;
        settings.buffer = i & 16 ? KB_HBM : KB_TCM;
        rig r = ring_with(2, &settings, (rig_options){.timing_only = timing_only});
        uint64_t before = tcm_free_at(&r, 1);
        const tl_arg args[] = {MEMORY, late, async, to_memory, TL_F16};
        ending ends[2];
        expect_ok(run_on(&r, 2, &disagree, args, ends));
        expect_ok(ends[0].err);
        assert_int_equal(kb_error_code(ends[1].err), KB_ERR_FAULT);
        char expected[200];
        snprintf(expected, sizeof expected,
                 " ns, test_queue_ends.c:%d: tl_recv%s: expected %s f16, but sip0.cube0.pe0 sent "
                 "(16) f32 in direction E",
                 line, async ? "_async" : "", async ? "(4, 4)" : "(8)");
        const char *said = strstr(kb_error_message(ends[1].err), " ns, ");
        assert_string_equal(said, expected);
        kb_error_free(ends[1].err);
        assert_int_equal(tcm_free_at(&r, 1), before);
        if (!timing_only) /* nothing was made of what never came, and nothing stored */
            assert_true(number_at(&r, 1, OUT + (to_memory ? 0 : 4096), KB_F16) == 0);
        rig_fini(&r);
    }
}

/* When: tl_full() takes until 26, and 64 bytes arrive at 26 + 11.25. */
static void a_disagreement_is_told_when_the_message_comes(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    ending ends[2];
    expect_ok(run_on(&r, 2, &disagree, (const tl_arg[]){MEMORY, 0, 1, 0, TL_F32}, ends));
    expect_said(ends[1].err, "disagree", 1, "37.250",
                "tl_recv_async: expected (4, 4) f32, but sip0.cube0.pe0 sent (16) f32 in direction "
                "E");
    rig_fini(&r);
}

/* ---- A fault while something is to be received ---- */

KB_KERNEL(fault_with_receives, tl_ptr memory)
{
    tl_tensor x = tl_recv_async("W", tl_shape(8), TL_F32);
    tl_tensor y = tl_recv_async(TL_ANY, tl_shape(8), TL_F32, .dst = memory + OUT);
    tl_tensor sum = tl_add(x, 1);
    tl_store(memory + OUT + 512, sum);
    tl_send("E", tl_mul(sum, 2));
    tl_store(memory + OUT + 1024, y);
    ignore(tl_add(tl_arange(0, 3), tl_arange(0, 4)));
}

KB_KERNEL(use_what_comes, tl_ptr memory, int looks)
{
    if (tl_program_id(0) == 0) {
        tl_store(memory + OUT, tl_full(tl_shape(1), TL_F32, 6));
        tl_tensor x = tl_recv("W", tl_shape(8), TL_F32);
        tl_store(memory + OUT, tl_sum(tl_add(x, 1), 0));
        if (looks)
            (void)tl_item(tl_sum(x, 0));
        return;
    }
    tl_send("E", tl_recv_async("W", tl_shape(8), TL_F32));
    ignore(tl_reshape(tl_arange(0, 3), tl_shape(4)));
}

/* All that was issued ends, without numbers where there can be none, also at others. */
static void a_fault_withdraws_what_was_to_be_received(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    uint64_t before = tcm_free_at(&r, 0);
    ending e = run(&r, fault_with_receives, MEMORY);
    assert_non_null(strstr(kb_error_message(e.err), "tl_add: shapes (3) and (4)"));
    kb_error_free(e.err);
    assert_true(number_at(&r, 0, OUT + 512, KB_F32) == 0);
    assert_int_equal(tcm_free_at(&r, 0), before);
    kb_text text = KB_TEXT_INIT;
    assert_false(ipcq_print_waits(r.queues, &text));
    kb_text_fini(&text);
    ipcq_set_reset(r.set);

    for (int looks = 0; looks < 2; looks++) {
        ending ends[2];
        expect_ok(run_on(&r, 2, &use_what_comes, (const tl_arg[]){MEMORY, looks}, ends));
        assert_non_null(strstr(kb_error_message(ends[1].err), "tl_reshape: "));
        if (looks)
            assert_non_null(strstr(kb_error_message(ends[0].err),
                                   "tl_item: the value was never computed: its kernel was "
                                   "stopped"));
        else
            expect_ok(ends[0].err);
        kb_error_free(ends[0].err);
        kb_error_free(ends[1].err);
        assert_true(number_at(&r, 0, OUT, KB_F32) == 6); /* nothing was stored over it */
        ipcq_set_reset(r.set);
    }
    rig_fini(&r);
}

/* ---- Being ended by others ---- */

/* Each PE waits somewhere else. */
KB_KERNEL(wait_somewhere, tl_ptr memory)
{
    tl_tensor x = tl_full(tl_shape(64), TL_F32, 1);
    switch (tl_program_id(0)) {
    case 0: /* a message */
        ignore(tl_recv("W", tl_shape(8), TL_F32));
        break;
    case 1: /* a credit, in the middle of a message */
        tl_send("E", tl_full(tl_shape(64 * 10), TL_F32, 1));
        break;
    case 2: /* an engine that waits for what is to come */
        tl_wait(tl_add(tl_recv_async("E", tl_shape(64), TL_F32), x));
        break;
    case 3: /* it has returned, but what it receives is to be stored */
        ignore(tl_recv_async(TL_ANY, tl_shape(8), TL_F32, .dst = memory + OUT));
        break;
    case 4: /* room in a queue */
        for (int i = 0; i < 40; i++)
            tl_store(memory + OUT + 4096 * i, tl_recv_async("W", tl_shape(8), TL_F32));
        break;
    case 5: /* room in the TCM */
        tl_free(tl_recv_async("W", tl_shape(2 << 20), TL_F32));
        ignore(tl_zeros(tl_shape(2 << 20), TL_F32));
        break;
    case 6: /* room in a queue, with a slot in hand */
        tl_send("W", tl_recv_async("E", tl_shape(64), TL_F32));
        for (int i = 0; i < 20; i++)
            tl_store(memory + OUT + 4096 * i, x);
        break;
    default: /* nothing: it computes on */
        for (int i = 0; i < 1000; i++)
            tl_assign(&x, tl_add(x, 1));
        tl_store(memory + OUT, x);
    }
}

typedef struct stopper {
    rig *r;
    int ended;
} stopper;

static void stop_all(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    const stopper *s = self;
    kb_error *why = kb_error_new(KB_ERR_FAULT, "a worker has failed");
    tl_runner_abort(s->r->runner, arg, why);
    kb_error_free(why);
}

static void kernels_can_be_ended_wherever_they_wait(void **state)
{
    (void)state;
    for (kb_time when = 5 * KB_NS; when < 600 * KB_NS; when += 29 * KB_NS) {
        ipcq_settings settings = small_slots;
        settings.buffer = when % 2 ? KB_HBM : KB_TCM;
        rig r = ring_of(8, &settings);
        uint64_t before[8];
        stopper s = {.r = &r};
        kb_handler handler;
        kb_source source = kb_source_make(1);
        expect_ok(kb_sim_add_handler(r.sim, stop_all, &s, &handler));
        (void)kb_sim_at(r.sim, &source, when, handler, 1);
        ending ends[8], queued[8];
        const tl_arg args[] = {MEMORY};
        for (uint32_t i = 0; i < 8; i++) {
            before[i] = tcm_free_at(&r, i);
            expect_ok(start_on(&r, pe_at(i), &wait_somewhere, args, &ends[i]));
            expect_ok(start_on(&r, pe_at(i), &wait_somewhere, args, &queued[i]));
        }
        expect_ok(kb_sim_run(r.sim, KB_FOREVER));
        for (uint32_t i = 0; i < 8; i++) {
            assert_int_equal(ends[i].done + queued[i].done, 2);
            expect_error(ends[i].err, KB_ERR_FAULT, "a worker has failed");
            expect_error(queued[i].err, KB_ERR_FAULT, "a worker has failed");
            assert_int_equal(queued[i].outcome.end, when);
            kb_split_time split = kb_split_causes(ends[i].outcome.causes);
            assert_int_equal(split.compute + split.memory + split.communication + split.idle,
                             ends[i].outcome.end - ends[i].outcome.start);
            assert_int_equal(tcm_free_at(&r, i), before[i]);
        }
        kb_text text = KB_TEXT_INIT;
        assert_false(ipcq_print_waits(r.queues, &text));
        kb_text_fini(&text);
        rig_fini(&r);
    }
}

KB_KERNEL(around, tl_ptr memory)
{
    tl_tensor x = tl_recv_async("W", tl_shape(64), TL_F32);
    tl_send("E", tl_full(tl_shape(64), TL_F32, (double)tl_program_id(0)));
    tl_store(memory + OUT, x);
}

/* The PEs are as if nothing had been: the same kernel takes the same time as on a new machine. */
static void pes_can_be_used_after_their_kernels_were_ended(void **state)
{
    (void)state;
    rig fresh = ring_of(8, &small_slots);
    ending expected[8], ends[8];
    const tl_arg args[] = {MEMORY};
    expect_ok(run_on(&fresh, 8, &around, args, expected));
    rig_fini(&fresh);

    rig r = ring_of(8, &small_slots);
    for (uint32_t i = 0; i < 8; i++)
        expect_ok(start_on(&r, pe_at(i), &wait_somewhere, args, &ends[i]));
    stopper s = {.r = &r};
    kb_handler handler;
    kb_source source = kb_source_make(1);
    expect_ok(kb_sim_add_handler(r.sim, stop_all, &s, &handler));
    (void)kb_sim_at(r.sim, &source, 100 * KB_NS, handler, 1);
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (uint32_t i = 0; i < 8; i++)
        kb_error_free(ends[i].err);
    ipcq_set_reset(r.set);

    expect_ok(run_on(&r, 8, &around, args, ends));
    for (uint32_t i = 0; i < 8; i++) {
        expect_ok(ends[i].err);
        assert_int_equal(ends[i].outcome.end - ends[i].outcome.start, expected[i].outcome.end);
        assert_memory_equal(ends[i].outcome.busy, expected[i].outcome.busy,
                            sizeof ends[i].outcome.busy);
        assert_memory_equal(ends[i].outcome.causes, expected[i].outcome.causes,
                            sizeof ends[i].outcome.causes);
        assert_true(number_at(&r, i, OUT, KB_F32) == (i + 7) % 8);
    }
    rig_fini(&r);
}

/* Kernels of other launches stay. */
static void only_kernels_of_the_launch_are_ended(void **state)
{
    (void)state;
    rig r = ring_of(2, &small_slots);
    ending ends[2];
    const tl_arg args[] = {MEMORY};
    for (uint32_t i = 0; i < 2; i++)
        expect_ok(start_on(&r, pe_at(i), &around, args, &ends[i]));
    kb_error *why = kb_error_new(KB_ERR_FAULT, "no");
    tl_runner_abort(r.runner, 2, why);
    kb_error_free(why);
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (int i = 0; i < 2; i++)
        expect_ok(ends[i].err);
    rig_fini(&r);
}

/* ---- Waiting for ever ---- */

KB_KERNEL(both_receive, tl_ptr memory)
{
    line = __LINE__ + 1;
    tl_tensor x = tl_recv("W", tl_shape(8), TL_F32);
    tl_send("E", tl_full(tl_shape(8), TL_F32, 1));
    tl_store(memory + OUT, x);
}

KB_KERNEL(both_send, tl_ptr memory, int n)
{
    (void)memory;
    line = __LINE__ + 1;
    tl_send("E", tl_full(tl_shape(n), TL_F32, 1));
    ignore(tl_recv("W", tl_shape(n), TL_F32));
}

static KB_PRINTF(2, 3) void expect_line(const char *text, const char *format, ...)
{
    char part[200];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    if (!strstr(text, part))
        fail_msg("there is no '%s' in\n%s", part, text);
}

static void kernels_that_wait_for_each_other_are_found(void **state)
{
    (void)state;
    rig r = ring_of(3, &small_slots);
    ending ends[3];
    kb_error *err = run_on(&r, 3, &both_receive, (const tl_arg[]){MEMORY}, ends);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    expect_line(kb_error_detail(err),
                "both_receive on sip0.cube0.pe2 waits for a message from another PE");
    kb_error_free(err);
    kb_text text = KB_TEXT_INIT;
    assert_true(ipcq_print_waits(r.queues, &text));
    const char *said = kb_text_peek(&text);
    for (uint32_t i = 0; i < 3; i++) {
        expect_line(said, "sip0.cube0.pe%u", i);
        expect_line(said, "test_queue_ends.c:%d", line);
    }
    expect_line(said, "cycle: sip0.cube0.pe0 (W) > sip0.cube0.pe2 (W) > sip0.cube0.pe1 (W) > "
                      "sip0.cube0.pe0");
    kb_text_fini(&text);
    rig_fini(&r);
}

/* Messages larger than the ring: nobody begins to receive. Also when they poll. */
static void senders_that_wait_for_each_other_are_found(void **state)
{
    (void)state;
    for (int polls = 0; polls < 2; polls++) {
        ipcq_settings settings = small_slots;
        settings.polls = polls;
        rig r = ring_of(2, &settings);
        ending ends[2];
        kb_error *err = run_on(&r, 2, &both_send, (const tl_arg[]){MEMORY, 64 * 5}, ends);
        assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
        kb_error_free(err);
        kb_text text = KB_TEXT_INIT;
        assert_true(ipcq_print_waits(r.queues, &text));
        expect_line(kb_text_peek(&text), "test_queue_ends.c:%d", line);
        expect_line(kb_text_peek(&text),
                    "cycle: sip0.cube0.pe0 (E) > sip0.cube0.pe1 (E) > sip0.cube0.pe0");
        kb_text_fini(&text);
        rig_fini(&r);
        r = ring_of(2, &settings); /* what fits is no deadlock */
        (void)run_all(&r, 2, both_send, MEMORY, 64 * 4);
        rig_fini(&r);
    }
}

typedef struct unfinished {
    uint64_t credits, messages, kernels;
} unfinished;

static void count_unfinished(void *self, const kb_op *op)
{
    unfinished *seen = self;
    if (!op->unfinished)
        return;
    if (strcmp(op->name, "kernel") == 0) {
        seen->kernels++;
        return;
    }
    bool for_credit = strcmp(op->name, "await credit") == 0;
    assert_string_equal(op->direction, for_credit ? "E" : "W");
    assert_true(op->start < op->end || !for_credit);
    seen->credits += for_credit;
    seen->messages += strcmp(op->name, "recv") == 0;
}

KB_KERNEL(wait_for_west, tl_ptr memory)
{
    tl_store(memory, tl_recv("W", tl_shape(4), TL_F32));
}

/* A deadlock: whoever watches the log is told what kernels waited for, and so if they are aborted.
 */
static void what_kernels_wait_for_is_shown_in_the_end(void **state)
{
    (void)state;
    for (int aborted = 0; aborted < 2; aborted++)
        for (int receiving = 0; receiving < 2; receiving++) {
            rig r = ring_of(2, &small_slots);
            unfinished seen = {0};
            ending ends[2] = {{0}};
            kb_oplog_watch(r.log, count_unfinished, &seen);
            kb_error *err = run_on(&r, 2, receiving ? &wait_for_west : &both_send,
                                   (const tl_arg[]){MEMORY, 64 * 5}, ends);
            assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
            if (aborted)
                tl_runner_abort(r.runner, 1, err);
            else
                tl_runner_show_unfinished(r.runner);
            kb_error_free(err);
            assert_int_equal(seen.kernels, aborted ? 0 : 2); /* those that are aborted end */
            assert_int_equal(seen.credits, receiving ? 0 : 2);
            assert_int_equal(seen.messages, receiving ? 2 : 0);
            for (int i = 0; i < 2; i++)
                kb_error_free(ends[i].err);
            kb_oplog_watch(r.log, NULL, NULL);
            rig_fini(&r);
        }
}

/* Wherever they are, kernels with queues can be given up. */
static void runs_can_be_abandoned_at_any_time(void **state)
{
    (void)state;
    const tl_arg args[] = {MEMORY};
    for (kb_time until = 5 * KB_NS; until < 400 * KB_NS; until += 29 * KB_NS)
        for (int hbm = 0; hbm < 2; hbm++) {
            ipcq_settings settings = small_slots;
            settings.buffer = hbm ? KB_HBM : KB_TCM;
            rig r = ring_of(8, &settings);
            ending ends[8];
            for (uint32_t i = 0; i < 8; i++)
                expect_ok(start_on(&r, pe_at(i), &wait_somewhere, args, &ends[i]));
            expect_ok(kb_sim_run(r.sim, until));
            rig_fini(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(what_kernels_wait_for_is_shown_in_the_end),
        cmocka_unit_test(kernels_without_queues_cannot_use_them),
        cmocka_unit_test(what_disagrees_is_told),
        cmocka_unit_test(a_disagreement_is_told_when_the_message_comes),
        cmocka_unit_test(a_fault_withdraws_what_was_to_be_received),
        cmocka_unit_test(kernels_can_be_ended_wherever_they_wait),
        cmocka_unit_test(pes_can_be_used_after_their_kernels_were_ended),
        cmocka_unit_test(only_kernels_of_the_launch_are_ended),
        cmocka_unit_test(kernels_that_wait_for_each_other_are_found),
        cmocka_unit_test(senders_that_wait_for_each_other_are_found),
        cmocka_unit_test(runs_can_be_abandoned_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
