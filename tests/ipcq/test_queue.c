/*
 * test_queue.c: slots and credits: times by hand, counts far beyond the slots, arrivals in any
 * order, what is reset, and what matches nothing.
 *
 * A credit of 16 bytes between PEs at one router takes 5 + 1 + 5 ns of overhead (pe_dma, router,
 * pe_dma), no wire, and 16 / 256 ns: 11.0625 ns.
 *
 * Checks Q1 and Q2.
 */
#include "ipcq_rig.h"
#include "support/seed.h"

static const kb_time credit_time = 11062500;

/* ---- Credits ----------------------------------------------------------------------------- */

static void a_credit_takes_its_time(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 1;
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "E");
    assert_true(has_credit(&r, east));
    send(&r, east, 4096);
    assert_false(has_credit(&r, east));
    go_to(&r, 5 * KB_NS);
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    go_to(&r, 5 * KB_NS + credit_time - 1);
    assert_false(has_credit(&r, east));
    go_to(&r, 5 * KB_NS + credit_time);
    assert_true(has_credit(&r, east));
    /* Without an event, and in the log. */
    kb_sim_stats stats = kb_sim_get_stats(r.sim);
    assert_int_equal(stats.events + stats.elided + stats.pending, 0);
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 1);
    assert_int_equal(sums[0].unit, KB_UNIT_IPCQ);
    assert_string_equal(sums[0].name, "credit");
    assert_int_equal(sums[0].busy, credit_time);
    assert_int_equal(sums[0].bytes, 16);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), credit_time);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_IPCQ), 0);
    rig_fini(&r);
}

/*
 * From cube to cube: pe_dma, router, ucie, ucie, router, pe_dma are 5 + 1 + 8 + 8 + 1 + 5 ns, the
 * wire between the cubes is 10 mm of 0.01 ns, and 64 bytes take 64 / 256 ns: 28.35 ns.
 */
static void a_credit_from_another_cube_takes_longer(void **state)
{
    (void)state;
    ipcq_edge edges[] = {{{0, 0, 0}, "E", {0, 1, 0}}, {{0, 1, 0}, "W", {0, 0, 0}}};
    ipcq_settings settings = mostly;
    settings.n_slots = 1;
    settings.credit_bytes = 64;
    rig r;
    expect_ok(rig_try(&r,
                      machine_of("system: { sips: { count: 1 } }\n"
                                 "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                                 "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 } }\n"),
                      false));
    expect_ok(try_set(&r, edges, 2, &settings, &r.set));
    expect_ok(install_all(r.set));
    ipcq_end *east = end_of(&r, 0, "E"), *west = ipcq_find(r.set, (kb_pe){0, 1, 0}, "W");
    for (kb_time start = 0; start < 3; start++) {
        kb_time now = kb_sim_now(r.sim);
        send(&r, east, 1);
        assert_true(take_now(&r, west));
        go_to(&r, now + 28350000 - 1);
        assert_false(has_credit(&r, east));
        go_to(&r, now + 28350000);
        assert_true(has_credit(&r, east));
    }
    rig_fini(&r);
}

/* Slots are freed at 0, 0 and 7 ns: there are two credits at 11.0625 and three at 18.0625 ns. */
static void credits_are_counted_however_they_come(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    for (int i = 0; i < 4; i++)
        send(&r, east, 1);
    assert_true(take_now(&r, west) && take_now(&r, west));
    go_to(&r, 7 * KB_NS);
    assert_true(take_now(&r, west));
    go_to(&r, credit_time);
    for (int i = 0; i < 2; i++)
        send(&r, east, 1);
    assert_false(has_credit(&r, east));
    go_to(&r, 7 * KB_NS + credit_time);
    send(&r, east, 1);
    assert_false(has_credit(&r, east));
    /* Three times have come when somebody looks at last. */
    for (int i = 0; i < 4; i++) {
        assert_true(take_now(&r, west));
        go_to(&r, kb_sim_now(r.sim) + KB_NS);
    }
    go_to(&r, KB_US);
    for (int i = 0; i < 4; i++)
        send(&r, east, 1);
    assert_false(has_credit(&r, east));
    rig_fini(&r);
}

/* ---- Ahead of global time ---------------------------------------------------------------- */

/*
 * Two slots. At 5 ns the receiver, whose clock is 50 ns, posts three receives, for 50, 60 and 60
 * ns. Two messages are there: they are received at 50 and 60, and the times of both credits are
 * known at once: 61.0625 and 71.0625 ns. The third message arrives at 80 ns, later than its
 * receive: it is received then.
 */
static void what_is_received_ahead_has_its_credit_then(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 2;
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    kb_time at;
    assert_true(ipcq_credit_at(east, &at));
    send(&r, east, 1);
    send(&r, east, 2);
    assert_false(ipcq_credit_at(east, &at));
    go_to(&r, 5 * KB_NS);
    static const kb_time posted[] = {50 * KB_NS, 60 * KB_NS, 60 * KB_NS};
    taker takers[3];
    for (int i = 0; i < 3; i++) {
        takers[i] = taker_of(&r, 1, west);
        takers[i].receive.posted = posted[i];
        post(&takers[i]);
        assert_int_equal(takers[i].messages, i < 2);
        if (i < 2)
            assert_int_equal(takers[i].receive.when, posted[i]);
    }
    assert_true(ipcq_credit_at(east, &at));
    assert_int_equal(at, 50 * KB_NS + credit_time);
    assert_false(has_credit(&r, east));
    ipcq_segment third = ipcq_take_slot(message_of(east, 3)); /* its time is known: enough */
    assert_true(ipcq_credit_at(east, &at));
    assert_int_equal(at, 60 * KB_NS + credit_time);
    go_to(&r, 80 * KB_NS);
    arrive(&third);
    assert_int_equal(takers[2].receive.when, 80 * KB_NS);
    (void)take_slot(east);
    assert_true(ipcq_credit_at(east, &at));
    assert_int_equal(at, 80 * KB_NS + credit_time);
    rig_fini(&r);
}

/* A slot is freed at 5 ns for 30 ns, as its message is received then: a sender that takes a slot
 * has that credit from 41.0625 ns on. The log has the credit from 30 ns on. */
static void a_slot_may_be_freed_ahead(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    taker t = taker_of(&r, 1, west);
    send(&r, east, 1);
    go_to(&r, 5 * KB_NS);
    t.receive.posted = 30 * KB_NS;
    post(&t);
    assert_int_equal(ipcq_end_info(west).my_tail, 1);
    go_to(&r, 10 * KB_NS);
    (void)take_slot(east); /* a sender that is ahead too */
    assert_int_equal(ipcq_end_info(east).peer_tail_cache, 0);
    go_to(&r, 30 * KB_NS + credit_time);
    assert_int_equal(ipcq_end_info(east).peer_tail_cache, 1);
    kb_oplog_flush(r.log);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), credit_time);
    rig_fini(&r);
}

typedef struct wakes {
    ipcq_end *end;
    kb_time credit_at;
    int count;
} wakes;

static void count_wake(void *self)
{
    wakes *w = self;
    w->count++;
    assert_true(ipcq_credit_at(w->end, &w->credit_at));
}

/* The sender is woken as soon as the time of its credit is known, not when the credit is there. */
static void who_waits_is_called_when_the_time_is_known(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 1;
    rig r = RIG(2, edges, &settings);
    wakes w = {.end = end_of(&r, 0, "E")};
    send(&r, w.end, 1);
    (void)ipcq_await_credit(w.end, NULL, count_wake, &w);
    go_to(&r, 7 * KB_NS);
    taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
    t.receive.posted = 9 * KB_NS;
    post(&t);
    assert_int_equal(w.count, 1);
    assert_int_equal(w.credit_at, 9 * KB_NS + credit_time);
    ipcq_stop_awaiting(w.end);
    go_to(&r, KB_US);
    send(&r, w.end, 1);
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    assert_int_equal(w.count, 1); /* the sender waits no longer */
    rig_fini(&r);
}

/* ---- Waiting ----------------------------------------------------------------------------- */

enum { SENDS = 6 };

typedef struct program {
    rig *r;
    ipcq_end *from, *to;
    kb_time sent[SENDS];
    int count;
    kb_time pauses; /* before each send */
    bool cleaned;
} program;

static void send_all(kb_co *co, void *arg)
{
    program *p = arg;
    for (int i = 0; i < SENDS; i++) {
        if (p->pauses > 0)
            kb_co_sleep(co, p->pauses);
        await_credit(p->r, p->from, co);
        p->sent[p->count++] = kb_sim_now(p->r->sim);
        send(p->r, p->from, 8);
    }
}

static void on_take(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)arg;
    program *p = self;
    assert_true(take_now(p->r, p->to));
}

/* Two slots, which are freed at 20, 40, 60, 80 ns. The others are sent a credit's time later. */
static const kb_time sent_at[SENDS] = {0, 0, 31062500, 51062500, 71062500, 91062500};

static void run_program(rig *r, program *p)
{
    kb_handler take;
    kb_source source = kb_source_make(7);
    *p = (program){.r = r, .from = end_of(r, 0, "E"), .to = end_of(r, 1, "W")};
    expect_ok(kb_sim_add_handler(r->sim, on_take, p, &take));
    expect_ok(kb_co_spawn(r->sim, NULL, send_all, p, NULL));
    for (kb_time t = 1; t <= 4; t++)
        (void)kb_sim_at(r->sim, &source, 20 * t * KB_NS, take, 0);
    expect_ok(kb_sim_run(r->sim, KB_FOREVER));
    assert_int_equal(p->count, SENDS);
}

static void a_sender_goes_on_when_its_credit_is_there(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 2;
    rig r = RIG(2, edges, &settings);
    program p;
    run_program(&r, &p);
    assert_memory_equal(p.sent, sent_at, sizeof sent_at);
    rig_fini(&r);
}

typedef struct watcher {
    kb_op ops[8];
    size_t count;
} watcher;

static void on_op(void *self, const kb_op *op)
{
    watcher *w = self;
    assert_true(w->count < 8);
    w->ops[w->count++] = *op;
}

/* Who gets every record changes nothing; the last credit ends when nobody waits for it. */
static void credits_are_the_same_when_somebody_watches(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 2;
    rig r = RIG(2, edges, &settings);
    watcher w = {0};
    kb_oplog_watch(r.log, on_op, &w);
    program p;
    run_program(&r, &p);
    assert_memory_equal(p.sent, sent_at, sizeof sent_at);
    assert_int_equal(kb_sim_now(r.sim), 91062500);
    kb_oplog_flush(r.log);
    assert_int_equal(w.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const kb_op *op = &w.ops[i];
        assert_int_equal(op->unit, KB_UNIT_IPCQ);
        assert_string_equal(op->name, "credit");
        assert_int_equal(op->pe.pe, 1);
        assert_int_equal(op->start, 20 * (kb_time)(i + 1) * KB_NS);
        assert_int_equal(op->end, op->start + credit_time);
        assert_int_equal(op->bytes, 16);
    }
    rig_fini(&r);
}

/* The credit is on its way when the sender begins to wait: sent at 0, 0, and then as before. */
static void a_credit_that_is_on_its_way_is_waited_for(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 1;
    rig r = RIG(2, edges, &settings);
    program p = {.r = &r, .from = end_of(&r, 0, "E"), .to = end_of(&r, 1, "W")};
    send(&r, p.from, 1);
    assert_true(take_now(&r, p.to));
    p.count = 0;
    p.pauses = KB_NS;
    expect_ok(kb_co_spawn(r.sim, &(kb_co_options){.daemon = true}, send_all, &p, NULL));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    assert_int_equal(p.count, 1);
    assert_int_equal(p.sent[0], credit_time);
    rig_fini(&r);
}

static void await_again(void *arg)
{
    program *p = arg;
    kb_co *co = kb_sim_current(p->r->sim);
    assert_true(kb_co_is_unwinding(co));
    ipcq_stop_awaiting(p->from);
    await_credit(p->r, p->from, co);
    p->cleaned = true;
}

static void wait_in_vain(kb_co *co, void *arg)
{
    program *p = arg;
    kb_cleanup undo;
    kb_co_push_cleanup(co, &undo, await_again, p);
    await_credit(p->r, p->from, co);
    fail_msg("there is no credit");
}

/* And the credit that comes then wakes nobody. */
static void a_sender_that_is_unwound_does_not_wait(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.n_slots = 1;
    rig r = RIG(2, edges, &settings);
    program p = {.r = &r, .from = end_of(&r, 0, "E"), .to = end_of(&r, 1, "W")};
    send(&r, p.from, 1);
    kb_co *co;
    expect_ok(kb_co_spawn(r.sim, NULL, wait_in_vain, &p, &co));
    go_to(&r, KB_NS);
    kb_co_kill(co);
    assert_true(p.cleaned);
    assert_true(take_now(&r, p.to));
    go_to(&r, KB_US);
    assert_true(has_credit(&r, p.from));
    rig_fini(&r);
}

/* ---- Slots ------------------------------------------------------------------------------- */

/* A queue of three slots, far beyond them, against counts. */
static void slots_are_used_round_and_round(void **state)
{
    (void)state;
    enum { MESSAGES = 20000, SLOTS = 3 };
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = {KB_HBM, false, SLOTS, 1000, 16};
    rig r = RIG(2, edges, &settings);
    ipcq_end *from = end_of(&r, 0, "W"), *to = end_of(&r, 1, "E");
    uint64_t sent = 0, taken = 0, back = 0, base = 0; /* back: credits that are there */
    kb_time freed_at[MESSAGES];
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    while (taken < MESSAGES) {
        kb_time now = kb_sim_now(r.sim);
        while (back < taken && freed_at[back] + credit_time <= now)
            back++;
        assert_int_equal(has_credit(&r, from), sent - back < SLOTS);
        if (sent < MESSAGES && sent - back < SLOTS && kb_rng_below(&rng, 2)) {
            ipcq_segment segment = ipcq_take_slot(message_of(from, sent % 1001));
            base = sent == 0 ? segment.slot.offset : base;
            assert_int_equal(segment.slot.offset, base + sent % SLOTS * 1000);
            arrive(&segment);
            sent++;
        } else if (taken < sent && kb_rng_below(&rng, 2)) {
            taker t = taker_of(&r, 1, to);
            post(&t);
            assert_int_equal(t.messages, 1);
            assert_int_equal(t.sequence, taken);
            assert_int_equal(t.bytes, taken % 1001);
            freed_at[taken++] = now;
        } else {
            go_to(&r, now + (kb_time)kb_rng_below(&rng, 12 * KB_NS));
        }
    }
    rig_fini(&r);
}

/* What was sent first is handed out first, also if it arrives last. */
static void arrivals_in_any_order_are_handed_out_in_order(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    const int orders[][4] = {{3, 2, 1, 0}, {0, 3, 1, 2}, {1, 0, 3, 2}, {2, 3, 0, 1}};
    rig r = RIG(2, edges, &mostly);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    for (uint64_t round = 0; round < 4; round++) {
        ipcq_segment segments[4];
        taker takers[4];
        for (int i = 0; i < 4; i++) {
            assert_true(has_credit(&r, east));
            segments[i] = ipcq_take_slot(message_of(east, 10));
            takers[i] = taker_of(&r, 1, west);
            post(&takers[i]);
        }
        bool there[4] = {false};
        for (int k = 0; k < 4; k++) {
            there[orders[round][k]] = true;
            arrive(&segments[orders[round][k]]);
            bool all = true;
            for (int i = 0; i < 4; i++) {
                all = all && there[i];
                assert_int_equal(takers[i].messages, all);
                assert_true(!all || takers[i].sequence == 4 * round + (uint64_t)i);
            }
        }
        go_to(&r, kb_sim_now(r.sim) + KB_US);
    }
    rig_fini(&r);
}

/* E and W of pe0 lead to the same PE: what is sent in one does not arrive in the other. */
static void two_directions_to_one_peer_do_not_mix(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    send(&r, end_of(&r, 0, "E"), 1);
    send(&r, end_of(&r, 0, "W"), 2);
    send(&r, end_of(&r, 0, "W"), 3);
    taker west = taker_of(&r, 1, end_of(&r, 1, "W")), east = taker_of(&r, 1, end_of(&r, 1, "E"));
    post(&east);
    post(&west);
    assert_int_equal(west.bytes, 1);
    assert_int_equal(east.bytes, 2);
    /* Nor do their credits. */
    go_to(&r, KB_US);
    for (int i = 0; i < 3; i++)
        send(&r, end_of(&r, 0, "W"), 1);
    assert_false(has_credit(&r, end_of(&r, 0, "W")));
    for (int i = 0; i < 4; i++)
        send(&r, end_of(&r, 0, "E"), 1);
    assert_false(has_credit(&r, end_of(&r, 0, "E")));
    rig_fini(&r);
}

/* ---- What matches nothing ---------------------------------------------------------------- */

static void expect_lost(rig *r, kb_location at, uint64_t bytes, const char *where, const char *why)
{
    ipcq_end *east = end_of(r, 0, "E");
    ipcq_message *message = message_of(east, bytes);
    char expected[256];
    snprintf(expected, sizeof expected,
             "message %d of sip0.cube0.pe0, direction E, arrives at %s: %s", (int)message->sequence,
             where, why);
    ipcq_segment segment = {.message = message, .slot = at, .bytes = bytes};
    uint64_t delivered;
    expect_error(ipcq_arrive(&segment, &delivered), KB_ERR_FAULT, expected);
    ipcq_message_free(message);
}

static kb_location tcm_of(kb_pe at, uint64_t offset)
{
    return (kb_location){KB_TCM, at, offset};
}

static void what_arrives_nowhere_is_a_fault(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = {KB_TCM, false, 3, 100, 16}; /* 300 bytes, which take 320 */
    rig r = RIG(2, edges, &settings);
    const char *none = "no receive ring is installed there";
    expect_lost(&r, tcm_of(pe(1), 640), 1, "0x40000280 (sip0.cube0.pe1.tcm+0x280)", none);
    expect_lost(&r, tcm_of(pe(2), 0), 1, "sip0.cube0.pe2.tcm+0x0", none);
    expect_lost(&r, (kb_location){KB_SRAM, pe(0), 0}, 1, "0x800000000 (sip0.cube0.sram+0x0)", none);
    expect_lost(&r, (kb_location){KB_HBM, pe(0), 0}, 1, "0x2000000000 (sip0.cube0.hbm+0x0)", none);
    expect_lost(&r, (kb_location){KB_HBM, pe(0), UINT64_MAX}, 1,
                "sip0.cube0.pe0.hbm+0xffffffffffffffff", none);
    expect_lost(&r, (kb_location){KB_VIRTUAL, pe(1), 64}, 1, "virtual+0x40", none);
    expect_lost(&r, tcm_of((kb_pe){1, 0, 1}, 0), 1, "sip1.cube0.pe1.tcm+0x0", none);
    expect_lost(&r, tcm_of((kb_pe){0, 1, 1}, 0), 1, "sip0.cube1.pe1.tcm+0x0", none);

    kb_location base = tcm_of(pe(1), 320);
    const char *at = "0x50000172 (sip0.cube0.pe1.ipcq+0x172)";
    expect_lost(&r, tcm_of(pe(1), 370), 1, at, "not the start of a slot");
    expect_lost(&r, tcm_of(pe(1), 620), 1, "0x5000026c (sip0.cube0.pe1.ipcq+0x26c)",
                "not the start of a slot");
    at = "0x50000140 (sip0.cube0.pe1.ipcq+0x140)";
    expect_lost(&r, base, 101, at, "it is larger than the slot");
    send(&r, end_of(&r, 0, "E"), 100);
    expect_lost(&r, base, 1, at, "the slot is not free");

    expect_ok(ipcq_remove(r.set, pe(1)));
    expect_lost(&r, base, 1, at, none);
    rig_fini(&r);
}

/*
 * Rings outside of the TCM: three slots, whose reads end in the order 2, 0, 1. The second read
 * frees the first slot, the third the other two: so the credits are there 11.0625 ns after 20, 30
 * and 30 ns. Until then what was handed out is in its slot.
 */
static void slots_are_freed_in_the_order_of_their_reads(void **state)
{
    (void)state;
    enum { SLOTS = 3 };
    static const uint64_t order[SLOTS] = {2, 0, 1};
    static const uint64_t freed[SLOTS] = {0, 1, 3};
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = {KB_HBM, false, SLOTS, 100, 16};
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    taker takers[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        takers[i] = taker_of(&r, 1, west);
        takers[i].keeps_slots = true;
        post(&takers[i]);
        send(&r, east, 1);
        assert_int_equal(takers[i].messages, 1);
        assert_int_equal(takers[i].ends, 0);
        assert_int_equal(takers[i].last_read.number, i);
    }
    expect_lost(&r, takers[1].last_read.slot, 1, "0x21800001a4 (sip0.cube0.hbm+0x1800001a4)",
                "the slot is not free");
    for (int i = 0; i < SLOTS; i++) {
        go_to(&r, (10 + 10 * i) * KB_NS);
        taker *t = &takers[order[i]];
        ipcq_slot_was_read(&t->receive, order[i]);
        assert_int_equal(t->ends, 1);
        assert_int_equal(t->receive.when, (10 + 10 * i) * KB_NS);
        assert_int_equal(ipcq_end_info(west).my_tail, freed[i]);
    }
    static const kb_time credits[SLOTS] = {20 * KB_NS, 30 * KB_NS, 30 * KB_NS};
    for (int i = 0; i < SLOTS; i++) {
        kb_time at;
        assert_true(ipcq_credit_at(east, &at));
        assert_int_equal(at, credits[i] + credit_time);
        (void)take_slot(east);
    }
    rig_fini(&r);
}

static void a_credit_that_belongs_to_nobody_is_a_fault(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    send(&r, end_of(&r, 0, "E"), 1);
    expect_ok(ipcq_remove(r.set, pe(0)));
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    expect_error(kb_sim_run(r.sim, KB_FOREVER), KB_ERR_FAULT,
                 "a credit of sip0.cube0.pe1, direction W, for the ring at 0x50004000 "
                 "(sip0.cube0.pe1.ipcq+0x4000): no direction of sip0.cube0.pe0 that is installed "
                 "leads there");
    rig_fini(&r);
}

/* ---- Values ------------------------------------------------------------------------------ */

static void a_message_has_its_value_until_it_is_freed(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    ipcq_end *east = end_of(&r, 0, "E");
    for (int i = 0; i < 3; i++) {
        ipcq_message *message = message_of(east, 8);
        assert_int_equal(message->sequence, i);
        assert_int_equal(message->to_arrive, 1);
        assert_int_equal(message->bytes, 8);
        assert_int_equal(message->dtype, KB_I8);
        assert_string_equal(ipcq_direction(message->from), "E");
        expect_ok(data_full(r.store, KB_I8, &KB_SHAPE(8), 1, &message->data));
        send_next(message);
    }
    assert_int_equal(data_get_stats(r.store).live_values, 3);
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    assert_int_equal(data_get_stats(r.store).live_values, 2);
    ipcq_message_free(message_of(east, 1)); /* not sent after all */
    ipcq_set_reset(r.set);
    assert_int_equal(data_get_stats(r.store).live_values, 0);
    rig_fini(&r);
}

/* ---- Without rings ----------------------------------------------------------------------- */

static void without_rings_there_are_no_bounds(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings mock = {0};
    rig r = RIG(2, edges, &mock);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    for (uint64_t i = 0; i < 3000; i++) {
        assert_true(has_credit(&r, east));
        ipcq_hand_over(message_of(east, 100000 + i));
    }
    for (uint64_t i = 0; i < 3001; i++) {
        taker t = taker_of(&r, 1, west);
        post(&t);
        assert_int_equal(t.receive.waits, i == 3000);
        if (i == 3000)
            ipcq_hand_over(message_of(east, 100000 + i));
        assert_int_equal(t.messages, 1);
        assert_int_equal(t.sequence, i);
        assert_int_equal(t.bytes, 100000 + i);
    }
    for (int i = 0; i < 3; i++)
        ipcq_hand_over(message_of(east, 1));
    ipcq_set_reset(r.set);
    assert_false(take_now(&r, west));
    assert_int_equal(kb_sim_get_stats(r.sim).pending, 0);
    rig_fini(&r);
}

/* ---- Starting again ---------------------------------------------------------------------- */

/* Two messages wait, one slot is free again, a receive waits, a credit is on its way. */
static void a_reset_forgets_everything(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    ipcq_end *east = end_of(&r, 0, "E"), *west = end_of(&r, 1, "W");
    for (int i = 0; i < 4; i++)
        send(&r, east, 1);
    assert_true(take_now(&r, west));
    taker one = taker_of(&r, 1, end_of(&r, 1, "E")), any = taker_of(&r, 0, NULL);
    post(&one);
    post(&any);
    uint64_t base = take_slot(end_of(&r, 0, "W")).offset;
    ipcq_set_reset(r.set);
    assert_false(one.receive.waits || any.receive.waits);
    go_to(&r, KB_US);
    assert_int_equal(take_slot(end_of(&r, 0, "W")).offset, base);
    for (uint64_t i = 0; i < 4; i++)
        send(&r, east, 5);
    assert_false(has_credit(&r, east));
    taker t = taker_of(&r, 1, west);
    post(&t);
    assert_int_equal(t.sequence, 0);
    assert_int_equal(t.bytes, 5);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_credit_takes_its_time),
        cmocka_unit_test(a_credit_from_another_cube_takes_longer),
        cmocka_unit_test(credits_are_counted_however_they_come),
        cmocka_unit_test(what_is_received_ahead_has_its_credit_then),
        cmocka_unit_test(a_slot_may_be_freed_ahead),
        cmocka_unit_test(who_waits_is_called_when_the_time_is_known),
        cmocka_unit_test(a_sender_goes_on_when_its_credit_is_there),
        cmocka_unit_test(credits_are_the_same_when_somebody_watches),
        cmocka_unit_test(a_credit_that_is_on_its_way_is_waited_for),
        cmocka_unit_test(a_sender_that_is_unwound_does_not_wait),
        cmocka_unit_test(slots_are_used_round_and_round),
        cmocka_unit_test(arrivals_in_any_order_are_handed_out_in_order),
        cmocka_unit_test(two_directions_to_one_peer_do_not_mix),
        cmocka_unit_test(what_arrives_nowhere_is_a_fault),
        cmocka_unit_test(slots_are_freed_in_the_order_of_their_reads),
        cmocka_unit_test(a_credit_that_belongs_to_nobody_is_a_fault),
        cmocka_unit_test(a_message_has_its_value_until_it_is_freed),
        cmocka_unit_test(without_rings_there_are_no_bounds),
        cmocka_unit_test(a_reset_forgets_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
