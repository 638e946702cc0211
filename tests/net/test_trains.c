/*
 * test_trains.c: uncontended transfers are fast-forwarded as trains, which nothing shows: every
 * completion, the order of ends, and every figure at any time are those of packets that move one by
 * one; and when a watcher is set, so are all bookings from there on.
 *
 * Trains are met at every kind of moment: other transfers come, and statistics are read, when a
 * packet starts, when its head or its tail comes or goes, and a femtosecond before and after.
 *
 * Checks N8 and N9.
 */
#include "net/scenario.h"
#include "support/seed.h"
#include "topo/random_machines.h"

/* ---- On small graphs --------------------------------------------------------------------- */

static uint64_t train_events, packet_events;

/* A time at which something happens, or nearly. */
static kb_time draw_moment(kb_rng *rng, const outcome *o)
{
    if (o->count == 0)
        return 0;
    const net_booking *b = &o->bookings[kb_rng_below(rng, o->count)];
    kb_time moments[] = {b->ready_at, b->start, b->free_at, b->tail_leaves,
                         o->completions[b->arg].ended};
    kb_time moment = moments[kb_rng_below(rng, sizeof moments / sizeof *moments)];
    if (kb_rng_below(rng, 4) == 0)
        moment += (kb_time)kb_rng_below(rng, 3) - 1;
    return moment > 0 ? moment : 0;
}

/* Some orders come so that they are ready at their sources at such times. */
static void move_orders(scenario *s, kb_rng *rng, const outcome *o)
{
    for (uint32_t i = 0; i < s->orders.count; i++) {
        planned *p = &s->orders.items[i];
        if (p->after != AT_ONCE || kb_rng_below(rng, 2))
            continue;
        kb_time ready = p->forwarded ? 0 : topo_source_overhead(&s->graph, p->from);
        kb_time moment = draw_moment(rng, o);
        p->at = moment > ready ? moment - ready : 0;
    }
}

static void draw_looks(scenario *s, kb_rng *rng, const outcome *o)
{
    s->look_count = (uint32_t)kb_rng_below(rng, MAX_LOOKS + 1);
    for (uint32_t i = 0; i < s->look_count; i++) {
        kb_time moment = draw_moment(rng, o);
        uint32_t place = i;
        for (; place > 0 && s->looks[place - 1] > moment; place--)
            s->looks[place] = s->looks[place - 1];
        s->looks[place] = moment;
    }
    s->watch_from = KB_FOREVER;
    if (s->look_count > 0 && kb_rng_below(rng, 2))
        s->watch_from = s->looks[kb_rng_below(rng, s->look_count)];
}

static void compare(uint64_t seed, const chance *how)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    scenario s;
    scenario_random(&s, &rng, how);
    outcome *o = scenario_run(&s);
    move_orders(&s, &rng, o);
    draw_looks(&s, &rng, o);
    outcome_free(o);

    outcome *trains = scenario_run(&s);
    s.options.no_elision = true;
    outcome *packets = scenario_run(&s);
    char what[40];
    (void)snprintf(what, sizeof what, "seed %ju", (uintmax_t)seed);
    outcomes_are_equal(trains, packets, what);
    train_events += trains->events;
    packet_events += packets->events;
    outcome_free(trains);
    outcome_free(packets);
    scenario_fini(&s);
}

static void compare_many(uint64_t first, uint64_t count, const chance *how)
{
    count = scenario_cases(count);
    for (uint64_t seed = first; seed < first + count; seed++)
        compare(seed, how);
}

static void trains_make_no_difference(void **state)
{
    (void)state;
    compare_many(10000000, 1000, &(chance){.streams = true, .most_orders = 3});
    compare_many(20000000, 2000, &(chance){.streams = true, .ties = true, .most_orders = 3});
    compare_many(30000000, 1000, &(chance){.streams = true, .ties = true, .most_orders = 12});
    compare_many(40000000, 500,
                 &(chance){.streams = true, .ties = true, .chained = true, .most_orders = 20});
    compare_many(50000000, 500, &(chance){.streams = true, .chained = true, .most_orders = 20});
    assert_true(train_events < packet_events / 2);
}

/* Submitted between short runs, when all is done that happens up to then, or by events. */
static void it_makes_no_difference_who_submits(void **state)
{
    (void)state;
    uint64_t count = scenario_cases(500);
    for (uint64_t seed = 60000000; seed < 60000000 + count; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        scenario s;
        scenario_random(&s, &rng, &(chance){.streams = true, .ties = true, .most_orders = 6});
        s.submit_first = false;
        outcome *o = scenario_run(&s);
        move_orders(&s, &rng, o);
        outcome_free(o);
        s.watch_from = KB_FOREVER;
        o = scenario_run(&s);
        s.from_outside = true;
        outcome *outside = scenario_run(&s);
        outcomes_are_equal(o, outside, "from outside");
        outcome_free(o);
        outcome_free(outside);
        scenario_fini(&s);
    }
}

/* ---- What trains are for ----------------------------------------------------------------- */

/* a > m > x, 100 and 200 GB/s, 3 ns behind each link. */
typedef struct line {
    scenario s;
    uint32_t am, mx, bm;
} line;

static void line_init(line *l, uint32_t vcs)
{
    scenario_init(
        &l->s,
        (net_options){.fabric.packet_bytes = 100, .fabric.vcs = vcs, .fabric.depth_bytes = 200});
    uint32_t m = scenario_node(&l->s, 3 * KB_NS), x = scenario_node(&l->s, 3 * KB_NS);
    l->am = scenario_link(&l->s, scenario_node(&l->s, 0), m, 100, 0);
    l->mx = scenario_link(&l->s, m, x, 200, 0);
    l->bm = scenario_link(&l->s, scenario_node(&l->s, 0), m, 100, 0);
    l->s.watch_from = KB_FOREVER;
}

/* 1000 packets: 1000 ns and 6 for the nodes. Submission, arrival at the source, end. */
static void a_lone_transfer_takes_three_events(void **state)
{
    (void)state;
    line l;
    line_init(&l, 2);
    scenario_write(&l.s, 0, 100000, LINKS(l.am, l.mx));
    outcome *o = scenario_run(&l.s);
    assert_int_equal(o->completions[0].ended, 1006 * KB_NS);
    assert_int_equal(o->total.hops, 2000);
    assert_int_equal(o->events, 3);
    outcome_free(o);
    scenario_fini(&l.s);
}

/* Ten of 100 packets, 50 ns apart: each waits for those before it, 50 ns more than the one before.
 */
static void transfers_that_follow_take_three_events_each(void **state)
{
    (void)state;
    line l;
    line_init(&l, 2);
    for (uint32_t i = 0; i < 10; i++)
        scenario_write(&l.s, 50 * i * KB_NS, 10000, LINKS(l.am, l.mx));
    outcome *o = scenario_run(&l.s);
    kb_time waited = 0;
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(o->completions[i].ended, (100 * (i + 1) + 6) * KB_NS);
        waited += 50 * i * KB_NS;
    }
    assert_int_equal(o->stats[l.am].waited_fs, waited);
    assert_int_equal(o->stats[l.mx].waited_fs, 0);
    assert_int_equal(o->events, 30);
    outcome_free(o);
    scenario_fini(&l.s);
}

/*
 * The same, and a packet from b that is at m at 253 ns, when one of the third transfer is: whoever
 * goes second is late by half a nanosecond, but that is made up for at once, since m > x is twice
 * as fast. So the others end as before, and this one when its tail has come, at 254, and is passed
 * on. From 250 ns the third transfer moves as packets, and no other one does: 50 would start on
 * a > m, and 53 on m > x, each in an event of its own; but after some of them what is left is
 * coalesced into a train again.
 */
static void who_was_met_is_followed_again(void **state)
{
    (void)state;
    for (uint32_t vcs = 1; vcs <= 3; vcs++) {
        line l;
        line_init(&l, vcs);
        for (uint32_t i = 0; i < 10; i++)
            scenario_write(&l.s, 50 * i * KB_NS, 10000, LINKS(l.am, l.mx));
        scenario_write(&l.s, 250 * KB_NS, 100, LINKS(l.bm, l.mx));
        outcome *o = scenario_run(&l.s);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(o->completions[i].ended, (100 * (i + 1) + 6) * KB_NS);
        assert_int_equal(o->completions[10].ended, 257 * KB_NS);
        assert_in_range(o->events, 33 + 8, 33 + 40);
        assert_true(o->trains.coalesced > 0);
        outcome_free(o);
        scenario_fini(&l.s);
    }
}

/*
 * a > m > x, 200 and 100 GB/s: packets queue at m. Ten of 100 packets, each when the slower link
 * has had the time for those before it: 100 ns apart, though it takes 106 ns until one has ended.
 */
static void transfers_that_come_late_enough_may_queue_on_their_way(void **state)
{
    (void)state;
    scenario s;
    scenario_init(
        &s, (net_options){.fabric.packet_bytes = 100, .fabric.vcs = 2, .fabric.depth_bytes = 200});
    uint32_t m = scenario_node(&s, 3 * KB_NS), x = scenario_node(&s, 3 * KB_NS);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 200, 0);
    uint32_t mx = scenario_link(&s, m, x, 100, 0);
    s.watch_from = KB_FOREVER;
    for (uint32_t i = 0; i < 10; i++)
        scenario_write(&s, 100 * i * KB_NS, 10000, LINKS(am, mx));
    outcome *o = scenario_run(&s);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(o->completions[i].ended, (100 * (i + 1) + 6) * KB_NS);
    assert_int_equal(o->events, 30);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * a > k > m > x, and b > k. With two channels behind k > m the first transfer of a takes channel 0,
 * and a packet of b that comes between channel 1. So it is the turn of channel 0 when the next one
 * of a comes, but the first one's packets are still there: it takes 1. Looked at from outside in
 * the midst of each transfer, and watched from then on.
 */
static void channels_are_those_of_packets(void **state)
{
    (void)state;
    for (kb_time look = 50; look < 500; look += 100)
        for (uint32_t vcs = 1; vcs <= 4; vcs++) {
            scenario s;
            scenario_init(&s, (net_options){.fabric.packet_bytes = 100,
                                            .fabric.vcs = vcs,
                                            .fabric.depth_bytes = 200});
            uint32_t k = scenario_node(&s, 3 * KB_NS), m = scenario_node(&s, 5 * KB_NS);
            uint32_t ak = scenario_link(&s, scenario_node(&s, 0), k, 100, 0);
            uint32_t bk = scenario_link(&s, scenario_node(&s, 0), k, 100, 0);
            uint32_t km = scenario_link(&s, k, m, 200, 0);
            uint32_t mx = scenario_link(&s, m, scenario_node(&s, 0), 200, 0);
            for (uint32_t i = 0; i < 5; i++)
                scenario_write(&s, 10 * i * KB_NS, 10000, LINKS(ak, km, mx));
            scenario_write(&s, 20 * KB_NS, 100, LINKS(bk, km, mx));
            s.looks[0] = s.watch_from = look * KB_NS;
            s.look_count = 1;
            outcome_free(scenario_run_both(&s));
            scenario_fini(&s);
        }
}

/* ---- On a machine ------------------------------------------------------------------------ */

enum { MACHINE_ORDERS = 300, MACHINE_LOOKS = 5 };

typedef struct machine_run {
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
    kb_handler submit;
    uint64_t seed;
    kb_time ended[MACHINE_ORDERS];
} machine_run;

static void on_machine_done(void *self, uint64_t arg, const net_completion *completion)
{
    machine_run *r = self;
    r->ended[arg] = completion->ended;
}

/* Mostly from and to the PE's own slice, else another one's of the cube, or anywhere. */
static void on_machine_submit(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    machine_run *r = self;
    const topo_machine *m = r->routes.machine;
    const topo_shape *shape = topo_machine_shape(m);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(r->seed + arg));
    uint32_t cube = (uint32_t)kb_rng_below(&rng, 3), pe = (uint32_t)kb_rng_below(&rng, 3);
    uint32_t from = topo_node_at(m, TOPO_PE_DMA, 0, cube, pe);
    if (kb_rng_below(&rng, 4) == 0)
        pe = (uint32_t)kb_rng_below(&rng, shape->pes);
    if (kb_rng_below(&rng, 12) == 0)
        cube = (uint32_t)kb_rng_below(&rng, shape->cubes);
    uint64_t bytes =
        kb_rng_below(&rng, 2) ? 256 * (1 + kb_rng_below(&rng, 64)) : 1 + kb_rng_below(&rng, 10000);
    net_order order = net_make_order(&r->routes, from, topo_node_at(m, TOPO_HBM_CTRL, 0, cube, pe),
                                     bytes, kb_rng_below(&rng, 3) > 0);
    order.done = on_machine_done;
    order.self = r;
    order.arg = arg;
    expect_ok(net_submit(r->fabric, &order));
}

static void machine_run_init(machine_run *r, const topo_machine *m, uint64_t seed, bool no_elision)
{
    *r = (machine_run){.seed = seed};
    expect_ok(kb_sim_create(NULL, &r->sim));
    expect_ok(net_create_for(r->sim, m, 1, no_elision, &r->fabric));
    expect_ok(net_route_buffer_init(&r->routes, m));
    expect_ok(kb_sim_add_handler(r->sim, on_machine_submit, r, &r->submit));
    kb_source source = kb_source_make(0);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    for (uint32_t i = 0; i < MACHINE_ORDERS; i++)
        (void)kb_sim_at(r->sim, &source, (kb_time)kb_rng_below(&rng, 3000) * KB_NS, r->submit, i);
}

static void machine_run_fini(machine_run *r)
{
    net_route_buffer_fini(&r->routes);
    net_destroy(r->fabric);
    kb_sim_destroy(r->sim);
}

static void compare_on_machine(const topo_machine *m, uint64_t seed)
{
    machine_run trains, packets;
    machine_run_init(&trains, m, seed, false);
    machine_run_init(&packets, m, seed, true);
    uint32_t links = (uint32_t)topo_machine_graph(m)->links.count;
    for (kb_time look = 1; look <= MACHINE_LOOKS; look++) {
        kb_time until = look < MACHINE_LOOKS ? look * 777 * KB_NS : KB_FOREVER;
        expect_ok(kb_sim_run(trains.sim, until));
        expect_ok(kb_sim_run(packets.sim, until));
        for (uint32_t at = 0; at < links; at++) {
            net_link_stats a = net_link_get(trains.fabric, at);
            net_link_stats b = net_link_get(packets.fabric, at);
            assert_int_equal(a.bytes, b.bytes);
            assert_int_equal(a.waited_fs, b.waited_fs);
        }
        net_stats a = net_get_stats(trains.fabric), b = net_get_stats(packets.fabric);
        assert_int_equal(a.hops, b.hops);
        assert_int_equal(a.link_bytes, b.link_bytes);
        assert_int_equal(a.transfers, b.transfers);
        if (look == 2) {
            net_reset_stats(trains.fabric);
            net_reset_stats(packets.fabric);
        }
    }
    assert_memory_equal(trains.ended, packets.ended, sizeof trains.ended);
    assert_true(kb_sim_get_stats(trains.sim).events * 3 < kb_sim_get_stats(packets.sim).events);
    machine_run_fini(&trains);
    machine_run_fini(&packets);
}

static void trains_make_no_difference_on_a_machine(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    uint64_t count = scenario_cases(6);
    for (uint64_t seed = 1; seed <= count; seed++)
        compare_on_machine(m, 1000 * seed);
    topo_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_make_no_difference),
        cmocka_unit_test(it_makes_no_difference_who_submits),
        cmocka_unit_test(a_lone_transfer_takes_three_events),
        cmocka_unit_test(transfers_that_follow_take_three_events_each),
        cmocka_unit_test(who_was_met_is_followed_again),
        cmocka_unit_test(transfers_that_come_late_enough_may_queue_on_their_way),
        cmocka_unit_test(channels_are_those_of_packets),
        cmocka_unit_test(trains_make_no_difference_on_a_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
