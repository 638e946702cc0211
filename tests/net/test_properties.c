/*
 * test_properties.c: the laws of the transport on random machines with random traffic.
 *
 * Checks N6.
 */
#include "net/replay.h"
#include "support/seed.h"

#include <inttypes.h>

typedef void case_fn(scenario *s, kb_rng *rng, const char *what);

static void try_many(uint64_t first, uint64_t count, const chance *how, case_fn *fn)
{
    count = scenario_cases(count);
    for (uint64_t seed = first; seed < first + count; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        scenario s;
        scenario_random(&s, &rng, how);
        char what[40];
        (void)snprintf(what, sizeof what, "seed %ju", (uintmax_t)seed);
        fn(&s, &rng, what);
        scenario_fini(&s);
    }
}

/* ---- The bookings keep the laws ---------------------------------------------------------- */

static void replay_it(scenario *s, kb_rng *rng, const char *what)
{
    (void)rng;
    outcome *o = scenario_run(s);
    replay_check(s, o, what);
    outcome_free(o);
}

static void bookings_keep_the_laws(void **state)
{
    (void)state;
    try_many(100000, 1500, &(chance){.most_orders = 20}, replay_it);
    try_many(200000, 1500, &(chance){.ties = true, .most_orders = 20}, replay_it);
    try_many(300000, 700, &(chance){.chained = true, .most_orders = 40}, replay_it);
}

static void bookings_keep_the_laws_with_serial_ports(void **state)
{
    (void)state;
    try_many(400000, 1000, &(chance){.serial = true, .most_orders = 20}, replay_it);
    try_many(500000, 1000, &(chance){.serial = true, .ties = true, .most_orders = 20}, replay_it);
}

/* ---- L1, L2: alone ----------------------------------------------------------------------- */

/* One order of the scenario, on the same machine. Shares what the scenario owns. */
static scenario only(const scenario *s, planned *order)
{
    scenario one = *s;
    order->at = 0;
    order->after = AT_ONCE;
    one.orders.items = order;
    one.orders.count = 1;
    return one;
}

/*
 * Rounding to femtoseconds can make a faster link the slower one for a packet, if a packet takes
 * less than 2 fs longer on the one than on the other.
 */
static bool is_exact(const scenario *s, const planned_message *message)
{
    uint64_t packet = s->options.fabric.packet_bytes;
    if (message->bytes <= packet)
        return true;
    for (uint32_t i = 0; i < message->count; i++)
        for (uint32_t j = i + 1; j < message->count; j++) {
            uint64_t a = topo_link_rate(&s->graph, topo_step_link(message->steps[i]));
            uint64_t b = topo_link_rate(&s->graph, topo_step_link(message->steps[j]));
            kb_time ta = topo_rate_time(a, packet), tb = topo_rate_time(b, packet);
            if (a != b && ta - tb < 3 && tb - ta < 3)
                return false;
        }
    return true;
}

static void each_alone(scenario *s, kb_rng *rng, const char *what)
{
    (void)rng;
    if (!s->finished)
        expect_ok(topo_graph_finish(&s->graph));
    s->finished = true;
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &s->graph, &s->options, &n));
    for (uint32_t i = 0; i < s->orders.count; i++) {
        planned order = s->orders.items[i];
        scenario one = only(s, &order);
        outcome *o = scenario_run(&one);
        net_order real = order_of(&order);
        net_completion foreseen = net_predict(n, &real);
        const net_completion *r = &o->completions[0];
        bool exact = is_exact(s, &order.out) && is_exact(s, &order.back);
        kb_time most = exact ? 0 : order.out.count + order.back.count;
        if (r->queueing < 0 || r->queueing > most) {
            scenario_print(&one);
            fail_msg("%s: order %u waits %" PRId64 " fs alone", what, i, r->queueing);
        }
        assert_int_equal(foreseen.ended + r->queueing, r->ended);
        assert_int_equal(foreseen.overhead, r->overhead);
        assert_int_equal(foreseen.wire, r->wire);
        assert_int_equal(foreseen.drain, r->drain);
        for (uint32_t at = 0; at < o->links; at++)
            assert_int_equal(o->stats[at].waited_fs, 0);
        outcome_free(o);
    }
    net_destroy(n);
    kb_sim_destroy(sim);
}

static void l1_l2_a_lone_transfer_waits_for_nothing(void **state)
{
    (void)state;
    try_many(600000, 700, &(chance){.most_orders = 6}, each_alone);
    try_many(700000, 700, &(chance){.ties = true, .most_orders = 6}, each_alone);
    /* Serial ports make no difference for a lone one. */
    try_many(800000, 300, &(chance){.serial = true, .most_orders = 6}, each_alone);
}

/* ---- L7: more ---------------------------------------------------------------------------- */

static kb_time time_of(scenario *s)
{
    outcome *o = scenario_run(s);
    kb_time total = o->completions[0].ended;
    outcome_free(o);
    return total;
}

static void more_of_each(scenario *s, kb_rng *rng, const char *what)
{
    (void)what;
    if (s->orders.count == 0)
        return;
    expect_ok(topo_graph_finish(&s->graph));
    s->finished = true;
    planned order = s->orders.items[0];
    scenario one = only(s, &order);
    bool exact = is_exact(s, &order.out) && is_exact(s, &order.back);
    kb_time slack = exact ? 0 : order.out.count + order.back.count;
    kb_time before = time_of(&one);

    planned_message *message = order.back.bytes > 0 ? &order.back : &order.out;
    uint64_t more = kb_rng_below(rng, 500);
    message->bytes += more;
    assert_true(time_of(&one) + slack >= before);
    message->bytes -= more;

    if (order.back.bytes == 0 && order.out.count > 1) {
        order.out.count--;
        assert_true(time_of(&one) <= before + slack);
        order.out.count++;
    }
    uint64_t *rate = &s->graph.rates.items[kb_rng_below(rng, s->graph.rates.count)];
    *rate += kb_rng_below(rng, 100 * TOPO_GBS);
    exact = exact && is_exact(s, &order.out) && is_exact(s, &order.back);
    slack = exact ? 0 : order.out.count + order.back.count;
    assert_true(time_of(&one) <= before + slack);
}

static void l7_more_never_takes_less(void **state)
{
    (void)state;
    try_many(900000, 2000, &(chance){.most_orders = 1}, more_of_each);
    try_many(1000000, 1000, &(chance){.ties = true, .most_orders = 1}, more_of_each);
}

/* ---- How it is executed makes no difference ---------------------------------------------- */

static uint64_t elided_events, all_events;

static void with_and_without_elision(scenario *s, kb_rng *rng, const char *what)
{
    (void)rng;
    s->options.no_elision = false;
    outcome *o = scenario_run(s);
    outcome *again = scenario_run(s);
    outcomes_are_equal(o, again, what);
    assert_int_equal(o->events, again->events);
    s->options.no_elision = true;
    outcome *full = scenario_run(s);
    outcomes_are_equal(o, full, what);
    elided_events += o->events;
    all_events += full->events;
    outcome_free(o);
    outcome_free(again);
    outcome_free(full);
}

static void elision_makes_no_difference(void **state)
{
    (void)state;
    for (int serial = 0; serial < 2; serial++) {
        try_many(1100000, 2000, &(chance){.serial = serial, .most_orders = 20},
                 with_and_without_elision);
        try_many(1200000, 6000, &(chance){.serial = serial, .ties = true, .most_orders = 20},
                 with_and_without_elision);
        try_many(1300000, 3000,
                 &(chance){.serial = serial, .ties = true, .chained = true, .most_orders = 40},
                 with_and_without_elision);
    }
    try_many(1600000, 200, &(chance){.large = true, .ties = true, .most_orders = 60},
             with_and_without_elision);
    assert_true(elided_events < all_events);
}

static void by_events_and_from_outside(scenario *s, kb_rng *rng, const char *what)
{
    (void)rng;
    s->submit_first = false;
    outcome *o = scenario_run(s);
    s->from_outside = true;
    outcome *outside = scenario_run(s);
    outcomes_are_equal(o, outside, what);
    outcome_free(o);
    outcome_free(outside);
}

static void it_makes_no_difference_who_submits(void **state)
{
    (void)state;
    try_many(1400000, 1000, &(chance){.most_orders = 20}, by_events_and_from_outside);
    try_many(1500000, 2000, &(chance){.ties = true, .most_orders = 20}, by_events_and_from_outside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bookings_keep_the_laws),
        cmocka_unit_test(bookings_keep_the_laws_with_serial_ports),
        cmocka_unit_test(l1_l2_a_lone_transfer_waits_for_nothing),
        cmocka_unit_test(l7_more_never_takes_less),
        cmocka_unit_test(elision_makes_no_difference),
        cmocka_unit_test(it_makes_no_difference_who_submits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
